"""A pack on a slow web server compared with the same pack on disk.

    python benchmarks/beside_store.py DIR [--rounds 7] [--images 418] [--latencies 0,5,20,100] [--out FOLDER]

DIR contains class folders; the script packs its train split without changes. The server is that of the tests, in its own process. It
shares the cores with the loader; the row of 0 ms shows how much that costs. The loaders take turns, one epoch per round; the numbers are
images per second relative to the disk, medians. They go to results/store.json. Use an otherwise idle machine.
"""
import argparse
import multiprocessing
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from results import RESULTS, rounded, write_results

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.datasets.packing import write_pack
from timmdata.loader import create_loader
from timmdata.measure.machine import compare_speeds, run_pass
from timmdata.measure.stages import spread

sys.path.append(str(Path(__file__).resolve().parent.parent/'tests/support'))
from range_server import serve  # noqa: E402


@contextmanager
def far(root: Path, milliseconds: float):
    "Serve a folder from another process; gives the URL."
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context('spawn').Process(target=serve, args=(root, milliseconds / 1000, there), daemon=True)
    process.start()
    yield here.recv()
    here.send(None)
    process.join(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--images', type=int, default=418, help='samples per epoch')
    parser.add_argument('--latencies', default='0,5,20,100', help='milliseconds that the server waits before each answer')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--workers', default='threads')
    parser.add_argument('--out', type=Path, default=RESULTS)
    a = parser.parse_args()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='store-')))
        write_pack(ImageDataset(a.data), root/'pack', split='train', format='keep')
        places = {'local': str(root/'pack')}
        places |= {f'{ms} ms': f'{stack.enter_context(far(root, float(ms)))}/pack' for ms in a.latencies.split(',')}
        settings = dict(is_training=True, seed=0, num_workers=a.num_workers, worker_type=a.workers, device='cpu')
        loaders = {name: create_loader(spread(ImageDataset(place, split='train'), a.images), 224, a.batch_size, **settings)
                   for name, place in places.items()}
        trials = compare_speeds({name: partial(run_pass, loader) for name, loader in loaders.items()}, a.rounds)
        found = {trial.name: trial.speedup for trial in trials}
        for loader in loaders.values(): loader.close()
    for name, ratio in found.items(): print(f'{name:>8}  {ratio:.2f}')
    about = dict(num_workers=a.num_workers, worker_type=a.workers, batch_size=a.batch_size, images=a.images, rounds=a.rounds)
    write_results('store', about, a.out, **rounded({'store ÷ local': found}))


if __name__ == '__main__': main()
