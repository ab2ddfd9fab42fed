"What each rank does in the test of their common seed; a module, so that the programs of both ranks find it."
import json
import warnings
from pathlib import Path

import torch
from loader_parts import Coded, Stream
from torch import distributed
from torch.utils.data import DistributedSampler

from timmdata import create_loader
from timmdata.datasets.image_dataset import IterableImageDataset

NUM, BASES = 40, (0, 5)


class Share(Stream):
    "A stream of one rank's samples."
    def __init__(self, rank: int, num: int):
        super().__init__(num)
        self.world, self.is_training = (rank, num), True


def warned(dataset, is_training: bool = True, **settings) -> list[str]:
    "Return the warnings of create_loader."
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        create_loader(dataset, 8, 4, is_training, num_workers=0, device='cpu', **settings)
    return [str(one.message) for one in found]


def run_seed_rank(rank: int, init_file: str, out: str):
    "One of two processes: writes its seeds, its targets and its warnings."
    torch.set_num_threads(1)
    distributed.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=2)
    settings, found = dict(is_training=True, distributed=True, num_workers=0, device='cpu'), dict(seeds=[], targets=[])
    for base in BASES:
        torch.manual_seed(base + rank)   # as timm's train.py
        loader = create_loader(Coded(NUM), 8, 5, **settings)
        found['seeds'].append(loader.seed)
        found['targets'].append([target for _, targets in loader for target in targets.tolist()])
    generator = torch.Generator().manual_seed(7 + rank)
    found['generator'] = create_loader(Coded(NUM), 8, 5, generator=generator, **settings).seed
    found['given'] = create_loader(Coded(NUM), 8, 5, seed=11, **settings).seed
    found['stream'] = create_loader(IterableImageDataset(reader=Share(rank, 2)), 8, 5, **settings).seed
    found['forgotten'] = warned(Coded(NUM))
    found['forgotten stream'] = warned(IterableImageDataset(reader=Share(0, 1)))
    found['fine'] = [
        *warned(Coded(NUM), False), *warned(Coded(NUM), distributed=True), *warned(IterableImageDataset(reader=Share(rank, 2))),
        *warned(IterableImageDataset(reader=Stream(NUM))), *warned(Coded(NUM), sampler=DistributedSampler(range(NUM)))]
    distributed.barrier()
    Path(f'{out}{rank}.json').write_text(json.dumps(found))
    distributed.destroy_process_group()
