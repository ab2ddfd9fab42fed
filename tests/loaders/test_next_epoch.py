"Workers begin the next epoch while the current one ends: no batch is made twice or for the wrong order, and no batch differs."
import copy
import multiprocessing
import os
import pickle
import random
import signal
import threading
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from epoch_stories import Story
from grids import full, quick
from loader_parts import Coded, CountingReader, Failing, Gated, children, nothing_is_left, program, wait_until
from own_state import PIXELS, Epochs
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler
from training_parts import BATCH, INLINE, PROCESSES, THREADS, assert_equal, collected, copied, few_images, training, workers

from timmdata.buffer.producer import batches_from, numbering_of
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.loaders.stats import LoaderStats
from timmdata.pipeline.builder import BatchBuilder, HostBatch
from timmdata.pipeline.params import ParamSampler
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.pipeline.sample_transform import SampleTransform
from timmdata.readers.base import Reader
from timmdata.samplers.batch_schedule import ScheduledBatchSampler
from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.token_plan import TokenPlan
from timmdata.samplers.weighted import BalancedSampler, WeightedSampler
from timmdata.transforms.mixup import Mixup
from timmdata.transforms.settings import AugmentSettings
from timmdata.workers.base import Task, WorkerPool
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
FORK = {**PROCESSES, 'multiprocessing_context': 'fork'}
NUM_AHEAD = {'threads': 2, 'processes': 4}   # of two workers


@pytest.fixture(scope='module')
def dataset(samples): return few_images(samples)


# ---- what is submitted, and when: a pool that makes nothing

class Noting(WorkerPool):
    "Record each call, also those of later pools; the batches are the indexes of the keys."
    def __init__(self): self.log, self.in_progress, self.pools, self.is_closed = [], set(), [], False

    def start(self, builder):
        "Return the next pool."
        self.pools.append(copy.copy(self))
        return self.pools[-1]

    def submit(self, keys):
        if self.is_closed: raise RuntimeError('closed')
        task = Task(keys)
        task.pool = self
        self.in_progress.add(task)
        self.log.append(('submit', keys[0].epoch, [key.index for key in keys], len(self.in_progress)))
        return task

    def take(self, task, timeout=0.):
        assert task.pool is self, 'a task of another pool'
        self.in_progress.remove(task)
        self.log.append(('take', task.keys[0].epoch, [key.index for key in task.keys]))
        return HostBatch(torch.tensor([key.index for key in task.keys]), task.keys)

    def cancel(self, task):
        super().cancel(task)
        self.in_progress.discard(task)
        self.log.append(('cancel', task.keys[0].epoch, [key.index for key in task.keys]))

    def close(self): self.is_closed = True

    def of(self, what, epoch=None) -> list:
        "Return the indexes in each call of one kind."
        return [entry[2] for entry in self.log if entry[0] == what and epoch in (None, entry[1])]

    @property
    def most(self) -> int: return max(entry[3] for entry in self.log if entry[0] == 'submit')


def lengths(seed, epoch, indexes, views): return (indexes * 7 + epoch) % 16 + 1


SAMPLERS = {
    'plain': lambda data: EpochSampler(data, seed=5), 'in order': lambda data: EpochSampler(data, shuffle=False),
    'ranks': lambda data: EpochSampler(data, seed=5, num_replicas=2, rank=1),
    'repeats': lambda data: EpochSampler(data, seed=5, num_repeats=2), 'parts': lambda data: EpochSampler(data, samples_per_epoch=13),
    'weighted': lambda data: WeightedSampler(data, range(1, 23), seed=5),
    'balanced': lambda data: BalancedSampler(data, 4, seed=5),
    'of ours': lambda data: EpochSampler(data, sampler=EpochSampler(data, seed=5, samples_per_epoch=30), num_replicas=2)}
