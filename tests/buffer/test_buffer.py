"The buffer: after kills at any moment, batches equal those of an undisturbed run, waits end, and nothing is left behind."
import gc
import multiprocessing
import os
import pickle
import random
import re
import signal
import threading
import time
import warnings
import zlib
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from buffer_parts import (
    FOREVER,
    buffered,
    finish,
    flip,
    loader_of,
    make_loader,
    mark,
    reading,
    training,
    undisturbed,
    values,
)
from grids import full, quick
from loader_parts import Coded, Slow, children, nothing_is_left, program, wait_until

from timmdata import BatchBuffer, ImageDataset, PrefetchLoader, create_loader
from timmdata.buffer import BatchBufferError, remove_buffer
from timmdata.buffer.buffer import default_directory, remove_stale
from timmdata.buffer.store import PRODUCER, BatchStore
from timmdata.pipeline.builder import HostBatch

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.mark.full
@pytest.mark.parametrize('num', [1, 25])
def test_kills_of_the_trainer(num, tmp_path):
    "SIGKILL at random moments, also while its producer starts."
    rng, kills = random.Random('process'), 0
    code = training(tmp_path, FOREVER)
    for _ in range(num):
        run = program(code)
        if rng.random() < 0.7: run.wait_for('ready')
        time.sleep(rng.uniform(0, 0.15))
        run.process.kill()   # its producer ends by itself
        wait_until(partial(run.read, 'code'), 'the program is killed')
        kills += int(run.read('code')) == -signal.SIGKILL
        assert run.read('err') == ''
    assert kills == num
    finish(tmp_path)


def test_a_buffer_whose_creation_failed_is_made_again_as_the_error_says(tmp_path):
    "A notebook keeps the last error, and the frames of its traceback keep their objects."
    buffer = buffered(tmp_path)
    values(buffer, 2)
    with pytest.raises(BatchBufferError, match='is in use by') as kept_1: remove_buffer(tmp_path/'buffer')
    buffer.close()
    other = partial(BatchBuffer, make_loader(batch_size=5, timeout=20), directory=tmp_path/'buffer', batches=8)
    with pytest.raises(BatchBufferError, match="on_mismatch='discard'") as kept_2: other()
    discarding = other(on_mismatch='discard')
    assert values(discarding, 1) == [mark(next(make_loader(batch_size=5).host_batches()))]
    discarding.close()
    remove_buffer(tmp_path/'buffer')
    assert kept_1.tb and kept_2.tb


@quick(1, 'workers', ['threads', 'processes'])
def test_through_create_loader(workers, tmp_path):
    "Prefetcher, batch transform, states and replays equal those of a loader without a buffer; the seed is drawn once."
    settings = dict(is_training=True, re_prob=0.5, re_mode='pixel', device='cpu', num_workers=2, worker_type=workers)
    plain = create_loader(Coded(40), 8, 4, seed=5, **settings)
    expected = [[images.clone() for images, _ in plain] for _ in range(3)]
    loader = create_loader(Coded(40), 8, 4, seed=5, buffer=dict(batches=6, directory=tmp_path/'buffer'), **settings)
    for epoch in range(2): assert all(map(torch.equal, [images for images, _ in loader], expected[epoch]))
    for number, (images, _) in enumerate(loader):
        assert torch.equal(images, expected[2][number])
        if number == 4: break
    state = loader.state_dict()
    assert torch.equal(loader.replay(1, batch=3).batch[0], expected[1][3]) and state['position'] == 20
    loader.loader.close()
    resumed = create_loader(Coded(40), 8, 4, seed=5, **settings)   # without a buffer
    resumed.load_state_dict(state)
    assert all(map(torch.equal, [images for images, _ in resumed], expected[2][5:]))
    drawn = create_loader(Coded(40), 8, 4, buffer=dict(batches=6, directory=tmp_path/'other'), **settings)
    next(iter(drawn))
    drawn.loader.close()
    again = create_loader(Coded(40), 8, 4, buffer=dict(batches=6, directory=tmp_path/'other'), **settings)
    assert again.loader.seed == drawn.loader.seed
    again.loader.close()


@pytest.mark.parametrize('use_prefetcher', [False, True])
def test_batches_are_no_tensors_of_inference_mode(use_prefetcher):
    "Some batches are read in the thread of the loop."
    with torch.inference_mode(), create_loader(
            Coded(16), 8, 4, buffer=dict(batches=4), use_prefetcher=use_prefetcher, device='cpu', num_workers=0) as loader:
        assert not any(tensor.is_inference() for batch in loader for tensor in batch)


