"Batches on a side stream, one ahead: which calls a stream gets, checked with a stream that records them."
import contextlib
import ctypes
import gc
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from streams import LateStream, RecordingStream, numbers, stage_of, threads, wait_until

from timmdata.core.memory_pool import MemoryPool
from timmdata.loaders.prefetch import SideStream, iterate_ahead, move_to_device

pytestmark = pytest.mark.timeout(60)


def test_calls_come_in_order():
    stream = RecordingStream()
    for batch in iterate_ahead(numbers(5, stream), stage_of(stream), stream): stream.note('yielded', int(batch[0][0]))
    at = {entry[:2] if entry[0] in ('stage', 'yielded', 'loaded') else (entry[0], entry[1][0])
          if entry[0] == 'hand over' else None: k
          for k, entry in enumerate(stream.log)}
    for k in range(5):
        assert at['loaded', k] < at['stage', k] < at['hand over', k] < at['yielded', k]
        if k: assert at['yielded', k - 1] < at['hand over', k]
        # staged inside the stream's block, and the event is made after the block and before the hand-over
        assert [entry[0] for entry in stream.log[at['stage', k] - 1:at['stage', k] + 3]
                if entry[0] not in ('yielded', 'hand over', 'loaded')][:1] == ['enter']
        assert ('hand over', [k, k], f'event {k}') in stream.log
    assert not threads()


def test_staging_is_in_another_thread_and_handing_over_in_the_consumers():
    found = {}
    class Stream(RecordingStream):
        def hand_over(self, tensors, event): found['hand over'] = threading.current_thread()
    stream = Stream()
    list(iterate_ahead(numbers(1), stage_of(stream), stream))
    assert stream.log[0] == ('enter', 'timmdata-prefetch') and found['hand over'] is threading.current_thread()


def test_never_more_than_one_batch_ahead():
    stream = RecordingStream()
    staged = lambda: [entry[1] for entry in stream.log if entry[0] == 'stage']   # noqa: E731
    for k, _ in enumerate(iterate_ahead(numbers(8), stage_of(stream), stream)):
        wait_until(lambda k=k: len(staged()) == min(8, k + 2))   # the next one is staged while this one is used …
        time.sleep(0.01)
        assert len(staged()) == min(8, k + 2)   # … and no further one


def test_ready_batch_is_not_held_back_by_the_next_one():
    "The second batch arrives only after the consumer allows it; if the first were held back until then, this test would wait forever."
    release, stream = threading.Event(), RecordingStream()
    def slow():
        yield next(numbers(1))
        assert release.wait(20)
        yield next(numbers(1))
    batches = iterate_ahead(slow(), stage_of(stream), stream)
    assert int(next(batches)[0]) == 0
    release.set()
    assert len(list(batches)) == 1


def test_error_of_the_loader_comes_after_the_batches_before_it():
    stream, seen = RecordingStream(), []
    with pytest.raises(ZeroDivisionError, match='bad') as raised:
        for batch in iterate_ahead(numbers(3, then=ZeroDivisionError('bad')), stage_of(stream), stream):
            seen.append(int(batch[0]))
    assert seen == [0, 1, 2] and not threads()
    assert 'numbers' in [entry.name for entry in raised.traceback]   # the place of the fault is in the traceback


@pytest.mark.parametrize('where', ['stage', 'hand_over', 'ready', 'work'])
def test_error_of_a_stage_ends_the_thread(where):
    stream, stage = RecordingStream(), None
    def fail(*args): raise KeyError('broken')
    if where == 'stage': stage = fail
    else: setattr(stream, where, fail)
    with pytest.raises(KeyError, match='broken'): list(iterate_ahead(numbers(3), stage or stage_of(stream), stream))
    assert not threads()


