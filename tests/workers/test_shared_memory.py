"Page-locked shared memory, with a stand-in for CUDA's runtime, and errors from a worker."
import gc
import json
import multiprocessing
import os
import pickle
import urllib.error
from multiprocessing import reduction, resource_sharer

import pytest
import torch
from loader_parts import Coded, nothing_is_left
from training_parts import INLINE

from timmdata.loader import create_loader
from timmdata.samplers.keys import SampleKey
from timmdata.workers.processes import ProcessPool
from timmdata.workers.settings import WorkerSettings
from timmdata.workers.shared_memory import SharedMemory, SlotPool, WorkerTraceback, portable_error, raise_portable

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


class Cudart:
    "Record what is page-locked, and check that it is mapped when it is unlocked."
    def __init__(self): self.result, self.locked = 0, {}

    def cudaHostRegister(self, address, num_bytes, flags):
        if not self.result: self.locked[address] = num_bytes
        return self.result

    def cudaHostUnregister(self, address):
        assert is_mapped(address)
        del self.locked[address]


def is_mapped(address) -> bool:
    ranges = [line.split()[0].split('-') for line in open('/proc/self/maps')]
    return any(int(first, 16) <= address < int(last, 16) for first, last in ranges)


@pytest.fixture
def cudart(monkeypatch):
    fake = Cudart()
    monkeypatch.setattr(torch.cuda, 'cudart', lambda: fake)
    return fake


def test_a_copy_for_a_process_that_is_not_forked_is_the_same_memory():
    "The memory is sent as by `multiprocessing`; a change must appear in the other tensor."
    shared = SharedMemory(8)
    other = pickle.loads(reduction.ForkingPickler.dumps(shared))
    shared.tensor.fill_(7)
    assert other.tensor.tolist() == [7] * 8 and other.tensor.data_ptr() != shared.tensor.data_ptr()
    resource_sharer.stop()   # the thread that handed it out


def test_slots_are_unregistered_when_the_last_batch_is_dropped_and_before_they_are_unmapped(cudart):
    slots = SlotPool(2, 4096)
    slots.pin()
    [(address, num_bytes)] = cudart.locked.items()
    assert (address, num_bytes) == (slots.memory.tensor.data_ptr(), 8192)
    batch = slots.lend(slots.acquire())
    del slots
    gc.collect()
    assert list(cudart.locked) == [address] and is_mapped(address)
    del batch
    gc.collect()
    assert not cudart.locked and not is_mapped(address)


def test_a_forked_copy_unregisters_nothing(cudart):
    memory = SharedMemory(4096)
    memory.pin()
    def drop():
        nonlocal memory
        memory = None
        gc.collect()
        assert len(cudart.locked) == 1
    child = multiprocessing.get_context('fork').Process(target=drop)
    child.start()
    child.join()
    assert child.exitcode == 0 and len(cudart.locked) == 1


@pytest.mark.parametrize('has_memfd', [True, False])
def test_pinned_slots_hold_the_same_batches(cudart, monkeypatch, has_memfd):
    if not has_memfd: monkeypatch.delattr('os.memfd_create', raising=False)
    builder = create_loader(Coded(8), 8, 4, use_prefetcher=False, **INLINE).builder
    pool = ProcessPool(builder, WorkerSettings(1, 'processes', pin_memory=True), slot_bytes=4096)
    keys = [SampleKey(k, 0) for k in range(4)]
    assert pool.take(pool.submit(keys)).batch[1].tolist() == [0, 1, 2, 3]
    pool.close()
    del pool
    gc.collect()
    assert not cudart.locked or not has_memfd


# ---- errors

class Builds(Exception):
    def __init__(self, name): super().__init__(f'bad file {name}'); self.name = name


class Two(Exception):
    def __init__(self, path, line): super().__init__(f'{path}:{line}'); self.path = path


class ByKeyword(ValueError):
    def __init__(self, *, code): self.code = code
    def __str__(self): return f'code {self.code}'


class Missing(OSError):
    def __init__(self, path): super().__init__(2, 'not there', path)


class Text(UnicodeDecodeError):
    def __init__(self, data): super().__init__('utf8', data, 0, 1, 'why')


class NewToo(Exception):
    def __new__(cls, a, b): return super().__new__(cls, a)
    def __init__(self, a, b): super().__init__(f'{a}{b}')


class Reduced(Exception):
    def __init__(self, a): super().__init__(f'r {a}')
    def __reduce__(self): return Reduced, (self.args[0][2:],)


class Unpicklable(Exception):
    def __reduce__(self): raise TypeError('no')


def with_a_file():
    error = Builds('b.jpg')
    error.file = open(os.devnull)
    return error


ERRORS = [lambda: Builds('a.jpg'), lambda: Two('p', 3), lambda: ByKeyword(code=3), lambda: Missing('q'), lambda: Text(b'x'),
          lambda: NewToo('a', 'b'), lambda: Reduced('z'), lambda: Unpicklable('u'), with_a_file, lambda: json.JSONDecodeError('m', 'd', 1),
          lambda: FileNotFoundError(2, 'no', 'f'), lambda: OSError('x'), lambda: KeyError('k'),
          lambda: UnicodeDecodeError('utf8', b'a', 0, 1, 'r'),
          lambda: urllib.error.HTTPError('http://x', 404, 'gone', {}, None), lambda: ImportError('i', name='n')]


@pytest.mark.parametrize('make', ERRORS)
def test_an_error_comes_back_as_it_was(make):
    "Class, text, attributes and notes of the error are kept, and its traceback and cause arrive as text."
    original = make()
    if hasattr(original, 'add_note'): original.add_note('while loading index 3')
    text, state = str(original), dict(vars(original))
    kept = {name: getattr(original, name, None) for name in ('errno', 'filename', 'reason')}
    try: raise original from ZeroDivisionError('the cause')
    except Exception as error: sent = portable_error(error)
    with pytest.raises(type(original)) as raised: raise_portable(sent)
    again = raised.value
    assert type(again) is type(original) and str(again) == text
    assert {name: getattr(again, name, None) for name in kept} == kept
    assert {name: value for name, value in vars(again).items() if isinstance(value, (str, int, list))} == {
        name: value for name, value in state.items() if isinstance(value, (str, int, list))}
    assert isinstance(again.__cause__, WorkerTraceback) and 'ZeroDivisionError: the cause' in str(again.__cause__)


class Mute(Exception):
    def __str__(self): raise ValueError('no text')


def test_errors_that_cannot_be_sent_are_told_in_words_and_keep_their_notes():
    class Local(Exception): pass
    errors = {Local('of a function'): '^Local: of a function', ValueError(open(os.devnull)): '^ValueError: <_io', Mute(): None}
    for original, message in errors.items():
        if hasattr(original, 'add_note'): original.add_note('while loading index 3')
        sent = portable_error(original)
        with pytest.raises(RuntimeError if message else Mute) as raised: raise_portable(sent)
        if message: assert raised.match(message)
        if hasattr(original, 'add_note'): assert raised.value.__notes__ == ['while loading index 3']
