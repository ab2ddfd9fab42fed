"""Several crops (views) per photo, compared with other loaders: DINO's ten views and SimCLR's two, with the authors' parameters.

    python benchmarks/beside_views.py DIR [--works dino,simclr] [--rounds 5] [--check]

DIR contains class folders. In the table, an image is a photo with all its views. Speeds are relative to the authors' pipeline, torchvision
on PIL images in torch's DataLoader. beside_peers.py explains how the loaders are measured, and peers/views_*.py what each of them does;
peers/requirements.txt lists what to install. With `--check`, the script prints what the first view looks like instead of measuring. Every
batch is checked: a view that is missing or has another size is an error. The numbers go to results/views.json;
`python benchmarks/results.py` prints the table. Use an otherwise idle machine.
"""
import argparse
import json
import tempfile
import time
from pathlib import Path

from beside_peers import WORKS, check, compare, linked
from results import write_results
from side_by_side import versions

WORKS.update(dino="DINO's ten views of a photograph", simclr="SimCLR's two views of a photograph")
OURS = [('views_timmdata', json.dumps(dict(worker_type=workers))) for workers in ('threads', 'processes')]
PEERS = [('views_torchvision', '{}'), *OURS, ('views_lightly', '{}'), ('views_dali', '{}'), ('decode_only', '{}')]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--works', default='dino,simclr')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--repeats', type=int, default=2, help='number of times an epoch repeats the photos')
    parser.add_argument('--num-workers', type=int, default=2, help='worker processes or threads of each loader')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--peers', default='', help='comma-separated peers to measure; default: all')
    parser.add_argument('--python', action='append', default=[], metavar='PEER=PATH', help='Python interpreter of a peer')
    parser.add_argument('--check', action='store_true', help='print what a batch of each peer looks like instead of measuring')
    a = parser.parse_args()
    a.python = dict(pair.split('=', 1) for pair in a.python)
    peers = [peer for peer in PEERS if not a.peers or peer[0] in a.peers.split(',')]
    print(versions('torch', 'torchvision', 'pillow'))
    with tempfile.TemporaryDirectory(prefix='views-') as scratch:
        scratch, began, measured = Path(scratch), time.time(), {}
        photographs = linked(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'photographs')   # equal batches per worker
        for work in a.works.split(','):
            settings = dict(data_dir=str(photographs), work=work, workers=a.num_workers, batch_size=a.batch_size, scratch=str(scratch))
            log = Path(tempfile.gettempdir())/'beside_views.log'
            if a.check: check(work, peers, a, settings, log)
            else: measured[work] = compare(work, peers, a, settings, log, 'views_torchvision')
        print(f'\n{(time.time() - began) / 60:.0f} minutes.')
    if not a.check:
        settings = dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, repeats=a.repeats)
        write_results('views', settings, results=measured)


if __name__ == '__main__': main()
