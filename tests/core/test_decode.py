"Every unusual kind of file in every mode, compared with Pillow; and randomly damaged bytes."
import gzip
import io
import pickle
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from oddities import ODDITIES
from pictures import encoded
from PIL import Image, ImageOps, UnidentifiedImageError, features

from timmdata import ImageDataset, get_img_extensions
from timmdata.core import decode
from timmdata.core.decode import decode_image, open_formats
from timmdata.core.faults import ImageReadError
from timmdata.core.jpeg import Pixels

pytestmark = pytest.mark.timeout(60)
MODES = {'gray.jpg': 'L', 'cmyk.jpg': 'CMYK', 'palette.png': 'P', 'gray16.png': 'I;16', 'rgba.png': 'RGBA',
         'exif_rotated.jpg': 'RGB', 'progressive.jpg': 'RGB', 'animated.png': 'RGB'}
UNREADABLE = {'truncated.jpg': OSError, 'empty.jpg': UnidentifiedImageError, 'text.jpg': UnidentifiedImageError}
READABLE = [name for name in ODDITIES if name not in UNREADABLE]


def test_oddities_are_what_their_names_promise(samples):
    "Otherwise, the tests of unusual files, here and elsewhere, would not test what they claim."
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


@pytest.mark.parametrize('format', ['png', 'tiff', 'ppm'])
def test_16_bits_are_scaled(format):
    values = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    values[-1, -1] = 65535
    data = encoded(Image.fromarray(values), format)
    image = decode_image(data, 'L')
    assert np.array_equal(numbers(image), np.rint(values / 257).astype(np.uint8)) and numbers(image).max() == 255
    assert numbers(decode_image(data, 'RGB')).shape == (64, 64, 3)
    assert np.array_equal(numbers(decode_image(Image.fromarray(values), 'L')), numbers(image))   # of an image that is already decoded
    assert np.array_equal(numbers(decode_image(Image.open(io.BytesIO(data)), 'L')), numbers(image))   # in mode I or I;16, by version


@pytest.mark.parametrize('image',
                         [Image.new('F', (3, 3), 0.5), Image.new('I', (3, 3), 70000), Image.new('I', (3, 3), 200),
                          Image.new('I', (3, 3), -1)], ids=['float', 'too large', 'small', 'negative'])
def test_numbers_without_a_white_are_refused(image):
    "White is not guessed, whatever the values are."
    for data in encoded(image, 'tiff'), image:
        with pytest.raises(ImageReadError, match='32-bit image.*no fixed white level: convert'): decode_image(data)
    assert decode_image(encoded(image, 'tiff'), None).mode == image.mode


def gray_tiff(values: np.ndarray, bits: int, photometric: int = 1, sample_format: int = 1) -> bytes:
    "An uncompressed TIFF of one strip (TIFF 6.0); 12-bit samples are packed, two in three bytes."
    if bits == 12:
        first, second = values.astype(int).ravel().reshape(-1, 2).T
        packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1).astype(np.uint8).tobytes()
    else: packed = values.tobytes()
    height, width = values.shape
    tags = [(256, 4, width), (257, 4, height), (258, 3, bits), (259, 3, 1), (262, 3, photometric), (273, 4, 8), (277, 3, 1),
            (278, 4, height), (279, 4, len(packed)), (339, 3, sample_format)]
    entries = b''.join(struct.pack('<HHII', tag, kind, 1, value) for tag, kind, value in tags)
    return struct.pack('<2sHI', b'II', 42, 8 + len(packed)) + packed + struct.pack('<H', len(tags)) + entries + bytes(4)


RAMP = np.tile(np.linspace(0, 1, 64), (8, 1))


