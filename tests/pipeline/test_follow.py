"Test masks, boxes and points of one sample: accepted types, positions in the result, errors; pixels are counted in a loop."
import io
import json
import pickle

import numpy as np
import pytest
import torch
from followed import OUTSIDE, box_of, labels_of, png, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from timmdata import Boxes, Mask, Points
from timmdata.core.faults import ImageReadError
from timmdata.pipeline.follow import Follower, Followers
from timmdata.pipeline.geometry import Geometry
from timmdata.pipeline.params import SampleParams
from timmdata.transforms.policy import DrawnOp

LABELS = labels_of(5)
HEIGHT, WIDTH = LABELS.shape


def geometry_of(crop=None, size=(40, 56), offset=(0, 0), resized=None, ops=(), source=(HEIGHT, WIDTH), **flips) -> Geometry:
    params = SampleParams(crop or (0, 0, *source), resized or size, offset, 'bilinear', tuple(DrawnOp(*op) for op in ops))
    return Geometry(source, size, params, **flips)


WHOLE = geometry_of(size=(HEIGHT, WIDTH))
CROP = geometry_of((5, 8, 60, 70), (30, 50), (-4, 3), (30, 60), hflip=True)


# masks: forms

def as_file(array, folder, format='png', mode=None):
    image = Image.fromarray(array)
    path = folder/f'mask.{format}'
    (image if mode is None else image.convert(mode)).save(path)
    return path


def palette(array):
    image = Image.fromarray(array)
    image.putpalette([255 - k % 256 for k in range(768)])
    return image


FORMS = {
    'array': lambda a, folder: a, 'other integers': lambda a, folder: a.astype(np.int64), 'uint16': lambda a, folder: a.astype(np.uint16),
    'big-endian': lambda a, folder: a.astype('>i4'), 'strided': lambda a, folder: np.repeat(a, 2, 1)[:, ::2],
    'tensor': lambda a, folder: torch.from_numpy(a.copy()), 'L': lambda a, folder: Image.fromarray(a), 'P': lambda a, folder: palette(a),
    'I;16': lambda a, folder: Image.fromarray(a.astype(np.uint16)), 'I': lambda a, folder: Image.fromarray(a.astype(np.int32)),
    'bytes': lambda a, folder: png(a), 'view': lambda a, folder: memoryview(png(a)), 'opened': lambda a, folder: io.BytesIO(png(a)),
    'path': as_file, 'text': lambda a, folder: str(as_file(a, folder)),
    '16-bit file': lambda a, folder: as_file(a.astype(np.uint16), folder),
    'TIFF': lambda a, folder: as_file(a, folder, 'tif'), '4-bit file': lambda a, folder: saved(palette(a), bits=4)}


@pytest.mark.parametrize('form', FORMS)
def test_a_mask_may_have_any_form(form, tmp_path):
    follower = Mask()
    for geometry in (WHOLE, CROP):
        expected = np.asarray(geometry.warp(Image.fromarray(LABELS), OUTSIDE))
        moved = follower.on_device(follower(FORMS[form](LABELS, tmp_path), geometry))
        assert moved.dtype == torch.int64 and np.array_equal(moved, expected)


def test_a_palette_is_kept_as_indexes_in_a_file_too(tmp_path):
    palette(LABELS).save(tmp_path/'mask.png')
    assert np.array_equal(Mask()(tmp_path/'mask.png', WHOLE), LABELS)


@pytest.mark.parametrize('array', [LABELS > 4, Image.fromarray(LABELS > 4)], ids=['bool', 'mode 1'])
def test_black_and_white_is_0_and_1(array): assert np.array_equal(Mask()(array, WHOLE), LABELS > 4)


def test_large_indexes_need_another_number_outside():
    large = LABELS.astype(np.uint16) * 300
    with pytest.raises(ValueError, match='index 3000, so outside=255 may be one of its classes: pass another number, such as outside=-1'):
        Mask()(large, CROP)
    for outside in (-1, 65535, 10**6):
        moved = Mask(outside=outside)(large, CROP)
        expected = np.asarray(CROP.warp(Image.fromarray(LABELS), OUTSIDE)).astype(np.int64) * 300
        expected[expected == OUTSIDE * 300] = outside
        assert np.array_equal(moved, expected)


@pytest.mark.parametrize('outside', [-1, 0, 255, 256, -2**31 + 1, 2**31 - 1])
def test_outside_is_the_number_asked_for(outside):
    "The indexes have 8 bits; the number outside may need more."
    moved = Mask(outside=outside).on_device(Mask(outside=outside)(LABELS, CROP))
    plain = np.asarray(CROP.warp(Image.fromarray(LABELS), OUTSIDE))
    assert np.array_equal(moved, np.where(plain == OUTSIDE, outside, plain.astype(np.int64)))


