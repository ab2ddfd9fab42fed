"""How much evaluation pixels of the default decoder and resizing differ from timm's: python benchmarks/pixels.py DIR

Both libraries load every photo in DIR, with each crop and interpolation. `results/pixels.json` contains how many values differ by one, two
or more of 256 gray levels. The script also checks that all values are equal with `backend='pillow'`.
"""
import argparse

import numpy as np
import timm.data
import torch
from results import rounded, write_results

import timmdata

CROPS = [dict(), dict(crop_pct=0.95), dict(crop_pct=1.), dict(crop_mode='squash'), dict(crop_mode='border')]
INTERPOLATIONS = ['bilinear', 'bicubic']
COMMON = dict(mean=(0, 0, 0), std=(1 / 255,) * 3, device=torch.device('cpu'), num_workers=0)   # batches of gray levels


def differences(data: str, settings: dict, backend: str | None = None) -> np.ndarray:
    "How many values differ from timm's by 0, 1, 2 … gray levels."
    ours = timmdata.create_loader(timmdata.ImageDataset(data), 224, 32, backend=backend, **COMMON, **settings)
    timms = timm.data.create_loader(timm.data.ImageDataset(data), (3, 224, 224), 32, **COMMON, **settings)
    counts = np.zeros(256, np.int64)
    for (images, targets), (expected, labels) in zip(ours, timms, strict=True):
        assert torch.equal(targets, labels)
        counts += np.bincount((images - expected).abs().round().int().flatten().numpy(), minlength=256)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    data = parser.parse_args().data
    found = {}
    for interpolation in INTERPOLATIONS:
        for crop in CROPS:
            settings = {'interpolation': interpolation, **crop}
            counts, exact = differences(data, settings), differences(data, settings, 'pillow')
            assert not exact[1:].any(), settings
            name = ', '.join([interpolation, *(f'{key}={value!r}' for key, value in crop.items())])
            found[name] = {'values': int(counts.sum()), 'one': rounded(counts[1] / counts.sum()), 'two': int(counts[2]),
                           'more': int(counts[3:].sum())}
            print(name, found[name], flush=True)
    num_photographs = len(timmdata.ImageDataset(data))
    write_results('pixels', {'data': f'{num_photographs} photographs of ImageNet', 'input_size': 224}, results=found)


if __name__ == '__main__': main()
