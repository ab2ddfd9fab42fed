"Shared by the tests of workers and loaders: a loader that draws everything, kinds of workers, comparisons."
import threading
import time
from contextlib import nullcontext

import pytest
import torch
from grids import quick
from loader_parts import Coded, Noise, children
from torch.utils.data import Subset

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.workers import shared_memory

INLINE, THREADS, PROCESSES = dict(num_workers=0), dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes')
BOTH = quick(1, 'settings', [THREADS, PROCESSES], ids=['threads', 'processes'])
ALL = quick(2, 'settings', [INLINE, THREADS, PROCESSES], ids=['inline', 'threads', 'processes'])
NUM, BATCH = 22, 4   # samples and batch size of `training`: five full batches, and two samples that are dropped


class FakeStream:
    "A side stream on the CPU, whose work is done at once."
    work = staticmethod(nullcontext)
    def ready(self): return None
    def is_done(self, event): return True
    def wait(self, event): pass
    def hand_over(self, tensors, event): time.sleep(0.01)   # the thread goes ahead


def large_tensors_begin_small(monkeypatch):
    "For a fixture: batches below 64 kB are pickled as they are; those of the tests are small, and shall go through shared memory."
    monkeypatch.setattr(shared_memory, 'LARGE', 256)


def few_images(samples) -> Subset:
    "A few photographs; a Subset, so that indexes are translated."
    return Subset(ImageDataset(samples), range(3, 3 + 14 * NUM, 14))


def training(dataset, **settings):
    "A loader that draws crops, flips, colors, blurs and erased noise."
    return create_loader(dataset, **{**dict(input_size=24, batch_size=BATCH, is_training=True, seed=3, re_prob=0.5,
        re_mode='pixel', re_count=2, gaussian_blur_prob=0.3, grayscale_prob=0.2, device='cpu'), **settings})


def copied(batch): return [part.clone() for part in batch]


def collected(loader) -> list: return [copied(batch) for batch in loader]


def assert_equal(a: list, b: list):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert len(x) == len(y) and all(torch.equal(p, q) for p, q in zip(x, y, strict=True))


def notes(error: Exception) -> str:
    "Return the notes of an error; Python 3.10 has none."
    if not hasattr(error, 'add_note'): pytest.skip('errors have notes from Python 3.11 on')
    return '\n'.join(error.__notes__)


def workers() -> list:
    "Processes and threads of loaders; the thread of requests to stores serves all, until the program ends."
    own = [thread for thread in threading.enumerate() if thread.name.startswith('timmdata')]
    return [*children(), *(thread for thread in own if thread.name != 'timmdata-store')]


def noise(**settings):
    return torch.cat([images.clone() for images, _ in create_loader(Coded(16), 4, 4, transform=Noise(), seed=1,
                                                                    use_prefetcher=False, **settings)])
