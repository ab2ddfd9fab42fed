"Arguments as one object, beside Python's own calls and signatures."
import inspect
import warnings

import numpy as np
import pytest
import torch

from timmdata.core.arguments import Arguments, refuse_together, warn_caller
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


def test_a_call_has_its_values_and_defaults():
    given = bake('rye', heat=200)
    assert (given.flour, given.salt, given.heat, given.fan) == ('rye', 0.02, 200, False)
    with pytest.raises(AttributeError, match="no argument 'sugar'"): given.sugar  # noqa: B018
    assert given.replace(heat=9).heat == 9 and given.heat == 200
    assert given.without('heat', 'salt').heat is None and Arguments(bake, dict(flour='oat')).times == (1, 2)


def test_make_calls_as_python_would():
    def taste(salt, flour='wheat', sweet=3): return salt, flour, sweet
    given = bake('rye', salt=0.5)
    assert given.make(taste) == taste(salt=0.5, flour='rye') and given.make(taste, salt=1, sweet=0) == taste(1, 'rye', 0)
    with pytest.raises(TypeError, match='bitter'): given.make(taste, bitter=1)


@pytest.mark.parametrize('value, is_given', [
    (None, False), (0, False), (False, False), (0., False), (np.False_, False), (np.float32(0), False), (1, True), ('', True), ([], True),
    ((0,), True), (torch.zeros(2), True), (np.zeros(2), True)], ids=str)
def test_what_is_given_where_the_default_is_none(value, is_given): assert bake('rye', heat=value).is_given('heat') == is_given


@pytest.mark.parametrize('value, is_given', [(0.02, False), (0, True), (None, True), (0.03, True)])
def test_what_is_given_where_the_default_is_a_number(value, is_given): assert bake('rye', salt=value).is_given('salt') == is_given


TABLE = [('fan', 'why not', 'salt, heat=250'), ('heat=250 with night', 'it is late', "flour='rye', fan with salt")]


@pytest.mark.parametrize('given, night, message', [
    (dict(fan=True), True, ''), (dict(fan=True, salt=1), True, 'fan and salt cannot be used together: why not'),
    (dict(fan=True, salt=1, heat=250), True, 'fan and salt, heat=250 cannot'), (dict(heat=250), False, ''),
    (dict(heat=250), True, "heat=250 with night and flour='rye' cannot be used together: it is late"), (dict(heat=249), True, '')])
def test_a_table_refuses(given, night, message):
    if not message: return refuse_together(bake('rye', **given), TABLE, {'night': night})
    with pytest.raises(ValueError) as caught: refuse_together(bake('rye', **given), TABLE, {'night': night})
    assert message in str(caught.value)


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
