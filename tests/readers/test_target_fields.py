"Targets of any form are timm's."

import itertools

import numpy as np
import pytest
import timm.data as timm_data
import torch
from timm.data.readers.targets import get_field as timm_get_field

from timmdata import create_loader
from timmdata.datasets.factory import create_dataset
from timmdata.readers.target_fields import MultiLabelTarget, TargetFields, get_field, is_multihot

pytestmark = pytest.mark.timeout(60)


def outcome(function, *args, **settings):
    "The result, or that there is none."
    try: return function(*args, **settings)
    except ValueError: return ValueError


@pytest.mark.parametrize('num_classes, dense, target', [
    (5, False, [0, 3, 3]), (5, False, []), (5, False, torch.tensor([1])), (5, False, np.array([4, 0])),
    (3, True, [0, 1, 1]), (3, True, [0.5, 0, 1]), (3, True, [True, False, False]), (3, True, np.array([0, 1, 0])),
    (5, False, [5]), (5, False, [-1]), (5, False, [0.5]), (5, False, 3), (5, False, [True]), (3, True, [1, 0]),
    (3, True, [2, 0, 0]), (3, True, [float('nan'), 0, 0]), (3, True, [[1, 0, 0]]), (5, False, [1j])])
def test_multi_label_target_is_timms(num_classes, dense, target):
    ours, timms = (outcome(kind(num_classes, dense), target) for kind in (MultiLabelTarget, timm_data.MultiLabelTarget))
    if timms is ValueError: assert ours is ValueError
    else: assert ours.dtype == timms.dtype == torch.float32 and torch.equal(ours, timms)


def test_multi_label_target_reaches_the_batch(samples):
    dataset = create_dataset('', samples, 'val', target_transform=lambda k: MultiLabelTarget(10)([k, 9]))
    _, targets = next(iter(create_loader(dataset, 32, 16, num_workers=0, device='cpu')))
    assert targets.shape == (16, 10) and targets[8].tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize('path', ['a', 'b/c', 'b/d/e', 'x/y', 'l/k', 'l/m/n'])
def test_fields_are_found_as_by_timm(path):
    record = {'a': 1, 'b': {'c': 2, 'd': {'e': 3}}, 'x/y': 4, 'x': {'y': 5}, 'l': [{'k': 1, 'm': {'n': 7}}, {'k': 2, 'm': {'n': 8}}]}
    assert get_field(record, path) == timm_get_field(record, path)


def test_targets_are_remapped_as_by_timm():
    from timm.data.readers.class_map import remap_target
    cases = [(2, {2: 0, 'a': 1}, ()), (1, {'b': 4}, ('a', 'b')), ([0, 1], {'a': 1, 'b': 0}, ('a', 'b')), ('x', {'x': 3}, ())]
    for label, class_map, names in cases:
        assert TargetFields('t', names, class_map)({'t': label}) == remap_target(label, class_map, dict(enumerate(names)))
    for values, class_map in (([0, .5, 1], {0: 2, 2: 0}), ([1, 0], {1: 0})):
        ours = TargetFields('t', (), class_map, 'multihot')({'t': values})
        assert ours == remap_target(values, class_map, dense=True)


def test_fields_with_a_0_or_1_may_be_a_list_and_must_have_a_value():
    record = {'a': 1, 'b': 0, 'c': True}
    for keys, expected in ((['a', 'b', 'c'], [0, 2]), ('b, c', [1]), (['b'], []), ('a', 1), (None, -1)):
        assert TargetFields(keys)(record) == expected
    assert TargetFields(['a', 'b']).class_to_idx == {'a': 0, 'b': 1}
    with pytest.raises(ValueError, match="field 'b' has no value"): TargetFields(['a', 'b'])({'a': 1, 'b': None})
    for keys in ([], ['a', 'a'], ['a', ''], ['a', 3]):
        with pytest.raises(ValueError, match='each once, separated by commas or in a list'): TargetFields(keys)


def test_lists_of_0_and_1_are_told_from_class_indexes():
    "Every set of class indexes in two rows of two or three: multi-hot if a list has an index twice, which none of indexes has."
    for num in (2, 3):
        rows = list(itertools.product((0, 1), repeat=num))
        for pair in itertools.product(rows, repeat=2):
            if any(len(set(row)) < num for row in pair): assert is_multihot(pair)
            else:
                with pytest.raises(ValueError, match='target_format'): is_multihot(pair)
    assert not is_multihot([]) and not is_multihot([[], []]) and not is_multihot([[0, 1], [2, 0]])
