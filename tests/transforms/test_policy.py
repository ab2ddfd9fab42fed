"Operations and their probabilities compared with timm 1.0.31 and Pillow: the same pixels and the same draws."
import itertools
import random

import numpy as np
import pytest
from grids import few
from PIL import Image, ImageFilter, ImageOps
from shared_data import shared_data
from timm.data import auto_augment as timm_aa
from timm_policies import FILL, HPARAMS, NAMES, Recorder, assert_same, timm_apply, timm_args

from timmdata.core.rng import KeyedRandom
from timmdata.transforms.policy import OPERATIONS, AugmentOp, DrawnOp, Policy, apply_ops

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize('name', few(NAMES, num=9))
@pytest.mark.parametrize('sign', [1, -1])
def test_values_and_pixels_are_timms(photos, monkeypatch, name, sign):
    monkeypatch.setattr(timm_aa, '_randomly_negate', lambda value: sign * value)
    for magnitude in (*range(11), 0.37, 4.51, 8.99):
        args = timm_args(name, magnitude, dict(HPARAMS))
        drawn = AugmentOp(name, 1., magnitude, HPARAMS).at(magnitude, sign)
        expected = (max(1, args[0]),) if 'Posterize' in name else args
        if name == 'GaussianBlurRand': expected = args = [2. * args[0]]   # of which timm draws the radius
        assert (() if drawn.value is None else (drawn.value,)) == tuple(expected)
        for photo in photos: assert_same(apply_ops(photo, [drawn]), timm_apply(name, photo, args), (drawn, photo.size))


@pytest.mark.parametrize('name', few(NAMES, num=5))
def test_bilinear_pixels_are_timms(photos, name):
    how = Image.Resampling.BILINEAR
    for magnitude, sign in itertools.product((1, 5, 9.3), (1, -1)):
        drawn = AugmentOp(name, 1., hparams=HPARAMS | dict(interpolation='bilinear')).at(magnitude, sign)
        args = [] if drawn.value is None else [drawn.value]
        assert_same(apply_ops(photos[1], [drawn]), timm_apply(name, photos[1], args, interpolation=how), drawn)


@pytest.mark.parametrize('seed', few(range(12), num=3))
def test_operations_in_a_row_are_timms_one_after_another(photos, seed):
    rng = random.Random(seed)
    for photo in photos:
        ops = [AugmentOp(rng.choice(NAMES), 1., hparams=HPARAMS).at(rng.uniform(0, 10), rng.choice((-1, 1))) for _ in range(5)]
        expected = photo
        for op in ops: expected = timm_apply(op.name, expected, [] if op.value is None else [op.value])
        assert_same(apply_ops(photo, ops), expected, ops)


def test_timm_cannot_keep_0_bits(photos):
    for name, magnitude in (('Posterize', 2), ('PosterizeIncreasing', 10)):
        op = timm_aa.AugmentOp(name, prob=1., magnitude=magnitude, hparams=dict(HPARAMS))
        with pytest.raises(ValueError, match='bits must be'): op(photos[0])
        ours = AugmentOp(name, 1., magnitude).draw()
        assert ours.value == 1
        assert_same(apply_ops(photos[0], [ours]), ImageOps.posterize(photos[0], 1))


@pytest.mark.parametrize('name', few(NAMES, num=3))
def test_photographs_of_imagenet(name):
    paths = sorted(shared_data('imagenet-200').rglob('*.JPEG'))[::40]
    for k, path in enumerate(paths):
        with Image.open(path) as image: photo = image.convert('RGB').resize((224, 224 - 13 * k))
        for magnitude in (3, 9):
            drawn = AugmentOp(name, 1., hparams=HPARAMS).at(magnitude, (-1) ** k)
            args = [] if drawn.value is None else [drawn.value]
            assert_same(apply_ops(photo, [drawn]), timm_apply(name, photo, args), (path.name, drawn))


@pytest.mark.parametrize('name', few(NAMES, num=5))
def test_gray_images(photos, name):
    gray = photos[1].convert('L')
    for magnitude in (0, 4, 10):
        drawn = AugmentOp(name, 1., hparams=HPARAMS | dict(img_mean=(116,))).at(magnitude)
        args = [] if drawn.value is None else [drawn.value]
        assert_same(apply_ops(gray, [drawn]), timm_apply(name, gray, args, fill=(116,)), drawn)


def test_fill_fits_the_mode(photos):
    color = DrawnOp('TranslateX', 500., 'bilinear', (30, 60, 90))   # nothing of the image is left
    assert apply_ops(photos[0].convert('L'), [color]).getextrema() == (60, 60)
    assert apply_ops(photos[0], [color._replace(fill=(7,))]).getextrema() == ((7, 7),) * 3


def test_other_modes_are_refused(photos):
    for mode in ('RGBA', 'CMYK', 'P', '1', 'F'):
        with pytest.raises(ValueError, match=f'got {mode}'): apply_ops(photos[0].convert(mode), [DrawnOp('Invert')])
        assert apply_ops(photos[0].convert(mode), []).mode == mode


