"Erased patches: the same as timm's for the same draws, and what must hold for every grid."
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.core.rng import KeyedRandom, seeded
from timmdata.transforms.patch_erasing import PatchRandomErasing

timm_erasing = pytest.importorskip('timm.data.naflex_random_erasing')
pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=100, deadline=None)
GRIDS = st.tuples(st.integers(1, 12), st.integers(1, 12))


def batch_of(grids, ndim=4, dtype=torch.float32):
    "Return ones, coordinates and validity; shorter images are padded."
    longest = max(h * w for h, w in grids)
    y_x, valid = torch.zeros(len(grids), longest, 2, dtype=torch.int64), torch.zeros(len(grids), longest, dtype=torch.bool)
    for n, (h, w) in enumerate(grids):
        y_x[n, :h * w] = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij'), -1).view(-1, 2)
        valid[n, :h * w] = True
    return torch.ones(len(grids), longest, *((4,) if ndim == 4 else (2, 2)), 3, dtype=dtype), y_x, valid


@QUICK
@given(st.lists(GRIDS, min_size=1, max_size=4), st.sampled_from([4, 5]), st.integers(0, 10**6), st.sampled_from([
    {}, dict(min_count=2, max_count=4), dict(max_area=1.), dict(min_area=0.001, max_area=0.01), dict(value=0.5), dict(num_splits=2)]))
def test_regions_are_timms(grids, ndim, seed, made):
    results = []
    for cls in (PatchRandomErasing, timm_erasing.PatchRandomErasing):
        batch = batch_of(grids, ndim)
        with seeded(seed):
            assert cls(0.8, device='cpu', **made)(*batch) is batch[0]
            results.append((batch[0], random.random()))
    (ours, after), (theirs, expected_after) = results
    assert torch.equal(ours, theirs) and after == expected_after


@QUICK
@given(GRIDS, st.integers(0, 10**6), st.sampled_from([{}, dict(min_count=2, max_count=3), dict(max_area=1.)]))
def test_as_many_single_patches_as_in_timm(grid, seed, made):
    counts = []
    for cls in (PatchRandomErasing, timm_erasing.PatchRandomErasing):
        patches, *fields = batch_of([grid])
        with seeded(seed): cls(0.8, spatial_mode='patch', device='cpu', **made)(patches, *fields)
        erased = (patches == 0).flatten(2)
        assert torch.equal(erased.any(2), erased.all(2))   # whole patches
        counts.append(erased.any(2).sum().item())
    assert counts[0] == counts[1]


def test_more_than_all_patches_are_all():
    "timm fails if the smallest number is above the number of patches."
    made = dict(erase_prob=1., min_count=4, min_area=0.5, max_area=0.6, spatial_mode='patch', device='cpu')
    with pytest.raises(ValueError): timm_erasing.PatchRandomErasing(**made)(*batch_of([(3, 3)]))
    assert (PatchRandomErasing(**made)(*batch_of([(3, 3)])) == 0).all()


def test_each_single_patch_is_as_likely():
    pieces = [PatchRandomErasing(1., spatial_mode='patch').get_params(KeyedRandom(0, 0, n), 3, 4)[0] for n in range(2000)]
    counts = np.bincount(np.concatenate(pieces), minlength=12)
    assert all(len(set(piece.tolist())) == len(piece) for piece in pieces)
    assert counts.min() > 0.85 * counts.mean() and counts.max() < 1.15 * counts.mean()


@pytest.mark.parametrize('spatial_mode', ['region', 'patch'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.gpu)])
def test_fills(spatial_mode, dtype, device):
    patches, *fields = (field.to(device) for field in batch_of([(20, 20)] * 4, dtype=dtype))
    def erased(mode):
        made = dict(spatial_mode=spatial_mode, mode=mode, min_area=0.3, max_area=0.5)
        return PatchRandomErasing(1., **made)(patches.clone(), *fields, rngs=[KeyedRandom(0, 0, n) for n in range(4)]).float()
    const, rand, pixel = map(erased, ('const', 'rand', 'pixel'))
    where = (const == 0).all(-1).all(-1)
    assert torch.equal(where, (rand != 1).any(-1).any(-1)) and torch.equal(where, (pixel != 1).any(-1).any(-1))
    for n in range(4):
        assert len(rand[n][where[n]].view(-1, 3).unique(dim=0)) == 1   # one color
        noise = pixel[n][where[n]]
        assert abs(noise.mean()) < 0.2 and abs(noise.std() - 1) < 0.2
    assert len({tuple(rand[n][where[n]][0, 0].tolist()) for n in range(4)}) == 4


def test_a_sample_is_erased_alike_in_any_batch():
    erase, rngs = PatchRandomErasing(0.7, mode='pixel', max_count=2), [KeyedRandom(1, 2, n) for n in range(6)]
    patches, *fields = batch_of([(4, 5)] * 6)
    erase(patches, *fields, rngs=rngs)
    for n in range(6):
        alone, *others = batch_of([(4, 5)])
        assert torch.equal(erase(alone, *others, rngs=[KeyedRandom(1, 2, n)])[0], patches[n])


def test_patches_in_any_order_and_with_holes():
    erase = PatchRandomErasing(1., min_area=0.3, max_area=0.5)
    patches, y_x, valid = batch_of([(4, 5)])
    erase(patches, y_x, rngs=[KeyedRandom(0, 0, 3)])
    order = torch.from_numpy(np.random.default_rng(0).permutation(20))
    kept = order[order != 7]   # of 4 × 5 patches
    found = erase(torch.ones(1, 19, 4, 3), y_x[:, kept], rngs=[KeyedRandom(0, 0, 3)])
    assert torch.equal(found, patches[:, kept])


def test_a_color_for_each_channel():
    patches, *fields = batch_of([(4, 4)])
    PatchRandomErasing(1., min_area=0.5, max_area=1., value=(0.1, 0.2, 0.3))(patches, *fields)
    assert {tuple(pixel) for pixel in patches.view(-1, 3).tolist()} >= {tuple(torch.tensor([0.1, 0.2, 0.3]).tolist())}
