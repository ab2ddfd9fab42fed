"Masks, boxes and points are drawn where they belong; the image itself is the reference."
import io
import warnings

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from timmdata import Boxes, Mask, Points, View, create_loader, explore, preview, show_batch, show_replay
from timmdata.look import BatchTrace, loader_call
from timmdata.look.overlays import index_color

pytestmark = pytest.mark.timeout(60)
# Okabe and Ito, Color Universal Design, 2002
PUBLISHED = ['#cc79a7', '#f0e442', '#009e73', '#d55e00', '#56b4e9', '#e69f00', '#0072b2']
LEVEL = 60   # gray levels from one class to the next


class Squares(torch.utils.data.Dataset):
    "Squares of classes 1, 2 and 3 on black; the level of a pixel gives its class. Each square has a point in its middle."
    classes = ['none', 'one', 'two', 'three']

    def __init__(self, fields=False): self.fields = fields
    def __len__(self): return 12

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        mask = np.zeros((90, 120), np.uint8)
        boxes = []
        for label in (1, 2, 3):
            left, top, side = 40 * label - 36 + int(rng.integers(4)), int(rng.integers(50)), 2 * int(rng.integers(8, 15)) + 1
            mask[top:top + side, left:left + side] = label
            boxes.append((left, top, left + side, top + side))
        boxes = np.array(boxes)
        points = np.c_[(boxes[:, :2] + boxes[:, 2:] - 1) / 2, [2, 0, 1]]
        image = Image.fromarray(mask * LEVEL).convert('RGB')
        if self.fields: return image, index % 4, Image.fromarray(mask), boxes, [1, 2, 3], points
        return image, {'mask': mask, 'boxes': boxes, 'labels': [1, 2, 3], 'points': points}


FOLLOW = {'target.mask': Mask(), 'target.boxes': Boxes(also=['labels']), 'target.points': Points()}
PLAIN = dict(is_training=True, seed=3, color_jitter=None, interpolation='nearest', mean=0., std=1., device='cpu', num_workers=0)


def loader_of(follow=FOLLOW, size=64, fields=False, **settings):
    return create_loader(Squares(fields), size, 4, follow=follow, **{**PLAIN, **settings})


def drawn(axes):
    "Return what the sheet shows: classes by the level of the image, the layer, frames inside their white lines, texts and dots."
    image, *layers = (np.asarray(one.get_array()) for one in axes.images)
    frames = [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in axes.patches[1::2]]
    dots = [tuple(np.ravel(line.get_xydata())) for line in axes.lines]
    return image[..., 0] / LEVEL, layers, np.array(frames).reshape(-1, 4), [text.get_text() for text in axes.texts], dots


def rgb(color): return np.array([*bytes.fromhex(color[1:])])


def colors_of(layer, where): return {'#' + bytes(color[:3].tolist()).hex() for color in layer[where]}


def check_layer(classes, layer, unknown=0.):
    "Each pixel of the layer has the color of its class in the image; `unknown` is the share of mixed pixels."
    known = np.isin(classes, (0, 1, 2, 3))
    assert known.mean() >= 1 - unknown and layer.shape == (*classes.shape, 4)
    wrong = ((layer[..., 3] > 0) & (classes == 0)).sum()
    for index in (1, 2, 3):
        color = rgb(PUBLISHED[index])
        wrong += ((layer[..., :3] == color).all(-1) & (layer[..., 3] > 0) & known & (classes != index)).sum()
        wrong += (~((layer[..., :3] == color).all(-1) & (layer[..., 3] > 0)) & (classes == index)).sum()
    assert wrong <= unknown * classes.size


def check_frames(classes, frames, names, texts):
    "Frames are around the pixels of their class."
    for frame, text in zip(frames, texts, strict=True):
        rows, columns = np.nonzero(classes == names.index(text))
        wanted = columns.min() - 0.5, rows.min() - 0.5, np.ptp(columns) + 1, np.ptp(rows) + 1
        assert np.abs(np.subtract(frame, wanted)).max() <= 1, (text, frame, wanted)