CUTS = {
    'plain': lambda order: BatchSettings(4), 'full': lambda order: BatchSettings(4, drop_last=True),
    'padded': lambda order: BatchSettings(4, pad_last=True),
    'sizes': lambda order: BatchSettings(4, False, ScheduledBatchSampler(order, [4, 2, 3], seed=None, drop_last=False)),
    'counted': lambda order: BatchSettings(4, False, ScheduledBatchSampler(order, [4, 2, 3], seed=3, num_batches=6)),
    'progressive': lambda order: BatchSettings(4, False, ScheduledBatchSampler(
        order, [4, 2, 3], seed=3, choice_schedule='progressive', schedule_epochs=3)),
    'native': lambda order: TokenPlan(lengths, 'native', (8, 16), (4, 2)),
    'packed': lambda order: TokenPlan(lengths, 'packed', (16,), (2,))}


def noting(dataset, order=SAMPLERS['plain'], cut=CUTS['plain'], num_ahead=3, **settings) -> tuple[BatchLoader, Noting]:
    "A loader with a pool that records its requests; workers make `num_ahead` batches ahead, or there are no workers."
    transform = SampleTransform(ParamSampler(AugmentSettings(24, is_training=True)))
    builder, order, pool = BatchBuilder(SampleLoader(dataset, [transform])), order(dataset), Noting()
    settings = WorkerSettings(2 if num_ahead else 0, 'threads', prefetch_factor=num_ahead or 1, **settings)
    return BatchLoader(builder, order, cut(order), settings, pool=pool.start), pool


def indexes(loader) -> list: return [batch.tolist() for batch in loader]


@pytest.mark.parametrize('order, cut', [*((order, 'plain') for order in SAMPLERS), *(('plain', cut) for cut in CUTS if cut != 'plain')])
@quick(1, 'num_ahead', [3, 1, 20])
def test_the_next_epoch_begins_early_and_nothing_else_changes(dataset, order, cut, num_ahead):
    "The orders, and all that the loader reports in a loop, are those of a loader without workers; each batch is submitted once."
    loader, pool = noting(dataset, SAMPLERS[order], CUTS[cut], num_ahead)
    other, _ = noting(dataset, SAMPLERS[order], CUTS[cut], 0)
    def said(one): return len(one), one.num_valid, one.state_dict(), one.sampler.epoch, one.sampler.start, one.sampler.current
    for epoch in range(3):
        early = len(pool.of('submit', epoch))
        assert early == (min(num_ahead, len(loader)) if epoch else 0)
        for batch, expected in zip(loader, other, strict=True): assert batch.equal(expected) and said(loader) == said(other)
        assert said(loader) == said(other) and pool.most <= num_ahead
    assert [len(pool.of('submit', epoch)) for epoch in range(3)] == [len(pool.of('take', epoch)) for epoch in range(3)]
    assert not pool.of('cancel') and loader.stats().discarded == 0
    loader.close()
    assert pool.pools[0].is_closed and len(pool.of('cancel')) == loader.stats().discarded == min(num_ahead, len(loader))


def test_a_batch_of_the_next_epoch_is_submitted_only_after_the_last_of_this_one(dataset):
    loader, pool = noting(dataset)
    for _ in loader: pass
    assert [entry[1] for entry in pool.log if entry[0] == 'submit'] == [0] * 6 + [1] * 3
    at = [entry[:2] for entry in pool.log].index(('submit', 1))
    assert [entry[0] for entry in pool.log[:at]].count('take') == 4   # as soon as there is a free place
    batches = iter(loader)
    next(batches)   # all that it waits for was submitted in the previous pass
    assert [entry[:2] for entry in pool.log[-2:]] == [('take', 1), ('submit', 1)] and len(pool.of('submit', 1)) == 4
    del batches


