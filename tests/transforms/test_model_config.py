"Data configs: timm's functions as oracle."
import dataclasses
import itertools
import json
import logging
from argparse import Namespace
from types import SimpleNamespace

import pytest
import timm.data as timm_data
import torch

from timmdata import create_loader
from timmdata.datasets.factory import create_dataset
from timmdata.transforms.model_config import (
    resolve_data_config,
    resolve_input_data_config,
    resolve_model_data_config,
)

pytestmark = pytest.mark.timeout(60)

# ---- data configs

CFG = dict(input_size=(3, 192, 160), test_input_size=(3, 256, 256), interpolation='bilinear', mean=(0.5, 0.4, 0.3),
           std=(0.1, 0.2, 0.3), crop_pct=0.9, test_crop_pct=0.95, crop_mode='border', num_classes=10)
ARGS = [{}, {'img_size': 96}, {'input_size': (3, 64, 80)}, {'input_size': [1, 64, 80], 'mean': [0.5], 'std': [0.2]},
        {'in_chans': 1}, {'chans': 4, 'img_size': 32, 'mean': (0.1,), 'std': (1, 2, 3, 4)}, {'in_chans': 1, 'chans': 4},
        {'mean': (0.1, 0.2, 0.3), 'std': None, 'crop_pct': 0.7, 'crop_mode': 'squash', 'interpolation': 'random'},
        {'crop_pct': 0, 'interpolation': '', 'crop_mode': '', 'img_size': None, 'input_size': None}]
CFGS = [{}, CFG, {**CFG, 'test_input_size': None, 'test_crop_pct': None}, {'input_size': (1, 28, 28)},
        {'crop_pct': None, 'mean': None, 'interpolation': ''}]


class Model(torch.nn.Module):
    "A model with a config."
    def __init__(self, cfg): super().__init__(); self.pretrained_cfg = cfg


@pytest.mark.parametrize('use_test_size', [False, True])
@pytest.mark.parametrize('cfg', CFGS, ids=range(len(CFGS)))
@pytest.mark.parametrize('args', ARGS, ids=range(len(ARGS)))
def test_data_config_is_timms(args, cfg, use_test_size):
    model = Model(cfg)
    for given in (dict(pretrained_cfg=cfg), dict(model=model), dict(model=model, pretrained_cfg=CFG)):
        given = dict(args=args, use_test_size=use_test_size, **given)
        if not args and not given.get('pretrained_cfg') and 'model' not in given: continue   # refused by both
        ours = resolve_data_config(**given)
        assert ours == timm_data.resolve_data_config(**given) and list(ours) == list(timm_data.resolve_data_config(**given))
    assert resolve_model_data_config(model, args, None, use_test_size) == timm_data.resolve_model_data_config(
        model, args, None, use_test_size)
    assert resolve_data_config(Namespace(**args), model=model) == timm_data.resolve_data_config(args, model=model)


def test_configs_of_other_forms():
    @dataclasses.dataclass
    class Config: input_size: tuple = (3, 64, 64); crop_pct: float = 0.8; mean: tuple = None
    as_dict = resolve_data_config(pretrained_cfg=dataclasses.asdict(Config()))
    assert resolve_data_config(pretrained_cfg=Config()) == as_dict == resolve_data_config(
        model=SimpleNamespace(default_cfg=dataclasses.asdict(Config())))
    from_json = resolve_data_config(pretrained_cfg=json.loads(json.dumps(CFG)))
    assert from_json == resolve_data_config(pretrained_cfg=CFG)


@pytest.mark.parametrize('args', [{'input_size': (64, 64)}, {'input_size': 64}, {'img_size': 'big'}, {'mean': (1, 2)},
                                  {'std': (1, 2), 'in_chans': 3}, {'input_size': (3, 0, 5)}])
def test_wrong_arguments_are_errors(args):
    with pytest.raises(ValueError): resolve_data_config(args)


@pytest.mark.parametrize('cfg', [{'input_size': True}, {'input_size': '3x9'}, {'mean': True}, {'std': 'abc'}, {'input_size': [3, 9]}],
    ids=str)
def test_wrong_configs_are_errors_with_a_name(cfg):
    with pytest.raises(ValueError, match=next(iter(cfg))): resolve_data_config({'crop_pct': 0.9}, cfg)


def test_verbose_logs(caplog):
    with caplog.at_level(logging.INFO): resolve_data_config({'img_size': 96}, verbose=True)
    assert '(3, 96, 96)' in caplog.text


@pytest.fixture(scope='module')
def models():
    import timm
    make = timm.create_model
    return [make('vit_tiny_patch16_224', depth=1), make('vit_tiny_patch16_224', depth=1, img_size=96, in_chans=1),
            make('vit_tiny_patch16_224', depth=1, dynamic_img_size=True), make('resnet18'),
            make('resnet18', in_chans=4), make('resnet18.a1_in1k')]


def outcome(function, *args, **settings):
    "The result, or that there is none."
    try: return function(*args, **settings)
    except ValueError: return ValueError


def test_input_data_config_is_timms(models):
    cases = [*ARGS, {'img_size': (224, 224)}, {'img_size': 224}, {'in_chans': 3}, {'mean': 0.5, 'std': 0.5},
             {'model_kwargs': {'img_size': 96, 'in_chans': 1}}, {'img_size': 96, 'model_kwargs': {'img_size': 64}}]
    seen = []
    for model, args, use_test_size, cfg in itertools.product(models, cases, (False, True), (None, CFG)):
        given = dict(args=args, use_test_size=use_test_size, pretrained_cfg=cfg)
        ours, timms = (outcome(f, model, **given)
                       for f in (resolve_input_data_config, timm_data.resolve_input_data_config))
        assert ours == timms, (type(model).__name__, given)
        seen.append(ours is ValueError)
    assert 20 < sum(seen) < len(seen) - 20


def test_config_fits_create_loader(samples):
    config = resolve_data_config({'img_size': 32}, CFG)
    loader = create_loader(create_dataset('', samples, 'val'), batch_size=8, num_workers=0, device='cpu', **config)
    assert next(iter(loader))[0].shape == (8, 3, 32, 32)
