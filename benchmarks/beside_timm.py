"""timmdata's `create_loader` compared with timm 1.0.31's: the same photos, settings and number of workers.

    python benchmarks/beside_timm.py DIR [--rounds 7] [--num-workers 2] [--batch-size 64]

The two loaders take turns, one epoch per round, after a first round that starts the workers; the medians are compared. CPU time is that of
the whole process tree. Use an otherwise idle machine. Each run is added to `results/beside_timm.json`, whose latest run is on the front
page; `--fresh` deletes earlier runs.
"""
import argparse
from datetime import date
from functools import partial

import timm.data
import torch
from results import RESULTS, read_results, write_results
from side_by_side import epoch, print_head, print_row, versions

import timmdata


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=3, help='number of times an epoch repeats the dataset')
    parser.add_argument('--fresh', action='store_true', help='delete earlier runs')
    a = parser.parse_args()
    cases = {
        'train: crop, flip': dict(is_training=True, color_jitter=None),
        'train: crop, flip, jitter 0.4': dict(is_training=True),
        'train: … and erasing 0.25': dict(is_training=True, re_prob=0.25),
        'evaluation, bicubic': dict(interpolation='bicubic'),
    }
    print(versions('timmdata', 'timm', 'torch', 'torchvision', 'pillow'))
    print_head(f'work ({a.num_workers} workers, batches of {a.batch_size} at 224)')
    found = {}
    for name, settings in cases.items():
        epochs = []
        for module in (timmdata, timm.data):
            dataset = torch.utils.data.ConcatDataset([module.ImageDataset(a.data) for _ in range(a.repeats)])
            if module is timm.data:   # timm sets the transform of the whole dataset; here, each part needs it
                pixels = {k: v for k, v in settings.items() if k != 're_prob'}
                transform = timm.data.create_transform((3, 224, 224), use_prefetcher=True, **pixels)
                for part in dataset.datasets: part.transform = transform
            loader = module.create_loader(
                dataset, (3, 224, 224), a.batch_size, num_workers=a.num_workers, device=torch.device('cpu'), **settings)
            inner = getattr(loader, 'loader', loader)
            count = len(dataset) // a.batch_size * a.batch_size if inner.drop_last else len(dataset)
            epochs.append(partial(epoch, loader, count))
        found[name] = print_row(name, *epochs, a.rounds)
        del epochs, loader, inner   # their workers end
    num_photographs = len(timmdata.ImageDataset(a.data))
    settings = dict(data=f'{num_photographs} photographs', num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds)
    known = [] if a.fresh or not (RESULTS/'beside_timm.json').exists() else read_results('beside_timm')['runs']
    write_results('beside_timm', settings, runs=[*known, {'date': str(date.today()), 'results': found}])


if __name__ == '__main__': main()