@pytest.mark.parametrize('index', [2**31, -2**31, 2**40 + 3, -2**40])
def test_indexes_that_do_not_fit_are_refused_and_not_cut(index):
    with pytest.raises(ValueError, match=f'the mask has index {index}, which needs more than 32 bits'):
        Mask(outside=-1)(np.full((HEIGHT, WIDTH), index), WHOLE)


def test_negative_indexes_stay():
    assert np.array_equal(Mask()(LABELS.astype(np.int16) - 5, WHOLE), LABELS.astype(int) - 5)


def test_objects_of_one_mask_each_and_none():
    masks = np.stack([LABELS == k for k in range(4)])
    moved = Mask(outside=0)(masks, CROP)
    assert moved.shape == (4, 30, 50)
    for mask, out in zip(masks, moved, strict=True):
        assert np.array_equal(out, np.asarray(CROP.warp(Image.fromarray(mask.astype(np.uint8)))))
    assert Mask()(masks[:0], CROP).shape == (0, 30, 50)


def test_a_mask_of_a_file_stays_whole():
    assert np.array_equal(Mask(at='file')(LABELS, CROP), LABELS)
    with pytest.raises(ValueError, match='its image has'): Mask(at='file')(LABELS[1:], CROP)


@pytest.mark.parametrize('size', [(1, 1), (1, 7), (7, 1), (2000, 3)])
def test_images_of_one_pixel_and_long_ones(size):
    mask = np.arange(size[0] * size[1]).reshape(size).astype(np.int32)
    moved = Mask(outside=-1)(mask, geometry_of(size=(9, 5), source=size))
    rows, columns = ((2 * np.arange(wanted) + 1) * edge // (2 * wanted) for wanted, edge in zip((9, 5), size))
    assert np.array_equal(moved, mask[rows][:, columns])


# masks: classes

def test_classes_name_indexes_or_all_others():
    named = Mask(classes={0: 7, 3: 0, 10: -1, None: 255})(LABELS, WHOLE)
    expected = np.full(LABELS.shape, 255)
    for old, new in ((0, 7), (3, 0), (10, -1)): expected[LABELS == old] = new
    assert np.array_equal(named, expected)
    assert np.array_equal(Mask(classes={0: 7, 3: 0, 10: -1, None: 255})(LABELS.astype(np.uint16), WHOLE), expected)
    assert (Mask(classes={None: 4})(LABELS, WHOLE) == 4).all()
    with pytest.raises(ValueError, match=r'the mask has index \d+, which is not in classes: add it, or None: 255 for all others'):
        Mask(classes={0: 7})(LABELS, WHOLE)


def test_what_is_outside_is_not_renamed():
    "The number outside is an index of the result, even if `classes` has the same number as a key."
    moved = Mask(outside=3, classes={**{k: k for k in range(11)}, 3: 99})(LABELS, CROP)
    plain = np.asarray(CROP.warp(Image.fromarray(LABELS), OUTSIDE)).astype(int)
    assert np.array_equal(moved, np.select([plain == OUTSIDE, plain == 3], [3, 99], plain))


COLORS = {(20 * k, 255 - 3 * k, 7): k for k in range(11)}
COLORED = np.array([*COLORS], np.uint8)[LABELS]


@pytest.mark.parametrize('form', ['array', 'file', 'RGBA', 'bytes'])
def test_colors_become_indexes(form, tmp_path):
    value = {'array': COLORED, 'file': as_file(COLORED, tmp_path), 'bytes': png(COLORED),
             'RGBA': as_file(np.concatenate([COLORED, COLORED[..., :1]], 2), tmp_path)}[form]
    assert np.array_equal(Mask(classes=COLORS)(value, WHOLE), LABELS)


def test_colors_of_16_bits_are_told_apart():
    "(0, 256, 0) must not equal (1, 0, 0), nor (0, 0, 65535) any other color."
    colors = {(0, 256, 0): 1, (1, 0, 0): 2, (0, 0, 65535): 3, (0, 255, 65535): 4, (65535, 0, 0): 5, (255, 65535, 0): 6}
    indexes = np.resize([*colors.values()], (HEIGHT, WIDTH))
    image = np.array([*colors], np.uint16)[indexes - 1]
    assert np.array_equal(Mask(classes=colors)(image, WHOLE), indexes)


def test_colors_that_are_not_named():
    with pytest.raises(ValueError, match=r'the mask has color \(\d+, \d+, 7\), which is not in classes: add it, or None: 255'):
        Mask(classes={(0, 0, 0): 0})(COLORED, WHOLE)
    assert (Mask(classes={(0, 255, 7): 1, None: 0})(COLORED, WHOLE) == torch.from_numpy(LABELS == 0)).all()
    with pytest.raises(ValueError, match=r'the mask has 3 channels: name its colors, as in classes=\{\(255, 0, 0\): 1, …\}'):
        Mask()(COLORED, WHOLE)
    with pytest.raises(ValueError, match='the mask has indexes, but the keys of classes are colors'): Mask(classes=COLORS)(LABELS, WHOLE)


# masks: errors

@pytest.mark.parametrize('value, found', [
    (LABELS[:-1], r'the mask has \(104, 92\) pixels \(width, height\), its image has \(104, 93\): both must have the same size'),
    (LABELS.T, r'\(93, 104\) pixels'), (LABELS[..., None], r'the mask has shape \(93, 104, 1\): must be \(height, width\), \(n, height'),
    (LABELS[None, None], r'shape \(1, 1, 93, 104\)'), (LABELS[0], r'shape \(104,\)'),
    (Image.fromarray(LABELS).convert('LA'), r'shape \(93, 104, 2\)')], ids=range(6))
def test_another_size_than_the_image(value, found):
    with pytest.raises(ValueError, match=found): Mask()(value, WHOLE)


@pytest.mark.parametrize('value, found', [
    (None, 'type NoneType: must be a path, the bytes of a file, a PIL image, an array or a tensor'), (LABELS.tolist(), 'type list'),
    (LABELS / 1, 'dtype float64: a Mask has class indexes, which are integers; for other values, such as depth, pass a function'),
    (Image.fromarray(LABELS / np.float32(2)), 'dtype float32'), (torch.rand(HEIGHT, WIDTH), 'dtype float32'),
    (LABELS.astype(str), 'dtype <U')],
    ids=range(6))
def test_what_is_no_mask_is_a_mistake_of_the_program(value, found):
    with pytest.raises(TypeError, match=found): Mask()(value, WHOLE)


@pytest.mark.parametrize('data, found', [
    (b'', 'the file is empty'), (png(LABELS)[:120], 'truncated'), (b'hello', 'does not recognize'), (None, 'No such file')], ids=range(4))
@pytest.mark.parametrize('at', ['file', 'input'])
def test_a_file_that_cannot_be_read_is_named(data, found, at, tmp_path):
    path = tmp_path/'of_5.png'
    if data is not None: path.write_bytes(data)
    with pytest.raises(OSError, match=found) as error: Mask(at=at)(path, WHOLE)
    assert str(path) in str(error.value)
    change = Followers({'mask': Mask(at=at)}, ['image', 'mask']).change
    with pytest.raises(ImageReadError, match=f"field 'mask': .*{path.name}.*{found}|field 'mask': .*{found}.*{path.name}"):
        change(('an image', path), WHOLE)


@pytest.mark.parametrize('given, found', [
    (dict(outside=1.5), 'outside=1.5: must be an integer of 32 bits'), (dict(outside=None), 'outside=None'),
    (dict(outside=2**31), 'outside=2147483648'),
    (dict(classes=[1]), r'classes has type list: must be a dict such as \{0: 0, 7: 1, None: 255\}'),
    (dict(at='mask'), 'at=.mask.: must be one of input, file'),
    (dict(classes={'a': 1}), 'the keys must be indexes, or colors'), (dict(classes={0: 'a'}), 'whose values are integers'),
    (dict(classes={1.5: 0}), 'the keys must be'),
    (dict(classes={0: 1, (1, 2, 3): 4}), 'the keys must be indexes, or colors'), (dict(classes={(1, 2): 4}), 'the keys must be'),
    (dict(classes={(1, 2): 4, (1, 2, 3): 4}), 'the keys must be'), (dict(classes={0: 2**31}), 'values are integers')], ids=str)
def test_settings_of_a_mask_are_checked_where_they_are_made(given, found):
    with pytest.raises((ValueError, TypeError), match=found): Mask(**given)


# boxes

BOXES = np.array([[10, 20, 60, 70], [0, 0, WIDTH, HEIGHT], [90, 80, 100, 90], [30.5, 40.25, 31.5, 90]], np.float64)


def counted(boxes: np.ndarray, geometry: Geometry, fine: int = 8) -> tuple[list, list]:
    "Return each box around its visible pixels in the result, and their share, counted in masks of fine² points per pixel."
    scaled = geometry._replace(
        source=tuple(fine * edge for edge in geometry.source), size=tuple(fine * edge for edge in geometry.size),
        params=geometry.params._replace(**{
            name: tuple(fine * one for one in getattr(geometry.params, name)) for name in ('crop', 'size', 'offset')}))
    found, shares = [], []
    for left, top, right, bottom in (boxes * fine).round().astype(int):
        image = np.zeros(scaled.source, np.uint8)
        image[top:bottom, left:right] = 1
        seen = np.argwhere(np.asarray(scaled.warp(Image.fromarray(image))))
        found.append(None if not len(seen) else np.concatenate([seen.min(0)[::-1], seen.max(0)[::-1] + 1]) / fine)
        scale = np.prod(geometry.params.size) / np.prod(geometry.params.crop[2:])
        shares.append(len(seen) / max((right - left) * (bottom - top) * scale, 1))
    return found, shares


GEOMETRIES = [CROP, WHOLE, CROP._replace(vflip=True), geometry_of((0, 0, 93, 104), (64, 64), (-10, -3), (44, 58)),
              geometry_of((40, 30, 40, 50), (90, 70)), geometry_of((10, 10, 60, 60), (30, 30), (5, 8), (50, 50), hflip=True, vflip=True)]


@pytest.mark.parametrize('geometry', GEOMETRIES, ids=range(len(GEOMETRIES)))
def test_boxes_are_what_is_seen_of_them(geometry):
    found, shares = counted(BOXES, geometry)
    boxes, kept = Boxes(min_side=0).fit(BOXES, geometry)
    assert kept.tolist() == [one is not None for one in found] and boxes.dtype == torch.float32
    assert np.abs(boxes.numpy() - np.array([one for one in found if one is not None])).max() < 0.25   # of two points
    for share in (0.1, 0.3, 0.5, 0.8, 0.99):
        if min(abs(one - share) for one in shares) < 0.03: continue
        assert Boxes(min_side=0, min_visible=share).fit(BOXES, geometry)[1].tolist() == [one >= share for one in shares]
    sides = [0. if one is None else min(one[2:] - one[:2]) for one in found]
    for side in (1, 4, 10, 20):
        if min(abs(one - side) for one in sides) < 0.3: continue
        assert Boxes(min_side=side).fit(BOXES, geometry)[1].tolist() == [one >= side for one in sides]


@pytest.mark.parametrize('op', [
    ('Rotate', 30.), ('Rotate', -12.), ('Rotate', 90.), ('ShearX', 0.3), ('ShearY', -0.25), ('TranslateXRel', 0.1)], ids=str)
def test_turned_boxes_contain_their_turned_pixels_and_no_more(op):
    "Pillow draws a polygon that is turned with the image; inside the image, the new box is its hull, up to a pixel."
    boxes = np.array([[40, 35, 60, 55], [35, 30, 70, 50], [45, 25, 52, 65]], np.float64)
    geometry = geometry_of(size=(93, 104), ops=[op])
    moved = Boxes()(boxes, geometry).numpy()
    for (left, top, right, bottom), box in zip(boxes, moved, strict=True):
        image = Image.new('L', (WIDTH, HEIGHT))
        ImageDraw.Draw(image).rectangle((left, top, right - 1, bottom - 1), fill=1)
        if op[0] == 'Rotate': image = image.rotate(op[1], Image.Resampling.NEAREST)
        elif op[0] == 'ShearX': image = image.transform(image.size, Image.Transform.AFFINE, (1, op[1], 0, 0, 1, 0))
        elif op[0] == 'ShearY': image = image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, op[1], 1, 0))
        else: image = image.transform(image.size, Image.Transform.AFFINE, (1, 0, op[1] * WIDTH, 0, 1, 0))
        assert np.abs(box - np.array(image.getbbox())).max() <= 1


