"""timmdata compared with other loaders: the same photos, work, batches and number of workers; throughput and CPU time.

    python benchmarks/beside_peers.py DIR [--works train,jitter,eval,phone] [--rounds 7] [--peers timm_pillow,timmdata_]

DIR contains class folders. Each loader runs in its own process, which is stopped (SIGSTOP) while the others run, so that no loader works
ahead between its epochs. In an epoch, each worker makes the same number of batches. The loaders take turns, one epoch per round; the first
round warms up and is not counted. Medians go to results/peers.json; `python benchmarks/results.py` prints the table of the README.

The first batch and memory are measured before that, one loader at a time: the time from the end of the imports to the first batch, and the
peak PSS of the process tree in the second epoch. In the rounds, the script measures the time to the first batch of later epochs, and the
import time of each loader, torch included. CPU time is that of the process tree, with processes that have ended.
Use an otherwise idle machine; peers/requirements.txt lists what to install.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil
from results import rounded, write_results
from side_by_side import cpu_seconds, process_tree, versions

PEERS = Path(__file__).parent/'peers'
OURS = [dict(worker_type='threads'), dict(worker_type='processes'), dict(backend='torchvision')]
ALL = [('timm_pillow', '{}'), *(('timmdata_', json.dumps(options)) for options in OURS),
       *((module, '{}') for module in ('torchvision_pil', 'torchvision_tensor', 'dali_cpu', 'ffcv_', 'spdl_', 'grain_', 'decode_only'))]
WORKS = dict(train='RandomResizedCrop, flip', jitter='RandomResizedCrop, flip, color jitter 0.4',
             eval='evaluation: shorter edge 256 bicubic, center crop', phone='RandomResizedCrop, flip of 12-megapixel photographs')


class Failed(Exception):
    "A peer cannot be imported or cannot do this work."


class Loader:
    "A child process and its pipe."

    def __init__(self, module: str, python: str, log: Path, settings: dict):
        self.pipe, theirs = Pipe()
        self.log = log.open('a')
        command = [python, str(PEERS/'child.py'), str(theirs.fileno()), module, json.dumps(settings)]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        theirs.close()
        try: self.about = self.answer()
        except Failed:
            self.close()
            raise

    def tree(self) -> list[psutil.Process]: return process_tree(self.process.pid)

    def answer(self, timeout: float = 1800) -> dict:
        if not self.pipe.poll(timeout): raise Failed(f'no answer for {timeout} seconds')
        try: found = json.loads(self.pipe.recv_bytes())
        except EOFError: raise Failed(f'its process ended, see {self.log.name}') from None
        if 'failed' in found: raise Failed(found['failed'])
        return found

    def ask(self, *command) -> dict:
        self.pipe.send_bytes(json.dumps(command).encode())
        return self.answer()

    def stop(self):
        for process in self.tree(): process.suspend()

    def round(self) -> dict:
        "Run one epoch of a stopped loader; return images per second and CPU time per image in ms."
        tree = self.tree()
        cpu = cpu_seconds(tree)
        for process in reversed(tree): process.resume()
        found = self.ask('epoch')
        self.stop()
        found['rate'] = found['images'] / found['seconds']
        return {**found, 'cpu_ms': (cpu_seconds(self.tree()) - cpu) / found['images'] * 1000}

    def memory(self) -> float:
        "Run one epoch and return the peak PSS of the process tree in MB."
        self.pipe.send_bytes(b'["epoch"]')
        most = 0
        while not self.pipe.poll(0.02):
            total = 0
            for process in self.tree():
                try: total += process.memory_full_info().pss
                except psutil.NoSuchProcess: pass
            most = max(most, total)
        self.answer()
        return most / 1e6

    def close(self):
        try: tree = self.tree()
        except psutil.NoSuchProcess: tree = []
        for process in tree:
            try: process.kill()
            except psutil.NoSuchProcess: pass
        self.process.wait()
        self.pipe.close()
        self.log.close()


def jpegs(data: Path) -> list[Path]:
    paths = sorted(path for path in data.glob('*/*') if path.suffix.lower() in ('.jpg', '.jpeg'))
    if not paths: raise SystemExit(f'{data}: no JPEG files in class folders')
    return paths


def linked(data: Path, repeats: int, unit: int, folder: Path) -> Path:
    "Fill a folder with links to the photos, `repeats` times and on up to a multiple of `unit`, with numbers as names."
    paths = jpegs(data)
    count = math.ceil(len(paths) * repeats / unit) * unit
    for k in range(count):
        path = paths[k % len(paths)]
        link = folder/path.parent.name/f'{k:06}.jpg'
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
        path.read_bytes()   # into the page cache
    return folder


def phone_photographs(data: Path, count: int, folder: Path) -> Path:
    "Write 4032 × 3024 photos in two class folders: enlarged small photos with a little noise."
    import numpy as np
    from PIL import Image
    paths, random = jpegs(data), np.random.default_rng(0)
    for k in range(count):
        small = Image.open(paths[k * len(paths) // count]).convert('RGB')
        large = np.asarray(small.resize((4032, 3024), Image.Resampling.LANCZOS), np.float32)
        large = (large + random.normal(0, 4, large.shape[:2])[..., None]).clip(0, 255).astype(np.uint8)
        path = folder/f'class{k % 2}'/f'{k:04}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(large).save(path, quality=92)
    return folder


def started(peers: list, a, settings: dict, log: Path) -> dict[tuple, Loader | str]:
    "Start a loader for each peer; the value is the reason if that fails."
    loaders = {}
    for peer in peers:
        module, options = peer
        python = a.python.get(module, sys.executable)
        try: loaders[peer] = Loader(module, python, log, {**settings, 'options': json.loads(options)})
        except Failed as error: loaders[peer] = str(error)
    return loaders


def alone(peers: list, a, settings: dict, log: Path) -> tuple[dict, dict]:
    "Measure each peer while no other runs: ({peer: about, first, pss}, {peer: reason for failure})."
    found, failed = {}, {}
    for peer in peers:
        loader = started([peer], a, settings, log)[peer]
        if isinstance(loader, str):
            failed[peer] = loader
            continue
        try: found[peer] = {**loader.about, 'first': loader.ask('epoch')['first'], 'pss': loader.memory()}
        except Failed as error: failed[peer] = str(error)
        finally: loader.close()
    return found, failed


def rounds(peers: list, a, settings: dict, log: Path) -> dict[tuple, list[dict]]:
    "Run the epochs of all peers in turns; each result also has the import time in seconds."
    loaders = started(peers, a, settings, log)
    try:
        for peer, loader in loaders.items():
            if isinstance(loader, str): raise Failed(f'{peer[0]}: {loader}')
            loader.ask('epoch')
            loader.stop()
        results = {peer: [] for peer in peers}
        for _ in range(a.rounds):
            for peer, loader in loaders.items(): results[peer].append({**loader.round(), 'import_s': loader.about['import_s']})
    finally:
        for loader in loaders.values():
            if isinstance(loader, Loader): loader.close()
    return results


def label(peer: tuple, about: dict) -> str:
    "The name of a row."
    options = ['without simplejpeg' if name == 'backend' else value for name, value in json.loads(peer[1]).items()]
    return ', '.join([f'{about["name"]} {about["version"].partition("+")[0]}', *options])


def compare(work: str, peers: list, a, settings: dict, log: Path, base: str = 'timm_pillow') -> dict[str, dict[str, float]]:
    "Measure one workload and print its table; speeds are relative to `base`, or to the first peer."
    found, failed = alone(peers, a, settings, log)
    results = rounds(list(found), a, settings, log) if found else {}
    reference = next((peer for peer in found if peer[0] == base), next(iter(found), None))
    rates = {peer: statistics.median(result['rate'] for result in results[peer]) for peer in found}
    print(f'\n**{WORKS[work]}** ({settings["workers"]} workers, batches of {settings["batch_size"]}, {a.rounds} rounds)\n')
    if found:
        columns = f'images/s ÷ {found[reference]["name"]} | CPU-ms an image | PSS MB | first batch s | of later epochs s'
        print(f'| loader | {columns} |\n|---|---|---|---|---|---|')
    numbers = {}
    for peer, about in found.items():
        cpu, again, imported = (statistics.median(result[name] for result in results[peer]) for name in ('cpu_ms', 'first', 'import_s'))
        speed = rates[peer] / rates[reference]
        print(f'| {label(peer, about)} | {speed:.2f} | {cpu:.2f} | {about["pss"]:.0f} | {about["first"]:.2f} | {again:.2f} |')
        numbers[label(peer, about)] = rounded(dict(
            speed=speed, cpu_ms=cpu, pss_mb=about['pss'], first_batch_s=about['first'], next_epochs_s=again, import_s=imported))
    for about in found.values():
        if about['note']: print(f'\n{about["name"]}: {about["note"]}.')
    for (module, _), reason in failed.items(): print(f'\nNot measured: {module}: {reason}')
    sys.stdout.flush()
    return numbers


def check(work: str, peers: list, a, settings: dict, log: Path):
    "Print what the first batch of each peer looks like; for evaluation, also its difference from the first peer's, in gray levels."
    import numpy as np
    std, first, path = np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1) * 255, None, Path(settings['scratch'])/'check.npy'
    for peer in peers:
        if peer[0] == 'decode_only': continue
        loader = started([peer], a, settings, log)[peer]
        try:
            if isinstance(loader, str): raise Failed(loader)
            found = loader.ask('check', str(path))
            line = f'{found["shape"]} {found["dtype"]}, mean {found["mean"]:.3f}, std {found["std"]:.3f}'
            if work == 'eval':
                images = np.load(path)
                first = images if first is None else first
                difference = np.abs((images - first) * std)
                line += f', from the first: mean {difference.mean():.3f}, max {difference.max():.1f} gray levels'
            print(f'{work} {label(peer, loader.about)}: {line}', flush=True)
        except Failed as error: print(f'{work} {peer[0]}: {error}', flush=True)
        finally:
            if isinstance(loader, Loader): loader.close()


def parser_of(description: str, works: str, rounds: int, repeats: int, batch_size: int = 64) -> argparse.ArgumentParser:
    "The options that all comparisons of peers have, with their defaults."
    parser = argparse.ArgumentParser(description=description.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--works', default=works, help=f'comma-separated: {works}')
    parser.add_argument('--rounds', type=int, default=rounds)
    parser.add_argument('--repeats', type=int, default=repeats, help='number of times an epoch repeats the photos')
    parser.add_argument('--num-workers', type=int, default=2, help='worker processes or threads of each loader')
    parser.add_argument('--batch-size', type=int, default=batch_size)
    parser.add_argument('--phone', type=int, default=24, metavar='N', help='number of 12-megapixel photos, in batches of 8')
    parser.add_argument('--peers', default='', help='comma-separated modules of benchmarks/peers; default: all')
    parser.add_argument('--options', action='append', default=[], metavar='PEER=JSON', help='options of a peer; repeat for more rows')
    parser.add_argument('--python', action='append', default=[], metavar='PEER=PATH', help='Python interpreter of a peer')
    parser.add_argument('--check', action='store_true', help='print what a batch of each peer looks like instead of measuring')
    return parser


def chosen(a: argparse.Namespace, peers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    "Return the requested peers, with the requested options."
    given = [tuple(pair.split('=', 1)) for pair in a.options]
    named = {module for module, _ in given}
    peers = [*(peer for peer in peers if peer[0] not in named), *given]
    return [peer for peer in peers if not a.peers or peer[0] in a.peers.split(',')]


def measure(name: str, a: argparse.Namespace, peers: list[tuple[str, str]], photographs: Callable[[Path], Path],
            base: str = 'timm_pillow', counted: Callable[[Path], dict] = lambda data: {}, **settings: Any):
    "Compare the peers in each work and write the results, and what is counted; `photographs` fills a folder with the files of a work."
    a.python, measured = dict(pair.split('=', 1) for pair in a.python), {}
    print(versions('torch'))
    with tempfile.TemporaryDirectory(prefix=f'{name}-') as scratch:
        scratch, began, log = Path(scratch), time.time(), Path(tempfile.gettempdir())/f'beside_{name}.log'
        data = photographs(scratch)
        for work in a.works.split(','):
            asked = dict(data_dir=str(data), work=work, workers=a.num_workers, batch_size=a.batch_size, scratch=str(scratch))
            if work == 'phone':
                large = phone_photographs(a.data, a.phone, scratch/'large')
                asked |= dict(data_dir=str(linked(large, a.repeats, 8 * a.num_workers, scratch/'phone')), batch_size=8)
            if a.check: check(work, peers, a, asked, log)
            else: measured[work] = compare(work, peers, a, asked, log, base)
        more = {} if a.check else counted(data)
        print(f'\n{(time.time() - began) / 60:.0f} minutes.')
    about = dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, repeats=a.repeats)
    if not a.check: write_results(name, about | settings, results=measured, **more)


def linked_photographs(a: argparse.Namespace, scratch: Path) -> Path:
    "Links to the photos, enough for each worker to make the same number of batches."
    return linked(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'photographs')


def main():
    a = parser_of(__doc__, 'train,jitter,eval,phone', rounds=7, repeats=3).parse_args()
    measure('peers', a, chosen(a, ALL), partial(linked_photographs, a), phone_batch_size=8)


if __name__ == '__main__': main()
