"Fast decoding compared with Pillow: the same pixels for every kind of JPEG, no more rows than requested, and no damage unnoticed."
import io
import itertools
import json
import logging
import random
import re
from collections import Counter
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from careless import careless_jpegs
from fuzzing import fuzz
from grids import few
from hypothesis import given
from hypothesis import strategies as st
from loader_parts import program
from oddities import ODDITIES
from pictures import encoded, largest, photographs, rgb
from PIL import Image, ImageOps

from timmdata.core import jpeg
from timmdata.core.decode import decode_image
from timmdata.core.faults import ImageReadError
from timmdata.core.jpeg import BACKENDS, Pixels, choose_factor, choose_part, decode_header, read_header, resolve_backend
from timmdata.core.regions import import_nvimgcodec
from timmdata.pipeline import sample_transform
from timmdata.pipeline.sample_transform import DecodeSettings

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures('always_in_part')]
ROOT, MEASURED = Path(__file__).resolve().parents[2], dict(jpeg.PART_COSTS)


def available_backends() -> list[str]:
    "Return the names of the installed decoders."
    found = []
    for name in BACKENDS[1:]:
        with suppress(ImportError): found.append(resolve_backend(name))
    return found


@pytest.fixture
def measured_costs(always_in_part, monkeypatch):
    "Use the measured costs, as outside of tests."
    monkeypatch.setattr(jpeg, 'PART_COSTS', MEASURED)


simplejpeg = pytest.param('simplejpeg', marks=pytest.mark.skipif(jpeg.simplejpeg is None, reason='no simplejpeg'))
nvimgcodec = pytest.param('nvimgcodec', marks=pytest.mark.skipif(import_nvimgcodec() is None, reason='no nvimgcodec'))
torchcodec = pytest.param('torchcodec', marks=pytest.mark.skipif(find_spec('torchcodec') is None, reason='no torchcodec'))
DECODERS = [nvimgcodec, simplejpeg, 'torchvision', torchcodec]
UNREADABLE = ['truncated.jpg', 'empty.jpg', 'text.jpg']
READABLE = [name for name in ODDITIES if name not in UNREADABLE]


@pytest.mark.parametrize('source', few(['samples', 'imagenet-200'], 'samples'))
@pytest.mark.parametrize('decoder', DECODERS)
def test_decoders_agree_with_pillow(samples, decoder, source):
    for path in photographs(samples, source):
        data = path.read_bytes()
        header, image = read_header(data, decoder), rgb(data)
        assert header == (image.height, image.width)
        array, pixels = decode_header(data, header, 1, decoder), Pixels(data, backend=decoder)
        assert array.dtype == np.uint8 and largest(array, np.asarray(image)) <= 1, path
        bottom = 1 + len(data) % pixels.height   # any
        assert largest(pixels.read_crop((0, 0, bottom, pixels.width)), np.asarray(image)[:bottom]) <= 1, path


KINDS = {f'{subsampling}, quality {quality}, {"progressive" if progressive else "baseline"}': dict(
             subsampling=subsampling, quality=quality, progressive=progressive)
         for subsampling, quality, progressive in itertools.product(('4:4:4', '4:2:2', '4:2:0'), (20, 98), (False, True))}