@pytest.mark.parametrize('how', ['close', 'del', 'break', 'exception', 'interrupt'])
def test_thread_ends_when_the_consumer_leaves(how):
    stream = RecordingStream()
    batches = iterate_ahead(numbers(100), stage_of(stream), stream)
    next(batches)
    assert len(threads()) == 1
    if how == 'close': batches.close()
    elif how == 'del': del batches
    elif how == 'break':
        for _ in batches: break
        del batches
    else:
        error = ZeroDivisionError if how == 'exception' else KeyboardInterrupt
        with pytest.raises(error): batches.throw(error())
    gc.collect()
    assert not threads()
    assert sum(entry[0] == 'stage' for entry in stream.log) <= 3


def test_many_early_ends_leave_no_threads_and_no_deadlock():
    for k in range(200):
        stream = RecordingStream()
        batches = iterate_ahead(numbers(3), stage_of(stream), stream)
        for _ in range(k % 4): next(batches)
        batches.close()
    assert not threads()


@pytest.mark.full
def test_abandoned_iterator_does_not_keep_the_program_alive(tmp_path):
    done = run_program('stream = RecordingStream()\nbatches = iterate_ahead(numbers(9), stage_of(stream), stream)\n'
                       'next(batches)\nprint("end")')
    assert done.returncode == 0 and done.stdout == 'end\n', done.stderr


def run_program(code: str) -> subprocess.CompletedProcess:
    "Run a program that can import the stand-ins."
    support = Path(__file__).resolve().parent.parent/'support'
    code = f'from streams import *\nfrom timmdata.loaders.prefetch import iterate_ahead\n{code}'
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(support), str(support.parent.parent)])}
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=50, env=env)


@pytest.mark.full
def test_thread_ends_before_python_does():
    "A thread that uses a device while Python exits can crash it, so the exit waits for the copies in progress."
    done = run_program('class Stream(RecordingStream):\n    def wait(self, event): print("waited for", event)\n'
                       'stream = Stream()\nbatches = iterate_ahead(numbers(9), stage_of(stream), stream)\nnext(batches)\n'
                       'while len(stream.log) < 9: time.sleep(0.01)\nprint("end")')
    assert done.returncode == 0 and done.stdout.startswith('end\nwaited for event'), (done.stdout, done.stderr)


def test_leaving_does_not_wait_for_a_stuck_worker():
    stuck, stream = threading.Event(), RecordingStream()
    def source():
        yield from numbers(1)
        stuck.wait()
    batches = iterate_ahead(source(), stage_of(stream), stream, patience=0.1)
    next(batches)
    batches.close()
    assert threads()   # it is there still …
    stuck.set()
    wait_until(lambda: not threads())   # … and ends by itself


def test_loop_that_a_worker_collects_does_not_wait_for_that_worker():
    "The garbage collector closes a loop in any thread, possibly in the one for which the loop's thread waits."
    made, stream = queue.SimpleQueue(), RecordingStream()
    batches = iterate_ahead(iter(made.get, None), stage_of(stream), stream, patience=600)
    for batch in numbers(2): made.put(batch)
    next(batches)
    cycle = [batches]
    cycle.append(cycle)
    def work():
        gc.collect()
        made.put(None)   # the batch that this worker was making
    del batches, cycle
    worker = threading.Thread(target=work, name='timmdata-worker-0')
    worker.start()
    worker.join(30)
    assert not worker.is_alive()
    wait_until(lambda: not threads())


# ---- the memory that a copy reads

SIZE = 64   # bytes of a buffer


class Lent:
    "Batches in pooled buffers, each filled with its number; records which buffers are in use."
    def __init__(self, num, max_free=8):
        self.num, self.addresses = num, []
        self.pool = MemoryPool(lambda: torch.empty(SIZE, dtype=torch.uint8), max_free)

    def __iter__(self):
        for k in range(self.num):
            buffer = self.pool.acquire().fill_(k)
            self.addresses.append(buffer.data_ptr())
            yield buffer
            del buffer


def late_copy(queue):
    "A stage that returns at once; the bytes are copied when the queue is processed, as on a device."
    def stage(buffer):
        made, address = torch.empty(SIZE, dtype=torch.uint8), buffer.data_ptr()
        queue.append(lambda: ctypes.memmove(made.data_ptr(), address, SIZE))   # holds no reference to the buffer
        return made
    return stage


