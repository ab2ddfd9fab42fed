"What surrounds a loop (torch's autocast, default dtype and device, …, NumPy's and Python's warnings) does not change its batches."
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from grids import few
from loader_parts import nothing_is_left
from PIL import Image
from torch.utils.data import Dataset, IterableDataset
from torchvision.transforms import v2

from timmdata import Mixup, NaFlex, View, create_loader

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM = 9


# ---- what surrounds the loop

@contextmanager
def default(setter: Callable, value, before) -> Iterator[None]:
    setter(value)
    try: yield
    finally: setter(before)


@contextmanager
def warnings_as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        yield


def default_dtype(dtype: torch.dtype): return default(torch.set_default_dtype, dtype, torch.float32)


AROUND = {
    'autocast': lambda: torch.autocast('cpu', torch.bfloat16), 'device': lambda: default(torch.set_default_device, 'meta', None),
    'with device': lambda: torch.device('meta'), 'float64': lambda: default_dtype(torch.float64),
    'bfloat16': lambda: default_dtype(torch.bfloat16), 'float16': lambda: default_dtype(torch.float16),
    'inference': torch.inference_mode, 'no_grad': torch.no_grad,
    'deterministic': lambda: default(torch.use_deterministic_algorithms, True, False),
    'errstate': lambda: np.errstate(all='raise'), 'warnings': warnings_as_errors}


# ---- what is read

def image_of(index: int) -> Image.Image:
    rng = np.random.default_rng(index)
    return Image.fromarray(rng.integers(0, 256, (40 + index, 52, 3), np.uint8))


class Images(Dataset):
    "Noise with its index as target."
    def __len__(self): return NUM
    def __getitem__(self, index): return image_of(index), index


class Passing(IterableDataset):
    "The same, without an index; each worker reads its share."
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        numbers = range(worker.id, NUM, worker.num_workers) if worker else range(NUM)
        return ((image_of(index), index) for index in numbers)


def crop(image): return v2.RandomCrop(24)(image)


JITTER = dict(color_jitter=(0.4, 0.4, 0.4, 0.1), grayscale_prob=0.2, is_training=True)
ALL = dict(**JITTER, gaussian_blur_prob=0.7, gaussian_blur_radius=(0.05, 2.), solarize_prob=0.3, re_prob=0.7, re_mode='pixel')
KINDS = {
    'training': ALL, 'evaluation': dict(crop_pct=0.9), 'no prefetcher': dict(**ALL, use_prefetcher=False),
    'exact': dict(**JITTER, color_jitter_mode='exact', gaussian_blur_prob=0.7, auto_augment=None),
    'contiguous': dict(**ALL, channels_last=False, img_dtype=torch.bfloat16),
    'views': dict(input_size=None, views={'a': View(24, color_jitter=(0.4,) * 3, grayscale_prob=0.5), 'b': View(16, count=2)},
                  is_training=True),
    'packed': dict(input_size=None, naflex=NaFlex(mode='packed', patch_size=8, train_seq_lens=[48], row_len=96,
                                                          image_sizes=[(40 + index, 52) for index in range(NUM)]), **JITTER),
    'mixup': dict(**JITTER, mixup=Mixup(mixup_alpha=0.05, cutmix_alpha=1., mode='elem', num_classes=NUM)),
    'one mixture': dict(**JITTER, mixup=Mixup(mixup_alpha=0.05, num_classes=NUM)),
    'own transform': dict(transform=crop, is_training=True, use_prefetcher=False, re_prob=0.5, re_mode='rand'),
    'weights': dict(weights='balanced', is_training=True), 'classes': dict(balanced_batches=True, is_training=True),
    'repeats': dict(num_aug_repeats=2, is_training=True), 'own sampler': dict(sampler='random', is_training=True),
    'stream': dict(**JITTER, dataset='stream'), 'stream alone': dict(**ALL, dataset='stream', use_prefetcher=False)}
WORKERS = {'inline': dict(num_workers=0), 'threads': dict(num_workers=2, worker_type='threads'),
           'processes': dict(num_workers=2, worker_type='processes')}


def tensors(batch) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor): return [batch]
    if isinstance(batch, dict): batch = batch.values()
    return [tensor for part in batch for tensor in tensors(part)] if isinstance(batch, (type({}.values()), list, tuple)) else []