KINDS |= {'optimized': dict(optimize=True), 'restarts': dict(restart_marker_rows=1), 'adobe RGB': dict(keep_rgb=True),
          'gray': dict(mode='L'), 'CMYK': dict(mode='CMYK'), 'YCbCr': dict(mode='YCbCr'), 'with a profile': dict(icc_profile=b'x' * 90000),
          'comment': dict(comment=b'Exif' * 9), 'dpi': dict(dpi=(300, 300))}


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', few(KINDS, num=6))
def test_kinds_of_jpeg_agree_with_pillow(samples, name, decoder):
    options = dict(KINDS[name])
    image = rgb((samples/'val/cat/0003.jpg').read_bytes())
    image = image.convert(options.pop('mode', 'RGB'))
    for edges in (113, 87), (16, 16), (8, 1), (1, 1):
        data = encoded(image.resize(edges), **options)
        pixels = Pixels(data, backend=decoder)
        array, expected = pixels.read(), np.asarray(decode_image(data))
        assert (pixels.height, pixels.width) == expected.shape[:2] and largest(array, expected) <= 1
        is_ordinary = name not in ('CMYK', 'adobe RGB') or (name == 'adobe RGB' and decoder not in ('simplejpeg', 'nvimgcodec'))
        assert (read_header(data, decoder) is not None) == is_ordinary


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', READABLE)
def test_oddity_is_what_decode_image_makes_of_it(samples, name, decoder):
    data = (samples/'oddities'/name).read_bytes()
    for options in dict(), dict(exif_transpose=True), dict(background=(9, 200, 90)), dict(mode='L'), dict(mode=None):
        pixels, expected = Pixels(data, backend=decoder, **options), np.asarray(decode_image(data, **{'mode': 'RGB', **options}))
        assert (pixels.height, pixels.width) == expected.shape[:2]
        for factor in 1, 2: pixels.read(factor)
        is_ordinary = name in ('gray.jpg', 'progressive.jpg', 'exif_rotated.jpg') and options.get('mode', 'RGB') == 'RGB'
        assert np.array_equal(pixels.read(), expected) if not is_ordinary else largest(pixels.read(), expected) <= 1
        if name == 'exif_rotated.jpg':
            with Image.open(io.BytesIO(data)) as file: turned = file.size == expected.shape[:2]
            assert turned == ('exif_transpose' in options)


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


@pytest.mark.parametrize('decoder', DECODERS)
def test_orientation_is_looked_for_in_the_header_only(decoder, monkeypatch):
    "The same letters among or after the pixels do not rotate a photo, so it is not left to Pillow."
    image = Image.effect_noise((60, 40), 80).convert('RGB')
    data = encoded(image) + b'Exif Orientation'
    expected = np.asarray(rgb(data))
    monkeypatch.setattr(jpeg, 'decode_image', lambda *args: pytest.fail('decoded by Pillow'))
    pixels = Pixels(data, exif_transpose=True, backend=decoder)
    assert (pixels.height, pixels.width) == (40, 60)
    if decoder != 'nvimgcodec' or jpeg.simplejpeg: assert largest(pixels.read(), expected) <= 1


@pytest.mark.parametrize('decoder', [*DECODERS, 'pillow', 'auto'])
@pytest.mark.parametrize('name', UNREADABLE)
def test_unreadable_file_is_decode_images_error(samples, name, decoder):
    data = (samples/'oddities'/name).read_bytes()
    with pytest.raises(ImageReadError) as expected: decode_image(data)
    with pytest.raises(ImageReadError) as raised: Pixels(data, backend=decoder).read()
    assert str(raised.value).split(' at 0x')[0] == str(expected.value).split(' at 0x')[0]   # Pillow names an object in memory


def test_large_pictures_are_left_to_pillows_limit(samples, monkeypatch):
    data = encoded(Image.new('RGB', (100, 100)))
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 9_000)
    with pytest.warns(Image.DecompressionBombWarning): assert Pixels(data).read().shape == (100, 100, 3)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 4_000)
    with pytest.raises(ImageReadError, match='DecompressionBombError'): Pixels(data)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', None)
    assert Pixels(data).read().shape == (100, 100, 3)


