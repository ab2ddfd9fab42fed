"Mixup and CutMix: timm's results for the same draws, timm's distributions, and what must hold for every batch."
import copy
import pickle
import random
from unittest.mock import patch

import numpy as np
import pytest
import timm.data.mixup as timm_mixup
import torch
from grids import few
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, Subset

import timmdata.transforms.mixup as our_mixup
from timmdata import NaFlex, NaFlexMixup, create_loader
from timmdata.core.rng import KeyedRandom
from timmdata.pipeline.collate import FastCollateMixup
from timmdata.transforms.mixup import MixParams, Mixup, check_target, mixup_target, paste_masked, paste_slices, rand_bbox, rand_bbox_minmax

pytestmark = pytest.mark.timeout(120)
MODES = ['batch', 'pair', 'elem', 'half']
NUM_CLASSES = 7
QUICK = settings(max_examples=60, deadline=None)
MIXES = {'mixup': dict(mixup_alpha=0.8), 'cutmix': dict(mixup_alpha=0., cutmix_alpha=1.),
         'both': dict(mixup_alpha=0.8, cutmix_alpha=1.), 'minmax': dict(mixup_alpha=0., cutmix_minmax=(0.2, 0.8)),
         'some': dict(mixup_alpha=0.8, cutmix_alpha=1., prob=0.5),
         'minmax, always corrected': dict(mixup_alpha=0., cutmix_minmax=(0.2, 0.8), correct_lam=False),
         'drawn lam': dict(mixup_alpha=0., cutmix_alpha=1., correct_lam=False)}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def images_of(n, h=16, w=24, dtype=torch.uint8, seed=0, channels=3):
    pixels = torch.randint(0, 256, (n, channels, h, w), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return pixels if dtype == torch.uint8 else ((pixels.float() - 120) / 60).to(dtype)


def targets_of(n, seed=0):
    return torch.randint(0, NUM_CLASSES, (n,), generator=torch.Generator().manual_seed(seed))


def timm_given(params: MixParams, timm_class, x, *args, **kwargs):
    "Return timm's result with our draws in place of its own."
    mixing = timm_class(num_classes=NUM_CLASSES, **kwargs)
    rows = len(params.lam) // 2 if kwargs['mode'] == 'pair' else len(params.lam)
    lam, pastes = np.array(params.lam[:rows], np.float32), np.array([k == 'cutmix' for k in params.kind[:rows]])
    boxes = [(box, share) for k, box, share in zip(*params[:1], params.box, params.lam) if k == 'cutmix']
    if kwargs['mode'] != 'batch': boxes = [(box, share) for box, share in boxes if share != 1]   # timm draws no box then
    boxes = iter(boxes)
    mixing._params_per_elem = lambda size: (lam.copy(), pastes)
    mixing._params_per_batch = lambda: (params.lam[0], bool(pastes[0]))
    with patch.object(timm_mixup, 'cutmix_bbox_and_lam', lambda *_, **__: next(boxes)): return mixing(x, *args)


# timm's results for the same draws

@pytest.mark.parametrize('mix', MIXES)
@pytest.mark.parametrize('mode', ['batch', 'pair', 'elem'])
def test_mixup_is_timms(mode, mix):
    for seed in range(8):
        x, target = images_of(8, dtype=torch.float32, seed=seed), targets_of(8, seed)
        mixing = Mixup(mode=mode, num_classes=NUM_CLASSES, **MIXES[mix])
        params = mixing.draw(8, (16, 24), KeyedRandom(0, 0, seed))
        ours, our_target = mixing.apply(x, target, params)
        timms, timm_target = timm_given(params, timm_mixup.Mixup, x.clone(), target, mode=mode, **MIXES[mix])
        torch.testing.assert_close(ours, timms, rtol=0, atol=1e-6)
        torch.testing.assert_close(our_target, timm_target, rtol=0, atol=1e-6)


@pytest.mark.parametrize('as_arrays', [True, False])
@pytest.mark.parametrize('mix', few(MIXES, 'both', 'minmax', 'some'))
@pytest.mark.parametrize('mode', MODES)
def test_collating_is_timms(mode, mix, as_arrays):
    for seed in range(8):
        images, target = images_of(8, seed=seed), targets_of(8, seed).tolist()
        def samples(images=images, target=target):   # of memory of their own: timm writes into them
            return [(image.numpy().copy() if as_arrays else image.clone(), t) for image, t in zip(images, target)]
        mixing = FastCollateMixup(mode=mode, num_classes=NUM_CLASSES, **MIXES[mix])
        params = mixing.draw(8, (16, 24), KeyedRandom(0, 0, seed))
        with patch.object(mixing, 'draw', return_value=params): ours, our_target = mixing(samples())
        timms, timm_target = timm_given(params, timm_mixup.FastCollateMixup, samples(), mode=mode, **MIXES[mix])
        assert ours.dtype == torch.uint8 and torch.equal(ours, timms)
        torch.testing.assert_close(our_target, timm_target, rtol=0, atol=1e-6)


class NumpyRandom:
    "Return NumPy's numbers in the order of the calls."
    random, betavariate, randrange = np.random.rand, np.random.beta, np.random.randint


@pytest.mark.parametrize('mix', MIXES)
def test_a_whole_batch_draws_as_timm(mix):
    x, target = images_of(6, dtype=torch.float32), targets_of(6)
    for seed in range(30):
        np.random.seed(seed)
        timms, timm_target = timm_mixup.Mixup(num_classes=NUM_CLASSES, **MIXES[mix])(x.clone(), target)
        np.random.seed(seed)
        ours, our_target = Mixup(num_classes=NUM_CLASSES, **MIXES[mix])(x, target, NumpyRandom())
        torch.testing.assert_close(ours, timms, rtol=0, atol=1e-5)
        torch.testing.assert_close(our_target, timm_target, rtol=0, atol=1e-6)


@pytest.mark.parametrize('margin', [0., 0.3])
def test_boxes_are_timms_for_the_same_numbers(margin):
    for seed in range(200):
        lam, shape = seed / 200, (3, 11 + seed % 5, 17)
        boxes = []
        for function, more in ((timm_mixup.rand_bbox, {}), (rand_bbox, dict(rng=NumpyRandom()))):
            np.random.seed(seed)
            boxes.append(tuple(map(int, function(shape, lam, margin, **more))))
        assert boxes[0] == boxes[1]
        boxes = []
        for function, more in ((timm_mixup.rand_bbox_minmax, {}), (rand_bbox_minmax, dict(rng=NumpyRandom()))):
            np.random.seed(seed)
            boxes.append(tuple(map(int, function(shape, (0.2, 0.9), **more))))
        assert boxes[0] == boxes[1]


# timm's distributions

def distance(a, b):
    "Return the Kolmogorov–Smirnov distance: the largest difference between the two distribution functions."
    a, b = np.sort(a), np.sort(b)
    at = np.concatenate([a, b])
    return np.abs(np.searchsorted(a, at, 'right') / len(a) - np.searchsorted(b, at, 'right') / len(b)).max()


@pytest.mark.parametrize('mix', few(MIXES, 'both'))
def test_distributions_are_timms(mix):
    n, size, areas = 3000, (24, 32), []
    draw_box = timm_mixup.cutmix_bbox_and_lam
    def recorded(*args, **kwargs):
        box, lam = draw_box(*args, **kwargs)
        areas.append((box[1] - box[0]) * (box[3] - box[2]))
        return box, lam
    np.random.seed(1)
    with patch.object(timm_mixup, 'cutmix_bbox_and_lam', recorded):
        lam = timm_mixup.Mixup(mode='elem', **MIXES[mix])._mix_elem(torch.zeros(n, 1, *size)).flatten().numpy()
    ours = Mixup(mode='elem', **MIXES[mix]).draw(n, size, random.Random(1))
    our_areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in ours.box if box]
    assert distance(ours.lam, lam) < 0.05   # two samples of one distribution: above 0.05 once in a thousand
    assert abs(len(our_areas) - len(areas)) < 0.05 * n
    if areas: assert distance(our_areas, areas) < 0.07
    assert {'both': 2, 'some': 3}.get(mix, 1) == len(set(ours.kind))


