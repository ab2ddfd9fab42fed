"Photos as bytes and as numbers, and the differences between two of them."
import io
import random
from pathlib import Path

import numpy as np
from PIL import Image
from shared_data import shared_data

from timmdata.core.jpeg import PartCost


def encoded(image: Image.Image, format: str = 'jpeg', **options) -> bytes:
    "The bytes of a file."
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(data: bytes) -> Image.Image:
    "The pixels that Pillow decodes from a file."
    with Image.open(io.BytesIO(data)) as image: return image.convert('RGB')


def part_costs() -> dict[str, PartCost]:
    "Costs by which a region is decoded if the decoder can, else the rows down to the end of the crop, however little that saves."
    return {way: PartCost(start, 0., 0., 0.) for start, way in enumerate(['region', 'rows', 'all'])}


def photographs(samples: Path, source: str) -> list[Path]:
    "The validation photographs of the demonstration data, or those of a folder beside the checkout."
    if source == 'samples': return sorted(samples.glob('val/*/*'))
    return sorted(shared_data(source).rglob('*.JPEG'))


def largest(a, b) -> int:
    "The largest difference of two images, in levels."
    a, b = (np.asarray(x).astype(np.int16) for x in (a, b))
    assert a.shape == b.shape
    return int(np.abs(a - b).max())


def differences(a, b) -> np.ndarray:
    "How many values differ by 0, 1, 2, …"
    a, b = (np.asarray(x).astype(np.int16) for x in (a, b))
    assert a.shape == b.shape
    return np.bincount(np.abs(a - b).ravel(), minlength=256)


def psnr(a, b) -> float:
    error = ((a.double() - b.double())**2).mean().item()
    return 10 * np.log10(255**2 / error) if error else 99.


RANGES = {'brightness': (0.6, 1.4), 'contrast': (0.6, 1.4), 'saturation': (0.6, 1.4), 'hue': (-0.5, 0.5), 'grayscale': (0, 0)}


def random_colors(rng: random.Random) -> tuple:
    names = rng.sample(list(RANGES), rng.randint(0, 5))
    return tuple((name, rng.uniform(*RANGES[name])) for name in names)