def test_chosen_decoder_is_named_once_and_a_slow_one_with_advice(caplog, monkeypatch):
    caplog.set_level('INFO', 'timmdata')
    monkeypatch.setattr(jpeg, 'log_backend', cache(jpeg.log_backend.__wrapped__))   # whatever this process has logged before
    monkeypatch.setattr(sample_transform, 'log_backend', jpeg.log_backend)
    for _ in range(3): DecodeSettings(), DecodeSettings('auto')
    [(_, level, text)] = caplog.record_tuples
    assert resolve_backend() in text and (level == logging.WARNING) == (resolve_backend() not in ('simplejpeg', 'nvimgcodec'))
    caplog.clear()
    DecodeSettings('pillow')   # the user's choice
    assert caplog.record_tuples == []
    for name in BACKENDS[1:-1]: monkeypatch.setitem(jpeg._FIND, name, lambda: None)
    for _ in range(2): DecodeSettings()
    assert [(level, text) for _, level, text in caplog.record_tuples] == [
        (logging.WARNING, 'JPEG files are decoded by pillow; simplejpeg is faster: pip install simplejpeg')]


# ---- no more rows than the crop needs

def scaled(crop: tuple, factor: int, height: int, width: int) -> tuple[slice, slice]:
    "Rows and columns of a crop in a picture downscaled by the factor: rounded, and at least one pixel."
    def part(start, length, whole):
        whole = -(-whole // factor)
        start = min(round(start / factor), whole - 1)
        return slice(start, start + max(1, min(round(length / factor), whole - start)))
    return part(crop[0], crop[2], height), part(crop[1], crop[3], width)


def assert_crop_is_that_of_all(data: bytes, crop: tuple, factor: int, decoder: str):
    "The crop decoded alone has the same pixels as the crop of the whole photo."
    pixels = Pixels(data, backend=decoder)
    full = pixels.read(factor)
    was_scaled = full.shape[:2] != (pixels.height, pixels.width)
    expected = full[scaled(crop, factor if was_scaled else 1, pixels.height, pixels.width)]
    assert np.array_equal(pixels.read_crop(crop, factor), expected), (crop, factor, pixels.height, pixels.width)


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', few(KINDS, num=3))
def test_a_crop_is_that_of_the_full_decode(samples, name, decoder):
    options, rng = dict(KINDS[name]), random.Random(0)
    image = rgb((samples/'val/cat/0003.jpg').read_bytes()).convert(options.pop('mode', 'RGB'))
    for edges in (113, 87), (64, 128), (40, 250):
        data = encoded(image.resize(edges), **options)
        for factor in 1, 2, 4, 8:
            for bottom in sorted({1, 2, 7, 8, 9, 16, 17, 33, 64, edges[1] - 1, edges[1]}):
                top, left = rng.randrange(bottom), rng.randrange(edges[0])
                assert_crop_is_that_of_all(data, (0, 0, bottom, edges[0]), factor, decoder)
                assert_crop_is_that_of_all(data, (top, left, bottom - top, rng.randint(1, edges[0] - left)), factor, decoder)


def decoded_sizes(data: bytes, crop: tuple, decoder: str, monkeypatch, factor: int = 1) -> list[tuple[int, int]]:
    "Record the height and width of what is decoded for a crop, one pair per attempt."
    sizes, original = [], jpeg.decode_header

    def recording(data, header, *args):
        array = original(data, header, *args)
        sizes.append(array.shape[:2])
        return array
    with monkeypatch.context() as patch:
        patch.setattr(jpeg, 'decode_header', recording)
        Pixels(data, backend=decoder).read_crop(crop, factor)
    return sizes


@pytest.mark.parametrize('decoder', DECODERS)
def test_fewer_rows_are_decoded_in_silence(samples, decoder, capfd, monkeypatch):
    "libjpeg writes its warnings to standard error; an intact file must not cause any."
    data = encoded(rgb((samples/'val/cat/0003.jpg').read_bytes()).resize((64, 256)))
    sizes = decoded_sizes(data, (10, 20, 90, 30), decoder, monkeypatch)
    if decoder == 'nvimgcodec': assert sizes == []   # its region does not need a different decoder
    elif decoder == 'simplejpeg': assert sizes[0][0] < 120
    else: assert sizes == [(256, 64)]
    assert capfd.readouterr() == ('', '')


def read_rows(data: bytes, bottom: int, decoder: str = 'auto') -> np.ndarray:
    "Decode the upper rows of a photo."
    pixels = Pixels(data, backend=decoder)
    return pixels.read_crop((0, 0, min(bottom, pixels.height), pixels.width))


@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_an_error_behind_a_warning_is_an_error(samples, mode):
    "After one warning, libjpeg-turbo reports an error as a warning, and returns uninitialized memory in place of pixels."
    data = bytearray(encoded(rgb((samples/'val/cat/0000.jpg').read_bytes()).resize((120, 160)).convert(mode)))
    scan = data.index(b'\xff\xda')
    tables = scan + 6 + 2 * (data[scan + 4] - 1)
    data[tables], data[tables + 1] = 0x88, 9   # tables that do not exist; frequencies from the ninth
    with pytest.raises(ImageReadError): decode_image(bytes(data))
    for bottom in 20, 100:
        with pytest.raises(ImageReadError): read_rows(bytes(data), bottom)


@fuzz(300)
@given(st.data())
@pytest.mark.parametrize('decoder', DECODERS)
def test_a_crop_of_a_jpeg_with_restart_markers_is_that_of_the_full_decode(decoder, data):
    width, height, quality = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90)), data.draw(st.sampled_from([30, 90, 100]))
    mode, subsampling = data.draw(st.sampled_from([('RGB', 0), ('RGB', 1), ('RGB', 2), ('L', 0)]))
    across = -(-width // (16 if subsampling else 8))
    interval = data.draw(st.sampled_from([n for n in range(1, across + 1) if across % n == 0] + [across * 2, across * 3, across + 1]))
    noise = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 256, (height, width, 3), np.uint8)
    jpeg_bytes = encoded(Image.fromarray(noise).convert(mode), quality=quality, subsampling=subsampling, restart_marker_blocks=interval)
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    crop = top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    assert_crop_is_that_of_all(jpeg_bytes, crop, data.draw(st.sampled_from([1, 2, 4, 8])), decoder)