def test_turned_boxes_stay_in_the_image():
    geometry = geometry_of(size=(93, 104), ops=[('Rotate', 30.)])
    boxes, kept = Boxes(min_side=0).fit([[0, 0, 10, 10], [0, 80, 10, 93], [50, 40, 60, 50]], geometry)
    assert kept.tolist() == [False, False, True] or (boxes[:, :2] >= 0).all() and (boxes[:, 2:] <= torch.tensor([104, 93])).all()
    assert kept[2]


@pytest.mark.parametrize('format', ['xyxy', 'xywh', 'cxcywh'])
def test_formats_come_back_as_they_were_given(format):
    "Compare with torchvision's conversion."
    from torchvision.ops import box_convert
    given = box_convert(torch.from_numpy(BOXES), 'xyxy', format)
    expected = box_convert(Boxes()(BOXES, CROP), 'xyxy', format)
    assert torch.allclose(Boxes(format)(given, CROP), expected, atol=1e-4)


@pytest.mark.parametrize('value', [BOXES.tolist(), BOXES, BOXES.astype(np.float32), torch.from_numpy(BOXES), json.dumps(BOXES.tolist())],
                         ids=['list', 'array', 'float32', 'tensor', 'JSON'])
def test_boxes_may_have_any_form(value): assert torch.allclose(Boxes()(value, CROP), Boxes()(BOXES, CROP))


