"Formats: settings without the data, then parts with it; a third-party format next to two plain loaders."
import warnings
from collections import UserList, namedtuple
from functools import partial

import numpy as np
import pytest
import torch
from grids import quick
from loader_parts import Coded
from torch.utils.data import DataLoader, default_collate
from torchvision.transforms.functional import resize

from timmdata.core.arguments import Arguments
from timmdata.core.sample import fields_of, sample_image
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.formats import CustomFormat, FormatParts, ImageFormat, PatchFormat, ViewsFormat
from timmdata.loader import create_loader, make_loader
from timmdata.pipeline.batch_transform import BatchTransform
from timmdata.pipeline.collate import fast_collate
from timmdata.pipeline.layout import BatchLayout
from timmdata.pipeline.naflex import NaFlex
from timmdata.pipeline.sample_transform import SampleTransform, resize_into
from timmdata.pipeline.views import View

pytestmark = pytest.mark.timeout(120)


class Closed:
    "A dataset that must not be read."
    def __len__(self): return 8
    def __getitem__(self, index): raise AssertionError('a sample was read')


SETTINGS = {ImageFormat: dict(input_size=32), ViewsFormat: dict(views=[View(32), View(16)]),
            CustomFormat: dict(transform=abs, input_size=32),
            PatchFormat: dict(naflex=NaFlex(mode='native', train_seq_lens=[16]))}


@pytest.mark.parametrize('kind, settings', SETTINGS.items(), ids=lambda value: getattr(value, '__name__', ''))
def test_settings_need_no_data(kind, settings):
    resolved = dict(batch_size=4, is_training=True, drop_last=True, scaled_decode=False)
    given = Arguments(create_loader, dict(dataset=Closed(), **resolved, **settings))
    assert kind(given).settings