class Counting(Coded):
    "Counts the samples that are loaded in this process."
    num_loaded = 0

    def __getitem__(self, index):
        self.num_loaded += 1
        return super().__getitem__(index)


@pytest.mark.parametrize('workers', [dict(num_workers=0), dict(num_workers=2, worker_type='processes')], ids=['inline', 'processes'])
def test_the_first_batch_is_made_here_and_leaves_no_thread_or_worker(workers):
    "Its size becomes that of the store; the producer makes all other batches."
    dataset, threads = Counting(40), {*threading.enumerate()}
    torch.set_num_threads(2)
    with create_loader(dataset, 8, 4, buffer=dict(batches=4), use_prefetcher=False, device='cpu', **workers) as loader:
        next(iter(loader))
        assert 4 <= dataset.num_loaded < 16
        assert not [thread for thread in {*threading.enumerate()} - threads if 'worker' in thread.name or 'one-core' in thread.name]


@full
def test_kept_batches_stay_as_they_are():
    "The test keeps more batches than there are slots."
    buffer = buffered(batches=4, auto_ack=True)
    kept = [batch for _ in range(2) for batch in buffer]
    marks = [f'{zlib.crc32(images.numpy().tobytes())} {targets.tolist()}'.replace(' ', '') for images, targets in kept]
    assert marks == undisturbed(26)
    buffer.close()


def test_early_break_and_collection_leave_nothing():
    "As without a buffer, the next pass is the next epoch; processes, threads and files are removed."
    before = set(default_directory().glob('run-*'))
    buffer = BatchBuffer(make_loader(), batches=8)
    for _ in buffer: break
    assert values(buffer, 13) == undisturbed(26)[13:] and len(children()) == 1
    assert buffer.store.directory.exists()
    buffer.close()
    del buffer
    wait_until(lambda: set(default_directory().glob('run-*')) <= before, 'files are left')


def test_a_closed_buffer_in_memory_starts_again():
    "A new buffer removes those of programs that have ended, but not this one, which may have another pass."
    before, expected = set(default_directory().glob('run-*')), undisturbed(39)
    buffer = BatchBuffer(make_loader(), batches=8)
    assert values(buffer, 13) == expected[:13]
    for epoch in range(1, 3):
        buffer.close()
        remove_stale()
        assert values(buffer, 13) == expected[13 * epoch:13 * (epoch + 1)]
    buffer.close()
    del buffer
    wait_until(lambda: set(default_directory().glob('run-*')) <= before, 'files are left')


@pytest.mark.parametrize('num', [5, pytest.param(20, marks=pytest.mark.full)])
def test_loaders_that_are_dropped_leave_nothing(num, tmp_path, monkeypatch):
    "Each is read twice and never closed while its producer writes; no process, thread, memory or open file is left."
    monkeypatch.setattr('timmdata.buffer.buffer.default_directory', lambda: tmp_path/'buffers')   # nobody else's
    process = psutil.Process()
    def read_two():
        loader = create_loader(Coded(64), 32, 8, is_training=True, num_workers=0, device='cpu', buffer=dict(batches=200))
        for _, batch in zip(range(2), loader): del batch
        del loader
        # what the collector finds is not asked: that depends on what other tests and other threads left
        wait_until(lambda: (gc.collect(), children())[1] == [], 'producers live', 30)
        # a file that its producer wrote while the directory was removed goes with the next buffer
        wait_until(lambda: (remove_stale(), list((tmp_path/'buffers').glob('run-*')))[1] == [], 'memory is held', 30)
        wait_until(lambda: not multiprocessing.active_children(), 'ended processes are held')   # Python lets go of them when it lists them
    read_two()   # what is opened once for all
    files = process.num_fds()
    for _ in range(num): read_two()
    wait_until(lambda: process.num_fds() <= files, 'files are open')


@full
@pytest.mark.parametrize('end', ['sys.exit(3)', '1 / 0', 'os._exit(1)', 'os.kill(os.getpid(), signal.SIGKILL)', 'os.abort()'])
def test_a_program_that_ends_takes_its_buffer_along(end):
    "However the program ends, even if its handler for SIGTERM only sets a flag."
    run = program(f"""import os, signal, sys
from buffer_parts import make_loader
signal.signal(signal.SIGTERM, lambda *_: None)
buffer = BatchBuffer(make_loader(), batches=8)
next(iter(buffer))
print(buffer.store.directory, *[child.pid for child in psutil.Process().children()], flush=True)
{end}
""")
    wait_until(lambda: run.read('code'), 'it does not end')
    directory, producer = run.read('out').split()
    wait_until(lambda: not psutil.pid_exists(int(producer)), 'its producer lives')
    wait_until(lambda: not Path(directory).exists(), 'its memory is held')