@pytest.mark.parametrize('top', [1, .1])
@pytest.mark.parametrize('bits, dtype', [(8, np.uint8), (12, np.uint16), (16, np.uint16)])
@pytest.mark.parametrize('photometric', [1, 0], ids=['black is zero', 'white is zero'])
def test_the_bits_of_a_tiff_say_what_is_white(bits, dtype, photometric, top):
    "Also for a dark image without a white pixel; the expected values come from numpy."
    values = np.rint(RAMP * top * (2**bits - 1)).astype(dtype)
    data = gray_tiff(values, bits, photometric)
    if (bits, photometric) == (12, 0):   # Pillow has no such mode
        with pytest.raises(ImageReadError, match=r'unknown pixel mode.*convert it to 8 or 16 bits'): decode_image(data)
        return
    expected = np.rint(values * (255 / (2**bits - 1))).astype(int)
    for turned in False, True:
        assert np.array_equal(numbers(decode_image(data, 'L', turned)), expected if photometric else 255 - expected)


@pytest.mark.parametrize('dtype, bits, sample_format', [
    (np.int8, 8, 2), (np.int16, 16, 2), (np.int32, 32, 2), (np.uint32, 32, 1), (np.float32, 32, 3)])
@pytest.mark.parametrize('top', [0, 100])
def test_a_tiff_without_a_white_is_an_error(dtype, bits, sample_format, top):
    data = gray_tiff((RAMP * top).astype(dtype), bits, sample_format=sample_format)
    for mode in 'L', 'RGB':
        with pytest.raises(ImageReadError, match=f'a {bits}-bit image.*no fixed white level'): decode_image(data, mode)


@pytest.mark.parametrize('bits', [10, 14, 24])
def test_other_bits_are_an_error_that_says_what_to_do(bits):
    with pytest.raises(ImageReadError, match='unknown pixel mode.*convert it to 8 or 16 bits'):
        decode_image(gray_tiff(np.zeros((8, 8, 3), np.uint8)[..., 0], bits))


@pytest.mark.parametrize('white', [1, 100, 255, 1023, 4095, 65535])
@pytest.mark.parametrize('kind', ['P5', 'P6', 'P2'])
def test_maxval_of_a_pgm_or_ppm_is_white(kind, white):
    values = np.rint(RAMP[:2] * white).astype(int)
    if kind == 'P2': body = ' '.join(map(str, values.ravel())).encode()
    else: body = np.repeat(values, 3 if kind == 'P6' else 1).astype('>u2' if white > 255 else np.uint8).tobytes()
    data = f'{kind}\n64 2\n{white}\n'.encode() + body
    found = numbers(decode_image(data, 'L')).astype(int)
    assert np.abs(found - values * 255 / white).max() <= (.51 if kind == 'P6' or white < 256 else .502)
    assert np.array_equal(numbers(decode_image(data))[..., 0], Pixels(data).read()[..., 0]) and found.max() == 255


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))


def test_transparent_pixels_of_16_bits_get_the_background():
    values = np.array([[0, 30000, 65535, 500]], np.uint16)
    data = encoded(Image.fromarray(values), 'png')
    data = data[:33] + chunk(b'tRNS', struct.pack('>H', 30000)) + data[33:]
    assert numbers(decode_image(data, 'L', background=(9, 9, 9))).tolist() == [[0, 9, 255, 2]]
    assert numbers(decode_image(data, 'RGBA'))[..., 3].tolist() == [[255, 0, 255, 255]]
    assert numbers(decode_image(data, 'L')).tolist() == [[0, 117, 255, 2]]


def tiff(channels: np.ndarray, photometric: int, num_extra: int) -> bytes:
    "An uncompressed TIFF file of (height, width, channels), of which the last are declared as extra; Pillow writes at most four."
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
    "RGB plus others becomes RGB. Anything else is an error, not a subset of the channels."
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


# ---- damaged EXIF

