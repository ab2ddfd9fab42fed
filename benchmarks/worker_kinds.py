"""Threads compared with processes for timmdata's own pipeline, on the available cores.

    python benchmarks/worker_kinds.py DIR [--rounds 7] [--images 418]

DIR contains class folders. The loaders have two workers each and take turns, one epoch per round. Medians go to results/worker_kinds.json,
which the page `workers/autotune` reads. Use an otherwise idle machine. For more workers than cores, see many_cores.py.
"""
import argparse
from functools import partial

from results import rounded, write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import compare_speeds, run_pass
from timmdata.measure.stages import spread

WORKS = {'crop, flip': dict(color_jitter=None), 'crop, flip, color jitter': {}}


def compare(samples, rounds: int, num_workers: int, **settings) -> dict[str, object]:   # kind → trial
    "Measure both worker types in turns."
    loaders = {kind: create_loader(samples, 224, 32, is_training=True, seed=0, num_workers=num_workers, worker_type=kind, device='cpu',
                                   **settings) for kind in ('threads', 'processes')}
    runs = {kind: partial(run_pass, loader) for kind, loader in loaders.items()}
    trials = {trial.name: trial for trial in compare_speeds(runs, rounds)}
    for loader in loaders.values(): loader.close()
    return trials


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--images', type=int, default=418, help='samples per epoch')
    a = parser.parse_args()
    samples = spread(ImageDataset(a.data, split=None), a.images)
    found = {work: compare(samples, a.rounds, 2, **settings)['processes'].speedup for work, settings in WORKS.items()}
    settings = dict(data=f'{len(samples)} photographs', num_workers=2, rounds=a.rounds)
    write_results('worker_kinds', settings, **rounded({'processes ÷ threads': found}))


if __name__ == '__main__': main()
