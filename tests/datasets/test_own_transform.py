"A transform assigned to a dataset after create_loader replaces the pipeline, as in timm."
import warnings

import numpy as np
import pytest
import timm.data
import torch
from loader_parts import Stream, nothing_is_left
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms as T

import timmdata
from timmdata import ImageDataset, IterableImageDataset, create_loader

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
WORKERS = [dict(num_workers=0), dict(num_workers=1), dict(num_workers=2, worker_type='threads'),
           dict(num_workers=2, worker_type='processes')]
SETTINGS = dict(is_training=False, mean=MEAN, std=STD, device=torch.device('cpu'))


def three_augment(size=24):
    "DeiT III's pipeline without random steps, so timm's workers give equal results; it returns normalized floats."
    return T.Compose([T.Resize((size, size)), T.Grayscale(3), T.ToTensor(), T.Normalize(MEAN, STD)])


def as_bytes(image): return T.functional.pil_to_tensor(image.resize((24, 24))).flip(2)
def as_array(image): return np.asarray(image.resize((24, 24))).transpose(2, 0, 1)


def batches(module, dataset, transform, **settings) -> list[torch.Tensor]:
    loader = module.create_loader(dataset, (3, 32, 32), 5, **(SETTINGS | settings))
    loader.dataset.transform = transform
    found = [part.clone() for batch in loader for part in batch]
    if hasattr(loader, 'close'): loader.close()
    return found


def timms(samples, transform, **settings):
    return batches(timm.data, timm.data.ImageDataset(str(samples/'val')), transform, num_workers=0, **settings)


@pytest.mark.parametrize('transform, settings', [
    pytest.param(three_augment(), dict(use_prefetcher=False), id='floats'),
    pytest.param(three_augment(40), dict(use_prefetcher=False), id='another size', marks=pytest.mark.full),
    pytest.param(as_bytes, dict(), id='bytes'),
    pytest.param(as_array, dict(), id='array', marks=pytest.mark.full)])
def test_pixels_are_timms(samples, transform, settings):
    "Compared with timm's own loader: flips and colors of the pipeline are not applied, and normalization is."
    expected = timms(samples, transform, **settings)
    for workers in WORKERS:
        found = batches(timmdata, ImageDataset(samples, split='val'), transform, **settings, **workers)
        assert len(found) == len(expected) and all(torch.allclose(a, b.to(a.dtype), atol=1e-5) for a, b in zip(expected, found)), workers


def test_no_step_of_the_training_pipeline_is_left(samples):
    "Flips and colors on the device are skipped, too, and a replay has no steps."
    dataset = ImageDataset(samples, split='val')
    with create_loader(dataset, 32, 4, **SETTINGS | dict(is_training=True), hflip=1., color_jitter=0.9, seed=0, num_workers=0) as loader:
        dataset.transform = as_bytes
        images, targets = next(iter(loader))
        again = loader.replay(0, 0)
        assert again.steps is None and torch.equal(again.batch[0], images) and torch.equal(again.batch[1], targets)
        pixels = (images * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)) * 255
        originals = [as_bytes(ImageDataset(samples, split='val')[key.index][0]) for key in again.keys]
        assert torch.allclose(pixels, torch.stack(originals).float(), atol=1e-2)


def test_it_is_taken_away_and_changed_between_epochs(samples):
    "None restores the pipeline; random numbers of the transform are keyed to the sample; other loaders are not affected."
    def noisy(image): return torch.randint(256, (3, 8, 8), dtype=torch.uint8)
    results = []
    for workers in WORKERS[:2]:
        dataset = ImageDataset(samples, split='val')
        with create_loader(dataset, 32, 40, seed=0, **SETTINGS, **workers) as loader:
            epochs = [next(iter(loader))[0].clone()]
            for transform in noisy, as_bytes, None:
                dataset.transform = transform
                assert loader.dataset is dataset and loader.dataset.transform is transform
                epochs.append(next(iter(loader))[0].clone())
        assert torch.equal(epochs[0], epochs[3]) and [tuple(epoch.shape[2:]) for epoch in epochs] == [(32, 32), (8, 8), (24, 24), (32, 32)]
        results.append(epochs)
    assert all(map(torch.equal, *results))


