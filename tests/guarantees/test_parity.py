"timm 1.0.31 and torchvision as oracles: the same pixels, batches, orders, random draws and words."
import inspect
import itertools
import math
import random
import warnings
from collections import Counter

import numpy as np
import pytest
import timm.data as timm_data
import torch
from grids import quick
from oddities import ODDITIES
from PIL import Image
from shared_data import DATA, shared_data
from timm.data.loader import PrefetchLoader as TimmPrefetchLoader
from timm.data.loader import fast_collate as timm_fast_collate
from timm.data.random_erasing import RandomErasing as TimmRandomErasing
from timm.data.readers.reader_image_folder import ReaderImageFolder as TimmReaderImageFolder
from torchvision.datasets import ImageFolder

from timmdata.core.jpeg import Pixels
from timmdata.core.rng import seed_all
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.prefetch import PrefetchLoader
from timmdata.pipeline.collate import fast_collate
from timmdata.pipeline.layout import allocate_rows
from timmdata.pipeline.params import AppearanceParams, ParamSampler
from timmdata.pipeline.sample_transform import DecodeSettings, SampleTransform
from timmdata.readers.folder import ReaderImageFolder
from timmdata.transforms.factory import create_transform
from timmdata.transforms.random_erasing import RandomErasing
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)
UNREADABLE = {'truncated.jpg', 'empty.jpg', 'text.jpg'}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)   # tiny tensors; more threads wait for each other on a busy machine


def photographs(samples) -> dict[str, list]:
    "Every photograph at hand, by where it is from."
    odd = [samples/'oddities'/name for name in ODDITIES if name not in UNREADABLE and '16' not in name]
    found = {'samples': sorted(samples.glob('val/*/*')), 'oddities': odd}
    for name, step in ('imagenet-200', 1), ('ants-bees', 5), ('cifar10-mini', 97):
        files = [p for p in sorted((DATA/name).rglob('*')) if p.suffix.lower() in ('.jpg', '.jpeg', '.png')]
        if files: found[name] = files[::step]
    return found


def rgb(path) -> Image.Image:
    with Image.open(path) as image: return image.convert('RGB')


def both(size, image, seed=None, **settings) -> list:
    "What timm and we make of one image; under one seed where there is chance in it."
    results = []
    for create in timm_data.create_transform, create_transform:
        transform = create(size, **settings)
        if seed is not None: seed_all(seed)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            results.append(transform(image))
    return results


def assert_same(size, image, seed=None, **settings):
    timms, ours = both(size, image, seed, **settings)
    assert ours.dtype == timms.dtype and torch.equal(timms, ours), (size, seed, settings)


EVAL_GRID = [dict(size=size, crop_mode=mode, crop_pct=pct, interpolation=interpolation, crop_border_pixels=border, use_prefetcher=uint8)
             for size, mode, pct, interpolation, border, uint8 in itertools.product(
                 ((3, 96, 96), (3, 128, 160), (3, 224, 224)), ('center', 'squash', 'border', None), (0.875, 0.95, 1.0, 1.1),
                 ('bilinear', 'bicubic'), (None, 4), (False, True))]


@quick(1, 'step', [5, 1])
def test_eval_pixels_of_every_photograph(samples, step):
    "One setting a photograph, another one for the next; 37 and the size of the grid have no common divisor, so all are met."
    assert math.gcd(37, len(EVAL_GRID)) == 1
    seen, paths = Counter(), [(name, p) for name, paths in photographs(samples).items() for p in paths]
    for k, (source, path) in [*enumerate(paths)][::step]:
        settings = dict(EVAL_GRID[k * 37 % len(EVAL_GRID)])
        assert_same(settings.pop('size'), rgb(path), **settings)
        seen[source] += 1
    assert seen['samples'] == 80 // step and seen['oddities'] in (7 // step, 7 // step + 1)
    if step == 1 and (DATA/'imagenet-200').is_dir(): assert seen['imagenet-200'] == 209


@quick(1, 'source', ['samples', 'oddities', 'imagenet-200'])
def test_eval_pixels_in_every_setting(samples, source):
    found = photographs(samples)
    if source not in found: pytest.skip(f'{source} is not here')
    image = rgb(found[source][0])
    image.thumbnail((300, 300))   # small, so that the padding of 'border' and crop_pct 1.1 is reached
    for settings in EVAL_GRID:
        settings = dict(settings)
        assert_same(settings.pop('size'), image, **settings)


