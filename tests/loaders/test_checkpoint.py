"What a state contains, and which settings it must match."
import io
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from buffer_parts import loader_of
from loader_parts import Coded

from timmdata.loader import create_loader
from timmdata.loaders.checkpoint import check_state, describe_settings, differences, make_state


@dataclass(frozen=True)
class Settings:
    size: tuple = (8, 8)
    name: str = 'rand'
    function: object = None
    num_threads: int = field(default=1, compare=False)


def f(x): return x + 1


def g(x): return x + 2


def test_fields_and_items_become_texts():
    described = describe_settings(Settings(), {'size': 4, 'on': True})
    assert described == {'size': '4', 'name': 'rand', 'function': 'None', 'on': 'True'}   # the later one counts
    assert describe_settings(Settings(function=f)) == describe_settings(Settings(function=f, num_threads=2))
    assert differences(describe_settings(Settings(function=f)), describe_settings(Settings(function=g)))


def test_differences_are_told_by_name():
    assert differences({'a': '1', 'b': '2'}, {'a': '1', 'c': '3'}) == ['b was 2, is None', 'c was None, is 3']
    assert not differences({'a': '1'}, {'a': '1'})


def test_state_is_plain_and_agrees_with_itself():
    settings = describe_settings(Settings(function=f))
    state = json.loads(json.dumps(make_state(3, 40, 7, settings)))
    check_state(state, settings, 7)
    check_state(state, settings, None)


@pytest.mark.parametrize('change, message', [
    (dict(seed=8), 'seed was 8, is 7'), (dict(settings={}), 'name was None, is rand'),
    (dict(settings={**describe_settings(Settings()), 'old': '1'}), 'old was 1, is None')])
def test_state_of_another_run_is_refused_by_name(change, message):
    state = {**make_state(3, 40, 7, describe_settings(Settings())), **change}
    with pytest.raises(ValueError, match=message): check_state(state, describe_settings(Settings()), 7)


def test_another_plan_says_what_it_is_and_what_to_do():
    plans = [{'schedule': f'ScheduledBatchSampler(… {number}', 'digest': number} for number in ('35fb', '3fc0')]
    with pytest.raises(ValueError) as caught: check_state(make_state(4, 16, 3, plans[0]), plans[1], seed=3)
    told = str(caught.value)
    assert "digest was 35fb, is 3fc0 (a checksum of the images' sizes)" in told and 'the seed of the plan)' in told
    assert 'timmdata version that saved it' in told and told.endswith('restart its epoch: loader.set_epoch(4)')


@pytest.mark.parametrize('make, message', [
    (lambda state: {**state, 'more': 1}, r'missing: nothing; unknown: more\): use the dict that state_dict\(\) returned$'),
    (lambda state: {'model': {}, 'epoch': 3, 'loader': state},
     r"missing: position, seed, settings; unknown: loader, model\): use load_state_dict\(checkpoint\['loader'\]\)$"),
    (lambda state: {**state, 'ema': {}, 7: state}, r'unknown: 7, ema\): use load_state_dict\(checkpoint\[7\]\)$'),
    (lambda state: {f'layer{k}.weight\x1b': 0 for k in range(300)}, r'unknown: layer0.weight[^\x1b]*, …\): use the dict')],
    ids=['more', 'checkpoint', 'both', 'model'])
def test_what_is_more_than_a_state_is_refused_and_the_one_inside_is_named(make, message):
    loader = of_20()
    with pytest.raises(ValueError, match=message): loader.load_state_dict(make(loader.state_dict()))
    loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize('wrong', [
    dict(epoch=-1), dict(epoch=1.0), dict(epoch=True), dict(position='3'), dict(position=-4), dict(position=None), dict(seed=2**70),
    dict(settings=[]), dict(settings={'batch_size': 4}), dict(settings={1: 'a'}), dict(epoch=10**5000), dict(position=-10**5000)],
    ids=lambda wrong: next(iter(wrong)))
