"What the tests share: the sample photographs, made once a session, and the data beside the checkout where it is at hand."
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
from export import is_ours


def pytest_configure():
    "Other tools write another package than ours: without what parameters mean in `help()`."
    if not is_ours(): raise pytest.UsageError('the package was written by nbdev_export: run `python tools/export.py`, then the tests')


seconds = Counter()   # of each test file


def pytest_runtest_logreport(report): seconds[report.nodeid.partition('::')[0]] += report.duration


def pytest_sessionfinish(session):
    "How long files take is kept for `tools/test.py`, where all of a file has run or more than was known."
    if hasattr(session.config, 'workerinput') or getattr(session.config, 'cache', None) is None: return
    known = session.config.cache.get('timmdata/seconds', {})
    longer = {name: max(round(took, 1), known.get(name, 0)) for name, took in seconds.items()}
    session.config.cache.set('timmdata/seconds', {**known, **longer})


def pytest_collection_modifyitems(items):
    "Tests marked `full` are for `.ci/run`: TIMMDATA_FULL=1 pytest -m full."
    if os.environ.get('TIMMDATA_FULL'): return
    for item in items:
        if item.get_closest_marker('full'): item.add_marker(pytest.mark.skip(reason='takes long: set TIMMDATA_FULL=1'))


@pytest.fixture(scope='session')
def cache(tmp_path_factory) -> Path:
    "A cache folder of this session, so that nothing is written into the user's home."
    return tmp_path_factory.mktemp('cache')


@pytest.fixture(scope='session')
def samples(cache) -> Path:
    "The sample photographs: train/, val/, oddities/."
    from timmdata.core.demo_data import get_samples
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TIMMDATA_CACHE', str(cache))
        return get_samples()


@pytest.fixture(autouse=True)
def leave_torch_as_it_was():
    "A test that changes the number of threads, the default type or the warnings does not change the next one."
    if 'torch' not in sys.modules: yield; return   # a test of texts alone does not wait for it
    import torch
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with warnings.catch_warnings(): yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
