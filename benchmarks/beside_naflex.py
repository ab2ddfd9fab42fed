"""Images of every shape as sequences of patches (NaFlex): timmdata's `create_naflex_loader` compared with timm 1.0.31's.

    python benchmarks/beside_naflex.py DIR [--works schedule,seq256,…] [--rounds 5] [--check]

DIR contains class folders. beside_peers.py explains how the loaders are measured; their scripts are peers/naflex_*.py. Each library plans
random batches; in `schedule`, timm gets timmdata's plan in a different order, so that both do the same work. After that, the script counts
padding, steps, and the bytes per image that workers send to the device: all tensors of timm's `DataLoader`, and timmdata's
`host_batches()`, both with targets. With `--check`, it prints what the first batch looks like instead of measuring.
The numbers go to results/naflex.json; `python benchmarks/results.py` prints the tables. Use an otherwise idle machine.
"""
import argparse
import json
import sys
from functools import partial
from pathlib import Path

import timm.data
import torch
from beside_peers import PEERS as FOLDER
from beside_peers import WORKS, chosen, linked_photographs, measure, parser_of
from results import rounded

import timmdata

sys.path.append(str(FOLDER))
from naflex import PLAN, SETTINGS, TRAIN, common  # noqa: E402

WORKS.update(
    schedule='sequences of 128 to 1024 patches: crop, flip, color jitter 0.4', seq256='the same, 256 patches',
    seq1024='the same, 1024 patches', schedule_ra='128 to 1024 patches: RandAugment', seq_eval='evaluation, 576 patches')
PEERS = [('naflex_timm', '{}'), *(('naflex_timmdata', json.dumps(dict(worker_type=kind))) for kind in ('threads', 'processes')),
         ('decode_only', '{}')]
EVALUATIONS = {f'evaluation, {num}': dict(max_seq_len=num) for num in (576, 1024)}
COUNTED = {'training': TRAIN, **EVALUATIONS}
MODES = {'schedule': {}, 'native': dict(mode='native'), 'native, pad_multiple 64': dict(mode='native', pad_multiple=64),
         'packed': dict(mode='packed')}


def planned(data: Path, a) -> list[tuple[int, int]]:
    "Sequence length and number of images of each batch in an epoch, as timmdata plans them in `schedule`."
    settings = common('schedule', a.num_workers, a.batch_size)
    loader = timmdata.create_naflex_loader(timmdata.ImageDataset(str(data)), **settings)
    return [(settings['train_seq_lens'][bucket], num) for bucket, num in loader.loader.batch_sampler.schedule]


def num_bytes(parts) -> int:
    "Bytes of the tensors and arrays in dicts and sequences."
    if hasattr(parts, 'nbytes'): return parts.nbytes
    if isinstance(parts, dict): return sum(map(num_bytes, parts.values()))
    return sum(map(num_bytes, parts)) if isinstance(parts, (list, tuple)) else 0


def count(batches, host) -> dict[str, float]:
    "Padding, tokens and steps of an epoch, and the bytes per image that workers send."
    steps = images = tokens = valid = 0
    for batch, targets in batches:
        steps, images, tokens = steps + 1, images + len(targets), tokens + batch['patch_valid'].numel()
        valid += int(batch['patch_valid'].sum())
    sizes = sum(num_bytes(batch) for batch in host)
    return rounded(dict(padding=1 - valid / tokens, steps=steps, images=images, tokens_a_batch=tokens / steps,
                        tokens_an_image=valid / images, kb_an_image=sizes / images / 1000))


def count_all(data: Path, a) -> dict[str, dict[str, dict[str, float]]]:
    "Counts for timm and for each mode: training and evaluations."
    settings = dict(patch_size=16, batch_size=a.batch_size, num_workers=a.num_workers, device=torch.device('cpu'))
    found = {name: {} for name in ('timm', *MODES)}
    for work, words in COUNTED.items():
        loader = timm.data.create_naflex_loader(timm.data.ImageDataset(str(data)), pin_memory=False, **settings, **words)
        found['timm'][work] = count(loader, loader.loader)
        for mode, more in MODES.items():
            loader = timmdata.create_naflex_loader(timmdata.ImageDataset(str(data)), **settings, **words, **more)
            found[mode][work] = count(loader, (made.batch for made in loader.loader.host_batches()))
    return found


def photographs_and_plan(a: argparse.Namespace, scratch: Path) -> Path:
    "Links to the photos, and the plan that timm follows in `schedule`."
    folder = linked_photographs(a, scratch)
    (scratch/PLAN).write_text(json.dumps(planned(folder, a)))
    return folder


def counted(a: argparse.Namespace, photographs: Path) -> dict:
    plan = json.loads((photographs.parent/PLAN).read_text())
    return dict(plan=plan, epochs=count_all(photographs, a))


def main():
    a = parser_of(__doc__, ','.join(SETTINGS), rounds=5, repeats=2, batch_size=8).parse_args()   # of the longest sequences
    measure('naflex', a, chosen(a, PEERS), partial(photographs_and_plan, a), 'naflex_timm', partial(counted, a))


if __name__ == '__main__': main()
