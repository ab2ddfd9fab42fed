"Arguments as one object, beside Python's own calls and signatures."
import inspect
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from timmdata.core.arguments import Arguments, warn_caller
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.formats import ImageFormat
from timmdata.loader import NO_EFFECT, REFUSED, create_loader
from timmdata.loaders.batch_loader import BatchSettings
from timmdata.pipeline.batch_transform import BatchTransformSettings
from timmdata.pipeline.sample_transform import DecodeSettings
from timmdata.pipeline.views import View
from timmdata.samplers.batch_schedule import create_batch_schedule
from timmdata.samplers.order import OrderSettings
from timmdata.transforms.random_erasing import ErasingSettings
from timmdata.transforms.settings import AugmentSettings
from timmdata.workers.settings import WorkerSettings

PARAMETERS = inspect.signature(create_loader).parameters
ROUTED = [AugmentSettings, BatchSettings, BatchTransformSettings, DecodeSettings, ErasingSettings, OrderSettings, WorkerSettings,
          create_batch_schedule, View]
# None here means what other arguments say there
RESOLVED = {('BatchSettings', 'drop_last'), ('create_batch_schedule', 'drop_last'), ('DecodeSettings', 'scaled_decode'),
            ('OrderSettings', 'shuffle'), ('WorkerSettings', 'pin_memory'), ('View', 'gaussian_blur_radius')}


def bake(flour, salt=0.02, heat=None, fan=False, times=(1, 2)): return Arguments(bake, locals())


def test_what_is_off_is_not_given():
    for value in (None, 0, False, 0., np.False_, np.float32(0)): assert not bake('rye', heat=value).is_given('heat')
    for value in (1, '', [], (0,), torch.zeros(2), np.zeros(2)): assert bake('rye', heat=value).is_given('heat')
    assert [bake('rye', salt=value).is_given('salt') for value in (0.02, 0, None, 0.03)] == [False, True, True, True]
    assert bake('rye').replace(heat=9).heat == 9 and bake('rye', heat=9).without('heat').heat is None


def test_tables_name_arguments_and_facts_only():
    for what, why, others in REFUSED + NO_EFFECT:
        assert why == why.strip() and not why.endswith('.')
        for item in (what, *others.split(', ')):
            for name in item.split(' with '): assert name == 'a stream' or name.partition('=')[0] in PARAMETERS, name


def test_every_argument_is_checked_or_used_by_somebody():
    routed = {name for owner in ROUTED for name in inspect.signature(owner).parameters}
    code = inspect.getsource(inspect.getmodule(create_loader)) + inspect.getsource(inspect.getmodule(ImageFormat))
    for name in PARAMETERS: assert name in routed or f'given.{name}' in code or f"'{name}'" in code, name


@pytest.mark.parametrize('owner', ROUTED, ids=lambda owner: owner.__name__)
def test_defaults_that_stand_twice_agree(owner):
    for name, parameter in inspect.signature(owner).parameters.items():
        if parameter.default is parameter.empty or name not in PARAMETERS or (owner.__name__, name) in RESOLVED: continue
        assert PARAMETERS[name].default == parameter.default, name


def test_the_loader_names_no_format():
    import timmdata.loader as module
    for function in (module.make_loader, module._make_batches):
        names = function.__code__.co_names + function.__code__.co_varnames
        assert not {'naflex', 'views', 'PatchFormat', 'ViewsFormat', 'CustomFormat'} & {*names}


def test_warnings_point_at_the_users_line():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        warn_caller('direct')
        create_loader([(torch.zeros(3, 8, 8, dtype=torch.uint8), 0)], 8, 1, num_workers=0, re_prob=0.5, device='cpu')
        View.augment(View(8))
    assert [one.filename for one in heard] == [__file__] * 2


def test_a_reader_warns_at_the_users_line_with_the_category(tmp_path):
    (tmp_path/'cat').mkdir()
    for name in ('a.png', 'b.heic'):
        Image.new('RGB', (8, 8)).save(tmp_path/'cat'/name, 'PNG')
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        ImageDataset(tmp_path)   # through decorators and several packages
        warn_caller('of a category', RuntimeWarning)
    assert [(one.filename, one.category) for one in heard] == [(__file__, UserWarning), (__file__, RuntimeWarning)]