@pytest.mark.parametrize('value', [[], np.zeros((0, 4)), torch.zeros(0), '[]', '[[]]', torch.zeros(0, 4, dtype=torch.int64)], ids=range(6))
def test_no_boxes(value):
    boxes, kept = Boxes().fit(value, geometry_of(size=(93, 104), ops=[('Rotate', 30.)]))
    assert boxes.shape == (0, 4) and boxes.dtype == torch.float32 and kept.shape == (0,)


@pytest.mark.parametrize('value, found', [
    ([[50, 20, 10, 70]], r"box 0 \(left 50, top 20, right 10, bottom 70\) has a negative width or height; check format='xyxy'"),
    ([[0, 0, 9, 9], [0, 0, WIDTH + 2, 9]], r'box 1 \(left 0, top 0, right 106, bottom 9\) is outside its image of 104×93 pixels'),
    ([[-3, 0, 9, 9]], 'is outside its image'), ([[1, 2, np.nan, 4]], 'row 0 has a number that is NaN or infinite'),
    ([[1, 2, 3, 4], [1, 2, np.inf, 4]], 'row 1 has a number'), ([1, 2, 3, 4], r'got shape \(4,\): must be \(n, 4\)'),
    ([[1, 2, 3, 4, 5]], r'got shape \(1, 5\)'), ([[[1, 2, 3, 4]]], r'got shape \(1, 1, 4\): must be \(n, 4\)'), (None, r'got shape \(\)'),
    ([[1, 2, 3, 4], [1]], r'got \[\[1, 2, 3, 4\], \[1\]\]: must be numbers of the shape \(n, 4\)'),
    ({'a': 1}, r"got \{'a': 1\}: must be numbers"),
    ('[[1, 2', r"got the text '\[\[1, 2': must be JSON, such as \[\[1, 2\], \[3, 4\]\]"), ('no', "got the text 'no'")], ids=range(13))