SOUND = b'II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0'   # orientation 6
BROKEN = {'empty': b'', 'letters': b'xx', 'no byte order': b'\0\x08\0\2\1\x12\0\3', 'cut': b'II*\0\x08\0\0\0\x05\0\x12\1',
          'prefix twice': b'Exif\0\0Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0', 'far': b'II*\0\xff\xff\xff\x7f',
          'orientation 9': SOUND.replace(b'\6', b'\x09'), 'a text as orientation': SOUND.replace(b'\3', b'\2')}
PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8))


def with_exif(kind: str, block: bytes) -> bytes:
    "A file that is intact except for its EXIF block: written by Pillow, with the block replaced."
    if kind == 'jpeg':
        data, body = encoded(PHOTO, 'jpeg'), b'Exif\0\0' + block
        return data[:2] + struct.pack('>HH', 0xFFE1, len(body) + 2) + body + data[2:]
    if kind == 'png':
        data = encoded(PHOTO, 'png')
        return data[:33] + chunk(b'eXIf', block) + data[33:]
    data = encoded(PHOTO, 'webp', lossless=True, exif=b'Exif\0\0' + SOUND)   # the last chunk
    at = data.index(b'EXIF')
    data = data[:at] + b'EXIF' + struct.pack('<I', len(block)) + block + bytes(len(block) % 2)
    return data[:4] + struct.pack('<I', len(data) - 8) + data[8:]


@pytest.mark.parametrize('block', [*BROKEN.values(), SOUND, SOUND[:-4], SOUND + bytes(9)],
                         ids=[*BROKEN, 'sound', 'cut at the end', 'longer'])
@pytest.mark.parametrize('kind', ['jpeg', 'png', 'webp'])
def test_a_broken_exif_block_turns_nothing_and_stops_nothing(kind, block):
    data = with_exif(kind, block)
    plain = decode_image(data)
    turned = decode_image(data, exif_transpose=True)
    expected = plain.transpose(Image.Transpose.ROTATE_270) if block.startswith(SOUND[:-4]) else plain
    assert plain.size == (60, 40) and np.array_equal(numbers(turned), numbers(expected))
    assert np.array_equal(Pixels(data, exif_transpose=True).read(), numbers(expected))
    assert turned.getexif().get(0x0112, 1) in (1, 9) or block in BROKEN.values()   # no later step rotates it again


def test_an_orientation_before_the_damage_counts():
    "It is read as by Pillow, even if Pillow cannot write the block again."
    entry = struct.pack('<HHII', 0x0112, 3, 1, 6)
    block = b'II*\0\x08\0\0\0' + struct.pack('<H', 2) + entry + struct.pack('<HHII', 0x829A, 5, 1, 99999) + bytes(4)
    for kind in 'png', 'webp', 'jpeg': assert decode_image(with_exif(kind, block), exif_transpose=True).size == (40, 60)


# ---- formats that are opened, and files that are not images

@pytest.fixture
def fresh_formats(monkeypatch):
    "Forget the extensions that other tests of this process have allowed."
    monkeypatch.setattr(decode, '_listed', set())


@pytest.mark.usefixtures('fresh_formats')
def test_the_formats_are_those_of_the_extensions_that_are_listed():
    known = Image.registered_extensions() | dict.fromkeys(('.jif', '.pjpeg', '.pjp'), 'JPEG')   # other names of JPEG files
    assert {known[extension] for extension in get_img_extensions()} == set(open_formats()) and 'EPS' not in open_formats()


@pytest.mark.usefixtures('fresh_formats')
def test_a_jpg_that_is_eps_starts_no_program(tmp_path, monkeypatch):
    "Pillow starts Ghostscript for EPS, whatever the name of the file."
    started = []
    def start(*args, **settings):
        started.append(args)
        raise OSError('no program is started here')

    for name in 'Popen', 'check_call', 'run': monkeypatch.setattr(subprocess, name, start)
    eps = encoded(Image.new('RGB', (9, 9)), 'eps')
    for data in eps, b'\xc5\xd0\xd3\xc6' + struct.pack('<II', 30, len(eps)) + bytes(18) + eps:
        (tmp_path/'a.jpg').write_bytes(data)
        for read in (lambda: ImageDataset(tmp_path)[0], lambda data=data: decode_image(data), lambda data=data: Pixels(data).read()):
            with pytest.raises(ImageReadError, match=r"in the format EPS.*convert it to PNG or JPEG.*add_img_extensions\('.eps'\)"): read()
    assert not started