def test_share_of_batches_that_are_mixed():
    mixing = Mixup(1., 1., prob=0.3, switch_prob=0.2)
    kinds = [mixing.draw(2, (8, 8), KeyedRandom(0, 0, k)).kind[0] for k in range(4000)]
    assert abs(kinds.count('none') / 4000 - 0.7) < 0.03
    assert abs(kinds.count('cutmix') / 4000 - 0.06) < 0.015


def test_random_partners_are_permutations_of_equal_likelihood():
    counts = np.zeros((5, 5))
    for k in range(3000):
        for n, other in enumerate(Mixup(partner='random').draw(5, (8, 8), KeyedRandom(0, 0, k)).partner):
            counts[n, other] += 1
    assert np.abs(counts / 3000 - 0.2).max() < 0.035


# what must hold for every batch

batches = dict(
    n=st.integers(1, 9), h=st.integers(1, 13), w=st.integers(1, 17), mode=st.sampled_from(MODES),
    partner=st.sampled_from(['reversed', 'random']), mix=st.sampled_from(list(MIXES)), seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float16]), last=st.booleans())


@QUICK
@given(**batches)
def test_every_batch(n, h, w, mode, partner, mix, seed, dtype, last):
    x, target = images_of(n, h, w, dtype, seed), targets_of(n, seed)
    if last: x = x.contiguous(memory_format=torch.channels_last)
    kept, kept_target = x.clone(), target.clone()
    mixing = Mixup(mode=mode, partner=partner, num_classes=NUM_CLASSES, **MIXES[mix])
    params = mixing.draw(n, (h, w), KeyedRandom(seed, 0, 0))
    mixed, soft = mixing.apply(x, target, params)
    assert torch.equal(x, kept) and torch.equal(target, kept_target)   # inputs are left as they are
    rows = -(-n // 2) if mode == 'half' else n
    assert mixed.shape == (rows, *x.shape[1:]) and mixed.dtype == dtype and soft.shape == (rows, NUM_CLASSES)
    if last: assert mixed.is_contiguous(memory_format=torch.channels_last)
    assert soft.dtype == torch.float32 and torch.allclose(soft.sum(1), torch.ones(rows), atol=1e-5)
    used = sorted(params.partner)
    if mode == 'half': assert used == list(range(n - rows, n))
    else: assert used == list(range(n))
    if mode == 'pair': assert all(params.partner[other] == k for k, other in enumerate(params.partner))
    for k, (kind, lam, box, other) in enumerate(zip(*params)):
        assert 0 <= lam <= 1 and lam == float(np.float32(lam))
        own, its = x[k], x[other]
        if kind == 'none': assert lam == 1 and box is None and torch.equal(mixed[k], own)
        elif kind == 'cutmix':
            top, bottom, left, right = box
            expected = own.clone()
            expected[:, top:bottom, left:right] = its[:, top:bottom, left:right]
            assert torch.equal(mixed[k], expected)
            share = 1 - (bottom - top) * (right - left) / (h * w)
            if mix != 'drawn lam': assert abs(lam - share) < 1e-6
        else:
            expected = own.double() * lam + its.double() * (1 - lam)
            atol = {torch.uint8: 0.501, torch.float16: 2e-3}.get(dtype, 1e-5)
            assert (mixed[k].double() - expected).abs().max() <= atol
        smooth = torch.full((NUM_CLASSES,), 0.1 / NUM_CLASSES)
        smooth[target[k]] += 0.9 * lam
        smooth[target[other]] += 0.9 * (1 - lam)
        assert torch.allclose(soft[k], smooth, atol=1e-6)
    over, _ = mixing.apply(x.clone(memory_format=torch.preserve_format), target, params, overwrite=True)
    assert torch.equal(over, mixed) and over.stride() == mixed.stride()


@QUICK
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(MODES), n=st.integers(1, 9))
def test_a_draw_repeats(seed, mode, n):
    mixing = Mixup(0.5, 0.5, mode=mode, partner='random')
    draws = [mixing.draw(n, (9, 7), KeyedRandom(seed, epoch, 0)) for epoch in (0, 0, 1)]
    assert draws[0] == draws[1] and (draws[0] != draws[2] or n == 1)