@pytest.mark.parametrize('interpolation', ['nearest', 'box', 'hamming', 'lanczos'])
def test_eval_pixels_of_other_interpolations(samples, interpolation):
    assert_same(96, rgb(samples/'val/cat/0000.jpg'), interpolation=interpolation)


@pytest.mark.parametrize('edges', [(7, 300), (300, 7), (1, 1), (96, 96), (110, 109)])
@pytest.mark.parametrize('mode', ['center', 'squash', 'border'])
def test_eval_pixels_of_odd_shapes(edges, mode):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*edges, 3), np.uint8))
    for size in 96, (64, 96): assert_same(size, image, crop_mode=mode)


@pytest.mark.parametrize('mode, channels', [('L', 1), ('RGBA', 4)])
@pytest.mark.parametrize('settings', [
    dict(), dict(crop_mode='border'), dict(is_training=True, color_jitter=None), dict(is_training=True, vflip=1.)])
def test_pixels_of_other_channels(samples, mode, channels, settings):
    image = rgb(samples/'val/cat/0000.jpg').convert(mode)
    assert_same((channels, 64, 64), image, 1, mean=(0.4,) * channels, std=(0.3,) * channels, **settings)


TRAIN_SETTINGS = {
    'rrc': dict(), 'rkrc': dict(train_crop_mode='rkrc'), 'rkrr': dict(train_crop_mode='rkrr'), 'bicubic': dict(interpolation='bicubic'),
    'random interpolation': dict(interpolation='random'), 'scale and ratio': dict(scale=(0.3, 0.5), ratio=(0.5, 2.)),
    'flips': dict(hflip=0.3, vflip=0.6), 'no flips': dict(hflip=0., vflip=0.), 'one jitter': dict(color_jitter=0.7),
    'three jitters': dict(color_jitter=(0.1, 0.2, 0.3)), 'hue': dict(color_jitter=(0.3, 0.2, 0.4, 0.1)),
    'no jitter': dict(color_jitter=None), 'jitter prob': dict(color_jitter_prob=0.5), 'gray': dict(grayscale_prob=0.5),
    'blur': dict(gaussian_blur_prob=0.5), 'uint8': dict(use_prefetcher=True), 'raw': dict(normalize=False), 'no_aug': dict(no_aug=True),
    'other mean': dict(mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)),
    'all': dict(train_crop_mode='rkrr', interpolation='random', vflip=0.5, color_jitter_prob=0.8, grayscale_prob=0.2,
                gaussian_blur_prob=0.5)}


@pytest.mark.parametrize('name', TRAIN_SETTINGS)
def test_training_pixels_under_one_seed(samples, name):
    settings = {'is_training': True, 'interpolation': 'bilinear', **TRAIN_SETTINGS[name]}
    for seed in range(6):
        image = rgb(samples/'train'/('cat', 'coffee', 'rocket')[seed % 3]/f'{seed:04}.jpg')
        # timm squashes with no_aug and a tuple; the page on timm names that
        size = 80 if settings.get('no_aug') else ((3, 80, 80), (3, 64, 112))[seed % 2]
        assert_same(size, image, seed, **settings)


def test_separate_pipelines_under_one_seed(samples):
    image, results = rgb(samples/'train/coffee/0003.jpg'), []
    for create in timm_data.create_transform, create_transform:
        parts = create((3, 72, 72), is_training=True, separate=True, grayscale_prob=0.5)
        seed_all(5)
        stages = [image]
        for part in parts: stages.append(part(stages[-1]))
        results.append(stages)
    assert len(results[0]) == len(results[1]) == 4
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(*results, strict=True))


def test_erasing_without_the_prefetcher_is_in_the_pipeline(samples):
    image, names = rgb(samples/'train/cat/0000.jpg'), []
    for create in timm_data.create_transform, create_transform:
        steps = create((3, 32, 32), is_training=True, re_prob=1.).transforms
        names.append(type(steps[-1]).__name__)
        # timm's default device is cuda
        assert steps[-1](torch.ones(3, 32, 32)).min() == 0 or create is timm_data.create_transform
    assert names == ['RandomErasing'] * 2
    assert create_transform(32, is_training=True, re_prob=1.)(image).shape == (3, 32, 32)


# ---- sequences of patches

