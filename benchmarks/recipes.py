"""Published recipes in timmdata compared with timm 1.0.31: images per second and CPU time per image, in turns.
The medians go to results/recipes.json, which the guide `recipes` plots.

    python benchmarks/recipes.py DIR [--rounds 5] [--num-workers 2] [--batch-size 64] [--only NAME …]

With Pillow 13, timm's policies raise an error when they posterize to 0 bits; the script fixes that function. Neither library repeats
images, because timm does so only on several ranks; repeats change which samples come, not what each costs. Use an otherwise idle machine.
"""
import argparse
from functools import partial

import timm.data
import torch
from results import write_results
from side_by_side import epoch, print_head, print_row, versions
from timm.data import auto_augment as timm_policies
from timm.data.mixup import FastCollateMixup as TimmCollate

import timmdata

MORE = {'plain': ('crop, flip, jitter 0.4', dict(input_size=224, is_training=True), None),
        'target': ('rand-m9-mstd0.5-inc1, erasing 0.25', dict(
            input_size=224, is_training=True, auto_augment='rand-m9-mstd0.5-inc1', re_prob=0.25, re_mode='pixel'), None)}


def repaired(img, bits_to_keep, **kwargs): return timm_policies.posterize(img, max(1, bits_to_keep), **kwargs)


def repair_timm():
    "Make timm's posterize keep at least one bit."
    for name, function in timm_policies.NAME_TO_OP.items():
        if function is timm_policies.posterize: timm_policies.NAME_TO_OP[name] = repaired


def settings_of(name: str) -> tuple[dict, dict | None]:
    "Arguments of both create_loaders, and of mixing."
    if name in MORE: return MORE[name][1], None
    train = dict(timmdata.get_recipe(name, num_classes=1000).train)
    train.pop('num_aug_repeats', None)
    mixup = train.pop('mixup', None)
    words = ('mixup_alpha', 'cutmix_alpha', 'label_smoothing', 'num_classes')
    return train, mixup and {word: getattr(mixup, word) for word in words}


def make_loaders(name: str, data: str, repeats: int, common: dict) -> list:
    "This library's loader, and timm's."
    train, mixing = settings_of(name)
    size, splits = train.pop('input_size'), train.get('num_aug_splits', 0)
    dataset = torch.utils.data.ConcatDataset([timmdata.ImageDataset(data) for _ in range(repeats)])
    mixup = timmdata.Mixup(**mixing) if mixing else None
    ours = timmdata.create_loader(dataset, size, mixup=mixup, **train, **common)
    parts = [timm.data.ImageDataset(data) for _ in range(repeats)]
    pixels = {k: v for k, v in train.items() if k not in ('num_aug_splits', 're_prob', 're_mode', 're_split')}
    transform = timm.data.create_transform((3, size, size), use_prefetcher=True, separate=splits > 0, **pixels)
    for part in parts: part.transform = transform[0] if splits else transform   # a ConcatDataset does not pass it on
    dataset = torch.utils.data.ConcatDataset(parts)
    dataset.transform = None   # timm requires the attribute
    if splits: dataset = timm.data.AugMixDataset(dataset, num_splits=splits)
    if mixing: common = dict(common, collate_fn=TimmCollate(**mixing))
    timms = timm.data.create_loader(dataset, (3, size, size), **train, **common)
    return [ours, timms]


def is_one_view(name: str) -> bool: return 'views' not in timmdata.get_recipe(name, num_classes=10).train


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=2, help='number of times an epoch repeats the dataset')
    parser.add_argument('--only', nargs='+', default=[*MORE, *filter(is_one_view, timmdata.list_recipes())])
    a = parser.parse_args()
    repair_timm()
    print(versions('timmdata', 'timm', 'torch', 'torchvision', 'pillow'))
    print_head(f'recipe ({a.num_workers} workers, batches of {a.batch_size})')
    common = dict(batch_size=a.batch_size, num_workers=a.num_workers, device=torch.device('cpu'))
    found = {}
    for name in a.only:
        views = max(1, settings_of(name)[0].get('num_aug_splits', 1))
        epochs = [partial(epoch, loader, len(loader) * a.batch_size * views)
                  for loader in make_loaders(name, a.data, a.repeats, common)]
        found[name] = print_row(f'{name}: {MORE[name][0]}' if name in MORE else name, *epochs, a.rounds)
        del epochs   # their workers end
    write_results('recipes', dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds), results=found)


if __name__ == '__main__': main()
