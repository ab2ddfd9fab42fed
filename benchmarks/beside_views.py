"""Several crops (views) per photo, compared with other loaders: DINO's ten views and SimCLR's two, with the authors' parameters.

    python benchmarks/beside_views.py DIR [--works dino,simclr] [--rounds 5] [--check]

DIR contains class folders. In the table, an image is a photo with all its views. Speeds are relative to the authors' pipeline, torchvision
on PIL images in torch's DataLoader. beside_peers.py explains how the loaders are measured, and peers/views_*.py what each of them does;
peers/requirements.txt lists what to install. With `--check`, the script prints what the first view looks like instead of measuring. Every
batch is checked: a view that is missing or has another size is an error. The numbers go to results/views.json;
`python benchmarks/results.py` prints the table. Use an otherwise idle machine.
"""
import json
from functools import partial

from beside_peers import WORKS, chosen, linked_photographs, measure, parser_of

WORKS.update(dino="DINO's ten views of a photograph", simclr="SimCLR's two views of a photograph")
OURS = [('views_timmdata', json.dumps(dict(worker_type=workers))) for workers in ('threads', 'processes')]
PEERS = [('views_torchvision', '{}'), *OURS, ('views_dali', '{}'), ('decode_only', '{}')]


def main():
    a = parser_of(__doc__, 'dino,simclr', rounds=5, repeats=2).parse_args()
    measure('views', a, chosen(a, PEERS), partial(linked_photographs, a), 'views_torchvision')


if __name__ == '__main__': main()
