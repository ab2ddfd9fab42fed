"What the tests share: the sample photographs, made once a session, and the data beside the checkout where it is at hand."
import gc
import os
import shutil
import sys
import warnings
from collections import Counter
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from export import is_ours
from test import changed

IS_FULL = bool(os.environ.get('TIMMDATA_FULL'))   # in .ci/run


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
    "Other tools write another package than ours: without what parameters mean in `help()`."
    if not is_ours(): raise pytest.UsageError('the package was written by nbdev_export: run `python tools/export.py`, then the tests')
    if 'PYTEST_XDIST_WORKER' in os.environ:   # processes that run side by side do not see each other's buffers and temporary files
        import tempfile
        os.environ['TMPDIR'] = tempfile.tempdir = tempfile.mkdtemp(prefix='timmdata-tests-')
        Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=-200)   # after multiprocessing's own folder in it


seconds = Counter()   # of each test file


pages = {}   # that have passed, and their digests


def pytest_runtest_logreport(report):
    seconds[report.nodeid.partition('::')[0]] += report.duration
    if report.passed: pages.update(value for name, value in report.user_properties if name == 'page')


def pytest_sessionfinish(session):
    "How long files take is kept for `tools/test.py`: the longest that was seen, since a part of a file takes less."
    if hasattr(session.config, 'workerinput') or getattr(session.config, 'cache', None) is None: return
    known = session.config.cache.get('timmdata/seconds', {})
    longer = {name: max(round(took, 1), known.get(name, 0)) for name, took in seconds.items()}
    session.config.cache.set('timmdata/seconds', {**known, **longer})
    if pages: session.config.cache.set('timmdata/pages', {**session.config.cache.get('timmdata/pages', {}), **pages})


def pytest_collection_modifyitems(config, items):
    """Tests marked `gpu` need a CUDA device. Those marked `full` are for `.ci/run` (TIMMDATA_FULL=1). Those marked `apart(…)` run there,
    where they are named, and where one of their files differs from the branch that this one goes to; a page, where it or a module that it
    imports does, until it has passed."""
    import torch
    for item in items:
        if item.get_closest_marker('gpu') and not torch.cuda.is_available(): item.add_marker(pytest.mark.skip(reason='no CUDA device'))
    if IS_FULL: return
    for item in items:
        if item.get_closest_marker('full'): item.add_marker(pytest.mark.skip(reason='takes long: set TIMMDATA_FULL=1'))
    if not is_whole(config): return
    files, passed = changed(), config.cache.get('timmdata/pages', {})
    def is_left(item):
        apart = item.get_closest_marker('apart')
        if apart is None: return False
        if name := getattr(item, 'callspec', None) and item.callspec.params.get('name'):
            return not item.module.has_changed(name, files) or passed.get(name) == item.module.digest(name)
        return not any(file.startswith(apart.args) for file in files)
    left = [item for item in items if is_left(item)]
    if left: config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


@pytest.fixture
def cut_small_files(monkeypatch):
    "JPEGs are cut however few bytes that saves."
    from timmdata.core import jpeg
    monkeypatch.setattr(jpeg, 'WORTH_A_CUT', 1)
    monkeypatch.setattr(jpeg, 'WORTH_A_LISTED_CUT', 1)


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

    from timmdata.core.demo_data import get_samples
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TIMMDATA_CACHE', str(cache))
        made = get_samples()
    folder = shutil.copytree(made, cache/'with-oddities'/made.name)
    write_oddities(folder/'oddities')
    return folder


@pytest.fixture(scope='session')
def jpegtran():
    "Tests that use it are skipped where libjpeg-turbo's jpegtran is not installed; on a build server they fail."
    from jpegtran import require_jpegtran
    require_jpegtran()


@pytest.fixture
def stand_in(tmp_path):
    "A function that puts a program in place of jpegtran; None: there is none."
    from jpegtran import only_program
    with only_program(tmp_path/'programs') as put: yield put


@pytest.fixture(autouse=True, scope='module')
def collect_only_what_a_file_makes():
    "Python's collector need not visit torch and all else that was there before, each time that a test calls it."
    gc.collect()
    gc.freeze()
    yield
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
