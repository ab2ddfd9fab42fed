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
import tempfile
import time
from pathlib import Path

import timm.data
import torch
from beside_peers import PEERS as FOLDER
from beside_peers import WORKS, check, compare, linked
from results import RESULTS, read_results, rounded, write_results
from side_by_side import versions

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--works', default=','.join(SETTINGS))
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--repeats', type=int, default=2, help='number of times an epoch repeats the photos')
    parser.add_argument('--num-workers', type=int, default=2, help='worker processes or threads of each loader')
    parser.add_argument('--batch-size', type=int, default=8, help='for the longest sequences; shorter ones have larger batches')
    parser.add_argument('--python', action='append', default=[], metavar='PEER=PATH', help='Python interpreter of a peer')
    parser.add_argument('--keep', action='store_true', help='keep other works in results/naflex.json (same day and settings)')
    parser.add_argument('--check', action='store_true', help='print what a batch of each peer looks like instead of measuring')
    a = parser.parse_args()
    a.python = dict(pair.split('=', 1) for pair in a.python)
    print(versions('torch', 'timm', 'pillow'))
    with tempfile.TemporaryDirectory(prefix='naflex-') as scratch:
        scratch, began, measured = Path(scratch), time.time(), {}
        photographs = linked(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'photographs')
        plan = planned(photographs, a)
        (scratch/PLAN).write_text(json.dumps(plan))
        for work in a.works.split(','):
            settings = dict(data_dir=str(photographs), work=work, workers=a.num_workers, batch_size=a.batch_size, scratch=str(scratch))
            log = Path(tempfile.gettempdir())/'beside_naflex.log'
            if a.check: check(work, PEERS, a, settings, log)
            else: measured[work] = compare(work, PEERS, a, settings, log, 'naflex_timm')
        counted = {} if a.check else count_all(photographs, a)
        print(f'\n{(time.time() - began) / 60:.0f} minutes.')
    if not a.check:
        settings = dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, repeats=a.repeats, plan=plan)
        known = read_results('naflex')['results'] if a.keep and (RESULTS/'naflex.json').exists() else {}
        write_results('naflex', settings, results={**known, **measured}, epochs=counted)


if __name__ == '__main__': main()
