"What the tests share: the sample photographs, made once a session, and the data beside the checkout where it is at hand."
import gc
import multiprocessing
import os
import shutil
import sys
import warnings
from multiprocessing.util import Finalize
from pathlib import Path

import pytest

IS_FULL = bool(os.environ.get('TIMMDATA_FULL'))   # in .ci/run
START_METHOD = os.environ.get('TIMMDATA_START_METHOD')   # of processes; None: Python's own default


def is_whole(config) -> bool:
    "Whether all tests were asked for, and not a file or a test by name."
    if hasattr(config, 'workerinput'): return config.workerinput['is_whole']
    return config.args_source is not config.ArgsSource.ARGS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node): node.workerinput['is_whole'] = is_whole(node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    "All tests are divided among two processes by file; for one file, starting them takes longer than it saves."
    option = config.option
    if hasattr(config, 'workerinput') or getattr(option, 'numprocesses', 0) is not None or option.usepdb or option.collectonly: return
    if is_whole(config) and (os.cpu_count() or 1) > 1: option.numprocesses, option.dist = 2, 'loadfile'


def pytest_configure(config):
    "Processes that run side by side do not see each other's buffers and temporary files."
    if START_METHOD: multiprocessing.set_start_method(START_METHOD)
    if 'PYTEST_XDIST_WORKER' in os.environ:
        import tempfile
        os.environ['TMPDIR'] = tempfile.tempdir = tempfile.mkdtemp(prefix='timmdata-tests-')
        Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=-200)   # after multiprocessing's own folder in it


def pytest_collection_modifyitems(config, items):
    "Tests marked `gpu` need a CUDA device; those marked `full` run in `.ci/run` (TIMMDATA_FULL=1), and where they are named one by one."
    import torch
    for item in items:
        if item.get_closest_marker('gpu') and not torch.cuda.is_available(): item.add_marker(pytest.mark.skip(reason='no CUDA device'))
    if IS_FULL or any('::' in arg for arg in config.args): return
    left = [item for item in items if item.get_closest_marker('full')]
    if left: config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


@pytest.fixture
def always_in_part(monkeypatch):
    "Of a JPEG, a region is decoded, or the rows down to the end of the crop, however little that saves."
    from pictures import part_costs

    from timmdata.core import jpeg
    monkeypatch.setattr(jpeg, 'PART_COSTS', part_costs())


@pytest.fixture(scope='session')
def cache(tmp_path_factory) -> Path:
    "A cache folder of this session, so that nothing is written into the user's home."
    return tmp_path_factory.mktemp('cache')


@pytest.fixture(autouse=True, scope='session')
def write_no_cache_of_the_user(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TIMMDATA_CACHE', str(cache))
        yield


@pytest.fixture(scope='session')
def samples(cache) -> Path:
    "The sample photographs, train/ and val/, with the files of oddities/; pages see them without."
    from oddities import write_oddities

    from timmdata.datasets.demo_data import get_samples
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TIMMDATA_CACHE', str(cache))
        made = get_samples()
    folder = shutil.copytree(made, cache/'with-oddities'/made.name)
    write_oddities(folder/'oddities')
    return folder


@pytest.fixture(autouse=True, scope='module')
def collect_only_what_a_file_makes():
    "Python's collector does not visit torch and all else that was there before; visiting it takes half a second."
    gc.collect()   # what earlier files have left
    gc.freeze()


def pytest_unconfigure():
    "The collection at the interpreter's end visits everything."
    gc.unfreeze()


@pytest.fixture(autouse=True)
def leave_torch_as_it_was():
    "A test that changes the number of threads, the default type or the warnings does not change the next one."
    if 'torch' not in sys.modules: yield; return   # a test of texts alone does not wait for it
    import torch
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with warnings.catch_warnings(): yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