def test_buffer_is_not_used_again_before_its_copy_is_done():
    stream, lent, queue = LateStream(), Lent(5), []
    batches = iterate_ahead(iter(lent), late_copy(queue), stream)
    taken = [next(batches) for _ in range(4)]
    wait_until(lambda: len(queue) == 5)
    assert len(set(lent.addresses)) == 5 and lent.pool.num_free == 0   # nothing has come back
    for copy in queue: copy()
    stream.finish(5)
    taken += list(batches)
    assert [buffer.unique().tolist() for buffer in taken] == [[k] for k in range(5)]
    assert lent.pool.num_free == 5


def test_buffer_that_is_reused_too_early_is_seen():
    "The same with a stream that reports every copy as done at once: this shows that the first test can fail."
    class Hasty(LateStream):
        def is_done(self, event): return True
        def wait(self, event): pass
    stream, lent, queue = Hasty(), Lent(5), []
    taken = list(iterate_ahead(iter(lent), late_copy(queue), stream))
    for copy in queue: copy()
    assert len(set(lent.addresses)) < 5
    assert [buffer.unique().tolist() for buffer in taken] != [[k] for k in range(5)]


def test_buffers_come_back_one_by_one_as_their_copies_are_done():
    stream, lent, queue = LateStream(), Lent(12), []
    seen = []
    for k, _ in enumerate(iterate_ahead(iter(lent), late_copy(queue), stream)):
        wait_until(lambda k=k: len(queue) == min(12, k + 2))
        stream.finish(k + 1)   # the device keeps up
        seen.append(k)
        if k == 10: stream.finish(12)
    assert seen == list(range(12)) and lent.pool.num_free == len(set(lent.addresses)) <= 4


@pytest.mark.parametrize('how', ['close', 'error'])
def test_end_of_the_loop_waits_for_the_copies(how):
    stream, lent, queue = LateStream(), Lent(9), []
    def loader():
        yield from lent if how == 'close' else itertools.islice(lent, 2)
        raise ZeroDivisionError
    batches, ended = iterate_ahead(loader(), late_copy(queue), stream), threading.Event()
    first = next(batches)
    wait_until(lambda: len(queue) == 2)
    def end():
        if how == 'close': batches.close()
        else:
            with pytest.raises(ZeroDivisionError): list(batches)
        ended.set()
    thread = threading.Thread(target=end)
    thread.start()
    wait_until(lambda: ('wait', 0) in stream.log)
    assert not ended.wait(0.05) and lent.pool.num_free <= len(set(lent.addresses)) - 2   # two copies are under way
    for copy in queue: copy()
    stream.finish(9)
    thread.join(20)
    gc.collect()
    assert ended.is_set() and not threads() and lent.pool.num_free == len(set(lent.addresses))
    assert first.unique().tolist() == [0]


def test_error_of_a_stage_keeps_the_memory_of_copies_that_were_queued():
    stream, lent, copies, ended = LateStream(), Lent(3), [], threading.Event()
    copy_late = late_copy(copies)
    def stage(buffer):
        made = copy_late(buffer)
        if len(copies) == 2: raise ZeroDivisionError
        return made
    batches = iterate_ahead(iter(lent), stage, stream)
    next(batches)
    def end():
        with contextlib.suppress(ZeroDivisionError): next(batches)
        batches.close()
        ended.set()
    thread = threading.Thread(target=end)
    thread.start()
    stream.finish(1)   # the first copy is done, that of the batch with the error is not
    wait_until(lambda: ('wait', 1) in stream.log)
    assert not ended.wait(0.05) and lent.pool.num_free == 0
    stream.finish(2)
    thread.join(20)
    gc.collect()
    assert ended.is_set() and not threads() and lent.pool.num_free == 2


def test_batch_that_the_consumer_keeps_is_not_touched():
    "Without a separate device, the consumer gets the pooled memory, which stays in use as long as any part of it is held."
    stream, lent = RecordingStream(), Lent(6)
    stream.hand_over = lambda tensors, event: None
    kept = list(iterate_ahead(iter(lent), lambda buffer: buffer.view(8, 8), stream))
    assert len(set(lent.addresses)) == 6 and [batch.unique().tolist() for batch in kept] == [[k] for k in range(6)]
    row = kept[3][2]
    del kept
    assert lent.pool.num_free == 5 and row.unique().tolist() == [3]
    del row
    assert lent.pool.num_free == 6


