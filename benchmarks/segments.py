"""How much restart markers in a JPEG save if only a crop is needed: python benchmarks/segments.py DIR [--rounds 7]

The photos of DIR are measured as they are, and encoded by Pillow: with a shorter side of 256 pixels, at their own size, and with 12
megapixels. For each, the script makes the plain file, the file that a pack contains (jpegtran adds markers, the header lists them) and, if
Pillow encoded it, files with 1, 2 and 8 segments per row of blocks. It decodes them in turns: the whole file, and a random resized crop,
for which it skips the rows below the crop in a plain file and reads only the segments that the crop touches in the others. The numbers are
CPU time in milliseconds, including the header. First, the script compares the crops with the whole photos. `results/segments.json`.
"""
import argparse
import io
import os
import random
import statistics
import time
from pathlib import Path

import numpy as np
from beside_peers import jpegs
from PIL import Image
from results import rounded, write_results

from timmdata.core.jpeg import Pixels
from timmdata.core.restarts import add_restarts, jpegtran_version, list_segments
from timmdata.transforms.geometry import RandomResizedCropAndInterpolation

KINDS = {'files of ImageNet': None, 'shorter side 256, 4:4:4': (256, 0), 'shorter side 256, 4:2:2': (256, 1),
         'shorter side 256, 4:2:0': (256, 2), 'own size, 4:4:4': (0, 0), '12 megapixels, 4:2:0': (3024, 2)}
SEGMENTS = (1, 2, 8)   # per row of blocks, if their number can be divided by it


def encoded(image: Image.Image, subsampling: int, segments: int = 0) -> bytes:
    "A JPEG with `segments` segments per row of blocks, or the next smaller number that divides the row; 0: no markers."
    across = -(-image.width // (16 if subsampling else 8))
    num = max((n for n in range(1, segments + 1) if across % n == 0), default=0)
    file = io.BytesIO()
    image.save(file, 'JPEG', quality=90, subsampling=subsampling, **({'restart_marker_blocks': across // num} if num else {}))
    return list_segments(file.getvalue())


def variants(path: Path, kind: tuple[int, int] | None) -> dict[str, bytes]:
    "A photo as JPEGs without and with markers."
    if kind is None: plain, others = path.read_bytes(), {}
    else:
        (side, subsampling), image = kind, Image.open(path).convert('RGB')
        if side: image = image.resize([round(edge * side / min(image.size)) for edge in image.size], Image.Resampling.BICUBIC)
        plain, others = encoded(image, subsampling), {f'{n} a row': encoded(image, subsampling, n) for n in SEGMENTS}
    return {'plain': plain, 'jpegtran': add_restarts(plain), **others}


def adding(photographs: list[dict[str, bytes]]) -> float:
    "CPU time per photo, in ms, for jpegtran to add markers, including its start."
    start = os.times()
    for files in photographs: add_restarts(files['plain'])
    return 1000 * (sum(os.times()[:4]) - sum(start[:4])) / len(photographs)


def draw_crops(photographs: list[dict[str, bytes]], seed: int) -> list[tuple[int, ...]]:
    "A random resized crop for each photo."
    rng, sizes = random.Random(seed), [Pixels(files['plain']) for files in photographs]
    crop = RandomResizedCropAndInterpolation(224)
    return [crop.draw((size.height, size.width), rng) for size in sizes]


def decode_all(photographs: list[dict[str, bytes]], name: str, crops: list | None) -> float:
    "CPU time per photo in ms."
    start = time.process_time()
    for number, files in enumerate(photographs):
        pixels = Pixels(files[name])
        pixels.read_crop(crops[number]) if crops else pixels.read()
    return 1000 * (time.process_time() - start) / len(photographs)


def check(photographs: list[dict[str, bytes]], crops: list):
    "Check that each crop has the pixels of the whole photo."
    for files, crop in zip(photographs, crops):
        whole = Pixels(files['plain']).read()[crop[0]:crop[0] + crop[2], crop[1]:crop[1] + crop[3]]
        assert all(np.array_equal(Pixels(data).read_crop(crop), whole) for data in files.values())


def measure(photographs: list[dict[str, bytes]], rounds: int) -> dict[str, float]:
    "CPU time per photo in ms; medians of rounds."
    check(photographs, draw_crops(photographs, 0))
    works = {'whole file': ('plain', False), 'whole file, jpegtran': ('jpegtran', False)}
    works |= {f'crop, {name}': (name, True) for name in photographs[0]}
    spent = {name: [] for name in works}
    for number in range(rounds):
        crops = draw_crops(photographs, number)
        for name, (file, is_crop) in works.items(): spent[name].append(decode_all(photographs, file, crops if is_crop else None))
    return {name: statistics.median(found) for name, found in spent.items()}


def row(name: str, found: dict[str, float]) -> str:
    "A row of the table in README.md: milliseconds, shares of the whole plain file, bytes."
    shares = [f'{found[key] / found["whole file"]:.2f}' if key in found else '' for key in (
        'whole file, jpegtran', 'crop, plain', *(f'crop, {n} a row' for n in SEGMENTS), 'crop, jpegtran')]
    more, adding = found['bytes more, jpegtran'], found['to add, jpegtran']
    return f'| {name} | {found["whole file"]:.2f} | {" | ".join(shares)} | {more:+.1%} | {adding:.1f} |'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--rounds', type=int, default=7)
    a = parser.parse_args()
    paths, found = jpegs(a.data), {}
    for name, kind in KINDS.items():
        photographs = [variants(path, kind) for path in (paths[::20] if kind and kind[0] > 1000 else paths)]
        photographs = [files for files in photographs if files['jpegtran'] != files['plain']]   # the others cannot have markers
        sizes = {variant: sum(len(files[variant]) for files in photographs) for variant in photographs[0]}
        more = {f'bytes more, {variant}': size / sizes['plain'] - 1 for variant, size in sizes.items() if variant != 'plain'}
        found[name] = {'photographs': len(photographs), **measure(photographs, a.rounds), 'to add, jpegtran': adding(photographs), **more}
        print(row(name, found[name]), flush=True)
    settings = {'data': f'{len(paths)} photographs of ImageNet', 'rounds': a.rounds, 'quality': 90, 'jpegtran': jpegtran_version()}
    write_results('segments', settings, results=rounded(found))


if __name__ == '__main__': main()
