"The two stages against oracles that are not ours: Pillow, torchvision, and small implementations in NumPy and Python."
import gc
import io
import itertools
import random
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFile, ImageOps
from shared_data import shared_data
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from timmdata.core import jpeg as fast_decode
from timmdata.core.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timmdata.core.decode import decode_image
from timmdata.core.demo_data import ODDITIES
from timmdata.core.faults import ImageReadError
from timmdata.core.jpeg import Pixels, choose_factor, decode_header, read_header, resolve_backend
from timmdata.core.memory_pool import MemoryPool
from timmdata.core.rng import KeyedRandom
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.pipeline.batch_transform import BatchTransform, change_batch, color_matrices
from timmdata.pipeline.params import AppearanceParams, Augmentation, CenterGeometry, create_augmentation
from timmdata.pipeline.sample_transform import (
    SampleTransform,
    allocate_rows,
    apply_color,
    apply_flips,
    crop_with_pillow,
    crop_with_torch,
)
from timmdata.samplers.epoch import SampleKey

pytestmark = pytest.mark.timeout(120)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
simplejpeg = pytest.param('simplejpeg', marks=pytest.mark.skipif(fast_decode.simplejpeg is None, reason='no simplejpeg'))
DECODERS = [simplejpeg, 'torchvision']
UNREADABLE = ['truncated.jpg', 'empty.jpg', 'text.jpg']
READABLE = [name for name in ODDITIES if name not in UNREADABLE]
MEAN, STD = IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def encoded(image, format='jpeg', **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(data) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image: return image.convert('RGB')


def photographs(samples, source) -> list[Path]:
    if source == 'samples': return sorted(samples.glob('val/*/*'))
    return sorted(shared_data(source).rglob('*.JPEG'))


def differences(a, b) -> np.ndarray:
    "How many values differ by 0, 1, 2, …"
    a, b = (np.asarray(x).astype(np.int16) for x in (a, b))
    assert a.shape == b.shape
    return np.bincount(np.abs(a - b).ravel(), minlength=256)


def largest(a, b) -> int: return int(differences(a, b).nonzero()[0].max())


def psnr(a, b) -> float:
    error = ((a.double() - b.double())**2).mean().item()
    return 10 * np.log10(255**2 / error) if error else 99.


# ---- the host stage beside Pillow

class ReadOnce(Pixels):
    "Decodes once for each factor, in full; where the tests are about what comes after it."
    def read(self, factor=1, bottom=None):
        if not hasattr(self, 'arrays'): self.arrays = {}
        if factor not in self.arrays: self.arrays[factor] = super().read(factor)
        return self.arrays[factor]


EVALUATION = [dict(), dict(crop_pct=0.95), dict(crop_pct=1.), dict(crop_mode='squash'), dict(crop_mode='border'),
              dict(crop_mode='border', crop_pct=1.1, crop_border_pixels=4)]
TRAINING = [dict(is_training=True, train_crop_mode=mode) for mode in ('rrc', 'rkrc', 'rkrr')]
SIZES = [(224, 224), (160, 208), (96, 64)]
# Values that may be further than one grey level from Pillow's, as a share: none is further than two. torch's weights
# have 16 bits, Pillow's 22; in 450 million values of bilinear, ten were two off.
ABOVE_ONE = {'bilinear': 1e-6, 'bicubic': 1e-4}


@pytest.mark.parametrize('source', ['samples', 'imagenet-200'])
@pytest.mark.parametrize('kind', ['evaluation', 'training'])
@pytest.mark.parametrize('interpolation', ABOVE_ONE)
def test_default_pixels_are_pillows_within_one_grey_level(samples, interpolation, kind, source):
    counts, paths = np.zeros(256, np.int64), photographs(samples, source)
    for k, path in enumerate(paths):
        data = path.read_bytes()
        fast, exact = (ReadOnce if kind == 'evaluation' else Pixels)(data), Pixels(data, backend='pillow')
        assert (fast.height, fast.width) == (exact.height, exact.width)
        for n, settings in enumerate(EVALUATION if kind == 'evaluation' else TRAINING):
            augmentation = create_augmentation(SIZES[(k + n) % 3], interpolation=interpolation, **settings)
            rows = [allocate_rows(1, 3, augmentation.size)[0] for _ in range(2)]
            choices = [SampleTransform(augmentation, backend)(pixels, row, KeyedRandom(1, 2, k))
                       for backend, pixels, row in zip((None, 'pillow'), (fast, exact), rows)]
            assert choices[0] == choices[1]
            counts += differences(*rows)
    assert len(paths) == dict(samples=80).get(source, 209) and counts[3:].sum() == 0
    assert counts[2] <= ABOVE_ONE[interpolation] * counts.sum() and counts[0] > 0.97 * counts.sum(), counts[:3]


@pytest.mark.parametrize('name', ['nearest', 'box', 'hamming', 'lanczos'])
def test_other_interpolations_are_pillows(samples, name):
    data = (samples/'val/cat/0000.jpg').read_bytes()
    for settings in dict(), dict(crop_mode='border'), dict(is_training=True):
        augmentation = create_augmentation((96, 64), interpolation=name, **settings)
        rows = [allocate_rows(1, 3, (96, 64))[0] for _ in range(2)]
        for backend, row in zip((None, 'pillow'), rows):
            SampleTransform(augmentation, backend)(Pixels(data, backend=backend or 'auto'), row, KeyedRandom(0, 0, 0))
        assert largest(*rows) <= 1   # of decoding


@pytest.mark.parametrize('edges', [(1, 1), (1, 300), (300, 1), (7, 500), (33, 47), (64, 96), (65, 97), (2000, 30)])
@pytest.mark.parametrize('mode', ['RGB', 'L', 'RGBA'])
def test_odd_shapes_and_modes_are_pillows_within_one_grey_level(edges, mode):
    channels = len(Image.new(mode, (1, 1)).getbands())
    noise = np.random.default_rng(0).integers(0, 256, (*edges, channels), np.uint8)
    image = Image.fromarray(noise if channels > 1 else noise[..., 0])
    for settings in [*EVALUATION[:5], *TRAINING]:
        augmentation = create_augmentation((64, 96), mean=(0.4,) * channels, **settings)
        for seed in range(3):
            rows = [allocate_rows(1, channels, (64, 96))[0] for _ in range(2)]
            for backend, row in zip((None, 'pillow'), rows):
                SampleTransform(augmentation, backend)(Pixels(image, mode=None), row, random.Random(seed))
            assert largest(*rows) <= 1, (settings, seed)


@pytest.mark.parametrize('settings', [
    dict(), dict(is_training=True, color_jitter=None, dct_scaling=False),
    dict(is_training=True, color_jitter=None, interpolation='bicubic', train_crop_mode='rkrr', dct_scaling=False)], ids=str)
@pytest.mark.parametrize('use_prefetcher', [False, True])
def test_batches_are_pillows_within_one_grey_level(samples, settings, use_prefetcher):
    dataset, scale = ImageDataset(samples, split='val'), 255 * torch.tensor(STD).view(3, 1, 1)
    loaders = [create_loader(dataset, (3, 96, 80), 40, device='cpu', seed=3, num_workers=2, backend=backend,
                             use_prefetcher=use_prefetcher, **settings) for backend in (None, 'pillow')]
    for (a, s), (b, t) in zip(*loaders, strict=True):
        far = (a - b).abs() * scale
        assert torch.equal(s, t) and far.max() < 2.01 and (far > 1.01).float().mean() < 1e-4 and far.max() > 0.5


def test_blur_is_the_same_on_both_backends(samples):
    data = (samples/'val/cat/0001.jpg').read_bytes()
    augmentation = create_augmentation((96, 96), is_training=True, gaussian_blur_prob=1.)
    rows = [allocate_rows(1, 3, (96, 96))[0] for _ in range(2)]
    choices = [SampleTransform(augmentation, backend)(Pixels(data), row, KeyedRandom(0, 0, 5))
               for backend, row in zip((None, 'pillow'), rows)]
    assert choices[0] == choices[1] and 0.1 <= choices[0].blur <= 2 and largest(*rows) <= 1
    sharp = allocate_rows(1, 3, (96, 96))[0]
    sharp = F.pil_to_tensor(crop_with_pillow(Pixels(data), choices[0], sharp, augmentation))
    assert torch.equal(F.gaussian_blur(sharp, [23, 23], [choices[0].blur] * 2), rows[1])


def test_row_in_the_middle_of_a_batch_leaves_its_neighbours_alone(samples):
    data = (samples/'val/cat/0002.jpg').read_bytes()
    for settings, backend in itertools.product([*EVALUATION, *TRAINING], (None, 'pillow')):
        memory = torch.full((3 * 3 * 40 * 56 + 9,), 7, dtype=torch.uint8)
        rows = allocate_rows(3, 3, (40, 56), memory)
        SampleTransform(create_augmentation((40, 56), **settings), backend)(Pixels(data), rows[1], random.Random(0))
        assert (rows[0] == 7).all() and (rows[2] == 7).all() and (memory[-9:] == 7).all() and (rows[1] != 7).any()
        assert rows[1].permute(1, 2, 0).is_contiguous()


# ---- decoders

@pytest.mark.parametrize('source', ['samples', 'imagenet-200'])
@pytest.mark.parametrize('decoder', DECODERS)
def test_decoders_agree_with_pillow(samples, decoder, source):
    for path in photographs(samples, source):
        data = path.read_bytes()
        header, image = read_header(data, decoder), rgb(data)
        assert header == (image.height, image.width)
        array = decode_header(data, header, 1, decoder)
        assert array.dtype == np.uint8 and largest(array, np.asarray(image)) <= 1, path


KINDS = {f'{subsampling}, quality {quality}, {"progressive" if progressive else "baseline"}': dict(
             subsampling=subsampling, quality=quality, progressive=progressive)
         for subsampling, quality, progressive in itertools.product(('4:4:4', '4:2:2', '4:2:0'), (20, 98), (False, True))}
KINDS |= {'optimised': dict(optimize=True), 'restarts': dict(restart_marker_rows=1), 'adobe RGB': dict(keep_rgb=True),
          'grey': dict(mode='L'), 'CMYK': dict(mode='CMYK'), 'YCbCr': dict(mode='YCbCr'), 'with a profile': dict(icc_profile=b'x' * 90000),
          'comment': dict(comment=b'Exif' * 9), 'dpi': dict(dpi=(300, 300))}


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', KINDS)
def test_kinds_of_jpeg_agree_with_pillow(samples, name, decoder):
    options = dict(KINDS[name])
    image = rgb((samples/'val/cat/0003.jpg').read_bytes())
    image = image.convert(options.pop('mode', 'RGB'))
    for edges in (113, 87), (16, 16), (8, 1), (1, 1):
        data = encoded(image.resize(edges), **options)
        pixels = Pixels(data, backend=decoder)
        array, expected = pixels.read(), np.asarray(decode_image(data))
        assert (pixels.height, pixels.width) == expected.shape[:2] and largest(array, expected) <= 1
        is_ordinary = name not in ('CMYK', 'adobe RGB') or (name == 'adobe RGB' and decoder == 'torchvision')
        assert (read_header(data, decoder) is not None) == is_ordinary


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', READABLE)
def test_oddity_is_what_decode_image_makes_of_it(samples, name, decoder):
    data = (samples/'oddities'/name).read_bytes()
    for settings in dict(), dict(exif_transpose=True), dict(background=(9, 200, 90)), dict(mode='L'), dict(mode=None):
        pixels, expected = Pixels(data, backend=decoder, **settings), np.asarray(decode_image(data, **{'mode': 'RGB', **settings}))
        assert (pixels.height, pixels.width) == expected.shape[:2]
        for factor in 1, 2: pixels.read(factor)
        is_ordinary = name in ('grey.jpg', 'progressive.jpg', 'exif_rotated.jpg') and settings.get('mode', 'RGB') == 'RGB'
        assert np.array_equal(pixels.read(), expected) if not is_ordinary else largest(pixels.read(), expected) <= 1
        if name == 'exif_rotated.jpg':
            with Image.open(io.BytesIO(data)) as file: turned = file.size == expected.shape[:2]
            assert turned == ('exif_transpose' in settings)


@pytest.mark.parametrize('where', ['Exif', 'Exif behind 130 kB', 'XMP', 'XMP element'])
@pytest.mark.parametrize('decoder', DECODERS)
def test_orientation_is_found_wherever_pillow_finds_it(where, decoder):
    image, options = Image.effect_noise((60, 40), 80).convert('RGB'), {}
    if 'Exif' in where:
        options['exif'] = Image.Exif()
        options['exif'][0x0112] = 6
    else:
        inside = b' tiff:Orientation="6"/>' if where == 'XMP' else b'><tiff:Orientation>6</tiff:Orientation></rdf:Description>'
        options['xmp'] = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description' + inside + b'</x:xmpmeta>'
    data = encoded(image, **options)
    if 'behind' in where: data = data[:2] + (b'\xff\xfe' + (65000).to_bytes(2, 'big') + bytes(64998)) * 2 + data[2:]
    with Image.open(io.BytesIO(data)) as file: expected = ImageOps.exif_transpose(file).convert('RGB')
    pixels = Pixels(data, exif_transpose=True, backend=decoder)
    assert expected.size == (40, 60) and np.array_equal(pixels.read(), np.asarray(expected))
    assert (pixels.height, pixels.width) == (60, 40)
    assert Pixels(data, backend=decoder).read().shape == (40, 60, 3)


@pytest.mark.parametrize('decoder', [*DECODERS, 'pillow', 'auto'])
@pytest.mark.parametrize('name', UNREADABLE)
def test_unreadable_file_is_decode_images_error(samples, name, decoder):
    data = (samples/'oddities'/name).read_bytes()
    with pytest.raises(ImageReadError) as expected: decode_image(data)
    with pytest.raises(ImageReadError) as raised: Pixels(data, backend=decoder).read()
    assert str(raised.value).split(' at 0x')[0] == str(expected.value).split(' at 0x')[0]   # Pillow names an object in memory


@pytest.mark.parametrize('decoder', DECODERS)
def test_damaged_bytes_are_pillows_pixels_or_its_error(samples, decoder):
    "Pillow decides what is an image. No decoder lets through what Pillow refuses, or gives other pixels."
    rng, outcomes = np.random.default_rng(0), Counter()
    whole = [encoded(rgb((samples/'val/coffee/0000.jpg').read_bytes()).resize((80, 60)), **options)
             for options in (dict(), dict(progressive=True), dict(restart_marker_rows=1))]
    for k in range(450):
        data = bytearray(whole[k % 3])
        for place in rng.integers(2, len(data), rng.integers(0, 4)): data[place] = rng.integers(0, 256)
        data = bytes(data[:rng.integers(len(data) // 2, len(data) + 1)] if k % 5 == 0 else data) + bytes(int(k % 7 == 0))
        try: expected = np.asarray(decode_image(data))
        except ImageReadError:
            with pytest.raises(ImageReadError): Pixels(data, backend=decoder).read()
            outcomes['error'] += 1
        else:
            assert largest(Pixels(data, backend=decoder).read(), expected) <= 1, k
            outcomes['image'] += 1
    assert min(outcomes.values()) > 50, outcomes


def test_large_pictures_are_left_to_pillows_limit(samples, monkeypatch):
    data = encoded(Image.new('RGB', (100, 100)))
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 9_000)
    with pytest.warns(Image.DecompressionBombWarning): assert Pixels(data).read().shape == (100, 100, 3)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 4_000)
    with pytest.raises(ImageReadError, match='DecompressionBombError'): Pixels(data)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', None)
    assert Pixels(data).read().shape == (100, 100, 3)


@pytest.mark.parametrize('decoder', [*DECODERS, 'pillow'])
def test_odd_files_in_a_loader_are_pillows(samples, decoder):
    "Whole rows of the oddities folder: readable ones within a grey level, unreadable ones in the log."
    rows = {}
    for backend in decoder, 'pillow':
        dataset = ImageDataset(samples/'oddities', on_error='skip', exif_transpose=True)
        with pytest.warns(RuntimeWarning, match='skipped'):
            batch, = create_loader(dataset, (3, 48, 48), 20, device='cpu', num_workers=0, mean=0., std=1 / 255, backend=backend)
        rows[backend] = batch[0]
        assert sorted(Path(bad.path).name for bad in dataset.bad_samples) == sorted(UNREADABLE)
    assert len(rows[decoder]) == len(READABLE) and (rows[decoder] - rows['pillow']).abs().max() <= 1.001


# ---- no more rows than the crop needs

@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', KINDS)
def test_rows_that_are_needed_are_those_of_the_full_decode(samples, name, decoder):
    options = dict(KINDS[name])
    image = rgb((samples/'val/cat/0003.jpg').read_bytes()).convert(options.pop('mode', 'RGB'))
    for edges in (113, 87), (64, 128), (40, 250):
        data = encoded(image.resize(edges), **options)
        for factor in 1, 2, 4, 8:
            pixels = Pixels(data, backend=decoder)
            full = pixels.read(factor)
            for bottom in sorted({1, 2, 7, 8, 9, 16, 17, 33, 64, edges[1] - 1, edges[1]}):
                part = pixels.read(factor, bottom=bottom)
                rows = -(-bottom // factor) if full.shape[0] < edges[1] else bottom
                assert part.shape[1:] == full.shape[1:] and rows <= len(part) <= len(full)
                assert np.array_equal(part[:rows], full[:rows]), (edges, factor, bottom)


@pytest.mark.parametrize('decoder', DECODERS)
def test_fewer_rows_are_decoded_in_silence(samples, decoder, capfd):
    "libjpeg writes its warnings to the standard error file: a user must see none for a file that is in order."
    data = encoded(rgb((samples/'val/cat/0003.jpg').read_bytes()).resize((64, 256)))
    num_rows = len(Pixels(data, backend=decoder).read(bottom=100))
    assert num_rows < 120 if decoder == 'simplejpeg' else num_rows == 256
    assert capfd.readouterr() == ('', '')


@pytest.mark.parametrize('decoder', DECODERS)
def test_needed_rows_of_photographs_are_those_of_the_full_decode(samples, decoder):
    rng = random.Random(0)
    for path in photographs(samples, 'imagenet-200')[::2]:
        data = path.read_bytes()
        pixels, image = Pixels(data, backend=decoder), np.asarray(rgb(data))
        for bottom in rng.sample(range(1, pixels.height + 1), 2):
            assert largest(pixels.read(bottom=bottom)[:bottom], image[:bottom]) <= 1, path


@pytest.mark.parametrize('decoder', DECODERS)
def test_needed_rows_of_damaged_files_are_pillows_or_its_error(samples, decoder, monkeypatch):
    "Damage below the needed rows is not always seen; then these rows are what Pillow reads before it gives up."
    rng, outcomes = np.random.default_rng(1), Counter()
    whole = [encoded(rgb((samples/'val/coffee/0000.jpg').read_bytes()).resize((80, 160)), **options)
             for options in (dict(), dict(progressive=True), dict(restart_marker_rows=1))]
    for k in range(900):
        data, bottom = bytearray(whole[k % 3]), int(rng.integers(1, 150))
        for place in rng.integers(2, len(data), rng.integers(0, 4)): data[place] = rng.integers(0, 256)
        data = bytes(data[:rng.integers(len(data) // 2, len(data) + 1)] if k % 5 == 0 else data)
        try: expected = np.asarray(decode_image(data))
        except ImageReadError:
            outcomes['error'] += 1
            try: rows = Pixels(data, backend=decoder).read(bottom=bottom)[:bottom]
            except ImageReadError: continue
            with monkeypatch.context() as patch:
                patch.setattr(ImageFile, 'LOAD_TRUNCATED_IMAGES', True)
                assert largest(rows, np.asarray(decode_image(data))[:bottom]) <= 1, k
            outcomes['not seen'] += 1
        else:
            bottom = min(bottom, len(expected))
            assert largest(Pixels(data, backend=decoder).read(bottom=bottom)[:bottom], expected[:bottom]) <= 1, k
            outcomes['image'] += 1
    assert min(outcomes['image'], outcomes['error']) > 100 and outcomes['not seen'] < 10, outcomes


# ---- without the accelerator

@pytest.fixture
def without_simplejpeg(monkeypatch):
    monkeypatch.setattr(fast_decode, 'simplejpeg', None)


def test_everything_works_without_simplejpeg(samples, without_simplejpeg):
    assert resolve_backend() == resolve_backend('auto') == 'torchvision'
    with pytest.raises(ImportError, match='timmdata.fast'): resolve_backend('simplejpeg')
    for path in photographs(samples, 'samples')[::5]:
        assert largest(Pixels(path.read_bytes()).read(), np.asarray(rgb(path.read_bytes()))) <= 1
    loader = create_loader(ImageDataset(samples), (3, 32, 32), 40, is_training=True, device='cpu', num_workers=2)
    assert sum(len(images) for images, _ in loader) == len(loader) * 40
    assert loader.loader.builder.sample_transform.backend == 'torchvision'


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('factor', [1, 2, 4, 8])
def test_factor_gives_a_part_of_height_and_width_rounded_up(factor, decoder):
    rng = np.random.default_rng(0)
    for height, width in [(8, 8), (9, 15), (15, 9), (16, 17), (33, 47), (64, 200), (199, 63), (8, 500)]:
        data = encoded(Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)), quality=50)
        small = decode_header(data, read_header(data, decoder), factor, decoder)
        assert small.shape == (-(-height // factor), -(-width // factor), 3)


@pytest.mark.skipif(fast_decode.simplejpeg is None, reason='no simplejpeg')
@pytest.mark.parametrize('factor', [2, 4, 8])
def test_decoders_agree_on_smaller_pictures(samples, factor):
    for name in 'cat', 'coffee', 'rocket':
        data = (samples/f'val/{name}/0000.jpg').read_bytes()
        pair = [decode_header(data, read_header(data), factor, decoder) for decoder in ('simplejpeg', 'torchvision')]
        assert largest(*pair) <= 1


# ---- DCT scaling

def large_jpegs(samples, folder=None) -> list[bytes]:
    "Photographs in the size of a camera's."
    found = []
    for k, name in enumerate(('cat', 'coffee', 'rocket', 'motorcycle', 'astronaut', 'tissue')):
        image = rgb((samples/f'val/{name}/000{k % 4}.jpg').read_bytes())
        found.append(encoded(image.resize([edge * (2, 4, 9)[k % 3] for edge in image.size], Image.Resampling.BICUBIC), quality=92))
        if folder:
            (folder/name).mkdir()
            (folder/name/'1.jpg').write_bytes(found[-1])
    return found


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('interpolation', ['bilinear', 'bicubic'])
def test_dct_scaling_is_near_to_the_full_decode(samples, interpolation, decoder):
    """At least 37 dB beside the same crop decoded in full. The crop itself is rounded to pixels of the smaller picture: it
    moves by half of one at most, which is less than half a pixel of the result."""
    factors = Counter()
    for data, size, seed in itertools.product(large_jpegs(samples), ((96, 96), (64, 120)), range(4)):
        pixels, augmentation = ReadOnce(data, backend=decoder), create_augmentation(size, True, interpolation=interpolation)
        choices = augmentation.sample_params(pixels.height, pixels.width, KeyedRandom(0, 0, seed))
        factor = choose_factor(choices.crop[2:], choices.size)
        factors[factor] += 1
        rounded = [factor * round(edge / factor) for edge in choices.crop]
        rounded[2:] = min(rounded[2], pixels.height - rounded[0]), min(rounded[3], pixels.width - rounded[1])
        assert np.abs(np.subtract(rounded, choices.crop)).max() <= factor
        rows = allocate_rows(2, 3, size)
        crop_with_torch(pixels, choices._replace(crop=tuple(rounded)), rows[0], augmentation)
        crop_with_torch(pixels, choices, rows[1], augmentation, dct_scaling=True)
        if factor == 1: assert torch.equal(*rows)
        else: assert psnr(*rows) > 37
    assert len(factors) == 4 and min(factors.values()) > 1, factors   # 1, 2, 4 and 8 are met


def test_dct_scaling_covers_the_result():
    for crop, size in itertools.product([(224, 224), (447, 600), (448, 448), (900, 899), (1792, 1791), (1792, 9999)],
                                        [(224, 224), (112, 224), (1, 1)]):
        factor = choose_factor(crop, size)
        assert factor in (1, 2, 4, 8) and (factor == 1 or all(c >= factor * s for c, s in zip(crop, size)))
        assert factor == 8 or any(c < 2 * factor * s for c, s in zip(crop, size))


@pytest.mark.parametrize('settings, scales', [
    (dict(), False), (dict(crop_mode='squash'), False), (dict(crop_mode='border', interpolation='bicubic'), False),
    (dict(is_training=True, no_aug=True), False), (dict(is_training=True, dct_scaling=False), False),
    (dict(is_training=True, backend='pillow'), False), (dict(is_training=True), True),
    (dict(is_training=True, train_crop_mode='rkrr'), True)], ids=str)
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


# ---- the geometry of evaluation

EDGES = [1, 2, 3, 5, 31, 32, 33, 47, 64, 99, 100, 101, 223, 256, 333, 500]


def window_of(image, crop) -> tuple[int, int]:
    "Where a crop was taken, read off pixels that say their place; the first pixel of the image in the result counts."
    place = crop[0].nonzero()[0].tolist()
    value = int(crop[0, place[0], place[1]]) - 1
    return value // image.shape[2] - place[0], value % image.shape[2] - place[1]


@pytest.mark.parametrize('size, crop_pct', [((224, 224), None), ((224, 224), 1.), ((33, 33), 0.9), ((7, 7), 0.3)])
@pytest.mark.parametrize('mode', ['center', 'squash'])
def test_evaluation_is_resize_and_center_crop_of_torchvision(size, crop_pct, mode):
    geometry = CenterGeometry(size, crop_pct, mode)
    scaled = int(size[0] / (crop_pct or 0.875))
    for height, width in itertools.product(EDGES, EDGES):
        blank = torch.zeros(1, 1, 1).expand(1, height, width)
        resized = F.resize(blank, scaled if mode == 'center' else [scaled, scaled], InterpolationMode.NEAREST)
        choices = geometry(height, width)
        assert choices.crop == (0, 0, height, width) and choices.size == tuple(resized.shape[1:]), (height, width)
        if max(resized.shape) > 4000: continue
        image = torch.arange(1., 1. + resized.numel(), dtype=torch.float64).view(resized.shape)
        assert choices.window == window_of(image, F.center_crop(image, list(size))), (height, width)


@pytest.mark.parametrize('size', [(3, 5), (4, 4), (30, 41), (41, 30), (64, 64)])
def test_windows_of_any_crop_are_torchvisions(size):
    "Sizes with a ratio of their own: resizing keeps it, and the crop pads where the picture is smaller."
    geometry = CenterGeometry(size, 0.9, 'border')
    for height, width in itertools.product(EDGES, EDGES):
        resized = geometry(height, width).size
        image = torch.arange(1., 1. + resized[0] * resized[1], dtype=torch.float64).view(1, *resized)
        assert geometry(height, width).window == window_of(image, F.center_crop(image, list(size))), (height, width)


# ---- the device stage

def numpy_colors(image: np.ndarray, color) -> np.ndarray:
    "One operation after the other on float64 (H, W, C), without clipping in between."
    x = image.astype(np.float64)
    for name, factor in color:
        is_rgb = x.shape[2] == 3
        grey = 0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2] if is_rgb else x[..., 0]
        if name == 'brightness': x = x * factor
        elif name == 'contrast': x = (x - grey.mean()) * factor + grey.mean()
        elif name == 'saturation': x = (x - grey[..., None]) * factor + grey[..., None]
        elif name == 'grayscale': x = np.repeat(grey[..., None], x.shape[2], 2)
        elif is_rgb:   # hue: the chrominance (I, Q) is turned
            i = 0.596 * x[..., 0] - 0.274 * x[..., 1] - 0.322 * x[..., 2]
            q = 0.211 * x[..., 0] - 0.523 * x[..., 1] + 0.312 * x[..., 2]
            turned = (i + 1j * q) * np.exp(-2j * np.pi * factor)
            yiq = np.stack([grey, turned.real, turned.imag], -1)
            matrix = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
            x = np.linalg.solve(matrix, yiq.reshape(-1, 3).T).T.reshape(x.shape)
    return np.clip(x, 0, 255)


RANGES = {'brightness': (0.6, 1.4), 'contrast': (0.6, 1.4), 'saturation': (0.6, 1.4), 'hue': (-0.5, 0.5), 'grayscale': (0, 0)}


def random_colors(rng: random.Random) -> tuple:
    names = rng.sample(list(RANGES), rng.randint(0, 5))
    return tuple((name, rng.uniform(*RANGES[name])) for name in names)


class Fixed(Augmentation):
    "An augmentation whose choices are given, by sample."
    def __init__(self, choices): self.all, self.changes_pixels, self.changes_color = choices, True, True
    changes_pixels = changes_color = None
    def appearance_params(self, rng): return self.all[rng.index]


class FixedStage(BatchTransform):
    def choices(self, keys): return [self.augmentation.all[key.index] for key in keys]


def uint8_batch(num, channels, height, width, seed=0, layout=torch.channels_last) -> torch.Tensor:
    "Blobs of colour with some noise: neither flat nor clipped everywhere."
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.uniform(20, 235, (num, channels, 3, 3)).astype(np.float32))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode='bilinear')
    noisy = smooth + torch.from_numpy(rng.normal(0, 20, smooth.shape).astype(np.float32))
    return noisy.clamp(0, 255).to(torch.uint8).contiguous(memory_format=layout)


def keys_of(num, epoch=0) -> list[SampleKey]: return [SampleKey(k, epoch) for k in range(num)]


def stats(channels): return (MEAN, STD) if channels == 3 else ((0.4,) * channels, (0.3,) * channels)


SHAPES = [(3, 33, 47), (3, 224, 224), (3, 30, 2), (3, 1, 1), (1, 33, 47), (1, 16, 16), (3, 5, 4)]


@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_fused_colors_are_the_composition_in_float64(shape):
    rng, num = random.Random(0), 40
    choices = [AppearanceParams(rng.random() < 0.5, rng.random() < 0.5, random_colors(rng)) for _ in range(num)]
    images, (mean, std) = uint8_batch(num, *shape), stats(shape[0])
    out = FixedStage(mean, std, augmentation=Fixed(choices))(images, keys_of(num))
    whole = change_batch(images, choices, mean, std)
    assert torch.allclose(out, whole, rtol=0, atol=1e-4)
    for image, choice, row in zip(images, choices, out):
        array = image.permute(1, 2, 0).numpy()
        if choice.hflip: array = array[:, ::-1]
        if choice.vflip: array = array[::-1]
        expected = (numpy_colors(array, choice.color) - 255 * np.array(mean)) / (255 * np.array(std))
        assert np.abs(row.permute(1, 2, 0).numpy() - expected).max() < 1e-4, choice


def test_matrices_are_the_identity_without_operations_and_keep_grey_grey():
    for channels in 1, 3:
        m, k = color_matrices((), channels)
        assert np.array_equal(m, np.eye(channels)) and not k.any()
    rng = random.Random(1)
    for _ in range(50):
        m, k = color_matrices([(name, f) for name, f in random_colors(rng) if name in ('saturation', 'hue', 'grayscale')])
        assert np.allclose(m.sum(1), 1) and not k.any()


@pytest.mark.parametrize('factor', [-0.4, -0.2, 0.1, 0.3])
def test_hue_turns_in_torchvisions_direction(factor):
    image = uint8_batch(1, 3, 40, 40)
    theirs = F.adjust_hue(image[0], factor).float()
    ours, other = (torch.from_numpy(numpy_colors(image[0].permute(1, 2, 0).numpy(), [('hue', f)])).permute(2, 0, 1)
                   for f in (factor, -factor))
    assert (ours - theirs).abs().mean() < 0.6 * (other - theirs).abs().mean()


def test_fused_jitter_is_near_to_torchvisions():
    "They differ where torchvision rounds and clips between the steps."
    augmentation, images = create_augmentation(64, True, color_jitter=0.4), uint8_batch(60, 3, 64, 64)
    stage = BatchTransform((0.,) * 3, (1 / 255,) * 3, augmentation=augmentation)
    fused, differing = stage(images, keys_of(60)), []
    for image, choice, row in zip(images, stage.choices(keys_of(60)), fused):
        exact = apply_color(image, choice.color)
        if choice.hflip: exact = exact.flip(2)
        differing.append((row - exact.float()).abs().mean().item())
    assert max(differing) < 8 and np.median(differing) < 2, differing


def normal_stage(shape, seed=3, **settings) -> BatchTransform:
    mean, std = stats(shape[0])
    augmentation = create_augmentation(shape[1:], True, vflip=0.3, color_jitter=(0.4, 0.4, 0.4, 0.1), color_jitter_prob=0.8,
                                       grayscale_prob=0.2)
    return BatchTransform(mean, std, augmentation=augmentation, seed=seed, **settings)


@pytest.mark.parametrize('layout', [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize('shape', [(3, 33, 47), (3, 64, 64), (3, 96, 72), (1, 33, 47), (3, 2, 1)], ids=str)
def test_bits_do_not_depend_on_the_batch_or_the_threads(shape, dtype, layout):
    images, keys = uint8_batch(13, *shape, layout=layout), keys_of(13)
    stage = normal_stage(shape, img_dtype=dtype)
    whole = stage(images, keys)
    for threads, step in itertools.product((1, 2, 3), (1, 4)):
        torch.set_num_threads(threads)
        for k in range(0, 13, step):
            part = images[k:k + step].contiguous(memory_format=layout)
            assert torch.equal(stage(part, keys[k:k + step]), whole[k:k + step]), (threads, k)
        assert torch.get_num_threads() == threads
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    shuffled = stage(images[order].contiguous(memory_format=layout), [keys[k] for k in order])
    assert torch.equal(shuffled, whole[order])


def test_bits_do_not_depend_on_what_other_threads_do():
    images, stage = uint8_batch(16, 3, 48, 40), normal_stage((3, 48, 40))
    expected, found = stage(images, keys_of(16)), []
    torch.set_num_threads(2)
    def work():
        for _ in range(10): found.append(torch.equal(stage(images, keys_of(16)), expected))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 40 and all(found)


@pytest.mark.parametrize('shape', [(3, 33, 47), (1, 33, 47), (3, 64, 64), (4, 8, 8)], ids=str)
@pytest.mark.parametrize('layout', [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize('axes', [(3,), (2,), (2, 3)])
def test_flips_are_exact(shape, layout, axes):
    mean, std = stats(shape[0])
    augmentation = create_augmentation(shape[1:], True, hflip=float(3 in axes), vflip=float(2 in axes), color_jitter=None)
    images = uint8_batch(5, *shape, layout=layout)
    flipped = BatchTransform(mean, std, augmentation=augmentation)(images, keys_of(5))
    assert torch.equal(flipped, BatchTransform(mean, std)(images, keys_of(5)).flip(axes))


@pytest.mark.parametrize('layout', [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_float32_rounded_once(dtype, layout):
    images = uint8_batch(6, 3, 33, 47, layout=layout)
    exact, rounded = (normal_stage((3, 33, 47), img_dtype=t)(images, keys_of(6)) for t in (torch.float32, dtype))
    assert rounded.dtype == dtype and torch.equal(rounded, exact.to(dtype))


def test_layout_of_the_result():
    images, stage = uint8_batch(6, 3, 33, 47), normal_stage((3, 33, 47))
    last, first = stage(images, keys_of(6)), normal_stage((3, 33, 47), channels_last=False)(images, keys_of(6))
    assert last.is_contiguous(memory_format=torch.channels_last) and first.is_contiguous() and torch.equal(last, first)


def test_input_is_left_as_it_is_and_results_do_not_share_memory():
    images, stage = uint8_batch(6, 3, 32, 32), normal_stage((3, 32, 32))
    before, results = images.clone(), [stage(images, keys_of(6, epoch)) for epoch in range(8)]
    copies = [result.clone() for result in results]
    for epoch in range(8, 12): stage(images, keys_of(6, epoch))   # uses memory again where it may
    assert torch.equal(images, before) and all(map(torch.equal, results, copies))
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(results, 2))


def test_choices_are_those_of_the_key():
    stage = normal_stage((3, 8, 8), seed=9)
    expected = [stage.augmentation.appearance_params(KeyedRandom(9, key.epoch, key.index, key.view, 1)) for key in keys_of(50, 4)]
    assert stage.choices(keys_of(50, 4)) == expected and len(set(expected)) > 40
    shares = [np.mean([getattr(c, name) for c in stage.choices(keys_of(4000))]) for name in ('hflip', 'vflip')]
    assert shares == pytest.approx([0.5, 0.3], abs=0.04)
    counts = Counter(name for c in stage.choices(keys_of(4000)) for name, _ in c.color)
    assert counts['hue'] == counts['contrast'] == pytest.approx(3200, abs=130)
    assert counts['grayscale'] == pytest.approx(800, abs=130)


@cuda
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_gpu_gives_the_numbers_of_the_cpu(dtype):
    for shape in SHAPES:
        images, stage = uint8_batch(16, *shape), normal_stage(shape, img_dtype=dtype)
        there = stage(images.cuda(), keys_of(16))
        bound = 1e-4 if dtype == torch.float32 else 5e-3
        assert there.is_cuda and torch.allclose(there.cpu().float(), stage(images, keys_of(16)).float(), rtol=0, atol=bound)


# ---- colours one by one

PIL_ENHANCE = {'brightness': ImageEnhance.Brightness, 'contrast': ImageEnhance.Contrast, 'saturation': ImageEnhance.Color}
TORCHVISION = {'brightness': F.adjust_brightness, 'contrast': F.adjust_contrast, 'saturation': F.adjust_saturation,
               'hue': F.adjust_hue, 'grayscale': lambda image, _: F.rgb_to_grayscale(image, 3)}


@pytest.mark.parametrize('backend', [None, 'pillow'])
def test_exact_colors_of_the_host_stage_are_torchvisions(samples, backend):
    rng, kinds = random.Random(0), Counter()
    for k, path in enumerate(photographs(samples, 'samples')[::3]):
        data, augmentation = path.read_bytes(), create_augmentation((48, 64), True)
        here, rows = AppearanceParams(bool(k & 1), bool(k & 2), random_colors(rng)), allocate_rows(2, 3, (48, 64))
        for row, done in zip(rows, (None, here)):
            SampleTransform(augmentation, backend)(Pixels(data, backend=backend or 'auto'), row, KeyedRandom(0, 0, k), done)
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


@pytest.mark.parametrize('backend', [None, 'pillow'])
@pytest.mark.parametrize('num_workers', [0, 2])
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


# ---- numbers

def philox(counter, key) -> list[int]:
    "Philox 4x64-10, from the paper: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011)."
    (a, b, c, d), (k, m), mask = counter, key, 2**64 - 1
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = second >> 64 ^ b ^ k, second & mask, first >> 64 ^ d ^ m, first & mask
        k, m = k + 0x9E3779B97F4A7C15 & mask, m + 0xBB67AE8584CAA73B & mask
    return [a, b, c, d]


KNOWN = [   # Random123, kat_vectors: counter, key, answer
    ([0] * 4, [0] * 2, [0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b]),
    ([2**64 - 1] * 4, [2**64 - 1] * 2, [0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0]),
    ([0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89],
     [0x452821e638d01377, 0xbe5466cf34e90c6c],
     [0xa528f45403e61d95, 0x38c72dbd566e9788, 0xa5a1610e72fd18b5, 0x57bd43b5e52b7fe6])]
RUNS = [(0, 0, 0, 0, 0), (1, 2, 3, 4, 5), (-1, 0, -2, 0, 1), (2**63 - 1, 7, -2**63, 1, 2), (12345, 90, 1281166, 0, 0)]


@pytest.mark.parametrize('counter, key, answer', KNOWN)
def test_oracle_gives_the_known_answers(counter, key, answer): assert philox(counter, key) == answer


@pytest.mark.parametrize('seed, epoch, index, view, sequence', RUNS)
def test_keyed_random_is_philox(seed, epoch, index, view, sequence):
    mask = 2**64 - 1
    key, rest = [seed & mask, epoch & mask], [sequence & mask, index & mask, view & mask]
    words = [word for block in range(1, 26) for word in philox([block, *rest], key)]
    def fresh(): return KeyedRandom(seed, epoch, index, view, sequence)
    rng = fresh()
    assert [rng.getrandbits(64) for _ in range(100)] == words
    rng = fresh()
    assert [rng.random() for _ in range(100)] == [(word >> 11) / 2**53 for word in words]
    numpys = np.random.Philox(key=np.array(key, np.uint64), counter=np.array([0, *rest], np.uint64))
    assert np.random.Generator(numpys).random(100).tolist() == [(word >> 11) / 2**53 for word in words]
    rng = fresh()
    assert [rng.getrandbits(k) for k in (1, 7, 32, 63)] == [word >> 64 - k for word, k in zip(words, (1, 7, 32, 63))]


def test_keyed_randoms_that_take_turns_do_not_disturb_each_other():
    alone = [[KeyedRandom(1, 0, k).random() for _ in range(1)] for k in range(3)]
    rngs = [KeyedRandom(1, 0, k) for k in range(3)]
    turns = [[rng.random() for rng in rngs] for _ in range(60)]
    assert turns[0] == [first for first, in alone]
    for k, rng in enumerate(KeyedRandom(1, 0, k) for k in range(3)):
        assert [rng.random() for _ in range(60)] == [turn[k] for turn in turns]
    found = {}
    def work(k):
        rng = KeyedRandom(1, 0, k)
        found[k] = [rng.random() for _ in range(60)]
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(found[k] == [turn[k] for turn in turns] for k in range(3))


def test_keyed_random_has_the_distributions_of_pythons():
    rng, num = KeyedRandom(5, 0, 0), 20_000
    assert np.mean([rng.uniform(2, 4) for _ in range(num)]) == pytest.approx(3, abs=0.02)
    assert np.std([rng.gauss(0, 3) for _ in range(num)]) == pytest.approx(3, abs=0.08)
    counts = Counter(rng.randint(0, 6) for _ in range(num))
    assert set(counts) == set(range(7)) and max(counts.values()) - min(counts.values()) < 400
    assert sorted(rng.sample(range(9), 9)) == list(range(9)) and rng.choice('abc') in 'abc'
    firsts = [KeyedRandom(0, 0, k).random() for k in range(num)]   # of neighbouring samples
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.01) and abs(np.corrcoef(firsts[1:], firsts[:-1])[0, 1]) < 0.03


# ---- buffers

def lent() -> MemoryPool: return MemoryPool(lambda: torch.empty(48, dtype=torch.uint8), max_free=2)


USES = {
    'itself': lambda t: t, 'view': lambda t: t.view(4, 3, 4)[1:, :, 2], 'typed': lambda t: t.view(torch.float32)[:3],
    'permuted': lambda t: t.view(1, 4, 4, 3).permute(0, 3, 1, 2), 'row': lambda t: t.view(4, 12).unbind()[2],
    'array': lambda t: t.numpy(), 'array of a view': lambda t: t.view(4, 12)[1].numpy()[3:], 'detached': lambda t: t.detach(),
    'alias in a list': lambda t: [dict(image=t[:5])], 'memory view': lambda t: memoryview(t.numpy()),
    'torch of an array': lambda t: torch.from_numpy(t.numpy()[::2]), 'storage': lambda t: t.untyped_storage(),
    'parameter': lambda t: torch.nn.Parameter(t.view(torch.float32)), 'pillow': lambda t: Image.frombuffer('L', (8, 6), t.numpy()),
    'saved for backward': lambda t: t.view(torch.float32).zero_() * torch.ones(12, requires_grad=True)}


@pytest.mark.parametrize('name', USES)
def test_memory_comes_back_with_the_last_user(name):
    pool = lent()
    buffer = pool.acquire()
    address, kept = buffer.data_ptr(), USES[name](buffer)
    del buffer
    gc.collect()
    assert pool.num_free == 0 and pool.acquire().data_ptr() != address
    del kept
    gc.collect()
    assert address in {pool.acquire().data_ptr(), pool.acquire().data_ptr()} or pool.num_free


@pytest.mark.parametrize('name', ['clone', 'number', 'contiguous of a part', 'float'])
def test_copies_do_not_keep_the_memory(name):
    pool = lent()
    buffer = pool.acquire().fill_(3)
    kept = {'clone': buffer.clone(), 'number': buffer[0].item(), 'contiguous of a part': buffer.view(6, 8)[:, :2].contiguous(),
            'float': buffer.float()}[name]
    del buffer
    assert pool.num_free == 1 and np.all(np.asarray(kept) == 3)


def test_pool_is_bounded_and_the_last_free_buffer_is_taken_first():
    pool = lent()
    three = [pool.acquire() for _ in range(3)]
    assert len({buffer.data_ptr() for buffer in three}) == 3
    addresses = [buffer.data_ptr() for buffer in three]
    while three: three.pop(0)
    assert pool.num_free == 2 and pool.acquire().data_ptr() == addresses[2]   # it is in the cache


def test_pool_may_be_gone_before_its_buffers():
    pool = lent()
    buffer = pool.acquire().fill_(9)
    del pool
    gc.collect()
    assert (buffer == 9).all()


def test_pool_is_used_from_many_threads():
    pool, wrong = MemoryPool(lambda: torch.empty(64, dtype=torch.uint8)), []
    def work(k):
        for _ in range(300):
            buffer = pool.acquire().fill_(k)
            if not (buffer == k).all(): wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong and 1 <= pool.num_free <= 8


@pytest.mark.parametrize('use_prefetcher', [False, True])
@pytest.mark.parametrize('num_workers', [0, 2])
def test_batches_that_are_kept_stay_intact(samples, use_prefetcher, num_workers):
    loader = create_loader(ImageDataset(samples), (3, 32, 32), 16, is_training=True, seed=1, device='cpu',
                           num_workers=num_workers, use_prefetcher=use_prefetcher)
    kept, copies = [], []
    for _ in range(2):
        loader.set_epoch(0)
        for k, (images, targets) in enumerate(loader):
            kept.append(images[3] if k % 2 else (images, targets))
            copies.append(images[3].clone() if k % 2 else (images.clone(), targets.clone()))
    for a, b in zip(kept, copies): assert all(map(torch.equal, a, b)) if isinstance(a, tuple) else torch.equal(a, b)
