"The loaders of the guide `build_a_loader` beside torch's, batch by batch; errors, deaths, and nothing left behind."
import gc
import glob
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from build_a_loader import NaiveDataLoader, WorkerDataLoader, WorkerTraceback
from grids import few, quick
from loader_parts import children, is_alive, nothing_is_left, program, wait_until
from torch.utils.data import DataLoader, Dataset, RandomSampler

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
FORK, SPAWN = dict(multiprocessing_context='fork'), dict(multiprocessing_context='spawn')


class Numbers(Dataset):
    "Tensors that say their index; the target is the index."
    def __init__(self, num: int = 22, slow: dict | None = None): self.num, self.slow = num, slow or {}
    def __len__(self): return self.num

    def __getitem__(self, index):
        time.sleep(self.slow.get(index, 0))
        return torch.full((2, 3), float(index)), index


class Makers(Numbers):
    "The target is the process that made the sample."
    def __getitem__(self, index): return index, os.getpid()


class Failing(Numbers):
    "Does something bad at index 9."
    def __init__(self, what): super().__init__(); self.what = what

    def __getitem__(self, index):
        if index == 9: self.what()
        return super().__getitem__(index)


class Awkward(Exception):
    "Cannot be unpickled."
    def __init__(self, one, other): super().__init__(f'{one} and {other}')


def divide_by_zero(): return 1 / 0
def raise_awkward(): raise Awkward('one', 'other')
def leave(): sys.exit(1)
def kill_own_process(): os.kill(os.getpid(), signal.SIGKILL)
def large(samples): return samples, bytes(3_000_000)
def only_in_this_process(samples): return threading.Lock()


def assert_same(ours, others):
    "Both give the same batches of the same types."
    count = 0
    for one, other in zip(ours, others, strict=True):
        assert type(one) is type(other)
        for a, b in zip(one, other, strict=True):
            assert torch.equal(a, b) and a.dtype == b.dtype
        count += 1
    return count


def random_sampler(dataset): return RandomSampler(dataset, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize('num_workers', few(range(4), 0, 2))
@quick(1, 'drop_last', [False, True])
def test_batches_are_as_torchs(num_workers, drop_last):
    for batch_size, shuffle in itertools.product((1, 4, 11, 22, 50) if num_workers == 0 else (4,), (False, True)):
        dataset, settings = Numbers(), dict(batch_size=batch_size, drop_last=drop_last)
        make = partial(WorkerDataLoader, num_workers=num_workers, **FORK) if num_workers else NaiveDataLoader
        ours, theirs = (kind(dataset, sampler=random_sampler(dataset) if shuffle else None, **settings) for kind in (make, DataLoader))
        for _ in range(2): assert assert_same(ours, theirs) == len(ours) == len(theirs)


@pytest.mark.parametrize('make', [NaiveDataLoader, WorkerDataLoader])
def test_batch_sampler_decides(make):
    dataset, batches = Numbers(), [[3, 1], [2], [20, 0, 5]]
    assert_same(make(dataset, batch_sampler=batches), DataLoader(dataset, batch_sampler=batches))


def test_window_is_queued_once_and_in_turn():
    drawn = []
    def batches():
        for k in range(12):
            drawn.append(k)
            yield [k]
    loader = WorkerDataLoader(Makers(), num_workers=2, batch_sampler=batches(), **FORK)
    iterator, makers = iter(loader), []
    for number in range(12):
        index, pid = next(iterator)
        assert index.item() == number and len(drawn) == min(12, 4 + number + 1)
        makers.append(pid.item())
    assert next(iterator, None) is None
    assert len({*makers[::2]}) == len({*makers[1::2]}) == 1 and makers[0] != makers[1]


@pytest.mark.parametrize('num_workers, start', [
    pytest.param(2, FORK, id='fork'), pytest.param(1, SPAWN, id='spawn', marks=pytest.mark.full)])
def test_error_comes_in_its_turn_with_its_traceback(num_workers, start):
    seen = []
    with pytest.raises(ZeroDivisionError) as caught:
        for _, target in WorkerDataLoader(Failing(divide_by_zero), 4, num_workers, **start): seen += target.tolist()
    assert seen == list(range(8))
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerTraceback) and 'in divide_by_zero' in str(cause) and 'test_build_a_loader.py' in str(cause)


