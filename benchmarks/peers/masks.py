"""What the peers of beside_masks.py share: photographs with a mask each, as a table, and batches that are checked.

A peer is a module as common.py says; `work` is 'segment': RandomResizedCrop to 512 pixels, flip, normalize, and the mask with them.
`data_dir` is the table, with the columns path, target and mask. Batches are float32 (N, 3, 512, 512) and int64 (N, 512, 512).
"""
import csv
from pathlib import Path

import torch

SIZE, OUTSIDE, CLASSES = 512, 255, 20


def make_mask(path: str, out: Path):
    "Write a PNG of 20 classes with smooth borders: a photograph's brightness without its details."
    import numpy as np
    from PIL import Image
    gray = Image.open(path).convert('L')
    small = gray.resize((max(2, gray.width // 24), max(2, gray.height // 24)), Image.Resampling.BOX)
    smooth = np.asarray(small.resize(gray.size, Image.Resampling.BICUBIC), np.uint16)
    Image.fromarray((smooth * CLASSES // 256).astype(np.uint8)).save(out)


def rows(table: str) -> list[tuple[str, str]]:
    "(path, path of its mask) of every photograph."
    with open(table, newline='') as file: return [(row['path'], row['mask']) for row in csv.DictReader(file)]


class Photographs:
    "Batches of (images, masks) of a loader that gives them; no mask is missing or of another type."

    def __init__(self, loader): self.loader = loader

    def __iter__(self):
        for images, *_, masks in self.loader:
            if images.dtype != torch.float32 or images.shape[1:] != (3, SIZE, SIZE): raise ValueError(f'{images.dtype} {images.shape}')
            if masks.dtype != torch.int64 or masks.shape != (len(images), SIZE, SIZE): raise ValueError(f'{masks.dtype} {masks.shape}')
            yield images, masks
