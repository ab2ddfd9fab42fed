"""Reading and writing a batch file in RAM: the buffer's format compared with torch.save and torch.load, both with a checksum.

    python benchmarks/batch_files.py [--rounds 60]

The batch has 64 uint8 images (channels-last, 9.6 MB), targets and keys. Both ways check a CRC-32 of the whole file before they use it.
They take turns; the fastest and the median time in milliseconds go to results/batch_files.json for the page `buffer/store`.
"""
import argparse
import io
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from results import rounded, write_results

from timmdata.buffer.store import BatchStore
from timmdata.pipeline.fetch import HostBatch
from timmdata.samplers.epoch import SampleKey


def write_by_torch(path: Path, host: HostBatch):
    "Write a checksum and a file of torch.save."
    buffer = io.BytesIO()
    torch.save((host.batch, [tuple(key) for key in host.keys], host.position), buffer)
    with open(path, 'wb') as file: file.writelines([b'%08x' % zlib.crc32(buffer.getbuffer()), buffer.getbuffer()])


def read_by_torch(path: Path):
    "Read it, check it, and load it."
    with open(path, 'rb') as file: check, content = file.read(8), file.read()
    if check != b'%08x' % zlib.crc32(content): raise ValueError(f'{path} is damaged')
    return torch.load(io.BytesIO(content), weights_only=True)


def milliseconds(run: Callable) -> float:
    start = time.perf_counter()
    run()   # the result is dropped at once, so its memory is reused
    return 1000 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=60)
    a = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    host = HostBatch((images, torch.arange(64)), [SampleKey(k, 0) for k in range(64)], 64)
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        store, path = BatchStore.create(folder, 4, 10_000_000), Path(folder, 'by_torch')
        ways = {'this store': (lambda: store.write(0, host), lambda: store.read(0)),
                'torch.save and torch.load': (lambda: write_by_torch(path, host), lambda: read_by_torch(path))}
        found = {name: ([], []) for name in ways}
        for _ in range(a.rounds):
            for name, steps in ways.items():
                for times, run in zip(found[name], steps): times.append(milliseconds(run))
    numbers = {name: {kind: dict(fastest=min(times), median=statistics.median(times))
                      for kind, times in zip(('write_ms', 'read_ms'), both)} for name, both in found.items()}
    write_results('batch_files', dict(rounds=a.rounds, megabytes=images.nbytes / 1e6), ways=rounded(numbers))
    for name, of in rounded(numbers).items(): print(name, of)


if __name__ == '__main__': main()