def test_images_are_not_modified_by_any_magnitude(photos):
    "`mmax` allows magnitudes above 10."
    assert set(OPERATIONS) >= set(NAMES)   # all of timm's
    for name, magnitude, sign in itertools.product(NAMES, (8, 11, 30, 100), (1, -1)):
        photo = photos[0].copy()
        assert apply_ops(photo, [AugmentOp(name, hparams=HPARAMS).at(magnitude, sign)]).size == photo.size
        assert photo.tobytes() == photos[0].tobytes(), name


SIZES = [(1, 1), (1, 9), (9, 1), (2, 3), (3, 2), (7, 5), (64, 65), (129, 33), (2000, 12), (12, 2000)]
MATRICES = dict(TranslateX=lambda v: (1, 0, v, 0, 1, 0), TranslateY=lambda v: (1, 0, 0, 0, 1, v),
                ShearX=lambda v: (1, v, 0, 0, 1, 0), ShearY=lambda v: (1, 0, 0, v, 1, 0))


@pytest.mark.parametrize('interpolation', ['nearest', 'bilinear', 'bicubic'])
@pytest.mark.parametrize('name', MATRICES)
def test_moved_pixels_are_pillows(name, interpolation):
    resample = Image.Resampling[interpolation.upper()]
    for size in SIZES:
        noise = Image.frombytes('RGB', size, np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8).tobytes())
        for value in (0., 0.27, -0.3, 0.5, 2.25):
            for image, fill in ((noise, FILL), (noise.convert('L'), (99,))):
                expected = image.transform(size, Image.Transform.AFFINE, MATRICES[name](value), resample, fillcolor=fill)
                assert_same(apply_ops(image, [DrawnOp(name, value, interpolation, fill)]), expected, (name, value, size))


@pytest.mark.parametrize('size', [*SIZES[:8], (200, 150)], ids=str)
def test_smoothing_and_levels_are_pillows(size):
    rng = np.random.default_rng(1)
    for low, high in ((0, 256), (17, 201), (255, 256), (0, 1), (100, 102)):
        rgb = Image.frombytes('RGB', size, rng.integers(low, high, (*size, 3), np.uint8).tobytes())
        for image in (rgb, rgb.convert('L')):
            smooth = Image.blend(image.filter(ImageFilter.SMOOTH), image, 0.)
            assert_same(apply_ops(image, [DrawnOp('Sharpness', 0.)]), smooth)
            for name, pillows in (('AutoContrast', ImageOps.autocontrast), ('Equalize', ImageOps.equalize)):
                assert_same(apply_ops(image, [DrawnOp(name)]), pillows(image), (low, high))
            for factor in (0., 0.1, 0.7, 1., 1.9):
                assert_same(apply_ops(image, [DrawnOp('Contrast', factor)]), timm_aa.contrast(image, factor), factor)


@pytest.mark.parametrize('name', few(NAMES, num=5))
@pytest.mark.parametrize('settings', [
    dict(), dict(magnitude_std=0.5), dict(magnitude_std=float('inf')), dict(magnitude_std=3., magnitude_max=20),
    dict(interpolation=Image.Resampling.BILINEAR),
], ids=str)
def test_python_generator_gives_timms_draws(name, settings):
    hparams = dict(translate_const=57, img_mean=FILL) | settings
    for prob, magnitude in ((1., 9), (0.5, 3)):
        recorder = Recorder()
        timms = recorder.watch(timm_aa.AugmentOp(name, prob, magnitude, dict(hparams)))
        ours = AugmentOp(name, prob, magnitude, hparams)
        for seed in range(15):
            random.seed(seed)
            recorder.drawn.clear()
            timms(None)
            state = random.getstate()
            random.seed(seed)
            drawn = ours.draw()
            assert recorder.drawn == ([] if drawn is None else [drawn])
            assert random.getstate() == state   # as many numbers were taken


# policies of the user's

class Half(Policy):
    def draw(self, rng=random): return tuple(DrawnOp('Invert') for _ in range(rng.randrange(2)))


class Free:
    "Have `draw` and `apply`, and no base class."
    def draw(self, rng=random): return rng.random()
    def apply(self, image, drawn): return Image.blend(image, Image.new(image.mode, image.size), drawn)
    def __call__(self, image): return self.apply(image, self.draw())


def test_policies_of_the_user(photos):
    for policy in (Half(), Free()):
        assert isinstance(policy, Policy)
        drawn = [policy.draw(KeyedRandom(0, 0, k)) for k in range(20)]
        assert len(set(drawn)) > 1 and policy.apply(photos[0], drawn[0]).size == policy(photos[0]).size
    assert repr(Half()) == 'Half()'
    for other in (photos[0], len, AugmentOp('Invert'), 'rand-m9'): assert not isinstance(other, Policy)
