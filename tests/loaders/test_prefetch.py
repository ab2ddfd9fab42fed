"`PrefetchLoader`: the contract with a stream, kept in writing by a stream that records; on a GPU the real thing."
import contextlib
import ctypes
import gc
import itertools
import threading
import time
from collections import namedtuple
from contextlib import contextmanager

import pytest
import torch

from timmdata.core.memory_pool import MemoryPool
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.prefetch import PrefetchLoader, resolve_device
from timmdata.loaders.side_stream import SideStream, iterate_ahead, move_to_device

pytestmark = pytest.mark.timeout(60)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
Batch = namedtuple('Batch', 'image target name')


class RecordingStream:
    "Writes down every call, in order; one list for all threads."
    def __init__(self): self.log = []
    def note(self, *what): self.log.append(what)

    @contextmanager
    def work(self):
        self.note('enter', threading.current_thread().name)
        yield
        self.note('leave')

    def ready(self):
        self.note('ready')
        return f'event {sum(entry[0] == "ready" for entry in self.log) - 1}'

    def is_done(self, event): return True
    def wait(self, event): self.note('wait', event)
    def hand_over(self, tensors, event): self.note('hand over', [int(t[0]) for t in tensors], event)


class LateStream(RecordingStream):
    "Its events happen when the test says so: like a device that is far behind."
    def __init__(self):
        super().__init__()
        self.done, self.changed = 0, threading.Condition()   # the events that have happened: the first `done`

    def ready(self):
        super().ready()
        return sum(entry[0] == 'ready' for entry in self.log) - 1

    def finish(self, done):
        with self.changed:
            self.done = done
            self.changed.notify_all()

    def is_done(self, event): return event < self.done

    def wait(self, event):
        self.note('wait', event)
        with self.changed: assert self.changed.wait_for(lambda: event < self.done, 20)

    def hand_over(self, tensors, event): self.note('hand over', [], event)   # a device is told to wait; nobody waits


def numbers(num, stream=None, then=None):
    "Batches 0, 1, …; what `then` is raised after the last."
    for k in range(num):
        if stream: stream.note('loaded', k)
        yield torch.tensor([k]), torch.tensor([k])
    if then: raise then


def stage_of(stream):
    def stage(batch):
        stream.note('stage', int(batch[0][0]))
        return batch
    return stage


def threads() -> list: return [t for t in threading.enumerate() if t.name == 'timmdata-prefetch']


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


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


def test_nothing_is_loaded_before_the_first_batch_is_asked_for():
    stream = RecordingStream()
    batches = iterate_ahead(numbers(3, stream), stage_of(stream), stream)
    assert not stream.log and not threads()
    batches.close()
    assert not threads()


def test_ready_batch_is_not_held_back_by_the_next_one():
    "The second batch comes when the consumer lets it; were the first held back until then, this would wait for ever."
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


def test_empty_loader_gives_nothing():
    stream = RecordingStream()
    assert list(iterate_ahead(numbers(0), stage_of(stream), stream)) == [] and not threads()
    assert list(PrefetchLoader([], device='cpu')) == [] and len(PrefetchLoader([], device='cpu')) == 0


def test_abandoned_iterator_does_not_keep_the_program_alive(tmp_path):
    import subprocess
    import sys
    from pathlib import Path
    code = ('import sys; sys.path[:0] = [%r, %r]\nfrom test_prefetch import *\nstream = RecordingStream()\n'
            'batches = iterate_ahead(numbers(9), stage_of(stream), stream)\nnext(batches)\nprint("end")')
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, '-c', code % (str(here), str(here.parent/'support'))], capture_output=True, text=True,
                          timeout=50)
    assert done.returncode == 0 and done.stdout == 'end\n', done.stderr


# ---- the memory that a copy reads

SIZE = 64   # bytes of a buffer


