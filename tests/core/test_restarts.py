"Restart markers without loss: pixels of Pillow and simplejpeg before and after; what cannot have markers comes back unchanged."
import io
import subprocess

import numpy as np
import pytest
import simplejpeg
from fuzzing import fuzz
from grids import few
from hypothesis import given
from hypothesis import strategies as st
from jpegtran import TURBO
from pictures import photographs
from PIL import Image

from timmdata.core import restarts
from timmdata.core.jpeg import Pixels, cut_segments, find_restarts, read_grid, read_layout
from timmdata.core.restarts import JpegtranError, add_restarts, encode_jpeg, jpegtran_version, list_segments

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures('cut_small_files', 'jpegtran')]


def picture(height: int, width: int, seed: int = 0, mode: str = 'RGB') -> Image.Image:
    "Colors that change slowly, with noise: all sizes of codes occur."
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    noise = rng.integers(-60, 60, (height, width, 3)) * rng.integers(0, 2, (height, width, 1))
    pixels = (np.stack([x * 3, y * 2, x + y], 2) % 256 + noise).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def saved(image: Image.Image, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, 'JPEG', **options)
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray: return np.asarray(Image.open(io.BytesIO(data)))


def parts(data: bytes) -> list[bytes]:
    "Parts of a header for applications, and comments."
    at, found, end = 2, [], read_layout(data).pixels
    while at < end:
        size = 2 + int.from_bytes(data[at + 2:at + 4], 'big')
        if data[at + 1] == 0xFE or 0xE0 <= data[at + 1] <= 0xEF: found.append(data[at:at + size])
        at += size
    return found


def part(marker: int, content: bytes) -> bytes: return bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, 'big') + content


KINDS = dict(subsampling=st.sampled_from(['4:4:4', '4:2:2', '4:2:0']), quality=st.integers(1, 98), optimize=st.booleans())


@fuzz(60)
@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from(['RGB', 'L', 'CMYK']), st.fixed_dictionaries(KINDS), st.integers(0, 99))
def test_not_a_pixel_changes(height, width, mode, options, seed):
    data = saved(picture(height, width, seed, mode), **options)
    divided = add_restarts(data)
    assert np.array_equal(pixels(divided), pixels(data))
    if mode == 'RGB': assert np.array_equal(simplejpeg.decode_jpeg(divided), simplejpeg.decode_jpeg(data))
    layout = read_layout(divided)
    grid, unlisted = read_grid(divided, layout), layout._replace(num_listed=0)
    assert grid.rows * grid.columns == 1 or layout.num_listed == grid.rows * grid.columns - 1
    assert np.array_equal(find_restarts(divided, layout, grid), find_restarts(divided, unlisted, grid))
    assert Image.open(io.BytesIO(divided)).info.items() >= Image.open(io.BytesIO(data)).info.items()   # resolution, …


@fuzz(60)
@given(st.integers(24, 90), st.integers(24, 90), st.fixed_dictionaries(KINDS), st.tuples(*[st.floats(0, 1)] * 4), st.booleans())
def test_a_crop_is_that_of_the_whole(height, width, options, edges, encoded):
    image = picture(height, width)
    data = (encode_jpeg(image, min(95, options['quality']), options['subsampling']) if encoded
            else add_restarts(saved(image, **options)))
    top, left = (int(edge * (size - 1)) for edge, size in zip(edges, (height, width)))
    crop = top, left, 1 + int(edges[2] * (height - top - 1)), 1 + int(edges[3] * (width - left - 1))
    found = Pixels(data).read_crop(crop)
    assert np.array_equal(found, Pixels(data).read()[top:top + crop[2], left:left + crop[3]])


@pytest.mark.parametrize('source', few(['samples', 'imagenet-200'], 'samples'))
def test_real_photographs(samples, source):
    for path in photographs(samples, source)[:40]:
        data = path.read_bytes()
        divided = add_restarts(data)
        assert np.array_equal(pixels(divided), pixels(data)) and len(divided) < 1.03 * len(data) + 700, path


@pytest.mark.parametrize('subsampling', ['4:4:4', '4:2:2', '4:2:0'])
def test_encoding_with_markers_gives_the_pixels_without(subsampling):
    for width in (8, 16, 100, 341, 342, 500):
        image = picture(256, width)
        data = encode_jpeg(image, 85, subsampling)
        assert np.array_equal(pixels(data), pixels(saved(image, quality=85, subsampling=subsampling)))
        assert read_layout(data).num_listed


def test_all_parts_of_a_header_stay():
    exif, image = Image.Exif(), picture(60, 80)
    exif[0x0112], exif[0x010f] = 6, 'maker'
    plain, adobe = saved(image), part(0xEE, b'Adobe' + bytes([0, 100, 0x40, 0, 0, 0, 1]))
    full = saved(image, exif=exif, dpi=(300, 300), icc_profile=bytes(range(256)) * 300, comment=b'a comment', xmp=b'<x/>')
    camera = plain[:2] + part(0xE1, exif.tobytes()) + plain[20:]   # without JFIF
    for data in full, camera, plain[:20] + adobe + part(0xED, b'Photoshop 3.0') + plain[20:], saved(image, keep_rgb=True):
        divided = add_restarts(data)
        *kept, listed = parts(divided)
        assert kept == parts(data) and listed.startswith(b'\xff\xe9') and np.array_equal(pixels(divided), pixels(data))


