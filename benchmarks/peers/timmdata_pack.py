"This library reading its own pack; `options` are its format, and further arguments of `create_loader`."
from packs import cache, packed, size_note

from timmdata import ImageDataset, __version__, create_loader

NAME, VERSION = 'timmdata', __version__


def prepare(data_dir, work, workers, batch_size, scratch, options):
    return size_note(data_dir, packed(data_dir, scratch, options['format'], options.get('shard_bytes')).rglob('*'))


def make(data_dir, work, workers, batch_size, scratch, options):
    options, settings = dict(options), dict(interpolation='bicubic')
    root = packed(data_dir, scratch, options.pop('format'))
    if 'bucket' in options: root = f'{options["bucket"]}/{root.name}'
    dataset = ImageDataset(root, **cache(options))
    for name in 'bucket', 'web', 'cache', 'shard_bytes': options.pop(name, None)
    if work != 'eval': settings = dict(is_training=True, color_jitter=0.4 if work == 'jitter' else None)
    return create_loader(dataset, (3, 224, 224), batch_size,
                         **{**dict(num_workers=workers, device='cpu'), **settings, **options})