@full
def test_what_is_in_use_is_not_discarded(tmp_path):
    "A running training and its producer keep their buffer; discarding it later does not overwrite its earlier files."
    first = buffered(tmp_path)
    values(first, 3)
    other = partial(BatchBuffer, make_loader(batch_size=5), directory=tmp_path/'buffer', batches=8,
                    on_mismatch='discard')
    with pytest.raises(BatchBufferError, match=rf'is in use by process {os.getpid()} on .+: end that program'): other()
    first.close()
    run = program(reading(tmp_path, 10**6, 0.01))
    run.wait_for('ready')
    with pytest.raises(BatchBufferError, match=rf'is in use by process {run.process.pid} on '): other()
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    second = other()   # it waits for the producer, which ends a second later
    assert values(second, 10) == [mark(host) for host in make_loader(batch_size=5).host_batches()]
    with pytest.raises(BatchBufferError, match='was removed'): values(first, 2)
    second.close()


@full
def test_the_end_of_a_forked_child_changes_nothing():
    run = program("""import gc, os
from buffer_parts import make_loader, mark
buffer = BatchBuffer(make_loader(), batches=8)
hosts = buffer.host_batches()
held = next(hosts)
marks = [mark(held)]
child = os.fork()
if not child:
    del held, hosts, buffer   # as at the end of a program
    gc.collect()
    os._exit(0)   # else Python's own multiprocessing ends the parent's processes
assert os.waitpid(child, 0)[1] == 0
for host in hosts:
    marks.append(mark(host))
    buffer.acknowledge(0, host.position)
assert mark(held) == marks[0]
print(*marks)
buffer.close()
""")
    code, out, errors = run.end()
    assert code == 0 and errors == '' and out.split() == undisturbed(13)


def test_a_used_buffer_is_pickled_and_opens_its_own_store():
    buffer = buffered()
    seen = values(buffer, 3)
    copy = pickle.loads(pickle.dumps(buffer))
    copy.set_epoch(0)
    assert values(copy, 5)[:3] == seen and copy.store.directory != buffer.store.directory
    assert values(buffer, 10) == undisturbed(23)[13:]   # its next epoch, as before
    copy.close()
    buffer.close()


@full
def test_memory_and_files_stay_flat():
    buffer, process = buffered(batches=6), psutil.Process()
    values(buffer, 40)
    def counts(): return process.num_fds(), process.num_threads(), process.memory_info().rss
    files, threads, memory = counts()
    values(buffer, 600)
    after = counts()
    assert abs(after[0] - files) <= 4 and after[1] == threads and after[2] < memory + 20e6   # batches in use are open
    buffer.close()


@full
def test_a_buffer_has_one_training(tmp_path):
    "A second program gets an error that names the first and says what to do; in one program, a cell may run again."
    run = program(reading(tmp_path, 500, 0.01))
    run.wait_for('[')
    who = rf'trainer.lock was locked for more than 1 s by process {run.process.pid} on \S+, -c: '
    with pytest.raises(BatchBufferError, match=who + 'only one program at a time can train from a buffer: end that program'):
        buffered(tmp_path)
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    first = buffered(tmp_path)
    found = mark(next(first.host_batches()))
    second = buffered(tmp_path)
    assert found in undisturbed(500) and values(second, 5)[0] == found   # the first has not acknowledged it
    for one in (first, second): one.close()


