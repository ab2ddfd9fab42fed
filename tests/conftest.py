"What the tests share: the sample photographs, made once a session, and the data beside the checkout where it is at hand."
import os
import warnings
from pathlib import Path

import pytest
import torch


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
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with warnings.catch_warnings(): yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