def skip_epochs(loader): loader.set_epoch(7)
def go_back(loader): loader.set_epoch(0)
def by_sampler(loader): loader.sampler.set_epoch(3)
def by_batch_sampler(loader): loader.batch_sampler.set_epoch(3)
def move(loader): loader.set_position(1, 8)
def load(loader): loader.load_state_dict({**loader.state_dict(), 'epoch': 0, 'position': 12})
def reseed(loader): loader.sampler.seed = 8
def sort(loader): loader.sampler.shuffle = False
def other_rank(loader): loader.sampler.num_replicas = 2
def weigh(loader): loader.sampler.weights = torch.arange(22.).double().flip(0)
def weigh_in_place(loader): loader.sampler.weights.copy_(torch.arange(22.).double().flip(0))
def shrink(loader): loader.dataset.indices = loader.dataset.indices[:14]
def grow(loader): loader.dataset.indices = [*loader.dataset.indices, 1, 2]
def replace(loader): loader.dataset.indices = [*loader.dataset.indices[1:], 1]
def assign_transform(loader): loader.dataset.dataset.transform = copy.copy


CHANGES = [skip_epochs, go_back, by_sampler, by_batch_sampler, move, load, reseed, sort, other_rank, weigh, weigh_in_place, shrink, grow,
           replace, assign_transform]


@pytest.mark.parametrize('change', CHANGES, ids=lambda change: change.__name__)
def test_a_change_between_two_epochs_cancels_what_was_begun(samples, change):
    "The reference is a loader without workers that gets the same calls."
    kind = 'weighted' if change in (weigh, weigh_in_place) else 'plain'
    (loader, pool), (other, _) = (noting(few_images(samples), SAMPLERS[kind], num_ahead=num_ahead) for num_ahead in (3, 0))
    assert indexes(loader) == indexes(other) and not pool.of('cancel')
    begun = pool.of('submit', 1)
    for one in (loader, other): change(one)
    assert indexes(loader) == indexes(other)
    assert pool.of('cancel') == begun and len(begun) == loader.stats().discarded == 3
    assert pool.pools[0].is_closed == (len(pool.pools) == 2) == (change in (shrink, grow, replace, assign_transform))
    loader.close()


@pytest.mark.parametrize('change', [lambda loader: loader.set_epoch(1), lambda loader: loader.set_position(1, 0),
                                    lambda loader: loader.load_state_dict(loader.state_dict()),
                                    lambda loader: setattr(loader.sampler, 'seed', 5)])
def test_what_changes_nothing_cancels_nothing(dataset, change):
    "timm's train.py and Lightning call set_epoch in each epoch."
    (loader, pool), (other, _) = (noting(dataset, num_ahead=num_ahead) for num_ahead in (3, 0))
    for _ in range(3):
        assert indexes(loader) == indexes(other)
        if loader.sampler.epoch == 1: change(loader), change(other)
    assert not pool.of('cancel') and loader.stats().discarded == 0
    loader.close()


def test_a_loop_that_sets_the_same_epoch_again_and_again_pays_once(dataset):
    "As in timmdata's own measurements, whose loaders take turns; a loop over epochs begins early again."
    loader, pool = noting(dataset)
    for _ in range(4):
        loader.set_epoch(0)
        indexes(loader)
    assert len(pool.of('submit', 1)) == len(pool.of('cancel')) == 3
    indexes(loader)
    assert len(pool.of('submit', 1)) == 3 + 6 and len(pool.of('submit', 2)) == 3
    loader.close()


def test_what_was_begun_outlives_a_break(dataset):
    loader, pool = noting(dataset)
    for k, _ in enumerate(loader):
        if k == 4: break   # one batch is left, and two of the next epoch are begun
    assert len(pool.of('cancel', 0)) == 1 and len(pool.of('submit', 1)) == 2
    assert indexes(loader) == indexes_of(dataset, 1) and len(pool.of('cancel')) == 1
    loader.close()


def indexes_of(dataset, epoch) -> list:
    loader, _ = noting(dataset, num_ahead=0)
    loader.set_epoch(epoch)
    return indexes(loader)


