"""Threads compared with processes, for timmdata's own pipeline and for a Python transform that holds the interpreter's lock.

    python benchmarks/workers.py DIR [--rounds 7] [--num-workers 1,2,4] [--images 418]

DIR contains class folders. The loaders take turns, one epoch per round, after a round that starts the workers. All numbers are images per
second relative to one thread with the same pipeline in the same round. Medians go to results/workers.json, which the page
`workers/threads` plots. Use an otherwise idle machine.
"""
import argparse
from functools import partial

import torch
from results import write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import compare_speeds, run_pass
from timmdata.measure.stages import spread


class PurePython:
    "A transform that runs only Python code and holds the GIL."

    def __init__(self, steps: int = 20_000): self.steps = steps

    def __call__(self, image) -> torch.Tensor:
        value = 0
        for k in range(self.steps): value = (value * 31 + k) % 1_000_003
        return torch.full((3, 8, 8), value % 256, dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--num-workers', default='1,2,4', help='comma-separated numbers of threads and processes')
    parser.add_argument('--images', type=int, default=418, help='samples per epoch')
    a = parser.parse_args()
    numbers, found = [int(number) for number in a.num_workers.split(',')], {}
    samples = spread(ImageDataset(a.data, split=None), a.images)
    pipelines = {'the pipeline of this library': dict(is_training=True, color_jitter=None, seed=0),
                 'a transform in Python': dict(transform=PurePython(), seed=0)}
    for pipeline, settings in pipelines.items():
        loaders = {(kind, number): create_loader(samples, 224, 32, num_workers=number, worker_type=kind, device='cpu', **settings)
                   for number in numbers for kind in ('threads', 'processes')}   # the others are compared with the first
        runs = {name: partial(run_pass, loader) for name, loader in loaders.items()}
        trials = {trial.name: trial for trial in compare_speeds(runs, a.rounds)}
        found[pipeline] = {kind: [round(trials[kind, number].speedup, 2) for number in numbers]
                           for kind in ('threads', 'processes')}
        for loader in loaders.values(): loader.loader.close()
    settings = dict(num_images=a.images, batch_size=32, input_size=224, rounds=a.rounds)
    write_results('workers', settings, numbers=numbers, speedups=found)
    for pipeline, kinds in found.items(): print(pipeline, kinds)


if __name__ == '__main__': main()