SEQUENCES = {
    'evaluation': dict(), 'bicubic': dict(interpolation='bicubic'), 'border': dict(crop_border_pixels=3),
    'patches of 14×16': dict(patch_size=(14, 16)), 'long': dict(max_seq_len=256), 'uint8': dict(use_prefetcher=True),
    'raw': dict(normalize=False), 'patches': dict(patchify=True),
    'channels first': dict(patchify=True, patchify_channels_last=False),
    'patches with edges': dict(patchify=True, patchify_flatten=False),
    'both': dict(patchify=True, patchify_flatten=False, patchify_channels_last=False, use_prefetcher=True),
    'no_aug': dict(is_training=True, no_aug=True, patchify=True, crop_border_pixels=2, interpolation='random', re_prob=1.),
    'training': dict(is_training=True), 'training, random': dict(is_training=True, interpolation='random', vflip=0.5),
    'training, scale and ratio': dict(is_training=True, scale=(0.3, 0.5), ratio=(0.5, 2.), patch_size=(14, 16)),
    'training, policy': dict(is_training=True, auto_augment='3a', grayscale_prob=0.5, use_prefetcher=True),
    'training, patches': dict(is_training=True, patchify=True, patchify_channels_last=False),
    'one size': dict(naflex=False, patchify=True),
}


@pytest.mark.parametrize('name', SEQUENCES)
def test_sequences_under_one_seed(samples, name):
    settings = {'naflex': True, 'patch_size': 16, 'max_seq_len': 64, **SEQUENCES[name]}
    for seed in range(4):
        image = rgb(samples/'train'/('cat', 'coffee', 'rocket')[seed % 3]/f'{seed:04}.jpg')
        timms, ours = both((3, 64, 112), image, seed, **settings)
        if 'patchify' not in settings: timms, ours = {'image': timms}, {'image': ours}
        assert list(ours) == list(timms)
        for field, values in timms.items(): assert ours[field].dtype == values.dtype and torch.equal(ours[field], values)


def test_patches_of_training_keep_their_edges_where_asked(samples):
    "timm flattens them in training whatever patchify_flatten says."
    image, words = rgb(samples/'train/cat/0000.jpg'), dict(naflex=True, max_seq_len=16, is_training=True, patchify=True)
    timms, ours = both(64, image, 0, patchify_flatten=False, **words)
    assert timms['patches'].ndim == 2 and torch.equal(ours['patches'].flatten(1), timms['patches'])
    assert ours['patches'].shape[1:] == (16, 16, 3)


# ---- batches

def batches(create, dataset, **settings) -> list:
    common = dict(input_size=(3, 96, 96), batch_size=32, is_training=False, device=torch.device('cpu'), num_workers=0)
    return list(map(tuple, create(dataset, **common, **settings)))


def assert_same_batches(timms, ours):
    assert len(timms) == len(ours) > 1
    for a, b in zip(timms, ours, strict=True):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) and a[0].dtype == b[0].dtype
        assert a[1].dtype == b[1].dtype


@quick(1, 'name, folder', [('ants-bees', 'val'), ('imagenet-200', '')])
def test_eval_batches(name, folder):
    root = shared_data(name)
    settings = dict(crop_pct=0.9, interpolation='bicubic')
    timms = batches(timm_data.create_loader, timm_data.ImageDataset(str(root/folder)), **settings)
    ours = ImageDataset(root, split='val') if folder else ImageDataset(root)
    assert_same_batches(timms, batches(create_loader, ours, backend='pillow', **settings))


@quick(3, 'settings', [
    dict(), dict(use_prefetcher=False), dict(worker_type='processes'), dict(crop_mode='squash', mean=(0.5,) * 3, std=(0.5,) * 3),
    dict(crop_mode='border', channels_last=False)], ids=str)
def test_eval_batches_of_the_samples(samples, settings):
    words = {k: v for k, v in settings.items() if k in ('crop_mode', 'mean', 'std')}
    timms = batches(timm_data.create_loader, timm_data.ImageDataset(str(samples/'val')), **words)
    ours = batches(create_loader, ImageDataset(samples, split='val'), backend='pillow', **settings)
    assert_same_batches(timms, ours)


def test_batches_without_the_prefetcher_are_timms_but_for_the_last_bits(samples):
    "timm normalizes in two other ways with and without its prefetcher; here both are the one with it."
    dataset, settings = timm_data.ImageDataset(str(samples/'val')), dict(use_prefetcher=False)
    ours = batches(create_loader, ImageDataset(samples, split='val'), backend='pillow', **settings)
    for timms, (images, targets) in zip(batches(timm_data.create_loader, dataset, **settings), ours, strict=True):
        assert torch.allclose(timms[0], images, rtol=1e-6, atol=1e-6) and torch.equal(timms[1], targets)


