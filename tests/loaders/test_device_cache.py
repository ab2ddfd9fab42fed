"Images that stay on the device: the same batches as without the cache; and datasets that return tensors on a device."
import sys
from collections import UserDict

import numpy as np
import pytest
import torch
from grids import quick
from loader_parts import Coded, nothing_is_left
from PIL import Image
from torch.utils.data import Subset

from timmdata import ImageDataset, create_loader

pytestmark = pytest.mark.timeout(60)
clean = pytest.fixture(autouse=True)(nothing_is_left)
DEVICES = ['cpu', pytest.param('cuda', marks=pytest.mark.gpu)]


class Pictures(torch.utils.data.Dataset):
    "Pictures with structure, 32 × 28."
    def __init__(self, num=70):
        rng = np.random.default_rng(0)
        small = rng.integers(0, 256, (num, 7, 8, 3), np.uint8)
        self.images = [Image.fromarray(one).resize((32, 28), Image.Resampling.BICUBIC) for one in small]

    def __len__(self): return len(self.images)
    def __getitem__(self, index): return self.images[index], index


@pytest.fixture(scope='module')
def pictures(): return Pictures()


SETTINGS = {
    'shifted': dict(is_training=True, train_crop_mode='rc', rc_padding=4),
    'with colors': dict(is_training=True, train_crop_mode='rc', color_jitter=(0.4, 0.4, 0.4, 0.1)),
    'erased': dict(is_training=True, train_crop_mode='rc', re_prob=0.5, re_mode='pixel', vflip=0.5, grayscale_prob=0.3),
    'reflected': dict(is_training=True, train_crop_mode='rc', rc_padding=6, padding_mode='reflect'),
    'edge': dict(is_training=True, train_crop_mode='rc', rc_padding=6, padding_mode='edge'),
    'symmetric': dict(is_training=True, train_crop_mode='rc', rc_padding=6, padding_mode='symmetric'),
    'smaller': dict(is_training=True, train_crop_mode='rc', input_size=(20, 24)),
    'no_aug': dict(is_training=True, no_aug=True), 'evaluation': dict(crop_pct=1),
    'center': dict(input_size=24, crop_pct=24 / 28), 'squash': dict(input_size=(28, 32), crop_pct=1, crop_mode='squash'),
    'border': dict(input_size=32, crop_mode='border', crop_pct=1.),
    'border cut off': dict(crop_border_pixels=3, input_size=22, crop_pct=1)}


@pytest.mark.parametrize('device', DEVICES)
@quick(4, 'name', SETTINGS)
def test_batches_are_those_of_the_ordinary_path(pictures, name, device):
    settings = dict(input_size=28, batch_size=16, seed=3, num_workers=0, device=device, color_jitter=None) | SETTINGS[name]
    cached, plain = (create_loader(pictures, cache=cache, **settings) for cache in ('device', None))
    for _ in range(2):
        for (images, targets), (expected, expected_targets) in zip(cached, plain, strict=True):
            assert images.device.type == device and torch.equal(targets, expected_targets)
            assert images.is_contiguous(memory_format=torch.channels_last) and torch.equal(images, expected)


@pytest.mark.parametrize('settings', [
    {}, dict(train_crop_mode='rkrc'), dict(train_crop_mode='rkrr'), dict(train_crop_mode='rc', gaussian_blur_prob=0.1)])
def test_crops_that_are_resized_in_training_are_refused_when_the_loader_is_made(pictures, settings):
    with pytest.raises(ValueError, match="Use train_crop_mode='rc' .* or cache='memory'"):
        create_loader(pictures, 28, 16, is_training=True, cache='device', device='cpu', **settings)


def test_crops_are_torchvisions(pictures):
    "Cut out the drawn crop with torchvision's functions."
    from torchvision.transforms.v2 import functional as F
    loader = create_loader(pictures, 28, 16, is_training=True, train_crop_mode='rc', rc_padding=4, color_jitter=None, hflip=0,
                           mean=0, std=1 / 255, seed=3, device='cpu', num_workers=0)
    replayed = loader.replay(0, batch=0)
    for image, target, choice in zip(*replayed.batch, replayed.sample_params):
        padded = F.pad(F.pil_to_tensor(pictures[int(target)][0]), [4])
        top, left = (choice.crop[k] + choice.offset[k] + 4 for k in (0, 1))
        assert torch.equal(image.byte(), F.crop(padded, top, left, 28, 28))


def test_read_once_and_only_then(pictures):
    class Counting(Pictures):
        reads = 0
        def __getitem__(self, index):
            Counting.reads += 1
            return super().__getitem__(index)
    loader = create_loader(Counting(20), 16, 4, is_training=True, train_crop_mode='rc', cache='device', persistent_workers=False,
                           device='cpu')
    assert Counting.reads == 0
    for _ in range(3): list(loader)
    assert Counting.reads == 20 and 'cached on cpu' in repr(loader)


def test_states_and_replays(pictures):
    def made(**kwargs): return create_loader(
        pictures, 16, 16, is_training=True, train_crop_mode='rc', cache='device', device='cpu', **kwargs)
    loader = made(seed=4)
    whole = [images.clone() for _ in range(2) for images, _ in loader]
    loader = made(seed=4)
    for number, _ in enumerate(loader):
        if number == 1: break
    resumed = made()
    resumed.load_state_dict(loader.state_dict())
    rest = [images.clone() for _ in range(2) for images, _ in resumed]
    assert len(rest) == 6 and all(map(torch.equal, rest, whole[2:]))
    assert torch.equal(made(seed=4).replay(1, batch=2).batch[0], whole[6])
    with pytest.raises(ValueError, match='cached was True, is False'):
        create_loader(pictures, 16, 16, is_training=True, train_crop_mode='rc', seed=4, device='cpu').load_state_dict(loader.state_dict())


