"Random stories of a training run, told to two loaders that must not differ: between and inside loops, one action after another."
import random
import warnings
from collections.abc import Callable

import torch
from training_parts import INLINE, few_images, training

from timmdata.transforms.mixup import Mixup


class Story:
    """A random story: loops that are left or not, also inside each other, and what a user does between and inside them.

    The oracle is a loader without workers that makes the same batches when they are asked for.
    """
    def __init__(self, samples, settings: dict, seed: int, kill: Callable[[], None] | None = None):
        self.rng, self.kill = random.Random(seed), kill
        self.num_actions = self.num_batches = self.num_quiet = 0
        self.datasets = [few_images(samples) for _ in range(2)]
        for dataset in self.datasets: dataset.indices = [*dataset.indices]
        self.loaders = [training(dataset, mixup=Mixup(0.8, num_classes=20), drop_last=False, **how)
                        for dataset, how in zip(self.datasets, (settings, INLINE), strict=True)]
        self.states = []   # of the present dataset

    def both(self, function): return [function(loader) for loader in self.loaders]

    def same(self, function):
        one, other = self.both(function)
        assert one == other
        return one

    def check(self): return self.same(lambda loader: (loader.state_dict(), len(loader), loader.sampler.epoch, loader.sampler.start))

    # what a user does

    def choose_epoch(self):
        epoch = self.rng.choice([0, self.loaders[0].sampler.epoch, self.rng.randrange(20)])
        self.both(lambda loader: loader.set_epoch(epoch))

    def save(self): self.states.append(self.check()[0])

    def load(self):
        state = self.rng.choice(self.states or [self.check()[0]])
        self.both(lambda loader: loader.load_state_dict(state))

    def switch(self):
        enabled = self.rng.random() < 0.5
        self.both(lambda loader: setattr(loader, 'mixup_enabled', enabled))

    def kill_one(self):
        "Not twice within a few batches, because a sample would then be blamed."
        if self.kill is not None and self.num_quiet > 8:
            self.kill()
            self.num_quiet = 0

    def change(self):
        "The dataset grows or shrinks, or has other samples; the workers see it at the next pass."
        indexes, self.states = self.datasets[0].indices, []
        new = self.rng.choice([indexes[:-2] if len(indexes) > 16 else indexes, [*indexes, self.rng.randrange(300)], indexes[::-1]])
        for dataset in self.datasets: dataset.indices = new

    def read(self, most: int, depth: int = 0):
        "A loop that ends after some batches."
        loops = self.both(iter)
        for k in range(most):
            batches = [next(loop, None) for loop in loops]
            assert (batches[0] is None) == (batches[1] is None)
            if batches[0] is None: break
            assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
            self.num_batches += 1
            self.num_quiet += 1
            self.check()
            if k < most - 1 and self.rng.random() < 0.3: self.act(depth)
        for loop in loops: loop.close()

    def act(self, depth: int = 0):
        self.num_actions += 1
        inside = [self.choose_epoch, self.save, self.load, self.switch, self.kill_one]
        more = [self.change] if not depth else []
        loops = [lambda: self.read(self.rng.choice([0, 1, 3, 5, 6, 99, 99, 99]), depth + 1)] * 5
        self.rng.choice([*inside, *more, *(loops if depth < 3 else [])])()

    def run(self, num_actions: int):
        with warnings.catch_warnings(), self.loaders[0], self.loaders[1]:
            warnings.simplefilter('ignore')   # positions that are discarded, workers that died
            while self.num_actions < num_actions: self.act()
        return self
