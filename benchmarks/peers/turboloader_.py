"TurboLoader: its own raw file of squares of 256 pixels; crop, resize, flip and normalize are one pass of its own, without antialiasing."
import tarfile
from pathlib import Path

import torch
import turboloader
from packs import size_note

NAME, VERSION = 'TurboLoader, raw', turboloader.__version__


def table(data_dir, scratch) -> Path: return Path(scratch)/f'{Path(data_dir).name}.tbl'


def prepare(data_dir, work, workers, batch_size, scratch, options):
    path = table(data_dir, scratch)
    if not path.exists():
        tar = path.with_suffix('.turbo.tar')
        with tarfile.open(tar, 'w') as file:
            for photo in sorted(Path(data_dir).glob('*/*')): file.add(photo.resolve(), f'{photo.parent.name}_{photo.name}')
        turboloader.preprocess_to_tbl(str(tar), str(path), 256)
    return size_note(data_dir, [path])


class Loader:
    "Batches with indexes in place of targets."

    def __init__(self, loader): self.loader = loader

    def __iter__(self):
        for images, about in self.loader: yield torch.as_tensor(images), about['indices']


def make(data_dir, work, workers, batch_size, scratch, options):
    if work != 'train': return 'it has crop and flip only'
    return Loader(turboloader.TblRawImageLoader(str(table(data_dir, scratch)), batch_size, image_size=224, train_aug=True, hflip_prob=0.5))
