"`explore` shows exactly what `create_loader` makes: each picture, each number, and the call."
import inspect
import random
import subprocess
import sys
import warnings
from functools import wraps

import numpy as np
import pytest
import torch
from grids import few
from PIL import Image, ImageOps
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from timmdata import ImageDataset, Mixup, create_loader, explore, preview
from timmdata.look.pictures import denormalize, spread_indexes, to_uint8_array
from timmdata.transforms.policy import Policy

pytestmark = pytest.mark.timeout(60)
SIZE, INDEXES = 48, [5, 70, 131, 260]


class Darker(Policy):
    "A user's policy, whose record is a number."
    def draw(self, rng=random): return rng.uniform(0.2, 0.8)
    def apply(self, image, drawn): return image.point(lambda level: round(drawn * level))
    def __repr__(self): return 'Darker()'


SETTINGS = {
    'plain': {}, 'evaluation': dict(is_training=False, crop_pct=0.7), 'no_aug': dict(no_aug=True),
    'rc': dict(train_crop_mode='rc', rc_padding=8, vflip=0.5), 'rkrr': dict(train_crop_mode='rkrr', interpolation='random'),
    'many colors': dict(color_jitter=(0.4, 0.3, 0.2, 0.1), grayscale_prob=0.5, gaussian_blur_prob=0.7),
    'exact colors': dict(color_jitter_mode='exact', grayscale_prob=0.5, gaussian_blur_prob=0.7),
    'pillow': dict(backend='pillow', interpolation='bicubic'),
    'rand': dict(auto_augment='rand-m9-n4-mstd0.5-inc1', gaussian_blur_prob=0.5), '3a': dict(auto_augment='3a', vflip=0.5),
    '3a exact': dict(auto_augment='3a', color_jitter_mode='exact'), 'augmix': dict(auto_augment='augmix-m5-w4-d2'),
    'own policy': dict(auto_augment=Darker()), 'float16': dict(img_dtype=torch.float16),
    'erasing': dict(re_prob=0.9, re_mode='pixel', re_count=3), 'mixup': dict(mixup=Mixup(mode='elem', num_classes=10), re_prob=0.5),
    'cutmix': dict(mixup=Mixup(0., 1., mode='pair', num_classes=10), re_prob=0.5, re_mode='rand'),
    'half': dict(mixup=Mixup(0.5, 1., mode='half', num_classes=10), re_prob=0.5),
    'views': dict(num_aug_splits=3, re_prob=0.6, re_split=True, auto_augment='rand-m5'),
    'own transform': dict(transform=v2.Compose([v2.Resize((SIZE, SIZE)), v2.RandomHorizontalFlip(), v2.ToImage()])),
}


@pytest.mark.parametrize('name', few(SETTINGS, 'evaluation', '3a exact', 'cutmix', 'views'))
def test_what_is_shown_is_what_the_loader_makes(samples, name):
    dataset, settings = ImageDataset(samples), {'is_training': True, 'seed': 7, **SETTINGS[name]}
    shown = preview(dataset, SIZE, indexes=INDEXES, epoch=2, **settings)
    loader = create_loader(dataset, SIZE, len(INDEXES), **settings, sampler=INDEXES, num_workers=2, device='cpu')
    loader.set_epoch(2)
    images, targets = next(iter(loader))
    loader.close()
    assert torch.equal(shown.images, images) and len(shown.trace.pictures) == len(images) == shown.trace.num_images
    for position, image in enumerate(images):
        steps, picture = shown.trace.steps(position), to_uint8_array(denormalize(image))
        assert steps[0].name == 'photograph' and np.array_equal(steps[-1].image, picture), (position, [s.name for s in steps])
        assert np.array_equal(shown.trace.pictures[position], picture)
    sheet, is_training = shown.figure(num_epochs=2), settings['is_training']
    assert len(sheet.axes) == len(images) * (3 if is_training else 2) + len(shown.steps)
    drawn = [axes.images[0].get_array() for axes in sheet.axes]
    for k, picture in enumerate(shown.trace.pictures): assert np.array_equal(drawn[k * (3 if is_training else 2) + 1], picture)
    assert np.array_equal(drawn[-1], shown.steps[-1].image)


