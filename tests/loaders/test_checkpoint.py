"What a state is, and what it must agree with."
import inspect
import json
from dataclasses import dataclass

import pytest
from buffer_parts import loader_of
from loader_parts import Coded

from timmdata.loader import create_loader
from timmdata.loaders.checkpoint import check_state, describe_settings, differences, make_state


@dataclass(frozen=True)
class Settings:
    size: tuple = (8, 8)
    name: str = 'rand'
    function: object = None


def f(x): return x + 1


def g(x): return x + 2


def test_fields_and_items_become_texts():
    described = describe_settings(Settings(), {'size': 4, 'on': True})
    assert described == {'size': '4', 'name': 'rand', 'function': 'None', 'on': 'True'}   # the later one counts
    assert describe_settings(Settings(function=f)) == describe_settings(Settings(function=f))
    assert differences(describe_settings(Settings(function=f)), describe_settings(Settings(function=g)))


def test_differences_are_told_by_name():
    assert differences({'a': '1', 'b': '2'}, {'a': '1', 'c': '3'}) == ['b was 2, is None', 'c was None, is 3']
    assert not differences({'a': '1'}, {'a': '1'})


def test_state_is_plain_and_agrees_with_itself():
    settings = describe_settings(Settings(function=f))
    state = json.loads(json.dumps(make_state(3, 40, 7, settings)))
    check_state(state, settings, 7)
    check_state({**state, 'more': 1}, settings, None)   # what a framework adds does not matter


@pytest.mark.parametrize('change, message', [
    (dict(seed=8), 'seed was 8, is 7'), (dict(settings={}), 'name was None, is rand'),
    (dict(settings={**describe_settings(Settings()), 'old': '1'}), 'old was 1, is None')])
def test_state_of_another_run_is_refused_by_name(change, message):
    state = {**make_state(3, 40, 7, describe_settings(Settings())), **change}
    with pytest.raises(ValueError, match=message): check_state(state, describe_settings(Settings()), 7)


def test_the_remedy_is_an_argument_that_goes_on_as_before():
    "The default decoder changes when another one is installed."
    def of(backend): return create_loader(Coded(12), 8, 4, seed=1, device='cpu', num_workers=0, backend=backend)
    state = of('torchvision').state_dict()
    with pytest.raises(ValueError, match="backend was torchvision, is pillow: give backend='torchvision' to go on as before$"):
        of('pillow').load_state_dict(state)
    of('torchvision').load_state_dict(state)
    names = set(state['settings']) - set(inspect.signature(create_loader).parameters)
    for name in state['settings']: assert (_remedy(name, '0') == '') == (name in names | {'dataset'}), name


def _remedy(name, was, now='is another'):
    with pytest.raises(ValueError) as caught: check_state(make_state(0, 0, 7, {name: was}), {name: now}, 7)
    return str(caught.value).partition(': give ')[2].removesuffix(' to go on as before')


@pytest.mark.parametrize('name, was, remedy', [
    ('scale', '[0.08, 1.0]', 'scale=[0.08, 1.0]'), ('auto_augment', 'rand-m9-mstd0.5-inc1', "auto_augment='rand-m9-mstd0.5-inc1'"),
    ('mixup', 'None', 'mixup=None'), ('transform', 'Compose( Resize(size=[8]) )', ''), ('weights', 'float64 (3,) 5a38da91e7241c24', ''),
    ('dataset', '3e035a1b96dcf128', ''), ('train_crop_mode', 'rrc', "train_crop_mode='rrc'")])
def test_the_remedy_says_what_can_be_written_down(name, was, remedy): assert _remedy(name, was) == remedy


@pytest.mark.parametrize('name', ['epoch', 'position', 'seed', 'settings'])
def test_incomplete_states_are_refused(name):
    state = make_state(3, 40, 7, {})
    del state[name]
    with pytest.raises(ValueError, match=f'this is no state of a loader: {name} is missing'): check_state(state, {}, 7)


@pytest.mark.parametrize('wrong', [
    dict(epoch=-1), dict(epoch=1.0), dict(epoch=True), dict(position='3'), dict(position=-4), dict(position=None), dict(seed=2**70),
    dict(settings=[]), dict(settings={'batch_size': 4}), dict(settings={1: 'a'})], ids=str)
def test_a_damaged_state_is_refused_before_anything_is_taken_over(wrong):
    loader = loader_of(Coded(20), 7, True)
    with pytest.raises(ValueError, match=f'the state has {next(iter(wrong))}='): loader.load_state_dict({**loader.state_dict(), **wrong})
    with pytest.raises(TypeError, match='a list is no state'): loader.load_state_dict([1])
    assert (loader.sampler.epoch, loader.sampler.start) == (0, 0)
