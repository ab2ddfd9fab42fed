"""NVIDIA DALI's CPU pipeline: threads of its own, only the crop's part of a JPEG decoded, copied to torch tensors.

Evaluation rounds the longer edge where torchvision cuts it off, so that some of its crops lie half a pixel aside.
"""
from common import JITTER, MEAN, RATIO, RESIZE, SCALE, SIZE, STD, files
from nvidia import dali
from nvidia.dali import fn, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

NAME, VERSION = 'DALI, CPU', dali.__version__


@dali.pipeline_def
def pipeline(samples, work):
    paths, targets = map(list, zip(*samples))
    encoded, target = fn.readers.file(files=paths, labels=targets, random_shuffle=work != 'eval', initial_fill=len(paths), name='reader')
    return transformed(encoded, work), target


def transformed(encoded, work):
    "The images of a pipeline."
    if work == 'eval':
        images = fn.decoders.image(encoded, output_type=types.RGB)
        images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_CUBIC, antialias=True, subpixel_scale=False)
        mirror = 0
    else:
        images = fn.decoders.image_random_crop(
            encoded, output_type=types.RGB, random_area=SCALE, random_aspect_ratio=RATIO, num_attempts=10)
        images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, antialias=True)
        mirror = fn.random.coin_flip()
    if work == 'jitter':
        factors = {name: fn.random.uniform(range=(1 - JITTER, 1 + JITTER)) for name in ('brightness', 'contrast', 'saturation')}
        images = fn.color_twist(images, **factors)
    mean, std = ([255 * value for value in values] for values in (MEAN, STD))
    return fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout='CHW', crop=(SIZE, SIZE), mean=mean, std=std, mirror=mirror,
        rounding='truncate')


class Loader:
    "Unpacks DALI's dicts."

    def __init__(self, iterator): self.iterator = iterator

    def __iter__(self):
        for output in self.iterator: yield output[0]['images'], output[0]['targets'].squeeze(1)


def make(data_dir, work, workers, batch_size, scratch, options):
    pipe = pipeline(files(data_dir), work, batch_size=batch_size, num_threads=workers, device_id=None, prefetch_queue_depth=2)
    policy = LastBatchPolicy.PARTIAL if work == 'eval' else LastBatchPolicy.DROP
    return Loader(DALIGenericIterator(pipe, ['images', 'targets'], reader_name='reader', last_batch_policy=policy, auto_reset=True))
