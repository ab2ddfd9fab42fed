"Classes are joined by name: each sample keeps the name of its class; sources, proportions and names are checked."
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tables import write_photos
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from timmdata import ImageDataset, Mixture, create_loader, relabel, write_pack
from timmdata.datasets.mixture import join_class_maps, whole_numbers
from timmdata.datasets.relabel import classes_of, renumber, targets_of
from timmdata.datasets.wrappers import base_datasets, fingerprint, unwrap
from timmdata.readers.class_map import ClassMapError

pytestmark = pytest.mark.timeout(60)
NAMES = ['ant', 'bee', 'cat', 'dog']


class Named(Dataset):
    "A dataset like torchvision's: it has class names, and each image identifies its sample."
    def __init__(self, targets, class_to_idx): self.targets, self.class_to_idx = list(targets), class_to_idx
    def __len__(self): return len(self.targets)
    def __getitem__(self, index): return Image.new('RGB', (8, 8), (index, 0, 0)), self.targets[index]


def names_of(dataset, class_to_idx) -> list:
    "Return the class name of each sample, read from the samples."
    names = {idx: name for name, idx in class_to_idx.items()}
    return [names.get(dataset[k][1]) for k in range(len(dataset))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.permutations(NAMES).flatmap(lambda names: st.tuples(
    st.just(names), st.lists(st.integers(-1, 3), min_size=1, max_size=12))), min_size=1, max_size=4))
def test_each_sample_keeps_the_name_of_its_class(found):
    "Samples without a label stay without one, whatever the indexes of their source."
    sources = {f's{k}': Named(targets, {name: idx for idx, name in enumerate(names)}) for k, (names, targets) in enumerate(found)}
    mix = Mixture(sources, dict.fromkeys(sources, 1))
    expected = [name for source in sources.values() for name in names_of(source, source.class_to_idx)]
    assert names_of(mix, mix.class_to_idx) == expected and mix.classes == list(sources['s0'].class_to_idx)
    labels = {idx: name for name, idx in classes_of(mix).items()}
    assert [labels.get(target) for target in targets_of(mix).tolist()] == expected
    assert [mix[k][0].getpixel((0, 0))[0] for k in range(len(mix))] == [k for source in sources.values() for k in range(len(source))]


def test_the_first_source_keeps_its_indexes():
    assert join_class_maps([{'b': 7, 'a': 3}, {'c': 0, 'a': 1}, {'d': 0, 'c': 5}]) == {'b': 7, 'a': 3, 'c': 8, 'd': 9}
    assert join_class_maps([{}, {'b': 7}]) == {'b': 7} and join_class_maps([{}]) == {}
    assert join_class_maps([{'cat': 0}, {'kitty': 4, 'cat': 4, 'dog': 1}]) == {'cat': 0, 'kitty': 0, 'dog': 1}


def test_names_that_look_alike_are_reported():
    with pytest.warns(UserWarning, match="look alike are different classes: 'cat' and 'Cat'"): join_class_maps([{'cat': 0}, {'Cat': 0}])


def test_photographs_stay_photographs_and_batches_have_the_joined_indexes(samples, tmp_path):
    "A folder, a pack, a subset and a torchvision dataset; the class names are those of the folders."
    photos = ImageDataset(samples, split='val')
    some = relabel(photos, {name: name for name in ('cat', 'rocket', 'coffee')})
    write_pack(relabel(photos, {'rocket': 'rocket', 'astronaut': 'astronaut'}), tmp_path)
    sources = {'some': some, 'pack': ImageDataset(tmp_path, split=None), 'part': Subset(photos, range(0, 80, 3)),
               'both': ConcatDataset([Subset(photos, [70, 71]), Subset(photos, [1])])}
    mix = Mixture(sources, dict.fromkeys(sources, 1), with_source=True)
    expected = [name for source in sources.values() for name in names_of(source, classes_of(source))]
    assert names_of(mix, mix.class_to_idx) == expected
    assert {type(base) for base in base_datasets(mix)} == {ImageDataset}   # decoded by the loader
    loader = create_loader(mix, 32, 8, num_workers=0, device='cpu')
    batches = [(targets, numbers) for _, targets, numbers in loader]
    labels = {idx: name for name, idx in mix.class_to_idx.items()}
    assert [labels[target] for targets, _ in batches for target in targets.tolist()] == expected
    sizes = [len(source) for source in sources.values()]
    assert torch.cat([numbers for _, numbers in batches]).tolist() == [k for k, size in enumerate(sizes) for _ in range(size)]
    assert all(numbers.dtype == torch.int64 for _, numbers in batches)
    assert photos.class_to_idx == ImageDataset(samples, split='val').class_to_idx   # as it was


