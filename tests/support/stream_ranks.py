"What each rank of a stream's test does; a module, so that the programs of both ranks find it."
import json
from pathlib import Path

import torch
from loader_parts import SplitStream
from torch import distributed

from timmdata import create_dataset, create_loader
from timmdata.datasets.image_dataset import IterableImageDataset

SHARDS, NUM = 3, 36   # shards are fewer than workers, and not a multiple of the ranks
NUM_WORKERS = (0, 2)


def stream(root, is_training: bool = False, **settings):
    return create_dataset('wds/', root, f'{{0..{SHARDS - 1}}}.tar|{NUM}', is_training=is_training, batch_size=4, **settings)


def refusal(dataset, **settings) -> str:
    "What create_loader says."
    try: create_loader(dataset, 8, 4, **{**dict(num_workers=0, device='cpu', distributed=True), **settings})
    except ValueError as error: return str(error)
    return 'nothing'


def batches(loader) -> list: return [targets.tolist() for _, targets in loader]


def run_stream_rank(rank: int, root: str, init_file: str, out: str):
    "One of two processes: writes what its loaders give."
    torch.set_num_threads(1)
    common, found = dict(input_size=8, batch_size=4, device='cpu'), {}
    early, found['no ranks'] = stream(root), refusal(stream(root))
    distributed.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=2)
    for num_workers in NUM_WORKERS:
        for is_training in (False, True):
            loader = create_loader(stream(root, is_training), is_training=is_training, num_workers=num_workers, distributed=True, **common)
            found[f'{is_training} {num_workers}'] = [batches(loader) for _ in range(3)]
        plain = create_loader(stream(root), num_workers=num_workers, persistent_workers=False, **common)
        found[f'not asked {num_workers}'] = batches(plain)
    found['made early'] = batches(create_loader(early, num_workers=0, **common))
    found['early'] = refusal(early)
    found['auto'] = refusal(stream(root), num_workers='auto')
    found["user's"] = refusal(IterableImageDataset(reader=SplitStream(8)))
    found['skip'] = refusal(stream(root, True, on_error='skip'), is_training=True), refusal(stream(root, on_error='skip'))
    # the same photographs in the same order on both ranks: only the random numbers can differ
    noisy = stream(root, True, sample_shuffle_size=1)
    read_all = noisy.reader.read_shard
    noisy.reader.read_shard = lambda shard_index, num_shards, seed: read_all(0, 1, 0)
    drawn = list(create_loader(noisy, is_training=True, num_workers=0, distributed=True, re_prob=0., **common))
    found['same photographs'] = [targets.tolist() for _, targets in drawn]
    found['pixels'] = [float(value) for images, _ in drawn for value in images.mean((1, 2, 3))]
    distributed.barrier()
    Path(f'{out}{rank}.json').write_text(json.dumps(found))
    distributed.destroy_process_group()
