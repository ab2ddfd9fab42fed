"""Measure the loader with the settings of the page `bench`, and print the literal that the page draws.

    python benchmarks/record_bench.py DIR [--rounds 7] [--epochs 7] [--images 627]

DIR holds class folders. Paste what is printed over the numbers in nbs/50_bench.ipynb. Run it on an otherwise idle machine.
"""
import argparse
import textwrap

from timmdata.bench import bench_loader
from timmdata.datasets.image_dataset import ImageDataset

WORKS = {
    'train: crop, flip': dict(is_training=True, color_jitter=None),
    '… and jitter 0.4': dict(is_training=True),
    '… and erasing 0.25': dict(is_training=True, re_prob=0.25),
    'evaluation, bicubic': dict(interpolation='bicubic'),
}


def rounded(value):
    "Numbers to four significant digits."
    if isinstance(value, float): return float(f'{value:.4g}')
    if isinstance(value, dict): return {name: rounded(v) for name, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, (list, tuple)) else value


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
    machine = next(iter(results.values())).machine
    print('\n'.join(textwrap.wrap(f'machine = {machine!r}', 110, subsequent_indent=' ' * 11, break_on_hyphens=False)))
    print(f'settings = {dict(num_workers=a.num_workers, batch_size=64, input_size=224)!r}')
    print('recorded = {')
    for name, result in results.items():
        print(f'    {name!r}: ({rounded(list(result.loader))!r}, {{')
        for stage in result.stages: print(f'        {stage.name!r}: {tuple(rounded(list(stage[1:])))!r},')
        print('    }),')
    print('}')


if __name__ == '__main__': main()