@pytest.mark.usefixtures('fresh_formats')
@pytest.mark.parametrize('format', ['TGA', 'PCX', 'ICO', 'JPEG2000', 'DDS', 'SGI'])
def test_another_format_is_named(format):
    if format == 'JPEG2000' and not features.check('jpg_2000'): pytest.skip('Pillow without JPEG 2000')
    with pytest.raises(ImageReadError, match=f"in the format {format}, whatever its name is, .*add_img_extensions"):
        decode_image(encoded(Image.new('RGB', (9, 9)), format))


@pytest.mark.full
@pytest.mark.usefixtures('fresh_formats')
def test_a_format_whose_extension_is_listed_is_read_in_other_processes_too(tmp_path):
    "A spawned worker has not called add_img_extensions, so the dataset passes the extensions on."
    (tmp_path/'a').mkdir()
    Image.new('RGB', (9, 9)).save(tmp_path/'a'/'x.dib')
    dataset = ImageDataset(tmp_path, extensions='.jpg;.dib')
    assert dataset[0][0].size == (9, 9) and 'DIB' in open_formats()
    code = 'import pickle, sys; dataset = pickle.load(sys.stdin.buffer); print(dataset[0][0].size)'
    found = subprocess.run([sys.executable, '-c', code], input=pickle.dumps(dataset), capture_output=True, check=True)
    assert found.stdout.strip() == b'(9, 9)'


@pytest.mark.parametrize('data, advice', [
    (gzip.compress(b'x', mtime=0), 'compressed with gzip: unpack it'),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:0', 'pointer of Git LFS, not the file: run `git lfs pull`'),
    (b'\n<!DOCTYPE html><html>404 Not Found', 'web page, such as the error page of a server: download the image again'),
    (b'<?xml version="1.0"?><Error><Code>AccessDenied', 'web page'), (b'{"error": 404}', 'JSON, such as the error of a server'),
    (b'<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="', 'SVG drawing: save it as a PNG'), (bytes(100), 'consists of zeros'),
    (b'PK\3\4' + bytes(9), 'archive: unpack it'), (b'%PDF-1.4', 'PDF: save its pages'),
    (b'\0\0\0\x18ftypheic', 'HEIC image: convert it to JPEG'),
    (b'\0\0\0\x18ftypisom', 'video: save its frames'), (b'', 'the file is empty: copy or download it again')])
def test_a_file_that_is_no_image_is_told_what_it_is(data, advice):
    for read in decode_image, lambda data: Pixels(data).read():
        with pytest.raises(ImageReadError, match=advice): read(data)


@pytest.mark.parametrize('format', ['jpeg', 'png', 'ppm', 'webp'])
@pytest.mark.filterwarnings('ignore::PIL.Image.DecompressionBombWarning')
def test_a_decompression_bomb_says_which_setting_to_change(format, monkeypatch):
    "Each decoder behaves the same: Pillow's limit also applies to simplejpeg and raw files."
    data = encoded(Image.new('RGB', (30, 30)), format)
    for limit in (449, 450, 899, 900):
        monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', limit)
        for read in decode_image, lambda data: Pixels(data).read(), lambda data: Pixels(data, backend='pillow').read():
            if limit >= 450: assert numbers(read(data)).shape == (30, 30, 3)
            else:
                told = 'DecompressionBombError.*set PIL.Image.MAX_IMAGE_PIXELS to a larger number'
                with pytest.raises(ImageReadError, match=told): read(data)
