"Worker processes that die, hang, are stopped or cannot start."
import ctypes
import gc
import multiprocessing
import os
import signal
import stat
import struct
import threading
import time
import warnings
from multiprocessing import connection

import psutil
import pytest
import torch
from grids import few, full, quick
from loader_parts import Coded, DeadlyReader, Exiting, Stream, children, is_alive, nothing_is_left, program, wait_until
from PIL import Image
from pool_contract import build, keys
from training_parts import BATCH, INLINE, PROCESSES, assert_equal, collected, copied, few_images, large_tensors_begin_small, training

from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loader import create_loader
from timmdata.pipeline.builder import HostBatch
from timmdata.samplers.keys import SampleKey
from timmdata.workers import processes
from timmdata.workers.base import InlinePool, Task
from timmdata.workers.processes import ProcessPool, make_packed
from timmdata.workers.settings import WorkerSettings
from timmdata.workers.shared_memory import unpack
from timmdata.workers.threads import ThreadPool

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
small_batches_use_the_slots = pytest.fixture(autouse=True)(large_tensors_begin_small)


@pytest.fixture(scope='module')
def dataset(samples): return few_images(samples)


@quick(1, 'threads_per_worker', [1, 2])
def test_killed_worker_is_replaced_and_nothing_differs(tmp_path, samples, threads_per_worker):
    reader = DeadlyReader(samples, 'train')
    expected = collected(training(ImageDataset(samples, reader), sampler=range(0, 160, 8), **INLINE))
    reader.at, reader.once = 32, tmp_path/'dead'
    loader = training(ImageDataset(samples, reader), sampler=range(0, 160, 8), threads_per_worker=threads_per_worker, **PROCESSES)
    with pytest.warns(RuntimeWarning, match=r'worker process \d died \(exit code -9, killed.*loading .*index 32 .*replaces it'):
        found = collected(loader)
    assert_equal(found, expected)


@full
def test_worker_killed_from_outside_is_replaced():
    loader = create_loader(Coded(64), 8, 4, device='cpu', **PROCESSES)
    with pytest.warns(RuntimeWarning, match='died'):
        for k, (_, targets) in enumerate(loader):
            assert targets.tolist() == list(range(4 * k, 4 * k + 4))
            if k in (1, 6): children()[0].kill()
            if k == 1: wait_until(lambda: len(children()) == 2, 'no other worker')
    assert k == 15 and len(children()) == 2


