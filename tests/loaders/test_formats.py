"Formats: settings without the data, then parts with it; a format of a stranger, beside two plain loaders."
import pytest
import torch
from grids import quick
from loader_parts import Coded
from torchvision.transforms.functional import resize

from timmdata.core.arguments import Arguments
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.formats import CustomFormat, FormatParts, ImageFormat, PatchFormat, ViewsFormat
from timmdata.loader import create_loader, make_loader
from timmdata.pipeline.batch_transform import BatchTransform
from timmdata.pipeline.layout import BatchLayout
from timmdata.pipeline.naflex import NaFlex
from timmdata.pipeline.sample_transform import SampleTransform, resize_into
from timmdata.pipeline.views import View

pytestmark = pytest.mark.timeout(120)


class Closed:
    "A data set that nobody may read."
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
        super().__call__(pixels, rows[:1], key, *numbers)
        resize_into(*rows)
        return [rows]

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
