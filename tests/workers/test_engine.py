"What the engine promises: exact repetition whoever works, states, replays, failures that end well, nothing left behind."
import gc
import io
import os
import pickle
import random
import shutil
import signal
import threading
import time
import traceback
import warnings
from contextlib import nullcontext

import numpy as np
import psutil
import pytest
import torch
from loader_parts import (
    Coded,
    CountingReader,
    Deadly,
    DeadlyReader,
    Failing,
    Noise,
    Reporting,
    Slow,
    children,
    is_alive,
    nothing_is_left,
    plain_collate,
    program,
    wait_until,
)
from torch.distributed import checkpoint
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import ConcatDataset, DistributedSampler, Subset, WeightedRandomSampler
from torchvision.transforms import v2

from timmdata.core.faults import ImageReadError
from timmdata.core.memory_pool import MemoryPool
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.batch_loader import BatchLoader
from timmdata.pipeline.fetch import HostBatch
from timmdata.samplers.epoch import EpochSampler
from timmdata.transforms.policy import Policy
from timmdata.workers import processes, shared_memory
from timmdata.workers.autotune import choose_workers

pytestmark = pytest.mark.timeout(60)
INLINE, THREADS, PROCESSES = dict(num_workers=0), dict(num_workers=2, workers='threads'), dict(num_workers=2, workers='processes')
BOTH = pytest.mark.parametrize('settings', [THREADS, PROCESSES], ids=['threads', 'processes'])
ALL = pytest.mark.parametrize('settings', [INLINE, THREADS, PROCESSES], ids=['inline', 'threads', 'processes'])
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(autouse=True)
def small_batches_use_the_slots(monkeypatch):
    "Batches below 64 kB are pickled as they are; those of the tests are small, and shall go through shared memory."
    monkeypatch.setattr(shared_memory, 'LARGE', 256)


NUM, BATCH = 22, 4   # samples and batch size of `training`: five full batches, and two samples that are dropped


@pytest.fixture(scope='module')
def dataset(samples):
    "A few photographs; a Subset, so that indexes are translated."
    return Subset(ImageDataset(samples), range(3, 3 + 14 * NUM, 14))


def training(dataset, **settings):
    "A loader that draws crops, flips, colours, blurs and erased noise."
    return create_loader(dataset, **{**dict(input_size=24, batch_size=BATCH, is_training=True, seed=3, re_prob=0.5,
        re_mode='pixel', re_count=2, gaussian_blur_prob=0.3, grayscale_prob=0.2, device='cpu'), **settings})


class Grey(Policy):
    "A policy of a user's, without a text of its own."
    def __init__(self, level): self.level = level
    def draw(self, rng=None): return ()


def copied(batch): return [part.clone() for part in batch]


def collected(loader) -> list: return [copied(batch) for batch in loader]


def assert_equal(a: list, b: list):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert len(x) == len(y) and all(torch.equal(p, q) for p, q in zip(x, y, strict=True))


@pytest.fixture(scope='module')
def reference(dataset):
    "Two epochs of training batches, made in this process."
    loader = training(dataset, **INLINE)
    return [collected(loader) for _ in range(2)]


@pytest.fixture(scope='module')
def host_reference(dataset):
    "The same, as the workers give them to the prefetcher: uint8."
    loader = training(dataset, **INLINE).loader
    return [collected(loader) for _ in range(2)]


# ---- the same batches, whoever computes them

def test_reference_draws_everything(dataset, reference, host_reference):
    "The tests below compare with batches in which there is something to lose."
    images = [torch.cat([batch[0] for batch in epoch]) for epoch in reference]
    assert images[0].shape == (20, 3, 24, 24) and images[0].dtype == torch.float32 and not torch.equal(*images)
    assert host_reference[0][0][0].dtype == torch.uint8
    plain = training(dataset, re_prob=0., **INLINE)
    erased = [not torch.equal(a, b) for x, y in zip(reference[0], plain, strict=True) for a, b in zip(x[0], y[0], strict=True)]
    assert 4 < sum(erased) < 16
    choices = [choice for batch in range(5) for choice in training(dataset, **INLINE).replay(0, batch).appearance_params]
    assert {choice.hflip for choice in choices} == {True, False} and len({choice.color for choice in choices}) == 20


