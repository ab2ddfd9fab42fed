"Published policies compared with timm 1.0.31: the same images, settings and distributions."
import pickle
import random
import re
from collections import defaultdict

import numpy as np
import pytest
import torch
from grids import few
from PIL import Image, ImageOps
from timm.data import auto_augment as timm_aa
from timm.data.transforms_factory import transforms_imagenet_train as timm_transforms_imagenet_train
from timm_policies import FILL, HPARAMS, Recorder, assert_same

from timmdata.core.rng import KeyedRandom
from timmdata.transforms.auto_augment import (
    AugMixAugment,
    AutoAugment,
    RandAugment,
    ThreeAugment,
    augment_and_mix_transform,
    augmix_ops,
    auto_augment_transform,
    create_policy,
    rand_augment_ops,
    rand_augment_transform,
)
from timmdata.transforms.policy import AugmentOp, apply_ops

pytestmark = pytest.mark.timeout(120)

AUTO_CONFIGS = ['original', 'originalr', 'v0', 'v0r', '3a', 'original-mstd0.5', 'v0-mstd1', '3a-mstd0.5']


@pytest.mark.parametrize('config', few(AUTO_CONFIGS, num=3))
def test_auto_augment_images_are_timms(photos, monkeypatch, config):
    posterize = ImageOps.posterize
    monkeypatch.setattr(ImageOps, 'posterize', lambda image, bits: posterize(image, max(1, bits)))
    timms = timm_aa.auto_augment_transform(config, dict(translate_const=43, img_mean=FILL))
    ours = auto_augment_transform(config, dict(translate_const=43, img_mean=FILL))
    for seed in range(25):
        random.seed(seed)
        image = ours(photos[seed % 4])
        random.seed(seed)
        assert_same(image, timms(photos[seed % 4]), seed)


# strings

def settings_of(op):
    std, maximum = op.magnitude_std, op.magnitude_max
    return op.name, op.prob, op.magnitude, std, maximum


RAND_CONFIGS = [
    'rand', 'rand-m9', 'rand-m9-mstd0.5', 'rand-m9-mstd0.5-inc1', 'rand-m9-n3-mstd0.5', 'rand-mstd1-tweights',
    'rand-m7-mstd0.5-inc1', 'rand-m15-mmax20-n4-inc1', 'rand-m6-n4-mstd1.0', 'rand-m9-mstd101', 'rand-m9-mstd100',
    'rand-p0.3-m5', 'rand-p1', 'rand-t3a', 'rand-m8-t3aw-n1', 'rand-n3-tweights-p.5', 'rand-inc0', 'rand-inc1-m0',
    'rand-m9-inc1-mstd0.5-mmax11-p0.75-n5', 'rand-inc2', 'rand-tweights-inc1',
]


MAKERS = dict(rand=rand_augment_transform, augmix=augment_and_mix_transform)


@pytest.mark.parametrize('config', [
    *RAND_CONFIGS, *AUTO_CONFIGS, 'augmix', 'augmix-m5-w4-d2', 'augmix-m5-b1', 'augmix-a0.5-d0-mstd1', 'augmix-b0-w1'])
def test_strings_mean_what_they_mean_in_timm(config):
    make = MAKERS.get(config.partition('-')[0], auto_augment_transform)
    ours = make(config, {})
    timms = getattr(timm_aa, make.__name__)(config.replace('-p.5', '-p0.5'), {})   # timm takes 'p.' as an unknown name
    mine, theirs = (getattr(policy, 'policy', [getattr(policy, 'ops', [])]) for policy in (ours, timms))
    assert [list(map(settings_of, ops)) for ops in mine] == [list(map(settings_of, ops)) for ops in theirs]
    assert isinstance(ours, ThreeAugment) == config.startswith('3a')
    for name in ('num_layers', 'alpha', 'width', 'depth', 'blended'): assert getattr(ours, name, None) == getattr(timms, name, None)
    weights = [getattr(policy, 'choice_weights', None) for policy in (ours, timms)]
    assert (weights[0] is None) == (weights[1] is None)
    if weights[0]: np.testing.assert_allclose(*weights, rtol=1e-12)


