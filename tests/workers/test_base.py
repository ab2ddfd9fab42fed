"A task, the descriptions of workers, and the lifetime of a pool."
import json
import multiprocessing
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from loader_parts import Failing, nothing_is_left
from pool_contract import CHECKS, build
from synthetic import ROOT

from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.pipeline.sample_transform import DrawnAppearance
from timmdata.samplers.epoch import EpochSampler
from timmdata.workers.base import InlinePool, Task
from timmdata.workers.processes import ProcessPool
from timmdata.workers.settings import WorkerSettings
from timmdata.workers.threads import ThreadPool

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


class Builder:
    "Load a sample for each key, or raise an error if the key says so."
    def draw(self, keys): return DrawnAppearance()

    def load(self, key, rows=None, refuse='', here=()):
        if isinstance(key.index, Exception): raise key.index
        return [key.index]

    def prefetch(self, keys, early=False): pass

    def collate(self, keys, samples, rows=None, on_device=()): return samples


class Key:
    def __init__(self, index): self.index = index


def made(*indexes, order=None):
    task = Task([Key(index) for index in indexes])
    for position in order or range(len(indexes)): task.load(Builder(), position)
    return task


def test_a_task_is_made_by_whoever_ends_last_and_taken_once():
    task = made(5, 6, 7, order=[2, 0, 1])
    assert task.done.is_set() and task.take() == [[5], [6], [7]] and task.take() is None


def test_the_error_of_the_first_sample_in_order_is_raised():
    "Only samples that had begun can raise an error; the others are skipped."
    task = Task([Key(0), Key(KeyError('a')), Key(ValueError('b'))])
    for position in (2, 1, 0): task.load(Builder(), position)
    with pytest.raises(ValueError, match='b'): task.take()


def test_the_first_end_of_a_task_counts():
    task = made(1)
    task.finish(error=RuntimeError('late'))
    assert task.take() == [[1]]
    task = Task([Key(1)])
    task.finish(error=RuntimeError('closed'))
    task.load(Builder(), 0)   # by a thread that was stuck
    with pytest.raises(RuntimeError, match='closed'): task.take()


def test_a_cancelled_task_loads_nothing():
    task = Task([Key(ValueError('is not loaded'))])
    task.cancelled = True
    task.load(Builder(), 0)
    with pytest.raises(RuntimeError, match='the workers are closed'): task.take()


def test_settings_accept_what_torch_accepts():
    for context in (None, 'spawn', multiprocessing.get_context('spawn')):
        settings = WorkerSettings(2, 'processes', multiprocessing_context=context)
        assert settings.context.get_start_method() in ('fork', 'spawn', 'forkserver')
    assert settings.context.get_start_method() == 'spawn'
    assert WorkerSettings(0, 'processes').num_ahead == WorkerSettings(3, 'threads').num_ahead == 2
    assert WorkerSettings(3, 'processes', prefetch_factor=4).num_ahead == 12


# ---- what every pool promises

def page_pool() -> type:
    "Return the user's pool from the page of the factory."
    notebook = json.loads((ROOT/'nbs/workers/50_factory.ipynb').read_text(encoding='utf-8'))
    [source] = [''.join(cell['source']) for cell in notebook['cells'] if 'class ExecutorPool' in ''.join(cell['source'])]
    names = dict(ThreadPoolExecutor=ThreadPoolExecutor, weakref=weakref, Task=Task, InlinePool=InlinePool)
    exec(source.split('\nown = ')[0], names)
    return names['ExecutorPool']


POOLS = {'inline': InlinePool, 'threads': lambda builder: ThreadPool(builder, 2), 'a stranger': page_pool(),
         'processes': lambda builder: ProcessPool(builder, WorkerSettings(2, 'processes'), slot_bytes=1 << 16)}


@pytest.mark.parametrize('check', CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', POOLS)
def test_a_pool_keeps_the_contract(name, check): check(POOLS[name])


def test_a_loader_takes_a_pool_that_is_given_and_starts_it_again():
    made = []
    def start(builder): return made.append(builder) or page_pool()(builder)
    builder = build(Failing(16, 9))
    loader = BatchLoader(builder, EpochSampler(range(8), shuffle=False), BatchSettings(4), pool=start)
    assert [targets.tolist() for _, targets in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]] and made == [builder]
    loader.close()
    assert len(list(loader)) == 2 and made == [builder] * 2
    loader.close()
    failing = BatchLoader(builder, EpochSampler(range(16), shuffle=False), BatchSettings(4), WorkerSettings('auto'), pool=start)
    with pytest.raises(ZeroDivisionError): list(failing)
    with pytest.raises(ZeroDivisionError): list(failing)
    assert len(made) == 4   # an error ends a pool, and the next loop starts another
    failing.close()
