"Names and descriptions of classes are timm's."
import itertools
import sys
from types import SimpleNamespace

import pytest
import timm.data as timm_data
import torch

from timmdata.datasets.class_info import (
    CustomDatasetInfo,
    DatasetInfoLabelMapper,
    ImageNetInfo,
    infer_imagenet_subset,
)
from timmdata.datasets.real_labels import RealLabelsImagenet
from timmdata.transforms.model_config import resolve_input_data_config

pytestmark = pytest.mark.timeout(60)


NAMES = ['n3', 'n1', 'n2']
WORDS = {'n1': 'one', 'n2': 'two', 'n3': 'three'}


@pytest.mark.parametrize('names', [NAMES, tuple(NAMES), {0: 'n3', '5': 'n1'}, {2: 'n2'}])
@pytest.mark.parametrize('words', [None, WORDS])
def test_class_info_is_timms(names, words):
    ours, oracle = CustomDatasetInfo(names, words), timm_data.CustomDatasetInfo(names, words)
    assert ours.num_classes() == oracle.num_classes() and ours.label_indices() == oracle.label_indices()
    assert ours.label_names() == oracle.label_names() == names   # a dict with its indexes
    for idx in oracle.label_indices():
        assert ours.index_to_description(idx) == oracle.index_to_description(idx)
        assert ours.index_to_label_name(torch.tensor(idx)) == oracle.index_to_label_name(idx)
    assert [ours.has_label(k) for k in range(-1, 7)] == [oracle.has_label(k) for k in range(-1, 7)]
    for label_type, fallback in itertools.product(('name', 'description', 'detail'), ('<unmapped:{index}>', 'class {index}')):
        mappers = (ours_is(ours, label_type, fallback) for ours_is, ours in (
            (DatasetInfoLabelMapper, ours), (timm_data.DatasetInfoLabelMapper, oracle)))
        first, second = mappers
        assert [first(k) for k in range(8)] == [second(k) for k in range(8)]
        assert all(first.coverage(n) == second.coverage(n) for n in range(8))


def test_unknown_classes_raise_timms_error():
    "Of a dict; of a list, timm's is an AssertionError."
    ours, oracle = (kind({'1': 'n1'}, WORDS) for kind in (CustomDatasetInfo, timm_data.CustomDatasetInfo))
    for info, mapper in ((ours, DatasetInfoLabelMapper), (oracle, timm_data.DatasetInfoLabelMapper)):
        with pytest.raises(KeyError): info.index_to_label_name(2)
        with pytest.raises(KeyError): info.label_name_to_description('n7')
        with pytest.raises(KeyError): mapper(info, fallback_format=None)(0)
    with pytest.raises(KeyError, match='class 3 has no name'): CustomDatasetInfo(NAMES).index_to_label_name(3)


@pytest.mark.parametrize('names, words', [([], None), ('abc', None), (3, None), ({'x': 'a'}, None), ({-1: 'a'}, None),
                                          ({1: 'a', '1': 'b'}, None), ([1], None), (['a'], {'b': 'x'}), ({1.5: 'a'}, None)])
def test_wrong_class_info_is_refused_as_by_timm(names, words):
    for kind in (CustomDatasetInfo, timm_data.CustomDatasetInfo):
        with pytest.raises((ValueError, TypeError)): kind(names, words)


def test_imagenets_words_are_those_of_the_installed_timm():
    ours, oracle = ImageNetInfo('imagenet-12k'), timm_data.ImageNetInfo('imagenet-12k')
    assert ours.label_descriptions(detailed=True) == oracle.label_descriptions(detailed=True) and ours.num_classes() == 11821
    assert DatasetInfoLabelMapper(ours, 'detail')(1) == timm_data.DatasetInfoLabelMapper(oracle, 'detail')(1)


@pytest.mark.parametrize('use', [ImageNetInfo, lambda: infer_imagenet_subset({'num_classes': 1000}),
                                 lambda: RealLabelsImagenet([]), lambda: resolve_input_data_config(None)])
def test_without_timm_only_what_needs_its_tables_says_to_install_it(use, monkeypatch):
    monkeypatch.setitem(sys.modules, 'timm.data', None)
    with pytest.raises(ImportError, match='pip install'): use()
    assert DatasetInfoLabelMapper(CustomDatasetInfo(NAMES))(1) == 'n1'


@pytest.mark.parametrize('num_classes', [1000, 11221, 11821, 21841, 21842, 21843, 10, 0, None])
def test_subset_is_guessed_as_by_timm(num_classes):
    for given in ({'num_classes': num_classes}, SimpleNamespace(num_classes=num_classes), {},
                  SimpleNamespace(pretrained_cfg={'num_classes': num_classes})):
        assert infer_imagenet_subset(given) == timm_data.infer_imagenet_subset(given)
