"Twenty small photographs and the table of their labels."
from pathlib import Path

import pandas
from PIL import Image

CLASSES = ['ant', 'bee', 'cat', 'class 2', 'class 10']


def write_photos(folder: Path) -> Path:
    "Write twenty small files, whose color says their number."
    for k in range(20): Image.new('RGB', (16, 12), (10 * k, 0, 0)).save(folder/f'{k}.png')
    return folder


def label_frame() -> pandas.DataFrame:
    "One row per file; every fourth is for validation."
    return pandas.DataFrame([dict(path=f'{k}.png', target=CLASSES[k % 5], split='val' if k % 4 == 3 else 'train',
                                  weight=k / 4, age=k, note=f'note {k}', box=[k, 1.5]) for k in range(20)])


def rows_of(table) -> list[dict]:
    "All rows of a `Table`, name → value."
    return [dict(zip(table.names, row)) for row in zip(*map(table.typed, range(len(table.names))))]
