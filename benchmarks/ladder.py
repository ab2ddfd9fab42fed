"""The steps of the guide `build_a_loader`, measured: images per second, and a timeline of loading and training.

    python benchmarks/ladder.py [--rounds 7] [--images 640] [--num-workers 2] [--batches 12]

Uses the sample photos. The loaders take turns, one pass per round, after a round that warms up; a pass includes starting the worker
processes. The script prints medians of images per second, relative to the loader that reads one photo after another in the same round.
It then records a pass with a training step on one core, without and with workers: when each batch was loaded and by which worker, and when
each step ran. Both go to results/ladder.json, which the guide plots. Use an otherwise idle machine.
"""
import argparse
import multiprocessing
import sys
import time
from functools import partial
from pathlib import Path

import torch
from results import write_results
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate
from torchvision.transforms import v2

from timmdata.core.demo_data import get_samples
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import compare_speeds, run_pass
from timmdata.measure.stages import spread

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT/'tests/support'))
from build_a_loader import NaiveDataLoader, RandomOrder, WorkerDataLoader  # noqa: E402

SIZE, BATCH = 224, 32


def crop_to(size: int): return v2.Compose([v2.Resize(size), v2.CenterCrop(size), v2.PILToTensor()])


class ByHand:
    "Splits indexes into batches and stacks samples, all in the loop."
    def __init__(self, dataset): self.dataset = dataset

    def __iter__(self):
        for start in range(0, len(self.dataset), BATCH):
            samples = [self.dataset[k] for k in range(start, min(start + BATCH, len(self.dataset)))]
            yield torch.stack([image for image, _ in samples]), torch.tensor([target for _, target in samples])


def rungs(num_images: int, num_workers: int) -> dict:
    "Name → loader, for the same images; the others are compared with the first."
    photographs = spread(ImageDataset(get_samples()), num_images)
    images = spread(ImageDataset(get_samples(), transform=crop_to(SIZE)), num_images)
    held, targets = zip(*images)
    held = TensorDataset(torch.stack(held), torch.tensor(targets))
    settings = dict(device='cpu', crop_pct=1., persistent_workers=False)
    return {
        'one after the other, by hand': ByHand(images),
        'NaiveDataLoader': NaiveDataLoader(images, BATCH),
        'NaiveDataLoader, shuffled': NaiveDataLoader(images, BATCH, sampler=RandomOrder(images)),
        'WorkerDataLoader, 1 worker': WorkerDataLoader(images, BATCH, 1, sampler=RandomOrder(images)),
        f'WorkerDataLoader, {num_workers} workers':
            WorkerDataLoader(images, BATCH, num_workers, sampler=RandomOrder(images)),
        f"torch's DataLoader, {num_workers} workers":
            DataLoader(images, BATCH, sampler=RandomOrder(images), num_workers=num_workers),
        f'create_loader, {num_workers} workers':
            create_loader(photographs, SIZE, BATCH, num_workers=num_workers, shuffle=True, **settings),
        'TensorDataset, all in memory': NaiveDataLoader(held, BATCH, sampler=RandomOrder(held)),
    }


# ---- the timeline

class Stamped:
    "A dataset that returns the time with each sample."
    def __init__(self, dataset): self.dataset = dataset
    def __len__(self): return len(self.dataset)
    def __getitem__(self, index): return time.perf_counter(), self.dataset[index]   # one clock for all processes


def stamped_collate(samples):
    "A batch, the worker that made it, and its start and end time."
    batch, name = default_collate([sample for _, sample in samples]), multiprocessing.current_process().name
    return batch, int(name.removeprefix('worker ')) if name.startswith('worker') else 0, samples[0][0], time.perf_counter()


def trainer(size: int):
    "A training step for a small network, on one core."
    model = nn.Sequential(nn.Conv2d(3, 32, 7, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 2), nn.ReLU(), nn.Conv2d(48, 64, 3, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(images, targets):
        nn.functional.cross_entropy(model(images[:, :, :size, :size].float() / 255), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def record(loader, step) -> dict[str, list]:
    "Run one pass: [(worker, start, end) of each batch], [(start, end) of each step], in ms from its start."
    loads, steps, begin = [], [], time.perf_counter()
    def ms(moment: float) -> int: return round(1000 * (moment - begin))
    for (images, targets), worker, start, end in loader:
        loads.append((worker, ms(start), ms(end)))
        start = time.perf_counter()
        step(images, targets)
        steps.append((ms(start), ms(time.perf_counter())))
    return {'loads': loads, 'steps': steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--images', type=int, default=640, help='samples per pass')
    parser.add_argument('--num-workers', type=int, default=2, help='number of worker processes')
    parser.add_argument('--batches', type=int, default=12, help='batches of the recorded pass')
    parser.add_argument('--step-size', type=int, default=96, help='edge of the images in a training step, in pixels')
    a = parser.parse_args()
    loaders = rungs(a.images, a.num_workers)
    trials = compare_speeds({name: partial(run_pass, loader) for name, loader in loaders.items()}, a.rounds)
    images = Stamped(spread(ImageDataset(get_samples(), transform=crop_to(SIZE)), BATCH * a.batches))
    torch.set_num_threads(1)   # the other cores are for the workers
    step, recorded = trainer(a.step_size), {}
    passes = {'NaiveDataLoader': NaiveDataLoader(images, BATCH, collate_fn=stamped_collate),
              f'WorkerDataLoader, {a.num_workers} workers':
                  WorkerDataLoader(images, BATCH, a.num_workers, collate_fn=stamped_collate)}
    for _ in range(2):   # the first warms up
        for name, loader in passes.items(): recorded[name] = record(loader, step)
    speeds = {trial.name: round(trial.speedup, 2) for trial in trials}
    assert speeds[trials[0].name] == 1   # the others are compared with the first
    settings = dict(num_images=a.images, num_workers=a.num_workers, batch_size=BATCH, size=SIZE, rounds=a.rounds)
    write_results('ladder', settings, speeds=speeds, timeline=recorded)
    for name, speed in speeds.items(): print(f'{name:40}{speed:8.2f}')


if __name__ == '__main__': main()