def test_a_buffer_whose_cursor_cannot_be_written_holds_nothing(tmp_path, monkeypatch):
    "The disk is full at that moment; afterwards, the buffer can be removed."
    def refuse(*_, **__): raise BatchBufferError('the disk is full')
    buffer = buffered(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(BatchStore, 'move_cursor', refuse)
        with pytest.raises(BatchBufferError, match='the disk is full') as kept: next(buffer.host_batches())
    buffer.close()
    remove_buffer(tmp_path/'buffer')
    assert kept.tb


def test_a_damaged_cursor_is_an_error(tmp_path):
    buffer = buffered(tmp_path)
    values(buffer, 5)
    buffer.close()
    flip(tmp_path/'buffer'/'cursor', 20)
    with pytest.raises(BatchBufferError, match='cursor is damaged: discard the buffer'): buffered(tmp_path)
    again = buffered(tmp_path, on_mismatch='discard')
    assert values(again, 5) == undisturbed(5)
    again.close()


@full
def test_a_producer_that_does_nothing_is_an_error_with_a_timeout(tmp_path):
    "A program holds the producer's lock and makes nothing; its store is not discarded either."
    buffer = BatchBuffer(make_loader(timeout=0.3), batches=8, directory=tmp_path/'buffer')
    lock = buffer.store.files.lock(PRODUCER)
    with pytest.raises(BatchBufferError, match='no batch within timeout=0.3 s: .*batch 0 from the producer'): values(buffer, 1)
    buffer.close()
    with pytest.raises(BatchBufferError, match=rf'producer.lock was locked for .* by process {os.getpid()} on '):
        remove_buffer(tmp_path/'buffer')
    lock.release()
    patient = buffered(tmp_path)
    assert values(patient, 1) == undisturbed(1)
    patient.close()


def test_training_that_waits_need_not_wait_for_the_mark():
    "It requests a batch that fits, while enough other batches wait to be acknowledged."
    buffer = BatchBuffer(make_loader(timeout=5), batches=8, low_watermark=1, auto_ack=False)
    batches = buffer.host_batches()
    kept = [next(batches) for _ in range(8)]
    assert [mark(host) for host in kept] == undisturbed(8)
    buffer.acknowledge(0, kept[0].position)   # room for one, and seven are left
    assert mark(next(batches)) == undisturbed(9)[-1]
    buffer.close()


def count_hosts() -> int:
    gc.collect()
    return sum(type(one) is HostBatch for one in gc.get_objects())


@full
def test_an_interrupted_wait_leaves_nothing_behind():
    "An answer that was not taken is not mistaken for the next one, and its slot is released."
    dataset, known = Slow(60, 9, 0.4), count_hosts()   # what other tests have made, and pytest keeps
    buffer, before = BatchBuffer(loader_of(dataset), batches=4), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        batches = buffer.host_batches()
        next(batches)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt): list(batches)
    finally: signal.signal(signal.SIGALRM, before)
    wait_until(lambda: 2 in buffer.store.numbers(), 'it is not made')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        seen, plain = values(buffer, 15), [mark(host) for host in loader_of(dataset).host_batches()]
    assert len(plain) == 15 and seen == plain and buffer.status()['rebuilt'] == 0
    assert count_hosts() - known <= 2   # the next one, and the one in the traceback
    buffer.close()


@full
def test_signals_reach_nobody_twice(tmp_path):
    "Ctrl-C in a terminal also reaches the producer: the trainer ends, and then the producer."
    run = program(reading(tmp_path, 5000, 0.01))
    run.wait_for('ready')
    time.sleep(0.2)
    inside = run.process.children()
    os.killpg(run.process.pid, signal.SIGINT)
    code, _, errors = run.end()
    assert code != 0 and 'KeyboardInterrupt' in errors and len(inside) == 1
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in inside), 'it is left')


@pytest.mark.parametrize('given, understood', [
    (100, 'capacity=100: 100 bytes cannot hold 4 batches'), ('4KB', "capacity='4KB': 4 KB cannot hold 4 batches"),
    (True, 'capacity=True: must be a number of bytes'), ('100 batches', "capacity='100 batches': must be a number of bytes"),
    ('kept/here', "capacity='kept/here': must be a number of bytes")])
def test_a_capacity_is_bytes_and_an_error_says_how_to_give_batches(given, understood):
    "The error is raised before any file is read."
    for buffer in (given, dict(capacity=given)):
        with pytest.raises(ValueError, match=f"{re.escape(understood)}.* a string such as '30GB'.* pass buffer=dict\\(batches=256\\)"):
            create_loader(Coded(64), 8, 8, device='cpu', num_workers=0, buffer=buffer)


def test_a_capacity_for_too_few_batches_says_how_large_they_are():
    with create_loader(Coded(64), 64, 8, device='cpu', num_workers=1, buffer=200_000) as loader:
        with pytest.raises(BatchBufferError, match=r'room for 1 of 4 required batches \(\d\d+\.?\d? KB each\): .*batches=256'):
            next(iter(loader))


def test_a_buffer_of_a_loader_whose_workers_draw_draws_itself(samples, tmp_path):
    "The parameters that workers drew are not stored, because settings may change until a batch is used."
    settings = dict(is_training=True, seed=1, num_workers=0, device='cpu', re_prob=0.5)
    loader = create_loader(ImageDataset(samples/'train'), 32, 16, **settings)
    assert next(loader.loader.host_batches()).drawn is not None
    loader.set_epoch(0)
    expected = [images.clone() for images, _ in loader]
    loader.set_epoch(0)
    with BatchBuffer(loader.loader, batches=4, directory=tmp_path) as buffer:
        with PrefetchLoader(buffer, device='cpu', batch_transform=loader.batch_transform) as kept:
            found = [images.clone() for images, _ in kept]
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