def test_several_labels_per_sample(tmp_path):
    write_photos(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir() if path.suffix in ('.jpg', '.png'))[:3]
    def table(labels): return ImageDataset(tmp_path, table={'path': names, 'target': labels}, target_separator=';', split=None)
    mix = Mixture({'a': table(['cat;dog', 'dog', '']), 'b': table(['bee', 'cat', '']) }, {'a': 1, 'b': 1})
    assert mix.class_to_idx == {'cat': 0, 'dog': 1, 'bee': 2}
    assert [target.tolist() for _, target in mix] == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]


def test_a_class_index_without_a_name_is_an_error():
    with pytest.raises(ValueError, match='no class has index 5'):
        Mixture({'a': Named([0], {'x': 0}), 'b': Named([0, 5], {'y': 0})}, {'a': 1, 'b': 1})


def test_labels_without_names_are_an_error():
    named, bare = Named([0], {'x': 0}), [(None, 0)]
    for sources in {'a': named, 'bare': bare}, {'other': bare, 'bare': bare}:
        with pytest.raises(TypeError, match='bare: no class names, .*pass join_classes=False'): Mixture(sources, dict.fromkeys(sources, 1))
    mix = Mixture({'a': named, 'bare': bare}, {'a': 1, 'bare': 1}, join_classes=False)
    assert mix.datasets == [named, bare] and mix.class_to_idx == {} == dict.fromkeys(mix.classes)
    assert len(Mixture({'bare': bare}, {'bare': 1})) == 1   # nothing to join


def test_a_source_without_labels_needs_no_names(samples):
    unlabeled = ImageDataset(samples, table={'path': ImageDataset(samples, split=None).filenames()[:3]}, target_key=None, split=None)
    for names in ('a', 'b'), ('b', 'a'):
        sources = {'a': Named([1, 0], {'x': 3, 'y': 1, 'z': 0}), 'b': unlabeled}
        mix = Mixture({name: sources[name] for name in names}, {'a': 1, 'b': 1})
        assert mix.class_to_idx == {'x': 3, 'y': 1, 'z': 0} == classes_of(mix)
        assert sorted(targets_of(mix)) == [-1, -1, -1, 0, 1]


def test_a_joined_dataset_whose_parts_differ_is_an_error():
    parts = ConcatDataset([Named([0], {'x': 0}), Named([0], {'y': 0})])
    with pytest.raises(ClassMapError): Mixture({'parts': parts, 'a': Named([0], {'x': 0})}, {'parts': 1, 'a': 1})


def test_renumbering_needs_all_names():
    with pytest.raises(KeyError): renumber(Named([0], {'x': 0}), {'y': 0})


# ---- what is refused

class Stream(IterableDataset):
    def __iter__(self): return iter(())


@pytest.mark.parametrize('sources, error, message', [
    ([1], TypeError, 'sources has type list: pass a dict'), ({}, ValueError, 'at least one source'),
    ({'a': Stream()}, TypeError, 'source a is a stream, Stream'), ({'a': 'photos'}, TypeError, 'source a has type str: pass a dataset'),
    ({'a': 3}, TypeError, 'source a has type int'), ({'a': ImageDataset}, TypeError, 'source a has type type'),
    ({'a': []}, ValueError, 'source a has no samples')])
def test_sources_are_checked(sources, error, message):
    with pytest.raises(error, match=message): Mixture(sources, dict.fromkeys(sources, 1))


@pytest.mark.parametrize('value', [0, -1, float('nan'), float('inf'), True, None, '3', [1], np.nan])
def test_a_proportion_is_a_number_above_0(value):
    mix = Mixture({'a': [(None, -1)], 'b': [(None, -1)]}, {'a': 1, 'b': 2}, join_classes=False)
    for call in mix.set_proportions, lambda proportions: Mixture(dict(zip('ab', mix.datasets)), proportions, join_classes=False):
        with pytest.raises(ValueError, match='the proportion of b is .*must be a number above 0'): call({'a': 1, 'b': value})
    assert mix.proportions == {'a': 1, 'b': 2}


