"Compare rows of images with independent references: Pillow and torchvision."
import itertools
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from grids import quick
from oddities import ODDITIES
from pictures import differences, encoded, largest, photographs, psnr, random_colors, rgb
from PIL import Image, ImageEnhance
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import functional as F

from timmdata.core import jpeg as fast_decode
from timmdata.core.constants import IMAGENET_DEFAULT_STD
from timmdata.core.jpeg import Pixels, choose_factor, resolve_backend
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.pipeline.layout import BatchLayout, allocate_rows
from timmdata.pipeline.params import AppearanceParams, ParamSampler, SampleParams
from timmdata.pipeline.sample_transform import (
    DecodeSettings,
    SampleTransform,
    apply_color,
    apply_flips,
    crop_with_pillow,
    crop_with_torch,
)
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.geometry import str_to_pil_interp
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)
simplejpeg = pytest.param('simplejpeg', marks=pytest.mark.skipif(fast_decode.simplejpeg is None, reason='no simplejpeg'))
DECODERS = [simplejpeg, 'torchvision']
UNREADABLE = ['truncated.jpg', 'empty.jpg', 'text.jpg']
READABLE = [name for name in ODDITIES if name not in UNREADABLE]
STD = IMAGENET_DEFAULT_STD


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sampler_of(size, **settings) -> ParamSampler: return ParamSampler(AugmentSettings(size, **settings))


def fill(sampler: ParamSampler, backend: str | None, pixels: Pixels, row: torch.Tensor, key: SampleKey, here=()) -> SampleParams:
    "Fill one row, and return what was drawn for it."
    SampleTransform(sampler, DecodeSettings(backend))(pixels, [row], key, here=here)
    return sampler.sample_params(pixels.height, pixels.width, key)


class ReadOnce(Pixels):
    "Decode once per factor, in full; for tests of the steps after decoding."
    def _cut(self, bottom): return None

    def read(self, factor=1):
        if not hasattr(self, 'arrays'): self.arrays = {}
        if factor not in self.arrays: self.arrays[factor] = super().read(factor)
        return self.arrays[factor]


EVALUATION = [dict(), dict(crop_pct=0.95), dict(crop_pct=1.), dict(crop_mode='squash'), dict(crop_mode='border'),
              dict(crop_mode='border', crop_pct=1.1, crop_border_pixels=4)]
TRAINING = [dict(is_training=True, train_crop_mode=mode) for mode in ('rrc', 'rkrc', 'rkrr')]
SIZES = [(224, 224), (160, 208), (96, 64)]
# Values that may be two gray levels from Pillow's, as a share: none is further. torch rounds after each pass, and its weights
# have 16 bits, Pillow's 22; in 450 million values of bilinear, ten were two off.
TWO = {'bilinear': 1e-6, 'bicubic': 1e-4}


def assert_rounding(counts, one: float = 0.01, two: float = 1e-4):
    "Assert that no value differs by more than two levels, and at most these shares by one and two."
    assert counts[3:].sum() == 0 and counts[1] <= one * counts.sum() and counts[2] <= two * counts.sum(), counts[:6]


@pytest.mark.parametrize('source', ['samples', pytest.param('imagenet-200', marks=pytest.mark.full)])
@quick(1, 'kind', ['training', 'evaluation'])
@quick(1, 'interpolation', TWO)
def test_default_pixels_are_pillows_but_for_rounding(samples, interpolation, kind, source):
    counts, paths = Counter(), photographs(samples, source)
    for k, path in enumerate(paths):
        data = path.read_bytes()
        fast, exact = (ReadOnce if kind == 'evaluation' else Pixels)(data), Pixels(data, backend='pillow')
        assert (fast.height, fast.width) == (exact.height, exact.width)
        for n, settings in enumerate(EVALUATION if kind == 'evaluation' else TRAINING):
            sampler = sampler_of(SIZES[(k + n) % 3], interpolation=interpolation, **settings)
            rows = [allocate_rows(1, 3, sampler.size)[0] for _ in range(2)]
            choices = [fill(sampler, backend, pixels, row, SampleKey(k, 2, seed=1))
                       for backend, pixels, row in zip((None, 'pillow'), (fast, exact), rows)]
            assert choices[0] == choices[1]
            counts[str(settings)] += differences(*rows)
    assert len(paths) == dict(samples=80).get(source, 209)
    for name, found in counts.items():   # where the two directions shrink by other factors, bilinear weights give more halves
        one = 0.005 if interpolation == 'bicubic' else 0.07 if "'squash'" in name or "'rrc'" in name else 0.02
        assert_rounding(found, one, 2e-5)
    assert_rounding(sum(counts.values()), 0.05, TWO[interpolation])


