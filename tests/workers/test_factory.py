"What all types of workers promise: errors that name the sample, time limits, and nothing left behind."
import contextlib
import gc
import os
import signal
import time
import traceback

import psutil
import pytest
from grids import full
from loader_parts import Coded, Failing, Gated, Slow, is_alive, nothing_is_left, program, wait_until
from training_parts import BOTH, large_tensors_begin_small, notes, workers

from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
small_batches_use_the_slots = pytest.fixture(autouse=True)(large_tensors_begin_small)


@BOTH
def test_error_in_a_sample_names_it_and_keeps_the_traceback(settings):
    loader = create_loader(Failing(12, 9), 8, 4, device='cpu', **settings)
    for epoch in range(2):   # the loader lives
        with pytest.raises(ZeroDivisionError) as raised: list(loader)
        assert notes(raised.value) == f'while loading index 9 of the dataset (Failing), epoch {epoch}'
    text = ''.join(traceback.format_exception(raised.value))
    assert "raise ZeroDivisionError('one sample is bad')" in text and 'loader_parts.py' in text


@BOTH
def test_unreadable_file_names_index_and_file(samples, settings):
    with pytest.raises(ImageReadError, match=r'cannot read (empty|text|truncated)\.jpg \(index \d+\)') as raised:
        list(create_loader(ImageDataset(samples/'oddities'), 8, 2, device='cpu', **settings))
    assert 'of the dataset (' in notes(raised.value)


@BOTH
def test_first_error_in_order_is_raised(settings):
    "Sample 9 fails at once, sample 8 of the same batch after a while; batches before them arrive."
    seen = []
    with pytest.raises(ZeroDivisionError) as raised:
        for _, targets in create_loader(Failing(12, 9), 8, 2, device='cpu', prefetch_factor=5, **settings): seen += targets.tolist()
    assert seen == list(range(8)) and 'index 9' in notes(raised.value)


@BOTH
def test_timeout_names_what_it_waits_for_and_the_loader_lives(settings):
    dataset = Slow(16, 6, 1)
    loader = create_loader(dataset, 8, 4, device='cpu', timeout=0.3, **settings)
    with pytest.raises(RuntimeError, match=r'timeout=0.3 s .*: still waiting for index 6 of the dataset \(Slow\), epoch 0'): list(loader)
    dataset.seconds = 0
    assert len(list(loader)) == 4


@BOTH
@pytest.mark.parametrize('how', ['break', 'iterator', 'close', 'exception', 'error', 'finished', 'never started'])
@pytest.mark.parametrize('persistent_workers', [True, False])
def test_workers_end_without_the_garbage_collector(settings, how, persistent_workers):
    gc.disable()
    try:
        dataset = Failing(64, 9) if how == 'error' else Coded(64)
        loader = create_loader(dataset, 8, 4, device='cpu', persistent_workers=persistent_workers, **settings)
        iterator = iter(loader)
        if how != 'never started':
            next(iterator)
            assert workers()
        with contextlib.suppress(ZeroDivisionError):
            if how in ('error', 'finished'): list(iterator)
            if how == 'exception':
                for _ in iterator: raise ZeroDivisionError
        if how == 'close': loader.loader.close()
        if how != 'iterator': del iterator
        if how != 'close': del loader
        if how == 'iterator': del iterator
        wait_until(lambda: not workers(), 'workers are left', 3)
    finally: gc.enable()


@BOTH
def test_files_and_shared_memory_are_stable_over_many_loaders(settings):
    process = psutil.Process()
    def shared():   # ours: mappings of this process, and what torch names after it
        names = [name for name in os.listdir('/dev/shm') if name.startswith(f'torch_{os.getpid()}_')]
        return len(names) + sum('timmdata' in line for line in open('/proc/self/maps'))
    for k in range(12):
        for persistent in (True, False):
            loader = create_loader(Coded(8), 8, 4, device='cpu', persistent_workers=persistent, **settings)
            assert sum(len(targets) for _, targets in loader) == 8
            if k % 3: next(iter(loader))
            del loader
        if k == 1:
            wait_until(lambda: not workers(), 'workers are left')
            before = process.num_fds(), shared(), process.num_threads()
    wait_until(lambda: (process.num_fds(), shared()) == before[:2], 'files or memory are left')   # the last ones end by themselves
    wait_until(lambda: process.num_threads() <= before[2], 'threads are left')   # a thread that was joined ends a moment later


