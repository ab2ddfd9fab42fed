"This library reading its own pack; `options` are its format, and further arguments of `create_loader`."
from packs import packed, size_note

from timmdata import ImageDataset, __version__, create_loader

NAME, VERSION = 'timmdata', __version__


def prepare(data_dir, work, workers, batch_size, scratch, options):
    return size_note(data_dir, packed(data_dir, scratch, options['format']).rglob('*'))


def make(data_dir, work, workers, batch_size, scratch, options):
    options, settings = dict(options), dict(interpolation='bicubic')
    dataset = ImageDataset(packed(data_dir, scratch, options.pop('format')))
    if work != 'eval': settings = dict(is_training=True, color_jitter=0.4 if work == 'jitter' else None)
    return create_loader(dataset, (3, 224, 224), batch_size,
                         **{**dict(num_workers=workers, device='cpu'), **settings, **options})
