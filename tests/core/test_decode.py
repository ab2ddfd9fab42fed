"Every odd kind of file in every mode, against Pillow; and bytes damaged at random."
import io
import struct

import numpy as np
import pytest
from oddities import ODDITIES
from pictures import encoded
from PIL import Image, ImageOps, UnidentifiedImageError

from timmdata.core.decode import decode_image
from timmdata.core.faults import ImageReadError

pytestmark = pytest.mark.timeout(60)
MODES = {'gray.jpg': 'L', 'cmyk.jpg': 'CMYK', 'palette.png': 'P', 'gray16.png': 'I;16', 'rgba.png': 'RGBA',
         'exif_rotated.jpg': 'RGB', 'progressive.jpg': 'RGB', 'animated.png': 'RGB'}
UNREADABLE = {'truncated.jpg': OSError, 'empty.jpg': UnidentifiedImageError, 'text.jpg': UnidentifiedImageError}
READABLE = [name for name in ODDITIES if name not in UNREADABLE]


def test_oddities_are_what_their_names_promise(samples):
    "Else the tests of odd files, here and elsewhere, would not test what they say."
    odd = samples/'oddities'
    assert {path.name for path in odd.iterdir()} == set(ODDITIES) == {*MODES, *UNREADABLE}
    for name, error in UNREADABLE.items():
        with pytest.raises(error), Image.open(odd/name) as image: image.load()
    found = {name: Image.open(odd/name) for name in MODES}
    for name, image in found.items():
        image.load()
        assert image.mode == MODES[name]
    values = np.asarray(found['gray16.png'])
    assert values.max() > 255 * 64 and len(np.unique(values % 256)) > 200 and len(np.unique(values // 256)) > 50
    assert 'transparency' in found['palette.png'].info and found['rgba.png'].getchannel('A').getextrema() == (0, 255)
    assert found['progressive.jpg'].info['progressive'] and found['animated.png'].n_frames > 1
    rotated, upright = found['exif_rotated.jpg'], found['progressive.jpg']
    assert rotated.getexif()[0x0112] == 6 and rotated.size == upright.size[::-1]
    assert np.abs(np.asarray(ImageOps.exif_transpose(rotated), float) - np.asarray(upright)).mean() < 4   # two JPEGs of the same pixels


def numbers(image) -> np.ndarray: return np.asarray(image)


def whole() -> bytes: return encoded(Image.effect_noise((64, 48), 80).convert('RGB'), quality=95)


@pytest.mark.parametrize('mode', ['RGB', 'L', 'RGBA', 'CMYK', 'HSV', None])
@pytest.mark.parametrize('name', READABLE)
def test_oddity_is_what_pillow_makes_of_it(samples, name, mode):
    image = decode_image((samples/'oddities'/name).read_bytes(), mode)
    with Image.open(samples/'oddities'/name) as oracle:
        oracle.load()
        if mode is None: pass
        elif '16' in name:
            gray = np.rint(np.asarray(oracle) / 257).astype(np.uint8)
            assert np.array_equal(numbers(image), numbers(Image.fromarray(gray).convert(mode)))
            return
        elif oracle.mode == 'P' and mode != 'RGBA': oracle = oracle.convert('RGBA').convert(mode)
        else: oracle = oracle.convert(mode)
        assert image.mode == oracle.mode and image.size == oracle.size
        assert np.array_equal(numbers(image), numbers(oracle))


@pytest.mark.parametrize('format, dtype, byte_order',
    [('png', np.uint16, '<'), ('tiff', np.uint16, '<'), ('tiff', np.int32, '<'), ('ppm', np.uint16, '<')])
def test_16_bits_are_scaled(format, dtype, byte_order):
    values = np.arange(0, 65536, 16, dtype=dtype).reshape(64, 64)
    values[-1, -1] = 65535
    image = decode_image(encoded(Image.fromarray(values), format), 'L')
    assert np.array_equal(numbers(image), np.rint(values / 257).astype(np.uint8)) and numbers(image).max() == 255
    assert numbers(decode_image(encoded(Image.fromarray(values), format), 'RGB')).shape == (64, 64, 3)
    assert np.array_equal(numbers(decode_image(Image.fromarray(values), 'L')), numbers(image))   # of one that is decoded already


@pytest.mark.parametrize('image',
                         [Image.new('F', (3, 3), 0.5), Image.new('I', (3, 3), 70000),
                          Image.new('I', (3, 3), -1)], ids=['float', 'too large', 'negative'])
def test_numbers_without_a_white_are_refused(image):
    with pytest.raises(ImageReadError, match='no fixed white'): decode_image(encoded(image, 'tiff'))
    assert decode_image(encoded(image, 'tiff'), None).mode == image.mode


def tiff(channels: np.ndarray, photometric: int, num_extra: int) -> bytes:
    "An uncompressed TIFF file of (height, width, channels), of which the last are declared as extra; Pillow writes four at most."
    height, width, num = channels.shape
    num_tags = 11 if num_extra else 10
    after = 10 + 12 * num_tags + 4   # bits of each channel, kinds of the extra ones, pixels
    tags = [(256, 1, width), (257, 1, height), (258, num, after), (259, 1, 1), (262, 1, photometric),
            (273, 1, after + 2 * (num + num_extra)), (277, 1, num), (278, 1, height), (279, 1, channels.nbytes), (284, 1, 1),
            (338, num_extra, after + 2 * num if num_extra > 2 else 0)][:num_tags]
    entries = b''.join(struct.pack('<HHII', tag, 4 if tag in (273, 279) else 3, count, value) for tag, count, value in tags)
    bits = struct.pack(f'<{num + num_extra}H', *[8 * channels.itemsize] * num, *[0] * num_extra)
    return struct.pack('<2sHIH', b'II', 42, 8, num_tags) + entries + bytes(4) + bits + channels.tobytes()


def test_channels_beyond_three_are_dropped_or_refused():
    "RGB and others: RGB. Anything else: an error, not some of the channels."
    values = np.random.default_rng(0).integers(0, 256, (20, 30, 5), np.uint8)
    assert np.array_equal(numbers(decode_image(tiff(values, photometric=2, num_extra=2))), values[..., :3])
    assert np.array_equal(numbers(decode_image(tiff(values[..., :3].astype(np.uint16) * 257, 2, 0))), values[..., :3])
    for odd in (tiff(values, 1, 4), tiff(values.astype(np.uint16), 2, 2)):
        with pytest.raises(ImageReadError, match='does not recognize'): decode_image(odd)


@pytest.mark.parametrize('orientation', range(1, 9))
def test_exif_orientation(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)), 'png', exif=exif)
    with Image.open(io.BytesIO(data)) as oracle:
        assert np.array_equal(numbers(decode_image(data)), numbers(oracle))
        assert np.array_equal(numbers(decode_image(data, exif_transpose=True)),
                              numbers(ImageOps.exif_transpose(oracle)))


@pytest.mark.parametrize('name, mode',
                         [('rgba.png', 'RGB'), ('rgba.png', 'L'), ('palette.png', 'RGB'), ('gray.jpg', 'RGB')])
def test_background_shines_through(samples, name, mode):
    image = decode_image((samples/'oddities'/name).read_bytes(), mode, background=(255, 0, 128))
    with Image.open(samples/'oddities'/name) as file: oracle = file.convert('RGBA')
    rgba = numbers(oracle).astype(float)
    alpha = rgba[..., 3:] / 255
    blended = rgba[..., :3] * alpha + np.array([255, 0, 128]) * (1 - alpha)
    expected = Image.fromarray(np.rint(blended).astype(np.uint8)).convert(mode)
    assert np.abs(numbers(image).astype(int) - numbers(expected)).max() <= 1


@pytest.mark.parametrize('make', [io.BytesIO, lambda data: data, bytearray, memoryview], ids=['file', 'bytes', 'bytearray', 'view'])
def test_content_may_come_in_any_form_and_a_file_is_closed(make):
    content = make(whole())
    assert decode_image(content).size == (64, 48)
    assert not isinstance(content, io.BytesIO) or content.closed
