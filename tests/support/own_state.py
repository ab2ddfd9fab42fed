"Datasets and transforms with their own state: random generators in many places, and what changes from epoch to epoch."
import random
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

PIXELS = np.zeros((8, 8, 3), np.uint8)
GENERATORS = {
    'numpy': lambda: np.random.default_rng(0), 'philox': lambda: np.random.Generator(np.random.Philox(0)),
    'legacy': lambda: np.random.RandomState(0), 'legacy philox': lambda: np.random.RandomState(np.random.Philox(0)),
    'python': lambda: random.Random(0), 'torch': lambda: torch.Generator().manual_seed(0)}
SHARED = np.random.default_rng(0)


def draw(rng) -> int:
    "A number of twenty bits from any generator."
    if isinstance(rng, np.random.Generator): return int(rng.integers(2**20))
    if isinstance(rng, np.random.RandomState): return int(rng.randint(2**20))
    if isinstance(rng, torch.Generator): return int(torch.randint(2**20, (), generator=rng))
    return rng.randrange(2**20)


class Drawing(Dataset):
    "Its targets are the results of a function."
    def __init__(self, function, size=16): self.function, self.size = function, size
    def __len__(self): return self.size
    def __getitem__(self, index): return Image.fromarray(PIXELS), self.function()


class Own(Dataset):
    "Draws its targets from its own generator."
    def __init__(self, rng, size=16): self.rng, self.size = rng, size
    def __len__(self): return self.size
    def __getitem__(self, index): return Image.fromarray(PIXELS), draw(self.rng)


class Slots:
    __slots__ = 'rng'
    def __init__(self, rng): self.rng = rng
    def __call__(self): return draw(self.rng)


class Wrapper(Dataset):
    "Holds a dataset in an attribute."
    def __init__(self, inner): self.inner = inner
    def __len__(self): return len(self.inner)
    def __getitem__(self, index): return self.inner[index]


class Method:
    "Passes on one of its methods, and references itself."
    def __init__(self, rng): self.rng, self.me = rng, self
    def draw(self): return draw(self.me.rng)


class Steps:
    def __init__(self, *steps): self.steps = [*steps]
    def __call__(self): return self.steps[-1]()


class OfClass(Own):
    "All objects of the class share its generator."
    rng = np.random.default_rng(0)
    def __init__(self): self.size = 16


def around(rng): return lambda: draw(rng)
def by_default(rng): return eval('lambda rng=rng: draw(rng)', {'draw': draw, 'rng': rng})
def draw_shared(): return draw(SHARED)


# place → dataset with a given generator there
PLACES = {
    'attribute': Own, 'wrapper': lambda rng: Wrapper(Own(rng)), 'subset': lambda rng: torch.utils.data.Subset(Own(rng), range(16)),
    'parts': lambda rng: torch.utils.data.ConcatDataset([Own(rng, 7), Own(rng, 9)]),
    'nested': lambda rng: Drawing(Steps(None, Slots(rng))), 'closure': lambda rng: Drawing(around(rng)),
    'default': lambda rng: Drawing(by_default(rng)), 'partial': lambda rng: Drawing(partial(draw, rng=rng)),
    'method': lambda rng: Drawing(Method(rng).draw), 'tuple': lambda rng: Drawing(partial(draw, *(rng,)))}


class Transform:
    "A transform that draws a pixel value; its generator is found below a list."
    def __init__(self, rng): self.parts = [{'rng': rng}]
    def __call__(self, image): return torch.full((3, 8, 8), draw(self.parts[0]['rng']) % 256, dtype=torch.uint8)


class Collate:
    def __init__(self, rng): self.rng = rng
    def __call__(self, samples): return torch.zeros(len(samples), 3, 8, 8, dtype=torch.uint8), torch.tensor([draw(self.rng)])


class Epochs(Dataset):
    "Its targets say which epoch it was told; each call makes an array."
    def __init__(self, size=8): self.size, self.epoch, self.shade = size, None, 0
    def __len__(self): return self.size
    def set_epoch(self, epoch): self.epoch, self.order = epoch, np.arange(1000) * epoch
    def __getitem__(self, index): return Image.fromarray(PIXELS + np.uint8(self.shade)), [index, self.epoch, int(self.order[1])]
