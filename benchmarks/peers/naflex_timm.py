"""timm's `create_naflex_loader`: Pillow in worker processes, normalized by its prefetcher. The batches of `schedule` are those of PLAN.

timm's RandAugment raises with Pillow 13 where it posterizes to 0 bits, and its loader leaves such images out: they are repaired here.
"""
import json
import sys
from pathlib import Path

import timm
import timm.data
from naflex import PLAN, Patches, common

NAME, VERSION = 'timm', timm.__version__


def make(data_dir, work, workers, batch_size, scratch, options):
    dataset, settings = timm.data.ImageDataset(data_dir), common(work, workers, batch_size)
    if 'auto_augment' in settings:
        sys.path.append(str(Path(__file__).parents[1]))
        from recipes import repair_timm
        repair_timm()
    loader = timm.data.create_naflex_loader(dataset, pin_memory=False, **settings)
    if work.startswith('schedule'): plan(loader, json.loads((Path(scratch)/PLAN).read_text()))
    return Patches(loader, len(dataset))


def plan(loader, batches: list):
    "Give timm's loader the batches of an epoch: (length, number of images); it shuffles them. It has no argument for that."
    wrapper = loader.loader.dataset
    if sum(num for _, num in batches) != len(wrapper.base_dataset): raise ValueError('the plan is of other photographs')
    wrapper._canonical_batch_schedule = [(length, num) for length, num in batches]
    wrapper._num_batches_per_rank = len(batches)