@pytest.mark.parametrize('config', ['rand-m9-mstd0.5-inc1', 'v0', '3a', 'augmix-m3'])
@pytest.mark.parametrize('size, mean', [(224, (0.485, 0.456, 0.406)), ((160, 192), (0.5, 1., 1.01))])
@pytest.mark.parametrize('interpolation', ['random', 'bilinear', 'bicubic'])
def test_settings_are_those_of_timms_factory(config, size, mean, interpolation):
    timms = timm_transforms_imagenet_train(
        size, auto_augment=config, mean=mean, interpolation=interpolation, separate=True)[1].transforms[0]
    ours = create_policy(config, size, mean, interpolation)
    def one_op(policy): return policy.policy[0][0] if hasattr(policy, 'policy') else policy.ops[0]
    ours, timms = one_op(ours).hparams, one_op(timms).hparams
    assert ours['interpolation'] == (('bilinear', 'bicubic') if 'interpolation' not in timms else (interpolation,))
    assert (ours['translate_const'], ours['img_mean']) == (timms['translate_const'], timms['img_mean'])
    assert ours['translate_pct'] == timms.get('translate_pct', 0.45)


@pytest.mark.parametrize('config, message', [
    ('rand-m9-x3', "unknown part 'x3'; rand accepts m, n, p, mstd, mmax, inc, t"), ('rand-', "unknown part ''"),
    ('rand-m', 'needs a number'), ('rand-n2.5', 'needs an integer'), ('rand-n0', '1 or more'), ('rand-mnan', '0 or more'),
    ('rand-p2', 'probability'), ('rand-m5-m9', "two parts 'm'"), ('rand-n15-t3aw', 'num_layers=15: must be at most'),
    ('original-m9', 'original accepts mstd'), ('v0-mstdx', 'needs a number'), ('v1', 'one of rand, original'), ('', 'one of rand'),
    ('Rand-m9', 'one of rand'), ('augmixture-m5', 'one of rand'), ('augmix-n3', 'augmix accepts m, w, d, a, b, mstd'),
    ('augmix-w0', '1 or more'), ('augmix-a0', 'alpha > 0'), ('augmix-d1.5', 'integer')])
def test_wrong_strings(config, message):
    with pytest.raises(ValueError, match=re.escape(message)): create_policy(config)


def test_wrong_settings():
    for make, message in ((lambda: AugmentOp('Rotate', hparams={'m': 1}), 'among translate_const'), (lambda: RandAugment([]), 'least one'),
                          (lambda: AutoAugment([]), 'least one'), (lambda: AugMixAugment([]), 'least one'),
                          (lambda: RandAugment(rand_augment_ops()[:2], 1, [1., -1.]), 'one weight >= 0 per operation')):
        with pytest.raises(ValueError, match=message): make()


def test_settings_of_the_caller_are_kept():
    hparams = dict(translate_const=57)
    for make, config in ((rand_augment_transform, 'rand-mstd1'), (auto_augment_transform, 'v0-mstd1'),
                         (augment_and_mix_transform, 'augmix')):
        make(config, hparams)
        assert hparams == dict(translate_const=57)
    for make, config in ((rand_augment_transform, 'rand-mstd1'), (augment_and_mix_transform, 'augmix-mstd1')):
        assert make(config, dict(magnitude_std=0.2)).ops[0].magnitude_std == 0.2   # as in timm


def test_inc0_is_not_increasing():
    assert [op.name for op in rand_augment_transform('rand-inc0').ops] == [op.name for op in rand_augment_ops()]
    assert 'ColorIncreasing' in [op.name for op in rand_augment_transform('rand-inc1').ops]