def test_loops_inside_each_other_have_the_epochs_that_they_have_without_workers(dataset):
    def story(loader):
        seen = []
        for k, outer in enumerate(loader):
            seen.append(outer.tolist())
            if k == 1: seen += indexes(loader)   # the outer loop goes on afterwards
            if k == 4: seen += [batch.tolist() for batch, _ in zip(loader, range(5))]   # begun by the outer loop, and left
            if k == 5: seen += indexes(loader)
        return seen + indexes(loader)
    (loader, pool), (other, _) = (noting(dataset, num_ahead=num_ahead) for num_ahead in (3, 0))
    assert story(loader) == story(other)
    loader.close()
    assert not pool.in_progress


def test_workers_that_a_loop_still_uses_give_nothing_to_a_loop_after_a_change(samples):
    "The inner loop has the keys that were already submitted, but its batches are those of the changed dataset."
    loader, pool = noting(few_images(samples))
    for k, _ in enumerate(loader):
        if k == 4:
            loader.dataset.dataset.input_img_mode = 'L'
            assert indexes(loader) == indexes_of(loader.dataset, 1)
    assert len(pool.pools) == 2 and [one.is_closed for one in pool.pools] == [True, False] and loader.stats().discarded == 2
    loader.close()


def test_an_order_that_cannot_be_drawn_is_an_error_only_when_its_epoch_begins(dataset):
    class Limited(EpochSampler):
        def order(self, epoch):
            if epoch == 1: raise ZeroDivisionError('no such epoch')
            return super().order(epoch)
    loader, pool = noting(dataset, Limited)
    assert len(indexes(loader)) == 6
    with pytest.raises(ZeroDivisionError, match='no such epoch'): next(iter(loader))
    loader.close()


def of_own_sampler(dataset): return noting(dataset, lambda data: EpochSampler(data, sampler=RandomSampler(data)))
def of_restarting_workers(dataset): return noting(dataset, persistent_workers=False)
def without_workers(dataset): return noting(dataset, num_ahead=0)
def of_own_reader(dataset): return noting(ImageDataset(dataset.dataset.root, CountingReader(dataset.dataset.root, 'val')))
class Plain(Reader):
    "A reader that wraps another reader; if samples are excluded, timmdata's reader of selected rows wraps this one."
    is_thread_safe = True
    def __init__(self, inner): self.inner = inner
    def __len__(self): return len(self.inner)
    def __getitem__(self, index): return self.inner[index]
    def filename(self, index, basename=False, absolute=False): return self.inner.filename(index, basename, absolute)


def of_own_reader_in_another(dataset):
    reader = Plain(CountingReader(dataset.dataset.root, 'val'))
    return noting(ImageDataset('', reader, exclude=[reader.filename(0)]))
def of_own_dataset(dataset): return noting(Coded(22))


@pytest.mark.parametrize('make', [of_own_sampler, of_restarting_workers, without_workers, of_own_reader, of_own_reader_in_another,
                                  of_own_dataset], ids=lambda make: make.__name__)
def test_nothing_is_begun_early_where_it_could_differ(dataset, make):
    "If the user's objects are not copied, their code sees every change at once."
    loader, pool = make(dataset)
    for _ in range(2): indexes(loader)
    assert not pool.of('submit', 2) and not pool.of('cancel')
    loader.close()


def test_a_users_sampler_is_iterated_once_per_epoch(dataset):
    class Counted(RandomSampler):
        num = 0
        def __iter__(self):
            type(self).num += 1
            return super().__iter__()
    with training(dataset, sampler=Counted(dataset), **FORK) as loader:
        collected(loader)   # the first one also for a trial
        before = Counted.num
        for epoch in range(1, 3):
            collected(loader)
            assert Counted.num == before + epoch


# ---- workers that make batches

@pytest.fixture
def loaded(monkeypatch, tmp_path):
    "Return the epochs of all samples loaded so far, in this process and in forked ones."
    load, path = SampleLoader.load, tmp_path/'loaded'
    path.touch()
    def noting_load(self, key, *args):
        with path.open('a') as file: file.write(f'{key.epoch} {key.index}\n')
        return load(self, key, *args)
    monkeypatch.setattr(SampleLoader, 'load', noting_load)
    return lambda epoch: Counter(line for line in path.read_text().splitlines() if line.startswith(f'{epoch} '))


