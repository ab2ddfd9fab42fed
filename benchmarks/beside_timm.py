"""This library's `create_loader` beside timm 1.0.31's: the same photographs, settings and number of workers.

    python benchmarks/beside_timm.py DIR [--rounds 7] [--workers 2] [--batch-size 64]

Rounds are interleaved (ours, timm's, ours, …), each is one epoch after a first one that starts the workers; the medians are compared.
The CPU time is that of the whole process tree. Run it on an otherwise idle machine.
"""
import argparse
import os
import platform
import statistics
import time
from datetime import date

import PIL
import psutil
import timm
import timm.data
import torch
import torchvision

import timmdata


def cpu_seconds() -> float:
    "CPU time of this process and its live children, seconds."
    me = psutil.Process()
    return sum(p.cpu_times().user + p.cpu_times().system for p in [me, *me.children(recursive=True)])


def epoch(loader, count: int) -> tuple[float, float]:
    "(images per second, CPU ms per image) of one pass."
    cpu, start = cpu_seconds(), time.perf_counter()
    seen = sum(len(images) for images, _ in loader)
    seconds = time.perf_counter() - start
    assert seen == count, f'{seen} of {count} samples arrived'
    return seen / seconds, (cpu_seconds() - cpu) / seen * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=3, help='times that the data set is repeated in an epoch')
    a = parser.parse_args()
    cases = {
        'train: crop, flip': dict(is_training=True, color_jitter=None),
        'train: crop, flip, jitter 0.4': dict(is_training=True),
        'train: … and erasing 0.25': dict(is_training=True, re_prob=0.25),
        'evaluation, bicubic': dict(interpolation='bicubic'),
    }
    versions = dict(timmdata=timmdata, timm=timm, torch=torch, torchvision=torchvision, pillow=PIL)
    print(f'{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},',
          ', '.join(f'{name} {module.__version__}' for name, module in versions.items()))
    print(f'\n| work ({a.workers} workers, batches of {a.batch_size} at 224) | images/s ÷ timm | CPU-ms an image | timm CPU-ms |')
    print('|---|---|---|---|')
    for name, settings in cases.items():
        loaders = []
        for module in (timmdata, timm.data):
            dataset = torch.utils.data.ConcatDataset([module.ImageDataset(a.data) for _ in range(a.repeats)])
            if module is timm.data:   # timm sets the transform of the dataset that it is given: here, of each part
                pixels = {k: v for k, v in settings.items() if k != 're_prob'}
                transform = timm.data.create_transform((3, 224, 224), use_prefetcher=True, **pixels)
                for part in dataset.datasets: part.transform = transform
            loader = module.create_loader(
                dataset, (3, 224, 224), a.batch_size, num_workers=a.workers, device=torch.device('cpu'), **settings)
            inner = getattr(loader, 'loader', loader)
            loaders.append((loader, len(dataset) // a.batch_size * a.batch_size if inner.drop_last else len(dataset)))
        results = [[], []]
        for k in range(a.rounds + 1):
            for which, (loader, count) in enumerate(loaders):
                result = epoch(loader, count)
                if k: results[which].append(result)
        (ours, our_cpu), (timms, timm_cpu) = ([statistics.median(column) for column in zip(*rows)] for rows in results)
        print(f'| {name} | {ours / timms:.2f} | {our_cpu:.2f} | {timm_cpu:.2f} |', flush=True)
        del loaders, loader


if __name__ == '__main__': main()
