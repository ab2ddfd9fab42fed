"""More workers than this machine has cores: how Python's lock (the GIL) limits them, measured and simulated.

    python benchmarks/many_cores.py [DIR] [--rounds 5]

Two measurements. Medians go to results/many_cores.json, and the page `workers/autotune` plots them. Use an otherwise idle machine.

- How long an image holds the GIL, in one thread: for 20-pixel photos, which cost little besides Python, and for the photos in the class
  folders of DIR. The script compiles `lock_clock.c` for this (Linux with a C compiler; otherwise it skips the measurement).
- A simulation: instead of decoding, a reader sleeps for 2 ms, which needs neither a core nor the GIL, so there can be many more workers
  than cores. Everything else is real and uses the available cores. `ideal` is what these cores could do if sleeping and handing over
  batches cost nothing.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from results import rounded, write_results

from timmdata.core.cores import available_cores
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.stages import host_loader, spread
from timmdata.readers.folder import ReaderImageFolder

WORKS = {'crop, flip': dict(is_training=True, color_jitter=None), 'color jitter': dict(is_training=True),
         'RandAugment, erasing': dict(is_training=True, auto_augment='rand-m9-mstd0.5-inc1', re_prob=0.25),
         'evaluation': {}}
THREADS, PROCESSES = (1, 2, 4, 8, 16, 32, 64), ((2, 8), (4, 8), (8, 4), (16, 2), (32, 1))   # processes × threads
SLEEP_MS, BATCH = 2, 64
LOCK_CLOCK = Path(__file__).with_name('lock_clock.c')


class Sleeping(ReaderImageFolder):
    "Sleeps without the GIL for as long as decoding a photo takes."
    def __getitem__(self, index):
        time.sleep(SLEEP_MS / 1000)
        return super().__getitem__(index)


def write_tiny(folder: Path, num: int = 128):
    "Write 20-pixel photos in two classes."
    for number in range(num):
        path = folder/'ab'[number % 2]/f'{number:03}.jpg'
        path.parent.mkdir(exist_ok=True)
        Image.effect_noise((20, 20), 60).convert('RGB').save(path, quality=90)


def make_loader(dataset, size: int, work: str, **workers):
    return create_loader(dataset, size, BATCH, seed=0, device='cpu', **WORKS[work], **workers)


def count(batches) -> int: return sum(len(made.keys) for made in batches)


# how long an image holds the GIL: a separate process that loads the clock before libpython

def held_ms(away, run, rounds: int) -> float:
    "Milliseconds that an image holds the GIL; `run` returns the number of images."
    found = []
    for _ in range(rounds + 1):
        start, before = time.perf_counter_ns(), away()
        num = run()
        found.append((time.perf_counter_ns() - start - away() + before) / num / 1e6)
    return statistics.median(found[1:])


def measure_lock(folder: str, size: int, rounds: int) -> dict[str, dict[str, float]]:
    "Workload → milliseconds per image, in the worker and on the device."
    away, found = ctypes.PyDLL(None).lock_clock_away, {}
    away.restype = ctypes.c_longlong
    torch.set_num_threads(1)
    for work in WORKS:
        loader = make_loader(spread(ImageDataset(folder, split=None), 4 * BATCH), size, work, num_workers=0)
        made = next(iter(host_loader(loader).host_batches()))
        found[work] = {'worker': held_ms(away, partial(run_worker, loader), rounds),
                       'device': held_ms(away, partial(run_device, loader, made), rounds)}
    return found


def run_worker(loader) -> int: return count(host_loader(loader).host_batches())


def run_device(loader, made) -> int:
    loader.batch_transform.on_batch(made.batch, made.keys, made.drawn)
    return len(made.keys)


def run_with_clock(folder: str, size: int, rounds: int) -> dict[str, dict[str, float]] | None:
    "`measure_lock` in a separate process; None without a C compiler."
    with tempfile.TemporaryDirectory() as build:
        library = f'{build}/lock_clock.so'
        try: subprocess.run(['cc', '-O2', '-shared', '-fPIC', LOCK_CLOCK, '-o', library, '-ldl'], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f'the lock is not measured: {error}', file=sys.stderr)
            return None
        asked = [sys.executable, __file__, folder, '--lock', str(size), '--rounds', str(rounds)]
        return json.loads(subprocess.run(asked, env={**os.environ, 'LD_PRELOAD': library}, check=True, stdout=subprocess.PIPE).stdout)


def hand_over_us(times: int = 5000) -> float:
    "Microseconds from the release of a lock in one thread until a waiting thread has it."
    mine, yours = threading.Lock(), threading.Lock()
    mine.acquire(), yours.acquire()

    def answer():
        for _ in range(times):
            yours.acquire()
            mine.release()

    other = threading.Thread(target=answer)
    other.start()
    start = time.perf_counter()
    for _ in range(times):
        yours.release()
        mine.acquire()
    spent = time.perf_counter() - start
    other.join()
    return 1e6 * spent / times / 2   # there and back


# the simulation

def simulate(folder: str, work: str, rounds: int) -> dict:
    "Images per second of threads, and of processes × threads; CPU time per image in one thread, in ms."
    torch.set_num_threads(1)   # as in a worker
    inline, cpu_ms = make_loader(spread(ImageDataset(folder, split=None), 4 * BATCH), 224, work, num_workers=0), []
    for _ in range(rounds + 1):
        start = time.process_time()
        num = count(host_loader(inline).host_batches())
        cpu_ms.append(1000 * (time.process_time() - start) / num)
    cpu = statistics.median(cpu_ms[1:])
    ideal = 1000 * available_cores() / cpu
    kinds = {f'{n} threads': (n, dict(worker_type='threads', num_workers=n)) for n in THREADS}
    kinds |= {f'{p} × {n}': (p * n, dict(worker_type='processes', num_workers=p, threads_per_worker=n)) for p, n in PROCESSES}
    found = {}
    for name, (num_threads, workers) in kinds.items():
        samples = spread(ImageDataset(folder, Sleeping(folder)), BATCH * min(48, 8 * num_threads))
        rates = []
        with make_loader(samples, 224, work, **workers) as loader:
            for _ in range(rounds + 1):
                start = time.perf_counter()
                rates.append(count(host_loader(loader).host_batches()) / (time.perf_counter() - start))
        rate = statistics.median(rates[1:])
        most = min(ideal, 1000 * num_threads / (SLEEP_MS + cpu))
        found[name] = {'workers': num_threads, 'images_per_s': rate, 'of_ideal': rate / most}
        print(f'{work}: {name}: {rate:,.0f} images/s, {rate / most:.2f} of the ideal', file=sys.stderr)
    return {'cpu_ms': cpu, 'ideal': ideal, 'rates': found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', nargs='?', help='class folders')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--lock', type=int, metavar='SIZE', help='only measure the lock (the script uses this to start itself)')
    a = parser.parse_args()
    if a.lock: return print(json.dumps(measure_lock(a.data, a.lock, a.rounds)))
    with tempfile.TemporaryDirectory() as folder:
        write_tiny(Path(folder))
        lock = {'20 pixels': run_with_clock(folder, 16, 5 * a.rounds)}
        if a.data: lock['photographs'] = run_with_clock(a.data, 224, 3 * a.rounds)
        works = {work: simulate(folder, work, a.rounds) for work in WORKS}
    settings = dict(rounds=a.rounds, simulated=f'decoding replaced by a sleep of {SLEEP_MS} ms', batch_size=BATCH, input_size=224)
    write_results('many_cores', settings, **rounded({'lock_ms': lock, 'hand_over_us': hand_over_us(), 'works': works}))


if __name__ == '__main__': main()
