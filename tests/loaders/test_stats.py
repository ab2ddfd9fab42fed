"Who waits for whom: exact sums of a pass with a fake clock, and clearly different shares with a real one."
import threading
import time

import pytest
import torch
from grids import full, quick
from loader_parts import Coded, SplitStream, nothing_is_left, wait_until
from training_parts import INLINE, PROCESSES, THREADS

from timmdata import PrefetchLoader, create_loader
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loaders.base import Loader
from timmdata.loaders.stats import LoaderStats, Meter

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
FORK = {**PROCESSES, 'multiprocessing_context': 'fork'}


class Clock:
    "A clock that advances only when it is told to."
    now = 100.
    def __call__(self): return self.now


def begun(clock: Clock) -> Meter:
    meter = Meter(clock)
    clock.now += 50   # nobody has begun a pass
    meter.begin()
    return meter


def test_time_that_runs_is_counted():
    clock = Clock()
    meter = begun(clock)
    clock.now += 5
    assert meter.stats() == LoaderStats(startup=5) and meter.stats().wait_share == meter.stats().images_per_s == 0
    meter.hand_out(10)
    clock.now += 2
    assert meter.stats().worked == 2 and meter.stats().worked == 2   # a report moves nothing
    meter.resume()
    clock.now += 6
    assert (meter.stats().waited, meter.stats().wait_share) == (6, 0.75)


def test_numbers_for_a_logger_are_flat_floats():
    numbers = LoaderStats(batches=3, images=12, of_workers=(2, 1)).as_dict()
    assert {type(value) for value in numbers.values()} == {float} and all(name.startswith('data/') for name in numbers)
    assert numbers['data/batches'] == 3 and numbers['data/worker_0'] == 2 and 'data/ready' not in numbers
    assert LoaderStats(ready=0).as_dict('train/')['train/ready'] == 0


class SlowSamples(Coded):
    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)


@quick(1, 'settings', [INLINE, THREADS, FORK, {**THREADS, 'device': 'cpu'}],
                         ids=['inline', 'threads', 'processes', 'prefetch'])
def test_a_slow_dataset_makes_the_consumer_wait(settings):
    loader = create_loader(SlowSamples(24), 4, 4, **{'use_prefetcher': 'device' in settings, **settings})
    assert isinstance(loader, Loader)
    for _ in loader: pass
    stats = loader.stats()
    assert stats.wait_share > 0.8 and (stats.batches, stats.images) == (6, 24) and stats.images_per_s < 24 / 0.02
    loader.close()


@quick(1, 'settings', [THREADS, FORK, {**THREADS, 'device': 'cpu'}], ids=['threads', 'processes', 'prefetch'])
def test_a_slow_consumer_does_not_wait_and_finds_batches_ready(settings):
    loader = create_loader(Coded(40), 4, 4, **{'use_prefetcher': 'device' in settings, **settings})
    for k, _ in enumerate(loader):
        if k == 1: wait_until(lambda: loader.stats().ready >= 2, 'none is ready')
        time.sleep(0.1)
    stats = loader.stats()
    assert stats.wait_share < 0.3 and stats.ready == 0 and stats.batches == 10
    if settings is FORK: assert len(stats.of_workers) == 2 and sum(stats.of_workers) == 10
    else: assert stats.of_workers == ()
    loader.close()


def test_a_pass_begins_at_nothing_and_a_left_one_stands_still():
    loader = create_loader(Coded(12), 4, 4, use_prefetcher=False, **THREADS)
    assert loader.stats() == LoaderStats(ready=0)
    for _ in loader: break
    left = loader.stats()
    time.sleep(0.01)
    assert left.batches == 1 and left.ready == 0 and loader.stats() == left
    list(loader)
    assert loader.stats().batches == 3
    loader.close()


def test_a_stream_and_a_buffer_report_as_well():
    stream = create_loader(IterableImageDataset(reader=SplitStream(10)), 4, 4, num_workers=0, device='cpu')
    assert len(list(stream)) == 3 and stream.stats().images == 10 and stream.stats().ready is None
    buffer = create_loader(Coded(16), 4, 4, num_workers=0, device='cpu', buffer=dict(batches=4))
    for _ in buffer: wait_until(lambda: buffer.stats().ready >= 1, 'none is ready')
    assert buffer.stats().batches == 4
    buffer.close()


def test_a_loader_of_others_reports_what_is_known():
    loader = PrefetchLoader([(torch.zeros(1, 3, 2, 2), 0)], mean=None, std=None, device='cpu')
    assert loader.stats() == LoaderStats()
    list(loader)
    assert (loader.stats().batches, loader.stats().images, loader.stats().ready) == (1, 1, None)


def test_bad_samples_are_counted(samples):
    dataset = ImageDataset(samples/'oddities', on_error='skip')
    with pytest.warns(RuntimeWarning): assert sum(dataset[index] is None for index in range(len(dataset))) == len(dataset.bad_samples)
    stats = create_loader(dataset, 8, 4, num_workers=0, device='cpu').stats()
    assert stats.bad_samples == len(dataset.bad_samples) > 0 and f'bad samples: {stats.bad_samples}' in stats.describe()


@full
def test_reports_may_be_asked_for_in_another_thread():
    "Sums never decrease while batches arrive."
    loader, found, ended = create_loader(SlowSamples(40), 4, 4, device='cpu', **THREADS), [], threading.Event()
    def watch():
        while not ended.wait(0.001): found.append(loader.stats())
        found.append(loader.stats())
    thread = threading.Thread(target=watch)
    thread.start()
    list(loader)
    ended.set()
    thread.join()
    loader.close()
    counts = [stats.batches for stats in found]
    assert counts == sorted(counts) and counts[-1] == 10 and len(set(counts)) > 2
