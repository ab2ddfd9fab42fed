"""timmdata's `create_loader` compared with timm 1.0.31's: the same photos, settings and number of workers.

    python benchmarks/beside_timm.py DIR [--rounds 7] [--num-workers 2] [--batch-size 64]

The two loaders take turns, one epoch per round, after a first round that starts the workers; the medians are compared. Decoding alone takes
its turn, too: as many processes decode the same JPEGs from memory with simplejpeg, at full size, and pass on nothing. CPU time is that of
the whole process tree. Use an otherwise idle machine. Each run is added to `results/beside_timm.json` with the name of the processor; the
front page and the README show the latest run of each machine. `--fresh` deletes earlier runs.
"""
import argparse
import tempfile
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import timm.data
import torch
from beside_peers import phone_photographs
from decode_limit import InMemory, decode_simplejpeg
from results import RESULTS, read_results, write_results
from side_by_side import epoch, print_head, print_row, versions
from torch.utils.data import DataLoader

import timmdata
from timmdata.core.cores import available_cores
from timmdata.core.decode import decode_image
from timmdata.measure.machine import processor_name

CASES = {
    'train: crop, flip': dict(is_training=True, color_jitter=None),
    'train: crop, flip, jitter 0.4': dict(is_training=True),
    'train: … and erasing 0.25': dict(is_training=True, re_prob=0.25),
    'train: RandAugment, erasing 0.25': dict(is_training=True, auto_augment='rand-m9-mstd0.5', re_prob=0.25),
    'evaluation, bicubic': dict(interpolation='bicubic'),
    'train: 12 megapixels': dict(is_training=True, color_jitter=None),
}


def loader_epoch(module, data: Path, a: argparse.Namespace, batch_size: int, settings: dict) -> Callable[[], tuple]:
    "An epoch of the loader of timmdata or timm.data."
    dataset = torch.utils.data.ConcatDataset([module.ImageDataset(str(data)) for _ in range(a.repeats)])
    if module is timm.data:   # timm sets the transform of the whole dataset; here, each part needs it
        pixels = {k: v for k, v in settings.items() if k != 're_prob'}
        transform = timm.data.create_transform((3, 224, 224), use_prefetcher=True, **pixels)
        for part in dataset.datasets: part.transform = transform
    loader = module.create_loader(
        dataset, (3, 224, 224), batch_size, num_workers=a.num_workers, device=torch.device('cpu'), **settings)
    inner = getattr(loader, 'loader', loader)
    return partial(epoch, loader, len(dataset) // batch_size * batch_size if inner.drop_last else len(dataset))


def decode_epoch(data: Path, a: argparse.Namespace, batch_size: int) -> Callable[[], tuple]:
    "An epoch that only decodes the photos, those that all decoders read."
    dataset = timmdata.ImageDataset(str(data), split=None)
    files = [dataset.reader[index][0] for index in range(len(dataset))]
    files = [file for file in files if file[:2] == b'\xff\xd8' and decode_image(file, None).mode == 'RGB'] * a.repeats
    loader = DataLoader(InMemory(files, decode_simplejpeg), batch_size, num_workers=a.num_workers, collate_fn=count_only,
                        persistent_workers=True)
    return partial(epoch, loader, len(files))


def count_only(samples: list) -> tuple[range, None]: return range(len(samples)), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=3, help='number of times an epoch repeats the dataset')
    parser.add_argument('--phone', type=int, default=24, metavar='N', help='number of 12-megapixel photos, in batches of 8')
    parser.add_argument('--fresh', action='store_true', help='delete earlier runs')
    a = parser.parse_args()
    print(versions('timmdata', 'timm', 'torch', 'torchvision', 'pillow'))
    print_head(f'work ({a.num_workers} workers, batches of {a.batch_size} at 224)')
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        large = phone_photographs(a.data, a.phone, Path(scratch))
        for name, settings in CASES.items():
            data, size = (large, 8) if 'megapixels' in name else (a.data, a.batch_size)
            epochs = [loader_epoch(module, data, a, size, settings) for module in (timmdata, timm.data)]
            found[name] = print_row(name, *epochs, decode_epoch(data, a, size), a.rounds)
            del epochs   # their workers end
    num_photographs = len(timmdata.ImageDataset(str(a.data)))
    settings = dict(data=f'{num_photographs} photographs', num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds)
    known = [] if a.fresh or not (RESULTS/'beside_timm.json').exists() else read_results('beside_timm')['runs']
    run = {'date': str(date.today()), 'cpu': processor_name(), 'cores': str(available_cores()), 'results': found}
    write_results('beside_timm', settings, runs=[*known, run])


if __name__ == '__main__': main()
