"This library's `create_loader` with `views`; `options` are further arguments of it."
from views import VIEWS, Photographs

from timmdata import ImageDataset, View, __version__, create_loader

NAME, VERSION = 'timmdata', __version__


def make(data_dir, work, workers, batch_size, scratch, options):
    settings = dict(num_workers=workers, device='cpu', is_training=True)
    views = [View(**view) for view in VIEWS[work]]
    loader = create_loader(ImageDataset(data_dir), views=views, batch_size=batch_size, **{**settings, **options})
    return Photographs(loader, work, batch_size)