class PythonsKey:
    "A key whose numbers are Python's own, as timm draws them."
    view = 0
    def __init__(self, number): self.number = number
    def rng(self, sequence): return random.Random(self.number)


def row_of(image, seed, size, **settings) -> torch.Tensor:
    "What the host stage makes of an image with the Pillow backend."
    transform = SampleTransform(ParamSampler(AugmentSettings(size, **settings)), DecodeSettings('pillow'))
    rows = allocate_rows(1, 3, size[1:])
    transform(Pixels(image, backend='pillow'), rows, PythonsKey(seed), here=[AppearanceParams()])   # the device flips
    return rows[0]


@quick(1, 'step', [5, 1])
def test_rows_of_evaluation_are_timms(samples, step):
    grid = [settings for settings in EVAL_GRID if settings['use_prefetcher']]
    assert math.gcd(37, len(grid)) == 1
    for k, path in [*enumerate(path for paths in photographs(samples).values() for path in paths)][::step]:
        settings, image = dict(grid[k * 37 % len(grid)]), rgb(path)
        timms = timm_data.create_transform(settings['size'], **{k: v for k, v in settings.items() if k != 'size'})(image)
        del settings['use_prefetcher']
        assert torch.equal(timms, row_of(image, None, **settings)), (path, settings)


ROWS = {'rrc': dict(), 'narrow': dict(scale=(0.3, 0.5), ratio=(0.5, 2.)), 'two kinds': dict(interpolation='random'),
        'rkrc': dict(train_crop_mode='rkrc'), 'rkrr': dict(train_crop_mode='rkrr', interpolation='random'),
        'rkrr far out': dict(train_crop_mode='rkrr', scale=(0.3, 3.), ratio=(0.3, 3.))}


@pytest.mark.parametrize('name', ROWS)
def test_rows_of_training_are_timms(samples, name):
    "The crop is drawn from Python's generator in timm's order: under one seed, the pixels are the same."
    settings = dict(is_training=True, hflip=0., color_jitter=None, **{'interpolation': 'bilinear', **ROWS[name]})
    found = set()
    for seed in range(24):
        image = rgb(samples/'train'/('cat', 'coffee', 'rocket')[seed % 3]/f'{seed % 12:04}.jpg')
        size = ((3, 80, 80), (3, 64, 112))[seed % 2]
        seed_all(seed)   # timm draws from the global generator
        timms = timm_data.create_transform(size, use_prefetcher=True, **settings)(image)
        row = row_of(image, seed, size, **settings)
        assert torch.equal(timms, row), seed
        found.add(row.sum().item())
    assert len(found) > 18


def test_rows_of_training_without_augmentation_are_timms(samples):
    for path in sorted(samples.glob('val/*/*'))[::7]:
        timms = timm_data.create_transform(80, is_training=True, no_aug=True, use_prefetcher=True)(rgb(path))
        row = row_of(rgb(path), None, (3, 80, 80), is_training=True, no_aug=True)
        assert torch.equal(timms, row)


class Batches:
    "Stands in for a DataLoader: the same uint8 batches every time."
    collate_fn = None

    def __init__(self, num: int, channels: int = 3, size: tuple = (9, 11), layout: torch.memory_format = torch.contiguous_format):
        generator = torch.Generator().manual_seed(0)
        shape = (5, channels, *size)
        images = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for _ in range(num)]
        self.batches = [(batch.contiguous(memory_format=layout), torch.arange(5)) for batch in images]

    def __iter__(self): return iter(self.batches)
    def __len__(self): return len(self.batches)


@pytest.mark.parametrize('settings', [
    dict(), dict(mean=(0.5, 0.4, 0.3), std=(0.2, 0.1, 0.3)), dict(channels=1, mean=(0.4,), std=(0.3,)),
    dict(channels=4, mean=(0.4,) * 4, std=(0.3,) * 4)], ids=str)
@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize('size', [(9, 11), (1, 1), (56, 64)])
def test_prefetch_loader_gives_the_same_floats(settings, layout, size):
    loader, device = Batches(3, settings.get('channels', 3), size, layout), torch.device('cpu')
    timms, ours = (list(kind(loader, device=device, **settings)) for kind in (TimmPrefetchLoader, PrefetchLoader))
    assert_same_batches(timms, ours)
    assert all(images.is_contiguous(memory_format=layout) for images, _ in ours)
    assert len(PrefetchLoader(loader, device='cpu', **settings)) == 3


