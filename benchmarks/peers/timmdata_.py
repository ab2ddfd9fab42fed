"This library's `create_loader`; `options` are further arguments of it."
from timmdata import ImageDataset, __version__, create_loader  # now: `import timmdata` alone leaves torch for later

NAME, VERSION = 'timmdata', __version__


def make(data_dir, work, workers, batch_size, scratch, options):
    settings = dict(interpolation='bicubic')
    if work != 'eval': settings = dict(is_training=True, color_jitter=0.4 if work == 'jitter' else None)
    return create_loader(
        ImageDataset(data_dir), (3, 224, 224), batch_size,
        **{**dict(num_workers=workers, device='cpu'), **settings, **options})