@pytest.mark.parametrize('mode', ['rrc', 'rkrc', 'rkrr'])
def test_a_sheet_shows_masks_boxes_and_points_where_the_image_has_them(mode):
    sheet = show_batch(loader_of({**FOLLOW, 'target.mask': Mask(outside=0)}, train_crop_mode=mode, vflip=0.5))   # padding is black
    assert len(sheet.axes) == 4 and not any(axes.get_title() for axes in sheet.axes)
    num_frames = num_dots = num_whole = 0
    for axes in sheet.axes:
        classes, [layer], frames, texts, dots = drawn(axes)
        check_layer(classes, layer)
        check_frames(classes, frames, Squares.classes, texts)
        for x, y in dots: assert classes[round(y), round(x)] in (1, 3)   # the visibility of 2 is 0
        for left, top, width, height in frames:
            is_whole = left > 0 and top > 0 and left + width < 63 and top + height < 63
            near = [dot for dot in dots if np.abs(np.subtract(dot, (left + width / 2, top + height / 2))).max() <= 0.51]
            if is_whole and classes[round(top + height / 2), round(left + width / 2)] != 2:
                assert len(near) == 1
                num_whole += 1
        assert axes.get_xlim() == (-0.5, 63.5) and axes.get_ylim() == (63.5, -0.5)
        num_frames, num_dots = num_frames + len(frames), num_dots + len(dots)
    assert num_frames >= 4 and num_dots >= 2 and (num_whole or mode != 'rkrr')


def test_points_outside_are_not_drawn():
    inside = [(0, 0), (31, 15), (-0.5, -0.5), (31.5, 15.5)]
    points = torch.tensor([*inside, (-0.6, 3), (31.6, 3), (3, -0.6), (3, 15.6)])
    sheet = show_batch((torch.zeros(2, 3, 16, 32), torch.stack([points, points.flip(0)])), follow={'target': Points()})
    for axes, wanted in zip(sheet.axes, (inside, inside[::-1]), strict=True):
        assert drawn(axes)[4] == wanted and axes.get_xlim() == (-0.5, 31.5) and axes.get_ylim() == (15.5, -0.5)
    colors = [[line.get_color() for line in axes.lines] for axes in sheet.axes]
    assert colors[0] == [index_color(k) for k in range(4)] and colors[1] == [index_color(k) for k in range(4, 8)]


def test_the_picture_has_the_mixed_color():
    "Pixels of the rendered sheet: the middle of a square, and of the background."
    images = torch.full((1, 3, 40, 40), 0.4)
    mask = torch.zeros(1, 40, 40, dtype=torch.int64)
    mask[:, :, 20:] = 5
    sheet = show_batch((images, mask), follow={'target': Mask()})
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(float)
    extent = sheet.axes[0].get_window_extent()
    row, left, right = (round(number) for number in (
        sheet.bbox.height - (extent.y0 + extent.y1) / 2, extent.x0 + extent.width / 4, extent.x0 + extent.width * 3 / 4))
    share = 130 / 255
    wanted = (1 - share) * 102 + share * rgb(PUBLISHED[5])
    assert np.abs(pixels[row, left] - 102).max() <= 2 and np.abs(pixels[row, right] - wanted).max() <= 2


