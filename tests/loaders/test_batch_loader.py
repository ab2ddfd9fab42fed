"Equal batches from any workers, states, replays, loops that end early, and memory."
import io
import os
import pickle
import random
import shutil
import threading
import time
from itertools import islice
from unittest import mock

import numpy as np
import pytest
import torch
from grids import examples, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_parts import Coded, CountingReader, Reporting, Slow, nothing_is_left, plain_collate, wait_until
from pool_contract import build
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import ConcatDataset, DistributedSampler, Subset, WeightedRandomSampler
from torchvision.transforms import v2
from training_parts import (
    ALL,
    BATCH,
    BOTH,
    INLINE,
    NUM,
    PROCESSES,
    THREADS,
    FakeStream,
    assert_equal,
    collected,
    copied,
    few_images,
    large_tensors_begin_small,
    noise,
    training,
    workers,
)

from timmdata.core.memory_pool import MemoryPool
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.samplers.batch_schedule import ScheduledBatchSampler
from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.token_plan import TokenPlan
from timmdata.transforms.policy import Policy

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
small_batches_use_the_slots = pytest.fixture(autouse=True)(large_tensors_begin_small)


@pytest.fixture(scope='module')
def dataset(samples): return few_images(samples)


@pytest.fixture(scope='module')
def reference(dataset):
    "Return two epochs of training batches, made in this process."
    loader = training(dataset, **INLINE)
    return [collected(loader) for _ in range(2)]


@pytest.fixture(scope='module')
def host_reference(dataset):
    "Return the same batches as the prefetcher gets them from the workers: uint8."
    loader = training(dataset, **INLINE).loader
    return [collected(loader) for _ in range(2)]


def test_reference_draws_everything(dataset, reference, host_reference):
    "The tests below compare with batches that differ, so a lost or repeated one is noticed."
    images = [torch.cat([batch[0] for batch in epoch]) for epoch in reference]
    assert images[0].shape == (20, 3, 24, 24) and images[0].dtype == torch.float32 and not torch.equal(*images)
    assert host_reference[0][0][0].dtype == torch.uint8
    plain = training(dataset, re_prob=0., **INLINE)
    erased = [not torch.equal(a, b) for x, y in zip(reference[0], plain, strict=True) for a, b in zip(x[0], y[0], strict=True)]
    assert 4 < sum(erased) < 16
    choices = [choice for batch in range(5) for choice in training(dataset, **INLINE).replay(0, batch).appearance_params]
    assert {choice.hflip for choice in choices} == {True, False} and len({choice.color for choice in choices}) == 20


POOLS = [INLINE, THREADS, PROCESSES, dict(num_workers=1), dict(num_workers=3, worker_type='threads'), {**THREADS, 'prefetch_factor': 1},
         {**THREADS, 'prefetch_factor': 5}, dict(num_workers=1, worker_type='processes'),
         dict(num_workers=3, worker_type='processes', multiprocessing_context='fork'), {**PROCESSES, 'prefetch_factor': 1},
         {**PROCESSES, 'prefetch_factor': 5}, {**PROCESSES, 'threads_per_worker': 2}, {**THREADS, 'persistent_workers': False},
         {**PROCESSES, 'persistent_workers': False}, {**THREADS, 'use_multi_epochs_loader': True},
         {**PROCESSES, 'worker_seeding': 'part'}, {**PROCESSES, 'pin_memory': False},
         dict(num_workers=1, worker_type='processes', multiprocessing_context='spawn')]


@quick(3, 'settings', POOLS, ids=str)
def test_host_batches_and_images_are_bitwise_the_same(dataset, reference, host_reference, settings):
    loader = training(dataset, **settings)
    assert_equal(collected(loader), reference[0])
    assert_equal(collected(loader), reference[1])
    loader.set_epoch(0)
    assert_equal(collected(loader.loader), host_reference[0])


@quick(2, 'settings', [INLINE, THREADS, PROCESSES, {**PROCESSES, 'threads_per_worker': 2}], ids=str)
def test_without_the_prefetcher_the_batches_are_bitwise_the_same(dataset, reference, settings):
    loader = training(dataset, use_prefetcher=False, device=None, **settings)
    for epoch in reference: assert_equal(collected(loader), epoch)


