"Batches of the user's own transform and of streams without the prefetcher: those of the default, to the bit, made by the workers."
import numpy as np
import pytest
import torch
from grids import quick
from loader_parts import nothing_is_left
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from timmdata import FastCollateMixup, Mixup, create_loader
from timmdata.loaders.base import HostLoader

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM, MEAN, STD = 10, (0.4, 0.5, 0.3), (0.2, 0.25, 0.3)


def image_of(index: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(index).integers(0, 256, (28, 30, 3), np.uint8))


class Images(Dataset):
    def __len__(self): return NUM
    def __getitem__(self, index): return image_of(index), index


class Passing(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return ((image_of(index), index) for index in range(worker.id if worker else 0, NUM, worker.num_workers if worker else 1))


def as_pil(image): return v2.RandomCrop(24)(image)
def as_tensor(image): return F.pil_to_tensor(as_pil(image))
def as_array(image): return np.asarray(as_pil(image))
def as_views(image): return [as_tensor(image), as_tensor(image).flip(-1)]
def normalized(image): return F.normalize(F.to_dtype(as_tensor(image), torch.float32, scale=True), MEAN, STD)


WORKERS = [dict(num_workers=0), dict(num_workers=2, worker_type='processes')]
TRANSFORMS = [as_tensor, as_pil, as_array, as_views]


def batches(dataset, **settings):
    loader = create_loader(dataset, 24, 4, **{**dict(seed=1, mean=MEAN, std=STD, num_workers=0, device='cpu'), **settings})
    found = [(images.clone(), targets.clone()) for images, targets in loader]
    loader.close()
    return loader, found


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for (images, targets), (others, other_targets) in zip(found, expected, strict=True):
        assert images.dtype == torch.float32 and torch.equal(images, others) and images.stride() == others.stride()
        assert torch.equal(targets, other_targets)


@pytest.mark.parametrize('workers', WORKERS, ids=['inline', 'processes'])
@pytest.mark.parametrize('dataset', [Images, Passing])
@quick(2, 'transform', TRANSFORMS)
def test_own_images_are_normalized_as_by_the_prefetcher(transform, dataset, workers):
    if dataset is Passing: workers = {key: value for key, value in workers.items() if key == 'num_workers'}
    settings = dict(transform=transform, is_training=True, drop_last=False, re_prob=0.5, re_mode='pixel')
    loader, found = batches(dataset(), use_prefetcher=False, **settings, **workers)
    assert isinstance(loader, HostLoader)
    assert_same(found, batches(dataset(), **settings, **workers)[1])


@pytest.mark.parametrize('dataset', [Images, Passing])
def test_the_normalization_is_torchvisions(dataset):
    "Without randomness: (pixel / 255 - mean) / std, but for the last bits."
    def crop(image): return F.center_crop(image, [24, 24])
    for images, targets in batches(dataset(), transform=crop, use_prefetcher=False)[1]:
        for image, target in zip(images, targets.tolist(), strict=True):
            pixels = F.to_dtype(F.pil_to_tensor(crop(image_of(target))), torch.float32, scale=True)
            assert torch.allclose(image, F.normalize(pixels, MEAN, STD), atol=1e-5)


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('settings', [{}, dict(re_prob=0.5, re_mode='rand'), dict(mixup=Mixup(0.8, num_classes=NUM))], ids=str)
def test_a_stream_without_the_prefetcher_is_finished_alike(settings, workers):
    settings = dict(is_training=True, drop_last=False, color_jitter=0.4, num_workers=workers, **settings)
    loader, found = batches(Passing(), use_prefetcher=False, **settings)
    assert isinstance(loader, HostLoader) and loader.mixup_enabled == ('mixup' in settings)
    assert_same(found, batches(Passing(), **settings)[1])


@pytest.mark.parametrize('dataset', [Images, Passing])
@pytest.mark.parametrize('mixing', [dict(mixup=Mixup(0.8, num_classes=NUM)), dict(collate_fn=FastCollateMixup(0.8, num_classes=NUM))],
                         ids=['mixup', 'collate_fn'])
def test_own_images_are_mixed_as_by_the_prefetcher(dataset, mixing):
    settings = dict(transform=as_tensor, is_training=True, **mixing)
    assert_same(batches(dataset(), use_prefetcher=False, **settings)[1], batches(dataset(), **settings)[1])


@pytest.mark.parametrize('use_prefetcher', [True, False])
@pytest.mark.parametrize('dataset', [Images, Passing])
def test_floats_are_not_normalized_twice(dataset, use_prefetcher):
    "With mean=None, they are left as they are; else they are refused, since nobody knows whether they were normalized."
    settings = dict(transform=normalized, use_prefetcher=use_prefetcher)
    with pytest.raises(TypeError, match='must be uint8.*pass mean=None, std=None'): batches(dataset(), **settings)
    for images, _ in batches(dataset(), **{**settings, 'mean': None, 'std': None})[1]:
        assert images.dtype == torch.float32 and images.shape[1:] == (3, 24, 24) and images.min() < 0


def stacked(samples): return torch.stack([F.pil_to_tensor(image) for image, _ in samples]), torch.tensor([t for _, t in samples])
def kept(samples): return {'anything': [image for image, _ in samples]}


@pytest.mark.parametrize('dataset', [Images, Passing])
def test_own_collate_function_gets_what_the_own_transform_returns(dataset):
    settings = dict(transform=as_pil, collate_fn=stacked)
    assert_same(batches(dataset(), use_prefetcher=False, **settings)[1], batches(dataset(), **settings)[1])


def test_own_functions_may_make_any_batch_of_an_indexed_dataset():
    "If nothing is left to do."
    settings = dict(transform=as_pil, mean=None, std=None, use_prefetcher=False, num_workers=0)
    for batch in create_loader(Images(), 24, 4, collate_fn=kept, **settings): assert isinstance(batch['anything'][0], Image.Image)
    with pytest.raises((KeyError, TypeError)):
        list(create_loader(Images(), 24, 4, collate_fn=kept, transform=as_pil, use_prefetcher=False, num_workers=0))


@pytest.mark.parametrize('dataset', [Images, Passing])
def test_own_collate_function_gets_finished_images_of_our_pipeline(dataset):
    "Without the prefetcher, as for timm's datasets, whose transform normalizes; its numbers are those of whole batches."
    def collate(samples):
        seen.append(samples[0][0])
        return torch.stack([image for image, _ in samples]), torch.tensor([target for _, target in samples])
    seen = []
    found = batches(dataset(), collate_fn=collate, use_prefetcher=False)[1]
    for (images, targets), (others, other_targets) in zip(found, batches(dataset())[1], strict=True):
        assert torch.equal(images, others) and torch.equal(targets, other_targets)
    assert all(image.dtype == torch.float32 for image in seen)


def test_a_replay_is_the_batch():
    settings = dict(transform=as_tensor, is_training=True, re_prob=1., re_mode='pixel', use_prefetcher=False)
    loader, found = batches(Images(), **settings)
    assert torch.equal(loader.replay(0, 1).batch[0], found[1][0])
