"""Measure the loader with the settings of the page `measure/stages`, which draws results/bench.json.

    python benchmarks/record_bench.py DIR [--rounds 7] [--epochs 7] [--images 627]

DIR holds class folders. Run it on an otherwise idle machine.
"""
import argparse
import json

from results import rounded, write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.measure.stages import bench_loader

WORKS = {
    'train: crop, flip': dict(is_training=True, color_jitter=None),
    '… and jitter 0.4': dict(is_training=True),
    '… and erasing 0.25': dict(is_training=True, re_prob=0.25),
    'evaluation, bicubic': dict(interpolation='bicubic'),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--epochs', type=int, default=7)
    parser.add_argument('--images', type=int, default=627, help='samples of an epoch')
    parser.add_argument('--num-workers', type=int, default=2)
    a = parser.parse_args()
    dataset = ImageDataset(a.data, split=None)
    results = {name: bench_loader(dataset, 224, 64, a.images, a.epochs, a.rounds, num_workers=a.num_workers,
                                  device='cpu', **settings) for name, settings in WORKS.items()}
    settings = dict(num_images=a.images, num_workers=a.num_workers, batch_size=64, input_size=224, rounds=a.rounds)
    write_results('bench', settings, results={name: rounded(json.loads(result.to_json())) for name, result in results.items()})


if __name__ == '__main__': main()
