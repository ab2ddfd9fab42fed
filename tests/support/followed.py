"Data whose masks, boxes and points must follow the image; importable, so that spawned workers find it."
import io
import json
import math
import random
from collections import namedtuple

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from timmdata import Boxes, Mask, Points, create_loader
from timmdata.pipeline.follow import Follower

LEVELS = 20   # gray levels from one label to the next in `Painted`; black is what padding has
OUTSIDE = 255
PLAIN = dict(seed=3, device='cpu', num_workers=0, mean=0., std=1 / 255)   # batches have gray levels
TRAIN = dict(**PLAIN, is_training=True, color_jitter=None, vflip=0.5)
Sample = namedtuple('Sample', 'image target mask')


def labels_of(index: int) -> np.ndarray:
    "Labels 0..10 of an image, in rectangles of a few pixels; each image has a different size."
    rng = np.random.default_rng(index)
    height, width = rng.integers(40, 120, 2)
    small = rng.integers(0, 11, (height // 7 + 1, width // 7 + 1)).astype(np.uint8)
    return np.asarray(Image.fromarray(small).resize((int(width), int(height)), Image.Resampling.NEAREST))


def paint(labels: np.ndarray) -> Image.Image:
    "An image whose colors are the labels."
    return Image.fromarray(np.repeat((labels[..., None] + 1) * np.uint8(LEVELS), 3, 2))


def read_labels(images: torch.Tensor) -> torch.Tensor:
    "The labels of images (N, C, H, W) with gray levels: black is outside."
    levels = (images.float().mean(1) / LEVELS).round().long() - 1
    return levels.where(levels >= 0, OUTSIDE)


def saved(image: Image.Image, **settings) -> bytes:
    data = io.BytesIO()
    image.save(data, 'PNG', **settings)
    return data.getvalue()


def png(array: np.ndarray) -> bytes: return saved(Image.fromarray(array))


def box_of(mask: np.ndarray) -> np.ndarray | None:
    "The box around what is not 0 in a mask."
    found = np.argwhere(mask)[:, ::-1]
    return np.concatenate([found.min(0), found.max(0) + 1]) if len(found) else None


def targets_in(index: int) -> dict:
    "Boxes, labels and points of an image: as many boxes as its index mod 4, labels that name them."
    rng = np.random.default_rng(1000 + index)
    height, width = labels_of(index).shape
    count = index % 4
    corners = np.sort(rng.uniform(0, 1, (count, 2, 2)), 1) * [width, height]
    return {'boxes': corners.reshape(count, 4).astype(np.float32), 'labels': torch.arange(count) + 10 * index,
            'points': np.column_stack([rng.uniform(0, width - 1, 5), rng.uniform(0, height - 1, 5), np.full(5, 2)]), 'id': index}


class Painted(torch.utils.data.Dataset):
    "Images whose colors are the labels in their masks, in a form: 'tuple', 'list', 'named', 'dict' or 'nested'."

    def __init__(self, num: int = 24, form: str = 'tuple'): self.num, self.form = num, form
    def __len__(self): return self.num

    def __getitem__(self, index):
        labels = labels_of(index)
        return self.formed(index, paint(labels), Image.fromarray(labels))

    def formed(self, index, image, mask):
        if self.form == 'dict': return {'image': image, 'target': index, 'mask': mask}
        if self.form == 'nested': return image, {'mask': mask, **targets_in(index)}
        return {'tuple': tuple, 'list': list, 'named': lambda values: Sample(*values)}[self.form]((image, index, mask))


class TwoRegions(Painted):
    "Larger images, black and white; white is label 1."
    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        height, width = rng.integers(250, 400, 2)
        small = Image.fromarray((rng.random((3, 4)) > 0.5).astype(np.uint8))
        mask = small.resize((int(width), int(height)), Image.Resampling.NEAREST)
        return self.formed(index, mask.point(lambda label: 255 * label).convert('RGB'), mask)


class Broken(Painted):
    "Its mask, or its boxes, are something else for one index."
    def __init__(self, value, at=5, field='mask', **form): super().__init__(**form); self.value, self.at, self.field = value, at, field

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index != self.at: return sample
        value = self.value(labels_of(index)) if callable(self.value) else self.value
        if self.form == 'nested': return sample[0], {**sample[1], self.field: value}
        return {**sample, self.field: value} if self.form == 'dict' else (*sample[:2], value)


class Endless(torch.utils.data.IterableDataset):
    "The same samples, as a stream."
    def __init__(self, base): self.base = base
    def __len__(self): return len(self.base)
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (self.base[k] for k in range(first, len(self.base), step))


class Noisy(Follower):
    "A user's follower that draws from all three generators."
    def __call__(self, value, geometry):
        moved = np.asarray(geometry.warp(value, OUTSIDE))
        drawn = torch.tensor([random.random(), float(np.random.rand()), float(torch.rand(()))])
        return drawn.double(), torch.from_numpy(moved.copy())


class OwnGenerator:
    "A function with its own generator."
    def __init__(self): self.rng = random.Random(0)
    def __call__(self, value, geometry): return torch.tensor(self.rng.random())


NESTED = {'target.mask': Mask(), 'target.boxes': Boxes(min_side=2, also=['labels']), 'target.points': Points()}


def batches(dataset, follow, size=48, **given) -> list:
    "All batches of a loader, copied."
    settings = {**TRAIN, 'batch_size': 4, **given}
    if not settings.get('use_prefetcher', True): del settings['device'], settings['mean'], settings['std']
    loader = create_loader(dataset, size, follow=follow, **settings)
    try: return [copied(batch) for batch in loader]
    finally: loader.close()


def copied(value):
    if isinstance(value, torch.Tensor): return value.clone()
    if isinstance(value, dict): return {name: copied(one) for name, one in value.items()}
    return type(value)(map(copied, value)) if type(value) in (tuple, list) else value


def is_same(some, others) -> bool:
    "Return whether two values are bit-identical in all their parts."
    if isinstance(some, torch.Tensor): return isinstance(others, torch.Tensor) and some.dtype == others.dtype and torch.equal(some, others)
    if isinstance(some, dict): return some.keys() == others.keys() and all(is_same(some[name], others[name]) for name in some)
    if isinstance(some, (tuple, list)): return len(some) == len(others) and all(map(is_same, some, others))
    return some == others


def beside_torchvision(value: torch.Tensor, geometry, fill=0):
    """Move a tv_tensor as torchvision does, given our numbers. Its points count from pixel centers when they are flipped, and from the
    corner otherwise; here they always come from the corner."""
    params, (height, width) = geometry.params, geometry.size
    nearest = dict(interpolation=InterpolationMode.NEAREST_EXACT) if isinstance(value, tv_tensors.Image) else {}
    value = F.crop(value, *params.crop)
    value = F.resize(value, list(params.size), **nearest)
    top, left = params.offset
    below, right = height + top - params.size[0], width + left - params.size[1]
    value = F.pad(value, [max(0, -left), max(0, -top), max(0, right), max(0, below)], fill=fill)
    value = F.crop(value, max(0, top), max(0, left), height, width)
    for is_flipped, flip in ((geometry.hflip, F.horizontal_flip), (geometry.vflip, F.vertical_flip)):
        if not is_flipped: continue
        half = 0.5 * isinstance(value, tv_tensors.KeyPoints)
        value = tv_tensors.wrap(flip(tv_tensors.wrap(value - half, like=value)) + half, like=value)
    for op in geometry.moves: value = apply_beside(value, op, geometry.size, fill)
    return value


def apply_beside(value: torch.Tensor, op, size, fill) -> torch.Tensor:
    "An operation of a policy, as torchvision's own policies call it: shears are about the corner."
    if op.name == 'Rotate': return F.rotate(value, op.value, fill=fill)
    given = dict(angle=0., translate=[0., 0.], scale=1., shear=[0., 0.], fill=fill)
    axis = 'XY'.index(op.name.removesuffix('Rel')[-1])
    if op.name.startswith('Shear'):
        given['shear'][axis] = math.degrees(math.atan(op.value))
        return F.affine(value, **given, center=[0, 0])
    given['translate'][axis] = -op.value * size[1 - axis]   # of the relative ones
    return F.affine(value, **given)


def run_followed_rank(rank: int, init_file: str, out: str):
    "One of two processes of a distributed run: the sums of each image and its mask, by the index of the sample."
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=2)
    found = {}
    for images, targets, masks in batches(Painted(), {2: Mask()}, distributed=True):
        for image, index, mask in zip(images, targets.tolist(), masks): found[index] = [image.sum().item(), mask.sum().item()]
    dist.barrier()
    with open(f'{out}{rank}.json', 'w') as file: json.dump(found, file)
    dist.destroy_process_group()
