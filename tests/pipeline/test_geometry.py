"Compare where pixels go with torchvision's tv_tensors, given our numbers, and with counts in a loop."
import random

import numpy as np
import pytest
import torch
from followed import OUTSIDE, beside_torchvision, labels_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import tv_tensors

from timmdata import Boxes
from timmdata.pipeline.geometry import Geometry
from timmdata.pipeline.params import CenterCrop, RandomCrop, SampleParams
from timmdata.transforms.policy import OPERATIONS, AugmentOp, DrawnOp
from timmdata.transforms.settings import AugmentSettings

TRAIN_MODES = {mode: dict(is_training=True, train_crop_mode=mode) for mode in ('rrc', 'rkrc', 'rkrr')}
TRAIN_MODES['rc'] = dict(is_training=True, train_crop_mode='rc', rc_padding=30)
EVAL_MODES = {f'{mode} {share}': dict(crop_mode=mode, crop_pct=share) for mode in ('center', 'squash', 'border') for share in (0.8, 1.3)}
MODES = {**TRAIN_MODES, **EVAL_MODES}
MOVING = [name for name, operation in OPERATIONS.items() if operation.moves_pixels]


def drawn(mode: str, number: int, ops=(), size=(40, 56)) -> Geometry:
    "Draw a geometry for one image, with each pair of flips in turn."
    settings = AugmentSettings(size, **MODES[mode])
    source = labels_of(number).shape
    crop = (RandomCrop if settings.is_training else CenterCrop)(settings)
    params = crop(*source, random.Random(number))._replace(ops=tuple(ops))
    return Geometry(source, size, params, hflip=bool(number & 1), vflip=bool(number & 2))


def box_tensor(boxes, source) -> tv_tensors.BoundingBoxes:
    return tv_tensors.BoundingBoxes(torch.as_tensor(boxes, dtype=torch.float64), format='XYXY', canvas_size=source, clamping_mode=None)


def is_between(geometry: Geometry) -> np.ndarray:
    "Return which pixels of the result have their center on the border of two pixels of the image; either may be the nearest."
    axes = []
    for shown, (edge, wanted, offset, is_flipped) in zip(geometry.size, zip(
            geometry.params.crop[2:], geometry.params.size, geometry.params.offset, (geometry.vflip, geometry.hflip))):
        place = 2 * (np.arange(shown) + offset) + 1   # of the center, in half pixels of the resized crop
        is_exact = place * edge % (2 * wanted) == 0
        axes.append(is_exact[::-1] if is_flipped else is_exact)
    return axes[0][:, None] | axes[1]


def masks_of(geometry: Geometry, number: int) -> tuple[np.ndarray, np.ndarray]:
    "Return our masks and torchvision's."
    labels = labels_of(number)
    expected = beside_torchvision(tv_tensors.Image(torch.from_numpy(labels.copy())[None]), geometry, OUTSIDE)[0]
    return np.asarray(geometry.warp(Image.fromarray(labels), OUTSIDE)), expected.numpy()


@pytest.mark.parametrize('mode', MODES)
def test_masks_are_those_of_torchvision(mode):
    checked = []
    for number in range(12):
        geometry = drawn(mode, number)
        moved, expected = masks_of(geometry, number)
        is_same = (moved == expected) | is_between(geometry)
        assert is_same.all(), geometry
        checked.append(1 - is_between(geometry).mean())
    assert np.mean(checked) > 0.8


@pytest.mark.parametrize('mode', MODES)
def test_corners_and_points_are_those_of_torchvision(mode):
    rng = np.random.default_rng(0)
    for number in range(12):
        geometry = drawn(mode, number)
        height, width = geometry.source
        corners = np.sort(rng.uniform(-5, 5, (7, 2, 2)) + rng.uniform(0, 1, (7, 2, 2)) * [width, height], 1)
        ours = np.sort(geometry.move(corners), 1).reshape(7, 4)
        expected = beside_torchvision(box_tensor(corners.reshape(7, 4), geometry.source), geometry)
        assert np.abs(ours - expected.numpy()).max() < 1e-3
        points = tv_tensors.KeyPoints(torch.from_numpy(corners[:, 0]), canvas_size=geometry.source)
        assert np.abs(geometry.move(corners[:, 0]) - beside_torchvision(points, geometry).numpy()).max() < 1e-3


OPS = [('Rotate', 23.), ('Rotate', -7.), ('Rotate', 90.), ('ShearX', 0.3), ('ShearX', -0.21), ('ShearY', 0.25), ('ShearY', -0.1),
       ('TranslateXRel', 0.2), ('TranslateXRel', -0.1), ('TranslateYRel', 0.3)]


