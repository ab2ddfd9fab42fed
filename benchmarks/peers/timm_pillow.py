"timm's `create_loader`: Pillow in worker processes, normalized by its prefetcher."
import timm
import timm.data
import torch

NAME, VERSION = 'timm', timm.__version__


def make(data_dir, work, workers, batch_size, scratch, options):
    return make_of(timm.data.ImageDataset(data_dir), work, workers, batch_size)


def make_of(dataset, work, workers, batch_size):
    settings = dict(crop_pct=0.875, interpolation='bicubic')
    if work != 'eval':
        settings = dict(is_training=True, color_jitter=0.4 if work == 'jitter' else None, interpolation='bilinear')
    return timm.data.create_loader(
        dataset, (3, 224, 224), batch_size, num_workers=workers, use_prefetcher=True,
        device=torch.device('cpu'), persistent_workers=True, **settings)