class Lent:
    "Batches in pooled buffers, each filled with its number; notes which buffers are lent."
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
    "A stage that gives back at once; the bytes are copied when the queue is worked off, as on a device."
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
    "The same with a stream that calls every copy done at once: the first test can fail."
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


def test_batch_that_the_consumer_keeps_is_not_touched():
    "Without a device of its own, the consumer gets the pooled memory: it stays lent as long as any part of it is held."
    stream, lent = RecordingStream(), Lent(6)
    stream.hand_over = lambda tensors, event: None
    kept = list(iterate_ahead(iter(lent), lambda buffer: buffer.view(8, 8), stream))
    assert len(set(lent.addresses)) == 6 and [batch.unique().tolist() for batch in kept] == [[k] for k in range(6)]
    row = kept[3][2]
    del kept
    assert lent.pool.num_free == 5 and row.unique().tolist() == [3]
    del row
    assert lent.pool.num_free == 6


class FakeDevice:
    "Looks like torch.cuda to a `SideStream`."
    def __init__(self): self.log = []
    def Stream(self, device): return 'side'
    def stream(self, stream): return contextlib.nullcontext(self.log.append(('block', stream)))
    def current_stream(self, device): return self
    def wait_event(self, event): self.log.append(('wait_event', event.number))

    def Event(self):
        device = self
        class Event:
            number = sum(entry[0] == 'record' for entry in device.log)
            def record(self, stream): device.log.append(('record', stream))
            def query(self): return self.number < 1
            def synchronize(self): device.log.append(('synchronize', self.number))
        return Event()


def test_side_stream_calls_the_device(monkeypatch):
    fake = FakeDevice()
    monkeypatch.setattr(torch, 'get_device_module', lambda device: fake)
    side = SideStream(torch.device('cpu'))
    class Made:
        def record_stream(self, stream): fake.log.append(('keep for', stream))
    with side.work(): pass
    first, second = side.ready(), side.ready()
    assert side.is_done(first) and not side.is_done(second)
    side.wait(second)
    side.hand_over([Made(), Made()], second)
    assert fake.log == [('block', 'side'), ('record', 'side'), ('record', 'side'), ('synchronize', 1), ('wait_event', 1),
                        ('keep for', fake), ('keep for', fake)]


@pytest.mark.parametrize('num_workers', [0, 2])
def test_loader_gives_the_same_batches_through_a_stream(samples, num_workers):
    loaders = [create_loader(ImageDataset(samples), (3, 32, 48), 16, is_training=True, re_prob=0.5, seed=4, device='cpu',
                             num_workers=num_workers) for _ in range(2)]
    loaders[1]._stream = LateStream()   # as on a device; the arithmetic is in the prefetcher's thread then
    loaders[1]._stream.finish(10**6)
    for _ in range(2):
        for (a, s), (b, t) in zip(*loaders, strict=True): assert torch.equal(a, b) and torch.equal(s, t)
    assert sum(entry[0] == 'hand over' for entry in loaders[1]._stream.log) == 2 * len(loaders[0]) and not threads()
    assert loaders[0].state_dict() == loaders[1].state_dict()


# ---- what passes through

def images(num=2, channels=3, value=0):
    return torch.full((num, channels, 4, 5), value, dtype=torch.uint8)


def first(batch, **settings): return next(iter(PrefetchLoader([batch], device='cpu', **settings)))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_img_dtype(dtype):
    out, target = first((images(value=255), torch.arange(2)), img_dtype=dtype)
    assert out.dtype == dtype and target.dtype == torch.int64
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(out[0, :, 0, 0].float(), expected, rtol=1e-2)
    assert first((images(), torch.arange(2)), fp16=True)[0].dtype == torch.float16
    assert first((images(), torch.arange(2)), fp16=True, img_dtype=torch.float32)[0].dtype == torch.float16   # as timm