CREWS = [INLINE, dict(num_workers=1), THREADS, dict(num_workers=3, workers='threads'), {**THREADS, 'prefetch_factor': 1},
         {**THREADS, 'prefetch_factor': 5}, dict(num_workers=1, workers='processes'), PROCESSES,
         dict(num_workers=3, workers='processes', multiprocessing_context='fork'), {**PROCESSES, 'prefetch_factor': 1},
         {**PROCESSES, 'prefetch_factor': 5}, {**PROCESSES, 'threads_per_worker': 2}]


@pytest.mark.parametrize('settings', CREWS, ids=str)
def test_both_halves_are_bitwise_the_same(dataset, reference, host_reference, settings):
    loader = training(dataset, **settings)
    assert_equal(collected(loader), reference[0])
    assert_equal(collected(loader), reference[1])
    loader.set_epoch(0)
    assert_equal(collected(loader.loader), host_reference[0])


@pytest.mark.parametrize('settings', [INLINE, THREADS, PROCESSES, {**PROCESSES, 'threads_per_worker': 2}], ids=str)
def test_without_the_prefetcher_the_batches_are_bitwise_the_same(dataset, reference, settings):
    loader = training(dataset, use_prefetcher=False, device=None, **settings)
    for epoch in reference: assert_equal(collected(loader), epoch)


def epoch_by_key(dataset, world: int, **settings) -> dict:
    "One epoch of all ranks: target and index decide which image is which."
    found = {}
    for rank in range(world):
        loader = training(dataset, **settings)
        order = EpochSampler(dataset, seed=3, num_replicas=world, rank=rank)
        loader.loader.sampler = order
        for k, (images, _) in enumerate(loader):
            keys = list(order.keys(0))[k * BATCH:(k + 1) * BATCH]
            for image, key in zip(images, keys, strict=True):
                assert torch.equal(found.setdefault(key.index, image.clone()), image)
    return found


@pytest.mark.parametrize('world, settings', [(2, THREADS), (3, INLINE), (3, PROCESSES)], ids=str)
def test_another_world_size_gives_the_same_samples_the_same_pixels(dataset, world, settings):
    alone, ranks = epoch_by_key(dataset, 1, drop_last=False, **INLINE), epoch_by_key(dataset, world, drop_last=False, **settings)
    assert set(alone) == set(ranks) == set(range(NUM))
    assert all(torch.equal(alone[index], ranks[index]) for index in alone)


def test_ranks_of_torchs_sampler_agree(dataset):
    "torch's DistributedSampler deals the samples; its ranks get the same pixels for a sample as one process."
    alone, seen = {}, []
    for images, targets in training(dataset, sampler=range(NUM), batch_size=1, **INLINE): alone[len(alone)] = images.clone(), targets
    for rank in range(2):
        sampler = DistributedSampler(dataset, 2, rank, shuffle=True, seed=1)
        for (images, targets), index in zip(training(dataset, sampler=sampler, batch_size=1, **THREADS), list(sampler), strict=True):
            seen.append(index)
            assert torch.equal(images, alone[index][0]) and torch.equal(targets, alone[index][1])
    assert sorted(seen) == list(range(NUM))


# ---- code of the user's

def noise(**settings):
    return torch.cat([images.clone() for images, _ in create_loader(Coded(16), 4, 4, transform=Noise(), seed=1,
                                                                    use_prefetcher=False, **settings)])


def test_user_transform_that_draws_globally_repeats_in_processes():
    expected = noise(**INLINE)
    assert len(expected.flatten(1).unique(dim=0)) == 16
    for num_workers in (1, 2): assert torch.equal(noise(num_workers=num_workers, workers='processes'), expected)
    assert torch.equal(noise(num_workers=2), expected)   # 'auto' knows that threads would not do