def test_boxes_that_are_wrong(value, found):
    with pytest.raises(ValueError, match=found): Boxes()(value, WHOLE)
    with pytest.raises(ImageReadError, match=f"field 'target.boxes': .*{found}"):
        Followers({'target.boxes': Boxes()}).change(('an image', {'boxes': value}), WHOLE)


def test_annotations_may_be_rounded_to_beyond_the_edge():
    assert Boxes()([[-.5, -1, WIDTH + .5, HEIGHT + 1]], WHOLE).tolist() == [[0, 0, WIDTH, HEIGHT]]


def test_rows_leave_with_their_box():
    kept = Boxes().fit(BOXES, GEOMETRIES[4])[1].tolist()
    assert 0 < sum(kept) < 4
    beside = {'labels': torch.arange(4), 'area': np.array([1., 2., 3., 4.]), 'names': ['a', 'b', 'c', 'd'], 'crowd': (0, 1, 0, 1),
              'text': '[5, 6, 7, 8]', 'masks': torch.arange(8).reshape(4, 2), 'id': 9}
    follow = Followers({'target.boxes': Boxes(also=['labels', 'area', 'names', 'crowd', 'text', 'masks'])})
    _, target = follow.change(('an image', {'boxes': BOXES, **beside}), GEOMETRIES[4])
    rows = [row for row, is_kept in enumerate(kept) if is_kept]
    assert len(target['boxes']) == len(rows) and target['id'] == 9 and beside['labels'].tolist() == [0, 1, 2, 3]
    for name in ('labels', 'area', 'masks'):
        assert type(target[name]) is type(beside[name]) and target[name].dtype == beside[name].dtype
        assert np.array_equal(target[name], beside[name][rows])
    assert target['names'] == [beside['names'][row] for row in rows] and target['text'] == [5 + row for row in rows]
    assert list(target['crowd']) == [beside['crowd'][row] for row in rows]