def test_threads_that_would_share_a_global_generator_are_refused(samples):
    dataset = ImageDataset(samples, split='val')
    with create_loader(dataset, 32, 4, **SETTINGS, num_workers=2, worker_type='threads') as loader:
        dataset.transform = lambda image: torch.randint(256, (3, 8, 8), dtype=torch.uint8)
        with pytest.raises(ValueError, match='threads share'): next(iter(loader))


class Folder(Dataset):
    "A user's dataset that calls `self.transform`, as torchvision's datasets do."
    def __init__(self, transform=None): self.transform = transform
    def __len__(self): return 8
    def __getitem__(self, index):
        image = Image.new('RGB', (40, 30), (index, 0, 0))
        return image if self.transform is None else self.transform(image), index


def test_datasets_of_the_users_own(samples):
    expected = batches(timm.data, Folder(), as_bytes, num_workers=0)
    for workers in WORKERS: assert all(map(torch.allclose, batches(timmdata, Folder(), as_bytes, **workers), expected))


def test_with_transform_the_assigned_one_comes_first():
    "The dataset calls the assigned transform, and `transform=` gets the result."
    for workers in WORKERS:
        with create_loader(dataset := Folder(), 24, 8, transform=as_bytes, **SETTINGS | dict(mean=0., std=1 / 255), **workers) as loader:
            dataset.transform = lambda image: image.point(lambda value: 7)
            assert {round(value) for value in next(iter(loader))[0].unique().tolist()} == {7}


@pytest.mark.parametrize('num_workers', [0, 2])
def test_streams(num_workers):
    def stream(transform=None): return IterableImageDataset(reader=Stream(16), transform=transform)
    def tripled(image): return torch.full((3, 8, 8), 3 * image.getpixel((0, 0))[0] + torch.randint(3, ()).item(), dtype=torch.uint8)
    found = []
    for workers in dict(num_workers=0), dict(num_workers=num_workers):
        with create_loader(dataset := stream(), 8, 4, **SETTINGS | dict(mean=0., std=1 / 255), seed=1, **workers) as loader:
            dataset.transform = tripled
            found.append(sorted(round(image.mean().item()) for images, _ in loader for image in images))
    assert found[0] == found[1] and all(3 * k <= value < 3 * k + 3 for k, value in enumerate(found[0]))


@pytest.mark.parametrize('settings, name', [
    (dict(cache='device', train_crop_mode='rc'), 'cache'), (dict(num_aug_splits=2), 'num_aug_splits'),
    (dict(input_size_choices=[16, 32]), 'input_size_choices')])
def test_loaders_that_cannot_use_it_say_so(samples, settings, name):
    dataset = ImageDataset(samples, split='val')
    with create_loader(dataset, 32, 4, True, seed=0, device='cpu', num_workers=0, **settings) as loader:
        dataset.transform = as_bytes
        with pytest.raises(ValueError, match=f'assigned after create_loader, but it cannot replace .* {name}: omit {name}'):
            next(iter(loader))


def test_a_transform_that_was_there_before_is_said(samples):
    "timm drops it. Here it comes first, and the pipeline follows."
    dataset = ImageDataset(samples, split='val', transform=lambda image: image.point(lambda value: 0))
    message = 'the ImageDataset has a transform, which is applied to each image before .*timm drops it'
    with pytest.warns(UserWarning, match=message) as found:
        loader = create_loader(dataset, 32, 4, device='cpu', mean=0., std=1 / 255, num_workers=0)
    assert len(found) == 1 and found[0].filename == __file__ and next(iter(loader))[0].max() == 0
    theirs = timm.data.ImageDataset(str(samples/'val'), transform=dataset.transform)
    timms = timm.data.create_loader(theirs, (3, 32, 32), 4, device=torch.device('cpu'), mean=(0.,) * 3, std=(1 / 255,) * 3, num_workers=0)
    assert next(iter(timms))[0].max() > 0
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        create_loader(dataset, 32, 4, device='cpu', transform=as_bytes, num_workers=0)
        create_loader(torch.utils.data.Subset(dataset, range(4)), 32, 4, device='cpu', num_workers=0)
