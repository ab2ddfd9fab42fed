"Data sets and transforms of the loader tests; importable, so that spawned workers find them."
import json
import os
import random
import signal
import time

import numpy as np
import torch
from PIL import Image


class Coded(torch.utils.data.Dataset):
    "Tiny images whose pixels say their index; targets are the index."
    def __init__(self, num: int): self.num = num
    def __len__(self): return self.num

    def __getitem__(self, index):
        array = np.full((8, 8, 3), index % 256, np.uint8)
        array[:, :, 2] = index // 256
        return Image.fromarray(array), index


class Slow(Coded):
    "Takes its time for one index."
    def __init__(self, num, slow_index, seconds):
        super().__init__(num); self.slow_index, self.seconds = slow_index, seconds

    def __getitem__(self, index):
        if index == self.slow_index: time.sleep(self.seconds)
        return super().__getitem__(index)


class Suicidal(Coded):
    "Kills its own process at one index, as the kernel does when memory is out."
    def __init__(self, num, at): super().__init__(num); self.at = at

    def __getitem__(self, index):
        if index == self.at: os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Failing(Coded):
    "Raises at one index."
    def __init__(self, num, at): super().__init__(num); self.at = at

    def __getitem__(self, index):
        if index == self.at: raise ZeroDivisionError('one sample is bad')
        return super().__getitem__(index)


class Reporting(Coded):
    "The target is the process that made the sample."
    def __getitem__(self, index): return super().__getitem__(index)[0], os.getpid()


class Fields(Coded):
    "Samples as dicts with further fields."
    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return {'image': image, 'target': target, 'name': f'{index}.jpg', 'box': [0., 0., 1., float(index)]}


class Stream:
    "A reader that can only be read from front to back."
    def __init__(self, num): self.num = num
    def __iter__(self): return (Coded(self.num)[k] for k in range(self.num))
    def __len__(self): return self.num


class SplitStream(Stream):
    "A stream that divides itself among the workers and wants to know the epoch."
    def __init__(self, num): super().__init__(num); self.num_workers = self.epoch = None
    def set_loader_cfg(self, num_workers=None): self.num_workers = num_workers
    def set_epoch(self, epoch): self.epoch = epoch

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (Coded(self.num)[k] for k in range(first, self.num, step))


class Noise:
    "A transform that draws from all three generators."
    def __call__(self, image):
        values = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return torch.tensor([int(255 * v) for v in values], dtype=torch.uint8).view(3, 1, 1).expand(3, 4, 4)


class Refuse:
    "A transform that raises for one image."
    def __call__(self, image):
        if image.getpixel((0, 0))[0] == 5: raise ValueError('cannot transform this')
        return torch.zeros(3, 4, 4, dtype=torch.uint8)


def plain_collate(samples): return torch.stack([s[0] for s in samples]), torch.tensor([s[1] for s in samples])


def run_rank(rank: int, init_file: str, out: str, cases: list):
    "One of two processes of a distributed run: writes the targets of two epochs, for each (number of samples, is_training)."
    import torch.distributed as dist

    from timmdata.loader import create_loader
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=2)
    seen = []
    for num, is_training in cases:
        loader = create_loader(Coded(num), 8, 4, is_training, distributed=True, num_workers=1 if rank else 0,
                               device='cpu')
        seen.append(dict(epochs=[[targets.tolist() for _, targets in loader] for _ in range(2)], length=len(loader)))
    dist.barrier()
    with open(f'{out}{rank}.json', 'w') as file: json.dump(seen, file)
    dist.destroy_process_group()