@QUICK
@given(n=st.integers(1, 6), h=st.integers(1, 9), w=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_slices_and_masks_agree(n, h, w, seed):
    rng = random.Random(seed)
    boxes = [None if rng.random() < 0.2 else rand_bbox((h, w), rng.random(), rng=rng) for _ in range(n)]
    own, other = (images_of(n, h, w, seed=k).contiguous(memory_format=torch.channels_last) for k in range(2))
    kept = own.clone()
    pasted, masked = paste_slices(own, other, boxes, False), paste_masked(own, other, torch.tensor([box or (0,) * 4 for box in boxes]))
    assert torch.equal(own, kept) and torch.equal(pasted, masked) and pasted.stride() == masked.stride()
    assert paste_slices(own, other, boxes, True) is own and torch.equal(own, pasted)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_are_blended_in_float32_or_better(dtype):
    x, target = images_of(4, dtype=dtype), targets_of(4)
    mixing = Mixup(num_classes=NUM_CLASSES)
    params = mixing.draw(4, (16, 24), KeyedRandom(0, 0, 0))
    mixed, soft = mixing.apply(x, target, params)
    exact = x.double() * params.lam[0] + x.flip(0).double() * (1 - params.lam[0])
    one_rounding = torch.finfo(dtype).eps / 2 + 1e-6 if dtype != torch.float64 else 1e-12
    assert mixed.dtype == dtype and ((mixed.double() - exact).abs() <= one_rounding * exact.abs() + 1e-6).all()
    torch.testing.assert_close(soft, mixing.apply(x.float(), target, params)[1], rtol=0, atol=0)


def test_gradients_flow_through():
    x = images_of(4, dtype=torch.float32).requires_grad_()
    for mix in MIXES.values(): Mixup(num_classes=NUM_CLASSES, mode='elem', **mix)(x, targets_of(4))[0].sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize('margin', [0.5, 1.])
def test_a_wide_margin_keeps_boxes_inside(margin):
    for k in range(100):
        top, bottom, left, right = rand_bbox((8, 6), k / 100, margin, rng=KeyedRandom(0, 0, k))
        ratio = (1 - k / 100) ** 0.5
        assert (bottom - top, right - left) == (int(8 * ratio), int(6 * ratio))


# targets

def test_dense_targets():
    shares = torch.rand(5, NUM_CLASSES, generator=torch.Generator().manual_seed(0)).softmax(1)
    kept = shares.clone()
    soft = mixup_target(shares, NUM_CLASSES, 0.3, partner=[1, 0, 2, 4, 3])
    torch.testing.assert_close(soft, shares * 0.3 + shares[[1, 0, 2, 4, 3]] * 0.7)
    assert torch.equal(shares, kept)
    hot = torch.nn.functional.one_hot(torch.arange(5), NUM_CLASSES)   # whole numbers, too
    torch.testing.assert_close(mixup_target(hot, NUM_CLASSES, 0.3, 0.1),
                               mixup_target(torch.arange(5), NUM_CLASSES, 0.3, 0.1))


@pytest.mark.parametrize('smoothing', [0., 0.2])
def test_multi_label_is_timms(smoothing):
    x, labels = images_of(6, dtype=torch.float32), torch.randint(0, 2, (6, NUM_CLASSES))
    mixing = Mixup(num_classes=NUM_CLASSES, multi_label=True, label_smoothing=smoothing)
    params = mixing.draw(6, (16, 24), KeyedRandom(0, 0, 0))
    _, timms = timm_given(params, timm_mixup.Mixup, x.clone(), labels, mode='batch', multi_label=True,
                          label_smoothing=smoothing)
    torch.testing.assert_close(mixing.apply(x, labels, params)[1], timms)


@pytest.mark.parametrize('target, message', [
    (torch.tensor([0, NUM_CLASSES]), 'class index 7'), (torch.tensor([-1, 0]), 'class index -1'),
    (torch.tensor([200, 0], dtype=torch.uint8), 'class index 200'), (torch.tensor([0., 1.]), 'torch.float32 (2,)'),
    (torch.zeros(2, NUM_CLASSES + 1), '(2, 8)'), (torch.zeros(2, 1, dtype=torch.int64), '(2, 1)'),
    (torch.zeros(2, 3, NUM_CLASSES), '(2, 3, 7)'), (torch.zeros(3, dtype=torch.int64), 'images have length 2, targets 3'),
])
def test_wrong_targets_are_errors(target, message):
    x = images_of(2)
    with pytest.raises(ValueError) as caught: Mixup(num_classes=NUM_CLASSES)(x, target)
    assert message in str(caught.value)
    if 'images' in message: return
    with pytest.raises(ValueError): check_target(target, NUM_CLASSES)
    with pytest.raises(ValueError): FastCollateMixup(num_classes=NUM_CLASSES)(list(zip(x, target)))


# the switch, and collating

@pytest.mark.parametrize('mode', MODES)
def test_switched_off(mode):
    x, target = images_of(6), targets_of(6)
    samples = list(zip(x, target.tolist()))
    mixing, collate = (kind(mode=mode, num_classes=NUM_CLASSES) for kind in (Mixup, FastCollateMixup))
    timms = timm_mixup.FastCollateMixup(mode=mode, num_classes=NUM_CLASSES)
    mixing.mixup_enabled = collate.mixup_enabled = timms.mixup_enabled = False
    expected, expected_target = timms([(image.clone(), k) for image, k in samples])
    for ours, our_target in (mixing(x, target), collate(samples)):
        assert torch.equal(ours, expected)
        torch.testing.assert_close(our_target, expected_target)
    mixing.mixup_enabled = collate.mixup_enabled = True
    assert not torch.equal(mixing(x, target)[0], expected) and not torch.equal(collate(samples)[0], expected)


class Gray(torch.utils.data.Dataset):
    "A hundred gray images; the gray level is the index."
    def __len__(self): return 100
    def __getitem__(self, index): return torch.full((1, 4, 4), index, dtype=torch.uint8), index


def test_the_switch_reaches_persistent_workers():
    collate = FastCollateMixup(num_classes=100, label_smoothing=0.)
    loader = DataLoader(Gray(), 10, num_workers=1, persistent_workers=True, collate_fn=collate, timeout=60)
    for enabled in (True, False, True):
        collate.mixup_enabled = enabled
        assert any((target.max(1).values < 1).any() for _, target in loader) == enabled


def test_collating_keeps_samples_and_other_fields():
    images, target = images_of(5), [0, 1, 2, 3, 4]
    for mode in MODES:
        collate = FastCollateMixup(mode=mode, num_classes=NUM_CLASSES, cutmix_alpha=1.)
        collate = pickle.loads(pickle.dumps(copy.deepcopy(collate)))
        samples = [(image.numpy().copy(), k, f'{k}.jpg') for image, k in zip(images, target)]
        mixed, soft, names = collate([*samples, None])
        assert all((image == kept.numpy()).all() for (image, *_), kept in zip(samples, images))
        assert len(mixed) == len(soft) == len(names) == (3 if mode == 'half' else 5) and names[0] == '0.jpg'
        as_dicts = collate([dict(zip(('image', 'target', 'name'), sample)) for sample in samples])
        assert as_dicts['image'].shape == mixed.shape and as_dicts['target'].shape == soft.shape
        assert as_dicts['name'] == names
    assert collate([None]) is None
    floats = [(image.float(), k) for image, k in zip(images, target)]
    assert collate(floats)[0].dtype == torch.float32


# on a GPU

@pytest.mark.gpu
@pytest.mark.parametrize('mix', MIXES)
@pytest.mark.parametrize('mode', MODES)
def test_cuda_agrees(mode, mix):
    for dtype in (torch.uint8, torch.float32, torch.bfloat16):
        x, target = images_of(9, dtype=dtype).contiguous(memory_format=torch.channels_last), targets_of(9)
        mixing = Mixup(mode=mode, num_classes=NUM_CLASSES, partner='random', **MIXES[mix])
        params = mixing.draw(9, (16, 24), KeyedRandom(0, 0, 0))
        here, there = mixing.apply(x, target, params), mixing.apply(x.cuda(), target.cuda(), params)
        assert there[0].is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(there[0].cpu(), here[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(there[1].cpu(), here[1], rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
def test_cuda_does_not_wait_and_shows_a_wrong_index():
    x, target = images_of(4, dtype=torch.float32).cuda(), torch.tensor([0, 1, 2, NUM_CLASSES]).cuda()
    mixing = Mixup(num_classes=NUM_CLASSES, mode='elem', cutmix_alpha=1.)
    params = mixing.draw(4, (16, 24), KeyedRandom(0, 0, 0))
    torch.cuda.set_sync_debug_mode('error')
    try: _, soft = mixing.apply(x, target, params)
    finally: torch.cuda.set_sync_debug_mode('default')
    assert soft[3].isnan().all() and soft[0].isnan().all() and not soft[1:3].isnan().any()


# ---- the number of classes

class Seven(Dataset):
    "Images of seven classes; `names` says whether the dataset knows them."

    def __init__(self, names=True, target_transform=None):
        self.target_transform = target_transform
        if names: self.class_to_idx = {f'class {k}': k for k in range(NUM_CLASSES)}
        self.targets = list(range(NUM_CLASSES)) * 2

    def __len__(self): return len(self.targets)
    def __getitem__(self, index):
        target = self.targets[index]
        return images_of(1)[0], target if self.target_transform is None else self.target_transform(target)


def first_batch(dataset, **settings):
    return next(iter(create_loader(dataset, 16, 8, is_training=True, seed=1, num_workers=0, device='cpu', **settings)))


@pytest.mark.parametrize('settings', [
    {}, dict(use_prefetcher=False),
    dict(use_prefetcher=False, transform=lambda image: images_of(1, 16, 16)[0])], ids=['device', 'workers', 'own transform'])
def test_the_loader_takes_the_number_of_classes_of_the_dataset(settings):
    "The batch is the same as with an explicit num_classes, and as wide as a loss for the dataset's classes needs."
    kinds = [lambda **given: dict(mixup=Mixup(0.8, **given)), lambda **given: dict(collate_fn=FastCollateMixup(0.8, **given))]
    for kind in kinds:
        found, given = (first_batch(Seven(), **made, **settings) for made in (kind(), kind(num_classes=NUM_CLASSES)))
        assert found[1].shape == (8, NUM_CLASSES) and torch.equal(found[1], given[1])


def test_the_mixing_of_the_user_is_not_changed_but_its_switch_works():
    mixup = Mixup(0.8)
    loader = create_loader(Subset(Seven(), range(8)), 16, 8, is_training=True, mixup=mixup, num_workers=0, device='cpu')
    assert mixup.num_classes is None and repr(mixup) == repr(Mixup(0.8))
    mixup.mixup_enabled = False
    targets = next(iter(loader))[1]
    assert not loader.mixup_enabled and targets.shape == (8, NUM_CLASSES) and (targets > 0.5).sum() == 8


def test_alone_the_number_of_classes_is_timms():
    "It is 1000 unless another number is passed."
    images, targets = images_of(4).float(), torch.arange(4)
    assert Mixup()(images, targets)[1].shape == timm_mixup.Mixup()(images.clone(), targets)[1].shape == (4, 1000)
    for kind in (Mixup, FastCollateMixup):
        with pytest.raises(ValueError, match='num_classes=0: must be an integer >= 1'): kind(num_classes=0)
    with pytest.raises(ValueError, match='num_classes=None: must be an integer >= 1'): NaFlexMixup(num_classes=None)


@pytest.mark.parametrize('made', [lambda **given: dict(mixup=Mixup(**given)), lambda **given: dict(collate_fn=FastCollateMixup(**given))])
def test_an_unknown_or_wrong_number_of_classes_is_an_error_at_once(made):
    for dataset in (Seven(names=False), Seven(target_transform=lambda k: k // 2)):
        with pytest.raises(ValueError, match='needs the number of classes.*pass num_classes, as in'): first_batch(dataset, **made())
    with pytest.raises(ValueError, match='num_classes=5, but the dataset has class index 6: pass num_classes=7'):
        first_batch(Seven(), **made(num_classes=5))
    with pytest.raises(ValueError, match='NaFlexMixup has num_classes=5'):
        create_loader(Seven(), batch_size=8, is_training=True, device='cpu', mixup=NaFlexMixup(num_classes=5), naflex=NaFlex())
    for dataset in (Subset(Seven(), [0, 1, 2, 3, 4] * 2), Seven(target_transform=lambda k: k % 5)):
        assert first_batch(dataset, **made(num_classes=5))[1].shape == (8, 5)   # no sample has another class
    assert first_batch(Seven(), **made(num_classes=9))[1].shape == (8, 9)


# ---- batches that are not (N, C, H, W)

SHAPES = {'signals': (6, 3, 40), 'videos': (6, 3, 4, 10, 12), 'vectors': (6, 5), 'numbers': (6,), 'volumes of views': (6, 2, 3, 4, 8, 9)}


@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize('mode', ['batch', 'pair', 'elem'])
def test_any_shape_is_blended_as_by_timm(mode, shape):
    x, target = torch.randn(shape, generator=torch.Generator().manual_seed(0)), targets_of(6)
    mixing = Mixup(0.8, mode=mode, num_classes=NUM_CLASSES)
    for seed in range(4):
        params = mixing.draw(6, shape[-2:], KeyedRandom(0, 0, seed))
        timms, timm_target = timm_given(params, timm_mixup.Mixup, x.clone(), target, mode=mode, mixup_alpha=0.8)
        for overwrite in (False, True):
            ours, our_target = mixing.apply(x.clone(), target, params, overwrite)
            torch.testing.assert_close(ours, timms, rtol=0, atol=1e-6)
            torch.testing.assert_close(our_target, timm_target, rtol=0, atol=1e-6)
    if mode == 'batch':
        np.random.seed(5)
        expected = timm_mixup.Mixup(0.8, num_classes=NUM_CLASSES)(x.clone(), target)
        np.random.seed(5)
        for ours, timms in zip(Mixup(0.8, num_classes=NUM_CLASSES)(x, target, NumpyRandom()), expected):
            torch.testing.assert_close(ours, timms, rtol=0, atol=1e-5)


@pytest.mark.parametrize('overwrite', [False, True])
@pytest.mark.parametrize('mode', ['batch', 'pair', 'elem'])
def test_cutmix_pastes_the_same_rectangle_into_every_frame(mode, overwrite):
    "timm takes rectangles of height and width and cuts frames and height with them; each frame alone is the oracle."
    x, target = torch.randn(6, 3, 4, 10, 12, generator=torch.Generator().manual_seed(0)), targets_of(6)
    mixing = Mixup(0.8, 1., mode=mode, num_classes=NUM_CLASSES)
    for seed in range(4):
        params = mixing.draw(6, (10, 12), KeyedRandom(0, 0, seed))
        videos, soft = mixing.apply(x.clone(), target, params, overwrite)
        for frame in range(4):
            timms, timm_target = timm_given(params, timm_mixup.Mixup, x[:, :, frame].clone(), target,
                                            mode=mode, mixup_alpha=0.8, cutmix_alpha=1.)
            torch.testing.assert_close(videos[:, :, frame], timms, rtol=0, atol=1e-6)
        torch.testing.assert_close(soft, timm_target, rtol=0, atol=1e-6)
    boxes = [(1, 3, 2, 5)] * 6
    assert torch.equal(paste_masked(x, x.flip(0), torch.tensor(boxes)), paste_slices(x, x.flip(0), boxes))


def test_cutmix_needs_height_and_width():
    "timm says: too many indices for tensor of dimension 3, or not enough values to unpack."
    for shape in (6, 3, 40), (6, 5), (6,):
        x = torch.zeros(shape)
        with pytest.raises((IndexError, ValueError)): timm_mixup.Mixup(0., 1., num_classes=NUM_CLASSES)(x.clone(), targets_of(6))
        for alphas in ((0., 1.), (0.8, 1e-9)):
            mixing = Mixup(*alphas, num_classes=NUM_CLASSES)
            for call, *args in (mixing, x, targets_of(6)), (mixing._mix_batch, x):
                with pytest.raises(ValueError, match=r'CutMix pastes rectangles.*\(N, …, H, W\).*cutmix_alpha=0'): call(*args)
        swap = MixParams(('cutmix',) * 6, (0.5,) * 6, ((0, 1, 0, 1),) * 6, tuple(range(6))[::-1])
        with pytest.raises(ValueError, match='CutMix pastes'): Mixup(num_classes=NUM_CLASSES).apply(x, targets_of(6), swap)
    for wrong in torch.zeros(6, 3, 4, dtype=torch.int64), torch.zeros(()):
        with pytest.raises(TypeError, match='uint8 or floating'): Mixup(num_classes=NUM_CLASSES)(wrong, targets_of(6))


# ---- subclasses, as scripts written for timm have them

def own_call(module, targets=mixup_target):
    class ReturnsShares(module.Mixup):
        "Accept odd batches, and return the shares for a loss that needs them."
        def __call__(self, images, labels, *more):
            mix = {'elem': self._mix_elem, 'pair': self._mix_pair}.get(self.mode, self._mix_batch)
            shares = mix(images)
            soft = targets(labels, self.num_classes, shares, self.label_smoothing)
            return images, soft, shares, *more
    return ReturnsShares


def given_shares(module, lam, pastes):
    class Given(own_call(module, module.mixup_target)):
        "Replace the draws, too."
        def _params_per_batch(self): return lam[0], pastes[0]
        def _params_per_elem(self, batch_size): return np.array(lam[:batch_size], np.float32), np.array(pastes[:batch_size])
    return Given


@pytest.mark.parametrize('shape', [(8, 3, 10, 12), (8, 3, 2, 10, 12)], ids=['images', 'videos'])
@pytest.mark.parametrize('mode', ['batch', 'pair', 'elem'])
def test_methods_for_subclasses_mix_as_timms(mode, shape):
    "With given shares and boxes, the images (in place), the shares and the targets are timm's."
    lam = [0.3, 1., 0.75, 0.5, 0.2, 0.9, 1., 0.4]
    boxes = [((1, 4, 2, 6), 0.9), ((0, 5, 0, 5), 0.8), ((2, 3, 1, 9), 0.7), ((0, 1, 0, 1), 0.6)]
    flags = [False] * 8 if len(shape) == 5 else [True, False, False, True, True, False, True, True]   # timm's videos are cut wrong
    for pastes in (flags, [not flag and len(shape) == 4 for flag in flags]):
        results = []
        for module, place in ((timm_mixup, 'timm.data.mixup'), (our_mixup, 'timmdata.transforms.mixup')):
            images, labels = torch.randn(shape, generator=torch.Generator().manual_seed(1)), targets_of(8)
            mixing = given_shares(module, lam, pastes)(mode=mode, num_classes=NUM_CLASSES, cutmix_alpha=1.)
            if len(shape) == 5: mixing.cutmix_alpha = 0.
            with patch(f'{place}.cutmix_bbox_and_lam', side_effect=boxes):
                results.append((images, *mixing(images, labels, 'name')))
            assert results[-1][0] is results[-1][1]   # in place
        for ours, timms in zip(*reversed(results)):
            if isinstance(timms, torch.Tensor): torch.testing.assert_close(ours, timms, rtol=0, atol=1e-6)
            else: assert ours == pytest.approx(timms) if isinstance(timms, float) else ours == timms


@pytest.mark.parametrize('mix', few(MIXES, 'both', 'some', 'minmax'))
def test_methods_for_subclasses_draw_timms_numbers_of_a_batch(mix):
    "With NumPy's numbers in place of Python's, the share, kind and box of the batch are timm's."
    for seed in range(20):
        x, results = images_of(6, dtype=torch.float32), []
        for module in (timm_mixup, our_mixup):
            np.random.seed(seed)
            images = x.clone()
            with patch('timmdata.transforms.mixup.random', NumpyRandom):
                drawn = module.Mixup(num_classes=NUM_CLASSES, **MIXES[mix])._params_per_batch()
                results.append((drawn, module.Mixup(num_classes=NUM_CLASSES, **MIXES[mix])._mix_batch(images), images))
        (timm_drawn, timm_lam, timms), (drawn, lam, ours) = results
        assert drawn == timm_drawn and lam == pytest.approx(timm_lam, abs=1e-7)
        torch.testing.assert_close(ours, timms, rtol=0, atol=1e-5)


def test_methods_for_subclasses_draw_timms_distributions():
    settings = dict(mixup_alpha=0.4, cutmix_alpha=1.3, prob=0.6, switch_prob=0.3)
    np.random.seed(1)
    random.seed(1)
    (timm_lam, timm_pastes), (lam, pastes) = (module.Mixup(**settings)._params_per_elem(4000) for module in (timm_mixup, our_mixup))
    assert lam.dtype == timm_lam.dtype and lam.shape == timm_lam.shape and pastes.dtype == timm_pastes.dtype
    assert distance(lam, timm_lam) < 0.05
    mixed = timm_lam < 1   # timm draws a kind for what is not mixed, too
    assert abs(pastes[lam < 1].mean() - timm_pastes[mixed].mean()) < 0.05
    mixing = Mixup(**settings)
    mixing.mixup_enabled = False
    assert (mixing._params_per_elem(5)[0] == 1).all() and mixing._params_per_batch() == (1., False)
    mixing._params_per_elem(0)   # half of a batch of one


def test_a_subclass_takes_odd_batches_gray_values_and_timms_names():
    mixing = own_call(our_mixup)(0.8, 0., None, 1., 0.5, 'elem', True, 0.1, NUM_CLASSES)
    assert mixing.mix_prob == timm_mixup.Mixup().mix_prob == 1. and not mixing.multi_label
    images = images_of(5)
    kept = images.clone()
    mixed, soft, shares = mixing(images, targets_of(5))
    assert mixed is images and mixed.dtype == torch.uint8 and shares.shape == (5, 1) and torch.allclose(soft.sum(1), torch.ones(5))
    expected = kept.double() * shares[..., None, None].double() + kept.flip(0).double() * (1 - shares[..., None, None].double())
    assert (mixed.double() - expected).abs().max() <= 0.501
    mixing.mix_prob = 0.
    assert torch.equal(mixing(images.clone(), targets_of(5))[0], images) and mixing.prob == 0.
    mixing.mode, mixing.mix_prob = 'pair', 1.
    _, soft, shares = mixing(images, targets_of(5))
    assert torch.equal(shares, shares.flip(0)) and soft.shape == (5, NUM_CLASSES)


@pytest.mark.parametrize('name', ['_mix_batch', '_mix_elem', '_params_per_batch', '_params_per_elem'])
def test_a_replaced_method_that_nothing_calls_is_an_error(name):
    "The base class draws and applies; a method that a subclass wrote for timm must not be ignored silently."
    own = type('Own', (Mixup,), {name: lambda self, *given: pytest.fail('called')})
    with pytest.raises(TypeError, match=f'Own replaces {name}.*draw and apply'): own(num_classes=NUM_CLASSES)(images_of(4), targets_of(4))
    collating = type('Own', (FastCollateMixup,), {'_mix_batch_collate': lambda self, output, batch: 1.})
    with pytest.raises(TypeError, match='Own replaces _mix_batch_collate'):
        collating(num_classes=NUM_CLASSES)(list(zip(images_of(4), [0] * 4)))


@pytest.mark.parametrize('base', [Mixup, NaFlexMixup])
def test_a_loader_refuses_a_mixing_whose_call_it_would_leave_out(base):
    own = type('Own', (base,), {'__call__': lambda self, x, target: (x, target)})
    settings = dict(naflex=NaFlex()) if base is NaFlexMixup else dict(input_size=16)
    with pytest.raises(TypeError, match='Own replaces __call__.*draw and apply.*training loop'):
        create_loader(Seven(), batch_size=8, is_training=True, device='cpu', mixup=own(num_classes=NUM_CLASSES), **settings)
    class Weak(Mixup):
        "Replace a method that a loader calls."
        def apply(self, x, target, params, overwrite=False):
            return super().apply(x, target, params._replace(lam=(1.,) * len(params.lam)), overwrite)
    targets = first_batch(Seven(), mixup=Weak(0.8, num_classes=NUM_CLASSES))[1]
    assert (targets > 0.5).sum() == 8
    class Collates(FastCollateMixup):
        "Be called by a loader."
        def __call__(self, batch, rng=None):
            images, targets = super().__call__(batch, rng)
            return images, targets * 2
    targets = first_batch(Seven(), collate_fn=Collates(0.8, num_classes=NUM_CLASSES))[1]
    assert torch.allclose(targets.sum(1), torch.full((8,), 2.))


def test_targets_of_an_unknown_number_of_classes_are_timms():
    "A subclass passes self.num_classes on, which is None unless it was given."
    targets = torch.arange(4)
    assert torch.equal(mixup_target(targets, Mixup().num_classes, 0.3, 0.1), timm_mixup.mixup_target(targets, 1000, 0.3, 0.1))