@pytest.mark.parametrize('name, value', OPS)
def test_operations_move_masks_and_points_as_torchvision_does(name, value):
    "Up to 0.2% of a mask's pixels differ: those whose position is within float32 rounding of an edge."
    ops = [DrawnOp(name, value, 'nearest', (0,))]
    for number in range(8):
        geometry = drawn('rrc', number, ops)
        moved, expected = masks_of(geometry, number)
        assert (moved != expected).mean() <= 0.002
        places = np.random.default_rng(number).uniform(0, 1, (9, 2)) * geometry.source[::-1]
        points = tv_tensors.KeyPoints(torch.from_numpy(places), canvas_size=geometry.source)
        assert np.abs(geometry.move(places) - beside_torchvision(points, geometry).numpy()).max() < 1e-3


def test_operations_follow_one_another():
    "After three operations, points are where torchvision's are; the last entry of `OPS` alone would move them elsewhere."
    ops = [DrawnOp('Rotate', 20., 'nearest', (0,)), DrawnOp('ShearX', 0.2, 'nearest', (0,)), DrawnOp('Color', 1.5),
           DrawnOp('TranslateYRel', -0.15, 'nearest', (0,))]
    geometry = drawn('rkrr', 3, ops)
    assert [op.name for op in geometry.moves] == ['Rotate', 'ShearX', 'TranslateYRel']
    places = np.random.default_rng(0).uniform(0, 1, (9, 2)) * geometry.source[::-1]
    expected = beside_torchvision(tv_tensors.KeyPoints(torch.from_numpy(places), canvas_size=geometry.source), geometry)
    assert np.abs(geometry.move(places) - expected.numpy()).max() < 1e-3


def blob(geometry: Geometry, x: int, y: int) -> np.ndarray:
    "Return x and y of the pixels of the result that show a pixel (x, y) of the image."
    image = np.zeros(geometry.source, np.uint8)
    image[y, x] = 1
    return np.argwhere(np.asarray(geometry.warp(Image.fromarray(image))))[:, ::-1]


@pytest.mark.parametrize('ops', [
    [], [('Rotate', 25.)], [('ShearX', 0.3), ('TranslateXRel', 0.3)], [('TranslateXRel', .6), ('TranslateXRel', -.6)]], ids=str)
@pytest.mark.parametrize('mode', ['rrc', 'rkrr', 'center 1.3', 'border 0.8'])
def test_a_pixel_is_where_its_center_was_moved_and_seen_if_it_is_shown(mode, ops):
    "The result is larger than the image, so that every pixel is in the result."
    found = []
    for number in range(8):
        geometry = drawn(mode, number, [DrawnOp(name, by, 'nearest', (0,)) for name, by in ops], (300, 340))
        height, width = geometry.source
        for x, y in np.random.default_rng(number).integers(0, (width, height), (8, 2)).tolist():
            pixels = blob(geometry, x, y)
            place = np.array([x + 0.5, y + 0.5])
            at = geometry.move(place)
            room = np.abs(geometry.move([[x, y], [x + 1, y], [x, y + 1], [x + 1, y + 1]]) - at).max() + 1
            if geometry.shows(place): assert len(pixels) and (np.abs(pixels + 0.5 - at) <= room).all()
            elif len(pixels):   # its edge is seen, its center is not
                assert (np.abs(pixels + 0.5 - at) <= room).all()
            whole = ((at > room) & (at < np.array(geometry.size[::-1]) - room)).all()
            if geometry.shows(place) and whole and not ops: assert np.abs(pixels.mean(0) + 0.5 - at).max() < 1
            found.append(bool(geometry.shows(place)))
    assert any(found) and not all(found)


def test_what_one_operation_moves_out_of_the_image_the_next_does_not_bring_back():
    source = 40, 60
    params = SampleParams((0, 0, *source), source, (0, 0), 'nearest', (DrawnOp('TranslateXRel', 0.5), DrawnOp('TranslateXRel', -0.5)))
    geometry = Geometry(source, source, params)
    places = [[10.5, 20.5], [50.5, 20.5]]
    assert np.array_equal(geometry.move(places), places) and geometry.shows(places).tolist() == [False, True]
    assert [len(blob(geometry, x, 20)) for x in (10, 50)] == [0, 1]


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_two_flips_are_a_turn_and_no_mirror(data):
    number = data.draw(st.integers(0, 1000))
    turned = drawn('rrc', number)._replace(hflip=True, vflip=True)
    labels = Image.fromarray(labels_of(number))
    plain = turned._replace(hflip=False, vflip=False)
    assert not turned.is_mirrored and not plain.is_mirrored and plain._replace(vflip=True).is_mirrored
    assert np.array_equal(turned.warp(labels), np.rot90(plain.warp(labels), 2))
    place = data.draw(st.tuples(st.floats(0, 40), st.floats(0, 40)))
    assert np.allclose(turned.move(place), np.array([56, 40]) - plain.move(place), atol=1e-6)


