"Sizes, crops and patches of NaFlex: timm's numbers for the same draws, and what must hold for every image."
import random
import warnings

import numpy as np
import pytest
import torch
from grids import few
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from timmdata.core.rng import KeyedRandom, seeded
from timmdata.transforms import naflex_transforms as naflex
from timmdata.transforms.geometry import choose_interpolation, parse_interpolation, str_to_interp_mode

timm_naflex = pytest.importorskip('timm.data.naflex_transforms')
pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=150, deadline=None)
EDGES, BUDGETS = st.integers(1, 6000), st.integers(1, 2000)
PATCHES = st.sampled_from([1, 7, 14, 16, 32, (14, 16), (16, 14), (8, 32)])
RATIOS = st.sampled_from([None, 0.5, 1., 2.])
SIZES = [(96, 64), (1, 1), (1, 300), (20000, 30), (333, 250), (15, 17)]   # width, height


def noise(width, height) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8))


def same_draws(name, image, seed, **made) -> list[np.ndarray]:
    "Return our pixels and timm's."
    results = []
    for module in (naflex, timm_naflex):
        with seeded(seed): results.append(np.asarray(getattr(module, name)(**made)(image)))
    return results


def pair(patch_size) -> tuple[int, int]: return (patch_size, patch_size) if isinstance(patch_size, int) else patch_size


def num_patches(size, patch_size) -> int:
    patch_h, patch_w = pair(patch_size)
    return size[0] // patch_h * (size[1] // patch_w)


@QUICK
@given(EDGES, EDGES, PATCHES, BUDGETS, st.booleans(), RATIOS)
def test_sizes_are_timms(height, width, patch_size, budget, divisible, max_ratio):
    given_ = (height, width), patch_size, budget, divisible, max_ratio
    ratio, size = naflex.get_image_size_for_seq(*given_)
    assert (ratio, size) == timm_naflex.get_image_size_for_seq(*given_)
    assert 1 <= num_patches(size, patch_size) <= budget


@pytest.mark.parametrize('image_hw', [(10, 2_000_000), (2_000_000, 10), (3_000_000, 3_000_000)])
def test_what_timm_refuses_is_refused(image_hw):
    for module in (naflex, timm_naflex):
        with pytest.raises(ValueError): module.get_image_size_for_seq(image_hw, 16, 1)


@QUICK
@given(st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=20), PATCHES, BUDGETS)
def test_counts_are_those_of_single_images(sizes, patch_size, budget):
    found = naflex.count_tokens(*zip(*sizes), patch_size, budget)
    assert found.dtype == np.int64
    assert found.tolist() == [num_patches(timm_naflex.get_image_size_for_seq(size, patch_size, budget, max_ratio=1.)[1],
                                          patch_size) for size in sizes]


def test_counts_of_extreme_edges():
    sizes = [(h, w) for h in (16, 99_999, 100_001, 1_600_001) for w in (1, 16, 17, 99_999, 100_001)]
    for budget in (1, 6251, 100_002, 40_000_000):
        expected = []
        for size in sizes:
            try: expected.append(num_patches(timm_naflex.get_image_size_for_seq(size, 16, budget, max_ratio=1.)[1], 16))
            except ValueError: expected.append(None)
        fine = [size for size, count in zip(sizes, expected) if count]
        assert naflex.count_tokens(*zip(*fine), 16, budget).tolist() == [count for count in expected if count]
        if None in expected:
            with pytest.raises(ValueError, match='does not fit into'): naflex.count_tokens(*zip(*sizes), 16, budget)


def test_counts_of_many_and_of_none():
    assert naflex.count_tokens([], []).shape == (0,)
    heights, widths = np.random.default_rng(0).integers(100, 900, (2, 40_000))   # several parts
    found = naflex.count_tokens(heights, widths, 16, 256)
    for at in (0, 16383, 16384, 39_999):
        size = naflex.get_image_size_for_seq((heights[at], widths[at]), 16, 256, max_ratio=1.)[1]
        assert found[at] == num_patches(size, 16)