def loader_of(kind: str, who: str):
    settings = {'input_size': 24, 'drop_last': False, 'device': 'cpu', **KINDS[kind], **WORKERS[who]}
    dataset = Passing() if settings.pop('dataset', None) else Images()
    if dataset.__class__ is Passing: settings.pop('worker_type', None)
    else: dataset.targets = list(range(NUM))
    if settings.get('sampler') == 'random': settings['sampler'] = torch.utils.data.RandomSampler(dataset)
    return create_loader(dataset, batch_size=4, seed=3, **settings)


def batches(kind: str, who: str = 'inline') -> list[list[torch.Tensor]]:
    loader = loader_of(kind, who)
    found = [tensors(batch) for batch in loader]
    if who == 'inline' and 'stream' not in kind:
        for number in (0, len(found) - 1):
            again = tensors(loader.replay(0, number).batch)
            for a, b in zip(again, found[number], strict=True): assert torch.equal(a, b)
    loader.close()
    return found


reference = cache(batches)


def assert_unchanged(around: str, kind: str, who: str):
    expected = reference(kind, who if 'stream' in kind else 'inline')   # workers divide a stream
    with AROUND[around](): found = batches(kind, who)
    assert len(found) == len(expected) > 0
    for batch, other in zip(found, expected, strict=True):
        for a, b in zip(batch, other, strict=True):
            assert (a.dtype, a.device, a.shape, a.stride()) == (b.dtype, b.device, b.shape, b.stride())
            assert torch.equal(a, b)
            assert not a.is_inference() and not a.requires_grad


GRID = [(around, kind, 'inline') for around in AROUND for kind in KINDS]
ORDINARY = [case for case in GRID if case[0] in ('autocast', 'device', 'bfloat16') or case[1] in ('training', 'packed')]


@pytest.mark.parametrize('case', few(GRID, *ORDINARY))
def test_batches_without_workers(case):
    torch.set_num_threads(1)   # all work is done in the thread of the loop, which has the settings
    assert_unchanged(*case)


FEW = [('bfloat16', 'training', 'threads'), ('autocast', 'exact', 'threads'), ('device', 'packed', 'threads'),
       ('bfloat16', 'exact', 'processes'), ('inference', 'training', 'processes'), ('inference', 'stream', 'processes')]
PROCESSES_ALONE = 'stream', 'stream alone', 'own transform'   # torch's workers are processes; the transform draws global numbers


@pytest.mark.parametrize('case', few(
    [(around, kind, who) for around in AROUND for kind in KINDS for who in ('threads', 'processes')
     if kind not in PROCESSES_ALONE or who == 'processes'], *FEW))
def test_batches_with_workers(case): assert_unchanged(*case)


# ---- code of the user

class Asking:
    "A transform that notes the settings of torch where it runs."
    def __init__(self): self.found = []

    def __call__(self, image):
        self.found.append((torch.is_autocast_enabled('cpu'), torch.zeros(1).device.type, torch.is_inference_mode_enabled(),
                           torch.is_grad_enabled()))
        return image.resize((24, 24))


@pytest.mark.parametrize('around', ['autocast', 'device', 'with device', 'inference', 'no_grad'])
@pytest.mark.parametrize('dataset', [Images, Passing])
def test_code_of_the_user_runs_as_in_a_worker(around, dataset):
    "What it sees with threads, it sees without workers, too; after the loop, the settings are what they were."
    asking = Asking()
    with AROUND[around]():
        before = torch.is_autocast_enabled('cpu'), torch.empty(0).device, torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        list(create_loader(dataset(), 24, 4, transform=asking, num_workers=0, device='cpu'))
        after = torch.is_autocast_enabled('cpu'), torch.empty(0).device, torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    assert set(asking.found) == {(False, 'cpu', False, True)} and before == after


def test_code_of_the_user_keeps_the_default_dtype_of_the_process():
    "It belongs to the process: a change would reach other threads."
    def gray(image): return torch.full((3, 24, 24), 0.5)
    for workers in ('inline', 'threads'):
        with AROUND['float64']():
            loader = create_loader(Images(), 24, 3, transform=gray, mean=None, std=None, collate_fn=list, use_prefetcher=False,
                                   **WORKERS[workers])
            assert {image.dtype for samples in loader for image, _ in samples} == {torch.float64}
            loader.close()
