"""Everything that a batch needs is copied to its device at once, and nothing waits for the device.

On torch's device `meta`, tensors have shapes but no values, so reading one fails. On a GPU, torch is set to raise an error at each wait."""
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from grids import quick
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset

from timmdata import Mixup, NaFlex, NaFlexMixup, View, create_loader
from timmdata.loaders.device_cache import crop_batch, draw_crops
from timmdata.loaders.prefetch import map_tensors, move_to_device
from timmdata.pipeline.params import ParamSampler
from timmdata.samplers.keys import SampleKey
from timmdata.transforms import patch_erasing, random_erasing
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)
SSL = dict(color_jitter=(0.4, 0.4, 0.2, 0.1), color_jitter_prob=0.8, grayscale_prob=0.2, gaussian_blur_prob=0.5,
           gaussian_blur_radius=(0.1, 2.), solarize_prob=0.3)
NAFLEX = dict(naflex=NaFlex(mode='native', max_seq_len=64), input_size=None)


def mixing(**settings) -> dict: return {'mixup': Mixup(0.8, 1., num_classes=10, **settings), 'color_jitter': None}


WORKS = {
    'evaluation': dict(is_training=False), 'flips': dict(color_jitter=None, vflip=0.5), 'jitter': {},
    'bfloat16': dict(img_dtype=torch.bfloat16), 'contiguous': dict(channels_last=False),
    'const': dict(re_prob=0.8, re_count=3), 'rand': dict(re_prob=0.8, re_mode='rand'),
    'pixel': dict(re_prob=0.8, re_mode='pixel', re_count=2), 'batch': mixing(), 'elem': mixing(mode='elem'), 'pair': mixing(mode='pair'),
    'half': mixing(mode='half'), 'blend': mixing(switch_prob=0.), 'paste': mixing(switch_prob=1.),
    'random partners': mixing(partner='random'),
    'minmax': mixing(cutmix_minmax=(0.2, 0.6)), 'mixing and erasing': dict(mixup=Mixup(0.8, 1., num_classes=10), re_prob=0.5), 'SSL': SSL,
    'views': dict(views=[View(32, count=2, **SSL), View(16, count=2)], input_size=None, re_prob=0.5),
    'splits': dict(num_aug_splits=2, re_prob=0.5, re_split=True), 'policy': dict(auto_augment='rand-m9-mstd0.5', solarize_prob=0.5),
    'sequences': NAFLEX, 'sequences, erased': dict(re_prob=0.9, **NAFLEX), 'sequences, noise': dict(re_prob=0.9, re_mode='pixel', **NAFLEX),
    'sequences, mixed': dict(mixup=NaFlexMixup(num_classes=10), **NAFLEX), 'sequences, colors': dict(**SSL, **NAFLEX),
    'packed': dict(re_prob=0.5, naflex=NaFlex(mode='packed', max_seq_len=64), input_size=None, drop_last=False)}


def tensors_of(batch) -> list[torch.Tensor]:
    found = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, batch)
    return found


class Photographs(Dataset):
    def __len__(self): return 16
    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (40 + index, 52, 3), np.uint8)
        return Image.fromarray(pixels), index % 10


class Copies(TorchDispatchMode):
    "Record for each copy from the CPU to another device whether the CPU continues meanwhile."
    def __init__(self):
        super().__init__()
        self.noted = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, source, to = function.__name__.split('.')[0], args[0] if args else None, kwargs.get('device')
        if name == 'copy_': source, to = args[1], args[0].device
        if name in ('copy_', '_to_copy') and source.device.type == 'cpu' and to is not None and torch.device(to).type != 'cpu':
            self.noted.append(bool(kwargs.get('non_blocking', len(args) > 2 and args[2])))
        return function(*args, **kwargs)


class Peak(TorchDispatchMode):
    "Record the peak number of bytes of the tensors on `meta` that are made in the block."
    def __init__(self, *before: torch.Tensor):
        super().__init__()
        self.known, self.now, self.most = {one.untyped_storage()._cdata for one in before}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        map_tensors(self.note, made)
        return made

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage()
        name, size = memory._cdata, memory.nbytes()
        if tensor.device.type == 'meta' and name not in self.known:
            self.known.add(name)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(memory, self.forget, name, size)
        return tensor

    def forget(self, name: int, size: int):
        self.known.remove(name)
        self.now -= size