def test_each_step_does_what_it_says(samples):
    "Compare with Pillow and torchvision, using the text of the previous steps."
    dataset = ImageDataset(samples)
    settings = dict(backend='pillow', auto_augment='3a', color_jitter=0.3, hflip=1., mean=0., std=1., seed=3)
    names = set()
    for position in range(len(INDEXES)):
        shown = preview(dataset, SIZE, indexes=INDEXES, position=position, **settings)
        photograph = dataset[INDEXES[position]][0].convert('RGB')
        left, top, width, height = map(int, shown.steps[0].boxes[0])
        box = (left, top, left + width, top + height)
        cut = photograph.crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        assert np.array_equal(shown.steps[0].image, photograph) and np.array_equal(shown.steps[1].image, cut)
        assert shown.steps[1].drawn == f'{width} × {height} pixels; resized to {SIZE} × {SIZE}, bilinear'
        assert shown.steps[2].name == 'flip' and np.array_equal(shown.steps[2].image, ImageOps.mirror(cut))
        before = torch.from_numpy(shown.steps[3].image).permute(2, 0, 1)
        for step in shown.steps[4:5]:   # the first change of color; those after it start from numbers that are not rounded
            names.add(step.name)
            wanted = getattr(F, f'adjust_{step.name}')(before, float(step.drawn.removeprefix('× ')))
            difference = (wanted.permute(1, 2, 0).float() - torch.from_numpy(step.image).float()).abs()
            assert difference.max() <= 3   # the factor is written with two digits
    assert names


@pytest.mark.parametrize('mode', ['const', 'pixel'])
def test_frames_are_around_what_was_erased_and_pasted(samples, mode):
    mixup = Mixup(0., 1., mode='elem', num_classes=10)
    shown = preview(ImageDataset(samples), SIZE, indexes=INDEXES, mixup=mixup, re_prob=1., re_count=2, re_mode=mode, seed=2)
    alone = preview(ImageDataset(samples), SIZE, indexes=INDEXES, seed=2).trace.pictures

    def inside(step):
        mask = np.zeros((SIZE, SIZE), bool)
        for left, top, width, height in step.boxes: mask[top:top + height, left:left + width] = True
        return mask
    for position in range(len(INDEXES)):
        steps = {step.name: step for step in shown.trace.steps(position)}
        pasted, erased, partner = steps['cutmix'], steps['erasing'], shown.trace.replay.mix_params.partner[position]
        mask = inside(pasted)[..., None]
        assert f'of sample {shown.trace.replay.keys[partner].index}' in pasted.drawn
        assert np.array_equal(pasted.image, np.where(mask, alone[partner], alone[position]))
        mask = inside(erased)
        assert np.array_equal(erased.image[~mask], pasted.image[~mask]) and not np.array_equal(erased.image[mask], pasted.image[mask])
        if mode == 'const': assert len(np.unique(erased.image[mask], axis=0)) == 1


def test_the_pasted_call_makes_the_same_pixels_whatever_the_batch(samples):
    dataset = ImageDataset(samples)
    shown = preview(dataset, SIZE, indexes=INDEXES, scale=(0.3, 0.9), auto_augment='rand-m7', re_prob=0.5, re_mode='pixel', seed=11)
    loader = eval(shown.call)
    for k, index in enumerate(INDEXES): assert torch.equal(loader.replay(0, index=index).batch[0][0], shown.images[k])


# the shell


@pytest.fixture
def explorer(samples, capsys):
    "Return widgets by name, and their output; outside a notebook, a preview is printed."
    pytest.importorskip('ipywidgets')

    def make(**settings):
        controls, output = explore(ImageDataset(samples), SIZE, 4, seed=1, **settings).children
        return {widget.description: widget for widget in controls.children}, lambda: capsys.readouterr().out.strip().splitlines()[-1]
    return make


def test_twelve_widgets_have_names_of_arguments(explorer):
    widgets, shown = explorer(color_jitter=(0.4, 0.2, 0.1), hflip=0.25, train_crop_mode='rkrc')
    assert len(widgets) == 12 and {*widgets} - {'mixup_alpha', 'cutmix_alpha'} <= {*inspect.signature(create_loader).parameters}
    assert widgets['hflip'].value == 0.25 and widgets['train_crop_mode'].value == 'rkrc' and widgets['scale'].value == (0.08, 1.)
    assert shown().endswith("train_crop_mode='rkrc', hflip=0.25, color_jitter=(0.4, 0.2, 0.1))")


def test_a_given_mixup_keeps_its_other_fields(explorer):
    widgets, shown = explorer(mixup=Mixup(0.8, mode='pair', num_classes=10))
    assert widgets['mixup_alpha'].value == 0.8 and "mixup=Mixup(mixup_alpha=0.8, mode='pair', num_classes=10)" in shown()
    widgets['cutmix_alpha'].value = 0.5
    assert "Mixup(mixup_alpha=0.8, cutmix_alpha=0.5, mode='pair', num_classes=10)" in shown()
    widgets['cutmix_alpha'].value = widgets['mixup_alpha'].value = 0.
    assert 'mixup' not in shown()


