"""How close a loader comes to its limit: the number of cores, multiplied by the rate at which one thread decodes.

    python benchmarks/decode_limit.py DIR [--images 1000] [--rounds 5] [--cores 1,2,4]

Like ternaus/imread_benchmark, this script keeps encoded photos in memory and measures in two ways: each decoder in one thread, and torch's
`DataLoader` with 1 … n workers that decode the same photos, passed on without collating. It adds this library, which also crops, resizes,
flips and normalizes: training, evaluation, and `decode only`, where each JPEG is decoded completely, as by the others, and cut to
224 × 224. With n workers, the process may use n cores (`os.sched_setaffinity`). All take turns in each round, after a round that starts the
workers; one thread's decoding is part of each round.

`share` is a rate relative to n × the rate of simplejpeg in one thread. Cores that share a processor, or a machine shared with others, may
not reach 1: the row `nothing handed over` says what decoding alone reaches here, in workers that return only a number. Training can exceed
it, because it decodes only the part of a photo that it needs. The medians go to results/decode_limit.json. Linux only; use an otherwise
idle machine.
"""
import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from results import rounded, write_results
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.io import ImageReadMode, decode_jpeg

import timmdata
from timmdata.core.decode import decode_image

SIZE, BATCH = 224, 32


def decode_pillow(data: bytes) -> np.ndarray: return np.asarray(decode_image(data))


def decode_simplejpeg(data: bytes) -> np.ndarray:
    import simplejpeg
    return simplejpeg.decode_jpeg(data, 'RGB')


def decode_torchvision(data: bytes) -> np.ndarray:
    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB).permute(1, 2, 0).numpy()


DECODERS = {'Pillow': decode_pillow, 'simplejpeg': decode_simplejpeg, 'torchvision': decode_torchvision}
OURS = {'training': dict(is_training=True, color_jitter=None), 'evaluation': {}}


class InMemory(Dataset):
    "Photos as arrays (height, width, 3), decoded from memory each time."

    def __init__(self, files: list[bytes], decode: Callable[[bytes], np.ndarray]): self.files, self.decode = files, decode
    def __len__(self): return len(self.files)
    def __getitem__(self, index): return self.decode(self.files[index])


class Labeled(InMemory):
    "The same with targets, which timmdata's loader needs."

    def __getitem__(self, index): return super().__getitem__(index), 0


def pass_on(samples: list) -> list: return samples


def cut(image: np.ndarray) -> np.ndarray: return np.resize(image[:SIZE, :SIZE], (SIZE, SIZE, 3))


def rate(passes: Callable[[], int]) -> float:
    "Images per second of one pass, without Python's collector."
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        count = passes()
        return count / (time.perf_counter() - start)
    finally: gc.enable()


def decode_all(files: list[bytes], decode: Callable) -> int:
    for data in files: decode(data)
    return len(files)


def count(loader) -> int: return sum(len(batch) for batch in loader)


def count_ours(loader) -> int:
    loader.set_epoch(0)   # or its workers would begin the next epoch in another's turn
    return sum(len(images) for images, _ in loader)


def runs_with(num: int, files: list[bytes], photos: Dataset) -> tuple[dict[str, Callable[[], int]], list]:
    "Return what takes turns on a number of cores, and timmdata's loaders."
    runs = {f'one thread, {name}': partial(decode_all, files, decode) for name, decode in DECODERS.items()}
    for name, decode in DECODERS.items():
        loader = DataLoader(InMemory(files, decode), BATCH, num_workers=num, collate_fn=pass_on, persistent_workers=True)
        runs[f'DataLoader, {name}'] = partial(count, loader)
    counted = DataLoader(InMemory(files, decode_simplejpeg), BATCH, num_workers=num, collate_fn=len, persistent_workers=True)
    runs['DataLoader, simplejpeg, nothing handed over'] = partial(sum, counted)
    loaders = {name: timmdata.create_loader(photos, SIZE, BATCH, num_workers=num, drop_last=False, seed=0, device='cpu', **settings)
               for name, settings in OURS.items()}
    loaders['decode only'] = timmdata.create_loader(
        Labeled(files, decode_simplejpeg), SIZE, BATCH, num_workers=num, transform=cut, device='cpu')
    return runs | {f'timmdata, {name}': partial(count_ours, loader) for name, loader in loaders.items()}, list(loaders.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--images', type=int, default=1000, help='per pass; a smaller folder is repeated')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--cores', help='comma-separated numbers; default: 1, 2, 4, … all')
    a = parser.parse_args()
    whole = sorted(os.sched_getaffinity(0))
    numbers = [int(text) for text in a.cores.split(',')] if a.cores else sorted(
        {*(2 ** power for power in range(len(whole).bit_length())), len(whole)})
    dataset = timmdata.ImageDataset(a.data, split=None)
    files, chosen = [], []
    for index in range(len(dataset)):
        data = dataset.reader[index][0]
        if data[:2] == b'\xff\xd8' and decode_image(data, None).mode == 'RGB':   # what all decoders read
            files.append(data)
            chosen.append(index)
        if len(files) == a.images: break
    num_photos, repeats = len(files), -(-a.images // len(files))
    files, photos = (files * repeats)[:a.images], Subset(dataset, (chosen * repeats)[:a.images])
    found = {}
    try:
        for num in numbers:
            os.sched_setaffinity(0, set(whole[:num]))
            runs, loaders = runs_with(num, files, photos)
            rates = {name: [] for name in runs}
            for _ in range(a.rounds + 1):
                for name, run in runs.items(): rates[name].append(rate(run))
            for loader in loaders: loader.close()
            limits = [num * one for one in rates['one thread, simplejpeg'][1:]]
            found[num] = {name: {'images_per_s': statistics.median(values[1:]),
                                 'share': statistics.median(value / limit for value, limit in zip(values[1:], limits, strict=True))}
                          for name, values in rates.items()}
            for name, row in found[num].items():
                print(f'{num} cores, {name}: {row["images_per_s"]:,.0f} images/s, {row["share"]:.2f}', flush=True)
    finally: os.sched_setaffinity(0, set(whole))
    settings = {'data': f'{num_photos} JPEGs', 'images': a.images, 'batch_size': BATCH, 'input_size': SIZE, 'rounds': a.rounds}
    write_results('decode_limit', settings, cores=rounded(found))


if __name__ == '__main__': main()
