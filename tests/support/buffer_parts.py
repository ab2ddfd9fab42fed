"A loader whose batches are buffered, and the programs that train with it; importable, so that programs find them."
import contextlib
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import torch
from loader_parts import Coded, is_server, program

from timmdata import BatchBuffer
from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.pipeline.builder import BatchBuilder, HostBatch
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.samplers.epoch import EpochSampler
from timmdata.workers.settings import WorkerSettings

FOREVER = 10**9   # batches


class Pixels:
    "Noise that depends only on the sample, not on the process."
    def __call__(self, image):
        generator = torch.Generator().manual_seed(zlib.crc32(image.tobytes()))
        return torch.randint(0, 256, (3, 80, 80), dtype=torch.uint8, generator=generator)


def loader_of(dataset, seed: int = 0, shuffle: bool = False, batch_size: int = 4, timeout: float = 0.) -> BatchLoader:
    builder = BatchBuilder(SampleLoader(dataset, transform=Pixels(), shape=(3, 80, 80)))
    workers = WorkerSettings(num_workers=0, timeout=timeout)
    return BatchLoader(builder, EpochSampler(dataset, shuffle, seed), BatchSettings(batch_size), workers)


def make_loader(batch_size: int = 4, timeout: float = 0.) -> BatchLoader: return loader_of(Coded(50), 7, True, batch_size, timeout)


def mark(host: HostBatch) -> str:
    "A batch in a few characters, without a space."
    images, targets = host.batch
    return f'{zlib.crc32(images.numpy().tobytes())} {targets.tolist()}'.replace(' ', '')


def undisturbed(num: int) -> list[str]:
    "Return the batches of the loader without a buffer."
    loader, seen = make_loader(), []
    while len(seen) < num: seen += [mark(host) for host in loader.host_batches()]
    return seen[:num]


def forever(buffer: BatchBuffer) -> Iterator[str]:
    "Batches of all epochs; one is acknowledged when the next is requested."
    while True:
        epoch = buffer.sampler.epoch
        for host in buffer.host_batches():
            found, position = mark(host), host.position
            del host
            yield found
            buffer.acknowledge(epoch, position)


def values(buffer: BatchBuffer, num: int = 26) -> list[str]: return list(islice(forever(buffer), num))


def buffered(tmp_path: Path | None = None, **kwargs) -> BatchBuffer:
    "A buffer of this program, in a directory of the test."
    return BatchBuffer(make_loader(), directory=tmp_path and tmp_path/'buffer', **dict(batches=8) | kwargs)


def train(folder: Path, stop: int):
    "A program that logs each batch, then acknowledges it."
    buffer = BatchBuffer(make_loader(), batches=12, low_watermark=8, directory=folder/'buffer', auto_ack=False)
    count = buffer.status()['used']
    print('ready', flush=True)
    with open(folder/'log', 'a') as log:
        while count < stop:
            epoch = buffer.sampler.epoch
            for host in buffer.host_batches():
                log.write(f'{count} {mark(host)}\n')
                log.flush()
                buffer.acknowledge(epoch, host.position)
                count += 1
                time.sleep(0.002)
                if count == stop: break
    buffer.close()
    print('end', flush=True)


def read(folder: Path, stop: int, sleep: float):
    "A program that prints what it reads."
    buffer = BatchBuffer(make_loader(), batches=8, directory=folder/'buffer', auto_ack=False)
    count = 0
    print('ready', flush=True)
    while count < stop:
        epoch = buffer.sampler.epoch
        for host in buffer.host_batches():
            print(mark(host), flush=True)
            buffer.acknowledge(epoch, host.position)
            count += 1
            time.sleep(sleep)
            if count == stop: break
    buffer.close()


# ---- programs, as code to start, and what they leave

def training(folder: Path, stop: int) -> str:
    "A program that logs each batch, then acknowledges it."
    return f'from pathlib import Path\nfrom buffer_parts import train\ntrain(Path({str(folder)!r}), {stop})'


def kill_children(run) -> int:
    "Kill a program's producer, which may be ending by itself; return how many were killed."
    killed = 0
    for child in run.process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if is_server(child): continue
            child.kill()
            killed += 1
    return killed


def acknowledged(log: Path) -> list[str]:
    "The batches of the log. A batch that was logged but not acknowledged before a kill is repeated, unchanged."
    seen = {}
    for number, line in (line.split(' ', 1) for line in log.read_text().splitlines() if line.count(' ') == 1):
        assert int(number) in (len(seen), len(seen) - 1), f'batch {number} after {len(seen)}: lost, or far back'
        assert seen.setdefault(int(number), line) == line
    return list(seen.values())


def finish(folder: Path):
    "After all kills, the runs together have seen the same batches as an undisturbed run."
    stop = len(acknowledged(folder/'log')) + 30
    code, _, errors = program(training(folder, stop)).end(60)
    assert code == 0 and errors == '' and acknowledged(folder/'log') == undisturbed(stop)


def flip(path: Path, at: int):
    "Change a bit of a file, like a faulty disk."
    with open(path, 'r+b') as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 16]))


def batch_file(directory: Path, number: int) -> Path: return directory/f'{number:012}.batch'


def reading(folder: Path, stop: int, sleep: float) -> str:
    "A program that prints what it reads."
    return f'from pathlib import Path\nfrom buffer_parts import read\nread(Path({str(folder)!r}), {stop}, {sleep})'