@pytest.mark.parametrize('mode', MODES)
def test_the_part_that_the_image_fills_is_counted_in_a_mask(mode):
    for number in range(8):
        geometry = drawn(mode, number)
        inside = np.asarray(geometry.warp(Image.new('L', geometry.source[::-1], 1)))
        left, top, right, bottom = geometry.shown
        expected = np.zeros(geometry.size, np.uint8)
        expected[round(top):round(bottom), round(left):round(right)] = 1
        assert np.array_equal(inside, expected)


@pytest.mark.parametrize('mode, dtype', [('L', np.uint8), ('I', np.int32), ('F', np.float32)])
def test_images_of_other_kinds_move_in_the_same_way(mode, dtype):
    geometry = drawn('rkrr', 5, [DrawnOp('Rotate', 20.)])
    labels = labels_of(5)
    expected = np.asarray(geometry.warp(Image.fromarray(labels), 255))
    moved = geometry.warp(Image.fromarray(labels.astype(dtype)), 255)
    assert moved.mode == mode and np.array_equal(np.asarray(moved), expected.astype(dtype))


def test_an_operation_of_the_user_needs_a_matrix_for_points_but_not_for_masks(monkeypatch):
    def slide(image, value, resample, fill):
        return image.transform(image.size, Image.Transform.AFFINE, (1, 0, value, 0, 1, 0), resample, fillcolor=fill)

    operation = OPERATIONS['TranslateX']._replace(function=slide, matrix=None)
    monkeypatch.setitem(OPERATIONS, 'Slide', operation)
    geometry = drawn('rrc', 2, [DrawnOp('Slide', 3.)])
    known = drawn('rrc', 2, [DrawnOp('TranslateX', 3.)])
    assert np.array_equal(*(one.warp(Image.fromarray(labels_of(2)), 7) for one in (geometry, known)))
    with pytest.raises(TypeError, match='Slide moves pixels, but its row in OPERATIONS has no matrix.*add matrix='): geometry.move([1, 1])
    monkeypatch.setitem(OPERATIONS, 'Slide', operation._replace(matrix=lambda value, width, height: (1, 0, value, 0, 1, 0)))
    assert np.array_equal(geometry.move([1, 1]), known.move([1, 1]))


@pytest.mark.parametrize('name', MOVING)
def test_each_operation_that_moves_pixels_has_a_matrix(name):
    "For both signs, and for a size that is not square, the corners of a moved rectangle are where the matrix moves them."
    for sign in (1, -1):
        op = AugmentOp(name, 1., 8, dict(translate_const=12, translate_pct=0.15, interpolation='nearest')).at(8, sign)
        geometry = Geometry((60, 90), (60, 90), SampleParams((0, 0, 60, 90), (60, 90), (0, 0), 'nearest', (op,)))
        for x, y in ((45, 30), (30, 20), (60, 25), (40, 40)):
            pixels = blob(geometry, x, y)
            assert len(pixels) and np.abs(pixels.mean(0) + 0.5 - geometry.move([x + 0.5, y + 0.5])).max() < 1


def test_albumentations_with_our_numbers():
    "With a crop, a resize, padding and flips, masks are equal except where two pixels are equally near; boxes, to a thousandth."
    A = pytest.importorskip('albumentations')
    for mode in ('rrc', 'rc', 'squash 0.8', 'center 1.3'):
        for number in range(6):
            geometry = drawn(mode, number)
            (top, left, height, width), (tall, wide), (down, right) = geometry.params[:3]
            padding = [max(0, -down), max(0, geometry.size[0] + down - tall), max(0, -right), max(0, geometry.size[1] + right - wide)]
            top_left = max(0, right), max(0, down)
            steps = [A.Crop(left, top, left + width, top + height), A.Resize(tall, wide, mask_interpolation=6),   # cv2.INTER_NEAREST_EXACT
                     A.Pad((padding[2], padding[0], padding[3], padding[1]), fill_mask=OUTSIDE),
                     A.Crop(*top_left, top_left[0] + geometry.size[1], top_left[1] + geometry.size[0])]
            steps += [A.HorizontalFlip(p=1.)] * geometry.hflip + [A.VerticalFlip(p=1.)] * geometry.vflip
            compose = A.Compose(steps, bbox_params=A.BboxParams('pascal_voc', label_fields=['rows']))
            labels = labels_of(number)
            edges = geometry.source[::-1]
            corners = np.sort(np.random.default_rng(number).uniform(0, 1, (6, 2, 2)), 1) * edges
            done = compose(image=labels[..., None].repeat(3, 2), mask=labels, bboxes=corners.reshape(6, 4), rows=range(6))
            assert ((np.asarray(geometry.warp(Image.fromarray(labels), OUTSIDE)) == done['mask']) | is_between(geometry)).all()
            ours, kept = Boxes(min_side=0).fit(corners.reshape(6, 4), geometry)
            rows = [row for row, is_kept in enumerate(kept) if is_kept]
            assert set(rows) >= {int(row) for row in done['rows']}
            for row, box in zip(done['rows'], done['bboxes'], strict=True):
                assert np.abs(ours[rows.index(int(row))].numpy() - box).max() < 1e-3