class FakeDevices:
    "Replace torch.cuda for a `SideStream`: each thread has its own current device, at first number 0."
    def __init__(self): self.log, self.current = [], threading.local()
    def current_device(self): return getattr(self.current, 'number', 0)
    def Stream(self, device): return f'side {device.index}'
    def stream(self, stream): return contextlib.nullcontext(self.log.append(('block', stream)))
    def current_stream(self, device): return self
    def wait_event(self, event): self.log.append(('wait_event', event.number))

    @contextlib.contextmanager
    def device(self, device):
        before, self.current.number = self.current_device(), device.index
        try: yield
        finally: self.current.number = before

    def Event(self):
        devices = self
        class Event:
            number = sum(entry[0] == 'record' for entry in devices.log)
            def record(self, stream): devices.log.append(('record', stream))
            def query(self): return self.number < 1
            def synchronize(self): devices.log.append(('synchronize', self.number))
        return Event()


@pytest.fixture
def devices(monkeypatch) -> FakeDevices:
    fake = FakeDevices()
    monkeypatch.setattr(torch, 'get_device_module', lambda device: fake)
    return fake


def test_thread_works_on_the_device_that_the_rank_has_chosen(devices):
    devices.current.number = 1   # as torch.cuda.set_device(1), for this thread only
    side, seen = SideStream(torch.device('cuda')), []
    list(iterate_ahead(iter(range(3)), lambda batch: seen.append(devices.current_device()), side))
    assert seen == [1, 1, 1] and side.device == torch.device('cuda', 1) and devices.current_device() == 1


@pytest.mark.gpu
def test_side_stream_orders_both_ways():
    side = SideStream(torch.device('cuda'))
    with side.work():
        torch.cuda._sleep(50_000_000)
        made = torch.ones(1000, device='cuda')
    event = side.ready()
    assert not event.query()   # the copy is not done …
    side.hand_over([made], event)
    assert (made + 1).sum().item() == 2000   # … and the consumer waits for it on the device
    assert event.query()


class Own(dict): pass


@pytest.mark.parametrize('make', [
    Own, OrderedDict, UserDict, lambda fields: UserList(fields.values()), lambda fields: deque(fields.values()),
    lambda fields: {'inside': [Own(fields)]}])
def test_tensors_in_any_container_reach_the_device(make):
    "If a container were skipped, its tensors would not be moved, and their memory would be reused too early."
    batch = make({'image': torch.zeros(2), 'name': 'a', 'numbers': range(3)})
    moved = move_to_device(batch, torch.device('meta'))
    def found(value):
        if isinstance(value, torch.Tensor): return [value.device.type]
        if isinstance(value, str) or not isinstance(value, (Mapping, Sequence)): return []
        values = value.values() if isinstance(value, Mapping) else value
        return [device for one in values for device in found(one)]
    assert type(moved) is type(batch) and found(moved) == ['meta'] and found(batch) == ['cpu']


def test_what_has_no_tensor_is_not_copied():
    names = UserList(['a', 'b'])
    moved = move_to_device([torch.zeros(2), names, range(3), 'text'], torch.device('meta'))
    assert moved[1] is names and moved[2] == range(3) and type(moved) is list


def test_only_the_content_is_searched_for_tensors():
    "The keys of a batch are not searched, which took milliseconds in the training process."
    class Closed:
        def __iter__(self): raise AssertionError('searched')

    def stage(batch):
        stream.note('stage', int(batch[0][0]))
        return batch, Closed()

    stream = RecordingStream()
    staged = list(iterate_ahead(numbers(3), stage, stream, content=lambda staged: staged[0]))
    assert len(staged) == 3 and [entry[1] for entry in stream.log if entry[0] == 'hand over'] == [[0, 0], [1, 1], [2, 2]]
