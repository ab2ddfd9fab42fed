"Ctrl-C at chosen and at random moments, kills and hangs: code that the tests' programs run, and their checks afterwards."
import logging
import os
import random
import re
import signal
import threading
import time
import warnings
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
from loader_parts import Coded, Stream, children, wait_until

from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.loader import create_loader

PLACES = ['before the fork', 'in the fork', 'as the fork ends', 'after the fork', 'with the sender']


def what_is_there() -> dict:
    "List what an interrupt must not leave behind: processes, threads, open files, shared memory."
    shared = [name for name in os.listdir('/dev/shm') if name.startswith(f'torch_{os.getpid()}_')]
    mapped = [line for line in Path('/proc/self/maps').read_text().splitlines() if 'timmdata' in line]
    return dict(processes=len(children()), threads=len(threading.enumerate()), files=psutil.Process().num_fds(),
                shared=len(shared) + len(mapped))


def starting(**settings):
    "A loader that starts two workers for each epoch."
    settings = {'num_workers': 2, 'worker_type': 'processes', **settings}
    return create_loader(Coded(64), 8, 4, device='cpu', persistent_workers=False, **settings)


def check_all_is_well(loader, before: dict):
    "Nothing is left, logging can be used, and the same loader gives its batches, also where a worker dies."
    wait_until(lambda: what_is_there() == before, lambda: f'{what_is_there()} in place of {before}', 10)
    logger = threading.Thread(target=logging.getLogger('other').setLevel, args=(0,), daemon=True)   # takes the lock of logging
    logger.start()
    logger.join(5)
    assert not logger.is_alive(), 'the lock of logging is held'
    loader.set_epoch(0)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # one of the workers dies
        for k, (_, targets) in enumerate(loader):
            found += targets.tolist()
            if k == 1 and (workers := children()): workers[0].kill()
    assert found == list(range(64)), found
    wait_until(lambda: what_is_there() == before, lambda: f'{what_is_there()} in place of {before}', 10)


def interrupt_at(place: str):
    "Let a Ctrl-C come once, at a place in the start of the second worker."
    left = [2]   # starts
    begin, start_thread = BaseProcess.start, threading.Thread.start
    interrupts = map(os.kill, [os.getpid()], [signal.SIGINT])   # one

    def count(at: str, name: str):
        if place != at or not name.startswith(('timmdata', 'Process', 'ForkProcess')): return   # of torch, for streams
        left[0] -= 1
        if left[0] == 0: next(interrupts)

    def start(process):
        count('before the fork', process.name)
        if place in ('in the fork', 'as the fork ends') and process.name == 'timmdata-worker-1' and left[0]:
            left[0] = 0   # hooks cannot be taken back, and each fork calls them: this one alone must interrupt
            hook = {'in the fork': 'before', 'as the fork ends': 'after_in_parent'}[place]
            os.register_at_fork(**{hook: partial(next, interrupts, None)})   # no step of Python: others answer the signal
            os.register_at_fork(before=logging._acquireLock, after_in_parent=logging._releaseLock)   # as logging does, behind it
        begin(process)
        count('after the fork', process.name)

    def start_and_count(thread):
        start_thread(thread)
        if thread.name.startswith('timmdata-sender'): count('with the sender', thread.name)

    BaseProcess.start, threading.Thread.start = start, start_and_count


def read_interrupted(loader, place: str):
    "An epoch with a Ctrl-C at a place: whether it arrives."
    interrupt_at(place)
    try:
        list(loader)
        print('swallowed', flush=True)
    except KeyboardInterrupt: print('interrupted', flush=True)


def interrupt_the_start(place: str, **settings):
    "A program: Ctrl-C at a place, then everything must be as before."
    loader = starting(**settings)
    list(loader)
    time.sleep(0.2)   # a thread that was waited for ends a moment later
    before = what_is_there()
    read_interrupted(loader, place)
    check_all_is_well(loader, before)
    print('all is well', flush=True)


def interrupt_the_start_of_a_stream(place: str):
    "A program: Ctrl-C as torch's workers start, then everything must be as before."
    stream = IterableImageDataset(reader=Stream(32))
    loader = create_loader(stream, 8, 4, num_workers=2, device='cpu', persistent_workers=False)
    number = sum(len(targets) for _, targets in loader)
    time.sleep(0.2)
    before = what_is_there()
    read_interrupted(loader, place)
    wait_until(lambda: what_is_there() == before, lambda: f'{what_is_there()} in place of {before}', 10)
    assert sum(len(targets) for _, targets in loader) == number
    print('all is well', flush=True)