@pytest.mark.parametrize('settings', [THREADS, {**PROCESSES, 'threads_per_worker': 2}], ids=['threads', 'threads_per_worker'])
def test_user_transform_that_draws_globally_is_refused_in_threads(settings):
    with pytest.raises(ValueError, match="Python and NumPy and torch, which threads share: use workers='processes'"):
        noise(**settings)


def test_auto_takes_threads_for_own_code_only(samples):
    own = ImageDataset(samples)
    def kind(dataset, num=2, **settings):
        return choose_workers('auto', create_loader(dataset, 8, 4, use_prefetcher=False, **settings).builder, num)
    assert kind(own) == kind(Subset(own, [1])) == 'threads' and kind(own, 9) == 'processes'
    assert kind(Coded(8)) == kind(own, transform=Noise()) == kind(own, collate_fn=plain_collate) == 'processes'
    own.target_transform = int
    assert kind(own) == 'processes'


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


# ---- states

def saved(state: dict) -> dict:
    "Through a checkpoint file."
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize('settings', [INLINE, THREADS, PROCESSES, {**PROCESSES, 'use_prefetcher': False, 'device': None},
                                      {**THREADS, 'prefetch_factor': 5}], ids=str)
@pytest.mark.parametrize('done', [0, 2, 5])
def test_resumed_mid_epoch_is_exact(dataset, reference, settings, done):
    first = training(dataset, **THREADS)
    iterator = iter(first)
    for _ in range(done): next(iterator)
    loader = training(dataset, **settings)
    loader.load_state_dict(saved(first.state_dict()))
    assert_equal(collected(loader), reference[0][done:])
    assert_equal(collected(loader), reference[1])


class FakeStream:
    "A side stream on the CPU, whose work is done at once."
    work = staticmethod(nullcontext)
    def ready(self): return None
    def is_done(self, event): return True
    def wait(self, event): pass
    def hand_over(self, tensors, event): time.sleep(0.01)   # the thread goes ahead


@ALL
def test_state_is_the_consumers_position(dataset, settings):
    "Batches that are made ahead do not count, with and without the prefetcher."
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


def test_state_is_small_and_plain(dataset):
    state = training(dataset, **INLINE).state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    assert len(file.getvalue()) < 8000
    assert {type(value) for value in state.values()} == {int, dict}
    assert {type(value) for value in state['settings'].values()} == {str}


@pytest.mark.parametrize('name, other', [
    ('batch_size', dict(batch_size=5)), ('drop_last', dict(drop_last=False)), ('shuffle', dict(shuffle=False)),
    ('seed', dict(seed=4)), ('size', dict(input_size=16)), ('hflip', dict(hflip=0.1)), ('re_prob', dict(re_prob=0.1)),
    ('backend', dict(backend='pillow')), ('color_jitter_mode', dict(color_jitter_mode='exact')),
    ('transform', dict(transform=Noise())), ('samples', dict(dataset=Coded(NUM)))])
def test_state_of_other_settings_is_refused_by_name(dataset, name, other):
    state = training(dataset, **INLINE).state_dict()
    loader = training(**{'dataset': dataset, **INLINE, **other})
    if name == 'samples': name = 'dataset'
    with pytest.raises(ValueError, match=f'the state belongs to other settings: .*{name} was .*, is '): loader.load_state_dict(state)


def test_state_of_other_files_is_refused(samples, tmp_path):
    "The same number of samples, one of them another file."
    for name in ('a', 'b'):
        shutil.copytree(sorted((samples/'val').iterdir())[0], tmp_path/name/'class')
    file = sorted((tmp_path/'b'/'class').iterdir())[0]
    file.rename(file.with_stem('another'))
    first, second = (create_loader(ImageDataset(tmp_path/name, split=None), 8, 2, seed=1, device='cpu', **INLINE) for name in 'ab')
    with pytest.raises(ValueError, match='dataset was [0-9a-f]{16}, is [0-9a-f]{16}'): second.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match='no state of a loader: position, settings is missing'):
        first.load_state_dict({'epoch': 1, 'seed': 1})