def epoch_by_key(dataset, world: int, **settings) -> dict:
    "One epoch of all ranks: target and index decide which image is which."
    found = {}
    for rank in range(world):
        with mock.patch.multiple(distributed, get_world_size=lambda: world, get_rank=lambda rank=rank: rank):
            loader = training(dataset, distributed=True, **settings)
        order = loader.sampler
        for k, (images, _) in enumerate(loader):
            keys = list(order.keys(0))[k * BATCH:(k + 1) * BATCH]
            for image, key in zip(images, keys, strict=True):
                assert torch.equal(found.setdefault(key.index, image.clone()), image)
    return found


@quick(1, 'world, settings', [(2, THREADS), (3, INLINE), (3, PROCESSES)], ids=str)
def test_another_world_size_gives_the_same_samples_the_same_pixels(dataset, world, settings):
    alone, ranks = epoch_by_key(dataset, 1, drop_last=False, **INLINE), epoch_by_key(dataset, world, drop_last=False, **settings)
    assert set(alone) == set(ranks) == set(range(NUM))
    assert all(torch.equal(alone[index], ranks[index]) for index in alone)


def test_ranks_of_torchs_sampler_agree(dataset):
    "torch's DistributedSampler divides the samples; its ranks get the same pixels for a sample as a single process."
    alone, seen = {}, []
    for images, targets in training(dataset, sampler=range(NUM), batch_size=1, **INLINE): alone[len(alone)] = images.clone(), targets
    for rank in range(2):
        sampler = DistributedSampler(dataset, 2, rank, shuffle=True, seed=1)
        for (images, targets), index in zip(training(dataset, sampler=sampler, batch_size=1, **THREADS), list(sampler), strict=True):
            seen.append(index)
            assert torch.equal(images, alone[index][0]) and torch.equal(targets, alone[index][1])
    assert sorted(seen) == list(range(NUM))


@ALL
def test_dataset_is_not_mutated_and_loaders_do_not_see_each_other(samples, settings):
    dataset = ImageDataset(samples, split='val')
    before, parts = repr(sorted(vars(dataset).items(), key=str)), [id(part) for part in vars(dataset).values()]
    settings = dict(sampler=range(0, 80, 4), batch_size=5, **settings)
    loaders = [create_loader(dataset, 16, device='cpu', **settings), training(dataset, **settings)]
    alone = [collected(loader) for loader in loaders]
    loaders[1].set_epoch(0)
    together = list(zip(*[map(copied, loader) for loader in loaders], strict=True))
    for k in range(2): assert_equal(alone[k], [pair[k] for pair in together])
    assert repr(sorted(vars(dataset).items(), key=str)) == before and [id(part) for part in vars(dataset).values()] == parts


def global_numbers():
    "The user's generators, without moving them."
    return random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2], torch.get_rng_state().tolist()


@ALL
def test_users_random_numbers_and_threads_of_torch_are_left_alone(dataset, settings):
    torch.set_num_threads(2)
    before = global_numbers()
    iterator = iter(training(dataset, **settings))
    for _ in range(3): next(iterator)
    assert torch.get_num_threads() == 2 and global_numbers() == before
    next(iter(training(dataset, **settings).loader))
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))   # of the user's, started afterwards
    thread.start()
    thread.join()
    assert later == [2] and torch.get_num_threads() == 2
    del iterator
    for kind in (INLINE, PROCESSES): noise(**kind)
    assert torch.get_num_threads() == 2 and global_numbers() == before


def saved(state: dict) -> dict:
    "Through a checkpoint file."
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@quick(2, 'settings', [INLINE, THREADS, PROCESSES, {**PROCESSES, 'use_prefetcher': False, 'device': None},
                                      {**THREADS, 'prefetch_factor': 5}], ids=str)
@quick(2, 'done', [0, 2, 5])
def test_resumed_mid_epoch_is_exact(dataset, reference, settings, done):
    first = training(dataset, **THREADS)
    iterator = iter(first)
    for _ in range(done): next(iterator)
    loader = training(dataset, **settings)
    loader.load_state_dict(saved(first.state_dict()))
    assert_equal(collected(loader), reference[0][done:])
    assert_equal(collected(loader), reference[1])


@ALL
def test_state_is_the_consumers_position(dataset, settings):
    "Batches made ahead do not count, with or without the prefetcher."
    loaders = [training(dataset, prefetch_factor=5, use_prefetcher=k > 0, **settings) for k in range(3)]
    loaders[2]._stream = FakeStream()   # as on a GPU: a thread takes batches ahead of the consumer
    for loader in loaders:
        def where(loader=loader): return loader.state_dict()['epoch'], loader.state_dict()['position']
        assert where() == (0, 0)
        for k, _ in enumerate(loader): assert where() == (0, (k + 1) * BATCH)
        assert where() == (1, 0)
        iterator = iter(loader)
        assert where() == (1, 0)
        for _ in range(3): next(iterator)
        assert where() == (1, 3 * BATCH)
        del iterator
        assert where() == (1, 3 * BATCH)   # left early: a state says where
        next(iter(loader))
        assert where() == (2, BATCH)   # the next loop is the next epoch
        loader.set_epoch(7)
        assert where() == (7, 0)