@QUICK
@given(EDGES, EDGES, PATCHES, BUDGETS, st.booleans(), RATIOS, st.sampled_from([None, (0.5, 1.), (0.01, 0.1)]),
       st.sampled_from([(0.8, 1.25), (1.1, 1.2), (0.5, 0.6)]), st.integers(0, 10**6))
def test_crops_are_timms(height, width, patch_size, budget, divisible, max_ratio, final_scale, ratio, seed):
    patch_h, patch_w = pair(patch_size)
    given_ = Image.new('1', (width, height)), (0.08, 1.), ratio, 10, patch_h, patch_w, budget, divisible, max_ratio, final_scale
    with seeded(seed), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        expected = *timm_naflex.RandomResizedCropToSequence.get_params(*given_), random.random()
    crop = naflex.RandomResizedCropToSequence(patch_size, budget, (0.08, 1.), ratio, 'random', divisible, max_ratio, final_scale)
    with seeded(seed): found = *crop.draw((height, width)), random.random()
    assert found == expected   # and nothing more was drawn
    own = crop.draw((height, width), random.Random(seed))
    assert own == found[:3] and num_patches(own[1], patch_size) <= budget


@pytest.mark.parametrize('interpolation', ['bicubic', ('bilinear', 'bicubic'), ['box', str_to_interp_mode('box')]])
def test_interpolation_is_drawn_last(interpolation):
    def params(interpolation):
        crop, rng = naflex.RandomResizedCropToSequence(interpolation=interpolation), KeyedRandom(0, 0, 1)
        return *crop.draw((60, 80), rng), rng
    *rest, drawn, _ = params(interpolation)
    *expected, _, rng = params('bicubic')
    assert rest == expected
    assert drawn == choose_interpolation(parse_interpolation(interpolation), rng)


@pytest.mark.parametrize('size', few(SIZES, num=2))
@pytest.mark.parametrize('kind', ['PIL', 'tensor'])
@pytest.mark.parametrize('name, made', [
    ('ResizeToSequence', dict(patch_size=16, max_seq_len=50)),
    ('ResizeToSequence', dict(patch_size=(14, 16), max_seq_len=50, divisible_by_patch=False, interpolation='random')),
    ('RandomResizedCropToSequence', dict(max_seq_len=50, interpolation='random', final_scale_range=(0.5, 1.)))])
def test_pixels_are_timms(size, kind, name, made):
    image = noise(*size)
    if kind == 'tensor': image = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert np.array_equal(*same_draws(name, image, 4, **made))


def test_a_call_holds_max_ratio():
    made = dict(max_seq_len=1024, max_ratio=1., scale=(0.5, 0.5))
    small, large = (module.RandomResizedCropToSequence(**made)(noise(64, 64)).size for module in (naflex, timm_naflex))
    assert max(small) <= 80 and min(large) > 400   # timm forgets it


@QUICK
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([(1, 1), (3, 5), (16, 14)]), st.booleans(), st.booleans(),
       st.sampled_from([torch.uint8, torch.float32, torch.float16]))
def test_patches_are_timms(height, width, patch_size, flatten, last, dtype):
    image = torch.randint(0, 255, (3, height, width), generator=torch.Generator().manual_seed(0)).to(dtype)
    results = [module.patchify_image(image, patch_size, flatten_patches=flatten, channels_last=last) for module in (naflex, timm_naflex)]
    for ours, theirs in zip(*results): assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_patchify_takes_images_and_tensors():
    image = noise(50, 31)
    for given_ in (image, image.convert('L'), torch.from_numpy(np.array(image)).permute(2, 0, 1)):
        ours, theirs = (module.Patchify((8, 16))(given_) for module in (naflex, timm_naflex))
        assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert ours['patches'].dtype == torch.uint8