@pytest.mark.parametrize('value, found', [
    ([1, 2], 'labels has length 2, but there are 4 boxes'), (3, 'labels has type int: must have one row per box'),
    ('[1, 2]', 'labels has length 2'),
    ('abc', "got the text 'abc': must be JSON"), (torch.tensor(3), 'labels has type Tensor')], ids=range(5))
def test_rows_beside_the_boxes_that_are_wrong(value, found):
    with pytest.raises(ImageReadError, match=f'field 2: {found}'):
        Followers({2: Boxes(also=['labels'])}).change({'image': 0, 2: BOXES, 'labels': value}, WHOLE)


def batch_of(follow, *samples) -> dict:
    followers = Followers(follow)
    return followers.collate([{name: sample[name] for name in followers.names} for sample in samples])


def test_padded_boxes_have_a_count_and_the_type_of_all_samples():
    "Mix lists of integers and of floats, and samples without boxes, first or last."
    follow = {'boxes': Boxes(pad=True, also=['labels', 'area'])}
    boxes = [torch.rand(n, 4) for n in (0, 2, 1)]
    rows = dict(labels=[[], [1, 2], [5]], area=[[], [3, 4], [.5]])
    samples = [dict(boxes=boxes[k], labels=rows['labels'][k], area=rows['area'][k]) for k in range(3)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        batch = batch_of(follow, *(samples[k] for k in order))
        assert batch['boxes'].shape == (3, 2, 4) and batch['boxes'].dtype == batch['area'].dtype == torch.float32
        assert batch['labels'].dtype == torch.int64 and batch['num_boxes'].tolist() == [len(boxes[k]) for k in order]
        for row, k in enumerate(order):
            count = len(boxes[k])
            assert torch.equal(batch['boxes'][row, :count], boxes[k]) and not batch['boxes'][row, count:].any()
            assert batch['labels'][row].tolist() == samples[k]['labels'] + [-1] * (2 - count)
            assert batch['area'][row].tolist() == samples[k]['area'] + [0.] * (2 - count)


def test_padded_boxes_of_a_batch_without_any():
    sample = dict(boxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64))
    batch = batch_of({'boxes': Boxes(pad=True, also=['labels'])}, *[sample] * 3)
    assert batch['boxes'].shape == (3, 0, 4) and batch['boxes'].dtype == torch.float32 and batch['labels'].dtype == torch.int64
    assert batch['num_boxes'].tolist() == [0, 0, 0]


@pytest.mark.parametrize('names', [['target.boxes', 'target.mask'], ['target.mask', 'target.boxes']], ids=['first', 'last'])
def test_padded_boxes_beside_another_field_that_follows(names):
    "In any order, the dict becomes one dict of tensors."
    made = {'target.boxes': Boxes(pad=True), 'target.mask': Mask()}
    samples = [{'target': {'boxes': torch.rand(n, 4), 'mask': torch.zeros(3, 3)}} for n in (2, 1)]
    target = batch_of({name: made[name] for name in names}, *samples)['target']
    assert {name: tuple(value.shape) for name, value in target.items()} == {'boxes': (2, 2, 4), 'mask': (2, 3, 3), 'num_boxes': (2,)}


def test_padding_needs_numbers():
    with pytest.raises(TypeError, match=r"pad=True needs numbers in the field 'names', got \['a', 'b'\]"):
        batch_of({'boxes': Boxes(pad=True, also=['names'])}, dict(boxes=torch.rand(2, 4), names=['a', 'b']))


@pytest.mark.parametrize('given, found', [
    (dict(format='xyxz'), "format='xyxz': must be one of xyxy, xywh, cxcywh"),
    (dict(min_side=-1), 'min_side=-1: must be a number of pixels'),
    (dict(min_visible=2), 'min_visible=2: must be a share, 0..1'),
    (dict(also='labels'), r"also has type str: must be a list of names, such as \['labels'\]"),
    (dict(pad='yes'), 'pad')], ids=str)
def test_settings_of_boxes_are_checked_where_they_are_made(given, found):
    with pytest.raises((ValueError, TypeError), match=found): Boxes(**given)


# points

def test_points_outside_keep_their_place_and_are_not_visible():
    points = np.array([[10, 20, 2], [WIDTH - 1, HEIGHT - 1, 1], [40, 40, 0], [50, 50, 1], [-30, 5, 2]], np.float64)
    moved = Points()(points, GEOMETRIES[4]).numpy()
    top, left, height, width = GEOMETRIES[4].params.crop
    expected = (points[:, :2] + .5 - [left, top]) * [70 / width, 90 / height] - .5
    assert np.abs(moved[:, :2] - expected).max() < 1e-3 and moved.dtype == np.float32
    inside = ((expected > -.5) & (expected < [69.5, 89.5])).all(1)
    assert moved[:, 2].tolist() == (points[:, 2] * inside).tolist() and 0 < inside.sum() < 5
    assert np.array_equal(Points()(points[:, :2], GEOMETRIES[4]), moved[:, :2])


