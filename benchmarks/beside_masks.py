"""Segmentation at 512 pixels: photos with masks, cropped, resized and flipped together, compared with other loaders.

    python benchmarks/beside_masks.py DIR [--rounds 7] [--python masks_albumentations=PATH] [--check]

DIR contains class folders; the script makes a PNG mask of 20 classes for each photo. Speeds are relative to torchvision's v2 transforms
with `tv_tensors` in torch's DataLoader, reading with Pillow as torchvision's reference scripts do; another row reads with `torchvision.io`.
beside_peers.py explains how the loaders are measured, and peers/masks_*.py what each of them does; peers/requirements.txt lists what to
install. A peer that is not installed is left out. With `--check`, the script prints what the first batch looks like instead of measuring.
Every batch is checked: a mask that is missing or has another size or type is an error. The numbers go to results/masks.json;
`python benchmarks/results.py` prints the table. Use an otherwise idle machine.
"""
import csv
import json
import sys
from functools import partial
from pathlib import Path

from beside_peers import PEERS as FOLDER
from beside_peers import WORKS, chosen, jpegs, linked_photographs, measure, parser_of

sys.path.append(str(FOLDER))
from masks import make_mask  # noqa: E402

WORKS.update(segment='photos and masks: RandomResizedCrop to 512, flip')
OURS = [('masks_timmdata', json.dumps(dict(worker_type=workers))) for workers in ('threads', 'processes')]
TORCHVISION = [('masks_torchvision', json.dumps(dict(read=read))) for read in ('Pillow', 'torchvision.io')]
PEERS = [*TORCHVISION, *OURS, ('masks_albumentations', '{}')]


def photos_with_masks(a, scratch: Path) -> Path:
    "Link the photos, make a mask for each, and write the table of both."
    photos, made = linked_photographs(a, scratch), {}
    table = scratch/'masks.csv'
    with table.open('w', newline='') as file:
        out = csv.writer(file)
        out.writerow(['path', 'target', 'mask'])
        for path in jpegs(photos):
            original = path.resolve()
            if original not in made:
                made[original] = scratch/f'mask{len(made):06}.png'
                make_mask(str(original), made[original])
            out.writerow([path, 0, made[original]])
    return table


def main():
    a = parser_of(__doc__, 'segment', rounds=7, repeats=2, batch_size=16).parse_args()
    measure('masks', a, chosen(a, PEERS), partial(photos_with_masks, a), 'masks_torchvision')


if __name__ == '__main__': main()
