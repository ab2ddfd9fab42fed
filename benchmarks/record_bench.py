"""Measure the loader with the settings of the page `measure/stages`, which plots results/bench.json. Then run the doctor, whose
report the page `measure/diagnosis` shows from results/doctor.json.

    python benchmarks/record_bench.py DIR [--rounds 7] [--epochs 7] [--images 627]

DIR contains class folders. Use an otherwise idle machine.
"""
import argparse
import statistics
from dataclasses import asdict

from results import rounded, write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.diagnosis import diagnose, format_diagnosis
from timmdata.measure.machine import in_turns, run_pass
from timmdata.measure.stages import measure_stages, spread

WORKS = {
    'train: crop, flip': dict(is_training=True, color_jitter=None),
    '… and jitter 0.4': dict(is_training=True),
    '… and erasing 0.25': dict(is_training=True, re_prob=0.25),
    'evaluation, bicubic': dict(interpolation='bicubic'),
}


def measure(dataset, num_workers: int, epochs: int, rounds: int, **settings) -> dict:
    "Measure the stages and the whole loader: medians of the epochs after the first."
    with create_loader(dataset, 224, 64, num_workers=num_workers, seed=0, device='cpu', **settings) as loader:
        passes = [(number, run_pass(loader)) for number, _ in in_turns(['whole loader'], epochs, progress=True)]
        passes = [made for number, made in passes if number]
        whole = dict(images_per_s=statistics.median(made.images_per_s for made in passes),
                     cpu_ms=statistics.median(1000 * made.cpu_seconds / made.num_images for made in passes))
        stages = measure_stages(loader, min(len(dataset), 128), rounds, progress=True)
    return dict(stages=[asdict(stage) for stage in stages], loader=whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--epochs', type=int, default=7)
    parser.add_argument('--images', type=int, default=627, help='samples per epoch')
    parser.add_argument('--num-workers', type=int, default=2)
    a = parser.parse_args()
    dataset = spread(ImageDataset(a.data, split=None), a.images)
    results = {name: measure(dataset, a.num_workers, a.epochs, a.rounds, **settings) for name, settings in WORKS.items()}
    settings = dict(num_images=a.images, num_workers=a.num_workers, batch_size=64, input_size=224, rounds=a.rounds)
    write_results('bench', settings, results=rounded(results))
    found = diagnose(ImageDataset(a.data, split=None), num_workers=1, device='cpu', is_training=True, progress=True)
    write_results('doctor', found.settings, text=format_diagnosis(found).splitlines())


if __name__ == '__main__': main()
