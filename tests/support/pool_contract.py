"""What a worker pool promises, as checks to run on your own pool.

    for check in CHECKS: check(lambda builder: MyPool(builder))
"""
from collections.abc import Callable

import pytest
import torch
from loader_parts import Failing, Slow

from timmdata.pipeline.builder import BatchBuilder
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.samplers.keys import SampleKey
from timmdata.workers.base import InlinePool, WorkerPool

Make = Callable[[BatchBuilder], WorkerPool]
PATIENCE = 120   # seconds: workers start slowly on a busy machine, actors of Ray more so


def pixels(image) -> torch.Tensor: return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)   # a user's transform


def build(dataset) -> BatchBuilder: return BatchBuilder(SampleLoader(dataset, transform=pixels))


def keys(begin: int, num: int = 4) -> list[SampleKey]: return [SampleKey(begin + k, 0) for k in range(num)]


def batches_are_those_without_workers(make: Make):
    "In whatever order they are taken."
    builder = build(Failing(32, 31))
    inline, pool = InlinePool(builder), make(builder)
    tasks = {begin: pool.submit(keys(begin)) for begin in range(0, 28, 4)}
    for begin in sorted(tasks, key=lambda begin: begin * 5 % 7):
        made, expected = pool.take(tasks[begin], PATIENCE), inline.take(inline.submit(keys(begin)))
        assert made.keys == expected.keys and all(torch.equal(a, b) for a, b in zip(made.batch, expected.batch, strict=True))
    pool.close()


def an_error_is_raised_where_its_batch_is_taken(make: Make):
    pool = make(build(Failing(12, 5)))
    first, second, third = (pool.submit(keys(begin)) for begin in (0, 4, 8))
    with pytest.raises(ZeroDivisionError, match='one sample is bad'): pool.take(second, PATIENCE)
    assert pool.take(first, PATIENCE) is not None and pool.take(third, PATIENCE) is not None
    pool.close()


def a_cancelled_batch_hinders_no_other(make: Make):
    pool = make(build(Slow(64, 60, 0)))
    for begin in range(0, 48, 4): pool.cancel(pool.submit(keys(begin)))
    assert pool.take(pool.submit(keys(48)), PATIENCE).batch[1].tolist() == [48, 49, 50, 51]
    pool.close()


def a_closed_pool_keeps_nobody_waiting(make: Make):
    pool = make(build(Slow(8, 0, 0.3)))
    pool.take(pool.submit(keys(4)), PATIENCE)
    tasks = [pool.submit(keys(0)) for _ in range(3)]
    pool.close()
    for task in tasks:
        try: pool.take(task, PATIENCE)   # an error of this limit would be another one
        except RuntimeError as error: assert 'the workers are closed' in str(error)


CHECKS = [batches_are_those_without_workers, an_error_is_raised_where_its_batch_is_taken, a_cancelled_batch_hinders_no_other,
          a_closed_pool_keeps_nobody_waiting]