def test_what_is_outside_has_gray_stripes():
    for outside in 255, -1, 7:
        sheet = show_batch(loader_of({'target.mask': Mask(outside=outside)}, train_crop_mode='rc', rc_padding=40))
        masks = loader_of({'target.mask': Mask(outside=outside)}, train_crop_mode='rc', rc_padding=40).replay(0, 0).batch[1]
        for axes, target in zip(sheet.axes, masks, strict=True):
            classes, [layer], *_ = drawn(axes)
            is_outside = target['mask'].numpy() == outside
            if not is_outside.any(): continue
            stripes = colors_of(layer, is_outside)
            assert stripes == {'#3c3c3c', '#bebebe'} and not stripes & colors_of(layer, ~is_outside)
            check_layer(np.where(is_outside, 0, classes), np.where(is_outside[..., None], 0, layer))
    sheet = show_batch(loader_of({'target.mask': Mask(outside=0)}, train_crop_mode='rc', rc_padding=40))
    for axes in sheet.axes: check_layer(*(drawn(axes)[0], drawn(axes)[1][0]))   # 0 is the background


def simulated(color, matrix):
    "sRGB → linear → what a dichromat sees → CIELAB; G. M. Machado and others, 2009."
    linear = np.array([(x / 255 / 12.92 if x <= 10 else ((x / 255 + 0.055) / 1.055) ** 2.4) for x in rgb(color)])
    xyz = np.array([[.4124, .3576, .1805], [.2126, .7152, .0722], [.0193, .1192, .9505]]) @ (matrix @ linear).clip(0, 1)
    x, y, z = np.cbrt(xyz / (0.9505, 1., 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_neighbors_differ_for_all_kinds_of_color_vision():
    kinds = {'usual': np.eye(3),
             'protan': np.array([[.152286, 1.052583, -.204868], [.114503, .786281, .099216], [-.003882, -.048116, 1.051998]]),
             'deutan': np.array([[.367322, .860646, -.227968], [.280085, .672501, .047413], [-.011820, .042940, .968881]]),
             'tritan': np.array([[1.255528, -.076749, -.178779], [-.078411, .930809, .147602], [.004733, .691367, .303900]])}
    assert [index_color(k) for k in range(7)] == PUBLISHED
    for name, matrix in kinds.items():
        for k in range(1, 30):
            first, second = simulated(index_color(k), matrix), simulated(index_color(k + 1), matrix)
            assert np.linalg.norm(first - second) > 15, (name, k)   # 2 can just be noticed


@pytest.mark.parametrize('pad', [False, True])
@pytest.mark.parametrize('format', ['xyxy', 'xywh', 'cxcywh'])
def test_frames_are_right_in_each_format(format, pad):
    class Formatted(Squares):
        def __getitem__(self, index):
            image, target = super().__getitem__(index)
            first, second = np.split(target['boxes'], 2, 1)
            if format != 'xyxy': second = second - first
            if format == 'cxcywh': first = first + second / 2
            return image, {'boxes': np.concatenate([first, second], 1), 'labels': target['labels']}
    loader = create_loader(Formatted(), 64, 4, follow={'target.boxes': Boxes(format, also=['labels'], pad=pad)}, **PLAIN)
    num = 0
    for axes in show_batch(loader, class_names=['a', 'b', 'c', 'd']).axes:
        classes, _, frames, texts, _ = drawn(axes)
        check_frames(classes, frames, 'abcd', texts)
        num += len(frames)
    assert num >= 4


FIELDS = {2: Mask(), 3: Boxes(also=[4]), 5: Points()}


def test_names_of_whole_images_are_not_those_of_boxes():
    sheet = show_batch(loader_of(FIELDS, fields=True))
    assert all(axes.get_title() in Squares.classes for axes in sheet.axes)
    for axes in sheet.axes:
        classes, [layer], frames, texts, _ = drawn(axes)
        check_layer(classes, layer)
        check_frames(classes, frames, '0123', texts)


def test_a_name_in_any_script_is_written_at_its_frame():
    sheet = show_batch(loader_of(), class_names=['없음', '猫', '$犬_{1}$', 'a\x1b猫\n'])
    with warnings.catch_warnings():   # of each character that matplotlib draws as a box
        warnings.simplefilter('error')
        sheet.savefig(io.BytesIO())
    assert any(drawn(axes)[3] for axes in sheet.axes)


@pytest.mark.parametrize('names', [None, ('first', 'second')])
@pytest.mark.parametrize('fields', [False, True])
def test_each_view_has_its_own(names, fields):
    plain = dict(interpolation='nearest', color_jitter=None)
    views = [View(48, **plain), View(32, 3, scale=(0.1, 0.4), **plain)]
    if names: views = dict(zip(names, views))
    common = dict(is_training=True, seed=3, mean=0., std=1., device='cpu', num_workers=0)
    loader = create_loader(Squares(fields), None, 4, views=views, follow=FIELDS if fields else FOLLOW, **common)
    sheets = [show_batch(loader, n=16), show_replay(loader, 1, 0)]
    for sheet, width in zip(sheets, (4, 5)):
        assert len(sheet.axes) == 4 * width
        for axes in sheet.axes:
            classes, [layer], *_ = drawn(axes)
            check_layer(classes, layer)
    sizes = [axes.images[0].get_array().shape[:2] for axes in sheets[1].axes]
    assert sizes == [(90, 120), (48, 48), (32, 32), (32, 32), (32, 32)] * 4


def test_what_a_function_returns_is_drawn_if_it_is_a_mask():
    def whole(value, geometry): return torch.from_numpy(np.asarray(geometry.warp(Image.fromarray(value))).copy())
    def depth(value, geometry): return whole(value, geometry) / 2
    def text(value, geometry): return 'a word'
    for function, num in (whole, 1), (depth, 0), (text, 0), (Mask(at='file'), 0):
        sheet = show_batch(loader_of({'target.mask': function}))
        for axes in sheet.axes:
            classes, layers, *_ = drawn(axes)
            assert len(layers) == num
            for layer in layers: check_layer(classes, layer)


def test_masks_of_objects_have_a_color_each():
    class Objects(Squares):
        def __getitem__(self, index):
            image, target = super().__getitem__(index)
            return image, np.stack([target['mask'] == label for label in (1, 2, 3)])
    loader = create_loader(Objects(), 64, 4, follow={'target': Mask()}, **PLAIN)
    for axes in show_batch(loader).axes:
        classes, layers, *_ = drawn(axes)
        assert len(layers) == 3
        check_layer(classes, sum(layer * (layer[..., 3:] > 0) for layer in layers))


def test_a_batch_without_its_loader_needs_follow():
    loader = loader_of()
    batch = loader.replay(0, 0).batch
    with_loader, alone = show_batch(loader), show_batch(batch, follow=FOLLOW, class_names=Squares.classes)
    for one, other in zip(with_loader.axes, alone.axes, strict=True):
        for a, b in zip(drawn(one), drawn(other), strict=True): assert np.array_equal(a, b)
    with pytest.raises(KeyError, match="follow names the field 'mask', but there are only"): show_batch(batch, follow={'mask': Mask()})


# ---- what training saw


def equal(a, b) -> bool:
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(equal, a, b))
    return a == b


SETTINGS = {'policy': dict(auto_augment='rand-m9-n3-mstd0.5', re_prob=0.5), 'fields': dict(fields=True, follow=FIELDS, vflip=0.5),
            'pad': dict(follow={'target.boxes': Boxes(also=['labels'], pad=True)})}


@pytest.mark.parametrize('num_workers', [0, 2])
@pytest.mark.parametrize('name', SETTINGS)
def test_a_replay_has_what_training_saw(name, num_workers):
    loader, other = (loader_of(**SETTINGS[name], num_workers=num_workers) for _ in range(2))
    loader.set_epoch(1)
    seen = list(loader)
    assert len(seen) == 3 and not equal(seen[0], seen[1])
    assert all(equal(other.replay(1, k).batch, batch) for k, batch in enumerate(seen))
    batches = iter(loader)
    next(batches)
    other.load_state_dict(loader.state_dict())
    rest = list(other)
    assert len(rest) == 2 and all(equal(other.replay(2, k).batch, batch) for k, batch in enumerate(rest, 1))
    loader.close(), other.close()


def test_a_replay_shows_the_photograph_with_all_that_it_has():
    sheet = show_replay(loader_of(), 2, 1)
    assert len(sheet.axes) == 8
    for k, axes in enumerate(sheet.axes):
        classes, [layer], frames, texts, _ = drawn(axes)
        check_layer(classes, layer)
        if k % 2 == 0: assert len(texts) == 3 and len(frames) == 4 and classes.shape == (90, 120)   # the last is the crop
        check_frames(classes, frames[:len(texts)], Squares.classes, texts)


def test_each_step_has_the_mask_of_this_step():
    policy = dict(auto_augment='rand-m9-n6-p1.0', re_prob=1., hflip=1.)
    loader = loader_of(**policy)
    trace = BatchTrace(loader, 1)
    moved = 0
    for position in range(trace.num_images):
        steps = trace.steps(position)
        classes = None
        for step in steps[:3]:   # photograph, crop, flip
            classes = step.image[..., 0] / LEVEL
            check_layer(classes, step.overlay.layers[0])
        for before, step in zip(steps[2:], steps[3:]):
            same = all(map(np.array_equal, before.overlay.layers, step.overlay.layers)) and before.overlay.frames == step.overlay.frames
            moves = step.name in ('Rotate', 'ShearX', 'ShearY', 'TranslateXRel', 'TranslateYRel')
            assert same or moves
            moved += not same
        seen = drawn(show_batch(trace.replay.batch, follow=FOLLOW).axes[position])[1]
        assert np.array_equal(steps[-1].overlay.layers[0], seen[0]) and steps[-1].name == 'erasing'
    assert moved >= 4


def test_a_preview_shows_what_follows_and_its_call_makes_it():
    settings = dict(seed=5, follow=FOLLOW, color_jitter=None, interpolation='nearest', auto_augment='rand-m5')
    shown = preview(Squares(), 64, 2, **settings)
    sheet = shown.figure(2)
    assert len(sheet.axes) == 2 * 3 + len(shown.steps) and all(len(axes.images) == 2 for axes in sheet.axes)
    dataset = Squares()
    pasted = eval(shown.call, dict(dataset=dataset, create_loader=create_loader, Mask=Mask, Boxes=Boxes, Points=Points))
    for k, index in enumerate(shown.indexes):
        assert equal(pasted.replay(0, index=index).batch[1][0], shown.trace.replay.batch[1][k])


def test_explore_keeps_what_follows(capsys):
    pytest.importorskip('ipywidgets')
    controls, _ = explore(Squares(), 64, 2, follow={'target.mask': Mask()}).children
    {widget.description: widget for widget in controls.children}['hflip'].value = 1.
    assert "follow={'target.mask': Mask()}" in capsys.readouterr().out.strip().splitlines()[-1]


@pytest.mark.parametrize('follower', [
    Mask(), Mask(outside=-1, classes={(0, 0, 0): 0, None: 3}, at='file'), Points(), Points([(0, 1)]),
    Boxes('cxcywh', min_side=2, min_visible=0.3, also=['labels', 'area'], pad=True)])
def test_the_call_names_each_follower(follower):
    for own in len, type('Own', (Mask,), {'__init__': lambda self, value: Mask.__init__(self)})(3):   # a variable
        assert loader_call(64, 4, dict(follow={'target.mask': follower, 2: own})).endswith('follow=follow)')
    call = loader_call(64, 4, dict(follow={'target.mask': follower, 2: Mask()}))
    made = eval(call, dict(dataset=None, create_loader=lambda *args, follow: follow, Mask=Mask, Boxes=Boxes, Points=Points))
    assert [*made] == ['target.mask', 2] and type(made['target.mask']) is type(follower) and repr(made['target.mask']) == repr(follower)