@pytest.mark.parametrize('settings', [THREADS, FORK, {**FORK, 'threads_per_worker': 2}, {**FORK, 'prefetch_factor': 1}], ids=str)
@quick(1, 'prefetcher', [True, False])
def test_the_first_batch_of_a_later_epoch_is_made_before_it_begins(dataset, loaded, settings, prefetcher):
    "Each sample is loaded once, and the batches are those of a loader without workers."
    more = dict(use_prefetcher=prefetcher, device='cpu' if prefetcher else None)
    loader, expected = training(dataset, **settings, **more), training(dataset, **INLINE, **more)
    epochs = [collected(expected) for _ in range(3)]
    before = [loaded(epoch) for epoch in range(3)]
    def made(epoch): return (loaded(epoch) - before[epoch]).total()
    assert_equal(collected(loader), epochs[0])
    num = BATCH * min(5, settings.get('prefetch_factor', 2) * (1 if settings is THREADS else 2))
    wait_until(lambda: made(1) == num, 'nothing is made early')
    batches = iter(loader)
    assert_equal([copied(next(batches)), *map(copied, batches)], epochs[1])
    assert_equal(collected(loader), epochs[2])
    assert made(0) == made(1) == made(2) == 5 * BATCH
    assert loader.stats().discarded == 0
    loader.close()


def test_a_buffers_producer_goes_on_over_epochs_and_makes_nothing_twice(dataset, loaded):
    loader = training(dataset, **FORK).loader
    before = loaded(0)   # of a trial
    made = [host.keys for host in islice(batches_from(loader, numbering_of(loader), 2), 11)]   # from the middle of an epoch
    assert [(keys[0].epoch, len(keys)) for keys in made] == [(0, 4)] * 3 + [(1, 4)] * 5 + [(2, 4)] * 3
    assert (loaded(0) - before).total() == 12 and loaded(1).total() == 20 and set(loaded(1).values()) == {1}
    assert loader.stats().discarded == 0
    loader.close()


@quick(1, 'settings', [THREADS, FORK], ids=['threads', 'processes'])
def test_an_evaluation_between_two_epochs_has_its_own_workers(dataset, settings):
    def story(settings):
        train, evaluate = training(dataset, **settings), training(dataset, is_training=False, re_prob=0., **settings)
        with train, evaluate: return [batch for _ in range(3) for loader in (train, evaluate) for batch in collected(loader)]
    assert_equal(story(settings), story(INLINE))


