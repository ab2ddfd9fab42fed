"Photographs as bytes and as numbers, and how far two of them are apart."
import io
from pathlib import Path

import numpy as np
from PIL import Image
from shared_data import shared_data


def encoded(image: Image.Image, format: str = 'jpeg', **options) -> bytes:
    "The bytes of a file."
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(data: bytes) -> Image.Image:
    "What Pillow makes of a file."
    with Image.open(io.BytesIO(data)) as image: return image.convert('RGB')


def photographs(samples: Path, source: str) -> list[Path]:
    "The validation photographs of the demonstration data, or those of a folder beside the checkout."
    if source == 'samples': return sorted(samples.glob('val/*/*'))
    return sorted(shared_data(source).rglob('*.JPEG'))


def largest(a, b) -> int:
    "The largest difference of two images, in levels."
    a, b = (np.asarray(x).astype(np.int16) for x in (a, b))
    assert a.shape == b.shape
    return int(np.abs(a - b).max())
