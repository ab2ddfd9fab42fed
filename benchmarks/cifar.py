"""Small images: the device cache compared with the usual path, and with torch's DataLoader and torchvision's v2 transforms.

    python benchmarks/cifar.py DIR [--rounds 7] [--num-workers 2] [--batch-size 128] [--device cpu] [--seconds 1]

DIR contains class folders of 32 × 32 images, such as CIFAR-10's, or a folder train/ with them. All loaders do the same work: pad by 4,
crop 32 × 32, flip, normalize, move to the device. "In memory" means one uint8 array, as in torchvision's CIFAR10. The loaders take turns,
after a round that starts the workers and fills the cache. A turn has as many epochs as fill `--seconds`. Speeds are relative to the first
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
from side_by_side import take_turns
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import cpu_seconds
from timmdata.readers.folder import find_splits

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)   # of CIFAR-10's training pixels


class InMemory(Dataset):
    "Images in one array, returned as PIL images, as in torchvision.datasets.CIFAR10."

    def __init__(self, dataset: Dataset, transform=None):
        samples = list(dataset)
        self.data, self.targets, self.transform = np.stack([np.asarray(image) for image, _ in samples]), [t for _, t in samples], transform

    def __len__(self) -> int: return len(self.data)

    def __getitem__(self, index: int) -> tuple:
        image = Image.fromarray(self.data[index])
        return (image if self.transform is None else self.transform(image)), self.targets[index]


class Moved:
    "A DataLoader that moves its batches to a device."

    def __init__(self, loader: DataLoader, device: torch.device): self.loader, self.device = loader, device

    def __iter__(self):
        for batch in self.loader: yield [tensor.to(self.device, non_blocking=True) for tensor in batch]


def make_loaders(root: str, device: torch.device, batch_size: int, num_workers: int) -> dict:
    "Name → loader; the others are compared with the first."
    split = 'train' if find_splits(root) else None
    transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToImage(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    files, memory = ImageDataset(root, split=split), InMemory(ImageDataset(root, split=split))

    def torchs(dataset):
        return Moved(DataLoader(dataset, batch_size, shuffle=True, drop_last=True, num_workers=num_workers,
                                persistent_workers=num_workers > 0, pin_memory=device.type == 'cuda'), device)

    def ours(dataset, **settings):
        return create_loader(dataset, (3, 32, 32), batch_size, is_training=True, train_crop_mode='rc', rc_padding=4, color_jitter=None,
                             mean=MEAN, std=STD, num_workers=num_workers, seed=0, device=device, **settings)

    return {'DataLoader and v2, images in memory': torchs(InMemory(files, transform)),
            'DataLoader and v2, files': torchs(ImageDataset(root, split=split, transform=transform)),
            'create_loader, images in memory': ours(memory), 'create_loader, files, threads': ours(files, worker_type='threads'),
            'create_loader, files, processes': ours(files, worker_type='processes'),
            "create_loader, cache='device'": ours(files, cache='device')}


def run(loader, device: torch.device, seconds: float) -> tuple[float, float]:
    "Images per second and CPU time per image in ms, for as many epochs as the time allows."
    count, cpu, start = 0, cpu_seconds() or float('nan'), time.perf_counter()
    while time.perf_counter() - start < seconds or not count:
        for images, _ in loader: count += len(images)
        if device.type != 'cpu': torch.get_device_module(device).synchronize()
    wall = time.perf_counter() - start
    return count / wall, 1000 * ((cpu_seconds() or float('nan')) - cpu) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=128)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--seconds', type=float, default=1., help='duration of a turn')
    parser.add_argument('--out', type=Path, help='folder for cifar.json; default: benchmarks/results')
    a = parser.parse_args()
    device = torch.device(a.device)
    loaders = make_loaders(a.data, device, a.batch_size, a.num_workers)
    turns = take_turns({name: partial(run, loader, device, a.seconds) for name, loader in loaders.items()}, a.rounds)
    first, found = next(iter(turns.values())), {}
    for name, column in turns.items():
        ratio = statistics.median(turn[0] / base[0] for turn, base in zip(column, first))
        found[name] = dict(speed=round(ratio, 2), cpu_ms=round(statistics.median(turn[1] for turn in column), 3))
    settings = dict(device=device.type, num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds)
    write_results('cifar', settings, a.out, results=found)
    for name, numbers in found.items(): print(name, numbers)
    for loader in list(loaders.values())[2:]: loader.loader.close()


if __name__ == '__main__': main()
