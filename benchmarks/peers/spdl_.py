"""SPDL's thread pipeline: each task loads a batch; torchvision decodes and resizes (faster here than SPDL's FFmpeg decoder and swscale).

One pipeline with an endless source: an epoch is its next len / batch_size batches, for stopping a pipeline takes 0.1 seconds.
"""
from importlib.metadata import version
from itertools import islice

import torch
from common import LeanPipeline, files, normalized, shuffled
from spdl.pipeline import PipelineBuilder
from torchvision.io import ImageReadMode, decode_image, read_file

NAME, VERSION = 'SPDL', version('spdl-core')


class Loader:
    "The pipeline, started when it is first asked for a batch."

    def __init__(self, data_dir, work, workers, batch_size):
        self.samples, self.work, self.batch_size, self.transform = files(data_dir), work, batch_size, LeanPipeline(work)
        torch.set_num_threads(1)   # the batches are normalized in SPDL's threads
        builder = PipelineBuilder().add_source(self.source())
        builder = builder.pipe(self.batch, concurrency=workers, output_order='input').add_sink(2)
        self.pipeline = builder.build(num_threads=workers)
        self.iterator = None

    def source(self):
        while True:
            samples = shuffled(self.samples, self.work)
            for k in range(0, len(samples), self.batch_size): yield samples[k:k + self.batch_size]

    def batch(self, samples):
        images = [self.transform(decode_image(read_file(path), ImageReadMode.RGB)) for path, _ in samples]
        return normalized(torch.stack(images)), torch.tensor([target for _, target in samples])

    def __iter__(self):
        if self.iterator is None:
            self.pipeline.start()
            self.iterator = self.pipeline.get_iterator()
        yield from islice(self.iterator, len(self.samples) // self.batch_size)


def make(data_dir, work, workers, batch_size, scratch, options): return Loader(data_dir, work, workers, batch_size)
