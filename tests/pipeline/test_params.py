"The geometry of evaluation beside torchvision's, read off pixels that say their place; draws that belong to a key."
import itertools

import pytest
import torch
from grids import every_eleventh, quick
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from timmdata.pipeline.params import AppearanceParams, CenterCrop, ParamSampler
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)


EDGES = [1, 2, 3, 5, 31, 32, 33, 47, 64, 99, 100, 101, 223, 256, 333, 500]


def window_of(image, crop) -> tuple[int, int]:
    "Where a crop was taken, read off pixels that say their place; the first pixel of the image in the result counts."
    place = crop[0].nonzero()[0].tolist()
    value = int(crop[0, place[0], place[1]]) - 1
    return value // image.shape[2] - place[0], value % image.shape[2] - place[1]


@quick(1, 'size, crop_pct', [((33, 33), 0.9), ((224, 224), None), ((224, 224), 1.), ((7, 7), 0.3)])
@quick(1, 'mode', ['center', 'squash'])
@pytest.mark.examples
def test_evaluation_is_resize_and_center_crop_of_torchvision(size, crop_pct, mode):
    geometry = CenterCrop(AugmentSettings(size, crop_pct=crop_pct, crop_mode=mode))
    scaled = int(size[0] / (crop_pct or 0.875))
    for height, width in every_eleventh(itertools.product(EDGES, EDGES)):
        blank = torch.zeros(1, 1, 1).expand(1, height, width)
        resized = F.resize(blank, scaled if mode == 'center' else [scaled, scaled], InterpolationMode.NEAREST)
        choices, is_read_in_part = geometry(height, width), tuple(resized.shape[1:]) == (height, width) and min(height, width) >= size[0]
        if not is_read_in_part:
            assert choices.crop == (0, 0, height, width) and choices.size == tuple(resized.shape[1:]), (height, width)
        if max(resized.shape) > 4000: continue
        image = torch.arange(1., 1. + resized.numel(), dtype=torch.float64).view(resized.shape)
        window = window_of(image, F.center_crop(image, list(size)))
        if is_read_in_part: assert choices[:3] == ((*window, *size), size, (0, 0)), (height, width)
        else: assert choices.offset == window, (height, width)


@quick(1, 'size', [(3, 5), (4, 4), (30, 41), (41, 30), (64, 64)])
def test_windows_of_any_crop_are_torchvisions(size):
    "Sizes with a ratio of their own: resizing keeps it, and the crop pads where the picture is smaller."
    geometry = CenterCrop(AugmentSettings(size, crop_pct=0.9, crop_mode='border'))
    for height, width in itertools.product(EDGES, EDGES):
        resized = geometry(height, width).size
        image = torch.arange(1., 1. + resized[0] * resized[1], dtype=torch.float64).view(1, *resized)
        assert geometry(height, width).offset == window_of(image, F.center_crop(image, list(size))), (height, width)


def test_a_draw_belongs_to_seed_epoch_index_and_view():
    sampler = ParamSampler(AugmentSettings(64, is_training=True, vflip=0.5, auto_augment='rand-m9', gaussian_blur_prob=0.5))
    keys = [SampleKey(index, epoch, view, seed=seed) for index in range(4) for epoch in range(3) for view in range(2) for seed in (0, 1)]
    for draw in (lambda key: sampler.sample_params(300, 400, key), sampler.appearance_params):
        assert [draw(key) for key in keys] == [draw(key._replace(bucket=3, valid=False)) for key in keys]
    assert len({sampler.sample_params(300, 400, key).crop for key in keys}) == len(keys)


@pytest.mark.parametrize('num_splits', [2, 3])
def test_views_share_crop_and_flips_and_the_first_is_clean(num_splits):
    sampler = ParamSampler(AugmentSettings(64, is_training=True, hflip=0.5, vflip=0.5, color_jitter=0.4, gaussian_blur_prob=1.,
                                           num_aug_splits=num_splits))
    for index in range(20):
        keys = [SampleKey(index, 1, view) for view in range(num_splits)]
        samples = [sampler.sample_params(300, 400, key) for key in keys]
        looks = [sampler.appearance_params(key) for key in keys]
        assert len({params.crop for params in samples}) == 1 == len({(look.hflip, look.vflip) for look in looks})
        assert not samples[0].blur and not looks[0].color
        assert len({params.blur for params in samples}) == num_splits == len({look.color for look in looks})


def test_flips_are_left_to_the_device_unless_a_policy_comes_after_them():
    plain, policy = (ParamSampler(AugmentSettings(64, is_training=True, hflip=1., auto_augment=name)) for name in (None, 'rand-m9'))
    assert plain.device_params(SampleKey(0, 0)).hflip and not policy.device_params(SampleKey(0, 0)).hflip
    assert plain.changes_on_device and not policy.changes_on_device and policy.appearance_params(SampleKey(0, 0)).hflip
    assert not ParamSampler(AugmentSettings(64)).changes_on_device


@pytest.mark.parametrize('in_worker', [False, True])
@pytest.mark.parametrize('policy', [None, 'rand-m9'])
def test_what_is_drawn_is_done_once_by_the_worker_or_the_device(policy, in_worker):
    words = dict(vflip=0.5, grayscale_prob=0.5, gaussian_blur_prob=0.5, gaussian_blur_radius=(0.1, 2.), solarize_prob=0.5)
    sampler = ParamSampler(AugmentSettings(64, is_training=True, auto_augment=policy, **words), in_worker)
    for index in range(20):
        key = SampleKey(index, 3)
        drawn, here, there = sampler.appearance_params(key), sampler.worker_params(key), sampler.device_params(key)
        assert tuple(one + other for one, other in zip(here, there)) == drawn
        assert there == AppearanceParams() if in_worker else here == AppearanceParams() or policy and not here.color
    assert sampler.changes_on_device == any(sampler.device_params(SampleKey(k, 3)) != AppearanceParams() for k in range(20))
