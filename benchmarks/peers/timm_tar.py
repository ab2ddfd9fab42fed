"timm's `create_loader` reading a tar of class folders."
import tarfile
from pathlib import Path

import timm
import timm.data
import timm_pillow

NAME, VERSION = 'timm, tar', timm.__version__


def tar(data_dir, scratch) -> Path: return Path(scratch)/f'{Path(data_dir).name}.tar'


def prepare(data_dir, work, workers, batch_size, scratch, options):
    if tar(data_dir, scratch).exists(): return
    with tarfile.open(tar(data_dir, scratch), 'w') as file:
        for path in sorted(Path(data_dir).glob('*/*')): file.add(path.resolve(), path.relative_to(data_dir))


def make(data_dir, work, workers, batch_size, scratch, options):
    dataset = timm.data.create_dataset('', str(tar(data_dir, scratch)), split='')
    return timm_pillow.make_of(dataset, work, workers, batch_size)
