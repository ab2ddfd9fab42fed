"Albumentations in a loader: its transforms are used as they are, and give the same batches with any workers."
import numpy as np
import pytest
import torch
from frameworks import require

from timmdata import ImageDataset, create_loader

pytestmark = pytest.mark.timeout(180)


def batches(samples, transform, **settings) -> list[torch.Tensor]:
    "Return the images of an epoch, 0..255."
    dataset = ImageDataset(samples, split='val')
    settings = dict(is_training=True, seed=3, device='cpu', mean=0., std=1 / 255, transform=transform) | settings
    with create_loader(dataset, 48, 16, **settings) as loader: return [images for images, _ in loader]


@pytest.mark.full
def test_a_random_pipeline_gives_the_same_batches_for_any_number_of_workers(samples):
    albumentations = require('albumentations')
    def pipeline(): return albumentations.Compose([
        albumentations.RandomResizedCrop(size=(48, 48)), albumentations.HorizontalFlip(p=0.5), albumentations.ColorJitter(p=1.)])
    first, *others = [batches(samples, pipeline(), num_workers=number) for number in (0, 1, 2)]
    assert len(first) == 5 and not torch.equal(first[0][0], first[0][1])
    for other in others: assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    another = batches(samples, pipeline(), num_workers=0, seed=4)
    assert not torch.equal(first[0], another[0])


def test_pixels_are_those_of_albumentations(samples):
    albumentations = require('albumentations')
    crop, dataset = albumentations.Compose([albumentations.CenterCrop(48, 48)]), ImageDataset(samples, split='val')
    images = torch.cat(batches(samples, crop, num_workers=0, is_training=False))
    for index in (0, 40, 79):
        expected = crop(image=np.asarray(dataset[index][0]))['image'].transpose(2, 0, 1)
        assert np.abs(images[index].numpy() - expected).max() < 1e-3


def test_threads_are_refused(samples):
    albumentations = require('albumentations')
    pipeline = albumentations.Compose([albumentations.RandomCrop(48, 48)])
    with pytest.raises(ValueError, match='has its own random generator'): batches(samples, pipeline, num_workers=1, worker_type='threads')
