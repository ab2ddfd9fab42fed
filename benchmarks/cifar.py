"""Small images: create_loader compared with torch's DataLoader and torchvision's v2 transforms, both with 32 × 32 images.

    python benchmarks/cifar.py DIR [--rounds 7] [--num-workers 2] [--batch-sizes 128,512] [--device cpu] [--seconds 1]

DIR contains class folders of 32 × 32 images, such as CIFAR-10's, or a folder train/ with them. All loaders do the same work: pad by 4,
crop 32 × 32, flip, normalize, move to the device. "In memory" means one uint8 array, as in torchvision's CIFAR10. The loaders take turns,
after a round that starts the workers and fills the caches. A turn has as many epochs as fill `--seconds`. Speeds are relative to the first
loader in the same round; medians go to results/cifar.json, which the guide `cifar10` plots. CPU time is that of the whole process tree.
Use an otherwise idle machine.
"""
import argparse
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from results import write_results
from side_by_side import cpu_seconds, process_tree, take_turns
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.readers.folder import find_splits

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)   # of CIFAR-10's training pixels
OURS = dict(is_training=True, train_crop_mode='rc', rc_padding=4, color_jitter=None, mean=MEAN, std=STD, seed=0)


class InMemory(Dataset):
    "Images in one array, returned as PIL images, as in torchvision.datasets.CIFAR10."

    def __init__(self, dataset: Dataset, transform=None):
        images, self.targets = zip(*dataset)
        self.data, self.transform = np.stack([np.asarray(image) for image in images]), transform

    def __len__(self) -> int: return len(self.data)

    def __getitem__(self, index: int) -> tuple:
        image = Image.fromarray(self.data[index])
        return (image if self.transform is None else self.transform(image)), self.targets[index]


def make_loaders(root: str, device: torch.device, batch_size: int, num_workers: int) -> dict:
    "Name → loader; the others are compared with the first."
    transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToImage(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    files = ImageDataset(root, split='train' if find_splits(root) else None)
    theirs = DataLoader(InMemory(files, transform), batch_size, shuffle=True, drop_last=True, num_workers=num_workers,
                        persistent_workers=num_workers > 0, pin_memory=device.type == 'cuda')
    ours = partial(create_loader, input_size=(3, 32, 32), batch_size=batch_size, num_workers=num_workers, device=device, **OURS)
    return {'DataLoader, images in memory': theirs,
            'create_loader, images in memory': ours(InMemory(files)),
            'create_loader, threads': ours(files, worker_type='threads'),
            'create_loader, processes': ours(files, worker_type='processes'),
            "create_loader, cache='device'": ours(files, cache='device')}


def run(loader, device: torch.device, seconds: float) -> tuple[float, float]:
    "Images per second and CPU time per image in ms, for as many epochs as the time allows."
    count, cpu, start = 0, cpu_seconds(process_tree()), time.perf_counter()
    while time.perf_counter() - start < seconds or not count:
        for batch in loader: count += len([tensor.to(device, non_blocking=True) for tensor in batch][0])
        if device.type != 'cpu': torch.get_device_module(device).synchronize()
    wall = time.perf_counter() - start
    return count / wall, 1000 * (cpu_seconds(process_tree()) - cpu) / count


def compare(loaders: dict, device: torch.device, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    "Loader → speed relative to the first one, and CPU time per image."
    turns = take_turns({name: partial(run, loader, device, seconds) for name, loader in loaders.items()}, rounds)
    first, found = next(iter(turns.values())), {}
    for name, column in turns.items():
        ratio = statistics.median(speed / base for (speed, _), (base, _) in zip(column, first))
        found[name] = dict(speed=round(ratio, 2), cpu_ms=round(statistics.median(cpu for _, cpu in column), 3))
        print(f'{name:32s} {found[name]}', flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-sizes', default='128,512')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--seconds', type=float, default=1., help='duration of a turn')
    parser.add_argument('--out', type=Path, help='folder for cifar.json; default: benchmarks/results')
    a = parser.parse_args()
    device, found = torch.device(a.device), {}
    for batch_size in map(int, a.batch_sizes.split(',')):
        print(f'batches of {batch_size}')
        loaders = make_loaders(a.data, device, batch_size, a.num_workers)
        found[batch_size] = compare(loaders, device, a.seconds, a.rounds)
        for loader in list(loaders.values())[1:]: loader.close()
    write_results('cifar', dict(device=device.type, num_workers=a.num_workers, rounds=a.rounds), a.out, results=found)


if __name__ == '__main__': main()