@quick(1, 'name', ['nearest', 'box', 'hamming', 'lanczos'])
def test_other_interpolations_are_pillows(samples, name):
    data = (samples/'val/cat/0000.jpg').read_bytes()
    for settings in dict(), dict(crop_mode='border'), dict(is_training=True):
        sampler = sampler_of((96, 64), interpolation=name, **settings)
        rows = [allocate_rows(1, 3, (96, 64))[0] for _ in range(2)]
        for backend, row in zip((None, 'pillow'), rows):
            fill(sampler, backend, Pixels(data, backend=backend or 'auto'), row, SampleKey(0, 0))
        assert_rounding(differences(*rows))


@quick(4, 'edges', [(1, 1), (1, 300), (300, 1), (7, 500), (33, 47), (64, 96), (65, 97), (2000, 30)])
@quick(1, 'mode', ['RGB', 'L', 'RGBA'])
def test_odd_shapes_and_modes_are_pillows_but_for_rounding(edges, mode):
    channels = len(Image.new(mode, (1, 1)).getbands())
    noise = np.random.default_rng(0).integers(0, 256, (*edges, channels), np.uint8)
    image = Image.fromarray(noise if channels > 1 else noise[..., 0])
    for settings in [*EVALUATION[:5], *TRAINING]:
        sampler = sampler_of((64, 96), mean=(0.4,) * channels, **settings)
        for seed in range(3):
            rows = [allocate_rows(1, channels, (64, 96))[0] for _ in range(2)]
            for backend, row in zip((None, 'pillow'), rows):
                fill(sampler, backend, Pixels(image, mode=None), row, SampleKey(seed, 0))
            assert_rounding(differences(*rows), 0.25, 0)


@quick(2, 'settings', [
    dict(), dict(is_training=True, color_jitter=None, scaled_decode=False),
    dict(is_training=True, color_jitter=None, interpolation='bicubic', train_crop_mode='rkrr', scaled_decode=False)], ids=str)
@quick(1, 'use_prefetcher', [False, True])
def test_batches_are_pillows_but_for_rounding(samples, settings, use_prefetcher):
    dataset, scale = ImageDataset(samples, split='val'), 255 * torch.tensor(STD).view(3, 1, 1)
    loaders = [create_loader(dataset, (3, 96, 80), 40, device='cpu', seed=3, num_workers=2, backend=backend,
                             use_prefetcher=use_prefetcher, **settings) for backend in (None, 'pillow')]
    for (a, s), (b, t) in zip(*loaders, strict=True):
        far = (a - b).abs() * scale
        assert torch.equal(s, t) and far.max() < 2.01 and (far > 1.01).float().mean() < 1e-4 and far.max() > 0.5


def test_blur_is_the_same_on_both_backends(samples):
    data = (samples/'val/cat/0001.jpg').read_bytes()
    sampler = sampler_of((96, 96), is_training=True, gaussian_blur_prob=1.)
    rows = [allocate_rows(1, 3, (96, 96))[0] for _ in range(2)]
    choices = [fill(sampler, backend, Pixels(data), row, SampleKey(5, 0))
               for backend, row in zip((None, 'pillow'), rows)]
    assert choices[0] == choices[1] and 0.1 <= choices[0].blur <= 2 and largest(*rows) <= 1
    sharp = allocate_rows(1, 3, (96, 96))[0]
    sharp = F.pil_to_tensor(crop_with_pillow(Pixels(data), choices[0], sharp, sampler))
    assert torch.equal(F.gaussian_blur(sharp, [23, 23], [choices[0].blur] * 2), rows[1])


def test_row_in_the_middle_of_a_batch_leaves_its_neighbors_alone(samples):
    data = (samples/'val/cat/0002.jpg').read_bytes()
    for settings, backend in itertools.product([*EVALUATION, *TRAINING], (None, 'pillow')):
        memory = torch.full((3 * 3 * 40 * 56 + 9,), 7, dtype=torch.uint8)
        rows = BatchLayout({'image': (1, 3, 40, 56)}).allocate(3, memory)['image']
        fill(sampler_of((40, 56), **settings), backend, Pixels(data), rows[1], SampleKey(0, 0))
        assert (rows[0] == 7).all() and (rows[2] == 7).all() and (memory[-9:] == 7).all() and (rows[1] != 7).any()
        assert rows[1].permute(1, 2, 0).is_contiguous()