def test_subsets_files_and_skipped_samples(tmp_path):
    for k in range(12):
        (tmp_path/f'class{k % 3}').mkdir(exist_ok=True)
        Image.new('RGB', (20, 20), (20 * k, 0, 0)).save(tmp_path/f'class{k % 3}'/f'{k}.png')
    (tmp_path/'class0'/'9.png').write_bytes(b'damaged')
    dataset = ImageDataset(tmp_path, on_error='skip')
    part = Subset(dataset, [3, 0, 7, 11, 5])
    loader = create_loader(part, 20, 2, cache='device', mean=0, std=1 / 255, crop_pct=1., device='cpu')
    seen = [(round(float(image[0].mean())) // 20, int(target)) for images, targets in loader for image, target in zip(images, targets)]
    names = [int(dataset.filename(index, basename=True)[:-4]) for index in (3, 0, 7, 11, 5)]
    assert seen == [(name, name % 3) for name in names if name != 9] and len(seen) == 4 and len(dataset.bad_samples) == 1
    with pytest.raises(OSError, match='9.png'): list(create_loader(ImageDataset(tmp_path), 20, 2, crop_pct=1, cache='device', device='cpu'))


def test_without_the_prefetcher_and_as_dicts(pictures):
    class Fields(Pictures):
        def __getitem__(self, index): return {'image': self.images[index], 'target': index, 'name': f'{index}.png'}
    settings = dict(input_size=(28, 32), batch_size=8, crop_pct=1, use_prefetcher=False, num_workers=0)
    cached, plain = (create_loader(Fields(20), cache=cache, **settings) for cache in ('device', None))
    for batch, expected in zip(cached, plain, strict=True):
        assert batch['name'] == expected['name'] and torch.equal(batch['target'], expected['target'])
        assert torch.equal(batch['image'], expected['image'])


def python_calls(num: int) -> int:
    "Count the Python functions that run in an epoch of one batch."
    called = []
    loader = create_loader(Pictures(num), (28, 32), num, is_training=True, train_crop_mode='rc', rc_padding=4, color_jitter=None,
                           cache='device', device='cpu', seed=0).loader
    list(loader.host_batches())
    assert loader.cache.images.is_contiguous(memory_format=torch.channels_last)
    before = torch.get_num_threads()
    torch.set_num_threads(1)   # so that the batch is made in this thread
    sys.setprofile(lambda frame, event, _: called.append(1) if event == 'call' else None)
    try: list(loader.host_batches())
    finally:
        sys.setprofile(None)
        torch.set_num_threads(before)
    return len(called)


def test_a_sample_more_costs_few_calls():
    "The numbers and pixels of a sample are drawn and looked up with those of its batch, in channels-last memory."
    assert (python_calls(512) - python_calls(256)) / 256 < 10


def test_a_cpu_makes_batches_on_one_core():
    "Several torch threads would wait for each other. The consumer's setting does not change."
    seen = []

    class Fields(UserDict):
        def __getitem__(self, name):
            if not isinstance(self.data['target'], torch.Tensor): seen.append(torch.get_num_threads())   # not yet a batch
            return super().__getitem__(name)

    class Noting(Pictures):
        def __getitem__(self, index): return Fields(image=self.images[index], target=index)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with create_loader(Noting(20), (28, 32), 16, crop_pct=1., cache='device', device='cpu', use_prefetcher=False) as loader:
            list(loader)
            seen.clear()
            assert [batch['target'].tolist() for batch in loader] == [[*range(16)], [*range(16, 20)]] and torch.get_num_threads() == 2
    finally: torch.set_num_threads(before)
    assert set(seen) == {1}


# ---- devices and worker processes

class OnDevice(Coded):
    "Return tensors on a different device, as the image or as another field."
    def __init__(self, num, field): super().__init__(num); self.field = field

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        if self.field == 'image': return torch.zeros(3, 8, 8, device='meta'), target
        if self.field == 'target': return image, torch.tensor(target, device='meta')
        return {'image': image, 'target': target, 'box': torch.zeros(4, device='meta')}


@pytest.mark.parametrize('context', ['fork', pytest.param('spawn', marks=pytest.mark.full)])
@quick(1, 'field', ['image', 'target', 'dict'])
def test_tensors_on_a_device_are_refused_in_worker_processes(field, context):
    if context == 'spawn' and field != 'image': pytest.skip('one of them is enough')
    transform = torch.nn.Identity() if field == 'image' else None
    loader = create_loader(OnDevice(8, field), 8, 4, num_workers=1, worker_type='processes', transform=transform,
                           multiprocessing_context=context, device='cpu')
    with pytest.raises(RuntimeError, match='tensor on meta in a worker process: return CPU tensors'): list(loader)


@pytest.mark.gpu
def test_cuda_in_a_forked_worker_is_explained():
    class OnGpu(Coded):
        def __getitem__(self, index): return torch.zeros(3, 8, 8, device='cuda'), index
    torch.zeros(1, device='cuda')
    loader = create_loader(OnGpu(8), 8, 4, num_workers=1, worker_type='processes', transform=torch.nn.Identity(),
                           multiprocessing_context='fork')
    with pytest.raises(RuntimeError) as caught: list(loader)
    assert 'CPU tensors' in str(caught.value) + ' '.join(getattr(caught.value, '__notes__', []))
