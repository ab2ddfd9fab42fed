"""The cost of hue jitter: recipes with fused and with exact hue, compared with the same recipes without hue; CPU time per photo.
The medians go to results/hue.json.

    python benchmarks/hue.py DIR [--rounds 5] [--num-workers 2] [--batch-size 32] [--workers processes] [--only NAME …]

Without hue, everything else stays the same: the crops, the other colors, the blur. CPU time is that of the loader and its workers.
"""
import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace

import torch
from results import rounded, write_results
from side_by_side import cpu_seconds, process_tree, take_turns, versions

import timmdata

JITTER = dict(input_size=224, is_training=True, color_jitter=(0.4, 0.4, 0.4, 0.1))
WORKS = {'simclr': "SimCLR's two views", 'dino': "DINO's ten views", 'swav': "SwAV's eight views",
         'jitter': 'one view, color_jitter=(0.4, 0.4, 0.4, 0.1)'}
MODES = {'without hue': 'fused', 'fused': 'fused', 'exact': 'exact'}


def settings_of(work: str, has_hue: bool) -> dict:
    "Arguments of create_loader."
    settings = dict(JITTER if work == 'jitter' else timmdata.get_recipe(work).train)
    if not has_hue and 'views' in settings:
        settings['views'] = tuple(replace(view, color_jitter=view.color_jitter[:3]) for view in settings['views'])
    elif not has_hue: settings['color_jitter'] = settings['color_jitter'][:3]
    return settings


def epoch_of(data: str, work: str, mode: str, common: dict) -> Callable[[], tuple[float]]:
    "A function that loads all photos and returns the CPU time per photo in ms."
    loader = timmdata.create_loader(timmdata.ImageDataset(data), **settings_of(work, mode != 'without hue'), **common,
                                    device=torch.device('cpu'), color_jitter_mode=MODES[mode])
    def epoch():
        before, seen = cpu_seconds(process_tree()), 0
        for _, target in loader: seen += len(target)
        return ((cpu_seconds(process_tree()) - before) / seen * 1000,)
    return epoch


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=32)
    parser.add_argument('--workers', default='processes')
    parser.add_argument('--only', nargs='+', default=list(WORKS))
    a = parser.parse_args()
    print(versions('timmdata', 'torch', 'torchvision'))
    print(f'\n| CPU-ms a photograph | {" | ".join(MODES)} | fused ÷ without | exact ÷ without |', '|---' * 6 + '|', sep='\n')
    common, found = dict(batch_size=a.batch_size, num_workers=a.num_workers, worker_type=a.workers), {}
    for work in a.only:
        turns = take_turns({mode: epoch_of(a.data, work, mode, common) for mode in MODES}, a.rounds)
        times = {mode: statistics.median(cpu for cpu, in column) for mode, column in turns.items()}
        ratios = [times[mode] / times['without hue'] for mode in ('fused', 'exact')]
        print(f'| {WORKS[work]} |', *(f'{cpu:.2f} |' for cpu in times.values()), *(f'{ratio:.2f} |' for ratio in ratios), flush=True)
        found[work] = times
    settings = dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, worker_type=a.workers)
    write_results('hue', settings, cpu_ms=rounded(found))


if __name__ == '__main__': main()
