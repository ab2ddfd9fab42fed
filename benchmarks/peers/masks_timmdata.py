"This library's `create_loader` with `follow`; `options` are further arguments of it."
from masks import OUTSIDE, SIZE, Photographs

from timmdata import ImageDataset, Mask, __version__, create_loader

NAME, VERSION = 'timmdata', __version__


def make(data_dir, work, workers, batch_size, scratch, options):
    settings = dict(num_workers=workers, device='cpu', is_training=True, color_jitter=None, follow={'mask': Mask(outside=OUTSIDE)})
    dataset = ImageDataset(data_dir, mask_key='mask')
    return Photographs(create_loader(dataset, SIZE, batch_size, **{**settings, **options}))
