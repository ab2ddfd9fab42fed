"Promises under mutation: each of these was written for a breakage that the other tests tried on it had survived."
import multiprocessing
import os
import pickle
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from loader_parts import Coded, Slow, Stream, nothing_is_left
from PIL import Image
from torch.utils.data import ConcatDataset, RandomSampler

from timmdata.core import jpeg as fast_decode
from timmdata.core.cores import available_cores
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loader import create_loader

pytestmark = pytest.mark.timeout(30)
CPU, INLINE = dict(device='cpu'), dict(num_workers=0, device='cpu')
PROCESSES = dict(num_workers=2, worker_type='processes', device='cpu')
THREADS = dict(num_workers=2, worker_type='threads', device='cpu')
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


def targets_of(loader) -> list: return [target for _, targets in loader for target in targets.tolist()]


def images_of(loader) -> torch.Tensor: return torch.cat([images.clone() for images, _ in loader])


# ---- 1: the same batches, whoever computes them

@pytest.mark.parametrize('what', [
    dict(hflip=0.), dict(scale=(1., 1.), ratio=(1., 1.)), dict(hflip=0., re_prob=1., re_mode='pixel')], ids=str)
def test_sample_is_drawn_anew_in_every_epoch(samples, what):
    "The order stays, so only the numbers of the samples can differ: crops, flips and colors, erasing."
    settings = dict(no_aug=False, color_jitter=None, shuffle=False, seed=3, sampler=range(0, 64, 8), drop_last=False)
    loader = create_loader(ImageDataset(samples), 16, 8, True, **settings, **what, **INLINE)
    epochs = [images_of(loader) for _ in range(3)]
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[1], epochs[2])


@pytest.mark.parametrize('settings', [INLINE, THREADS, PROCESSES], ids=['inline', 'threads', 'processes'])
def test_skipped_sample_does_not_change_the_others(samples, settings):
    "Neither their pixels nor their labels: a batch with gaps has what each sample has alone."
    dataset = ImageDataset(samples/'oddities', split=None, on_error='skip')
    common = dict(is_training=True, shuffle=False, drop_last=False, seed=3, re_prob=0.5, re_mode='pixel')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        alone, together = (create_loader(dataset, 16, size, **common, **how) for size, how in ((1, INLINE), (6, settings)))
        assert torch.equal(images_of(alone), images_of(together))
        assert targets_of(alone) == targets_of(together)


class Drawing(Coded):
    "Draws its pixels from the three global generators."
    def __getitem__(self, index):
        values = [random.random(), np.random.rand(), float(torch.rand(()))]
        return Image.new('RGB', (8, 8), tuple(int(255 * value) for value in values)), index


def test_users_dataset_that_draws_is_keyed_to_the_sample():
    "In the dataset itself, before this library's transforms: whatever the workers, the order and the history."
    def drawn(**settings):
        loader = create_loader(Drawing(16), 8, 4, seed=1, **settings)
        return dict(sorted((target, tuple(image[:, 0, 0].tolist())) for images, targets in loader
                           for image, target in zip(images, targets.tolist(), strict=True)))
    expected = drawn(**INLINE)
    assert len(set(expected.values())) == 16
    torch.rand(3), random.random()
    assert drawn(**INLINE) == drawn(shuffle=True, **INLINE) == drawn(**PROCESSES) == expected


def test_users_random_sampler_is_keyed_to_the_epoch():
    "A sampler without a generator of its own draws from torch's global one; that is keyed, and left as it was."
    def epochs(state):
        torch.manual_seed(state)
        loader = create_loader(Coded(32), 8, 4, sampler=RandomSampler(range(32)), seed=1, **INLINE)
        found = [targets_of(loader) for _ in range(2)]
        assert torch.initial_seed() == state
        return found
    first = epochs(5)
    assert epochs(6) == first and first[0] != first[1]