def test_transforms_can_be_given():
    by_weight = rand_augment_transform('rand-n1', transforms=dict(Invert=3, Rotate=1))
    assert by_weight.choice_weights == [0.75, 0.25]
    assert [op.name for op in rand_augment_transform('rand-tweights', transforms=['Invert']).ops] == ['Invert']
    assert len(rand_augment_transform('rand', transforms='3a').ops) == 3
    assert [op.name for op in augmix_ops(transforms=['Invert'])] == ['Invert']


# distributions

def deviation(*columns):
    "Return how far two columns of counts are from one distribution: chi-square in standard deviations (Wilson, Hilferty)."
    counts = np.float64([row for row in zip(*columns) if sum(row) >= 10])
    expected, df = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum(), len(counts) - 1
    if df == 0: return 0.
    mean = ((counts - expected) ** 2 / expected).sum() / df
    return (mean ** (1 / 3) - 1 + 2 / (9 * df)) / (2 / (9 * df)) ** 0.5


def deviation_of_values(theirs, ours):
    "Return `deviation` for numbers, in bins that each hold about the same number of the first ones."
    edges = np.unique(np.quantile(theirs, np.linspace(0, 1, 7)[1:-1]))
    return deviation(*(np.bincount(np.digitize(values, edges), minlength=len(edges) + 1) for values in (theirs, ours)))


def test_deviation_is_seen():
    rng = np.random.default_rng(0)
    assert deviation_of_values(rng.normal(size=600), rng.normal(size=600)) < 3
    assert deviation_of_values(rng.normal(size=600), rng.normal(size=600) * 1.5) > 4
    assert deviation([500, 500], [450, 550]) < 4 < deviation([500, 500], [400, 600])


def values_by_name(drawn):
    by_name = defaultdict(list)
    for op in drawn: by_name[op.name].append(op.value)
    return by_name


@pytest.mark.parametrize('config', ['rand-m9-mstd0.5-inc1', 'rand-m9-n3-mstd101', 'rand-n3-tweights-p0.8', 'rand-n2-t3aw'])
def test_distribution_is_timms(config):
    n, recorder = 5000, Recorder()
    timms = timm_aa.rand_augment_transform(config, dict(HPARAMS))
    for op in timms.ops: recorder.watch(op)
    ours = rand_augment_transform(config, dict(HPARAMS))
    random.seed(0)
    np.random.seed(0)
    num_timms = []
    for _ in range(n):
        before = len(recorder.drawn)
        timms(None)
        num_timms.append(len(recorder.drawn) - before)
    draws = [ours.draw(KeyedRandom(0, 0, k)) for k in range(n)]
    assert deviation(*(np.bincount(counts, minlength=6) for counts in (num_timms, list(map(len, draws))))) < 4
    theirs, mine = values_by_name(recorder.drawn), values_by_name(op for drawn in draws for op in drawn)
    names = sorted(theirs | mine)
    assert deviation(*([len(drawn[name]) for name in names] for drawn in (theirs, mine))) < 4
    for name in names:
        if None in theirs[name] or min(len(theirs[name]), len(mine[name])) < 100: continue
        assert deviation_of_values(theirs[name], mine[name]) < 4, name


def test_weighted_choice_has_no_replacement():
    policy = rand_augment_transform('rand-n3-t3a-p1', transforms=dict(Invert=8, Rotate=1, Equalize=1))
    for k in range(50):
        assert len({op.name for op in policy.draw(KeyedRandom(0, 0, k))}) == 3
    first = [policy.draw(KeyedRandom(0, 0, k))[0].name for k in range(2000)]
    assert abs(first.count('Invert') / 2000 - 0.8) < 0.03
    plain = rand_augment_transform('rand-n2-p1', transforms=['Invert', 'Equalize'])
    same = sum(len({op.name for op in plain.draw(KeyedRandom(0, 0, k))}) == 1 for k in range(2000))
    assert abs(same / 2000 - 0.5) < 0.05


# AugMix