@pytest.mark.parametrize('dtype, bound', [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_precision_is_nearer_to_the_truth_than_timms(dtype, bound):
    "timm computes in the half type, in three rounded steps; here only the result is rounded."
    loader, device = Batches(3), torch.device('cpu')
    exact = torch.cat([images for images, _ in PrefetchLoader(loader, device=device)])
    timms, ours = (torch.cat([images for images, _ in kind(loader, device=device, img_dtype=dtype)])
                   for kind in (TimmPrefetchLoader, PrefetchLoader))
    assert ours.dtype == timms.dtype == dtype and torch.equal(ours, exact.to(dtype))
    assert (ours.float() - exact).abs().mean() < (timms.float() - exact).abs().mean()
    assert (ours.float() - exact).abs().max() < bound


def samples_of(kind: str, targets) -> list:
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 256, (3, 4, 5), dtype=torch.uint8, generator=generator) for _ in range(12)]
    if kind == 'array': images = [image.numpy() for image in images]
    if kind == 'views': images = [tuple(images[k::4]) for k in range(4)]
    if kind == 'array views': images = [tuple(image.numpy() for image in images[k::4]) for k in range(4)]
    return list(zip(images, targets))


@pytest.mark.parametrize('kind', ['tensor', 'array', 'views', 'array views'])
@pytest.mark.parametrize('targets', [
    list(range(4)), [np.int64(k) for k in range(4)], [torch.tensor(k) for k in range(4)], [True, False, True, True],
    [torch.eye(4)[k] for k in range(4)], [np.eye(4, dtype=np.float32)[k] for k in range(4)]],
    ids=['int', 'np.int64', 'tensor', 'bool', 'dense', 'array'])
def test_collate(kind, targets):
    samples = samples_of(kind, targets)
    for timms, ours in zip(timm_fast_collate(samples), fast_collate(samples), strict=True):
        assert torch.equal(timms, ours) and timms.dtype == ours.dtype and ours.is_contiguous()


# ---- readers

@pytest.mark.parametrize('name, folder',
    [('samples', 'train'), ('ants-bees', 'train'), ('imagenet-200', ''), ('cifar10-mini', 'train')])
