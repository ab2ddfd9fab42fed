"The attributes that scripts read from a transform are timm's."
import pytest
import timm.data
import torch

import timmdata

MADE = {
    'RandomResizedCropAndInterpolation': [dict(size=32), dict(size=(32, 48), scale=(0.2, 1.), interpolation='random')],
    'ResizeKeepRatio': [dict(size=32), dict(size=(32, 48), longest=1, interpolation='bicubic', random_scale_prob=0.5),
                        dict(size=32, interpolation='random', random_scale_area=True)],
    'CenterCropOrPad': [dict(size=32, fill=3)], 'RandomCropOrPad': [dict(size=(32, 48), padding_mode='reflect')],
    'TrimBorder': [dict(border_size=4)], 'ResizeToSequence': [dict(patch_size=(14, 16))], 'Patchify': [dict(patch_size=16)],
    'RandomResizedCropToSequence': [dict(interpolation='random')],
}


def attributes(made) -> dict:
    parts = torch.nn.Module().__dict__
    return {name: value for name, value in vars(made).items() if name not in parts and not name.startswith('_')}


@pytest.mark.parametrize('name, settings', [(name, settings) for name, several in MADE.items() for settings in several])
def test_attributes_are_timms(name, settings):
    theirs, ours = (getattr(module, name)(**settings) for module in (timm.data, timmdata))
    assert {key: getattr(ours, key) for key in attributes(theirs)} == attributes(theirs)
