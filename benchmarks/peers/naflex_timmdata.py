"This library's `create_naflex_loader`; `options` are further arguments of it."
from naflex import Patches, common

from timmdata import ImageDataset, __version__, create_naflex_loader

NAME, VERSION = 'timmdata', __version__


def make(data_dir, work, workers, batch_size, scratch, options):
    dataset = ImageDataset(data_dir)
    return Patches(create_naflex_loader(dataset, **common(work, workers, batch_size), **options), len(dataset))
