"Shared memory that is page-locked, with a stand-in for CUDA's runtime."
import gc
import multiprocessing

import pytest
import torch
from loader_parts import Coded, nothing_is_left
from training_parts import INLINE

from timmdata.loader import create_loader
from timmdata.samplers.epoch import SampleKey
from timmdata.workers.processes import ProcessPool
from timmdata.workers.settings import WorkerSettings
from timmdata.workers.shared_memory import SharedMemory, SlotPool

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


class Cudart:
    "Notes what is page-locked, and that it is mapped when it is let go."
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
