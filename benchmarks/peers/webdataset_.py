"WebDataset: tar shards from front to back in worker processes, decoded and transformed by Pillow, its usual pipeline."
import glob
from pathlib import Path

import webdataset as wds
from packs import Normalized, ToTensor, cache, packed

NAME, VERSION = 'WebDataset', wds.__version__


def prepare(data_dir, work, workers, batch_size, scratch, options):
    packed(data_dir, scratch, 'keep', options.get('shard_bytes'))


def make(data_dir, work, workers, batch_size, scratch, options):
    here = packed(data_dir, scratch, 'keep')
    shards = sorted(glob.glob(f'{here}/*.tar'))
    if 'web' in options: shards = [f'{options["web"]}/{here.name}/{Path(shard).name}' for shard in shards]
    if 'shard_bytes' in options:   # several shards for each worker: they are divided, as is usual
        dataset = wds.WebDataset(shards, shardshuffle=len(shards), **cache(options))
    else: dataset = wds.WebDataset(shards, shardshuffle=False, nodesplitter=None, workersplitter=None).select(EveryOther())
    dataset = dataset.shuffle(0 if work == 'eval' else 1000).decode('pil').to_tuple('jpg', 'cls')
    dataset = dataset.map_tuple(ToTensor(work), int).batched(batch_size, partial=work == 'eval')
    return Normalized(wds.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0))


class EveryOther:
    "Each worker takes its own part of the samples: there are fewer shards than workers."

    def __call__(self, sample):
        import torch
        info = torch.utils.data.get_worker_info()
        return info is None or int(sample['__key__']) % info.num_workers == info.id
