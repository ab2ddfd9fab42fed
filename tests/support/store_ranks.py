"""Ranks that train from a pack in a store, under torchrun; the run goes on where a state says, perhaps with another number of ranks.

    torchrun --standalone --nproc_per_node N store_ranks.py URL FOLDER NAME BATCH_SIZE [STOP_AFTER]

Each rank writes FOLDER/NAME.RANK.json: digests of the images that it saw, and the bytes that it asked the store for.
"""
import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import distributed

from timmdata import ImageDataset, create_loader

url, folder, name, batch_size, stop_after = *sys.argv[1:4], int(sys.argv[4]), int((*sys.argv[5:], '0')[0])
torch.set_num_threads(1)
distributed.init_process_group('gloo')
rank, state, seen = distributed.get_rank(), Path(folder)/'state.json', []
dataset = ImageDataset(url, split='val')
loader = create_loader(dataset, 32, batch_size, is_training=True, seed=5, distributed=True, num_workers=1, worker_type='threads',
                       device='cpu', persistent_workers=False)   # of one epoch only
if state.exists(): loader.load_state_dict(json.loads(state.read_text()))
distributed.barrier()
for step, (images, _) in enumerate(loader, 1):
    seen += [hashlib.md5(image.contiguous().numpy().tobytes()).hexdigest() for image in images]
    if step == stop_after: break
if rank == 0: state.write_text(json.dumps(loader.state_dict()))
counts = dataset.reader.store.counts
(Path(folder)/f'{name}.{rank}.json').write_text(json.dumps(dict(seen=seen, asked=counts.bytes_asked)))
loader.close()
distributed.barrier()
distributed.destroy_process_group()