@pytest.mark.parametrize('loader, error, message', [
    (lambda: WorkerDataLoader(Failing(raise_awkward), 4, 2), RuntimeError, 'Awkward: one and other'),
    (lambda: WorkerDataLoader(Numbers(), 4, 2, collate_fn=only_in_this_process), TypeError, 'pickle'),
    (lambda: WorkerDataLoader(Failing(leave), 4, 2), RuntimeError, 'worker 0 ended with exit code 1: see its error on stderr'),
    (lambda: WorkerDataLoader(Numbers(), 4, 2, sampler=[0, 99, 'a']), ValueError, 'could not convert'),
    (lambda: WorkerDataLoader(Numbers(), 4, 2, batch_sampler=[[0], [threading.Lock()]]), TypeError, 'pickle'),
], ids=['unpickleable error', 'unpickleable batch', 'exit', 'index', 'unpickleable index'])
def test_bad_things_become_errors(loader, error, message):
    with pytest.raises(error, match=message): list(loader())


def test_killed_worker_is_noticed():
    seen = []
    with pytest.raises(RuntimeError, match=r'worker 0 ended with exit code -9: killed'):
        for _, target in WorkerDataLoader(Failing(kill_own_process), 4, 2, **FORK): seen.append(target)
    assert len(seen) <= 2


@pytest.mark.full
@pytest.mark.parametrize('victim', [0, 1, 2])
def test_worker_killed_while_workers_write(victim):
    "One of them has the lock, and a part of its batch is in the pipe."
    iterator = iter(WorkerDataLoader(Numbers(60), 1, 3, collate_fn=large, **FORK))
    next(iterator)
    process = {p.name: p for p in multiprocessing.active_children()}[f'worker {victim}']
    time.sleep(0.2)   # until the pipe is full
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=f'worker {victim} ended with exit code -9'):
        for _ in iterator: pass


def test_leaving_early_leaves_nothing():
    folders = set(glob.glob(f'{tempfile.gettempdir()}/pymp-*'))
    for k, _ in enumerate(WorkerDataLoader(Numbers(400), 1, 2, **FORK)):
        if k == 3: break
    gc.collect()
    assert not children()
    assert len(set(glob.glob(f'{tempfile.gettempdir()}/pymp-*')) - folders) <= 1   # this process's, until it ends


# ---- programs of their own

LOOP = """
import sys
sys.path.insert(0, "{folder}")
from build_a_loader import WorkerDataLoader
from test_build_a_loader import Numbers
iterator = iter(WorkerDataLoader(Numbers({num}, {slow}), 1, 2, multiprocessing_context='fork'))
next(iterator)
print('looping', flush=True)
"""


def running(tail: str, num: int = 100, slow: str = '{}', first: str = ''):
    program_ = program(LOOP.format(num=num, slow=slow, folder=Path(__file__).parent) + tail, first)
    program_.wait_for('looping')
    return program_, program_.process.children()


@pytest.mark.full
def test_workers_end_when_the_parent_is_killed():
    started, workers = running('import time; time.sleep(60)')
    assert len(workers) == 2
    started.process.kill()
    wait_until(lambda: not any(is_alive(worker) for worker in workers), 'workers outlive their parent')


@pytest.mark.full
def test_interrupt_is_one_traceback():
    started, workers = running('list(iterator)', slow='{7: 60}')
    wait_until(lambda: started.process.status() == psutil.STATUS_SLEEPING, 'never waits')
    time.sleep(0.3)
    for process in (*workers, started.process): process.send_signal(signal.SIGINT)   # as Ctrl-C does
    code, _, errors = started.end()
    assert code == 1 and errors.count('Traceback') == 1 and 'KeyboardInterrupt' in errors
    assert not any(is_alive(worker) for worker in workers)
