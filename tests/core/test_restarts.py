"Restart markers without loss: Pillow's pixels before and after, of every kind of JPEG; damage is refused, never packed as something else."
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import photographs
from PIL import Image

from timmdata.core.jpeg import Pixels, cut_segments, find_restarts, read_grid, read_layout
from timmdata.core.restarts import CannotRestart, HuffmanTable, add_restarts, encode_jpeg, list_segments

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures('cut_small_files')]


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


KINDS = dict(subsampling=st.sampled_from(['4:4:4', '4:2:2', '4:2:0']), quality=st.integers(1, 98), optimize=st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from(['RGB', 'L', 'CMYK']), st.fixed_dictionaries(KINDS), st.integers(0, 99))
def test_not_a_pixel_changes(height, width, mode, options, seed):
    data = saved(picture(height, width, seed, mode), **options)
    divided = add_restarts(data)
    assert np.array_equal(pixels(divided), pixels(data))
    layout = read_layout(divided)
    grid, unlisted = read_grid(divided, layout), layout._replace(num_listed=0)
    assert grid.rows * grid.columns == 1 or layout.num_listed == grid.rows * grid.columns - 1
    assert np.array_equal(find_restarts(divided, layout, grid), find_restarts(divided, unlisted, grid))
    assert Image.open(io.BytesIO(divided)).info.items() >= Image.open(io.BytesIO(data)).info.items()   # resolution, …


@settings(max_examples=60, deadline=None)
@given(st.integers(24, 90), st.integers(24, 90), st.fixed_dictionaries(KINDS), st.tuples(*[st.floats(0, 1)] * 4), st.booleans())
def test_a_crop_is_that_of_the_whole(height, width, options, edges, encoded):
    image = picture(height, width)
    data = (encode_jpeg(image, min(95, options['quality']), options['subsampling']) if encoded
            else add_restarts(saved(image, **options)))
    top, left = (int(edge * (size - 1)) for edge, size in zip(edges, (height, width)))
    crop = top, left, 1 + int(edges[2] * (height - top - 1)), 1 + int(edges[3] * (width - left - 1))
    found = Pixels(data).read_crop(crop)
    assert np.array_equal(found, Pixels(data).read()[top:top + crop[2], left:left + crop[3]])


def test_real_photographs(samples):
    for source in ('samples', 'imagenet-200'):
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


def test_what_has_no_room_for_markers_is_refused():
    image = picture(64, 64)
    for data in (saved(image, progressive=True), encode_jpeg(image), b'', b'\xff\xd8\xff', saved(image)[:300], b'P6 1 1 255 abc'):
        with pytest.raises(CannotRestart): add_restarts(data)
        assert list_segments(data) == data


@settings(max_examples=400, deadline=None)
@given(st.integers(2, 5000), st.integers(0, 255), st.booleans())
def test_damage_is_refused_or_gives_the_same_damage(at, value, is_cut):
    data = bytearray(saved(picture(60, 80), quality=60))
    at %= len(data)
    if is_cut: del data[at:-2]
    else: data[at] = value
    try: divided = add_restarts(bytes(data))
    except CannotRestart: return
    try: expected = pixels(bytes(data))
    except Exception: return   # a packer decodes first
    assert divided[:2] == b'\xff\xd8' and expected.size   # a packer compares the pixels


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


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=4, max_size=4 * 49).map(lambda data: data[:len(data) // 4 * 4]))
def test_any_list_gives_the_right_pixels(table):
    data = bytearray(encode_jpeg(picture(200, 240)))
    layout = read_layout(data)
    data[layout.table:layout.table + min(len(table), 4 * layout.num_listed)] = table[:4 * layout.num_listed]
    assert np.array_equal(Pixels(bytes(data)).read_crop((50, 60, 90, 90)), Pixels(bytes(data)).read()[50:140, 60:150])


@given(st.lists(st.integers(1, 16), min_size=1, max_size=11), st.integers(0, 11))
def test_codes_are_added_and_others_stay(lengths, missing):
    counts = np.bincount(sorted(lengths), minlength=17)[1:17].astype(np.uint8).tobytes()
    try: table = HuffmanTable(counts, bytes(k for k in range(12) if k != missing)[:len(lengths)])
    except CannotRestart: return
    if sum(2.**-n for n in lengths) >= 1: return   # complete: a JPEG leaves a code of ones alone
    try: more = table.with_all(range(12))
    except CannotRestart: return
    assert more.codes.items() >= table.codes.items() and set(range(12)) <= set(more.codes)
    texts = [format(code, f'0{length}b') for code, length in more.codes.values()]
    assert not any(a != b and b.startswith(a) for a in texts for b in texts)
    assert not any(set(text) == {'1'} for text in texts[len(table.codes):])