class Gray(Policy):
    "A user's policy without its own `repr`."
    def __init__(self, level): self.level = level
    def draw(self, rng=None): return ()


def test_state_of_other_files_is_refused(samples, tmp_path):
    "The same number of samples, but one file is different."
    for name in ('a', 'b'):
        shutil.copytree(sorted((samples/'val').iterdir())[0], tmp_path/name/'class')
    file = sorted((tmp_path/'b'/'class').iterdir())[0]
    file.rename(file.with_stem('another'))
    first, second = (create_loader(ImageDataset(tmp_path/name, split=None), 8, 2, seed=1, device='cpu', **INLINE) for name in 'ab')
    with pytest.raises(ValueError, match='dataset was [0-9a-f]{16}, is [0-9a-f]{16}'): second.load_state_dict(first.state_dict())


@pytest.mark.parametrize('first, other', [
    (dict(transform=v2.Compose([v2.Resize(24), v2.PILToTensor()])), dict(transform=v2.Compose([v2.Resize(20), v2.PILToTensor()]))),
    (dict(collate_fn=plain_collate), dict(collate_fn=lambda samples: plain_collate(samples[::-1]))),
    (dict(sampler=WeightedRandomSampler([1.] * NUM, NUM)), dict(sampler=WeightedRandomSampler([2.] * NUM, NUM))),
    (dict(auto_augment=Gray(3)), dict(auto_augment=Gray(4)))], ids=lambda given: next(iter(given)))
def test_state_of_another_function_is_refused_by_name(dataset, first, other):
    state, name = training(dataset, **first, **INLINE).state_dict(), next(iter(first))
    training(dataset, **pickle.loads(pickle.dumps(first)), **INLINE).load_state_dict(state)   # the same, made anew
    with pytest.raises(ValueError, match=f'the state belongs to other settings: {name} was .*, is '):
        training(dataset, **other, **INLINE).load_state_dict(state)


@pytest.mark.parametrize('change', [
    lambda images: Subset(images, range(1, 9)), lambda images: ImageDataset(images.root, input_img_mode='L'),
    lambda images: ImageDataset(images.root, target_transform=lambda target: target + 1),
    lambda images: ConcatDataset([Subset(images, range(4)), Subset(images, range(5, 9))])])
def test_state_of_other_samples_is_refused(samples, change):
    "As many samples of the same dataset."
    images = ImageDataset(samples)
    other = change(images)
    parts = [Subset(images, range(8)), other if len(other) == 8 else Subset(other, range(8))]
    state = training(parts[0], **INLINE).state_dict()
    training(Subset(ImageDataset(samples), range(8)), **INLINE).load_state_dict(state)
    with pytest.raises(ValueError, match='dataset was [0-9a-f]{16}, is [0-9a-f]{16}'): training(parts[1], **INLINE).load_state_dict(state)


def test_state_follows_the_protocols_of_checkpoints(dataset, tmp_path):
    "torch.distributed.checkpoint accepts the loader itself; torchdata and Lightning use the same two methods."
    loader, again = (training(dataset, **INLINE) for _ in range(2))
    assert isinstance(loader, Stateful)
    batches = iter(loader)
    for _ in range(2): next(batches)
    checkpoint.save({'loader': loader}, checkpoint_id=tmp_path/'at', no_dist=True)
    checkpoint.load({'loader': again}, checkpoint_id=tmp_path/'at', no_dist=True)
    assert_equal(collected(again), collected(batches))


@ALL
def test_resuming_reads_nothing_to_skip(samples, settings):
    reader = CountingReader(samples, 'train')
    settings = dict(shuffle=False, seed=1, input_size=8, is_training=False, num_workers=settings['num_workers'])
    loader = training(ImageDataset(samples, reader), worker_type='threads', **settings)
    loader.load_state_dict({**loader.state_dict(), 'position': 200})
    targets = next(iter(loader))[1]
    wait_until(lambda: len(reader.seen) >= BATCH, 'nothing is read')
    assert min(reader.seen) == 200 and len(reader.seen) <= 4 * BATCH and len(targets) == BATCH