def test_set_epoch_after_resuming_begins_at_the_start():
    loader = create_loader(Coded(16), 8, 4, seed=1, **INLINE)
    iterator = iter(loader)
    next(iterator), next(iterator)
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(1)
    assert targets_of(loader) == list(range(16))


class OwnGenerator:
    "A transform with a generator of its own, as Albumentations' have."
    def __init__(self): self.rng = random.Random()
    def set_random_seed(self, seed): self.rng = random.Random(seed)
    def __call__(self, image): return torch.full((3, 4, 4), self.rng.randrange(256), dtype=torch.uint8)


def test_generator_of_a_transform_is_keyed_to_the_sample():
    expected, again = (images_of(create_loader(Coded(16), 4, 4, transform=OwnGenerator(), seed=1, **INLINE)) for _ in range(2))
    assert torch.equal(expected, again) and len(expected[:, 0, 0, 0].unique()) > 8
    assert torch.equal(images_of(create_loader(Coded(16), 4, 4, transform=OwnGenerator(), seed=1, **PROCESSES)), expected)


class DrawnOnce:
    "A transform that draws three numbers from torch's global generator."
    def __call__(self, image): return torch.randint(256, (3, 1, 1), dtype=torch.uint8).expand(3, 4, 4)


def test_stream_samples_have_numbers_of_their_own_in_every_worker():
    "Workers count on from each other: no two samples of a pass draw the same."
    def drawn(num_workers):
        dataset = IterableImageDataset(reader=Stream(16), transform=None)
        loader = create_loader(dataset, 4, 4, transform=DrawnOnce(), seed=1, num_workers=num_workers, **CPU)
        return {tuple(image[:, 0, 0].tolist()) for image in images_of(loader)}
    assert len(drawn(0)) == len(drawn(2)) == 16


# ---- 2: nothing is mutated

@pytest.mark.parametrize('settings', [INLINE, THREADS], ids=['inline', 'threads'])
def test_transforms_of_the_dataset_stay(samples, settings):
    "Pixels are those of this library's pipeline, and the dataset still gives what its own transform makes."
    own = dict(transform=lambda image: image.convert('L').convert('RGB'), target_transform=lambda target: target + 100)
    dataset = ImageDataset(samples, split='val', **own)
    before, first = dict(vars(dataset)), np.asarray(dataset[0][0])
    loader = create_loader(dataset, 16, 4, sampler=[0, 20, 40, 60], **settings)
    if settings is INLINE: assert min(targets_of(loader)) >= 100
    assert vars(dataset) == before and np.array_equal(np.asarray(dataset[0][0]), first)
    stream = IterableImageDataset(reader=Stream(4), **own)
    before = dict(vars(stream))
    assert targets_of(create_loader(stream, 8, 4, **INLINE)) == [100, 101, 102, 103] and vars(stream) == before


def test_samples_of_the_user_stay():
    "A list of dicts is the user's own: its images are not replaced by rows or tensors."
    data = [{'image': Coded(8)[k][0], 'target': k} for k in range(8)]
    images = [sample['image'] for sample in data]
    for settings in (INLINE, dict(transform=DrawnOnce(), **INLINE)):
        assert len(list(create_loader(data, 4, 4, **settings))) == 2
        assert all(sample['image'] is image for sample, image in zip(data, images, strict=True))


# ---- 3: no silent substitution

@pytest.mark.parametrize('wrap', [
    lambda d: ConcatDataset([Coded(4), d]), lambda d: ConcatDataset([ConcatDataset([d])])], ids=['flat', 'nested'])
def test_evaluation_does_not_substitute_in_joined_datasets(samples, wrap):
    with pytest.raises(ValueError, match='never substitutes'):
        create_loader(wrap(ImageDataset(samples, on_error='replace')), 8, 4, **CPU)