@full
@BOTH
def test_a_forked_copy_of_the_program_does_not_end_the_loader(settings):
    "Python's multiprocessing ends all of its daemons when the copy ends; these do not belong to the copy."
    code, out, errors = program(f"""
import os, sys, warnings
warnings.simplefilter('error')
loader = create_loader(Coded(64), 8, 4, device='cpu', **{settings})
batches = iter(loader)
next(batches)
pid = os.fork()
if pid == 0: sys.exit()   # an ordinary end, with everything that Python does then
assert os.waitpid(pid, 0)[1] == 0
print(sum(len(targets) for _, targets in batches))
""").end(50)
    assert code == 0 and out.strip() == '60' and errors == '', errors


@full
def test_interpreter_exit_without_closing():
    "Finished, abandoned and half-used loaders, with threads and with processes, when the program ends."
    run = program('''
kept = []
for workers in ('threads', 'processes'):
    for prefetcher in (True, False):
        loader = create_loader(Coded(64), 8, 4, num_workers=2, worker_type=workers, use_prefetcher=prefetcher)
        iterator = iter(loader)
        next(iterator)
        kept += [loader, iterator]
for process in psutil.Process().children(): print(process.pid, flush=True)
print('end', flush=True)
''')
    code, out, errors = run.end()
    assert code == 0 and out.endswith('end\n') and errors == ''
    assert len(out.split()) == 5
    wait_until(lambda: not any(psutil.pid_exists(int(pid)) for pid in out.split()[:-1]), 'workers are left', 8)


INTERRUPTED = '''
loader = create_loader({dataset}, 8, 4, num_workers=2, worker_type={workers!r}, device='cpu')
try:
    for k, _ in enumerate(loader):
        print('batch', k, flush=True)
        time.sleep({sleep})
except KeyboardInterrupt:
    print('interrupted', flush=True)
    raise SystemExit(7)
'''


@full
@pytest.mark.parametrize('workers, where', [
    ('threads', 'in the loop'), ('threads', 'stuck'), ('processes', 'stuck'), ('processes', 'supervisor')])
def test_interrupt_ends_the_program_and_its_workers(workers, where):
    "SIGINT to the process group, as from a terminal, or to the process alone: in the loop body, or while waiting for a stuck worker."
    stuck = where == 'stuck'
    run = program(INTERRUPTED.format(dataset='Slow(400, 8, 60)' if stuck else 'Coded(4000)', workers=workers,
                                     sleep=0 if stuck else 0.05))
    try:
        run.wait_for('batch 1')
        inside = run.process.children(recursive=True)
        time.sleep(0.2)
        if where == 'supervisor': run.process.send_signal(signal.SIGINT)
        else: os.killpg(run.process.pid, signal.SIGINT)
        code, out, errors = run.end()
        assert code == 7 and 'interrupted' in out and errors == ''
        assert len(inside) == (2 if workers == 'processes' else 0)
        wait_until(lambda: not any(map(is_alive, inside)), 'orphans are left', 5)
    finally: run.kill()


USED_IN_A_COPY = """
import os, sys
warnings.simplefilter('error')
loader = create_loader(Coded(64), 8, 4, device='cpu', **{settings})
batches = iter(loader)
next(batches)
pid = os.fork()
if pid == 0:
    for use in (lambda: next(batches), lambda: next(iter(loader))):
        try: use()
        except RuntimeError as error: print(error, flush=True)
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
targets = [target for _, targets in batches for target in targets.tolist()]
print('rest', targets == list(range(4, 64)), flush=True)
"""


@full
@BOTH
def test_workers_of_another_process_are_refused_by_name_and_undisturbed(settings):
    "A forked copy that continues the loader gets an error; here, no batch changes, no worker dies and nothing warns."
    code, out, errors = program(USED_IN_A_COPY.format(settings=settings), first='import warnings').end(30)
    assert code == 0 and errors == '', errors
    assert out.startswith('the workers belong to process ') and 'create the loader in the process that uses it' in out
    assert out.endswith('rest True\n')


@BOTH
def test_collecting_a_dropped_loader_waits_for_nothing(settings, tmp_path):
    "The collector may run in any thread, also in one that a worker waits for: it asks the workers to end and does not wait."
    loader = create_loader(Gated(16, 9, tmp_path/'gate'), 8, 4, device='cpu', **settings)
    iterator = iter(loader)
    next(iterator)
    circle = [loader, iterator]
    circle.append(circle)
    del loader, iterator, circle
    gc.collect()
    (tmp_path/'gate').touch()   # a sample waits for it up to here
    wait_until(lambda: not workers(), 'workers are left')
