"WebDataset: tar shards from front to back in worker processes, decoded and transformed by Pillow, its usual pipeline."
import glob

import webdataset as wds
from packs import Normalized, ToTensor, packed

NAME, VERSION = 'WebDataset', wds.__version__


def prepare(data_dir, work, workers, batch_size, scratch, options): packed(data_dir, scratch, 'keep')


def make(data_dir, work, workers, batch_size, scratch, options):
    shards = sorted(glob.glob(f'{packed(data_dir, scratch, "keep")}/*.tar'))
    dataset = wds.WebDataset(shards, shardshuffle=False, nodesplitter=None, workersplitter=None)
    dataset = dataset.select(EveryOther()).shuffle(0 if work == 'eval' else 1000).decode('pil').to_tuple('jpg', 'cls')
    dataset = dataset.map_tuple(ToTensor(work), int).batched(batch_size, partial=work == 'eval')
    return Normalized(wds.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0))


class EveryOther:
    "Each worker takes its own part of the samples: there are fewer shards than workers."

    def __call__(self, sample):
        import torch
        info = torch.utils.data.get_worker_info()
        return info is None or int(sample['__key__']) % info.num_workers == info.id