# ---- odd files, and files without the accelerator

@pytest.mark.parametrize('decoder', [*DECODERS, 'pillow'])
def test_odd_files_in_a_loader_are_pillows(samples, decoder):
    "Compare all rows of the folder of odd files: readable files equal except for rounding, unreadable ones are in the log."
    rows = {}
    for backend in decoder, 'pillow':
        dataset = ImageDataset(samples/'oddities', on_error='skip', exif_transpose=True)
        with pytest.warns(RuntimeWarning, match='skipped'):
            batch, = create_loader(dataset, (3, 48, 48), 20, device='cpu', num_workers=0, mean=0., std=1 / 255, backend=backend)
        rows[backend] = batch[0]
        assert sorted(Path(bad.path).name for bad in dataset.bad_samples) == sorted(UNREADABLE)
    assert len(rows[decoder]) == len(READABLE) and (rows[decoder] - rows['pillow']).abs().max() <= 1.001


@quick(1, 'missing', [['simplejpeg'], ['simplejpeg', 'nvimgcodec'], ['simplejpeg', 'nvimgcodec', 'torchcodec']])
def test_everything_works_without_the_fastest_decoders(samples, monkeypatch, missing):
    monkeypatch.setattr(fast_decode, 'simplejpeg', None)
    for name in missing: monkeypatch.setitem(fast_decode._FIND, name, lambda: None)
    fastest = resolve_backend()
    assert fastest == resolve_backend('auto') not in ('pillow', *missing)
    assert 'torchcodec' not in missing or fastest == 'torchvision'
    with pytest.raises(ImportError, match='pip install simplejpeg'): resolve_backend('simplejpeg')
    for path in photographs(samples, 'samples')[::5]:
        assert largest(Pixels(path.read_bytes()).read(), np.asarray(rgb(path.read_bytes()))) <= 1
    loader = create_loader(ImageDataset(samples), (3, 32, 32), 40, is_training=True, device='cpu', num_workers=2)
    assert sum(len(images) for images, _ in loader) == len(loader) * 40
    assert loader.loader.builder.sample_loader.sample_transforms[0].decode.decoder == fastest


# ---- DCT scaling

def large_jpegs(samples, folder=None) -> list[bytes]:
    "Return photographs as large as a camera's."
    found = []
    for k, name in enumerate(('cat', 'coffee', 'rocket', 'motorcycle', 'astronaut', 'tissue')):
        image = rgb((samples/f'val/{name}/000{k % 4}.jpg').read_bytes())
        found.append(encoded(image.resize([edge * (2, 4, 9)[k % 3] for edge in image.size], Image.Resampling.BICUBIC), quality=92))
        if folder:
            (folder/name).mkdir()
            (folder/name/'1.jpg').write_bytes(found[-1])
    return found


class RowsOfNoise(Pixels):
    "Record how many rows of a crop are not read."
    def read_crop(self, crop, factor=1):
        self.num_left_out = self.height - crop[2]
        return super().read_crop(crop, factor)


@quick(2, 'interpolation', ['bilinear', 'bicubic', 'lanczos'])
def test_a_part_of_a_resized_image(interpolation):
    "It equals Pillow's crop of the whole result, and rows that it does not need are not read."
    rng, num_left_out, sampler = random.Random(interpolation), 0, sampler_of(16)
    for seed in range(300):
        old = rng.randint(10, 300), rng.randint(10, 300)
        new = rng.randint(5, 320), rng.choice([old[1], rng.randint(5, 320)])
        shown = rng.randint(1, new[0]), rng.randint(1, new[1])
        top, left = rng.randint(0, new[0] - shown[0]), rng.randint(0, new[1] - shown[1])
        image = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*old, 3), np.uint8))
        pixels, row = RowsOfNoise(image, mode=None), allocate_rows(1, 3, shown)[0]
        crop_with_torch(pixels, SampleParams((0, 0, *old), new, (top, left), interpolation), row, sampler)
        num_left_out += pixels.num_left_out
        pillows = F.pil_to_tensor(image.resize(new[::-1], str_to_pil_interp(interpolation)))
        assert (row.int() - pillows[:, top:top + shown[0], left:left + shown[1]].int()).abs().max() <= 2
    assert num_left_out == 0 if interpolation == 'lanczos' else num_left_out > 2000


class Operations(TorchDispatchMode):
    "Count torch's operations."
    num = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.num += 1
        return func(*args, **kwargs or {})