def test_further_fields_pass_through():
    extra = {'boxes': [torch.ones(2, 4), torch.zeros(1, 4)], 'names': ['a', 'b']}
    out = first((images(), torch.arange(2), extra, 'text', None, 3))
    assert len(out) == 6 and out[2]['names'] == ['a', 'b'] and out[2]['boxes'][1].shape == (1, 4)
    assert out[3:] == ('text', None, 3)
    out = first({'image': images(), 'target': torch.arange(2), 'index': [4, 5]})
    assert out['image'].dtype == torch.float32 and out['target'].tolist() == [0, 1] and out['index'] == [4, 5]
    assert len(first([images(), torch.arange(2)])) == 2


def test_source_batch_is_not_changed():
    batch = {'image': images(value=7), 'target': torch.arange(2)}
    first(batch, re_prob=1.)
    assert batch['image'].dtype == torch.uint8 and (batch['image'] == 7).all()
    pair = [images(value=7), torch.arange(2)]
    first(pair, re_prob=1.)
    assert (pair[0] == 7).all() and pair[0].dtype == torch.uint8


def test_source_batch_of_floats_is_not_changed():
    source = torch.ones(2, 3, 8, 8)
    first((source, torch.arange(2)), mean=None, std=None, re_prob=1.)
    assert (source == 1).all()


def test_named_tuple_stays_one():
    out = first(Batch(images(), torch.arange(2), ['a', 'b']))
    assert isinstance(out, Batch) and out.image.dtype == torch.float32


def test_named_tuples_inside_stay():
    assert move_to_device(Batch(torch.ones(1), 2, 'x'), torch.device('cpu')) == Batch(torch.ones(1), 2, 'x')


def test_default_dtype_does_not_change_the_numbers():
    expected = first((images(value=77), torch.arange(2)))[0]
    torch.set_default_dtype(torch.bfloat16)
    assert torch.equal(first((images(value=77), torch.arange(2)))[0], expected)


def test_device_may_be_a_string_an_object_or_nothing():
    assert resolve_device('cpu') == resolve_device(torch.device('cpu')) == torch.device('cpu')
    assert resolve_device(None).type == ('cuda' if torch.cuda.is_available() else resolve_device().type)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match='device=None'): PrefetchLoader([], device='cuda')
    with pytest.raises(RuntimeError): PrefetchLoader([], device='nonsense')


@pytest.mark.parametrize('batch, error, message', [
    ((images(channels=1), 0), ValueError, '1 channels'), ((images().float(), 0), TypeError,
                                            'uint8'), ((images().int(), 0), TypeError, 'uint8'),
    ((images()[0], 0), TypeError, 'N, C, H, W'), (images(), TypeError, 'a batch is'), (('x', 0), TypeError,
                                            'N, C, H, W'), (5, TypeError, 'a batch is')])
def test_wrong_batches_are_errors(batch, error, message):
    with pytest.raises(error, match=message): first(batch)


@pytest.mark.parametrize('wrong, error', [
    (dict(mean=None), ValueError), (dict(std=None), ValueError), (dict(std=0.), ValueError), (dict(mean=(0.5, 0.5)),
                                            ValueError),
    (dict(img_dtype=torch.int32), TypeError), (dict(re_prob=2.), ValueError), (dict(re_prob=1., re_mode='x'),
                                            ValueError)], ids=str)
def test_wrong_settings_are_errors(wrong, error):
    with pytest.raises(error): PrefetchLoader([], device='cpu', **wrong)


def test_erasing_repeats_with_the_seed_and_differs_between_epochs_and_batches():
    batches = [(images(8, value=99), torch.arange(8))] * 3
    runs = [[list(loader) for _ in range(2)]
        for loader in (PrefetchLoader(batches, device='cpu', re_prob=0.8, re_mode='pixel', seed=s) for s in (1, 1, 2))]
    flat = [[x for epoch in run for x, _ in epoch] for run in runs]
    assert all(torch.equal(a, b) for a, b in zip(flat[0], flat[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(flat[0], flat[2], strict=True))
    assert not any(torch.equal(flat[0][i], flat[0][j]) for i in range(6) for j in range(i))


# ---- on a GPU

def pinned(num=6, size=(8, 3, 64, 64)):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randint(0, 256, size, dtype=torch.uint8, generator=generator).pin_memory(),
             torch.arange(size[0]).pin_memory()) for _ in range(num)]