@pytest.mark.parametrize('proportions, message', [({'a': 1}, 'missing: b'), ({'a': 1, 'b': 1, 'c': 1}, 'unknown sources: c'),
                                                  ({'a': 1, 'B': 1}, "unknown sources: B; missing: b; .*'B' looks like 'b'")])
def test_proportions_have_the_names_of_the_sources(proportions, message):
    with pytest.raises(ValueError, match=message): Mixture({'a': [(None, 0)], 'b': [(None, 0)]}, proportions, join_classes=False)


def test_weights_have_names_of_sources():
    with pytest.raises(ValueError, match='weights: unknown sources: c'): Mixture({'a': [(None, 0)]}, {'a': 1}, weights={'c': 'balanced'})
    with pytest.raises(TypeError, match='weights has type str: pass a dict'): Mixture({'a': [(None, 0)]}, {'a': 1}, weights='balanced')
    with pytest.raises(TypeError, match='proportions has type list'): Mixture({'a': [(None, 0)]}, [1])


@pytest.mark.parametrize('numbers, expected', [
    ((3, 1), (3, 1)), ((6, 2), (3, 1)), ((0.7, 0.3), (7, 3)), ((1e-2, 1), (1, 100)), ((Fraction(1, 3), 1), (1, 3)),
    ((np.float32(0.1), np.int64(1)), (1, 10)), ((1e300, 2e300), (1, 2)), ((10**30, 10**30), (1, 1))])
def test_proportions_become_whole_numbers(numbers, expected):
    assert whole_numbers(dict(zip('ab', numbers))) == expected


def test_a_long_period_is_refused_with_a_proposal():
    with pytest.raises(ValueError, match="repeat after 1,000,001 samples: .* such as {'a': 1, 'b': 1000}"):
        whole_numbers({'a': 1, 'b': 10**6})
    with pytest.raises(ValueError, match="such as {'a': 368, 'b': 632}"): whole_numbers({'a': 2**0.5, 'b': 5.9**0.5})


def test_a_mixture_must_be_the_outermost_dataset():
    mix = Mixture({'a': Named([0], {'x': 0})}, {'a': 1})
    for outer in Subset(mix, [0]), ConcatDataset([mix, mix]), relabel(mix, {'x': 'y'}), Mixture({'mix': mix}, {'mix': 1}):
        with pytest.raises(ValueError, match='a Mixture is inside another dataset'): create_loader(outer, 8, 1, device='cpu')


def test_a_field_of_the_same_name_is_an_error():
    mix = Mixture({'a': [{'image': Image.new('RGB', (8, 8)), 'source': 'web'}]}, {'a': 1}, with_source=True, join_classes=False)
    with pytest.raises(ValueError, match="already has a field 'source'"): mix[0]
    with pytest.raises(ValueError, match='with_source=3: must be True or False'): Mixture({'a': [(None, 0)]}, {'a': 1}, with_source=3)


# ---- as a dataset

def test_it_is_a_concatenation_for_all_that_look_inside():
    a, b = Named([0, 1], {'x': 0, 'y': 1}), Named([1, 0, 1], {'x': 0, 'y': 1})
    mix, joined = Mixture({'a': a, 'b': Subset(b, [2, 0])}, {'a': 3, 'b': 1}, with_source=True), ConcatDataset([a, Subset(b, [2, 0])])
    assert [unwrap(mix, k) for k in range(4)] == [unwrap(joined, k) for k in range(4)] == [(a, 0), (a, 1), (b, 2), (b, 0)]
    assert base_datasets(mix) == [a, b] and fingerprint(mix) == fingerprint(joined)
    assert [mix.source_of(k) for k in range(4)] == [0, 0, 1, 1] and mix[-1][2] == 1 and mix[-1][1] == joined[-1][1]
    with pytest.raises(IndexError): mix[4]
    copied = pickle.loads(pickle.dumps(mix))
    assert copied.proportions == mix.proportions and copied[2][1:] == mix[2][1:]


def test_a_skipped_sample_stays_skipped():
    class Skips(Named):
        def __getitem__(self, index): return None if index == 1 else super().__getitem__(index)
    mix = Mixture({'a': Skips([0, 0, 0], {'x': 0})}, {'a': 1}, with_source=True)
    assert mix[1] is None
    assert [len(numbers) for _, _, numbers in create_loader(mix, 8, 3, num_workers=0, device='cpu')] == [2]
