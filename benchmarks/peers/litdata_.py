"LitData: its chunks hold the JPEG files; decoded with torchvision, transformed by its v2 on tensors."
from importlib.metadata import version
from pathlib import Path

import litdata
import torch
from common import LeanPipeline, files
from litdata.streaming import downloader
from packs import Normalized, cache
from torchvision.io import ImageReadMode, decode_jpeg

NAME, VERSION = 'LitData', version('litdata')


def sample(entry): return dict(image=Path(entry[0]).read_bytes(), target=entry[1])


def folder(data_dir, scratch) -> Path: return Path(scratch)/f'{Path(data_dir).name}-litdata'


def prepare(data_dir, work, workers, batch_size, scratch, options):
    if folder(data_dir, scratch).exists(): return
    litdata.optimize(
        sample, files(data_dir), str(folder(data_dir, scratch)), chunk_bytes=options.get('shard_bytes', '64MB'), num_workers=1)


class Photographs(litdata.StreamingDataset):
    "Decodes and transforms."

    def __init__(self, *args, work, **settings):
        super().__init__(*args, **settings)
        self.steps = LeanPipeline(work)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        data = torch.frombuffer(bytearray(found['image']), dtype=torch.uint8)
        return self.steps(decode_jpeg(data, ImageReadMode.RGB)), found['target']


def make(data_dir, work, workers, batch_size, scratch, options):
    here, place = folder(data_dir, scratch), {}
    if 'bucket' in options:
        downloader._OBSTORE_CLIENT_OPTIONS['allow_http'] = True   # else it refuses a server without TLS
        here, place = f'{options["bucket"]}/{here.name}', dict(max_cache_size='10GB', **cache(options))
    dataset = Photographs(str(here), shuffle=work != 'eval', drop_last=False, work=work, **place)
    return Normalized(litdata.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers, persistent_workers=True))
