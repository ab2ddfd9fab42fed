"MosaicML Streaming: MDS shards that hold the JPEG files; decoded and transformed by Pillow, as its vision data sets do."
import io
from importlib.metadata import version
from pathlib import Path

import torch
from common import files
from packs import Normalized, ToTensor, cache
from PIL import Image
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

NAME, VERSION = 'MosaicML Streaming', version('mosaicml-streaming')


def folder(data_dir, scratch) -> Path: return Path(scratch)/f'{Path(data_dir).name}-mds'


def prepare(data_dir, work, workers, batch_size, scratch, options):
    if folder(data_dir, scratch).exists(): return
    size = options.get('shard_bytes', 1 << 26)
    with MDSWriter(out=str(folder(data_dir, scratch)), columns=dict(image='bytes', target='int'), size_limit=size) as out:
        for path, target in files(data_dir): out.write(dict(image=Path(path).read_bytes(), target=target))


class Photographs(StreamingDataset):
    "Decodes and transforms."

    def __init__(self, *args, work, **settings):
        super().__init__(*args, **settings)
        self.steps = ToTensor(work)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return self.steps(Image.open(io.BytesIO(found['image']))), found['target']


def make(data_dir, work, workers, batch_size, scratch, options):
    here = folder(data_dir, scratch)
    place = dict(remote=f'{options["bucket"]}/{here.name}', **cache(options, 'local')) if 'bucket' in options else dict(local=str(here))
    dataset = Photographs(**place, shuffle=work != 'eval', batch_size=batch_size, work=work)
    for stream in dataset.streams if 'bucket' in options else []:
        stream._downloader.clean_up()   # its connection has read the index: forked workers would share it, and get each other's answers
    loader = StreamingDataLoader if options else torch.utils.data.DataLoader   # the first one has a state
    return Normalized(loader(dataset, batch_size=batch_size, num_workers=workers, persistent_workers=True))
