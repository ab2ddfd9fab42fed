"Streams that do not divide themselves among workers, streams that do so in various ways, and what a worker process sets."
import json
import random
import sys
import warnings
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import timm.data
import torch
from grids import quick
from loader_parts import nothing_is_left
from PIL import Image
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, Subset, get_worker_info

from timmdata import ImageDataset, IterableImageDataset, Mixup, create_dataset, create_loader
from timmdata.core.sample import fields_of
from timmdata.loaders.stream_loader import StreamLoader
from timmdata.pipeline.builder import BatchBuilder
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM = 12


def image_of(number): return Image.fromarray(np.full((16, 16, 3), number, 'uint8'))


class Numbers(IterableDataset):
    "The mistake described in torch's docs: the stream does not ask which worker it is in."
    first, step = 0, 1

    def __iter__(self):
        for number in range(self.first, NUM, self.step): yield image_of(number), number


class Named(Numbers):
    def __iter__(self): return ({'image': image, 'target': number, 'name': f'{number}.jpg'} for image, number in super().__iter__())


class Tensors(Numbers):
    def __iter__(self):
        for _, number in super().__iter__(): yield torch.full((3, 16, 16), number, dtype=torch.uint8), torch.tensor(number)


class Divided(Numbers):
    "The fix from torch's docs."
    def __iter__(self):
        info = get_worker_info()   # imported by name, as usual
        if info is not None: self.first, self.step = info.id, info.num_workers
        return super().__iter__()


class OfOneFile(Divided):
    "A stream that divides itself, but all samples are equal."
    def __iter__(self): return ((image_of(0), 0) for _ in super().__iter__())


class Drawn(IterableDataset):
    "A stream whose workers draw their own random numbers, from torch's worker seed."
    def __iter__(self):
        for _ in range(NUM): yield image_of(int(torch.randint(256, ()))), random.randrange(10**6)


class ByInit(Numbers):
    "A stream divided by the function that each worker calls at its start, as in torch's docs."


def divide(number):
    dataset = get_worker_info().dataset
    dataset.first, dataset.step = number, get_worker_info().num_workers


def divided_by_seeding(info):
    "A reader with timm's hook."
    divide(info.id)
    return info.seed % 2**32


def loader_of(stream, num_workers=2, **settings):
    return create_loader(stream, 16, 2, num_workers=num_workers, device='cpu', no_aug=True, seed=0, **settings)


def read(loader, num_epochs=1) -> tuple[list, list]:
    "Return the targets of some epochs, and the warnings about workers."
    with warnings.catch_warnings(record=True) as found, loader:
        warnings.simplefilter('always')
        targets = [sorted(int(number) for batch in loader for number in (batch['target'] if isinstance(batch, dict) else batch[1]))
                   for _ in range(num_epochs)]
    return targets, [str(one.message) for one in found if 'began with the same sample' in str(one.message)]


@pytest.mark.parametrize('make, settings', [
    (Numbers, {}), (Named, dict(persistent_workers=False)), (Tensors, dict(use_prefetcher=False)), (lambda: ChainDataset([Numbers()]), {}),
    pytest.param(Tensors, dict(multiprocessing_context='spawn'), marks=pytest.mark.full)])
def test_a_stream_that_comes_once_per_worker_is_named_once(make, settings):
    "The stream is asked as often as by torch's own loader."
    (first, second), found = read(loader_of(make(), **settings), 2)
    torchs = [number for batch in DataLoader(Numbers(), 2, num_workers=2, collate_fn=list) for _, number in batch]
    assert first == second == sorted(torchs) and len(torchs) == 2 * NUM
    text, = found
    name = type(make()).__name__
    assert text.startswith(f'workers 0 and 1 began with the same sample, and {name} did not call torch.utils.data.get_worker_info()')
    assert 'each of the 2 workers reads the whole stream' in text and 'or pass num_workers=1' in text


@pytest.mark.parametrize('batch_size, num', [(1, 1), (5, 2)])
def test_a_short_stream_is_named_too(batch_size, num, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], 'NUM', num)
    _, found = read(create_loader(Numbers(), 16, batch_size, num_workers=2, device='cpu'))
    assert len(found) == 1