class Scripted:
    "Stand in for NumPy's global generator in timm: return the numbers of a record."

    def __init__(self, record, ops):
        self.record, self.chains, self.ops = record, iter(record.chains), ops

    def dirichlet(self, alpha): return np.float64(self.record.weights)
    def beta(self, a, b): return self.record.share
    def randint(self, low, high): return 1

    def choice(self, ops, depth, replace):
        return [lambda image, op=op: apply_ops(image, [op]) for op in next(self.chains)]


@pytest.mark.parametrize('blended', [False, True])
def test_augmix_pixels_are_timms(photos, monkeypatch, blended):
    ours = augment_and_mix_transform(f'augmix-m6-w3-b{int(blended)}', HPARAMS)
    timms = timm_aa.AugMixAugment([], width=3, blended=blended)
    for k in range(20):
        photo, drawn = photos[k % 4], ours.draw(KeyedRandom(0, 0, k))
        with monkeypatch.context() as patch:
            patch.setattr(np, 'random', Scripted(drawn, ours.ops))
            expected = timms(photo)
        assert_same(ours.apply(photo, drawn), expected, drawn)


def test_augmix_draws():
    ours = create_policy('augmix-m5-w4')
    draws = [ours.draw(KeyedRandom(0, 0, k)) for k in range(2000)]
    for drawn in draws[:50]: assert len(drawn.chains) == len(drawn.weights) == 4 and sum(drawn.weights) == pytest.approx(1)
    depths = np.bincount([len(chain) for drawn in draws for chain in drawn.chains])
    assert depths[0] == 0 and len(depths) == 4 and (abs(depths[1:] / depths.sum() - 1 / 3) < 0.02).all()
    weights, shares = np.array([drawn.weights for drawn in draws]), np.array([drawn.share for drawn in draws])
    oracle = np.random.default_rng(0)
    assert abs(weights.mean(0) - 0.25).max() < 0.02
    assert abs(weights.std(0) - oracle.dirichlet([1.] * 4, 20000).std(0)).max() < 0.02
    assert abs(shares.mean() - 0.5) < 0.03 and abs(shares.std() - 12 ** -0.5) < 0.02
    assert {len(chain) for chain in create_policy('augmix-d2').draw(KeyedRandom(0, 0, 0)).chains} == {2}


@pytest.mark.parametrize('mode', ['RGB', 'L'])
@pytest.mark.parametrize('size', [(60, 40), (40, 60), (1, 1), (5, 1)])
def test_augmix_takes_any_shape(mode, size):
    image = Image.effect_noise(size, 60).convert(mode)
    for config in ('augmix-m5', 'augmix-m5-b1'):
        mixed = create_policy(config)(image)
        assert (mixed.size, mixed.mode) == (size, mode)


# policies as objects

CONFIGS = ['rand-m9-mstd0.5-inc1', 'rand-n3-tweights', 'original', 'v0r-mstd0.5', '3a', 'augmix-m5-w4-d2']


@pytest.mark.parametrize('config', CONFIGS)
def test_policies_repeat_pickle_and_print(photos, config):
    policy = create_policy(config, 96)
    other = pickle.loads(pickle.dumps(policy))
    assert repr(other) == repr(policy) and type(policy).__name__ in repr(policy) and ' at 0x' not in repr(policy)
    state, numpy_state, torch_state = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    for k in range(20):
        drawn = policy.draw(KeyedRandom(3, 1, k))
        assert drawn == other.draw(KeyedRandom(3, 1, k)) == pickle.loads(pickle.dumps(drawn))
        assert policy.apply(photos[0], drawn).tobytes() == other.apply(photos[0], drawn).tobytes()
    assert random.getstate() == state and (np.random.get_state()[1] == numpy_state).all()   # global ones are not used
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert len({policy.draw(KeyedRandom(3, 1, k)) for k in range(20)}) > 1
    random.seed(5)   # a call draws from Python's generator
    image = policy(photos[0])
    random.seed(5)
    drawn = policy.draw()
    assert image.tobytes() == policy.apply(photos[0], drawn).tobytes()
    assert policy.apply(photos[0].convert('L'), drawn).mode == 'L'
