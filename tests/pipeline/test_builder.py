"Test the guarantees of a batch builder: a row is a function of its key, and the caller provides the memory."
import pickle
import warnings

import pytest
import torch
from builder_parts import make, transforms_of
from grids import quick
from loader_parts import Coded

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.pipeline.batch_transform import BatchTransform, BatchTransformSettings
from timmdata.pipeline.builder import BatchBuilder
from timmdata.pipeline.layout import BatchLayout
from timmdata.pipeline.params import ParamSampler
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.pipeline.sample_transform import FilledRows, SampleTransform
from timmdata.samplers.keys import SampleKey, view_keys
from timmdata.transforms.settings import AugmentSettings
from timmdata.workers.factory import create_pool
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize('settings', [dict(), dict(auto_augment='rand-m9', num_aug_splits=2)], ids=str)
@quick(1, 'copy', [lambda b: b, lambda b: b.for_threads(), lambda b: pickle.loads(pickle.dumps(b))])
def test_rows_do_not_depend_on_the_order_the_batch_or_the_copy(samples, settings, copy):
    builder = BatchBuilder(SampleLoader(ImageDataset(samples), transforms_of(40, **settings)))
    keys = [SampleKey(index, 1) for index in (5, 99, 200, 301)]
    whole, other = make(builder, keys), make(copy(builder), keys, order=[2, 0, 3, 1])
    assert torch.equal(whole.batch[0], other.batch[0]) and whole.keys == other.keys == view_keys(keys, builder.num_splits)
    for k, key in enumerate(keys): assert torch.equal(make(builder, [key]).batch[0], whole.batch[0][k::4])
    assert not torch.equal(make(builder, [key._replace(seed=4) for key in keys]).batch[0], whole.batch[0])


def test_memory_is_the_callers_and_large_enough(samples):
    builder = BatchBuilder(SampleLoader(ImageDataset(samples), transforms_of(32, (40, 24), num_aug_splits=2)))
    for bucket, numbers in ((0, 32 * 32), (1, 40 * 24)):
        num_bytes = builder.layout(bucket).num_bytes(3)
        assert num_bytes == builder.batch_bytes(3, bucket) == 3 * 2 * 3 * numbers
        memory = torch.full((num_bytes + 5,), 7, dtype=torch.uint8)
        made = make(builder, [SampleKey(k, 0, bucket=bucket) for k in range(3)], memory)
        assert made.batch[0].data_ptr() == memory.data_ptr() and (memory[-5:] == 7).all()
    own = BatchBuilder(SampleLoader(Coded(4), transform=lambda image: torch.zeros(3, 8, 8), shape=(3, 8, 8)))
    assert own.layout().allocate(3) == {} and own.layout().num_bytes(3) == 0 and own.batch_bytes(3) == 4 * 3 * 3 * 8 * 8


@pytest.mark.parametrize('normalizes', [False, True])
@pytest.mark.parametrize('collates', [False, True])
def test_skipped_samples_leave_no_gap(samples, normalizes, collates):
    odd, sampler = ImageDataset(samples/'oddities', on_error='skip'), transforms_of(32, hflip=1., num_aug_splits=2)
    finish = BatchTransform(BatchTransformSettings((0.5,) * 3, (0.25,) * 3), sampler[0].params) if normalizes else None
    stack = (lambda views: (torch.stack([image for image, _ in views]), [target for _, target in views])) if collates else None
    builder = BatchBuilder(SampleLoader(odd, sampler), stack, finish)
    with pytest.warns(RuntimeWarning, match='skipped'): made = make(builder, [SampleKey(k, 0) for k in range(len(odd))])
    present = [key for key in made.keys[:len(made.keys) // 2]]
    assert made.keys == view_keys(present, builder.num_splits) and len(present) == len(odd) - len(odd.bad_samples)
    assert torch.equal(made.batch[0], make(builder, present).batch[0])


def test_threads_are_refused_where_users_code_runs(samples):
    files, ours = ImageDataset(samples), transforms_of(8)
    assert BatchBuilder(SampleLoader(files, ours)).is_thread_safe
    others = [BatchBuilder(SampleLoader(files, ours), collate_fn=list), BatchBuilder(SampleLoader(files, transform=abs)),
              BatchBuilder(SampleLoader(Coded(4), ours)),
              BatchBuilder(SampleLoader(ImageDataset(samples, target_transform=abs), ours))]
    assert not any(builder.is_thread_safe for builder in others)


class TwoShapes(SampleTransform):
    "Fill rows of two shapes: a small picture and its brightness."
    layout = BatchLayout({'picture': (1, 3, 16, 16), 'brightness': (1, 5)})

    def images(self, rows, samples): return rows['picture'], rows['brightness']

    def __call__(self, pixels, rows, key, numbers=None, here=()):
        picture, brightness = rows
        picture.fill_(key.index)
        brightness.fill_(pixels.height % 256)
        return FilledRows([rows])


@quick(2, 'kind', ['inline', 'threads', 'processes'])
def test_a_sample_transform_says_the_shapes_of_the_rows(samples, kind):
    odd = ImageDataset(samples/'oddities', on_error='skip')
    builder = BatchBuilder(SampleLoader(odd, [TwoShapes(ParamSampler(AugmentSettings(32)))]))
    keys = [SampleKey(k, 0) for k in range(len(odd))]
    settings = WorkerSettings(num_workers=0 if kind == 'inline' else 1, worker_type='auto' if kind == 'inline' else kind)
    pool = create_pool(builder, settings, keys[:1], [len(keys)])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # each skipped sample is reported
        made = pool.take(pool.submit(keys), 60)
    pool.close()
    (pictures, brightness), targets = made.batch
    present = [key.index for key in made.keys]
    assert pictures.shape == (len(present), 3, 16, 16) and brightness.shape == (len(present), 5) and len(targets) == len(present) < len(odd)
    assert pictures[:, 0, 0, 0].tolist() == present and pictures.is_contiguous(memory_format=torch.channels_last)
    assert builder.layout().num_bytes(2) == 2 * (3 * 16 * 16 + 5)