@pytest.mark.parametrize('first, other', [
    (dict(transform=v2.Compose([v2.Resize(24), v2.PILToTensor()])), dict(transform=v2.Compose([v2.Resize(20), v2.PILToTensor()]))),
    (dict(collate_fn=plain_collate), dict(collate_fn=lambda samples: plain_collate(samples[::-1]))),
    (dict(sampler=WeightedRandomSampler([1.] * NUM, NUM)), dict(sampler=WeightedRandomSampler([2.] * NUM, NUM))),
    (dict(auto_augment=Grey(3)), dict(auto_augment=Grey(4)))], ids=lambda given: next(iter(given)))
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
    "As many, of the same data set."
    images = ImageDataset(samples)
    other = change(images)
    parts = [Subset(images, range(8)), other if len(other) == 8 else Subset(other, range(8))]
    state = training(parts[0], **INLINE).state_dict()
    training(Subset(ImageDataset(samples), range(8)), **INLINE).load_state_dict(state)
    with pytest.raises(ValueError, match='dataset was [0-9a-f]{16}, is [0-9a-f]{16}'): training(parts[1], **INLINE).load_state_dict(state)


def test_state_follows_the_protocols_of_checkpoints(dataset, tmp_path):
    "torch.distributed.checkpoint takes the loader itself; torchdata's and Lightning's protocols are the same two methods."
    loader, again = (training(dataset, **INLINE) for _ in range(2))
    assert isinstance(loader, Stateful)
    batches = iter(loader)
    for _ in range(2): next(batches)
    checkpoint.save({'loader': loader}, checkpoint_id=tmp_path/'at', no_dist=True)
    checkpoint.load({'loader': again}, checkpoint_id=tmp_path/'at', no_dist=True)
    assert_equal(collected(again), collected(batches))


def dies_before_it_is_ready(folder, times):
    "A worker's start, for `worker_seeding`: killed, so many times in all."
    def start(number):
        file = folder/f'{len(list(folder.iterdir()))}-{os.getpid()}'
        if len(list(folder.iterdir())) < times:
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 0
    return start


@pytest.mark.parametrize('times', [2, 100])
def test_worker_killed_before_it_is_ready(tmp_path, times):
    settings = dict(num_workers=1, workers='processes', worker_seeding=dies_before_it_is_ready(tmp_path, times), device='cpu')
    loader = create_loader(Coded(16), 8, 4, **settings)
    if times > 4:
        with pytest.raises(RuntimeError, match=r'died \(exit code -9.*before it was ready$'), warnings.catch_warnings():
            warnings.simplefilter('ignore')
            list(loader)
    else:
        with pytest.warns(RuntimeWarning, match='before it was ready; another takes its place'):
            assert sum(len(targets) for _, targets in loader) == 16


@BOTH
def test_a_forked_copy_of_the_program_does_not_end_the_loader(settings):
    "(Python's multiprocessing ends all daemons as the copy ends; they are replaced.)"
    code, out, errors = program(f"""
import os, sys
loader = create_loader(Coded(64), 8, 4, device='cpu', **{settings})
batches = iter(loader)
next(batches)
pid = os.fork()
if pid == 0: sys.exit()   # an ordinary end, with everything that Python does then
assert os.waitpid(pid, 0)[1] == 0
print(sum(len(targets) for _, targets in batches))
""").end(50)
    assert code == 0 and out.strip() == '60', errors


@ALL
def test_resuming_reads_nothing_to_skip(samples, settings):
    reader = CountingReader(samples, 'train')
    dataset = ImageDataset(samples, reader)
    settings = dict(shuffle=False, seed=1, input_size=8, is_training=False, num_workers=settings['num_workers'])
    loader = training(dataset, workers='threads', **settings)
    state = {**loader.state_dict(), 'position': 200}
    loader.load_state_dict(state)
    targets = next(iter(loader))[1]
    wait_until(lambda: len(reader.seen) >= BATCH, 'nothing is read')
    assert min(reader.seen) == 200 and len(reader.seen) <= 4 * BATCH and len(targets) == BATCH


