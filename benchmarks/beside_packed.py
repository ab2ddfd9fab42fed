"""Images with a shorter side of 256 pixels: timmdata's packs compared with the file formats of FFCV, DALI, WebDataset and others.

    python benchmarks/beside_packed.py DIR [--works train,eval] [--rounds 7] [--python ffcv_=PATH]

DIR contains class folders. Their photos are resized and saved as JPEGs (quality 90, subsampling unchanged), and each loader converts these
to its own format. beside_peers.py explains how the loaders are measured; peers/requirements.txt lists what to install.
The numbers go to results/packed.json; `python benchmarks/results.py` prints the table of the README.
"""
import json
import math
from pathlib import Path

from beside_peers import chosen, jpegs, measure, parser_of
from PIL import Image
from PIL.JpegImagePlugin import get_sampling

OURS = [('timmdata_pack', json.dumps(dict(format=format, worker_type=workers)))
        for format in ('raw', 'keep') for workers in ('threads', 'processes')]
PEERS = [('timm_tar', '{}'), ('timm_pillow', '{}'), ('timmdata_', '{"worker_type": "threads"}'), *OURS, ('ffcv_', '{"mode": "jpg"}'),
         ('ffcv_', '{"mode": "raw"}'), ('dali_webdataset', '{}'), ('webdataset_', '{}'), ('litdata_', '{}'), ('streaming_', '{}'),
         ('turboloader_', '{}')]


def smaller(data: Path, repeats: int, unit: int, folder: Path, short_side: int = 256) -> Path:
    "Write photos with a shorter side of 256 pixels, repeated up to a multiple of `unit`, with numbers as names."
    paths = jpegs(data)
    for k in range(math.ceil(len(paths) * repeats / unit) * unit):
        path = paths[k % len(paths)]
        image = Image.open(path)
        subsampling = max(0, get_sampling(image))
        image = image.convert('RGB')
        scale = short_side / min(image.size)
        size = tuple(max(short_side, int(edge * scale)) for edge in image.size)
        out = folder/path.parent.name/f'{k:06}.jpg'
        out.parent.mkdir(parents=True, exist_ok=True)
        image.resize(size, Image.Resampling.BICUBIC).save(out, quality=90, subsampling=subsampling)
    return folder


def main():
    a = parser_of(__doc__, 'train,jitter,eval', rounds=7, repeats=4).parse_args()
    unit = a.batch_size * a.num_workers
    measure('packed', a, chosen(a, PEERS), lambda scratch: smaller(a.data, a.repeats, unit, scratch/'small'), 'timm_tar', short_side=256)


if __name__ == '__main__': main()
