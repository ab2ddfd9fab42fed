"""The cost of decoding a crop: all of the photo, the rows down to the crop's end, or its region (nvImageCodec on the CPU).

    python benchmarks/decode_parts.py DIR [--photos 60] [--crops 4] [--rounds 7] [--fit]

Random resized crops (8 to 100 % of the photo) of each photo at three sizes: its own, a shorter side of 256, and 12 MP. The ways to decode
take turns, in a random order. Each crop counts with the least CPU time of its rounds, so a shared machine disturbs little. `ratio` is the
mean time relative to simplejpeg's full decoding of the same photo. `chosen` is what `choose_part` takes, and `best` would be the fastest
way of each crop. `around_us` is what `Pixels.read_crop` adds to simplejpeg if it decodes all of a photo.

`--fit` fits a linear model of the bytes and pixels that each way handles to the times (non-negative, relative errors). `core/jpeg.py`
contains its numbers as `PART_COSTS`; then measure again without `--fit`. Results go to results/decode_parts.json.
"""
import argparse
import io
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from PIL import Image
from results import rounded, write_results
from torchvision.transforms import RandomResizedCrop

from timmdata.core import jpeg
from timmdata.core.jpeg import JpegHeader, Pixels, choose_part, cut_below, decode_header, read_header, read_layout
from timmdata.core.regions import decode_region

LARGE = (3000, 4000)


def random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    "A random resized crop of torchvision: 8 to 100 % of the area."
    return RandomResizedCrop.get_params(torch.empty(1).expand(3, height, width), [0.08, 1.], [3 / 4, 4 / 3])


def at_size(data: bytes, name: str) -> bytes:
    "The photo at a different size, re-encoded."
    if name == 'as it is':
        return data
    image = Image.open(io.BytesIO(data)).convert('RGB')
    scale = 256 / min(image.size)
    size = LARGE[::-1] if name == '12 MP' else [round(edge * scale) for edge in image.size]
    buffer = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(buffer, 'jpeg', quality=90)
    return buffer.getvalue()


def all_of_it(data: bytes, crop: tuple) -> np.ndarray:
    header = read_header(data, 'simplejpeg')
    top, left, height, width = crop
    return decode_header(data, header, 1, 'simplejpeg')[top:top + height, left:left + width]


def rows(data: bytes, crop: tuple) -> np.ndarray:
    header, layout = read_header(data, 'simplejpeg'), read_layout(data)
    assert layout.is_intact(data)
    top, left, height, width = crop
    bottom = min(top + height + 4, header.height)
    cut = cut_below(data, layout, bottom)
    return decode_header(cut, JpegHeader(bottom, header.width), 1, 'simplejpeg', True)[top:top + height, left:left + width]


def region(data: bytes, crop: tuple) -> np.ndarray:
    header, layout = read_header(data, 'simplejpeg'), read_layout(data)
    assert header and layout.is_intact(data)
    return decode_region(data, crop)


def read_crop(data: bytes, crop: tuple) -> np.ndarray: return Pixels(data, backend='nvimgcodec').read_crop(crop)
def without_regions(data: bytes, crop: tuple) -> np.ndarray: return Pixels(data, backend='simplejpeg').read_crop(crop)

def read_all(data: bytes, crop: tuple) -> np.ndarray:
    pixels = Pixels(data, backend='simplejpeg')
    return pixels.read_crop((0, 0, pixels.height, pixels.width))


def decoder_alone(data: bytes, crop: tuple) -> np.ndarray: return simplejpeg.decode_jpeg(data, 'RGB')


WAYS: dict[str, Callable] = {'all': all_of_it, 'rows': rows, 'region': region}
READ = {
    'simplejpeg alone': decoder_alone, 'chosen without regions': without_regions, 'chosen': read_crop, 'read_crop of all': read_all}


def least_times(work: list[tuple[bytes, tuple]], num_rounds: int) -> dict[str, np.ndarray]:
    "The least CPU time of each way for each crop, in ns."
    functions = {**WAYS, **READ}
    least = {name: np.full(len(work), np.inf) for name in functions}
    order, rng = list(functions), random.Random(0)
    for _ in range(num_rounds):
        for k, one in enumerate(work):
            rng.shuffle(order)   # the memory that one way leaves behind must not always serve the same other one
            for name in order:
                start = time.thread_time_ns()
                functions[name](*one)
                least[name][k] = min(least[name][k], time.thread_time_ns() - start)
    return least