def test_transform_of_the_user_gets_no_neighbor_of_a_skipped_sample(samples):
    dataset = ImageDataset(samples/'oddities', split=None, on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        loader = create_loader(dataset, 4, 4, transform=DrawnOnce(), **INLINE)
        assert sum(len(images) for images, _ in loader) == len(dataset) - 3 == len(dataset) - len(dataset.bad_samples)


# ---- 4: no hang, no leak

class Exiting(Coded):
    "Ends the program at one index."
    def __getitem__(self, index):
        if index == 9: raise SystemExit(3)
        return super().__getitem__(index)


@pytest.mark.parametrize('settings', [THREADS, PROCESSES], ids=['threads', 'processes'])
def test_exit_in_a_sample_reaches_the_consumer(settings):
    "A thread that ends by itself would leave its batch unfinished for ever. A process that ends is replaced once."
    died = 'exit code 3' if sys.version_info < (3, 11) else '(?s)exit code 3.*index 9'   # a note names the sample; 3.10 has no notes
    expected = pytest.raises(RuntimeError, match=died) if settings is PROCESSES else pytest.raises(SystemExit, match='3')
    with expected, warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)   # of the first one's death
        list(create_loader(Exiting(24), 8, 4, timeout=60, **settings))


def test_batch_that_cannot_be_sent_is_an_error():
    "Not the death of its worker."
    loader = create_loader(Coded(16), 8, 4, collate_fn=lambda samples: (lambda: None, 0), use_prefetcher=False,
                           num_workers=1, worker_type='processes', timeout=10)
    with warnings.catch_warnings():
        warnings.simplefilter('error', RuntimeWarning)
        with pytest.raises((AttributeError, TypeError, pickle.PicklingError), match='lambda'): list(loader)


class Odd(Exception):
    "Cannot be made again of its arguments."
    def __init__(self, what, more): super().__init__(what)


class Oddly(Coded):
    def __getitem__(self, index): raise Odd('a strange fault', 2)


def test_an_error_that_cannot_be_made_again_of_its_arguments_comes_back_as_it_was():
    with pytest.raises(Odd, match='^a strange fault'):
        list(create_loader(Oddly(8), 8, 4, timeout=60, **PROCESSES))


class SlowStream(Stream):
    def __iter__(self): return (Slow(self.num, 5, 2)[k] for k in range(self.num))


def test_timeout_of_a_stream_is_kept():
    loader = create_loader(IterableImageDataset(reader=SlowStream(8)), 8, 4, num_workers=1, timeout=0.5, persistent_workers=False, **CPU)
    with pytest.raises(RuntimeError, match='timed out'): list(loader)


# ---- 5: runs where the user is

@pytest.mark.full
@pytest.mark.timeout(120)
def test_spawned_workers_where_there_is_no_memfd(samples, monkeypatch):
    "As on macOS and Windows, all at once: context object, seeding function, float batches from the workers' own device stage."
    dataset = ImageDataset(samples, split='val')
    common = dict(input_size=96, batch_size=4, sampler=range(0, 80, 10), seed=1, use_prefetcher=False)
    expected = images_of(create_loader(dataset, num_workers=0, **common))
    monkeypatch.delattr(os, 'memfd_create', raising=False)
    loader = create_loader(dataset, worker_type='processes', num_workers=1, timeout=90, worker_seeding=id,
                           multiprocessing_context=multiprocessing.get_context('spawn'), **common)
    assert torch.equal(images_of(loader), expected)


def test_cores_are_counted_where_there_is_no_affinity(monkeypatch):
    monkeypatch.delattr(os, 'sched_getaffinity', raising=False)
    assert 1 <= available_cores() <= os.cpu_count()


def test_without_fast_decoders_pillow_decodes(samples, monkeypatch):
    for name in ('simplejpeg', 'decode_jpeg'): monkeypatch.setattr(fast_decode, name, None)
    for name in ('nvimgcodec', 'torchcodec'): monkeypatch.setitem(fast_decode._FIND, name, lambda: None)
    assert fast_decode.resolve_backend() == 'pillow'
    images, _ = next(iter(create_loader(ImageDataset(samples, split='val'), 16, 4, **INLINE)))
    assert images.shape == (4, 3, 16, 16)
