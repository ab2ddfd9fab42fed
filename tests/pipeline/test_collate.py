"Compare batches with those of torch's collate function, and test errors."
import sys
from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple
from types import MappingProxyType

import numpy as np
import pytest
import torch
from grids import quick
from PIL import Image
from torch.utils.data import default_collate

from timmdata.core.sample import fields_of
from timmdata.pipeline.collate import fast_collate


def images_of(num, size=(5, 4)) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)) for _ in range(num)]


@pytest.mark.parametrize('kind', ['pil', 'array', 'tensor', 'float'])
@quick(2, 'target', [3, 0.5, torch.tensor([1, 2]), np.float32(0.25), [1., 2.]], ids=str)
def test_images_and_targets_are_torchs(kind, target):
    tensors = [torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) for image in images_of(3)]
    images = dict(pil=images_of(3), tensor=tensors, float=[t / 255 for t in tensors], array=[t.numpy() for t in tensors])[kind]
    batch, targets = fast_collate([(image, target) for image in images])
    expected = torch.stack(tensors) / 255 if kind == 'float' else torch.stack(tensors)
    assert torch.equal(batch, expected) and batch.dtype == expected.dtype and batch.is_contiguous()
    theirs = torch.as_tensor(np.asarray([target] * 3)) if isinstance(target, list) else default_collate([target] * 3)
    assert torch.equal(targets, theirs.to(targets.dtype)) and targets.dtype in (torch.int64, torch.float32)


@pytest.mark.parametrize('as_dict', [False, True])
@pytest.mark.parametrize('num_views', [1, 2, 3])
def test_first_views_come_first_and_fields_follow_them(num_views, as_dict):
    pictures = images_of(3 * num_views)
    samples = [(tuple(pictures[k::3]), k, f'{k}.jpg') for k in range(3)]
    if as_dict: samples = [dict(zip(('image', 'target', 'name'), sample)) for sample in samples]
    batch = fast_collate(samples)
    images, targets, names = batch.values() if as_dict else batch
    assert torch.equal(images, fast_collate([(picture, 0) for picture in pictures])[0])
    assert targets.tolist() == [0, 1, 2] * num_views and names == ['0.jpg', '1.jpg', '2.jpg'] * num_views


def test_skipped_samples_are_left_out():
    a, b = images_of(2)
    assert fast_collate([None, (a, 1), None, (b, 2)])[1].tolist() == [1, 2] and fast_collate([None]) is None


# ---- types of the user's own

class Own(dict):
    source = 'nowhere'


class Fixed(tuple):
    "Define a tuple whose constructor does not take its values."
    def __new__(cls, image, target): return super().__new__(cls, (image, target))


class Rows(list): pass


Pair = namedtuple('Pair', 'image target')
FORMS = {
    'own dict': Own, 'OrderedDict': OrderedDict, 'defaultdict': lambda fields: defaultdict(list, fields), 'UserDict': UserDict,
    'read-only': MappingProxyType, 'dict': dict, 'namedtuple': lambda fields: Pair(**fields),
    'own list': lambda fields: Rows(fields.values()),
    'UserList': lambda fields: UserList(fields.values())}


@pytest.mark.parametrize('form', FORMS)
def test_types_are_those_of_torchs_batches(form):
    samples = [FORMS[form]({'image': torch.full((3, 2, 2), k, dtype=torch.uint8), 'target': k}) for k in range(3)]
    if form == 'own dict': samples[0].source = 'a camera'
    ours, theirs = fast_collate(samples), default_collate(samples)
    assert type(ours) is type(theirs) and vars_of(ours) == vars_of(theirs) and fields_of(samples[1])['target'] == 1
    ours, theirs = fields_of(ours), fields_of(theirs)
    assert [*ours] == [*theirs] and all(torch.equal(ours[name], theirs[name]) for name in ours)


def vars_of(batch) -> dict: return {name: value for name, value in getattr(batch, '__dict__', {}).items() if name != 'data'}


def test_a_type_that_cannot_be_made_from_values_becomes_a_tuple():
    "torch gives a list."
    images = torch.zeros(2, 3, 2, 2, dtype=torch.uint8)
    batch = fast_collate([Fixed(image, 5) for image in images])
    assert type(batch) is Fixed or type(batch) is tuple
    assert torch.equal(batch[0], images) and batch[1].tolist() == [5, 5]


def python_calls(num: int) -> int:
    "Count the Python functions that run to collate the samples."
    rows, called = torch.zeros(num, 3, 4, 4, dtype=torch.uint8), []
    samples = [(row, k, f'{k}.jpg') for k, row in enumerate(rows)]
    sys.setprofile(lambda frame, event, _: called.append(1) if event == 'call' else None)
    try: fast_collate(samples, rows)
    finally: sys.setprofile(None)
    return len(called)


def test_a_sample_more_costs_few_calls(): assert (python_calls(512) - python_calls(256)) / 256 < 7