def webdataset_of(folder):
    webdataset = pytest.importorskip('webdataset')
    with webdataset.ShardWriter(f'file:{folder}/%02d.tar', maxcount=3, verbose=0) as writer:
        for number in range(NUM): writer.write({'__key__': f'{number:04}', 'jpg': image_of(0), 'cls': 0})   # all alike
    paths = [f'{folder}/{number:02}.tar' for number in range(NUM // 3)]
    return webdataset.WebDataset(paths, shardshuffle=False).decode('pil').to_tuple('jpg', 'cls')


def huggingface_of(folder):
    datasets = pytest.importorskip('datasets')
    def rows(shards):
        for _ in range(3 * len(shards)): yield {'image': image_of(0), 'target': 0}
    return datasets.IterableDataset.from_generator(rows, gen_kwargs={'shards': [*range(NUM // 3)]})


def our_reader_of(folder):
    webdataset_of(folder)
    split = {'filenames': [f'{number:02}.tar' for number in range(NUM // 3)], 'num_samples': NUM}
    (folder/'_info.json').write_text(json.dumps({'splits': {'train': split}}))
    return create_dataset('wds/', str(folder), split='train')


@pytest.mark.parametrize('make, settings', [
    (lambda folder: Divided(), {}), (lambda folder: OfOneFile(), {}), (lambda folder: Drawn(), {}),
    (lambda folder: ChainDataset([Divided(), Divided()]), {}),
    (lambda folder: ByInit(), dict(worker_seeding=divided_by_seeding)), (webdataset_of, {}), (huggingface_of, {}), (our_reader_of, {})],
    ids=['by info', 'all alike', 'drawn', 'chained', 'by init', 'webdataset', 'huggingface', 'our reader'])
@pytest.mark.parametrize('persistent', [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_stream_that_divides_itself_is_not_named(make, settings, persistent, tmp_path):
    (first, _), found = read(loader_of(make(tmp_path), persistent_workers=persistent, **settings), 2)
    assert found == [] and len(first) in (NUM, 2 * NUM)


class DividesItsFiles(IterableDataset):
    "A reader of an `IterableImageDataset` that asks, in every pass or only in its first; or the dataset of torch's docs, which never asks."
    def __init__(self, asks): self.asks = asks

    def __iter__(self):
        if self.asks == 'always' or self.asks == 'first' and not hasattr(self, 'share'):
            info = get_worker_info()
            self.share = slice(info.id, None, info.num_workers) if info else slice(None)
        for number in range(NUM)[getattr(self, 'share', slice(None))]: yield image_of(number), number


@pytest.mark.parametrize('asks', ['always', 'first', 'never'])
@pytest.mark.parametrize('num_workers, persistent', [(0, False), (2, True), (2, False), (3, True)])
def test_a_reader_that_divides_itself_is_not_divided_again(asks, num_workers, persistent):
    "The reference is torch's own loader, which reads each sample once if the reader divides itself."
    stream = IterableImageDataset(reader=DividesItsFiles(asks))
    targets, found = read(loader_of(stream, num_workers, persistent_workers=persistent), 2)
    torchs = DataLoader(DividesItsFiles('always'), 2, num_workers=num_workers, collate_fn=list)
    assert targets == [sorted(number for batch in torchs for _, number in batch)] * 2 and found == []


@pytest.mark.parametrize('num_workers', [0, 1])
def test_one_worker_may_read_everything(num_workers):
    (first,), found = read(loader_of(Numbers(), num_workers))
    assert first == [*range(NUM)] and found == []


def test_the_worker_still_gets_torchs_info():
    "Attributes that do not divide a stream; after the first sample, the object is torch's own."
    class Asking(IterableDataset):
        def __iter__(self):
            for _ in range(2):
                info = get_worker_info()
                yield image_of(0), info.id + 10 * info.num_workers + 100 * (isinstance(info.dataset, Asking)) + 1000 * (info.seed > 0)
    assert read(loader_of(Asking(), 2))[0] == [[1120, 1120, 1121, 1121]]


# ---- what a worker process sets

class Told(ModuleType):
    "Stand in for OpenCV, which sets its threads for the whole process."
    threads = 99
    def setNumThreads(self, number): self.threads = number   # noqa: N802


class Threads:
    "Return the settings of OpenCV and torch as targets."
    def __len__(self): return 4
    def __getitem__(self, index): return image_of(0), sys.modules['cv2'].threads * 100 + torch.get_num_threads()


class ThreadsOfStream(Threads, IterableDataset):
    def __iter__(self): return (self[0] for _ in range(2) if get_worker_info().id >= 0)


@pytest.mark.parametrize('make', [Threads, ThreadsOfStream])
def test_opencv_uses_one_core_in_a_worker_process(make, monkeypatch):
    "As torch does: OpenCV's call is `setNumThreads(0)`. With 1, it ends threads that a forked copy does not have, and crashes."
    monkeypatch.setitem(sys.modules, 'cv2', Told('cv2'))
    settings = {} if make is ThreadsOfStream else dict(worker_type='processes')
    loader = loader_of(make(), multiprocessing_context='fork', **settings)
    assert read(loader)[0] == [[1] * 4] and sys.modules['cv2'].threads == 99


def set_three(number): sys.modules['cv2'].setNumThreads(3)


def test_the_users_function_has_the_last_word(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cv2', Told('cv2'))
    builder = BatchBuilder(SampleLoader(ThreadsOfStream()))
    stream = StreamLoader(builder, 2, workers=WorkerSettings(1, worker_init_fn=set_three, multiprocessing_context='fork'))
    assert stream.worker_init_fn is set_three
    with stream: assert [batch[1].tolist() for batch in stream] == [[301, 301]]


# ---- the same pixels as indexed data, and timm's

class Files:
    "The files of a folder, in the order of an `ImageDataset`; targets are numbers, or all classes."
    def __init__(self, samples: Path, num: int | None = None):
        dataset = ImageDataset(samples, split='val')
        self.items = [(dataset.reader[k][0], dataset.reader[k][1] if num is None else k) for k in range(num or len(dataset))]

    def __iter__(self): return iter(self.items)
    def __len__(self): return len(self.items)


def noisy(samples):
    "A collate function that draws random numbers."
    return torch.stack([sample[0] for sample in samples]), torch.tensor([sample[1] + random.random() for sample in samples])


MIXED = dict(mixup=Mixup(mixup_alpha=0.4, cutmix_alpha=1., num_classes=18))
EVERYTHING = dict(is_training=True, vflip=0.3, color_jitter=(0.3, 0.2, 0.4, 0.1), grayscale_prob=0.3, re_prob=0.5, re_mode='pixel')
PIPELINES = {
    'training': EVERYTHING, 'evaluation': dict(), 'training alone': dict(**EVERYTHING, use_prefetcher=False), 'mixed': EVERYTHING | MIXED,
    'border': dict(crop_mode='border', interpolation='bicubic'), 'alone': dict(use_prefetcher=False),
    'policy': dict(is_training=True, auto_augment='rand-m9-mstd0.5', gaussian_blur_prob=0.5),
    'padded': dict(is_training=True, train_crop_mode='rkrr'),
    'exact': dict(is_training=True, color_jitter_mode='exact', backend='pillow'),
    'own collate': dict(is_training=True, re_prob=1., collate_fn=noisy, use_prefetcher=False)}


def both(samples, **settings) -> tuple[list, list]:
    "Return two epochs of indexed data in order, and of a stream of the same files."
    items = Files(samples, 18).items
    indexed, stream = ImageDataset('', items), IterableImageDataset(reader=items)
    settings = dict(input_size=64, batch_size=5, seed=5, device='cpu', num_workers=0) | settings
    if settings.get('use_prefetcher') is False: del settings['device']
    order = {} if settings.get('is_training') is None else dict(shuffle=False)
    found = []
    for dataset, own in (indexed, order), (stream, {}):
        with create_loader(dataset, **settings, **own) as loader:
            found.append([[part.clone() for part in batch] for _ in range(2) for batch in loader])
    return found


@quick(4, 'name', [*PIPELINES])
def test_batches_are_those_of_indexed_data(samples, name):
    "Bit-identical if one process reads, because the keys are the same."
    indexed, stream = both(samples, **PIPELINES[name])
    assert len(indexed) == len(stream) >= 6
    for batch, other in zip(indexed, stream, strict=True):
        assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(batch, other, strict=True))
        if 'alone' in name: assert other[0].dtype == torch.float32
    assert torch.equal(stream[0][0], stream[len(stream) // 2][0]) != ('is_training' in PIPELINES[name])   # of the next epoch


def images_by_target(loader) -> dict[int, torch.Tensor]:
    with loader: return {int(target): image.clone() for images, targets in loader for image, target in zip(images, targets, strict=True)}


@pytest.mark.parametrize('settings', [EVERYTHING, EVERYTHING | dict(use_prefetcher=False)], ids=['prefetched', 'alone'])
@pytest.mark.parametrize('num_workers', [1, 2])
def test_images_do_not_depend_on_the_workers(samples, settings, num_workers):
    "A stream that is divided sample by sample; also with erasing, which is drawn in a different process."
    settings = dict(input_size=64, batch_size=3, seed=5, drop_last=False) | settings
    if 'use_prefetcher' not in settings: settings['device'] = 'cpu'
    expected, found = (images_by_target(create_loader(IterableImageDataset(reader=Files(samples, 20)), num_workers=num, **settings))
                       for num in (0, num_workers))
    assert expected.keys() == found.keys() == set(range(20))
    assert all(torch.equal(found[target], image) for target, image in expected.items())


@pytest.mark.parametrize('settings', [dict(), dict(crop_mode='squash', crop_pct=1.), dict(crop_mode='border')], ids=str)
def test_evaluation_pixels_are_timms(samples, settings):
    "With the decoder that timm uses; any stream whose items are the same images."
    class Images(IterableDataset):
        def __iter__(self): return iter(theirs)
    theirs = Subset(timm.data.ImageDataset(str(samples/'val')), range(0, 80, 4))
    common = dict(batch_size=8, is_training=False, num_workers=0, device=torch.device('cpu')) | settings
    own = timm.data.ImageDataset(str(samples/'val'))   # timm puts its transform there
    own.reader.samples = own.reader.samples[::4]
    expected = list(timm.data.create_loader(own, (3, 64, 64), **common))
    for stream in IterableImageDataset(reader=Files(samples).items[::4]), Images():
        found = list(create_loader(stream, (3, 64, 64), backend='pillow', **common))
        assert all(torch.equal(a[0], b[0]) and a[0].dtype == b[0].dtype for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize('as_sample', [
    lambda image, target: (image, target), lambda image, target: {'image': np.asarray(image), 'target': target},
    lambda image, target: [torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()), target]], ids=['tuple', 'dict', 'list'])
def test_samples_of_every_form(samples, as_sample):
    "The reference is a list of the same samples."
    made = [as_sample(*sample) for sample in islice(ImageDataset(samples, split='val'), 9)]
    class Passing(IterableDataset):
        def __iter__(self): return iter(made)
    settings = dict(input_size=48, batch_size=4, seed=1, device='cpu', num_workers=0, drop_last=False, **EVERYTHING)
    for batch, other in zip(create_loader(made, shuffle=False, **settings), create_loader(Passing(), **settings), strict=True):
        assert type(batch) is type(other) and all(map(torch.equal, *(fields_of(one).values() for one in (batch, other))))


def test_batches_are_repeated_with_the_seed(samples):
    def first(seed): return [batch[0].clone() for batch in create_loader(
        IterableImageDataset(reader=Files(samples, 8)), 64, 4, True, seed=seed, device='cpu', num_workers=0)]
    again, other = first(3), first(4)
    assert all(map(torch.equal, first(3), again)) and not any(map(torch.equal, again, other))


@pytest.mark.filterwarnings('ignore:.*is skipped')
def test_a_skipped_sample_leaves_a_smaller_batch(samples):
    "The reference is indexed data; a batch without samples is left out, and skipped samples have the same numbers."
    good = [item for item, _ in Files(samples, 12)]
    items = [(b'no image' if k in (0, 5, 6, 7, 10) else good[k], k) for k in range(12)]
    indexed, stream = ImageDataset('', items, on_error='skip'), IterableImageDataset(reader=items, on_error='skip')
    settings = dict(input_size=32, batch_size=2, device='cpu', num_workers=0)
    expected, found = (list(create_loader(dataset, **settings)) for dataset in (indexed, stream))
    assert [targets.tolist() for _, targets in found] == [[1], [2, 3], [4], [8, 9], [11]]
    assert all(torch.equal(a, b) for one, other in zip(expected, found, strict=True) for a, b in zip(one, other, strict=True))
    assert [bad.index for bad in stream.bad_samples] == [bad.index for bad in indexed.bad_samples] == [0, 5, 6, 7, 10]


def noise(target): return random.randrange(2**20)


def test_target_transforms_and_collate_functions_draw_the_numbers_of_their_samples(samples):
    "As with indexed data: equal results with any number of workers, and in a second run."
    def drawn(num_workers, **settings):
        stream = IterableImageDataset(reader=Files(samples, 8), target_transform=noise)
        with create_loader(stream, 16, 4, seed=2, num_workers=num_workers, **settings) as loader: return [batch[1] for batch in loader]
    numbers = [sorted(torch.cat(drawn(num_workers, device='cpu')).tolist()) for num_workers in (0, 2, 0)]
    assert numbers[0] == numbers[1] == numbers[2] and len(set(numbers[0])) == 8
    together = [drawn(0, use_prefetcher=False, collate_fn=noisy) for _ in range(2)]
    assert all(map(torch.equal, *together))