# ---- what is decoded

@pytest.mark.usefixtures('measured_costs')
def test_part_that_saves_little_is_not_decoded_alone():
    small, large = dict(size=(64, 64), file_size=1_500), dict(size=(1600, 1600), file_size=400_000)
    for backend, way in ('simplejpeg', 'rows'), ('nvimgcodec', 'region'):
        if backend not in available_backends(): continue
        for crop in (0, 0, 58, 64), (16, 16, 32, 32): assert choose_part(crop=crop, backend=backend, **small) == 'all'
        assert choose_part(crop=(400, 400, 400, 400), backend=backend, **large) == way
        assert choose_part(crop=(0, 0, 200, 1600), backend=backend, **large) == 'rows'   # no columns to skip
        assert choose_part(crop=(0, 0, 1600, 1600), backend=backend, **large) == 'all'
    for backend in 'torchvision', 'pillow': assert choose_part(crop=(0, 0, 10, 10), backend=backend, **large) == 'all'


@pytest.mark.usefixtures('measured_costs')
def test_downscaled_photo_is_no_region():
    "nvImageCodec decodes only the full size, so pixels would depend on whether it is installed."
    for backend in available_backends():
        assert choose_part((3000, 4000), 4_000_000, (1000, 1000, 500, 500), 2, backend) in ('rows', 'all')


@pytest.mark.usefixtures('measured_costs')
def test_costs_are_those_of_the_benchmark():
    measured = json.loads((ROOT/'benchmarks/results/decode_parts.json').read_text())['costs_ns']
    assert {way: cost._asdict() for way, cost in jpeg.PART_COSTS.items()} == measured


# ---- smaller pictures

