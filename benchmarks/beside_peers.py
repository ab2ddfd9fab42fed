"""This library beside other loaders: the same photographs, work, batches and number of workers, images per second and CPU time.

    python benchmarks/beside_peers.py DIR [--works train,jitter,eval,phone] [--rounds 7] [--ours '{"workers": "threads"}']

DIR holds class folders. Each loader lives in a process of its own and is stopped (SIGSTOP) while others run, so that none works
ahead between its epochs; an epoch has as many batches for each worker. Rounds are interleaved, one epoch of each loader a round, after
a first that warms up; medians are compared, and go to results/peers.json; `python benchmarks/results.py` prints the table of the README.
First batch and memory are measured before that, with no other loader alive: seconds from the imported library to the first batch,
and the greatest PSS of the process tree in the second epoch. The seconds to the first batch of later epochs are those of the rounds, and
those of the import, torch included, of the loaders that are started for them. CPU time is that of the process tree, with processes
that have ended.
Run it on an otherwise idle machine; peers/requirements.txt says what to install.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pipe
from pathlib import Path

import psutil
from results import rounded, write_results
from side_by_side import cpu_seconds, process_tree, versions

PEERS = Path(__file__).parent/'peers'
ALL = 'timm_pillow,timmdata_,torchvision_pil,torchvision_tensor,dali_cpu,ffcv_,spdl_,grain_,decode_only'
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
        "One epoch of a stopped loader: images per second and CPU ms an image."
        tree = self.tree()
        cpu = cpu_seconds(tree)
        for process in reversed(tree): process.resume()
        found = self.ask('epoch')
        self.stop()
        found['rate'] = found['images'] / found['seconds']
        return {**found, 'cpu_ms': (cpu_seconds(self.tree()) - cpu) / found['images'] * 1000}

    def memory(self) -> float:
        "The greatest PSS of the process tree during one epoch, MB."
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
    "A folder of links to `repeats` times the photographs, and more up to a multiple of `unit`; names in order."
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
    "Photographs of 4032 × 3024 pixels in two class folders: small ones made large, with a little noise."
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
    "A loader for each peer, or why there is none."
    loaders = {}
    for peer in peers:
        module, options = peer
        python = a.python.get(module, sys.executable)
        try: loaders[peer] = Loader(module, python, log, {**settings, 'options': json.loads(options)})
        except Failed as error: loaders[peer] = str(error)
    return loaders


def alone(peers: list, a, settings: dict, log: Path) -> tuple[dict, dict]:
    "What each peer says and measures with no other alive: ({peer: about, first, pss}, {peer: why not})."
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
    "All peers' epochs, interleaved; with each, the seconds of its import."
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
    "A row's name."
    options = ['without simplejpeg' if name == 'backend' else value for name, value in json.loads(peer[1]).items()]
    return ', '.join([f'{about["name"]} {about["version"].partition("+")[0]}', *options])


def compare(work: str, peers: list, a, settings: dict, log: Path, base: str = 'timm_pillow') -> dict[str, dict[str, float]]:
    "Measure one work, and print its table; speeds are ÷ that of the base, or of the first one."
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
    "Print what the first batch of each peer looks like; evaluation beside the first peer's, in gray levels."
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--peers', default=ALL, help='modules of benchmarks/peers, comma-separated')
    parser.add_argument('--works', default='train,jitter,eval', help='of train, jitter, eval, phone')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--repeats', type=int, default=3, help='times that the photographs are repeated in an epoch')
    parser.add_argument('--num-workers', type=int, default=2, help='worker processes or threads of each loader')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--phone', type=int, default=24, metavar='N', help='12-megapixel photographs, in batches of 8')
    parser.add_argument('--ours', action='append', help="JSON of further arguments of timmdata's create_loader; again for another row")
    parser.add_argument('--options', action='append', default=[], metavar='PEER=JSON', help="a peer's own options")
    parser.add_argument('--python', action='append', default=[], metavar='PEER=PATH', help='the interpreter of a peer')
    parser.add_argument('--check', action='store_true', help='look at a batch of each peer instead of measuring')
    a = parser.parse_args()
    a.python, a.options = (dict(pair.split('=', 1) for pair in pairs) for pairs in (a.python, a.options))
    a.ours = a.ours or ['{}']
    return a


def main():
    a = arguments()
    peers = [(module, options) for module in a.peers.split(',')
             for options in (a.ours if module == 'timmdata_' else [a.options.get(module, '{}')])]
    print(versions('torch'))
    with tempfile.TemporaryDirectory(prefix='peers-') as scratch:
        scratch, began, measured = Path(scratch), time.time(), {}
        photographs = linked(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'photographs')   # as many batches for each worker
        for work in a.works.split(','):
            data, batch_size = photographs, a.batch_size
            if work == 'phone':
                batch_size, large = 8, phone_photographs(a.data, a.phone, scratch/'large')
                data = linked(large, a.repeats, batch_size * a.num_workers, scratch/'phone')
            settings = dict(data_dir=str(data), work=work, workers=a.num_workers, batch_size=batch_size, scratch=str(scratch))
            log = Path(tempfile.gettempdir())/'beside_peers.log'
            if a.check: check(work, peers, a, settings, log)
            else: measured[work] = compare(work, peers, a, settings, log)
        print(f'\n{(time.time() - began) / 60:.0f} minutes.')
    if not a.check:
        settings = dict(num_workers=a.num_workers, batch_size=a.batch_size, rounds=a.rounds, phone_batch_size=8)
        write_results('peers', settings, results=measured)


if __name__ == '__main__': main()
