"""FFCV: its own file, written once, whose photographs are encoded anew: at most 500 pixels (phone: all) and JPEG quality 90.

It resizes with OpenCV's INTER_AREA, evaluation too, of which the crop is 224/256 of the shorter edge.
Its jitter has a probability of 1 for each of the three, as the other loaders' has.
"""
from importlib.metadata import version
from pathlib import Path

import numpy as np
from common import JITTER, MEAN, RATIO, RESIZE, SCALE, SIZE, STD, files
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import (
    NormalizeImage,
    RandomBrightness,
    RandomContrast,
    RandomHorizontalFlip,
    RandomSaturation,
    Squeeze,
    ToTensor,
    ToTorchImage,
)
from ffcv.writer import DatasetWriter
from PIL import Image

NAME, VERSION = 'FFCV, own format', version('ffcv')


class Photographs:
    "What the writer reads."

    def __init__(self, samples): self.samples = samples

    def __len__(self): return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return Image.open(path).convert('RGB'), target


def beton(data_dir, scratch, options) -> Path:
    return Path(scratch)/f'{Path(data_dir).name}-{options.get("mode", "jpg")}.beton'


def prepare(data_dir, work, workers, batch_size, scratch, options):
    path, samples = beton(data_dir, scratch, options), files(data_dir)
    if path.exists(): return
    field = RGBImageField(options.get('mode', 'jpg'), max_resolution=None if work == 'phone' else 500, jpeg_quality=90)
    writer = DatasetWriter(str(path), {'image': field, 'label': IntField()}, num_workers=workers)
    writer.from_indexed_dataset(Photographs(samples))
    before = sum(Path(file).stat().st_size for file, _ in samples)
    after = Reader(str(path)).alloc_table['size'].sum()
    return f"its images have {after / before:.0%} of the photographs' bytes"


def make(data_dir, work, workers, batch_size, scratch, options):
    if work == 'eval': images = [CenterCropRGBImageDecoder((SIZE, SIZE), SIZE / RESIZE)]
    else: images = [RandomResizedCropRGBImageDecoder((SIZE, SIZE), SCALE, RATIO), RandomHorizontalFlip()]
    if work == 'jitter': images += [step(JITTER, p=1.) for step in (RandomBrightness, RandomContrast, RandomSaturation)]
    mean, std = (np.array(values) * 255 for values in (MEAN, STD))
    images += [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage()]
    order = OrderOption.SEQUENTIAL if work == 'eval' else OrderOption.RANDOM
    return Loader(str(beton(data_dir, scratch, options)), batch_size, workers, os_cache=True, order=order, drop_last=False,
                  pipelines={'image': images, 'label': [IntDecoder(), ToTensor(), Squeeze()]})