@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('factor', [1, 2, 4, 8])
def test_factor_gives_a_part_of_height_and_width_rounded_up(samples, factor, decoder):
    rng = np.random.default_rng(0)
    for height, width in [(8, 8), (9, 15), (15, 9), (16, 17), (33, 47), (64, 200), (199, 63), (8, 500)]:
        data = encoded(Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)), quality=50)
        small = decode_header(data, read_header(data, decoder), factor, decoder)
        assert small.shape == (-(-height // factor), -(-width // factor), 3)
    for name in 'cat', 'coffee', 'rocket':
        data = (samples/f'val/{name}/0000.jpg').read_bytes()
        small, torchvisions = (decode_header(data, read_header(data, which), factor, which) for which in (decoder, 'torchvision'))
        assert decoder == 'torchcodec' or largest(small, torchvisions) <= 1


def test_dct_scaling_covers_the_result():
    for crop, size in itertools.product([(224, 224), (447, 600), (448, 448), (900, 899), (1792, 1791), (1792, 9999)],
                                        [(224, 224), (112, 224), (1, 1)]):
        factor = choose_factor(crop, size)
        assert factor in (1, 2, 4, 8) and (factor == 1 or all(c >= factor * s for c, s in zip(crop, size)))
        assert factor == 8 or any(c < 2 * factor * s for c, s in zip(crop, size))


def test_odd_markers_are_those_that_a_regular_expression_finds():
    odd, rng = re.compile(rb'\xff[\x01-\xcf\xd8-\xfe]'), random.Random(0)
    values = [0xFF, 0xFF, 0x00, 0x01, 0xCF, 0xD0, 0xD7, 0xD8, 0xD9, 0xFE, 0x7F]
    whole, found = encoded(Image.new('RGB', (8, 8))), Counter()
    header = whole[:jpeg.read_layout(whole).pixels]
    for _ in range(3000):
        pixels = bytes(rng.choices(values, k=rng.randrange(12)))
        expected = odd.search(pixels) is not None
        data = header + pixels + b'\xff\xd9'
        assert jpeg.read_layout(data).is_intact(data) != expected, pixels
        found[expected] += 1
    assert min(found.values()) > 300


@pytest.mark.full
def test_no_decoder_warns(samples):
    "Since 0.29, torchvision's own wrapper warns in every call, which ends a program under `python -W error`."
    backends = available_backends()
    run = program(f'''import warnings
from timmdata.core.jpeg import Pixels
warnings.simplefilter('error')
data = open({str(samples/"val/cat/0003.jpg")!r}, 'rb').read()
for backend in {backends}: print(Pixels(data, backend=backend).read().shape)''')
    code, out, errors = run.end()
    assert code == 0 and out.count('(') == len(backends), errors


@pytest.mark.parametrize('mode', ['RGB', 'L', 'CMYK'])
def test_all_decoders_read_a_jpeg_with_a_careless_header(mode):
    "As with libjpeg, the pixels are those of the same file without the faulty bytes, with each decoder, for the whole photo or a crop."
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)).resize((120, 80)).convert(mode)
    jpeg_file = encoded(image, quality=90)
    whole = np.asarray(rgb(jpeg_file))
    for name, data in careless_jpegs(jpeg_file).items():
        for decoder in ['auto', 'torchvision', 'pillow']:
            for turned in False, True:
                pixels = Pixels(data, 'RGB', turned, backend=decoder)
                assert largest(pixels.read(), whole) <= 1, (name, decoder)
                assert largest(pixels.read_crop((8, 16, 40, 50)), whole[8:48, 16:66]) <= 1, (name, decoder)
        assert largest(decode_image(data), whole) == 0, name


def test_a_careless_header_keeps_its_orientation():
    "A truncated Photoshop block does not hide an intact EXIF block."
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.new('RGB', (30, 20)), exif=exif)
    for name, odd in careless_jpegs(data).items():
        if 'EXIF' not in name and 'resolution as text' not in name and 'bytes between' not in name:
            assert Pixels(odd, exif_transpose=True).read().shape[:2] == (30, 20), name
