"""timm's `create_naflex_loader`: Pillow in worker processes, normalized by its prefetcher. The batches of `schedule` are those of PLAN.

timm's RandAugment raises with Pillow 13 where it posterizes to 0 bits, and its loader leaves such images out: they are repaired here.
"""
import json
from pathlib import Path

import timm
import timm.data
from naflex import PLAN, Patches, common
from timm.data import auto_augment

NAME, VERSION = 'timm', timm.__version__


def make(data_dir, work, workers, batch_size, scratch, options):
    dataset, settings = timm.data.ImageDataset(data_dir), common(work, workers, batch_size)
    if 'auto_augment' in settings: repair_timm()
    loader = timm.data.create_naflex_loader(dataset, pin_memory=False, **settings)
    if work.startswith('schedule'): plan(loader, json.loads((Path(scratch)/PLAN).read_text()))
    return Patches(loader, len(dataset))


def repaired(img, bits_to_keep, **kwargs): return auto_augment.posterize(img, max(1, bits_to_keep), **kwargs)


def repair_timm():
    "Make timm's posterize keep at least one bit."
    for name, function in auto_augment.NAME_TO_OP.items():
        if function is auto_augment.posterize: auto_augment.NAME_TO_OP[name] = repaired


def plan(loader, batches: list):
    "Give timm's loader the batches of an epoch: (length, number of images); it shuffles them. It has no argument for that."
    wrapper = loader.loader.dataset
    if sum(num for _, num in batches) != len(wrapper.base_dataset): raise ValueError('the plan is of other photographs')
    wrapper._canonical_batch_schedule = [(length, num) for length, num in batches]
    wrapper._num_batches_per_rank = len(batches)