def test_warnings_of_the_library_are_not_swallowed(explorer, monkeypatch):
    widgets, shown = explorer()
    module = sys.modules['timmdata.look.preview']
    create = module.create_loader

    @wraps(create)
    def warning(*args, **settings):
        warnings.warn('look out', stacklevel=2)
        return create(*args, **settings)
    monkeypatch.setattr(module, 'create_loader', warning)
    with pytest.warns(UserWarning, match='look out'): widgets['vflip'].value = 1.
    assert 'vflip=1.0' in shown()


def test_a_policy_of_the_users_stays_until_another_is_chosen(explorer):
    widgets, shown = explorer(auto_augment=Darker())
    widgets['hflip'].value = 0.
    assert 'hflip=0.0, auto_augment=auto_augment' in shown()
    widgets['auto_augment'].value = '3a'
    assert "auto_augment='3a'" in shown()


def test_a_move_changes_its_setting_alone_and_an_error_is_its_message(explorer):
    widgets, shown = explorer(color_jitter=(0.4, 0.2, 0.1))
    given = shown()
    assert given.startswith('Preview of create_loader(dataset, 48, 4, is_training=True, seed=1') and 'hflip' not in given
    for name, value, expected in (('hflip', 1., given.replace('color_jitter', 'hflip=1.0, color_jitter')),
                                  ('cutmix_alpha', 1., 'mixup=Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, num_classes=10)'),
                                  ('auto_augment', 'rand-m9-x3', "ValueError: 'rand-m9-x3': unknown part 'x3'")):
        before, widgets[name].value = widgets[name].value, value
        assert expected in shown()
        widgets[name].value = before
        assert shown() == given


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('settings', [
    dict(worker_type='ray', ray_options=dict(num_cpus=1)), dict(num_workers=4, prefetch_factor=4, num_aug_repeats=3),
    dict(input_size_choices=[32, 64], batch_size_choices=[4, 2], batch_choice_weights=[1, 2],
         batch_choice_schedule='progressive', batch_schedule_epochs=2)], ids=['ray', 'workers', 'sizes'])
def test_what_has_no_effect_on_pixels_stays_in_the_call(samples, settings):
    shown = preview(ImageDataset(samples), SIZE, 2, **settings)
    assert shown.indexes == spread_indexes(320, 2) and all(f'{name}=' in shown.call for name in settings)
    assert torch.equal(shown.images, preview(ImageDataset(samples), SIZE, 2).images)


def test_names_are_shown_as_they_are(tmp_path):
    for name in ('<script>$a', 'b'):
        (tmp_path/name).mkdir()
        Image.new('RGB', (40, 30)).save(tmp_path/name/'0.jpg')
    titles = [axes.get_title() for axes in preview(ImageDataset(tmp_path), 16).figure(1).axes]
    assert titles[0] == 'sample 0\n40 × 30' and titles[1].startswith('<script>$a\n') and titles[3].startswith('b\n')


@pytest.mark.full
@pytest.mark.parametrize('first', ['timmdata.look.widgets', 'timmdata.look.preview', 'timmdata.cli'])
def test_explore_and_preview_are_functions_whatever_was_imported(first):
    code = (f'import {first}, timmdata, timmdata.look\nfrom timmdata import explore, preview\n'
            'assert callable(explore) and preview is timmdata.preview is timmdata.look.preview and callable(preview)')
    subprocess.run([sys.executable, '-c', code], check=True)


def test_steps_of_a_policy_follow_each_other(samples):
    from timmdata.transforms.policy import apply_ops
    shown = preview(ImageDataset(samples), SIZE, indexes=INDEXES, auto_augment='rand-m9-n6-p1.0', mean=0., std=1.)
    for position, params in enumerate(shown.trace.replay.sample_params):
        steps = shown.trace.steps(position)[-len(params.ops):]
        before = Image.fromarray(shown.trace.steps(position)[-len(params.ops) - 1].image)
        for op, step in zip(params.ops, steps, strict=True):
            before = apply_ops(before, [op])
            assert step.name == op.name and step.drawn == op.text and np.array_equal(step.image, before)


@pytest.mark.full
@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('settings', [
    dict(worker_type='ray', ray_options=dict(num_cpus=1)),
    dict(input_size_choices=[32, 64], batch_size_choices=[4, 2], batch_choice_weights=[1, 2],
         batch_choice_schedule='progressive', batch_schedule_epochs=2)],
    ids=['ray', 'sizes'])
def test_what_has_no_effect_on_pixels_is_left_out_with_its_companions(samples, settings):
    shown = preview(ImageDataset(samples), SIZE, 2, **settings)
    assert torch.equal(shown.images, preview(ImageDataset(samples), SIZE, 2).images) and all(f'{name}=' in shown.call for name in settings)