PAIRS = [(0, 1), (3, 4)]


@pytest.mark.parametrize('flips, is_mirrored', [((0, 0), False), ((1, 0), True), ((0, 1), True), ((1, 1), False)])
def test_pairs_change_places_in_a_mirror_only(flips, is_mirrored):
    points = np.random.default_rng(0).uniform(0, 90, (3, 5, 3))   # of three objects
    geometry = geometry_of(size=(93, 104), hflip=bool(flips[0]), vflip=bool(flips[1]))
    plain, swapped = Points()(points, geometry), Points(PAIRS)(points, geometry)
    order = [1, 0, 2, 4, 3] if is_mirrored else range(5)
    assert torch.equal(swapped, plain[:, [*order]])


@pytest.mark.parametrize('geometry', [WHOLE, CROP], ids=['plain', 'mirrored'])
def test_pairs_that_are_not_there_are_an_error_in_every_image(geometry):
    with pytest.raises(ValueError, match=r'there are 5 points, too few for swap=\[\(0, 5\)\]'):
        Points([(0, 5)])(np.zeros((5, 2)), geometry)
    for shape in ((0, 2), (0, 5, 3)): assert Points([(0, 1)])(np.zeros(shape), geometry).shape == shape


@pytest.mark.parametrize('value', [
    [[1, 2], [3, 4]], np.array([[1., 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]]), '[[1, 2], [3, 4]]'], ids=range(4))
def test_points_may_have_any_form(value): assert torch.allclose(Points()(value, WHOLE), torch.tensor([[1., 2], [3, 4]]))


@pytest.mark.parametrize('value, found', [
    ([1, 2], r'got shape \(2,\): must be \(n, 2 or 3\)'), ([[1, 2, 3, 4]], r'got shape \(1, 4\)'),
    ([[1, np.nan]], 'row 0 has a number that is NaN'),
    ([[[1, 2], [1, np.inf]]], 'row 0 has a number'), ('x', "got the text 'x'")], ids=range(5))
def test_points_that_are_wrong(value, found):
    with pytest.raises(ValueError, match=found): Points()(value, WHOLE)


@pytest.mark.parametrize('swap', [[(0,)], [(0, 1), (1, 2)], [(0, 0)], [(-1, 0)], [('a', 'b')], 'ab', 3], ids=str)
def test_pairs_are_checked_where_they_are_made(swap):
    with pytest.raises((ValueError, TypeError), match=r'must be pairs of.* points, such as \[\(0, 1\), \(3, 4\)\]'): Points(swap)


# which fields follow

class Half(Follower):
    "Define a user's follower that also changes values on the device."
    def __call__(self, value, geometry): return torch.tensor([value, *geometry.size])
    def on_device(self, value): return value / 2


def test_a_follower_of_the_user_and_a_function():
    followers = Followers({'depth': Half(), 'flow': lambda value, geometry: value * geometry.hflip}, ['image', 'depth', 'flow'])
    changed = followers.change(('an image', 3, 7), CROP)
    assert changed[0] == 'an image' and changed[1].tolist() == [3, 30, 50] and changed[2] == 7 and len(followers) == 2
    batch = followers.collate([{'target': changed[1], 2: changed[2]}] * 2)
    assert followers.on_device({'image': 0, **batch})['target'].tolist() == [[1.5, 15, 25]] * 2


@pytest.mark.parametrize('follow, found', [
    ([Mask()], 'follow has type list: must be a dict such as'),
    ({'mask': 3}, r"follow\['mask'\] has type int: pass a Mask\(\), Boxes\(\) or Points\(\), or a function"),
    ({'mask': Mask}, r"follow\['mask'\] has type type"),
    ({'image': Mask()}, "follow names the field 'image': must be a field that the dataset has in addition to the image")],
    ids=range(4))
def test_what_cannot_follow(follow, found):
    with pytest.raises((ValueError, TypeError), match=found): Followers(follow)