@pytest.mark.parametrize('name, most', [('flips', 1.3), ('jitter', 2.3), ('SSL', 3.4), ('const', 2.3)])
def test_memory_on_the_device(name, most):
    "The memory in multiples of a float32 batch, one of which is the result: changing the hue needed seven more."
    loader = loader_of(name)
    images = torch.empty(64, 96, 96, 3, dtype=torch.uint8, device='meta').permute(0, 3, 1, 2)
    target = torch.zeros(64, dtype=torch.int64, device='meta')
    with Peak(images, target) as peak:
        changed, _ = loader.batch_transform.on_batch((images, target), [SampleKey(k, 0, seed=1) for k in range(64)])
    assert peak.most <= most * 4 * images.numel() and changed.shape == images.shape


@contextmanager
def waits_are_errors() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode('error')
    try: yield
    finally: torch.cuda.set_sync_debug_mode('default')


def loader_of(name: str):
    given = {**dict(input_size=32, batch_size=8, is_training=True, seed=1, num_workers=0, device='cpu'), **WORKS[name]}
    return create_loader(Photographs(), **given)


@quick(1, 'is_drawn', [True, False], ids=['drawn', 'not drawn'])
@pytest.mark.parametrize('name', WORKS)
def test_no_value_is_read_and_all_numbers_are_copied_at_once(name, is_drawn, monkeypatch):
    def noise(seed, shape, like): return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    for module in random_erasing, patch_erasing: monkeypatch.setattr(module, 'keyed_noise', noise)   # `meta` has no generator
    loader = loader_of(name)
    loader.batch_transform.is_for_cpu = False   # as `create_loader` says of a loader for a GPU
    host = next(loader.loader.host_batches())
    assert host.drawn is not None
    moved = move_to_device(host.batch, torch.device('meta'))
    with Copies() as copies:
        changed = loader.batch_transform.on_batch(moved, host.keys, *([host.drawn] if is_drawn else []))
    here, there = tensors_of(loader.batch_transform.on_batch(host.batch, host.keys)), tensors_of(changed)
    assert {tensor.device.type for tensor in there} == {'meta'}
    assert [(one.shape, one.dtype) for one in there] == [(one.shape, one.dtype) for one in here]
    num = 2 if name in ('views', 'packed') else len(copies.noted) if 'noise' in name else 1   # a copy for each view, and for bounds
    assert len(copies.noted) == num and all(copies.noted), copies.noted


@pytest.mark.parametrize('mode', ['constant', 'reflect'])
def test_cached_images_are_cropped_without_waiting(mode):
    sampler = ParamSampler(AugmentSettings(32, is_training=True, train_crop_mode='rc', rc_padding=4, padding_mode=mode))
    crops = draw_crops(sampler, [SampleKey(k, 0) for k in range(8)], range(8), (32, 32))
    with Copies() as copies: rows = crop_batch(torch.empty(20, 3, 32, 32, dtype=torch.uint8, device='meta'), crops, sampler)
    assert rows.shape == (8, 3, 32, 32) and copies.noted == [True] * (1 + (mode == 'constant'))


@pytest.mark.gpu
@pytest.mark.parametrize('name', WORKS)
def test_a_gpu_is_never_waited_for(name):
    loader = loader_of(name)
    loader.batch_transform.is_for_cpu = False
    for host in loader.loader.host_batches():
        batch = move_to_device(map_tensors(torch.Tensor.pin_memory, host.batch), torch.device('cuda'))
        loader.batch_transform.on_batch(batch, host.keys)   # torch compiles and allocates with the first
        torch.cuda.synchronize()
        with waits_are_errors(): changed = loader.batch_transform.on_batch(batch, host.keys, host.drawn)
        expected = loader.batch_transform.on_batch(host.batch, host.keys)
        if 'pixel' in name or 'rand' in name or 'noise' in name: continue   # each device has its own noise
        for there, here in zip(tensors_of(changed), tensors_of(expected), strict=True):
            torch.testing.assert_close(there.cpu(), here, rtol=0, atol=2e-2)