def of_a_rank(kind, num, drop_last, world, rank) -> BatchLoader:
    "A loader with a given number of samples, cut into batches in each possible way."
    order = EpochSampler(range(num), seed=5, num_replicas=world, rank=rank)
    def lengths(seed, epoch, indexes, views): return indexes * 7 % 16 + 1
    def of_sizes(**how): return BatchSettings(4, drop_last, ScheduledBatchSampler(order, [4, 2, 3], seed=3, drop_last=drop_last, **how))
    batches = {
        'plain': lambda: BatchSettings(4, drop_last), 'sizes': of_sizes, 'counted': lambda: of_sizes(num_batches=6),
        'progressive': lambda: of_sizes(choice_schedule='progressive', schedule_epochs=3),
        'native': lambda: TokenPlan(lengths, 'native', (8, 16), (4, 2), drop_last=drop_last),
        'packed': lambda: TokenPlan(lengths, 'packed', (16,), (2,), drop_last=drop_last)}[kind]()
    return BatchLoader(build(Coded(num)), order, batches)


@pytest.mark.examples
@settings(max_examples=examples(300), deadline=None)
@given(kind=st.sampled_from(['plain', 'sizes', 'counted', 'progressive', 'native', 'packed']), num=st.integers(16, 70),
       drop_last=st.booleans(), before=st.integers(1, 4), after=st.integers(1, 4), steps=st.integers(0, 40))
def test_any_other_number_of_ranks_takes_a_state_and_misses_no_sample(kind, num, drop_last, before, after, steps):
    "After any number of batches, also the last one: the old and the resumed ranks use each sample once, then comes epoch 1."
    def ranks(world): return [of_a_rank(kind, num, drop_last, world, rank) for rank in range(world)]
    def cut(loader, start=0): return list(loader.batches.cut(loader.sampler, 0, start))
    first, position, used = ranks(before), 0, []
    epochs = [cut(loader) for loader in first]
    for loader, batches in zip(first, epochs):   # the count is what a full epoch has
        assert loader.num_valid == sum(key.valid for keys in batches for key in keys) and len(loader) == len(batches)
    for together in islice(zip(*epochs, strict=True), steps):
        position = first[0].batches.advance(first[0].sampler, 0, position, len(together[0]))
        used += [key for keys in together for key in keys]
    states = [loader.state_dict((0, position)) for loader in first]
    assert all(state == states[0] for state in states)
    others = ranks(after)
    for loader in others:
        loader.load_state_dict(states[0])
        used += [key for keys in cut(loader, loader.sampler.start) for key in keys]
        assert loader.sampler.begin()[0] == 0 and (loader.sampler.epoch, loader.sampler.start) == (1, 0)
    if kind in ('counted', 'progressive'): return   # so many batches, whatever the samples
    valid = [key.index for key in used if key.valid]
    assert len(valid) == len(set(valid)) and (drop_last or len(valid) == num)


def test_without_a_seed_that_of_the_state_is_adopted(dataset, reference):
    loader = training(dataset, seed=None, **THREADS)
    first = collected(loader)
    loader.load_state_dict(training(dataset, **INLINE).state_dict())
    assert_equal(collected(loader), reference[0])
    assert not torch.equal(first[0][0], reference[0][0][0])
    plain = training(dataset, seed=None, use_prefetcher=False, device=None, **PROCESSES)
    next(iter(plain))   # workers with the old seed
    plain.load_state_dict(training(dataset, **INLINE).state_dict())
    assert_equal(collected(plain), reference[0])


@quick(1, 'settings', [THREADS, {**PROCESSES, 'use_prefetcher': False, 'device': None}], ids=['threads', 'processes'])
def test_replay_is_what_training_saw(dataset, reference, settings):
    loader = training(dataset, **settings)
    collected(loader)
    for epoch, batch in ((0, 0), (0, 4), (1, 2)):
        replayed = loader.replay(epoch, batch)
        assert_equal([replayed.batch], [reference[epoch][batch]])
        assert len(replayed.keys) == len(replayed.sample_params) == len(replayed.appearance_params) == BATCH
        for key, host, image in zip(replayed.keys, replayed.sample_params, reference[epoch][batch][0], strict=True):
            single = loader.replay(epoch, index=key.index)
            assert torch.equal(single.batch[0][0], image) and single.keys == [key] and single.sample_params == [host]
    assert_equal(collected(loader), reference[1])   # a replay moves nothing
    with pytest.raises(IndexError, match='batch=6 is out of range'): loader.replay(0, 6)
    with pytest.raises(IndexError): loader.replay(0, index=NUM)
    with pytest.raises(TypeError, match='one of batch= and index='): loader.replay(0)


