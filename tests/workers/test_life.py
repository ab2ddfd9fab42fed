"Ctrl-C, kills and hangs while workers start, work and are replaced: nothing is left or lost, and the loader continues."
import gc
import sys
import threading
import time

import pytest
from grids import full
from interrupts import PLACES, starting
from loader_parts import program

from timmdata.workers.life import start_thread

pytestmark = pytest.mark.timeout(120)


@pytest.mark.full
@pytest.mark.parametrize('place', PLACES)
def test_an_interrupt_while_workers_start_leaves_nothing(place):
    run = program(f'interrupt_the_start({place!r})', first='from interrupts import *')
    try: assert run.end(40) == (0, 'interrupted\nall is well\n', '')
    finally: run.kill()


@full
@pytest.mark.parametrize('place', ['before the fork', 'after the fork'])
def test_an_interrupt_while_the_workers_of_a_stream_start_leaves_nothing(place):
    run = program(f'interrupt_the_start_of_a_stream({place!r})', first='from interrupts import *')
    try: assert run.end(40) == (0, 'interrupted\nall is well\n', '')
    finally: run.kill()


def attacked(function: str, num: int, seconds: float, programs: int = 4, **settings) -> list[str]:
    "Return the output of attacking programs that run at the same time, each with its own rounds and seed; they mostly wait."
    words = ''.join(f', {name}={value!r}' for name, value in settings.items())
    runs = [program(f'{function}({num // programs}, seed={seed}{words})', first='from interrupts import *') for seed in range(programs)]
    try: ends = [run.end(seconds) for run in runs]
    finally:
        for run in runs: run.kill()
    for code, out, errors in ends: assert code == 0 and errors == '', out + errors
    return [out for _, out, _ in ends]


@full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('num, programs', [(2, 1), (200, 4)])
def test_interrupts_at_random_moments_leave_nothing_and_arrive(num, programs):
    outs = attacked('interrupt_at_random', num, 6 * num + 40, programs)
    share = num // programs
    for out in outs: assert out.startswith(f'{share} of {share} interrupts arrived'), out


@full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('num, programs', [(3, 1), (100, 4)])
def test_workers_that_are_killed_at_random_moments_leave_right_batches(num, programs):
    for out in attacked('kill_at_random', num, 6 * num + 60, programs): assert ' right, ' in out, out


@full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('threads_per_worker', [1, 2])
def test_samples_that_never_return_are_named_and_leave_nothing(threads_per_worker, num=52):
    outs = attacked('hang_at_random', num, 12 * num + 60, threads_per_worker=threads_per_worker)
    assert outs == [f'{num // 4} of {num // 4} hangs are named\n'] * 4


@pytest.mark.parametrize('workers', ['processes', 'threads'])
def test_no_callback_of_a_weak_reference_runs_in_the_main_thread(workers):
    "Python drops an error that is raised in such a callback, including a Ctrl-C; one interrupt in a thousand was lost this way."
    loader, called = starting(worker_type=workers), []

    def note(frame, event, arg):
        if event == 'call' and frame.f_code.co_name in ('_remove', '__del__'): called.append(frame.f_code)

    list(loader)
    before = sys.getprofile()
    gc.collect()
    gc.disable()   # what others left is not looked at
    sys.setprofile(note)   # of this thread alone
    try:
        for _ in range(2): list(loader)
    finally:
        sys.setprofile(before)
        gc.enable()
    assert called == []


TRAINS_AS_IT_IS_IMPORTED = '''
from loader_parts import Coded
from timmdata import create_loader

class Importing(Coded):
    def __getitem__(self, index):
        import training_script   # which another thread of the parent is importing: a lock that no thread of the worker has
        return super().__getitem__(index)

loader = create_loader(Importing(16), 8, 4, num_workers=2, worker_type='processes', device='cpu', timeout=15)
print(sum(len(targets) for _, targets in loader))
'''


@full
def test_a_script_that_trains_as_it_is_imported_gets_its_batches(tmp_path):
    (tmp_path/'training_script.py').write_text(TRAINS_AS_IT_IS_IMPORTED)
    run = program(f'import sys; sys.path.insert(0, {str(tmp_path)!r}); import training_script')
    try: assert run.end(40) == (0, '16\n', '')
    finally: run.kill()


ENDS_LATE = '''
def say(): print([thread.name for thread in threading.enumerate() if thread.name.startswith('timmdata')])

atexit.register(say)   # what a library does that is imported now
loader = create_loader(Coded(64), 8, 4, num_workers=2, worker_type={workers!r}, device='cpu')
next(iter(loader))
'''


@full
@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_a_pool_ends_before_the_libraries_that_were_imported_before_it(workers):
    run = program(ENDS_LATE.format(workers=workers), first='import atexit, threading')
    try: assert run.end(40) == (0, '[]\n', '')
    finally: run.kill()


def test_a_thread_has_dropped_what_it_was_given_before_it_ends():
    dropped = []

    class Slow:
        "Take a moment to be deleted, like a tensor that is freed."
        def __del__(self):
            time.sleep(0.3)
            dropped.append(True)

    go_on = threading.Event()
    ended = start_thread(lambda slow: go_on.wait(10), Slow(), name='slow')
    go_on.set()
    assert ended.wait(10) and dropped