@quick(2, 'mode', ['constant', 'edge', 'reflect', 'symmetric'])
@quick(1, 'channels', [3, 1])
def test_crops_that_are_padded_are_torchvisions(mode, channels):
    """This holds for any image and offset, even if the padding reflects several times. An image that is padded and not
    resized uses no operations of torch, because each passes Python's lock to other threads."""
    rng = np.random.default_rng(0)
    sampler = sampler_of((24, 20), is_training=True, train_crop_mode='rc', rc_padding=9, padding_mode=mode)
    num_padded = num_operations = 0
    for _ in range(60):
        height, width = rng.integers(6, 40, 2).tolist()
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).convert('RGB' if channels == 3 else 'L')
        top, left = (rng.integers(-9, max(1, edge - wanted + 9)).item() for edge, wanted in zip((height, width), (24, 20)))
        pixels, row = Pixels(image, mode=None), allocate_rows(1, channels, (24, 20))[0].fill_(7)
        params = SampleParams((0, 0, height, width), (height, width), (top, left), 'bilinear')
        with Operations() as operations: crop_with_torch(pixels, params, row, sampler)
        padding = [max(-left, 0), max(-top, 0), max(left + 20 - width, 0), max(top + 24 - height, 0)]
        padded = F.pad(image, padding, 0, mode)
        assert torch.equal(row, F.pil_to_tensor(F.crop(padded, max(top, 0), max(left, 0), 24, 20)))
        if any(padding): num_padded, num_operations = num_padded + 1, num_operations + operations.num
    assert num_padded > 30 and num_operations <= num_padded   # to view the row as an array


@quick(1, 'decoder', DECODERS)
@quick(1, 'interpolation', ['bilinear', 'bicubic'])
def test_dct_scaling_is_near_to_the_full_decode(samples, interpolation, decoder):
    """The PSNR is at least 37 dB, compared with the same crop decoded in full. The crop is rounded to pixels of the smaller
    picture: it moves by at most half of one, which is less than half a pixel of the result."""
    factors = Counter()
    for data, size, seed in itertools.product(large_jpegs(samples), ((96, 96), (64, 120)), range(4)):
        pixels, sampler = ReadOnce(data, backend=decoder), sampler_of(size, is_training=True, interpolation=interpolation)
        choices = sampler.sample_params(pixels.height, pixels.width, SampleKey(seed, 0))
        factor = choose_factor(choices.crop[2:], choices.size)
        factors[factor] += 1
        rounded = [factor * round(edge / factor) for edge in choices.crop]
        rounded[2:] = min(rounded[2], pixels.height - rounded[0]), min(rounded[3], pixels.width - rounded[1])
        assert np.abs(np.subtract(rounded, choices.crop)).max() <= factor
        rows = allocate_rows(2, 3, size)
        crop_with_torch(pixels, choices._replace(crop=tuple(rounded)), rows[0], sampler)
        crop_with_torch(pixels, choices, rows[1], sampler, scaled_decode=True)
        if factor == 1: assert torch.equal(*rows)
        else: assert psnr(*rows) > 37
    assert len(factors) == 4 and min(factors.values()) > 1, factors   # 1, 2, 4 and 8 are met


@quick(4, 'settings, scales', [
    (dict(), False), (dict(is_training=True), True), (dict(is_training=True, no_aug=True), False),
    (dict(is_training=True, scaled_decode=False), False), (dict(is_training=True, backend='pillow'), False),
    (dict(is_training=True, train_crop_mode='rkrr'), True), (dict(crop_mode='squash'), False),
    (dict(crop_mode='border', interpolation='bicubic'), False)], ids=str)
def test_dct_scaling_is_for_training_only(samples, tmp_path, monkeypatch, settings, scales):
    large_jpegs(samples, tmp_path)
    factors, original = [], fast_decode.decode_header
    def recording(data, header, factor=1, *args, **kwargs):
        factors.append(factor)
        return original(data, header, factor, *args, **kwargs)
    monkeypatch.setattr(fast_decode, 'decode_header', recording)
    loader = create_loader(ImageDataset(tmp_path), (3, 64, 64), 6, device='cpu', num_workers=0, seed=0, **settings)
    assert sum(len(images) for images, _ in loader) == 6
    assert (max(factors, default=1) > 1) == scales


# ---- colors one by one

PIL_ENHANCE = {'brightness': ImageEnhance.Brightness, 'contrast': ImageEnhance.Contrast, 'saturation': ImageEnhance.Color}
TORCHVISION = {'brightness': F.adjust_brightness, 'contrast': F.adjust_contrast, 'saturation': F.adjust_saturation,
               'hue': F.adjust_hue, 'grayscale': lambda image, _: F.rgb_to_grayscale(image, 3)}


