"Memory is free again when its last reference is gone, whatever views or arrays were made from it."
import gc
import sys
import threading

import pytest
import torch
from PIL import Image

from timmdata.core.memory_pool import MemoryPool
from timmdata.workers.shared_memory import SlotPool

pytestmark = pytest.mark.timeout(60)


def lent() -> MemoryPool: return MemoryPool(lambda: torch.empty(48, dtype=torch.uint8), max_free=2)


USES = {
    'itself': lambda t: t, 'view': lambda t: t.view(4, 3, 4)[1:, :, 2], 'typed': lambda t: t.view(torch.float32)[:3],
    'permuted': lambda t: t.view(1, 4, 4, 3).permute(0, 3, 1, 2), 'row': lambda t: t.view(4, 12).unbind()[2],
    'array': lambda t: t.numpy(), 'array of a view': lambda t: t.view(4, 12)[1].numpy()[3:], 'detached': lambda t: t.detach(),
    'alias in a list': lambda t: [dict(image=t[:5])], 'memory view': lambda t: memoryview(t.numpy()),
    'torch of an array': lambda t: torch.from_numpy(t.numpy()[::2]), 'storage': lambda t: t.untyped_storage(),
    'parameter': lambda t: torch.nn.Parameter(t.view(torch.float32)), 'pillow': lambda t: Image.frombuffer('L', (8, 6), t.numpy()),
    'saved for backward': lambda t: t.view(torch.float32).zero_() * torch.ones(12, requires_grad=True)}


@pytest.mark.parametrize('name', USES)
def test_memory_comes_back_with_the_last_user(name):
    pool = lent()
    buffer = pool.acquire()
    address, kept = buffer.data_ptr(), USES[name](buffer)
    del buffer
    gc.collect()
    assert pool.num_free == 0 and pool.acquire().data_ptr() != address
    del kept
    gc.collect()
    assert address in {pool.acquire().data_ptr(), pool.acquire().data_ptr()} or pool.num_free


def test_pool_is_bounded_and_the_last_free_buffer_is_taken_first():
    pool = lent()
    three = [pool.acquire() for _ in range(3)]
    assert len({buffer.data_ptr() for buffer in three}) == 3
    addresses = [buffer.data_ptr() for buffer in three]
    while three: three.pop(0)
    assert (first := pool.acquire()).data_ptr() == addresses[2]   # it is in the cache
    assert pool.num_free == 1   # one more would be too many
    del first


def test_pool_may_be_gone_before_its_buffers():
    pool = lent()
    buffer = pool.acquire().fill_(9)
    del pool
    gc.collect()
    assert (buffer == 9).all()


def test_pool_is_used_from_many_threads():
    pool, wrong = MemoryPool(lambda: torch.empty(64, dtype=torch.uint8)), []
    def work(k):
        for _ in range(300):
            buffer = pool.acquire().fill_(k)
            if not (buffer == k).all(): wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong and 1 <= pool.num_free <= 8


def test_no_python_code_runs_as_a_batch_is_dropped():
    "Python drops errors raised in a finalizer, so an interrupt at that moment would be lost."
    pool, slots, called = MemoryPool(lambda: torch.empty(48, dtype=torch.uint8)), SlotPool(2, 64), []
    batch, slot = pool.acquire(), slots.lend(slots.acquire())
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == 'call' else None)
    del batch, slot
    sys.setprofile(None)
    assert called == [] and pool.num_free == 1 and slots.num_free == 2
