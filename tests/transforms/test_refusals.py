"Wrong settings of transforms and samplers raise an error that names them, as soon as an object is created."
import numpy as np
import pytest
import torch

from timmdata.pipeline.collate import FastCollateMixup
from timmdata.samplers.batch_schedule import ScheduledBatchSampler
from timmdata.samplers.distributed import RepeatAugSampler
from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.token_plan import TokenPlan
from timmdata.samplers.weighted import WeightedSampler
from timmdata.transforms.mixup import Mixup
from timmdata.transforms.naflex_mixup import NaFlexMixup
from timmdata.transforms.naflex_transforms import RandomResizedCropToSequence, ResizeToSequence, get_image_size_for_seq
from timmdata.transforms.patch_erasing import PatchRandomErasing
from timmdata.transforms.random_erasing import ErasingSettings, RandomErasing
from timmdata.transforms.settings import AugmentSettings

NAN, INF = float('nan'), float('inf')
GROWING = dict(choice_schedule='progressive', schedule_epochs=2)


def plan(**given):
    made = TokenPlan(**{**dict(lengths=lambda *_: np.array([20, 40]), mode='packed', seq_lens=(100,), batch_sizes=(2,)), **given})
    return made.count(EpochSampler(range(2)))


WRONG = {   # what is made: the arguments that it needs, and wrong ones, of which the first is named
    AugmentSettings: (dict(input_size=64, is_training=True), [
        dict(input_size=0), dict(train_crop_mode='rnd'), dict(scale=(1., 0.5)), dict(ratio=0.5), dict(hflip=-1), dict(vflip=2),
        dict(color_jitter_prob=3), dict(grayscale_prob=2), dict(gaussian_blur_prob=2), dict(color_jitter=(0.1,)), dict(color_jitter=-0.4),
        dict(color_jitter=(0.1, 0.1, 0.1, 0.6)), dict(interpolation='cubic'), dict(crop_pct=0), dict(crop_mode='middle'),
        dict(crop_border_pixels=-1), dict(rc_padding=4), dict(rc_padding=-1, train_crop_mode='rc'), dict(padding_mode='mirror'),
        dict(rc_padding=32, input_size=(32, 48), train_crop_mode='rc')]),
    Mixup: (dict(mixup_alpha=0.2), [
        dict(mixup_alpha=-1), dict(mixup_alpha='0.2'), dict(mixup_alpha=INF), dict(mixup_alpha=0), dict(cutmix_alpha=NAN), dict(prob=1.1),
        dict(prob=True), dict(switch_prob=-0.1), dict(mode='Batch'), dict(cutmix_minmax=(0.1,)), dict(cutmix_minmax=(0.5, 1.5)),
        dict(partner='next'), dict(label_smoothing=2), dict(label_smoothing=None), dict(num_classes=0), dict(num_classes=2.5),
        dict(num_classes='10'), dict(correct_lam='no'), dict(multi_label='yes')]),
    FastCollateMixup: ({}, [dict(mode='Batch'), dict(num_classes=0)]),
    NaFlexMixup: (dict(num_classes=4), [
        dict(num_classes=0), dict(prob=2), dict(mixup_alpha=-1), dict(switch_prob=-1), dict(mixup_alpha=0, cutmix_alpha=0),
        dict(local_shuffle=-1), dict(mixup_off_epoch=1.5), dict(multi_label='no'), dict(label_smoothing=2)]),
    PatchRandomErasing: ({}, [
        dict(erase_prob=2), dict(patch_drop_prob=0.5), dict(mode='zeros'), dict(spatial_mode='row'), dict(min_area=0.), dict(min_count=0),
        dict(min_aspect=0.), dict(max_aspect=-1.)]),
    ErasingSettings: ({}, [dict(re_prob=2), dict(re_mode='noise'), dict(re_count=-1), dict(re_count=1.5)]),
    get_image_size_for_seq: (dict(image_hw=(4, 4)), [dict(patch_size=0), dict(patch_size=(16,) * 3), dict(max_ratio=0.), dict(eps=NAN)]),
    ResizeToSequence: (dict(patch_size=16), [dict(patch_size=0), dict(patch_size='16'), dict(interpolation='cubic')]),
    RandomResizedCropToSequence: ({}, [dict(scale=(1., 0.5)), dict(scale=0.5)]),
    ScheduledBatchSampler: (dict(sampler=range(20), batch_sizes=[4, 2]), [
        dict(batch_sizes=[]), dict(batch_sizes=[4, 2.5]), dict(batch_sizes=4), dict(choice_weights=[1]), dict(choice_weights=[1, NAN]),
        dict(choice_weights=3), dict(choice_weights=[1e308, 1e308]), dict(choice_weights=['a', 'b']), dict(num_batches=0),
        dict(choice_schedule='linear'), dict(schedule_epochs=None, choice_schedule='progressive'), dict(schedule_spread='wide', **GROWING),
        dict(schedule_spread=-1, **GROWING), dict(schedule_random_mix=1.5, **GROWING), dict(schedule_random_mix=None, **GROWING),
        dict(input_sizes=[(8, 8)]), dict(input_sizes=8), dict(batch_sizes=[4], **GROWING), dict(sampler=range(1)), dict(sampler=range(0))]),
    RepeatAugSampler: (dict(dataset=range(8), num_replicas=1, rank=0), [
        dict(num_repeats=0.5), dict(num_repeats=NAN), dict(selected_round=-1), dict(selected_ratio=-1)]),
    WeightedSampler: (dict(data_source=range(3)), [
        dict(weights=[1, 2]), dict(weights=[[1, 2, 3]]), dict(weights=[1, -2, 3]), dict(weights=[1, NAN, INF]), dict(weights=np.zeros(3)),
        dict(weights='equal'), dict(weights='balanced'), dict(weights=object()), dict(weights=[1, 'a', 2])]),
    plan: ({}, [dict(mode='other'), dict(window=0), dict(seq_lens=(30,)), dict(tokens_per_epoch=0)])}
OTHER_WORDS = {'sampler': 'fill a batch|empty', 'weights': 'weight|labels', 'seq_lens': 'has 40 tokens', 'erase_prob': 'prob=2',
               'min_aspect': 'aspect', 'max_aspect': 'aspect', 'patch_drop_prob': 'cannot be dropped'}


@pytest.mark.parametrize('make', WRONG, ids=lambda make: make.__name__)
def test_wrong_settings_are_refused_by_name(make):
    needed, wrongs = WRONG[make]
    for wrong in wrongs:
        name = next(iter(wrong))
        with pytest.raises((ValueError, TypeError), match=f'{OTHER_WORDS.get(name, name)}|nothing to mix') as caught:
            make(**{**needed, **wrong})
        assert 'unexpected keyword' not in str(caught.value)


def test_erasing_settings():
    assert ErasingSettings().create() is None and ErasingSettings(0.5) == ErasingSettings(0.5, 'const', 1, 0)
    erasing = ErasingSettings(0.5, 'pixel', 3, 2).create()
    assert repr(erasing) == repr(RandomErasing(0.5, mode='pixel', max_count=3)) and erasing.num_splits == 2
    assert erasing(torch.ones(4, 3, 8, 8)).shape == (4, 3, 8, 8)
