"""NVIDIA DALI's CPU pipeline: a photograph is decoded once; crops, colors, blur and solarize by its operators, in threads of its own.

It differs from the authors': brightness, contrast (about gray 128), saturation and hue are one matrix in YIQ, always in this order; the
blur is a kernel cut off at three stds. Cubic is a = -0.5 with antialiasing, as Pillow's.
"""
from common import MEAN, RATIO, STD, files
from nvidia import dali
from nvidia.dali import fn, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from views import Photographs, each_view

NAME, VERSION = 'DALI, CPU', dali.__version__
FILTERS = {'bilinear': types.INTERP_LINEAR, 'bicubic': types.INTERP_CUBIC}


def chance(probability: float): return fn.random.coin_flip(probability=probability, dtype=types.BOOL)


def uniform(low: float, high: float): return fn.random.uniform(range=(low, high))


@dali.pipeline_def(enable_conditionals=True)
def pipeline(samples, work):
    paths, targets = map(list, zip(*samples))
    encoded, target = fn.readers.file(files=paths, labels=targets, random_shuffle=True, initial_fill=len(paths), name='reader')
    images = fn.decoders.image(encoded, output_type=types.RGB)
    return *(transformed(images, view) for view in each_view(work)), target


def transformed(images, view):
    "One view of decoded images."
    size, (brightness, contrast, saturation, hue) = view['input_size'], view['color_jitter']
    image = fn.random_resized_crop(
        images, size=(size, size), random_area=view['scale'], random_aspect_ratio=RATIO, num_attempts=10,
        interp_type=FILTERS[view['interpolation']], antialias=True)
    if chance(view['color_jitter_prob']):
        image = fn.color_twist(
            image, brightness=uniform(1 - brightness, 1 + brightness), contrast=uniform(1 - contrast, 1 + contrast),
            saturation=uniform(1 - saturation, 1 + saturation), hue=uniform(-360 * hue, 360 * hue))
    if chance(view['grayscale_prob']): image = fn.hsv(image, saturation=0.)
    if chance(view['gaussian_blur_prob']): image = fn.gaussian_blur(image, sigma=uniform(*view['gaussian_blur_radius']))
    if view['solarize_prob']:
        if chance(view['solarize_prob']): image = fn.cast(dali.math.min(image, 255 - image), dtype=types.UINT8)
    mean, std = ([255 * value for value in values] for values in (MEAN, STD))
    return fn.crop_mirror_normalize(
        image, dtype=types.FLOAT, output_layout='CHW', crop=(size, size), mean=mean, std=std, mirror=fn.random.coin_flip())


class Loader:
    "Unpacks DALI's dicts."

    def __init__(self, iterator, names): self.iterator, self.names = iterator, names

    def __iter__(self):
        for output in self.iterator: yield [output[0][name] for name in self.names], output[0]['targets'].squeeze(1)


def make(data_dir, work, workers, batch_size, scratch, options):
    names = [f'view{k}' for k in range(len(each_view(work)))]
    pipe = pipeline(files(data_dir), work, batch_size=batch_size, num_threads=workers, device_id=None, prefetch_queue_depth=2)
    iterator = DALIGenericIterator(pipe, [*names, 'targets'], reader_name='reader', last_batch_policy=LastBatchPolicy.DROP, auto_reset=True)
    return Photographs(Loader(iterator, names), work, batch_size)