@quick(1, 'on_error', ['raise', 'skip', 'replace'])
def test_sample_that_kills_twice_is_answered_as_on_error_says(samples, on_error):
    reader = DeadlyReader(samples, 'train')
    reader.at = 5
    dataset = ImageDataset(samples, reader, on_error=on_error)
    loader = create_loader(dataset, 16, 4, is_training=on_error == 'replace', shuffle=False, sampler=range(12), device='cpu',
                           num_workers=1, worker_type='processes', seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        if on_error == 'raise':
            with pytest.raises(ImageReadError, match=r'index 5\): .*died.* while loading this sample, for the second time'): list(loader)
            return
        sizes = [len(targets) for _, targets in loader]
    assert sizes == ([4, 3, 4] if on_error == 'skip' else [4, 4, 4])
    [bad] = dataset.bad_samples
    assert bad.index == 5 and 'for the second time' in bad.cause and (bad.replaced_by is None) == (on_error == 'skip')


@full
def test_worker_that_cannot_be_replaced_is_an_error(monkeypatch):
    loader = create_loader(Coded(400), 8, 4, device='cpu', **PROCESSES)
    def fail(*_, **__): raise OSError('no more processes')
    with pytest.raises(RuntimeError, match='could not be replaced: OSError: no more processes'):
        for k, _ in enumerate(loader):
            if k == 1:
                monkeypatch.setattr(processes, 'start_process', fail)
                children()[0].kill()
    with pytest.raises(OSError, match='no more processes'): next(iter(loader))


def dies_before_it_is_ready(folder, times):
    "Kill a worker while it starts (for `worker_seeding`), a given number of times in total."
    def start(number):
        file = folder/f'{len(list(folder.iterdir()))}-{os.getpid()}'
        if len(list(folder.iterdir())) < times:
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 0
    return start


@full
@pytest.mark.parametrize('times', [2, 100])
def test_worker_killed_before_it_is_ready(tmp_path, times):
    settings = dict(num_workers=1, worker_type='processes', worker_seeding=dies_before_it_is_ready(tmp_path, times), device='cpu')
    loader = create_loader(Coded(16), 8, 4, **settings)
    if times > 4:
        with pytest.raises(RuntimeError, match=r'died \(exit code -9.*before it was ready$'), warnings.catch_warnings():
            warnings.simplefilter('ignore')
            list(loader)
    else:
        with pytest.warns(RuntimeWarning, match='before it was ready; another process replaces it'):
            assert sum(len(targets) for _, targets in loader) == 16


@full
def test_many_keys_and_large_batches_do_not_block_each_other():
    "The keys of several batches exceed the capacity of a pipe while the worker sends a large batch."
    loader = create_loader(Coded(256), 8, 1000, num_workers=1, worker_type='processes', prefetch_factor=32, use_prefetcher=False,
                           sampler=range(2**60, 2**60 + 32_000))
    loader.builder.load, loader.builder.collate = no_image, large_batch
    assert sum(1 for _ in loader) == 32


def no_image(key, row, refuse, here): return 0


def large_batch(keys, samples, rows, on_device):
    time.sleep(0.05)
    return HostBatch(b'0' * 3_000_000, keys)


def sleep_for_long(number): time.sleep(600)


@full
@pytest.mark.parametrize('state', ['starting', 'stopped'])
def test_nobody_waits_for_a_worker_that_takes_nothing_in(state):
    "The keys exceed the capacity of a pipe, and the worker is stopped or takes longer to start than this test may last."
    settings = WorkerSettings(1, 'processes', worker_init_fn=sleep_for_long if state == 'starting' else None)
    pool = ProcessPool(create_loader(Coded(8), 8, 4, use_prefetcher=False, **INLINE).builder, settings)
    if state == 'stopped':
        pool.take(pool.submit([SampleKey(0, 0)]))
        os.kill(children()[0].pid, signal.SIGSTOP)
    tasks = [pool.submit([SampleKey(2**60 + k, 0) for k in range(4096)]) for _ in range(8)]
    pool.close()
    assert not children()
    with pytest.raises(RuntimeError, match='the workers are closed'): pool.take(tasks[0], 1)


def test_slots_come_back(dataset):
    "Slots of tasks that are taken, kept for a while, or canceled before or after they are made."
    builder = training(dataset, use_prefetcher=False, device=None, **INLINE).builder
    pool = ProcessPool(builder, WorkerSettings(2, 'processes', multiprocessing_context='fork'), builder.batch_bytes(BATCH))   # with LARGE
    plan = [[SampleKey(BATCH * k + i, 0) for i in range(BATCH)] for k in range(5)]
    all_free = pool.slots.num_free
    assert all_free == 8   # 2 workers, 2 batches ahead of each, 4 more
    for _ in range(4):
        first, *others = map(pool.submit, plan)
        pool.take(first)
        for task in others: pool.cancel(task)
    wait_until(lambda: pool.slots.num_free == all_free, 'slots of cancelled tasks are lost', 5)
    done = pool.submit(plan[0])
    assert done.done.wait(10)
    pool.cancel(done)
    kept = [pool.take(pool.submit(keys)) for keys in plan]
    assert pool.slots.num_free == all_free - 3   # the consumer holds three; the others are copies
    del kept
    wait_until(lambda: pool.slots.num_free == all_free, 'slots are lost', 5)
    pool.close()


@full
@pytest.mark.parametrize('state', ['idle', 'stuck', 'blocked'])
def test_killed_parent_leaves_no_worker(state):
    "Idle workers, one that loads a sample forever, and some whose answers are no longer taken."
    dataset = 'Slow(400, 9, 60)' if state == 'stuck' else 'Coded(400)'
    big = '''
    def collate(samples): return torch.zeros(len(samples), 3, 8, 8, dtype=torch.uint8), b'0' * 10_000_000'''
    run = program(f'''
if True:{big}
    loader = create_loader({dataset}, 8, 4, num_workers=2, worker_type='processes', device='cpu', prefetch_factor=4,
                           collate_fn=collate if {state == 'blocked'} else None)
    iterator = iter(loader)
    next(iterator)
    print('batch', flush=True)
    if {state == 'blocked'}:
        import signal
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
''')
    inside = []
    try:
        run.wait_for('batch')
        inside = run.process.children(recursive=True)
        assert len(inside) == 2
        time.sleep(0.5)
        run.process.kill()
        assert run.end()[0] == -signal.SIGKILL
        wait_until(lambda: not any(map(is_alive, inside)), 'workers outlive their parent', 8)
    finally:
        for process in inside:
            if is_alive(process): process.kill()
        run.kill()


@full
def test_unguarded_spawn_script_is_a_clear_error():
    "A spawned process runs the script again; if the script starts processes, too, Python ends it, and our error says why."
    code, out, _ = program("""
try: list(create_loader(Coded(8), 8, 4, num_workers=1, worker_type='processes', multiprocessing_context='spawn', device='cpu'))
except RuntimeError as error: print(error)
""", first="if __name__ != '__main__': import multiprocessing as m; m.get_context('spawn').Process(target=print).start()").end(50)
    assert code == 0 and 'died (exit code 1) before it was ready' in out and "if __name__ == '__main__'" in out


@full
def test_dataset_that_cannot_be_pickled_is_a_clear_error():
    class Local(Coded): pass
    files = psutil.Process().num_fds()
    with pytest.raises(TypeError, match="Local'.*: define it at the top level of a module, or use worker_type='threads'"):
        list(create_loader(Local(8), 8, 4, multiprocessing_context='spawn', device='cpu', **PROCESSES))
    gc.collect()
    assert psutil.Process().num_fds() <= files + 1 and not children()


# ---- signals

@full
def test_a_program_whose_handler_only_sets_a_flag_ends():
    "Also with stuck workers: when they are closed, and when they are left until Python exits."
    run = program("""
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
def stuck(**settings): return create_loader(Slow(64, 9, 60), 8, 4, num_workers=2, worker_type='processes', device='cpu', **settings)
try: list(stuck(timeout=1))
except RuntimeError as error: print(error, flush=True)
iterator = iter(stuck())
next(iterator)
""")
    try:
        code, out, errors = run.end(30)
        assert code == 0 and errors == '', errors
        assert 'still waiting for index 9' in out
    finally: run.kill()


@full
def test_a_worker_that_is_told_to_end_ends_whatever_the_programs_handler_does():
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        batches = iter(create_loader(Coded(64), 8, 4, device='cpu', **PROCESSES))
        next(batches)
        children()[0].terminate()
        with pytest.warns(RuntimeWarning, match='exit code -15'): assert sum(len(targets) for _, targets in batches) == 60
    finally: signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize('threads', [1, 2])
def test_an_exit_is_the_workers_and_not_the_batchs_error(threads):
    "SystemExit passes through the function that packs a batch; in Ray's actors, the handler of SIGTERM raises it."
    builder = build(Exiting(8, 2))
    pool = InlinePool(builder) if threads == 1 else ThreadPool(builder, threads)
    with pytest.raises(SystemExit): make_packed(builder, pool, Task(keys(0)))
    assert unpack(make_packed(builder, pool, Task(keys(4))))[1] is None
    pool.close()


@full
@pytest.mark.parametrize('threads_per_worker', [1, 2])
def test_a_sample_that_ends_its_workers_is_an_error_that_names_it(threads_per_worker):
    loader = create_loader(Exiting(16, 9), 8, 4, device='cpu', threads_per_worker=threads_per_worker, **PROCESSES)
    with pytest.warns(RuntimeWarning, match=r'worker process \d died \(exit code 1\) while loading .*index 9'), \
            pytest.raises(RuntimeError, match='while loading this sample, for the second time'): list(loader)


# ---- who is to blame

class Marking(Coded):
    "Load index 2 slowly, and report it."
    def __init__(self, num, mark): super().__init__(num); self.mark = mark

    def __getitem__(self, index):
        if index == 2:
            self.mark.touch()
            time.sleep(0.5)
        return super().__getitem__(index)


@full
def test_deaths_at_a_distance_are_not_the_samples_fault(tmp_path):
    """In each epoch, the worker is killed from outside while it loads the same sample, which loads at the second attempt.
    With a user's sampler, no epoch begins early."""
    mark, order = tmp_path/'loading', torch.utils.data.SequentialSampler(range(8))
    loader = create_loader(Marking(8, mark), 8, 4, num_workers=1, worker_type='processes', device='cpu', sampler=order)

    def kill():
        wait_until(mark.exists, 'the sample is not loaded')
        mark.unlink()
        children()[0].kill()
    for _ in range(3):
        mark.unlink(missing_ok=True)
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.warns(RuntimeWarning, match='while loading index 2 .*another process replaces it'):
            assert [target for _, targets in loader for target in targets.tolist()] == list(range(8))
        killer.join()


@full
def test_a_worker_that_dies_without_a_task_blames_nobody():
    loader = create_loader(Coded(16), 8, 4, device='cpu', **PROCESSES)
    for _ in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', RuntimeWarning)
            assert len(list(loader)) == 4
        for child in children(): child.kill()


# ---- copies of a worker, which user code forks

class Forking(Coded):
    "Fork at one index in a worker; the copy waits for a file and returns a different image, and its process ID is recorded."
    def __init__(self, num, at, folder): super().__init__(num); self.at, self.folder, self.main = at, folder, os.getpid()

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        if index != self.at or os.getpid() == self.main or (self.folder/'pid').exists(): return image, target
        pid = os.fork()
        if pid:
            (self.folder/'new').write_text(str(pid))
            (self.folder/'new').rename(self.folder/'pid')
            return image, target
        wait_until((self.folder/'go on').exists, 'the copy waits')
        return Image.new('RGB', (8, 8), 'white'), 99

    def end_copy(self):
        "Let the copy return, and wait until it has ended."
        wait_until((self.folder/'pid').exists, 'no copy')
        copy = psutil.Process(int((self.folder/'pid').read_text()))
        (self.folder/'go on').touch()
        wait_until(lambda: not is_alive(copy), 'the copy of a worker lives on', 10)


@pytest.mark.parametrize('settings', few([dict(), dict(threads_per_worker=2), dict(multiprocessing_context='spawn')], dict(),
                                         dict(threads_per_worker=2)))
@pytest.mark.parametrize('own_transform', few([False, True], False))
def test_a_copy_of_a_worker_neither_answers_nor_writes_to_a_batch(tmp_path, settings, own_transform):
    "The dataset forks, and its child returns; while a batch is held, its memory must not change."
    dataset = Forking(64, 5, tmp_path)
    settings = dict(num_workers=1, worker_type='processes', device='cpu', use_prefetcher=False, **settings)
    loader = create_loader(dataset, 8, 4, transform=pixels if own_transform else None, **settings)
    expected = collected(create_loader(Coded(64), 8, 4, transform=pixels if own_transform else None, use_prefetcher=False, **INLINE))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        found = []
        for number, batch in enumerate(loader):
            if number == 1: dataset.end_copy()
            found.append(copied(batch))
    assert_equal(found, expected)
    loader.close()


@full
def test_a_copy_of_a_thread_that_makes_samples_ends(tmp_path):
    "In the program itself: the copy has one thread, which would wait for work forever."
    dataset = Forking(64, 5, tmp_path)
    dataset.main = None
    with create_loader(dataset, 8, 4, num_workers=2, worker_type='threads', device='cpu', transform=pixels) as loader:
        assert [targets.tolist() for _, targets in loader] == [list(range(4 * k, 4 * k + 4)) for k in range(16)]
    dataset.end_copy()


def fork_at_the_start(number):
    "A `worker_init_fn` (passed as `worker_seeding`) whose child returns."
    os.fork()
    return 0


@full
def test_a_copy_that_is_forked_as_a_worker_starts_ends():
    with create_loader(Coded(16), 8, 4, worker_seeding=fork_at_the_start, device='cpu', **PROCESSES) as loader:
        assert [targets.tolist() for _, targets in loader] == [list(range(4 * k, 4 * k + 4)) for k in range(4)]


def pixels(image): return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(8, 8, 3).permute(2, 0, 1)


def own_pipe() -> connection.Connection:
    "Find the pipe on which a worker answers."
    return [thing for thing in gc.get_objects() if isinstance(thing, connection.Connection) and not thing.closed
            and stat.S_ISSOCK(os.fstat(thing.fileno()).st_mode)][-1]


class Once(Coded):
    "Do something once in a worker, at one index."
    def __init__(self, num, at, mark): super().__init__(num); self.at, self.mark = at, mark

    def __getitem__(self, index):
        if index == self.at and not self.mark.exists():
            self.mark.touch()
            self.do()
        return super().__getitem__(index)


class DiesInTheMiddle(Once):
    "Die while sending; a process forked by C code (no Python hook runs) keeps the pipe open."
    def do(self):
        helper = ctypes.PyDLL(None).fork()
        if not helper:
            time.sleep(60)
            os._exit(0)
        self.mark.write_text(str(helper))
        os.write(own_pipe().fileno(), struct.pack('!i', 1000) + b'the beginning')   # a message of 1000 bytes
        os.kill(os.getpid(), signal.SIGKILL)


class WritesItself(Once):
    "Write something that is not an answer to the worker's pipe."
    def do(self): own_pipe().send_bytes(b'what is not an answer')


@pytest.mark.parametrize('kind, message', [
    (DiesInTheMiddle, 'died .exit code -9'), (WritesItself, 'sent something other than its next answer')])
def test_a_worker_whose_pipe_is_in_disorder_is_replaced(tmp_path, kind, message):
    mark = tmp_path/'done'
    loader = create_loader(kind(16, 5, mark), 8, 4, num_workers=1, worker_type='processes', device='cpu', timeout=20, transform=pixels)
    try:
        with pytest.warns(RuntimeWarning, match=f'{message}.*another process replaces it'):
            assert [targets.tolist() for _, targets in loader] == [list(range(4 * k, 4 * k + 4)) for k in range(4)]
        loader.close()
    finally:
        if pid := mark.read_text(): os.kill(int(pid), signal.SIGKILL)   # the helper is alive


# ---- copies of the program

def test_a_copy_of_the_program_has_batches_of_its_own():
    "The copy changes its batch and does not see what workers write to this memory later; the program's batch stays the same."
    loader = create_loader(Coded(64), 8, 4, num_workers=1, worker_type='processes', device='cpu', transform=pixels, use_prefetcher=False)
    batches = iter(loader)
    images, targets = next(batches)
    before = images.clone()
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe()

    def change():
        images.add_(100)
        there.send('changed')
        there.recv()
        there.send(bool((images == before + 100).all()))

    child = context.Process(target=change)
    child.start()
    assert here.recv() == 'changed' and torch.equal(images, before)
    images = None   # the slot is free
    assert sum(1 for _ in batches) == 15   # each slot is used again
    here.send('go on')
    assert here.recv()
    child.join()
    loader.close()


@full
@pytest.mark.timeout(200)
@pytest.mark.parametrize('method', ['fork', 'spawn', 'forkserver'])
def test_a_copy_of_the_program_does_not_keep_the_workers_of_a_killed_one(method):
    run = program(f'''
loader = create_loader(Coded(400), 8, 4, num_workers=2, worker_type='processes', device='cpu', multiprocessing_context={method!r})
next(iter(loader))
workers = [process.pid for process in multiprocessing.active_children()]
helper = os.fork()
if not helper:
    time.sleep(60)
    os._exit(0)
print(*workers, helper, 'end', flush=True)
time.sleep(60)
''')
    inside = []
    try:
        wait_until(lambda: 'end' in run.read('out') or run.read('code'), 'it does not start', 120)   # spawned workers import torch
        inside = [psutil.Process(int(pid)) for pid in run.read('out').split()[:3]]
        run.process.kill()
        wait_until(lambda: not any(map(is_alive, inside[:2])), 'workers outlive their program', 10)
        assert is_alive(inside[2])
    finally:
        for process in inside:
            if is_alive(process): process.kill()
        run.kill()


START_METHODS = '''
def loaders():
    for settings in (dict(), dict(worker_type='threads'), dict(worker_type='processes'), dict(multiprocessing_context='spawn'),
                     dict(multiprocessing_context='forkserver')):
        yield create_loader(Coded(8), 8, 4, device='cpu', **{'num_workers': 1, **settings})
    yield create_loader(Coded(8), 8, 4, device='cpu', num_workers=0, buffer=dict(batches=4, directory=tempfile.mkdtemp() + '/b'))
    for settings in (dict(), dict(multiprocessing_context='spawn')):
        yield create_loader(IterableImageDataset(reader=Stream(8)), 8, 4, device='cpu', num_workers=1, **settings)

multiprocessing.set_start_method(None, force=True)
for loader in loaders():
    with loader: assert len(list(loader)) == 2
    print(multiprocessing.get_start_method(allow_none=True))
multiprocessing.set_start_method('spawn')
with create_loader(Coded(8), 8, 4, device='cpu', num_workers=1, worker_type='processes') as loader: next(iter(loader))
'''


@full
@pytest.mark.timeout(400)
def test_pythons_start_method_can_be_set_after_a_loader_was_used():
    run = program(START_METHODS)
    try: assert run.end(360)[:2] == (0, 'None\n' * 8), run.read('err')
    finally: run.kill()


def is_deaf(number):
    "A `worker_init_fn` (passed as `worker_seeding`) that makes the worker ignore SIGTERM."
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return 0


class AllSlow(Coded):
    def __getitem__(self, index): time.sleep(60)


@full
def test_deaf_workers_are_ended_together():
    "All at the same time, they are asked to end, get SIGTERM and, after two seconds, SIGKILL."
    loader = create_loader(AllSlow(64), 8, 1, num_workers=5, worker_type='processes', worker_seeding=is_deaf, device='cpu', timeout=2)
    with pytest.raises(RuntimeError, match='still waiting'): list(loader)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 6 and not children()   # one after another: more than 10


# ---- other processes

DAEMONIC = {'processes': PROCESSES, 'buffer': dict(num_workers=0, buffer=dict(batches=4)), 'stream': dict(num_workers=1)}


def make_loader_in_daemon(pipe, kind, folder):
    settings = dict(DAEMONIC[kind])
    if kind == 'buffer': settings['buffer'] = dict(batches=4, directory=folder/'buffer')
    dataset = IterableImageDataset(reader=Stream(8)) if kind == 'stream' else Coded(8)
    try: list(create_loader(dataset, 8, 4, device='cpu', **settings))
    except Exception as error: pipe.send(f'{type(error).__name__}: {error}')


@pytest.mark.parametrize('kind', few(DAEMONIC, 'processes'))
def test_a_daemonic_process_is_told_what_to_do(tmp_path, kind):
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe()
    child = context.Process(target=make_loader_in_daemon, args=(there, kind, tmp_path), daemon=True, name='nightly')
    child.start()
    assert here.poll(20)
    said = here.recv()
    assert 'a daemonic process cannot start worker processes, and nightly is one' in said and 'num_workers=0' in said, said
    assert said.startswith('RuntimeError') and 'daemon=False' in said
    child.join()


# ---- batches and errors that must be pickled

class Raising(Coded):
    "Raise an error at one index."
    def __init__(self, num, at, make): super().__init__(num); self.at, self.make = at, make

    def __getitem__(self, index):
        if index == self.at: raise self.make()
        return super().__getitem__(index)


class BadFile(Exception):
    def __init__(self, name): super().__init__(f'bad file {name}'); self.name = name


def bad_file(): return BadFile('a.jpg')


@pytest.mark.parametrize('settings', few([INLINE, dict(num_workers=2, worker_type='threads'), PROCESSES], INLINE, PROCESSES))
def test_an_error_that_builds_its_message_comes_back_once(settings):
    loader = create_loader(Raising(16, 5, bad_file), 8, 4, device='cpu', transform=pixels, **settings)
    with pytest.raises(BadFile) as raised: list(loader)
    assert (str(raised.value), raised.value.name) == ('bad file a.jpg', 'a.jpg')
    if hasattr(raised.value, 'add_note'): assert 'index 5 ' in raised.value.__notes__[0]


ENDING = [INLINE, dict(num_workers=2, worker_type='threads'), PROCESSES, dict(threads_per_worker=2, **PROCESSES)]


def stopping(samples): return next(iter([])) if 5 in [target for _, target in samples] else torch.zeros(1)


@pytest.mark.parametrize('settings', few(ENDING, ENDING[0], ENDING[2]))
@pytest.mark.parametrize('where', ['sample', 'collate_fn', 'transform'])
def test_stop_iteration_of_user_code_does_not_end_the_loop(settings, where):
    "In torch, without workers, it ends the loop, and the other batches are lost silently."
    dataset = Raising(16, 5, StopIteration) if where == 'sample' else Coded(16)
    given = {'sample': dict(), 'collate_fn': dict(collate_fn=stopping), 'transform': dict(transform=stop_at_five)}[where]
    loader = create_loader(dataset, 8, 4, device='cpu', use_prefetcher=False, **given, **settings)
    expected = 'collate_fn raised StopIteration' if where == 'collate_fn' else 'StopIteration was raised while loading index 5 of the da'
    taken = []
    with pytest.raises(RuntimeError, match=expected):
        for batch in loader: taken.append(batch)
    assert len(taken) == 1


def stop_at_five(image):
    if image.getpixel((0, 0))[0] == 5: raise StopIteration
    return pixels(image)


@full
@pytest.mark.parametrize('num_workers', [0, 1])
def test_stop_iteration_of_a_collate_function_does_not_end_a_stream(num_workers):
    loader = create_loader(IterableImageDataset(reader=Stream(16)), 8, 4, device='cpu', num_workers=num_workers, collate_fn=stopping,
                           transform=pixels, use_prefetcher=False, mean=None, std=None)
    with pytest.raises(RuntimeError, match='collate_fn raised StopIteration'): list(loader)


def with_file(samples): return {'image': torch.zeros(len(samples), 3, 8, 8), 'more': [1, open(os.devnull)]}


class Odd:
    "Be picklable, but not restorable."
    def __reduce__(self): return int, ('no number',)


def with_odd(samples): return torch.zeros(len(samples), 3, 8, 8), [Odd()]


class WithOpenFile(Coded):
    def __getitem__(self, index): return (*super().__getitem__(index), open(os.devnull))


@pytest.mark.parametrize('dataset, collate, message', [
    (Coded(8), with_file, r"batch\['more'\]\[1\] cannot be sent .*TextIOWrapper.*: collate_fn must return tensors"),
    (WithOpenFile(8), None, r'batch\[2\]\[0\] cannot be sent .*TextIOWrapper.*: the dataset must return tensors')])
def test_a_batch_that_cannot_be_pickled_is_named(dataset, collate, message):
    settings = dict(device='cpu', collate_fn=collate, use_prefetcher=False, transform=pixels, mean=None, std=None)
    with create_loader(dataset, 8, 4, **settings, **PROCESSES) as loader, pytest.raises(TypeError, match=message): list(loader)
    assert len(list(create_loader(dataset, 8, 4, **settings, **INLINE))) == 2   # nothing is wrong with it here


def test_a_batch_that_cannot_be_restored_is_named():
    settings = dict(device='cpu', collate_fn=with_odd, use_prefetcher=False, transform=pixels, mean=None, std=None)
    with create_loader(Coded(8), 8, 4, **settings, **PROCESSES) as loader, \
            pytest.raises(RuntimeError, match='could not be restored .ValueError: .*no number'): list(loader)


class Holder(Coded):
    "A dataset with an attribute that cannot be pickled."
    def __init__(self, num): super().__init__(num); self.file = open(os.devnull)


class HoldingStream(Stream):
    def __init__(self, num): super().__init__(num); self.file = open(os.devnull)


HOLDING = {'processes': lambda **settings: create_loader(Holder(8), 8, 4, **PROCESSES, **settings),
           'buffer': lambda **settings: create_loader(Holder(8), 8, 4, num_workers=0, buffer=dict(batches=4), **settings),
           'stream': lambda **settings: create_loader(IterableImageDataset(reader=HoldingStream(8)), 8, 4, num_workers=1, **settings)}


@pytest.mark.parametrize('kind', HOLDING)
@pytest.mark.parametrize('method', ['spawn', 'forkserver'])
def test_the_attribute_that_cannot_be_pickled_is_named(kind, method):
    with pytest.raises(TypeError, match=r'(dataset|reader)\.file: an open file .*: create it in each worker'):
        list(HOLDING[kind](device='cpu', multiprocessing_context=method))


def test_a_pipe_that_is_being_closed_does_not_disturb_a_copy():
    "Another thread of the original has closed the pipe, and the pipe's object does not know it yet."
    here, there = multiprocessing.Pipe()
    os.close(here.fileno())
    processes._close(here)
    processes._close(there)
    assert here.closed and there.closed