@cuda
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('device', ['cuda', 'cuda:0', None])
def test_gpu_gives_the_numbers_of_the_cpu(device, dtype):
    batches = pinned()
    expected = list(PrefetchLoader(batches, device='cpu', img_dtype=dtype))
    for (a, s), (b, t) in zip(expected, PrefetchLoader(batches, device=device, img_dtype=dtype), strict=True):
        assert b.device.type == 'cuda' and b.dtype == dtype and t.device.type == 'cuda' and torch.equal(s, t.cpu())
        # a division may be rounded the other way
        assert torch.allclose(a.float(), b.cpu().float(), rtol=2e-6 if dtype == torch.float32 else 1e-2, atol=1e-6)


@cuda
@pytest.mark.parametrize('mode', ['const', 'rand', 'pixel'])
def test_gpu_erases_the_same_rectangles(mode):
    batches = pinned()
    settings = dict(re_prob=0.7, re_mode=mode, re_count=2, seed=5)
    plain = [x.cpu() for x, _ in PrefetchLoader(batches, device='cuda')]
    on = [[x.cpu() for x, _ in PrefetchLoader(batches, device=device, **settings)]
          for device in ('cpu', 'cuda', 'cuda')]
    assert all(torch.equal(a, b) for a, b in zip(on[1], on[2], strict=True))
    for cpu, gpu, before in zip(on[0], on[1], plain, strict=True):
        changed = (gpu != before).any(1)
        assert changed.any() and ((cpu - before).abs().amax(1) > 1e-4).eq(changed).float().mean() > 0.999


@cuda
@pytest.mark.parametrize('stream', [None, 'side'])
def test_memory_is_safe_under_a_slow_consumer(stream):
    "The consumer's kernels read a batch long after it was dropped; its memory must not be filled with the next batch before."
    batches = pinned(20, (16, 3, 128, 128))
    expected = [x.double().sum().item() for x, _ in PrefetchLoader(batches, device='cpu')]
    stream = torch.cuda.Stream() if stream else torch.cuda.current_stream()
    sums = []
    with torch.cuda.stream(stream):
        for images, _ in PrefetchLoader(batches, device='cuda'):
            torch.cuda._sleep(30_000_000)   # about 15 ms
            sums.append(images.double().sum())
            del images
    torch.cuda.synchronize()
    assert [s.item() for s in sums] == pytest.approx(expected, rel=1e-6)


@cuda
def test_copies_overlap_with_the_consumers_kernels():
    "With the prefetcher, copies run while the consumer's kernels do: the loop takes hardly longer than the kernels alone."
    batches = pinned(8, (256, 3, 224, 224))
    def milliseconds(step) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    def copy_all():
        for _ in PrefetchLoader(batches, device='cuda'): pass
    def work(cycles):
        for _ in batches: torch.cuda._sleep(cycles)
    def both(cycles):
        for _ in PrefetchLoader(batches, device='cuda'): torch.cuda._sleep(cycles)
    copy_all()   # allocates
    copying = milliseconds(copy_all)
    cycles = int(30_000_000 * 2 * copying / milliseconds(lambda: work(30_000_000)))   # work of twice the copies' time
    both(cycles)
    together, working = milliseconds(lambda: both(cycles)), milliseconds(lambda: work(cycles))
    assert together < working + 0.6 * copying, (together, working, copying)   # one after the other: working + copying


@cuda
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


@cuda
def test_loader_left_early_on_a_gpu_ends_its_thread():
    for _ in range(20):
        for _ in PrefetchLoader(pinned(4), device='cuda'): break
    gc.collect()
    assert not threads()
