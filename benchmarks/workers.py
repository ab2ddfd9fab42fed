"""Threads against processes, for this library's own pipeline and for a transform in Python that holds the interpreter's lock.

    python benchmarks/workers.py DIR [--rounds 7] [--workers 1,2,4] [--images 418]

DIR holds class folders. Rounds are interleaved, one epoch of each loader a round, after one that starts the workers. All numbers are
images per second ÷ those of one thread with the same pipeline in the same round; medians are printed, as a literal for the page
`workers`. Run it on an otherwise idle machine.
"""
import argparse
import statistics

import torch

from timmdata.bench import spread
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.doctor import race
from timmdata.loader import create_loader
from timmdata.machine import describe_machine


class PurePython:
    "A transform that computes in Python all the time, and holds the lock."

    def __init__(self, steps: int = 20_000): self.steps = steps

    def __call__(self, image) -> torch.Tensor:
        value = 0
        for k in range(self.steps): value = (value * 31 + k) % 1_000_003
        return torch.full((3, 8, 8), value % 256, dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--workers', default='1,2,4', help='numbers of threads and processes')
    parser.add_argument('--images', type=int, default=418, help='samples of an epoch')
    a = parser.parse_args()
    numbers, found = [int(number) for number in a.workers.split(',')], {}
    samples = spread(ImageDataset(a.data, split=None), a.images)
    pipelines = {'the pipeline of this library': dict(is_training=True, color_jitter=None, seed=0),
                 'a transform in Python': dict(transform=PurePython(), seed=0)}
    for pipeline, settings in pipelines.items():
        entries = {(kind, number): (create_loader(samples, 224, 32, num_workers=number, workers=kind, device='cpu', **settings), 0.)
                   for number in numbers for kind in ('threads', 'processes')}
        trials = {trial.name: trial for trial in race(entries, a.rounds)}
        found[pipeline] = {kind: [round(trials[kind, number].speedup, 2) for number in numbers]
                           for kind in ('threads', 'processes')}
        for loader, _ in entries.values(): loader.loader.close()
    machine = describe_machine()
    keep = {name: machine[name] for name in ('date', 'machine', 'cores', 'python', 'torch')}
    print(f'numbers = {numbers}\nmachine = {keep!r}')
    print('speedups = {')
    for pipeline, kinds in found.items(): print(f'    {pipeline!r}: {kinds!r},')
    print('}')
    assert statistics.median(trials['threads', numbers[0]][1:4]) == 1   # the loader that others are compared with


if __name__ == '__main__': main()
