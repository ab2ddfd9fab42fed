"""Images with a shorter side of 256 pixels: timmdata's packs compared with the file formats of FFCV, DALI, WebDataset and others.

    python benchmarks/beside_packed.py DIR [--works train,eval] [--rounds 7] [--python ffcv_=PATH]

DIR contains class folders. Their photos are resized and saved as JPEGs (quality 90, subsampling unchanged), and each loader converts these
to its own format. beside_peers.py explains how the loaders are measured; peers/requirements.txt lists what to install. The workload `phone`
has 12-megapixel photos: timmdata reads them from a folder and from a pack to which segments were added losslessly.
The numbers go to results/packed.json; `python benchmarks/results.py` prints the table of the README.
"""
import argparse
import json
import math
import tempfile
import time
from pathlib import Path

from beside_peers import compare, jpegs, phone_photographs
from PIL import Image
from PIL.JpegImagePlugin import get_sampling
from results import write_results
from side_by_side import versions

OURS = [('timmdata_pack', json.dumps(dict(format=format, worker_type=workers)))
        for format in ('jpeg', 'raw', 'keep') for workers in ('threads', 'processes')]
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
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--works', default='train,jitter,eval,phone')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--repeats', type=int, default=4)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--phone', type=int, default=24)
    parser.add_argument('--python', action='append', default=[], metavar='PEER=PATH', help='Python interpreter of a peer')
    parser.add_argument('--peers', default='', help='comma-separated peers to measure; default: all')
    parser.add_argument('--out', default='packed', choices=['packed', 'packed_center'], help='name of the file in results/')
    a = parser.parse_args()
    a.python = dict(pair.split('=', 1) for pair in a.python)
    peers = [peer for peer in PEERS if not a.peers or peer[0] in a.peers.split(',')]
    print(versions('torch'))
    with tempfile.TemporaryDirectory(prefix='packed-') as scratch:
        scratch, began, measured = Path(scratch), time.time(), {}
        photographs = smaller(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'small')
        for work in a.works.split(','):
            data, batch_size, chosen = photographs, a.batch_size, peers
            if work == 'phone':
                data, batch_size = phone_photographs(a.data, a.phone, scratch/'large'), 8
                chosen = [('timmdata_', json.dumps(dict(worker_type=workers))) for workers in ('threads', 'processes')]
                chosen += [peer for peer in OURS if '"jpeg"' in peer[1]]
            settings = dict(data_dir=str(data), work=work, workers=a.num_workers, batch_size=batch_size, scratch=str(scratch))
            measured[work] = compare(work, chosen, a, settings, Path(tempfile.gettempdir())/'beside_packed.log', 'timm_tar')
        print(f'\n{(time.time() - began) / 60:.0f} minutes.')
    write_results(a.out, dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, short_side=256), results=measured)


if __name__ == '__main__': main()
