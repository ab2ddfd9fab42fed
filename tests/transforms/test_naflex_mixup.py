"Mixing of images of different sizes: timm's pixels, shares and targets for the same draws, and what must hold for every batch."
import copy
import pickle
import random
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.core.rng import KeyedRandom
from timmdata.transforms.naflex_mixup import NaFlexMixParams, NaFlexMixup

timm_mixup = pytest.importorskip('timm.data.naflex_mixup')
pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=100, deadline=None)
SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=9)
KINDS = {'mixup': dict(cutmix_alpha=0.), 'cutmix': dict(mixup_alpha=0.), 'both': {}}


def images_of(sizes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, h, w), generator=generator).to(dtype) for h, w in sizes]


def timms_with(rng, call):
    "Return timm's result with the random numbers of one generator, in the order of timm's draws."
    class Beta:
        def __init__(self, a, b): self.alphas = a, b
        def sample(self): return torch.tensor(rng.betavariate(*self.alphas), dtype=torch.float64)
    with (patch.object(timm_mixup, 'random', rng), patch.object(torch.distributions, 'Beta', Beta),
          patch.object(torch, 'rand', lambda size: torch.tensor(rng.random(), dtype=torch.float64))): return call()


@QUICK
@given(SIZES, st.sampled_from(list(KINDS)), st.integers(0, 10**6), st.sampled_from([0, 1, 3, 4]))
def test_images_and_shares_are_timms(sizes, kind, seed, local_shuffle):
    images, made = images_of(sizes), dict(KINDS[kind], local_shuffle=local_shuffle)
    before = [image.clone() for image in images]
    mixing = NaFlexMixup(num_classes=1, **made)
    drawn = mixing.draw(sizes, random.Random(seed))
    ours = mixing.apply_images(images, drawn), list(drawn.lam), {n: k for n, k in enumerate(drawn.partner) if n != k}
    rng = random.Random(seed)
    rng.random()   # whether to mix: timm's function always does
    theirs = timms_with(rng, lambda: timm_mixup.mix_batch_variable_size(images, **made))
    assert ours[1:] == theirs[1:] and all(map(torch.equal, ours[0], theirs[0]))
    assert all(map(torch.equal, images, before))


@QUICK
@given(SIZES, st.integers(0, 10**6), st.sampled_from([0., 0.4, 1.]), st.booleans())
def test_calls_are_timms(sizes, seed, prob, multi_label):
    images, made = images_of(sizes), dict(num_classes=5, prob=prob, label_smoothing=0.1, multi_label=multi_label)
    targets = torch.randint(0, 2, (len(sizes), 5)).float() if multi_label else torch.arange(len(sizes)) % 5
    ours = NaFlexMixup(**made)(images, targets, random.Random(seed))
    theirs = timms_with(random.Random(seed), lambda: timm_mixup.NaFlexMixup(**made)(images, targets))
    assert all(map(torch.equal, ours[0], theirs[0])) and len(ours[1]) == len(theirs[1])
    for own, other in zip(ours[1], theirs[1]): assert own.dtype == other.dtype and torch.allclose(own, other, atol=1e-6)


@QUICK
@given(SIZES, st.sampled_from(list(KINDS)), st.integers(0, 10**6))
def test_shares_are_those_of_the_pixels(sizes, kind, seed):
    mixing = NaFlexMixup(num_classes=len(sizes), **KINDS[kind])
    params = mixing.draw(sizes, random.Random(seed))
    one_hot = torch.eye(len(sizes))
    images = [one_hot[n, :, None, None].expand(-1, h, w) for n, (h, w) in enumerate(sizes)]
    mixed, target = mixing.apply_images(images, params), mixing.apply_target(torch.arange(len(sizes)), params)
    assert torch.allclose(torch.stack([image.mean((1, 2)) for image in mixed]), target, atol=1e-5)
    assert sum(n == other for n, other in enumerate(params.partner)) == len(sizes) % 2
    assert all(params.partner[other] == n for n, other in enumerate(params.partner))


@pytest.mark.parametrize('dtype', [torch.uint8, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize('kind', ['mixup', 'cutmix'])
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.gpu)])
def test_dtypes(dtype, kind, device):
    mixing, sizes = NaFlexMixup(num_classes=3, **KINDS[kind]), [(20, 30), (31, 17), (9, 9)]
    params = mixing.draw(sizes, KeyedRandom(0, 0, 0))
    exact = mixing.apply_images(images_of(sizes), params)
    mixed = mixing.apply_images([image.to(device) for image in images_of(sizes, dtype)], params)
    for image, expected in zip(mixed, exact):
        assert image.dtype == dtype and torch.allclose(image.cpu().float(), expected, atol=2. if dtype == torch.bfloat16 else 0.51)


def test_both_switches_must_allow_mixing():
    mixing, sizes = NaFlexMixup(num_classes=3, mixup_off_epoch=5), [(8, 8), (8, 9)]
    def is_mixed(**more): return mixing.draw(sizes, random.Random(0), **more).kind != 'none'
    for epoch, enabled in ((0, True), (4, True), (5, True), (9, True), (0, False), (9, False)):
        mixing.set_epoch(epoch)
        mixing.mixup_enabled = enabled
        assert is_mixed() == (enabled and epoch < 5) and mixing.mixup_enabled is enabled
    mixing.mixup_enabled = True
    assert is_mixed(epoch=4) and not is_mixed(epoch=5)   # what is said with the draw counts


def test_one_image_and_lists_of_targets():
    image, = images_of([(8, 9)])
    (same,), (target,) = NaFlexMixup(num_classes=4)([image], [2])
    assert same is image and target.tolist() == [0, 0, 1, 0]
    dense = [torch.tensor([0., 1.]), torch.tensor([1., 0.])]
    assert len(NaFlexMixup(num_classes=2, multi_label=True)([image, image], dense)[1]) == 2


def test_targets_of_pairs_are_timms():
    drawn = NaFlexMixParams(partner=(2, 1, 0), lam=(0.25, 1., 0.75), amount=0.25, kind='mixup', boxes=((0,) * 6,) * 3)
    for smoothing in (0., 0.1):
        ours = NaFlexMixup(num_classes=4, label_smoothing=smoothing).apply_target(torch.arange(3), drawn)
        pairs = {0: 2, 2: 0}, [0.25, 0.5, 0.75]   # a share of an image that is not mixed does not count
        assert torch.allclose(ours, timm_mixup.pairwise_mixup_target(torch.arange(3), *pairs, num_classes=4, smoothing=smoothing))


def test_copies_mix_alike():
    mixing = NaFlexMixup(num_classes=3, mixup_off_epoch=2)
    mixing.set_epoch(2)
    for other in (copy.deepcopy(mixing), pickle.loads(pickle.dumps(mixing))):
        assert other.draw([(4, 4)] * 2, random.Random(0)) == mixing.draw([(4, 4)] * 2, random.Random(0))
        assert repr(other) == repr(mixing)
