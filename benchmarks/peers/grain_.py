"""Grain, which brings no image code: torchvision decodes and resizes uint8 tensors in its reading threads.

The data set repeats for ever, as is usual with Grain: an epoch is the next len / batch_size batches.
Option "processes": in as many worker processes instead, which is slower here and interleaves their batches.
"""
from importlib.metadata import version
from itertools import islice

import grain
import torch
from common import LeanPipeline, files, normalized
from torchvision.io import ImageReadMode, decode_image, read_file

NAME, VERSION = 'Grain', version('grain')


class Load:
    "A sample's path → its transformed image and class."

    def __init__(self, work, processes): self.transform, self.processes = LeanPipeline(work), processes

    def __call__(self, sample):
        if self.processes: torch.set_num_threads(1)   # of this one
        path, target = sample
        return self.transform(decode_image(read_file(path), ImageReadMode.RGB)).numpy(), target


class Loader:
    "One iterator; each epoch takes its share of it."

    def __init__(self, data_dir, work, workers, batch_size, processes):
        source = grain.MapDataset.source(files(data_dir))
        self.batches = len(source) // batch_size
        order = source if work == 'eval' else source.shuffle(seed=0)
        images = order.repeat().map(Load(work, processes))
        reading = grain.ReadOptions(num_threads=1 if processes else workers, prefetch_buffer_size=2 * batch_size)
        batches = images.to_iter_dataset(reading).batch(batch_size)
        if processes: batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        self.iterator = iter(batches)

    def __iter__(self):
        for pixels, targets in islice(self.iterator, self.batches): yield normalized(torch.from_numpy(pixels)), torch.from_numpy(targets)


def make(data_dir, work, workers, batch_size, scratch, options):
    return Loader(data_dir, work, workers, batch_size, options.get('processes', False))
