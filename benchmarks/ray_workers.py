"""Ray actors compared with processes on the cores of this machine, and the cost of handing over a batch.

    python benchmarks/ray_workers.py DIR [--rounds 7] [--images 418]

DIR contains class folders. The loaders have two workers each and take turns, one epoch per round. The handed-over batch has 64 images of
224 pixels and costs its worker nothing; the time is from the request until the batch is in the trainer's memory, one batch at a time, in
turns. Medians go to results/ray_workers.json. Use an otherwise idle machine; the numbers include no network between machines.
"""
import argparse
import statistics
import time
from functools import partial

import ray
from results import rounded, write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import compare_speeds, run_pass
from timmdata.measure.stages import spread
from timmdata.pipeline.fetch import BatchBuilder, SampleLoader
from timmdata.pipeline.params import ParamSampler
from timmdata.pipeline.sample_transform import SampleTransform
from timmdata.samplers.epoch import SampleKey
from timmdata.transforms.settings import AugmentSettings
from timmdata.workers.processes import ProcessPool
from timmdata.workers.ray_pool import RayPool
from timmdata.workers.settings import WorkerSettings

SIZE, BATCH = 224, 64
WORKS = {'crop, flip': dict(color_jitter=None), 'crop, flip, color jitter': {}}
POOLS = {'processes': ProcessPool, 'ray': RayPool}


class Nothing(BatchBuilder):
    "Leaves the rows unchanged."
    def load(self, key, rows=None, refuse=''): return [(row, 0) for row in rows]


def compare(samples, rounds: int, **settings) -> float:
    "Images per second of actors relative to processes."
    loaders = {kind: create_loader(samples, SIZE, 32, is_training=True, seed=0, num_workers=2, worker_type=kind, device='cpu', **settings)
               for kind in POOLS}
    try: trials = compare_speeds({kind: partial(run_pass, loader) for kind, loader in loaders.items()}, rounds)
    finally:
        for loader in loaders.values(): loader.close()
    return next(trial.speedup for trial in trials if trial.name == 'ray')


def hand_over(samples, rounds: int) -> dict[str, float]:
    "Worker type → milliseconds per batch."
    transform = SampleTransform(ParamSampler(AugmentSettings(SIZE)))
    builder = Nothing(SampleLoader(samples, [transform]))
    keys = [SampleKey(k % len(samples), 0) for k in range(BATCH)]
    pools = {kind: make(builder, WorkerSettings(1, kind), builder.batch_bytes(BATCH)) for kind, make in POOLS.items()}
    spent = {kind: [] for kind in pools}
    try:
        for _ in range(10 * rounds + 1):
            for kind, pool in pools.items():
                start = time.perf_counter()
                pool.take(pool.submit(keys))
                spent[kind].append(1000 * (time.perf_counter() - start))
    finally:
        for pool in pools.values(): pool.close()
    return {kind: statistics.median(ms[1:]) for kind, ms in spent.items()}   # the first starts the workers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--images', type=int, default=418, help='samples per epoch')
    a = parser.parse_args()
    samples = spread(ImageDataset(a.data, split=None), a.images)
    found = {work: compare(samples, a.rounds, **settings) for work, settings in WORKS.items()}
    settings = dict(data=f'{len(samples)} photographs', num_workers=2, rounds=a.rounds, ray=ray.__version__)
    write_results('ray_workers', settings, **rounded({
        'ray ÷ processes': found, 'hand_over_ms': hand_over(samples, a.rounds), 'hand_over_mb': 3 * SIZE * SIZE * BATCH / 1e6}))


if __name__ == '__main__': main()
