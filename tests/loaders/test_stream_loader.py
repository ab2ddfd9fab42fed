"Streams that do not divide themselves among workers, those that do in one way or another, and what a worker process sets."
import json
import random
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from loader_parts import nothing_is_left
from PIL import Image
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info

from timmdata import create_dataset, create_loader
from timmdata.loaders.stream_loader import StreamLoader
from timmdata.pipeline.fetch import BatchBuilder, SampleLoader
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM = 12


def image_of(number): return Image.fromarray(np.full((16, 16, 3), number, 'uint8'))


class Numbers(IterableDataset):
    "The mistake of torch's docs: nobody asks which worker this is."
    first, step = 0, 1

    def __iter__(self):
        for number in range(self.first, NUM, self.step): yield image_of(number), number


class Named(Numbers):
    def __iter__(self): return ({'image': image, 'target': number, 'name': f'{number}.jpg'} for image, number in super().__iter__())


class Tensors(Numbers):
    def __iter__(self):
        for _, number in super().__iter__(): yield torch.full((3, 16, 16), number, dtype=torch.uint8), torch.tensor(number)


class Divided(Numbers):
    "As torch's docs say."
    def __iter__(self):
        info = get_worker_info()   # imported by name, as usual
        if info is not None: self.first, self.step = info.id, info.num_workers
        return super().__iter__()


class OfOneFile(Divided):
    "Divides itself, but all its samples look alike."
    def __iter__(self): return ((image_of(0), 0) for _ in super().__iter__())


class Drawn(IterableDataset):
    "Each worker has its own random numbers, from torch's seed of the worker."
    def __iter__(self):
        for _ in range(NUM): yield image_of(int(torch.randint(256, ()))), random.randrange(10**6)


class ByInit(Numbers):
    "Divided by the function that each worker calls at its start, as in torch's docs."


def divide(number):
    dataset = get_worker_info().dataset.dataset
    dataset.first, dataset.step = number, get_worker_info().num_workers


def divided_by_seeding(info):
    "timm's hook of a stream's reader."
    divide(info.id)
    return info.seed % 2**32


def loader_of(stream, num_workers=2, **settings):
    return create_loader(stream, 16, 2, num_workers=num_workers, device='cpu', no_aug=True, seed=0, **settings)


def read(loader, num_epochs=1) -> tuple[list, list]:
    "Targets of some epochs, and the warnings about workers."
    with warnings.catch_warnings(record=True) as found, loader:
        warnings.simplefilter('always')
        targets = [sorted(int(number) for batch in loader for number in (batch['target'] if isinstance(batch, dict) else batch[1]))
                   for _ in range(num_epochs)]
    return targets, [str(one.message) for one in found if 'began with the same sample' in str(one.message)]


@pytest.mark.parametrize('make, settings', [
    (Numbers, {}), (Named, dict(persistent_workers=False)), (Tensors, dict(use_prefetcher=False)), (lambda: ChainDataset([Numbers()]), {}),
    pytest.param(Tensors, dict(multiprocessing_context='spawn'), marks=pytest.mark.full)])
def test_a_stream_that_comes_once_per_worker_is_named_once(make, settings):
    "As often as with torch's own loader."
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


@pytest.mark.parametrize('num_workers', [0, 1])
def test_one_worker_may_read_everything(num_workers):
    (first,), found = read(loader_of(Numbers(), num_workers))
    assert first == [*range(NUM)] and found == []


def test_the_worker_still_gets_torchs_info():
    "Other attributes than those that divide a stream; after the first sample it is torch's own object."
    class Asking(IterableDataset):
        def __iter__(self):
            for _ in range(2):
                info = get_worker_info()
                yield image_of(0), info.id + 10 * info.num_workers + 100 * (info.dataset.dataset is not None) + 1000 * (info.seed > 0)
    assert read(loader_of(Asking(), 2))[0] == [[1120, 1120, 1121, 1121]]


# ---- what a worker process sets

class Told(ModuleType):
    "Stands in for OpenCV, which sets its threads for the whole process."
    threads = 99
    def setNumThreads(self, number): self.threads = number   # noqa: N802


class Threads:
    "What OpenCV and torch were told, as targets."
    def __len__(self): return 4
    def __getitem__(self, index): return image_of(0), sys.modules['cv2'].threads * 100 + torch.get_num_threads()


class ThreadsOfStream(Threads, IterableDataset):
    def __iter__(self): return (self[0] for _ in range(2) if get_worker_info().id >= 0)


@pytest.mark.parametrize('make', [Threads, ThreadsOfStream])
def test_opencv_uses_one_core_in_a_worker_process(make, monkeypatch):
    "As torch does: `setNumThreads(0)` is OpenCV's word for it. With 1, it ends threads that a forked copy does not have, and crashes."
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