def test_an_error_of_a_batch_made_early_is_raised_where_the_batch_is_due():
    "Sample 9 is in the second epoch of eight samples; if this epoch is not read, its error is not raised."
    def make(): return create_loader(Failing(12, 9), 8, 4, True, shuffle=False, samples_per_epoch=8, device='cpu', **FORK)
    with make() as loader:
        assert [targets.tolist() for _, targets in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(ZeroDivisionError, match='one sample is bad'): next(iter(loader))
    with make() as loader:
        list(loader)
        loader.set_epoch(0)
        assert [targets.tolist() for _, targets in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert loader.stats().discarded == 2


def test_a_batch_made_early_has_its_time_when_it_is_due(tmp_path):
    "The limit of seconds begins when the consumer waits."
    loader = create_loader(Gated(12, 9, tmp_path/'gate'), 8, 4, True, shuffle=False, samples_per_epoch=8, device='cpu', timeout=1.5, **FORK)
    list(loader)
    with pytest.raises(RuntimeError, match='no batch within timeout=1.5 s.*index 9'): list(loader)
    (tmp_path/'gate').touch()
    loader.close()


@pytest.mark.parametrize('when', ['made', 'at once'])
def test_a_worker_that_is_killed_between_two_epochs_loses_no_batch(dataset, when):
    with training(dataset, **FORK) as loader, training(dataset, **INLINE) as other:
        for _ in range(2):
            assert_equal(collected(loader), collected(other))
            if when == 'made': wait_until(lambda: not busy(), 'the workers do not rest')
            os.kill(children()[0].pid, signal.SIGKILL)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')   # that it died
            assert_equal(collected(loader), collected(other))


def busy() -> bool: return any(process.status() == psutil.STATUS_RUNNING for process in children())


def slots() -> int: return Path('/proc/self/maps').read_text().count('memfd:timmdata')


@pytest.mark.skipif(not hasattr(os, 'memfd_create'), reason='shared memory has no name')
@quick(1, 'settings', [FORK, THREADS], ids=['processes', 'threads'])
@pytest.mark.parametrize('how', ['closed', 'dropped', 'dropped in a loop'])
def test_nothing_is_left_of_what_was_begun(dataset, settings, how):
    before, loader = slots(), training(dataset, **settings)
    for k, _ in enumerate(loader):
        if k == 4 and how == 'dropped in a loop': break
    assert workers()
    if how == 'closed':
        loader.close()
        assert not workers() and slots() == before and loader.stats().discarded == NUM_AHEAD[settings['worker_type']]
    del loader, _
    wait_until(lambda: not workers() and slots() == before, 'workers or memory are left')


def test_a_copy_begins_nothing_and_takes_nothing_over(dataset):
    loader = training(dataset, use_prefetcher=False, device=None, **FORK)
    first, second = collected(loader), collected(training(dataset, use_prefetcher=False, device=None, **INLINE))
    assert_equal(first, second)
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        with other: assert len(collected(other)) == 5 and other.stats().discarded == 0
    loader.close()


@full
@quick(1, 'settings', [THREADS, PROCESSES], ids=['threads', 'processes'])
def test_a_forked_copy_of_the_program_cannot_use_what_was_begun(settings):
    code, out, errors = program(f"""
import os, sys
warnings.simplefilter('error')
loader = create_loader(Coded(16), 8, 4, device='cpu', **{settings})
list(loader)
pid = os.fork()
if pid == 0:
    try: next(iter(loader))
    except RuntimeError as error: print(error, flush=True)
    loader.close()
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
print('rest', [target for _, targets in loader for target in targets.tolist()] == list(range(16)), flush=True)
""", first='import warnings').end(50)
    assert code == 0 and errors == '', errors
    assert out.startswith('the workers belong to process ') and out.endswith('rest True\n')


# ---- the user's objects

def rows(loader) -> list: return [row for _, targets in loader for row in targets.tolist()]


class SharedEpochs(Epochs):
    "Read the epoch from shared memory, as is usual with persistent workers."
    def __init__(self, size=8): super().__init__(size); self.shared = multiprocessing.Value('q', 0)
    def set_epoch(self, epoch): self.shared.value = epoch
    def __getitem__(self, index): return Image.fromarray(PIXELS), [index, self.shared.value]


@pytest.mark.parametrize('make', [Epochs, SharedEpochs])
@pytest.mark.parametrize('settings', [THREADS, FORK, {**FORK, 'threads_per_worker': 2}], ids=['threads', 'processes', 'both'])
def test_objects_with_an_epoch_see_no_other(make, settings, loaded):
    "One worker would announce the next epoch to all workers while the others are still in this one."
    dataset = make()
    with create_loader(dataset, 8, 4, seed=1, device='cpu', **settings) as loader:
        for epoch in range(3):
            assert [row[1] for row in rows(loader)] == [epoch] * 8 and not loaded(epoch + 1)
            if make is Epochs: assert dataset.epoch == epoch


class Shade(Dataset):
    "Read a value from memory that processes share."
    def __init__(self, make): self.make, self.value = make, make()
    def __len__(self): return 8

    def __getitem__(self, index):
        value = self.value
        return Image.fromarray(PIXELS), int(value.value if hasattr(value, 'value') else value[0])

    def set(self, number):
        if hasattr(self.value, 'value'): self.value.value = number
        else: self.value[0] = number


SHARED = {
    'value': lambda: multiprocessing.Value('q', 0), 'raw': lambda: multiprocessing.RawValue('q', 0),
    'array': lambda: multiprocessing.Array('q', 100), 'tensor': lambda: torch.zeros(100).share_memory_(),
    'numpy': lambda: np.ctypeslib.as_array(multiprocessing.RawArray('q', 1000))[10:]}


@pytest.mark.parametrize('kind', SHARED)
def test_workers_see_at_the_start_of_an_epoch_what_they_share_with_the_user(kind):
    "As with the persistent workers of torch's DataLoader."
    for make in (lambda data: DataLoader(data, 4, num_workers=2, persistent_workers=True, multiprocessing_context='fork',
                                         collate_fn=lambda samples: (0, torch.tensor([target for _, target in samples]))),
                 lambda data: create_loader(data, 8, 4, device='cpu', **FORK)):
        loader, seen = make(dataset := Shade(SHARED[kind])), []
        for number in range(3):
            dataset.set(number)
            seen.append(rows(loader))
        assert seen == [[number] * 8 for number in range(3)]


level = [0]


class Global(Coded):
    def __getitem__(self, index): return super().__getitem__(index)[0], level[0]


def test_threads_see_what_no_object_refers_to():
    with create_loader(Global(8), 8, 4, device='cpu', **THREADS) as loader:
        for number in range(3):
            level[0] = number
            assert rows(loader) == [number] * 8


@quick(1, 'settings', [FORK, THREADS], ids=['processes', 'threads'])
@quick(1, 'prefetcher', [False, True])
def test_a_switch_of_mixing_between_two_epochs_counts_from_the_first_batch(dataset, settings, prefetcher):
    "Also a switch that was reset by then: workers read it when they mix a batch."
    def story(settings):
        more = dict(use_prefetcher=prefetcher, device='cpu' if prefetcher else None)
        seen = []
        with training(dataset, mixup=Mixup(0.8, num_classes=20), **settings, **more) as loader:
            for switches in ([], [False], [True], [False, True], [True, False], []):
                for enabled in switches:
                    loader.mixup_enabled = enabled
                    if len(switches) > 1: threading.Event().wait(0.2)   # time in which nothing should be made
                seen += collected(loader)
        return seen
    assert_equal(story(settings), story(INLINE))


# ---- figures

def test_discarded_batches_are_counted_in_the_whole_run(dataset):
    loader, _ = noting(dataset)
    for epoch in (0, 1, 7, 8, 3):
        loader.set_epoch(epoch)
        indexes(loader)
    stats = loader.stats()
    assert stats.discarded == 6 and stats.as_dict()['data/discarded'] == 6
    assert 'discarded batches: 6' in stats.describe() and 'discarded' not in LoaderStats().describe()
    loader.close()


# ---- everything at once

KINDS = {'inline': INLINE, 'threads': THREADS, 'processes': PROCESSES, 'far ahead': {**THREADS, 'prefetch_factor': 9},
         'threads in processes': {**PROCESSES, 'threads_per_worker': 2}, 'restarting': {**PROCESSES, 'persistent_workers': False}}


def kill_a_process():
    left = children()
    if left: os.kill(random.choice(left).pid, signal.SIGKILL)


@full
@pytest.mark.timeout(300)
@pytest.mark.parametrize('kind', KINDS)
def test_no_batch_of_a_random_story_differs(samples, kind):
    has_processes = 'processes' in KINDS[kind].values()
    story = Story(samples, KINDS[kind], 5, kill_a_process if has_processes else None).run(200)
    discarded = story.loaders[0].stats().discarded
    assert story.num_batches > 300 and (discarded > 10 if kind not in ('inline', 'restarting') else discarded == 0)