def fit(features: np.ndarray, times: np.ndarray) -> np.ndarray:
    "Non-negative coefficients with the least relative errors: columns that would be negative are left out."
    scaled = features / times[:, None]
    used = list(range(features.shape[1]))
    while True:
        found = np.linalg.lstsq(scaled[:, used], np.ones(len(times)), rcond=None)[0]
        if (found >= 0).all():
            return np.bincount(used, found, features.shape[1])
        used.pop(int(found.argmin()))


def features(way: str, data: bytes, crop: tuple) -> list[float]:
    "Amounts that a way handles, for the costs `NAMES`; `all` and `rows` have the same costs per byte and per pixel."
    height, width = read_header(data, 'simplejpeg')
    top, _, crop_h, crop_w = crop
    bottom = (top + crop_h) / height
    size, pixels = len(data), height * width
    return {'all': [1, 0, 0, size, pixels, 0, 0, 0, 0], 'rows': [0, 1, size, size * bottom, pixels * bottom, 0, 0, 0, 0],
            'region': [0] * 5 + [1, size, size * bottom, crop_h * (crop_w + 16)]}[way]


NAMES = {'all': [0, None, 3, 4], 'rows': [1, 2, 3, 4], 'region': [5, 6, 7, 8]}   # way → places of its costs among the features


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--photos', type=int, default=60)
    parser.add_argument('--crops', type=int, default=4)
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--fit', action='store_true', help='fit the costs, in place of those in core/jpeg.py')
    a = parser.parse_args()
    torch.manual_seed(0)
    paths = random.Random(0).sample(sorted(a.data.rglob('*.jp*g')) + sorted(a.data.rglob('*.JP*G')), a.photos)
    sizes, everything = {}, {way: ([], []) for way in WAYS}
    for name in 'as it is', 'shorter side 256', '12 MP':
        photos = [at_size(path.read_bytes(), name) for path in (paths if name != '12 MP' else paths[:a.photos // 6])]
        photos = [data for data in photos if read_header(data) and read_layout(data).is_intact(data)]
        work = [(data, random_crop(*read_header(data))) for data in photos for _ in range(a.crops)]
        for data, crop in work:
            expected = all_of_it(data, crop)
            assert all(np.array_equal(way(data, crop), expected) for way in (rows, region, read_crop, without_regions))
        least = least_times(work, a.rounds)
        for way in WAYS:
            everything[way][0].extend(features(way, *one) for one in work)
            everything[way][1].extend(least[way])
        base = least['simplejpeg alone']
        best = np.min([least[way] for way in WAYS], axis=0)
        chosen = [choose_part(read_header(data), len(data), crop, 1, 'nvimgcodec') for data, crop in work]
        sizes[name] = {
            'crops': len(work), 'simplejpeg_ms': base.mean() / 1e6,
            'around_us': float(np.median(least['read_crop of all'] - base)) / 1e3,
            'ratio': {key: values.mean() / base.mean() for key, values in {**least, 'best': best}.items()},
            'share_chosen': {way: chosen.count(way) / len(work) for way in WAYS}}
        print(name, rounded(sizes[name]))
    if a.fit:
        x, y = (np.array([one for way in WAYS for one in everything[way][k]], float) for k in range(2))
        fitted = [float(f'{cost:.3g}') for cost in fit(x, y)]
    else:
        fitted = [0.] * 9
        for way, places in NAMES.items():
            for cost, at in zip(jpeg.PART_COSTS[way], places):
                if at is not None: fitted[at] = cost
    errors = {way: float(np.median(np.abs(np.array(x, float) @ fitted / np.array(y) - 1))) for way, (x, y) in everything.items()}
    costs = {way: {name: fitted[at] if at is not None else 0. for name, at in zip(jpeg.PartCost._fields, places)}
             for way, places in NAMES.items()}
    print(costs, errors)
    settings = dict(data=f'{a.photos} photos', crops=a.crops, rounds=a.rounds)
    write_results('decode_parts', settings, sizes=sizes, costs_ns=costs, median_relative_error=errors)


if __name__ == '__main__': main()
