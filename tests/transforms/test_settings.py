"AugmentSettings: timm's arguments and defaults, filled in and checked when the object is created."
import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from torchvision.transforms import v2

from timmdata import create_transform
from timmdata.transforms.auto_augment import RandAugment, ThreeAugment, create_policy
from timmdata.transforms.settings import AugmentSettings


def test_what_is_not_given_is_resolved():
    for mode, scale, ratio, padding in (('rrc', (0.08, 1.), (3 / 4, 4 / 3), 'reflect'), ('rc', (1., 1.), (1., 1.), 'constant'),
                                        ('rkrc', (0.8, 1.), (0.9, 1 / 0.9), 'reflect'),
                                        ('rkrr', (0.8, 1.), (0.9, 1 / 0.9), 'reflect')):
        settings = AugmentSettings(64, True, train_crop_mode=mode)
        assert (settings.scale, settings.ratio, settings.padding_mode) == (scale, ratio, padding)
    evaluation = AugmentSettings((3, 32, 48))
    assert (evaluation.input_size, evaluation.crop_pct, evaluation.crop_mode) == ((32, 48), 0.875, 'center')
    assert (evaluation.crop_border_pixels, evaluation.fill, evaluation.padding_mode) == (0, (0,), 'constant')


def test_nothing_is_random_without_augmentation():
    words = dict(hflip=1., vflip=1., grayscale_prob=1., gaussian_blur_prob=1., auto_augment='rand-m9', num_aug_splits=3)
    for settings in (AugmentSettings(64, **words), AugmentSettings(64, True, no_aug=True, **words)):
        assert not settings.is_random and settings.policy is None and settings.color_jitter is None
        assert settings == AugmentSettings(64, settings.is_training, settings.no_aug)


def test_no_aug_means_nothing_in_evaluation():
    assert replace(AugmentSettings(64, crop_pct=0.5, no_aug=True), no_aug=False) == AugmentSettings(64, crop_pct=0.5)
    assert AugmentSettings(64, True, no_aug=True, crop_pct=0.5).crop_pct == 1


@pytest.mark.parametrize('auto_augment, kind, keeps_jitter', [
    ('rand-m9-mstd0.5', RandAugment, False), ('3a', ThreeAugment, True), ('rand-t3a', RandAugment, True),
    (ThreeAugment(), ThreeAugment, True), (create_policy('rand-m9'), RandAugment, False),
])
def test_a_policy_takes_the_place_of_color_jitter(auto_augment, kind, keeps_jitter):
    settings = AugmentSettings(64, True, auto_augment=auto_augment)
    assert type(settings.policy) is kind and settings.color_jitter == ((0.4,) * 3 if keeps_jitter else None)
    forced = AugmentSettings(64, True, auto_augment=auto_augment, force_color_jitter=True)
    assert forced.color_jitter == (0.4,) * 3


def test_settings_are_records():
    settings = AugmentSettings(64, True, auto_augment='augmix-m3', color_jitter=[0.1, 0.2, 0.3])
    for other in (pickle.loads(pickle.dumps(settings)), copy.deepcopy(settings), replace(settings)):
        assert other == settings and repr(other) == repr(settings) and repr(other.policy) == repr(settings.policy)
    with pytest.raises(FrozenInstanceError): settings.hflip = 1.
    with pytest.raises(TypeError, match='transform='): AugmentSettings(64, True, auto_augment=v2.RandAugment())
    with pytest.raises(ValueError, match='evaluation'): AugmentSettings(64, interpolation='random')


def test_a_pipeline_makes_one_view():
    with pytest.raises(ValueError, match='one view'): create_transform(64, True, num_aug_splits=2)