def test_names_that_the_dataset_does_not_have():
    for name in ('maks', 'maks.boxes', 3):
        with pytest.raises(ValueError, match='must be a field that the dataset has in addition to the image; it has target, mask'):
            Followers({name: Mask()}, ['image', 'target', 'mask'])
    for name in ('mask', 'target', 2, 'target.boxes'): Followers({name: Mask()}, ['image', 'target', 'mask'])
    change = Followers({'target.boxes': Boxes()}).change
    for sample in (('an image', {'box': []}), {'image': 0, 'label': 3}):
        with pytest.raises(KeyError, match='follow names the field .*, but there are only (box|image, label)'): change(sample, WHOLE)
    with pytest.raises(TypeError, match="target.*must be a dict to have 'boxes'"): change(('an image', 3), WHOLE)


@pytest.mark.parametrize('error', [ValueError('not this one'), OSError('not this one')], ids=['value', 'file'])
def test_an_error_of_a_value_is_one_of_its_sample(error):
    def raising(value, geometry): raise error
    with pytest.raises(ImageReadError, match='field 2: not this one') as found: Followers({2: raising}).change((0, 1, 2), WHOLE)
    assert found.value.__cause__ is error


@pytest.mark.parametrize('error', [MemoryError(), OSError(24, 'too many open files'), ZeroDivisionError(), KeyError('x')], ids=str)
def test_an_error_of_the_machine_or_of_the_program_is_not(error):
    def raising(value, geometry): raise error
    with pytest.raises(type(error)) as found: Followers({2: raising}).change((0, 1, 2), WHOLE)
    assert found.value is error


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_a_mask_and_its_box_agree(number):
    "The box around a rectangle in a mask, moved, is the box around the moved rectangle."
    rng = np.random.default_rng(number)
    top, left = rng.integers(0, (HEIGHT - 5, WIDTH - 5)).tolist()
    bottom, right = rng.integers((top + 4, left + 4), (HEIGHT, WIDTH)).tolist()
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top:bottom, left:right] = 1
    y, x = rng.integers(0, (HEIGHT // 2, WIDTH // 2)).tolist()
    geometry = geometry_of((y, x, HEIGHT // 2, WIDTH // 2), (80, 90), hflip=bool(rng.integers(2)), vflip=bool(rng.integers(2)))
    box, [kept] = Boxes(min_side=0).fit([[left, top, right, bottom]], geometry)
    around = box_of(Mask(outside=0)(mask, geometry).numpy())
    assert kept == (around is not None) and (not kept or np.abs(box[0].numpy() - around).max() <= 1.01)


def test_finished_masks_reuse_memory_that_nothing_refers_to():
    "A mask that is still used does not change; small masks do not keep the memory of a large one."
    follower = Mask()
    large = torch.ones(4, 64, 64, dtype=torch.uint8)
    kept, address = follower.on_device(large), follower.on_device(large).data_ptr()
    assert follower.on_device(large + 1).data_ptr() == address != kept.data_ptr() and kept.eq(1).all()
    assert follower.on_device(large[:3]).data_ptr() == address   # the last batch of an epoch
    small = [follower.on_device(large[:1] + k) for k in range(3)]
    assert [one.untyped_storage().nbytes() for one in small] == [8 * 64 * 64] * 3 and [one.max().item() for one in small] == [1, 2, 3]
    assert follower.on_device(large[:0]).shape == (0, 64, 64) == Mask().on_device(large[:0]).shape


def test_a_mask_goes_to_other_processes_without_its_memory():
    follower = Mask(classes={None: 3})
    follower.on_device(torch.ones(400, 64, 64, dtype=torch.uint8))
    data = pickle.dumps(follower)
    assert len(data) < 20_000 and repr(pickle.loads(data)) == repr(follower)


@pytest.mark.parametrize('ops', [
    [('TranslateXRel', 0.5), ('TranslateXRel', -0.5)], [('TranslateYRel', -0.4), ('TranslateXRel', 0.3), ('TranslateYRel', 0.4)],
    [('TranslateX', 30.), ('ShearX', 0.), ('TranslateX', -30.)]], ids=str)
def test_what_left_the_image_does_not_come_back_as_a_box(ops):
    "Count in a mask that is moved by one operation after another; neither boxes nor parts of boxes come back."
    geometry = geometry_of(size=(93, 104), ops=ops)
    boxes = np.array([[2, 2, 12, 12], [20, 20, 70, 60], [90, 10, 104, 30], [40, 80, 60, 93]], np.float64)
    found = []
    for left, top, right, bottom in boxes.astype(int):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        mask[top:bottom, left:right] = 1
        found.append(box_of(Mask(outside=0)(mask, geometry).numpy()))
    moved, kept = Boxes(min_side=0).fit(boxes, geometry)
    assert kept.tolist() == [one is not None for one in found] and not kept.all()
    assert np.abs(moved.numpy() - np.array([one for one in found if one is not None])).max() <= 1
