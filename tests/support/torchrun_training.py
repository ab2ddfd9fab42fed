"""Plain PyTorch under torchrun: DistributedDataParallel, and a checkpoint that the next run goes on from.

    torchrun --standalone --nproc_per_node 2 torchrun_training.py FOLDER [KILL_AFTER]

Each rank writes what its model saw: FOLDER/begun.RANK.seen, and FOLDER/resumed.RANK.seen if there was a checkpoint. The second
rank is killed after so many steps. (torchrun's own restarts are of no use with gloo 2.15: the new ranks ask for the dead ones.)
"""
import json
import os
import signal
import sys
from pathlib import Path

import torch
from framework_runs import EPOCHS, make_loader, make_model
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

folder, kill_after = Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0
torch.set_num_threads(1)
distributed.init_process_group('gloo')
rank, checkpoint = distributed.get_rank(), folder/'checkpoint.pt'
loader, model, step, first = make_loader(distributed=True), DistributedDataParallel(make_model()), 0, 0
optimizer, name = torch.optim.SGD(model.parameters(), 0.01), 'resumed' if checkpoint.exists() else 'begun'
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved['model'])
    loader.load_state_dict(saved['loader'])   # one state for all ranks
    step, first = saved['step'], saved['loader']['epoch']
distributed.barrier()   # both have looked before one writes
with (folder/f'{name}.{rank}.seen').open('w') as out:
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        for images, targets in loader:
            print(json.dumps(targets.tolist()), file=out, flush=True)
            loss = cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 3 == 0:
                torch.save(dict(model=model.state_dict(), step=step, loader=loader.state_dict()), folder/'new.pt')
                os.replace(folder/'new.pt', checkpoint)
            distributed.barrier()
            if rank == 1 and step == kill_after: os.kill(os.getpid(), signal.SIGKILL)
loader.close()
distributed.destroy_process_group()
