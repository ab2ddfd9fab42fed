"Compare evaluation crops with torchvision's, with pixels that encode their position; test that draws depend on the key."
import itertools
import random

import pytest
import torch
from appearance import columns_of
from grids import every_eleventh, examples, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from timmdata.pipeline.params import APPEARANCE, AppearanceParams, CenterCrop, ParamSampler
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)


EDGES = [1, 2, 3, 5, 31, 32, 33, 47, 64, 99, 100, 101, 223, 256, 333, 500]


def window_of(image, crop) -> tuple[int, int]:
    "Return where a crop was taken, from pixels that encode their position; the first pixel of the image in the result counts."
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
    "Sizes with different ratios: resizing keeps the ratio, and the crop is padded where the picture is smaller."
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
    on_device = [sampler.share(sampler.appearance([SampleKey(0, 0)]))[1].hflip.tolist() for sampler in (plain, policy)]
    assert on_device == [[True], [False]]
    assert plain.changes_on_device and not policy.changes_on_device and policy.appearance_params(SampleKey(0, 0)).hflip
    assert not ParamSampler(AugmentSettings(64)).changes_on_device


@pytest.mark.parametrize('in_worker', [False, True])
@pytest.mark.parametrize('policy', [None, 'rand-m9'])
def test_what_is_drawn_is_done_once_by_the_worker_or_the_device(policy, in_worker):
    words = dict(vflip=0.5, grayscale_prob=0.5, gaussian_blur_prob=0.5, gaussian_blur_radius=(0.1, 2.), solarize_prob=0.5)
    sampler = ParamSampler(AugmentSettings(64, is_training=True, auto_augment=policy, **words), in_worker)
    columns = sampler.appearance([SampleKey(index, 3) for index in range(20)])
    shares = [share.rows() for share in sampler.share(columns)]
    for drawn, here, there in zip(columns.rows(), *shares):
        assert tuple(one + other for one, other in zip(here, there)) == drawn
        assert there == AppearanceParams() if in_worker else here == AppearanceParams() or policy and not here.color
    assert sampler.changes_on_device == any(there != AppearanceParams() for there in shares[1])


# ---- the columns of a batch

PROBS = st.sampled_from([0., 0.2, 0.5, 1.])
APPEARANCES = st.fixed_dictionaries(dict(
    hflip=PROBS, vflip=PROBS, grayscale_prob=PROBS, gaussian_blur_prob=PROBS, solarize_prob=PROBS,
    color_jitter=st.sampled_from([None, 0.4, (0.4, 0.4, 0.2), (0.4, 0.4, 0.2, 0.1), (0., 0.4, 0., 0.2), 1.5]),
    color_jitter_prob=st.sampled_from([None, 0., 0.3, 0.8, 1.]), gaussian_blur_radius=st.sampled_from([None, (0.1, 2.)])))


def appearance_of(given: AugmentSettings, key: SampleKey, num_splits: int) -> AppearanceParams:
    "Draw flips and colors of one image with Python's random methods, one number after another, as in the first version."
    split = key.view % num_splits
    shared = own = key._replace(view=key.view - split).rng(APPEARANCE)
    if split: own = key.rng(APPEARANCE)
    def toss(prob: float, rng: random.Random) -> bool: return bool(prob) and rng.random() < prob
    hflip, vflip = toss(given.hflip, shared), toss(given.vflip, shared)
    if num_splits > 1 and not split: return AppearanceParams(hflip, vflip)
    names, strengths, color = ('brightness', 'contrast', 'saturation'), given.color_jitter or (), []
    ranges = [(name, max(0., 1 - value), 1 + value) for name, value in zip(names, strengths) if value]
    if strengths[3:] and strengths[3]: ranges.append(('hue', -strengths[3], strengths[3]))
    prob = given.color_jitter_prob
    if ranges and (prob in (None, 1) or own.random() < prob):
        color = [(name, own.uniform(low, high)) for name, low, high in ranges]
        own.shuffle(color)
    if toss(given.grayscale_prob, own): color.append(('grayscale', 0.))
    blur = 0.
    if given.gaussian_blur_radius and toss(given.gaussian_blur_prob, own): blur = own.uniform(*given.gaussian_blur_radius)
    return AppearanceParams(hflip, vflip, tuple(color), blur, toss(given.solarize_prob, own))


@pytest.mark.examples
@settings(max_examples=examples(150), deadline=None)
@given(words=APPEARANCES, num_splits=st.sampled_from([0, 0, 2, 3]), seed=st.integers(0, 2**62), num=st.sampled_from([1, 5, 40]))
def test_a_batch_looks_as_each_image_does_by_itself(words, num_splits, seed, num):
    given_ = AugmentSettings(32, is_training=True, num_aug_splits=num_splits, **words)
    keys = [SampleKey(seed % 1000 + 7 * k, 3, view=k % 5, seed=seed) for k in range(num)]
    columns = ParamSampler(given_).appearance(keys)
    expected = [appearance_of(given_, key, max(1, num_splits)) for key in keys]
    assert columns.rows() == expected and columns_of(expected).rows() == expected
    assert columns.keep(slice(None, None, -1)).rows() == expected[::-1]