def test_what_cannot_have_markers_comes_back_unchanged():
    image = picture(64, 64)
    plain, twelve = saved(image), bytearray(saved(image))
    twelve[read_layout(plain).frame + 4] = 12   # bits
    for data in (saved(image, progressive=True), encode_jpeg(image), b'', b'\xff\xd8\xff', plain[:300], b'P6 1 1 255 abc',
                 plain[:-2], plain + plain, plain + b'trailer\xff\xd9'):
        assert add_restarts(data) == list_segments(data) == data
    with pytest.raises(JpegtranError, match='exit status'): add_restarts(bytes(twelve))


def test_several_scans_become_one(tmp_path):
    (tmp_path/'scans').write_text('0;\n1;\n2;\n')   # a component in each
    data = subprocess.run(['jpegtran', '-scans', tmp_path/'scans'], input=saved(picture(60, 80)), capture_output=True, check=True).stdout
    divided = add_restarts(data)
    assert data.count(b'\xff\xda') == 3 and read_layout(divided).num_listed and np.array_equal(pixels(divided), pixels(data))


@fuzz(400)
@given(st.integers(2, 5000), st.integers(0, 255), st.booleans())
def test_damage_is_refused_or_gives_the_same_damage(at, value, is_cut):
    data = bytearray(saved(picture(60, 80), quality=60))
    at %= len(data)
    if is_cut: del data[at:-2]
    else: data[at] = value
    try: divided = add_restarts(bytes(data))
    except JpegtranError: return
    try: expected = pixels(bytes(data))
    except Exception: return   # a packer decodes first
    assert divided[:2] == b'\xff\xd8' and expected.size   # a packer compares the pixels


@pytest.mark.parametrize('code, message', [
    (None, 'jpegtran is not on PATH: install libjpeg-turbo-progs with apt'),
    ("print('mozjpeg version 4.1.1 (build 20240101)', file=sys.stderr)", "is not libjpeg-turbo's: install libjpeg-turbo-progs"),
    ("sys.exit('jpegtran: unknown option')", "is not libjpeg-turbo's"),
    (TURBO + 'sys.exit(1)', 'jpegtran failed: exit status 1'),
    (TURBO + 'sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(2)', 'jpegtran failed: exit status 2'),
    (TURBO + 'os.kill(os.getpid(), 9)', 'jpegtran failed: exit status -9'),
    (TURBO + 'sys.stdout.buffer.write(sys.stdin.buffer.read())', 'jpegtran failed: exit status 0'),   # it has no markers
    (TURBO + "print('no JPEG')", 'jpegtran failed: exit status 0'),
    (TURBO + 'time.sleep(60)', 'jpegtran failed: TimeoutExpired'),
    (TURBO + 'os.close(0); time.sleep(60)', 'jpegtran failed: TimeoutExpired')])
def test_a_program_that_is_missing_or_fails_says_so(stand_in, monkeypatch, code, message):
    stand_in(code)
    if 'sleep' in str(code):
        jpegtran_version()
        monkeypatch.setattr(restarts, '_SECONDS', 0.3)
    with pytest.raises(JpegtranError, match=message): add_restarts(saved(picture(60, 80)))


def test_a_list_of_another_file_is_not_believed():
    one, other = encode_jpeg(picture(200, 240, 1)), encode_jpeg(picture(200, 240, 2))
    parts = [read_layout(data) for data in (one, other)]
    table = slice(parts[0].table, parts[0].table + 4 * parts[0].num_listed)
    mixed = bytearray(one)
    mixed[table] = other[table]
    assert parts[0].table == parts[1].table and mixed != one
    assert cut_segments(bytes(mixed), read_layout(mixed), (50, 60, 90, 90)) is None
    assert cut_segments(one, parts[0], (50, 60, 90, 90)) is not None
    assert np.array_equal(Pixels(bytes(mixed)).read_crop((50, 60, 90, 90)), Pixels(one).read()[50:140, 60:150])


@fuzz(100)
@given(st.binary(min_size=4, max_size=4 * 49).map(lambda data: data[:len(data) // 4 * 4]))
def test_any_list_gives_the_right_pixels(table):
    data = bytearray(encode_jpeg(picture(200, 240)))
    layout = read_layout(data)
    data[layout.table:layout.table + min(len(table), 4 * layout.num_listed)] = table[:4 * layout.num_listed]
    assert np.array_equal(Pixels(bytes(data)).read_crop((50, 60, 90, 90)), Pixels(bytes(data)).read()[50:140, 60:150])
