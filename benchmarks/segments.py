"""What restart markers in a JPEG save where only a crop is needed: python benchmarks/segments.py DIR [--rounds 7]

The photographs of DIR are written again with Pillow, without and with restart markers, which are listed as in a pack: at a shorter side
of 256 pixels, at their own size, and at 12 megapixels. All are then decoded, in turns: the plain files, a random resized crop of each
(rows below it are not read), and the same crop of the files with markers (only the segments that it touches). CPU-ms with the header;
crops are compared with the whole photographs first. `results/segments.json`.
"""
import argparse
import io
import random
import statistics
import time
from pathlib import Path

import numpy as np
from beside_peers import jpegs
from PIL import Image
from results import rounded, write_results

from timmdata.core.jpeg import Pixels
from timmdata.core.restarts import list_segments
from timmdata.transforms.geometry import RandomResizedCropAndInterpolation

KINDS = {'shorter side 256, 4:4:4': (256, 0), 'shorter side 256, 4:2:2': (256, 1), 'shorter side 256, 4:2:0': (256, 2),
         'as they are, 4:4:4': (None, 0), '12 megapixels, 4:2:0': (3024, 2)}
SEGMENTS = (1, 2, 8)   # in a row of blocks, where the blocks can be divided so


def encoded(image: Image.Image, subsampling: int, segments: int = 0) -> bytes:
    "A JPEG with so many segments in a row of blocks, or as near below as its blocks can be divided; 0: no markers."
    across = -(-image.width // (16 if subsampling else 8))
    num = max((n for n in range(1, segments + 1) if across % n == 0), default=0)
    file = io.BytesIO()
    image.save(file, 'JPEG', quality=90, subsampling=subsampling, **({'restart_marker_blocks': across // num} if num else {}))
    return list_segments(file.getvalue())


def variants(path: Path, side: int | None, subsampling: int) -> dict[str, bytes]:
    "The photograph as JPEGs without and with markers."
    image = Image.open(path).convert('RGB')
    if side: image = image.resize([round(edge * side / min(image.size)) for edge in image.size], Image.Resampling.BICUBIC)
    return {'plain': encoded(image, subsampling), **{f'{n} a row': encoded(image, subsampling, n) for n in SEGMENTS}}


def draw_crops(photographs: list[dict[str, bytes]], seed: int) -> list[tuple[int, ...]]:
    "A random resized crop for each photograph."
    rng, sizes = random.Random(seed), [Pixels(files['plain']) for files in photographs]
    draw = RandomResizedCropAndInterpolation.get_params
    return [draw(Image.new('1', (size.width, size.height)), (0.08, 1), (3 / 4, 4 / 3), rng) for size in sizes]


def decode_all(photographs: list[dict[str, bytes]], name: str, crops: list | None) -> float:
    "Milliseconds of CPU time for a photograph."
    start = time.process_time()
    for number, files in enumerate(photographs):
        pixels = Pixels(files[name])
        pixels.read_crop(crops[number]) if crops else pixels.read()
    return 1000 * (time.process_time() - start) / len(photographs)


def check(photographs: list[dict[str, bytes]], crops: list):
    "Each crop has the pixels of the whole photograph."
    for files, crop in zip(photographs, crops):
        whole = Pixels(files['plain']).read()[crop[0]:crop[0] + crop[2], crop[1]:crop[1] + crop[3]]
        assert all(np.array_equal(Pixels(data).read_crop(crop), whole) for data in files.values())


def measure(photographs: list[dict[str, bytes]], rounds: int) -> dict[str, float]:
    "Milliseconds of a photograph, the median of rounds."
    check(photographs, draw_crops(photographs, 0))
    works = {'whole file': ('plain', False), 'whole file, 1 a row': ('1 a row', False)}
    works |= {f'crop, {name}': (name, True) for name in photographs[0]}
    spent = {name: [] for name in works}
    for number in range(rounds):
        crops = draw_crops(photographs, number)
        for name, (file, is_crop) in works.items(): spent[name].append(decode_all(photographs, file, crops if is_crop else None))
    return {name: statistics.median(found) for name, found in spent.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--rounds', type=int, default=7)
    a = parser.parse_args()
    paths, found = jpegs(a.data), {}
    for kind, (side, subsampling) in KINDS.items():
        photographs = [variants(path, side, subsampling) for path in (paths if not side or side < 1000 else paths[::20])]
        bytes_more = sum(len(files['2 a row']) for files in photographs) / sum(len(files['plain']) for files in photographs) - 1
        found[kind] = {**measure(photographs, a.rounds), 'bytes more, 2 a row': bytes_more}
        whole = found[kind]['whole file']
        shares = [ms / whole for name, ms in found[kind].items() if name.startswith(('whole file,', 'crop'))]
        print(f'| {kind} | {whole:.2f} | {" | ".join(f"{share:.2f}" for share in shares)} | {100 * bytes_more:.1f} % |', flush=True)
    write_results('segments', {'data': f'{len(paths)} photographs of ImageNet', 'rounds': a.rounds, 'quality': 90}, results=rounded(found))


if __name__ == '__main__': main()