class SmallTransform(SampleTransform):
    @property
    def layout(self):
        height, width = self.params.size
        return BatchLayout({'image': (1, 3, height, width), 'small': (1, 3, height // 2, width // 2)})

    def __call__(self, pixels, rows, key, *numbers):
        filled = super().__call__(pixels, rows[:1], key, *numbers)
        resize_into(*rows)
        return filled._replace(images=[rows])

    def images(self, rows, samples): return rows['image'], rows['small']


class SmallBatchTransform(BatchTransform):
    def draw(self, images, keys): return super().draw(images[0], keys)

    def apply(self, fields, drawn):
        large, small = fields['image']
        small = super().apply({'image': small}, drawn._replace(erased=None))['image']
        return super().apply({**fields, 'image': large}, drawn) | {'small': small}


class SmallFormat(ImageFormat):
    def parts(self, dataset, sampler, batches):
        params = self.sampler_of(self.augment)
        batch_transform = SmallBatchTransform(self.normalize, params, self.erasing.create())
        return FormatParts([SmallTransform(params, self.decode, 3)], batch_transform, batches)


def settings_for(samples, **more): return {**dict(
    dataset=ImageDataset(samples, split='val'), input_size=32, batch_size=8, is_training=True, color_jitter=None, seed=3,
    device='cpu'), **more}


@quick(2, 'workers', [dict(num_workers=0), dict(num_workers=2, worker_type='threads'),
                                     dict(num_workers=2, worker_type='processes', multiprocessing_context='fork')], ids=str)
@quick(1, 'use_prefetcher', [True, False])
def test_a_strangers_format_has_all_that_ours_have(samples, workers, use_prefetcher):
    settings = settings_for(samples, re_prob=0.5, use_prefetcher=use_prefetcher, **workers)
    loader, plain = make_loader(Arguments(create_loader, settings), SmallFormat), create_loader(**settings)
    uint8 = create_loader(**{**settings, 're_prob': 0., 'use_prefetcher': True}, mean=0., std=1 / 255)   # pixels 0..255
    found = list(loader)
    for (images, targets, small), (expected, labels), (pixels, _) in zip(found, plain, uint8, strict=True):
        assert torch.equal(images, expected) and torch.equal(targets, labels) and small.shape == (len(images), 3, 16, 16)
        mean, std = (torch.tensor(part).view(3, 1, 1) for part in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        assert ((small * std + mean) * 255 - resize(pixels, [16, 16])).abs().max() < 1.6   # rounded twice
    assert all(map(torch.equal, loader.replay(0, 1).batch, found[1]))
    resumed = make_loader(Arguments(create_loader, settings), SmallFormat)
    state = resumed.state_dict()
    resumed.load_state_dict({**state, 'position': 16})
    assert all(all(map(torch.equal, batch, other)) for batch, other in zip(resumed, found[2:], strict=True))


def test_a_dataset_that_cannot_fill_a_batch_is_refused_before_it_is_read():
    given = Arguments(create_loader, dict(dataset=Closed(), input_size=8, batch_size=64, is_training=True, num_workers=0, device='cpu'))
    with pytest.raises(ValueError, match='8 samples do not fill one batch of 64'): make_loader(given)


def test_the_arguments_choose_the_format():
    for kind, settings in SETTINGS.items():
        given = Arguments(create_loader, dict(dataset=Coded(8), batch_size=4, is_training=True, num_workers=0, device='cpu', **settings))
        parts = make_loader(given).loader.builder.sample_loader.sample_transforms
        assert [type(part).__name__ for part in parts] == {
            ImageFormat: ['SampleTransform'], ViewsFormat: ['ViewsTransform'], CustomFormat: [], PatchFormat: ['PatchTransform']}[kind]


# ---- types of the user's own

class OwnBatch(dict):
    "The same as a model's library returns it."
    note = 'none'


class OwnRows(list): pass


def own_batch(samples):
    batch = OwnBatch(zip(('image', 'target'), fast_collate(samples)), names=[f'{target}.jpg' for _, target in samples])
    batch.note = 'from the worker'
    return batch


def own_rows(samples): return OwnRows(fast_collate(samples))
def user_list(samples): return UserList(fast_collate(samples))
def named_tuple(samples): return OwnPair(*fast_collate(samples))


class OwnSamples(Coded):
    "A dataset whose samples have their own type."
    def __getitem__(self, index): return OwnBatch(zip(('image', 'target'), super().__getitem__(index)))


OwnPair = namedtuple('OwnPair', 'image target')


@pytest.mark.parametrize('settings', [
    dict(), dict(num_workers=2, worker_type='processes', multiprocessing_context='fork'), dict(use_prefetcher=False, device=None),
    pytest.param(dict(num_workers=2, worker_type='threads'), marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize('collate', [own_batch, own_rows, user_list, named_tuple, None])
def test_a_batch_of_the_users_own_type_keeps_it(collate, settings):
    "From the collate function or the dataset to the training loop, as with torch's DataLoader."
    dataset = OwnSamples(8) if collate is None else Coded(8)
    loader = create_loader(dataset, 4, 4, **{'num_workers': 0, 'device': 'cpu', **settings}, collate_fn=collate)
    plain = create_loader(Coded(8), 4, 4, num_workers=0, device='cpu')
    torchs = DataLoader(dataset, 4, collate_fn=collate or (lambda samples: default_collate([OwnBatch(target=0) for _ in samples])))
    with loader:
        for batch, (images, targets), theirs in zip(loader, plain, torchs, strict=True):
            assert type(batch) is type(theirs) and torch.equal(sample_image(batch), images)
            assert torch.equal(fields_of(batch)['target'], targets)
            if collate is own_batch:
                assert batch.note == 'from the worker' and batch['names'] == [f'{target}.jpg' for target in targets.tolist()]


@pytest.mark.parametrize('collate, expected', [(own_batch, OwnBatch), (own_rows, OwnRows), (named_tuple, tuple)])
def test_a_mask_is_added_to_the_users_own_type(collate, expected):
    "A named tuple cannot hold another field."
    batch = next(iter(create_loader(Coded(3), 4, 4, num_workers=0, device='cpu', collate_fn=collate, valid_mask=True, pad_last=True)))
    assert type(batch) is expected
    mask = batch['valid'] if expected is OwnBatch else batch[-1]
    assert mask.tolist() == [True, True, True, False]


ARRAYS = dict(color_jitter=[0.4, 0.3, 0.2], scale=[0.25, 0.75], ratio=[0.75, 1.25], mean=[0.5, 0.25, 0.5], std=[0.25, 0.5, 0.25],
              gaussian_blur_radius=[0.5, 2.])


@pytest.mark.parametrize('name', ARRAYS)
@pytest.mark.parametrize('is_training', [True, False])
def test_an_array_means_what_a_list_means(name, is_training):
    "timm ignores training settings in evaluation."
    def batch(value):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            settings = dict(num_workers=0, device='cpu', gaussian_blur_prob=0.5)
            loader = create_loader(Coded(4), 32, 4, is_training, seed=0, **settings, **{name: value})
        return next(iter(loader))[0], [str(one.message) for one in found]
    images, told = batch(ARRAYS[name])
    for kind in (np.array, partial(torch.tensor, dtype=torch.float64)):
        found = batch(kind(ARRAYS[name]))
        assert torch.equal(found[0], images) and found[1] == told