def test_a_damaged_state_is_refused_before_anything_is_taken_over(wrong):
    loader = loader_of(Coded(20), 7, True)
    with pytest.raises(ValueError, match=f'the state has {next(iter(wrong))}='): loader.load_state_dict({**loader.state_dict(), **wrong})
    with pytest.raises(TypeError, match=r'the state has type list: pass the dict that state_dict\(\) returned'): loader.load_state_dict([1])
    assert (loader.sampler.epoch, loader.sampler.start) == (0, 0)


def test_texts_of_a_state_do_no_harm_to_a_terminal_and_are_short():
    loader = loader_of(Coded(20), 7, True)
    state = loader.state_dict()
    evil, long, many = '\x1b]0;owned\x07', 'x' * 1_000_000, {f'name {k}': 'x' for k in range(10_000)}
    for more in ({'batch_size': evil}, {evil: '1'}, {'batch_size': long}, {long: long}, many, {'batch_size': '(' * 5000}):
        with pytest.raises(ValueError, match='the state belongs to other settings') as caught:
            loader.load_state_dict({**state, 'settings': {**state['settings'], **more}})
        assert str(caught.value).isprintable() and len(str(caught.value)) < 3000


def of_20(**more):
    return create_loader(**{**dict(dataset=Coded(20), input_size=8, batch_size=4, is_training=True, seed=1,
                                   num_workers=0, device='cpu'), **more})


@pytest.mark.parametrize('settings', [
    dict(), dict(drop_last=False), dict(pad_last=True, drop_last=False), dict(num_aug_repeats=2), dict(samples_per_epoch=50),
    dict(sampler=range(9)), dict(input_size_choices=[8, 16], batch_size_choices=[4, 2])], ids=str)
def test_a_position_behind_the_end_is_no_silent_empty_epoch(settings):
    loader = of_20(**settings)
    with pytest.raises(ValueError, match='past the end of epoch 0'): loader.load_state_dict({**loader.state_dict(), 'position': 2**62})
    for _ in loader: state = loader.state_dict()   # with the last batch that there is
    resumed = of_20(**settings)
    resumed.load_state_dict(state)
    assert list(resumed) == [] and len(list(resumed)) == len(loader)


def test_a_position_of_numpy_becomes_pythons_own():
    loader = loader_of(Coded(20), 7, True)
    state = loader.state_dict()
    loader.load_state_dict({**state, **{name: np.int64(state[name]) for name in ('epoch', 'seed')}, 'position': np.int64(7)})
    assert json.loads(json.dumps(loader.state_dict())) == {**state, 'position': 7}
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == loader.state_dict()


class Scaled:
    "A user's transform."
    def __repr__(self): return 'Scaled()'
    def __call__(self, image): return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


OURS = [dict(input_size=16), dict(hflip=0.1), dict(re_prob=0.1), dict(backend='pillow'), dict(color_jitter_mode='exact'),
        dict(transform=Scaled()), dict(dataset=Coded(21))]
ALWAYS = [dict(mean=0.5), dict(std=0.5), dict(img_dtype=torch.float16), dict(num_aug_repeats=2), dict(batch_size=3),
          dict(drop_last=False), dict(shuffle=False), dict(seed=4)]


@pytest.mark.parametrize('transform, other', [(None, other) for other in OURS + ALWAYS] + [(Scaled(), other) for other in ALWAYS],
                         ids=lambda value: '-'.join(value) if isinstance(value, dict) else str(value))
def test_a_state_of_other_batches_is_refused_whoever_makes_the_pixels(transform, other):
    name, = other
    loader, state = of_20(transform=transform), of_20(**{'transform': transform, **other}).state_dict()
    name = 'size' if name == 'input_size' else name
    with pytest.raises(ValueError, match=f'other settings: .*{name} was '): loader.load_state_dict(state)


@pytest.mark.parametrize('other', [dict(num_workers=2), dict(channels_last=False), dict(use_prefetcher=False), dict(timeout=9),
                                   dict(prefetch_factor=4), dict(device=None)], ids=str)
def test_what_changes_no_batch_is_no_part_of_a_state(other): of_20().load_state_dict(of_20(**other).state_dict())