@pytest.mark.parametrize('before, after', [(1, 2), (2, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize('steps', [1, 2])
def test_another_number_of_ranks_goes_on_without_loss(before, after, steps):
    "Two batches of four on each rank, then the rest of the epoch on another number of ranks: each sample once."
    num, seen = 48, []
    def rank(world, k):
        loader = create_loader(Coded(num), 8, 4, True, seed=5, use_prefetcher=False, num_workers=0)
        loader.sampler = EpochSampler(loader.dataset, seed=5, num_replicas=world, rank=k)
        return loader
    states = []
    for k in range(before):
        loader = rank(before, k)
        iterator = iter(loader)
        for _ in range(steps): seen += next(iterator)[1].tolist()
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)   # any rank's state will do
    for k in range(after):
        loader = rank(after, k)
        loader.load_state_dict(states[0])
        loader.drop_last = False
        seen += [target for _, targets in loader for target in targets.tolist()]
    repeated = -(num - before * steps * 4) % after   # so that the ranks have equally many
    assert len(seen) == num + repeated and set(seen) == set(range(num))


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


# ---- replays

@pytest.mark.parametrize('settings', [THREADS, {**PROCESSES, 'use_prefetcher': False, 'device': None}], ids=['threads', 'processes'])
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
    with pytest.raises(IndexError, match='no batch 6 in epoch 0'): loader.replay(0, 6)
    with pytest.raises(IndexError): loader.replay(0, index=NUM)
    with pytest.raises(TypeError, match='one of them'): loader.replay(0)


# ---- failures

def notes(error: Exception) -> str:
    "What was added to an error; Python 3.10 has no notes."
    if not hasattr(error, 'add_note'): pytest.skip('errors have notes from Python 3.11 on')
    return '\n'.join(error.__notes__)


@BOTH
def test_error_in_a_sample_names_it_and_keeps_the_traceback(settings):
    with pytest.raises(ZeroDivisionError) as raised: list(create_loader(Failing(12, 9), 8, 4, device='cpu', **settings))
    assert notes(raised.value) == 'while loading index 9 of the dataset (Failing), epoch 0'
    text = ''.join(traceback.format_exception(raised.value))
    assert "raise ZeroDivisionError('one sample is bad')" in text and 'loader_parts.py' in text


@BOTH
def test_unreadable_file_names_index_and_file(samples, settings):
    with pytest.raises(ImageReadError, match=r'cannot read (empty|text|truncated)\.jpg \(index \d+\)') as raised:
        list(create_loader(ImageDataset(samples/'oddities'), 8, 2, device='cpu', **settings))
    assert 'of the dataset (' in notes(raised.value)


@BOTH
def test_first_error_in_order_is_raised(settings):
    "Sample 9 fails at once, sample 8 of the same batch after a while; batches before them arrive."
    seen = []
    with pytest.raises(ZeroDivisionError) as raised:
        for _, targets in create_loader(Failing(12, 9), 8, 2, device='cpu', prefetch_factor=5, **settings): seen += targets.tolist()
    assert seen == list(range(8)) and 'index 9' in notes(raised.value)


@pytest.mark.parametrize('threads_per_worker', [1, 2])
def test_killed_worker_is_replaced_and_nothing_differs(tmp_path, samples, threads_per_worker):
    reader = DeadlyReader(samples, 'train')
    expected = collected(training(ImageDataset(samples, reader), sampler=range(0, 160, 8), **INLINE))
    reader.at, reader.once = 32, tmp_path/'dead'
    loader = training(ImageDataset(samples, reader), sampler=range(0, 160, 8), threads_per_worker=threads_per_worker, **PROCESSES)
    with pytest.warns(RuntimeWarning, match=r'worker process \d died \(exit code -9, killed.*loading .*index 32 .*another takes its place'):
        found = collected(loader)
    assert_equal(found, expected)


def test_worker_killed_from_outside_is_replaced():
    loader = create_loader(Coded(64), 8, 4, device='cpu', **PROCESSES)
    with pytest.warns(RuntimeWarning, match='died'):
        for k, (_, targets) in enumerate(loader):
            assert targets.tolist() == list(range(4 * k, 4 * k + 4))
            if k in (1, 6): children()[0].kill()
            if k == 1: wait_until(lambda: len(children()) == 2, 'no other worker')
    assert k == 15 and len(children()) == 2


@pytest.mark.parametrize('on_error', ['raise', 'skip', 'replace'])
def test_sample_that_kills_twice_is_answered_as_on_error_says(samples, on_error):
    reader = DeadlyReader(samples, 'train')
    reader.at = 5
    dataset = ImageDataset(samples, reader, on_error=on_error)
    loader = create_loader(dataset, 16, 4, is_training=on_error == 'replace', shuffle=False, sampler=range(12), device='cpu',
                           num_workers=1, workers='processes', seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        if on_error == 'raise':
            with pytest.raises(ImageReadError, match=r'index 5\): .*died.* while loading this sample, for the second time'): list(loader)
            return
        sizes = [len(targets) for _, targets in loader]
    assert sizes == ([4, 3, 4] if on_error == 'skip' else [4, 4, 4])
    [bad] = dataset.bad_samples
    assert bad.index == 5 and 'for the second time' in bad.cause and (bad.replaced_by is None) == (on_error == 'skip')


def test_sample_of_a_users_dataset_that_kills_twice_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        with pytest.raises(RuntimeError, match='while loading this sample, for the second time'):
            list(create_loader(Deadly(16, 9), 8, 4, device='cpu', **PROCESSES))


def test_worker_that_cannot_be_replaced_is_an_error(monkeypatch):
    loader = create_loader(Coded(400), 8, 4, device='cpu', **PROCESSES)
    def fail(*_): raise OSError('no more processes')
    with pytest.raises(RuntimeError, match='could not be replaced: OSError: no more processes'):
        for k, _ in enumerate(loader):
            if k == 1:
                monkeypatch.setattr(processes, 'WorkerProcess', fail)
                children()[0].kill()
    with pytest.raises(OSError, match='no more processes'): next(iter(loader))


@BOTH
def test_timeout_names_what_it_waits_for_and_the_loader_lives(settings):
    dataset = Slow(16, 6, 1)
    loader = create_loader(dataset, 8, 4, device='cpu', timeout=0.3, **settings)
    with pytest.raises(RuntimeError, match=r'timeout=0.3 s; it waits for index 6 of the dataset \(Slow\), epoch 0'): list(loader)
    dataset.seconds = 0
    assert len(list(loader)) == 4


@BOTH
@pytest.mark.parametrize('dataset', [Coded(64), Slow(16, 15, 0.5)], ids=['before a batch begins', 'while it is made'])
def test_loader_that_is_closed_in_a_loop_is_an_error_there_and_starts_again(settings, dataset):
    "Batches that are ready may still come; then there is an error, neither silence nor an early end."
    loader, seen = create_loader(dataset, 8, 4, device='cpu', **settings), []
    with pytest.raises(RuntimeError, match='the workers are closed'):
        for k, (_, targets) in enumerate(loader):
            seen += targets.tolist()
            if k == 2:
                time.sleep(0.1)   # what is made ahead is ready
                loader.loader.close()
    assert seen == list(range(len(seen))) and len(seen) < len(dataset)
    assert len(list(loader)) == len(dataset) // 4


def test_many_keys_and_large_batches_do_not_block_each_other():
    "Keys of several batches exceed the room in a pipe while the worker sends a large batch."
    loader = create_loader(Coded(256), 8, 1000, num_workers=1, workers='processes', prefetch_factor=32, use_prefetcher=False,
                           sampler=range(2**60, 2**60 + 32_000))
    loader.builder.load, loader.builder.collate = no_image, large_batch
    assert sum(1 for _ in loader) == 32


def no_image(key, row, refuse): return 0


def large_batch(keys, samples, rows):
    time.sleep(0.05)
    return HostBatch(b'0' * 3_000_000, keys)


class Consumer(Exception): "Of the training step."


@ALL
@pytest.mark.parametrize('prefetcher', [True, False])
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


def workers() -> list:
    return [*children(), *(t for t in threading.enumerate() if t.name.startswith('timmdata'))]


@BOTH
@pytest.mark.parametrize('how', ['break', 'iterator', 'close'])
def test_workers_end_without_the_garbage_collector(settings, how):
    gc.disable()
    try:
        loader = create_loader(Coded(64), 8, 4, device='cpu', **settings)
        iterator = iter(loader)
        next(iterator)
        assert workers()
        if how == 'close': loader.loader.close()
        if how == 'break': del iterator
        if how != 'close': del loader
        if how == 'iterator': del iterator
        wait_until(lambda: not workers(), 'workers are left', 3)
    finally: gc.enable()


@BOTH
def test_nested_loops_have_positions_of_their_own(settings):
    loader = create_loader(Coded(20), 8, 4, True, seed=2, device='cpu', **settings)
    plain = create_loader(Coded(20), 8, 4, True, seed=2, device='cpu', **INLINE)
    outer, inner = [], []
    for batch in loader:
        outer.append(copied(batch))
        if len(outer) == 2: inner = collected(loader)
    assert_equal(outer, collected(plain))
    assert_equal(inner, collected(plain))


# ---- memory

@ALL
@pytest.mark.parametrize('prefetcher', [True, False])
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
    "Those lie in the rows that the workers fill."
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


def test_slots_come_back(dataset):
    "After early breaks, and when batches were kept for a while, all slots of shared memory are free again."
    loader = training(dataset, use_prefetcher=False, device=None, **PROCESSES)
    next(iter(loader))
    slots = loader._workers._slots
    wait_until(lambda: slots.num_free == 7, 'not all slots are free', 3)   # 2 workers, 2 batches ahead of each, 3 more
    for _ in range(4): next(iter(loader))
    kept = list(loader)
    del kept
    wait_until(lambda: slots.num_free == 7, 'slots are lost', 3)


@BOTH
def test_files_and_shared_memory_are_stable_over_many_loaders(settings):
    process = psutil.Process()
    def shared(): return sum('timmdata' in line for line in open('/proc/self/maps')) + len(os.listdir('/dev/shm'))
    for k in range(12):
        for persistent in (True, False):
            loader = create_loader(Coded(8), 8, 4, device='cpu', persistent_workers=persistent, **settings)
            assert sum(len(targets) for _, targets in loader) == 8
            if k % 3: next(iter(loader))
            del loader
        if k == 1:
            wait_until(lambda: not workers(), 'workers are left')
            before = process.num_fds(), shared(), process.num_threads()
    wait_until(lambda: (process.num_fds(), shared()) == before[:2], 'files or memory are left')   # the last ones end by themselves
    wait_until(lambda: process.num_threads() <= before[2], 'threads are left')   # a thread that was joined ends a moment later


def test_files_are_stable_over_many_epochs():
    process = psutil.Process()
    loader = create_loader(Coded(8), 8, 4, device='cpu', num_workers=1, workers='processes')
    for epoch in range(30):
        for _ in loader: pass
        if epoch == 2: before = process.num_fds(), process.num_threads()
    assert process.num_fds() == before[0]
    wait_until(lambda: process.num_threads() <= before[1], 'threads are left')


# ---- programs that end

def test_interpreter_exit_without_closing():
    "Finished, left early and half-used loaders, of threads and of processes, when the program ends."
    run = program('''
kept = []
for workers in ('threads', 'processes'):
    for prefetcher in (True, False):
        loader = create_loader(Coded(64), 8, 4, num_workers=2, workers=workers, use_prefetcher=prefetcher)
        iterator = iter(loader)
        next(iterator)
        kept += [loader, iterator]
for process in psutil.Process().children(): print(process.pid, flush=True)
print('end', flush=True)
''')
    code, out, errors = run.end()
    assert code == 0 and out.endswith('end\n') and errors == ''
    assert len(out.split()) == 5
    wait_until(lambda: not any(psutil.pid_exists(int(pid)) for pid in out.split()[:-1]), 'workers are left', 8)


INTERRUPTED = '''
loader = create_loader({dataset}, 8, 4, num_workers=2, workers={workers!r}, device='cpu')
try:
    for k, _ in enumerate(loader):
        print('batch', k, flush=True)
        time.sleep({sleep})
except KeyboardInterrupt:
    print('interrupted', flush=True)
    raise SystemExit(7)
'''


@pytest.mark.parametrize('workers, where', [
    ('threads', 'in the loop'), ('threads', 'stuck'), ('processes', 'stuck'), ('processes', 'supervisor')])
def test_interrupt_ends_the_program_and_its_workers(workers, where):
    "SIGINT to the process group, as a terminal does, or to the process alone: in the loop's body, or in wait of a stuck worker."
    stuck = where == 'stuck'
    run = program(INTERRUPTED.format(dataset='Slow(400, 8, 60)' if stuck else 'Coded(4000)', workers=workers,
                                     sleep=0 if stuck else 0.05))
    try:
        run.wait_for('batch 1')
        inside, start = run.process.children(recursive=True), time.monotonic()
        time.sleep(0.2)
        if where == 'supervisor': run.process.send_signal(signal.SIGINT)
        else: os.killpg(run.process.pid, signal.SIGINT)
        code, out, errors = run.end()
        assert code == 7 and 'interrupted' in out and errors == ''
        assert time.monotonic() - start < 8 and len(inside) == (2 if workers == 'processes' else 0)
        wait_until(lambda: not any(map(is_alive, inside)), 'orphans are left', 5)
    finally: run.kill()


@pytest.mark.parametrize('state', ['idle', 'stuck', 'blocked'])
def test_killed_parent_leaves_no_worker(state):
    "Idle workers, one that loads a sample for ever, and ones whose answers nobody takes any more."
    dataset = 'Slow(400, 9, 60)' if state == 'stuck' else 'Coded(400)'
    big = '''
    def collate(samples): return torch.zeros(len(samples), 3, 8, 8, dtype=torch.uint8), b'0' * 10_000_000'''
    run = program(f'''
if True:{big}
    loader = create_loader({dataset}, 8, 4, num_workers=2, workers='processes', device='cpu', prefetch_factor=4,
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


def test_unguarded_spawn_script_is_a_clear_error():
    "A spawned process runs the script again; if that starts processes as well, Python ends it, and we say why."
    code, out, _ = program("""
try: list(create_loader(Coded(8), 8, 4, num_workers=1, workers='processes', multiprocessing_context='spawn', device='cpu'))
except RuntimeError as error: print(error)
""", first="if __name__ != '__main__': import multiprocessing as m; m.get_context('spawn').Process(target=print).start()").end(50)
    assert code == 0 and 'died (exit code 1) before it was ready' in out and "if __name__ == '__main__'" in out


def test_dataset_that_cannot_be_pickled_is_a_clear_error():
    class Local(Coded): pass
    files = psutil.Process().num_fds()
    with pytest.raises((AttributeError, pickle.PicklingError), match="[Cc]an't pickle.*Local|Can't get local object.*Local"):
        list(create_loader(Local(8), 8, 4, multiprocessing_context='spawn', device='cpu', **PROCESSES))
    gc.collect()
    assert psutil.Process().num_fds() <= files + 1 and not children()


# ---- the number of workers

def test_number_of_workers_may_be_chosen(dataset, reference):
    loader = training(dataset, num_workers='auto')
    assert isinstance(loader.loader, BatchLoader) and 'auto' in repr(loader)
    assert_equal(collected(loader), reference[0])
    assert isinstance(loader.loader.num_workers, int) and loader.loader.num_workers >= 1
    assert f'{loader.loader.num_workers} threads (measured 1: ' in repr(loader)
    loader = create_loader(Reporting(32), 8, 4, num_workers='auto', device='cpu')
    pids = {int(target) for _, targets in loader for target in targets}
    assert os.getpid() not in pids and f'{loader.loader.num_workers} processes (' in repr(loader) and 'cores)' in repr(loader)