def interrupt_later(sent: list, delay: float, killed: list | None):
    "Let a Ctrl-C come, and note when; or first kill a worker, and interrupt while another one takes its place."
    time.sleep(delay)
    if killed is not None:
        wait_until(children, 'no worker starts', 5)
        for worker in children()[:1]:
            with suppress(psutil.NoSuchProcess):   # it has ended by itself
                worker.kill()
                killed.append(worker)
        time.sleep(delay / 10)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_at_random(num: int, seed: int = 0, **settings):
    "A program: Ctrl-C at random moments, in every third round after a worker was killed; then everything must be as before."
    loader, rng = starting(**settings), random.Random(seed)
    begin = time.monotonic()
    for _ in range(3): list(loader)
    seconds = (time.monotonic() - begin) / 3   # of an epoch
    time.sleep(0.2)
    before, interrupted, killed = what_is_there(), 0, []
    warnings.simplefilter('ignore')   # workers die
    for k in range(num):
        sent, delay = [], rng.random() * 1.5 * seconds
        thread = threading.Thread(target=interrupt_later, args=(sent, delay, killed if k % 3 == 0 else None))
        try:
            thread.start()
            while not sent or time.monotonic() < sent[0] + 5:
                for _ in loader: pass
            print(f'round {k}: swallowed', flush=True)
        except KeyboardInterrupt: interrupted += 1
        thread.join()
        check_all_is_well(loader, before)
    print(f'{interrupted} of {num} interrupts arrived; {len(killed)} of them after a worker was killed', flush=True)


# ---- kills and hangs

_CLEAR = 'for the second time|repeatedly with the same batch|before it was ready|could not be replaced'   # errors that a kill may lead to


def read_or_say(loader, allowed: str) -> str:
    "Read an epoch: 'right' if all batches are, or the error, which must be one of those that are allowed."
    found = []
    try:
        for _, targets in loader: found += targets.tolist()
    except RuntimeError as error:
        assert re.search(allowed, str(error)), error
        return str(error)
    assert found == list(range(64)), found
    return 'right'


def check_nothing_is_left(before: dict):
    wait_until(lambda: what_is_there() == before, lambda: f'{what_is_there()} in place of {before}', 10)


def kill_later(delays: list[float], rng: random.Random, killed: list):
    "Kill one of the workers after each delay."
    for delay in delays:
        time.sleep(delay)
        if not (workers := children()): continue
        worker = rng.choice(workers)
        with suppress(psutil.NoSuchProcess):   # it has ended by itself
            worker.kill()
            killed.append(worker.pid)


def kill_at_random(num: int, seed: int = 0, **settings):
    "A program: kill workers at random moments, one to three in an epoch; batches are right, or an error says why, and nothing is left."
    loader, rng = starting(timeout=30, **settings), random.Random(seed)
    begin = time.monotonic()
    for _ in range(3): list(loader)
    seconds = (time.monotonic() - begin) / 3   # of an epoch
    time.sleep(0.2)
    before, killed, results = what_is_there(), [], Counter()
    warnings.simplefilter('ignore')   # workers die
    while len(killed) < num:
        delays = [rng.random() * seconds for _ in range(rng.randint(1, 3))]
        thread = threading.Thread(target=kill_later, args=(delays, rng, killed))
        thread.start()
        results['right' if read_or_say(loader, _CLEAR) == 'right' else 'error'] += 1
        thread.join()
        check_nothing_is_left(before)
    assert read_or_say(loader, '$^') == 'right'
    print(f'{len(killed)} kills in {sum(results.values())} epochs: {results["right"]} right, {results["error"]} with a clear error',
          flush=True)


class Hanging(Coded):
    "Never returns one index; half of the times, its process does not listen to SIGTERM either."
    at, is_deaf = -1, False

    def __getitem__(self, index):
        if index == self.at:
            is_main = threading.current_thread() is threading.main_thread()
            if self.is_deaf and is_main: signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        return super().__getitem__(index)


def hang_at_random(num: int, seed: int = 0, **settings):
    "A program: a sample that never returns, at random places; the error names it, nothing is left, and the next epoch is right."
    dataset, rng, named = Hanging(64), random.Random(seed), 0
    settings = {'num_workers': 2, 'worker_type': 'processes', **settings}
    loader = create_loader(dataset, 8, 4, device='cpu', persistent_workers=False, timeout=1.5, **settings)
    for _ in range(2): list(loader)
    time.sleep(0.2)
    before = what_is_there()
    for k in range(num):
        # not the first, which the program itself loads once to see whether threads may share it, without a timeout
        dataset.at, dataset.is_deaf = rng.randrange(1, 64), rng.random() < 0.5
        named += f'still waiting for index {dataset.at} of the dataset' in read_or_say(loader, 'no batch within timeout')
        check_nothing_is_left(before)
        dataset.at = -1
        if k % 5 == 0: assert read_or_say(loader, '$^') == 'right'
    print(f'{named} of {num} hangs are named', flush=True)