def test_reader_has_the_same_order_targets_and_classes(samples, name, folder):
    root = (samples if name == 'samples' else shared_data(name))/folder
    ours, timms, torchvisions = ReaderImageFolder(root), TimmReaderImageFolder(str(root)), ImageFolder(root)
    assert ours.class_to_idx == timms.class_to_idx == torchvisions.class_to_idx
    assert list(ours.class_to_idx) == list(timms.class_to_idx)
    assert ours.filenames() == timms.filenames() and ours.filenames(basename=True) == timms.filenames(basename=True)
    assert ours.filenames(absolute=True) == timms.filenames(absolute=True)
    assert [target for _, target in ours.samples] == [target for _, target in timms.samples]
    for k in range(0, len(ours), max(1, len(ours) // 7)):
        with timms[k][0] as file: assert ours[k][0] == file.read()


NAMES = ['img2.jpg', 'img10.jpg', 'IMG3.jpg', 'a/b1/x.jpg', 'a/b1/x.PNG', 'a/B10/y.jpeg', 'a/b03/0x10.jpg', 'a/b2/00x9.jpg', 'c d/ü.jpg',
         'c-d/é.jpg', 'c_d/1.2.jpg', 'c.d/1.10.jpg', 'z/1_1.jpg', 'z/1-1.jpg', 'z/1.jpg', 'z/01.jpg', 'z/٣.jpg', 'z/日本10.jpg',
         'z/日本9.jpg', 'no/text.txt', 'Z2/q.jpg']


def test_reader_sorts_strange_names_as_timm(tmp_path):
    for name in NAMES:
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).touch()
    (tmp_path/'no/image.jpg').touch()   # so that every folder has one: timm leaves empty classes out
    labeled = [name for name in TimmReaderImageFolder(str(tmp_path)).filenames() if '/' in name]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # three files are in no class folder
        ours = ReaderImageFolder(tmp_path)
    assert ours.filenames() == labeled
    # timm counts '' as a class, for the files in no folder
    assert list(ours.class_to_idx) == [name for name in TimmReaderImageFolder(str(tmp_path)).class_to_idx if name]


# ---- random erasing

ERASING = {
    'default': dict(), 'half': dict(probability=0.5), 'never': dict(probability=0.), 'three': dict(probability=0.8, max_count=3),
    'two or three': dict(min_count=2, max_count=3), 'large': dict(min_area=0.3, max_area=0.9, min_aspect=0.2),
    'does not fit': dict(min_area=0.95, max_area=1.5), 'tall': dict(probability=0.25, min_aspect=1., max_aspect=4.),
    'two splits': dict(num_splits=2), 'three splits': dict(num_splits=3, probability=0.7)}


@pytest.mark.parametrize('name', ERASING)
def test_erased_batch_is_timms(name):
    "The rectangles, drawn from one generator for all images, as timm has."
    settings, rows = dict(probability=1., device='cpu') | ERASING[name], torch.full((300, 3, 64, 96), 100, dtype=torch.uint8)
    for seed in range(3):
        random.seed(seed)
        timms = TimmRandomErasing(**settings)(rows.clone())
        ours = RandomErasing(**settings)(rows.clone(), [random.Random(seed)] * len(rows))
        assert torch.equal(timms, ours) and (ours == 0).any() == (name != 'never')


@pytest.mark.parametrize('mode', ['rand', 'pixel'])
def test_erased_pixels_have_timms_distribution(mode):
    def erased(kind, **settings):
        seed_all(0)
        images = kind(1., mode=mode, device='cpu', **settings)(torch.full((400, 3, 24, 20), 100.))
        return images[images != 100], [len(torch.unique(image[:, (image != 100).any(0)])) for image in images]
    (timms, timm_colors), (ours, our_colors) = erased(TimmRandomErasing), erased(RandomErasing)
    assert len(ours) == pytest.approx(len(timms), rel=0.1)
    # 'rand': 1200 colors, weighted by area
    assert abs(ours.mean() - timms.mean()) < 0.08 and abs(ours.std() - timms.std()) < 0.08
    if mode == 'rand': assert set(our_colors) == set(timm_colors) == {3}
    if mode == 'pixel': assert np.mean(our_colors) == pytest.approx(np.mean(timm_colors), rel=0.1)


@pytest.mark.parametrize('num_splits', [0, 1, 2, 3])
def test_erasing_leaves_the_same_part_of_a_batch_clean(num_splits):
    clean = []
    for kind in TimmRandomErasing, RandomErasing:
        images = kind(1., device='cpu', num_splits=num_splits)(torch.ones(7, 3, 24, 20))
        clean.append([bool((image == 1).all()) for image in images])
    assert clean[0] == clean[1]


# ---- words

OTHER_DEFAULT = {   # where our default differs, with the reason
    ('create_loader', 'input_size'): 'None with views', ('create_loader', 'batch_size'): 'follows it, and has none either',
    ('create_loader', 'device'): 'None is the best device there is', ('create_loader', 'pin_memory'): 'None is what the device needs',
    ('PrefetchLoader', 'device'): 'None is the best device there is', ('RandomErasing', 'device'): "the batch's own device"}
PAIRS = {'create_loader': (timm_data.create_loader, create_loader),
         'create_transform': (timm_data.create_transform, create_transform),
         'ImageDataset': (timm_data.ImageDataset, ImageDataset), 'PrefetchLoader': (TimmPrefetchLoader, PrefetchLoader),
         'RandomErasing': (TimmRandomErasing, RandomErasing)}


@pytest.mark.parametrize('name', PAIRS)
def test_defaults_and_positions_are_timms(name):
    "That all words are taken, `project/test_names.py` tests."
    timms, ours = (inspect.signature(what).parameters for what in PAIRS[name])
    differing = {p for p in timms if p in ours and timms[p].default != ours[p].default}
    assert differing == {p for owner, p in OTHER_DEFAULT if owner == name}
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    common = [p.name for p in ours.values() if p.kind in kinds and p.name in timms]
    assert common == [p.name for p in timms.values() if p.kind in kinds and p.name in ours][:len(common)]


def test_what_is_not_offered_yet_is_refused_and_not_ignored():
    data = dict(dataset=[(Image.new('RGB', (8, 8)), 0)], batch_size=1, device='cpu')
    for create, given in ((create_transform, {}), (create_loader, data)):
        create(input_size=(3, 8, 8), **given)
        with pytest.raises(NotImplementedError, match='not supported'): create(input_size=(3, 8, 8), tf_preprocessing=True, **given)