@pytest.mark.parametrize('backend', [None, 'pillow'])
def test_exact_colors_of_the_host_stage_are_torchvisions(samples, backend):
    rng, kinds = random.Random(0), Counter()
    for k, path in enumerate(photographs(samples, 'samples')[::3]):
        data, sampler = path.read_bytes(), ParamSampler(AugmentSettings((48, 64), is_training=True), in_worker=True)
        here, rows = AppearanceParams(bool(k & 1), bool(k & 2), random_colors(rng)), allocate_rows(2, 3, (48, 64))
        for row, done in zip(rows, (AppearanceParams(), here)):
            fill(sampler, backend, Pixels(data, backend=backend or 'auto'), row, SampleKey(k, 0), [done])
        image = rows[0] if backend is None else Image.fromarray(rows[0].permute(1, 2, 0).numpy())
        for name, factor in here.color:
            changed = TORCHVISION[name](image, factor)
            if backend and name in PIL_ENHANCE: assert PIL_ENHANCE[name](image).enhance(factor) == changed
            image = changed
            kinds[name] += 1
        expected = image if backend is None else F.pil_to_tensor(image)
        for axis, flip in (2, here.hflip), (1, here.vflip): expected = expected.flip(axis) if flip else expected
        assert torch.equal(rows[1], expected)
    assert len(kinds) == 5


@quick(1, 'backend', [None, 'pillow'])
@quick(1, 'num_workers', [0, 2])
def test_exact_mode_of_a_loader_is_torchvision_on_the_replayed_choices(samples, backend, num_workers):
    settings = dict(input_size=(3, 40, 48), batch_size=16, is_training=True, seed=8, device='cpu', num_workers=num_workers,
                    color_jitter=(0.4, 0.4, 0.4, 0.2), grayscale_prob=0.2, vflip=0.5, backend=backend, mean=0., std=1 / 255)
    loader = create_loader(ImageDataset(samples), color_jitter_mode='exact', **settings)
    plain = create_loader(ImageDataset(samples), **{**settings, 'color_jitter': None, 'grayscale_prob': 0., 'vflip': 0., 'hflip': 0.})
    for batch, ((images, targets), (rows, same)) in enumerate(zip(loader, plain, strict=True)):
        choices = loader.replay(0, batch).appearance_params
        assert torch.equal(targets, same) and len(choices) == 16 and any(c.color for c in choices)
        for image, row, choice in zip(images, rows, choices):
            row = row.round().to(torch.uint8)
            changed = row if backend is None else F.to_pil_image(row)
            for name, factor in choice.color: changed = TORCHVISION[name](changed, factor)
            changed = changed.clone() if backend is None else F.pil_to_tensor(changed)
            apply_flips(changed, choice)
            assert (image - changed).abs().max() < 1e-3


@pytest.mark.parametrize('mode', ['fused', 'exact'])
def test_replayed_choices_are_the_same_for_both_modes(samples, mode):
    settings = dict(input_size=(3, 32, 32), batch_size=8, is_training=True, seed=8, device='cpu', num_workers=0)
    choices = [create_loader(ImageDataset(samples), color_jitter_mode=m, **settings).replay(0, 1).appearance_params
               for m in ('fused', mode)]
    assert choices[0] == choices[1] and all(c.color for c in choices[0])


COLORS = dict(brightness=F.adjust_brightness, contrast=F.adjust_contrast, saturation=F.adjust_saturation, hue=F.adjust_hue,
              grayscale=lambda image, factor: F.rgb_to_grayscale(image, len(image)))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('name', COLORS)
def test_colors_of_tensors_are_torchvisions_in_any_default_dtype(name, channels, dtype):
    "torchvision multiplies uint8 by a Python number, in torch's default dtype; our results are those in float32."
    [image] = allocate_rows(1, channels, (40, 30))
    image.copy_(torch.randint(0, 256, image.shape, generator=torch.Generator().manual_seed(0)))
    factors = (0.3, -0.45, 0.07) if name == 'hue' else (0.3, 0.71, 1., 1.9, 0.)
    for factor in factors:
        expected = COLORS[name](image, factor)
        torch.set_default_dtype(dtype)   # the fixture of all tests restores it
        found = apply_color(image, [(name, factor)])
        torch.set_default_dtype(torch.float32)
        assert found.dtype == torch.uint8 and torch.equal(found, expected), factor