@BOTH
@pytest.mark.parametrize('dataset', [Coded(64), Slow(16, 15, 0.5)], ids=['before a batch begins', 'while it is made'])
def test_loader_that_is_closed_in_a_loop_is_an_error_there_and_starts_again(settings, dataset):
    "Finished batches may still be delivered; then the loop raises an error, and neither hangs nor ends early."
    loader, seen = create_loader(dataset, 8, 4, device='cpu', **settings), []
    with pytest.raises(RuntimeError, match='the workers are closed'):
        for k, (_, targets) in enumerate(loader):
            seen += targets.tolist()
            if k == 2:
                time.sleep(0.1)   # what is made ahead is ready
                loader.loader.close()
    assert seen == list(range(len(seen))) and len(seen) < len(dataset)
    assert len(list(loader)) == len(dataset) // 4


class Consumer(Exception): "Of the training step."


@ALL
@quick(1, 'prefetcher', [True, False])
def test_exception_in_the_consumer_is_its_own(dataset, reference, settings, prefetcher):
    loader = training(dataset, use_prefetcher=prefetcher, device='cpu' if prefetcher else None, **settings)
    with pytest.raises(Consumer):
        for _ in loader: raise Consumer
    assert_equal(collected(loader), reference[1])   # and the next epoch is as it should be
    try:
        for _ in loader: raise Consumer
    except Consumer as error: kept = error   # its traceback holds frames, not the loader
    del loader, _
    wait_until(lambda: not workers(), 'workers are left')
    assert kept


@ALL
@quick(1, 'prefetcher', [True, False])
def test_kept_batches_stay_intact(dataset, reference, settings, prefetcher):
    loader = training(dataset, use_prefetcher=prefetcher, device='cpu' if prefetcher else None, prefetch_factor=1, **settings)
    kept = [list(loader), list(loader)]
    loader.set_epoch(0)
    views, arrays, rows = [], [], []
    for images, _ in loader:
        views.append(images[1:3, :, ::2])
        arrays.append(images.numpy()[::-1])
        rows += [*images]
    del images
    for _ in range(2): list(loader)
    for epoch in range(2): assert_equal(kept[epoch], reference[epoch])
    for k, (images, _) in enumerate(reference[0]):
        assert torch.equal(views[k], images[1:3, :, ::2]) and (arrays[k] == images.numpy()[::-1]).all()
        assert torch.equal(torch.stack(rows[BATCH * k:BATCH * (k + 1)]), images)


@BOTH
def test_kept_host_batches_stay_intact(dataset, host_reference, settings):
    "Their memory is the rows that the workers fill."
    loader = training(dataset, prefetch_factor=1, **settings).loader
    kept = [list(loader), list(loader)]
    views, arrays = [], []
    for images, _ in loader: views.append(images[2:]), arrays.append(images.numpy())
    snapshot = [view.clone() for view in views], [array.copy() for array in arrays]
    del images
    for _ in range(2): list(loader)
    for epoch in range(2): assert_equal(kept[epoch], host_reference[epoch])
    assert all(torch.equal(a, b) for a, b in zip(views, snapshot[0], strict=True))
    assert all((a == b).all() for a, b in zip(arrays, snapshot[1], strict=True))


@pytest.mark.parametrize('settings', [INLINE, THREADS], ids=['inline', 'threads'])
def test_memory_of_dropped_batches_is_used_again(dataset, settings, monkeypatch):
    made, init = [], MemoryPool.__init__
    monkeypatch.setattr(MemoryPool, '__init__', lambda self, make, *args, **named: init(
        self, lambda: made.append(make()) or made[-1], *args, **named))
    loader = training(dataset, **settings)
    for _ in range(4):
        for _ in loader: pass
    assert 2 <= len(made) <= 10   # 20 batches of rows, and 20 of results


def test_number_of_workers_may_be_chosen(dataset, reference):
    loader = training(dataset, num_workers='auto')
    assert isinstance(loader.loader, BatchLoader) and 'auto' in repr(loader)
    assert_equal(collected(loader), reference[0])
    assert isinstance(loader.loader.num_workers, int) and loader.loader.num_workers >= 1
    assert f'{loader.loader.num_workers} ' in repr(loader)
    loader = create_loader(Reporting(32), 8, 4, num_workers='auto', device='cpu')
    pids = {int(target) for _, targets in loader for target in targets}
    assert os.getpid() not in pids and f'{loader.loader.num_workers} processes' in repr(loader)
