"A user's script for the type checker: its types, and mistakes that it finds. A mistake that it passes over is an unused comment: an error."
from typing import assert_type

from torch import Tensor

from timmdata import ImageDataset, create_loader, relabel  # noqa: F401
from timmdata.loaders import Loader

dataset = ImageDataset('photos')
train = create_loader(dataset, (3, 224, 224), 32, is_training=True, auto_augment='rand-m9-mstd0.5', seed=0)
assert_type(train, Loader[tuple[Tensor, ...]])
for epoch in range(2):
    train.set_epoch(epoch)
    for images, targets in train:
        loss = images.mean() + targets.sum()
state = train.state_dict()
train.load_state_dict(state)
batch = train.replay(0, 3).batch
train.close()

train.sate_dict()   # pyrefly: ignore[missing-attribute]
create_loader(dataset, 224, 32, is_trainin=True)   # pyrefly: ignore[unexpected-keyword]
create_loader(dataset, 224, 32, use_prefetcher=False, is_trainin=True)   # pyrefly: ignore[unexpected-keyword]
create_loader(dataset, 224, 32, num_workers=None)   # pyrefly: ignore[bad-argument-type]
assert_type(train, int)   # pyrefly: ignore[assert-type]


class Half:
    "Reads an attribute that only a subclass has."
    def read(self): return self.x   # pyrefly: ignore[missing-attribute]


class Whole(Half):
    def __init__(self): self.x = 1
