"""Tests, checks and measurements of this library that need a GPU, in a single command.

    python benchmarks/on_a_gpu.py DIR --out benchmarks/results/gpu-NAME.json [--parts NAME …] [--dry-run]

DIR has one folder per class. The loaders read links to its files, each file as often as it takes. The operating system keeps them in
memory, so disks are not measured. Each part can run alone. It is written to the file when it ends, and the same command runs only the
parts that are missing. No part starts after `--minutes`. A line once a minute says that the script is still running. With `--dry-run`,
every part runs for a moment, on a CPU if there is no GPU; its numbers mean nothing.

The parts run in this order. The times are those of an H100 with 16 cores, on which the first six take less than 12 minutes together:

    tests     2 min    the tests marked gpu: side streams, and that no transform of a batch waits for the device
    kernels   20 s     time of the arithmetic on the device, time until it is queued, Python time, bytes per image
    headroom  4 min    images per second of a training step, relative to batches that stay on the device; waits, also at the start of
                       epochs of 50 and of 3 steps; Python time in the training process. The bar is that of MLPerf Storage, 0.90
    pack      3 min    a ViT-S fed from a pack whose photos have a shorter side of 256, and from the files, with 8 and 16 cores
    memory    20 s     memory that the arithmetic on the device needs for its temporaries
    nvjpeg    30 s     how many batches have wrong pixels if the device decodes them: vision#9606, torchcodec#1634
    streams   90 s     10,000 batches copied on a side stream while the consumer fills the allocator: each batch bit for bit
    exact     20 s     the same losses to the bit with any workers
    cores     4 min    images per second that 2, 4, 8 … cores bring to the device
    learning  7 min    ten epochs of ten classes from scratch, three seeds, this library and timm

Only streams, exact and kernels have been timed. The others are estimates from the shorter run of 2026-11-27. To measure another commit
with the same script, name a checkout of it in PYTHONPATH, pass another --out, and leave out tests.
"""
import argparse
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import timm
import timm.data
import torch
import torchvision
from PIL import Image
from results import rounded, write_results
from torchvision.transforms import v2

import timmdata

ROOT = Path(__file__).resolve().parent.parent
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
MEAN, STD = timmdata.IMAGENET_DEFAULT_MEAN, timmdata.IMAGENET_DEFAULT_STD


BAR = 0.90   # of the speed with batches on the device: what MLPerf Storage asks of ResNet-50 and Unet3D
SPOKEN = [time.monotonic()]   # when a line was printed last


def say(text: str):
    SPOKEN[0] = time.monotonic()
    print(f'{time.strftime("%H:%M:%S")} {text}', flush=True)


@contextmanager
def signs_of_life(name: str, start: float):
    "Print once a minute that a part is still running, if it prints nothing itself."
    def watch():
        while not is_over.wait(5):
            if time.monotonic() - SPOKEN[0] > 55: say(f'  {name}: {(time.monotonic() - start) / 60:.0f} min')

    is_over = threading.Event()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try: yield
    finally:
        is_over.set()
        thread.join()


def wait_for_device():
    "Wait until all work queued on the device is done."
    if DEVICE.type == 'cuda': torch.cuda.synchronize()


def images_in(data: Path) -> list[Path]:
    return [path for path in sorted(data.rglob('*')) if path.suffix.lower() in ('.jpg', '.jpeg', '.png')]


def enlarge(data: Path, folder: Path, num_images: int) -> Path:
    "Make a folder of exactly `num_images` links to images of `data`, from all classes, each as often as necessary; 0: one link per image."
    files = images_in(data)
    num_images = num_images or len(files)
    for number in range(num_images):
        path = files[number * len(files) // num_images]
        link = folder/path.relative_to(data).parent/f'{number}-{path.name}'
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    return folder


def split_subset(data: Path, folder: Path, num_train: int = 400, num_val: int = 100) -> tuple[Path, Path]:
    "Link images of the ten largest classes to folders for training and validation; classes of one image are in both."
    classes: dict[Path, list[Path]] = {}
    for path in images_in(data): classes.setdefault(path.parent, []).append(path)
    for parent, paths in sorted(classes.items(), key=lambda item: -len(item[1]))[:10]:
        num = min(num_val, len(paths) // 5) or len(paths)
        for split, chosen in (('val', paths[:num]), ('train', paths[num:num + num_train] or paths)):
            for path in chosen:
                link = folder/split/parent.name/path.name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.resolve())
    return folder/'train', folder/'val'


def forever(loader: Iterable) -> Iterator:
    "Epoch after epoch."
    while True: yield from loader


class Clocks(Counter):
    "CPU seconds of calls by name: Python, and a busy wait for the device, but no sleep and no wait for Python's lock."

    def timed(self, name: str, function: Callable) -> Callable:
        "A function whose calls are timed, in the thread that makes them."
        def call(*args, **settings):
            start = time.thread_time()
            try: return function(*args, **settings)
            finally: self[name] += time.thread_time() - start

        return call

    def timed_steps(self, name: str, batches: Iterable) -> Iterator:
        "Yield the batches; the time to get one is added in the thread that gets it."
        ready = iter(batches)
        advance = self.timed(name, lambda: next(ready, None))
        while (batch := advance()) is not None: yield batch


class Feed(NamedTuple):
    """Batches on the device, without end.

    Args:
        batches: (images, targets) of all epochs.
        num_steps: Batches of an epoch; None: there are no epochs.
        clocks: CPU time of the loader in the training process, by thread. On a CPU, there is no prefetch thread, so this time is part of
            the training thread's.
    """
    batches: Iterator
    num_steps: int | None
    clocks: Clocks


@contextmanager
def feed_of(name: str, data: Path | None, batch_size: int, size: int, num_workers: int):
    "Batches of crops and flips, normalized."
    common = dict(batch_size=batch_size, num_workers=num_workers)
    loader, clocks = None, Clocks()
    if name == 'timmdata':
        loader = timmdata.create_loader(
            timmdata.ImageDataset(data), size, is_training=True, color_jitter=None, device=DEVICE, img_dtype=torch.bfloat16,
            channels_last=True, **common)
        transform, host_batches = loader.batch_transform, loader.loader.host_batches
        transform.on_batch = clocks.timed('prefetch thread, transform', transform.on_batch)
        loader.loader.host_batches = lambda: clocks.timed_steps('prefetch thread, batches', host_batches())
        feed = forever(loader)
    elif name == 'timm':
        loader = timm.data.create_loader(
            timm.data.ImageDataset(data), (3, size, size), is_training=True, color_jitter=None, device=DEVICE, img_dtype=torch.bfloat16,
            pin_memory=DEVICE.type == 'cuda', use_multi_epochs_loader=True, **common)
        feed = forever(loader)
    elif name == 'torchvision':
        transform = v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                                v2.Normalize(MEAN, STD)])
        dataset = torchvision.datasets.ImageFolder(data, transform)
        loader = torch.utils.data.DataLoader(
            dataset, shuffle=True, drop_last=True, pin_memory=DEVICE.type == 'cuda', persistent_workers=num_workers > 0, **common)
        feed = ([part.to(DEVICE, non_blocking=True) for part in batch] for batch in forever(loader))
    elif name == 'DALI':
        feed = dali_batches(data, batch_size, size, num_workers)
    else:   # one batch, over and over: on the device, or copied to it each time
        images = torch.randint(256, (batch_size, 3, size, size), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
        targets = torch.randint(1000, (batch_size,))
        if name == 'copied':
            if DEVICE.type == 'cuda': images, targets = images.pin_memory(), targets.pin_memory()
            feed = iter(timmdata.PrefetchLoader(itertools.repeat((images, targets)), device=DEVICE, img_dtype=torch.bfloat16))
        else:
            images = images.to(DEVICE, torch.bfloat16) / 255
            feed = itertools.repeat((images, targets.to(DEVICE)))
    try: yield Feed(feed, None if loader is None else len(loader), clocks)
    finally:
        if hasattr(feed, 'close'): feed.close()


def dali_batches(data: Path, batch_size: int, size: int, num_workers: int) -> Iterator:
    "Batches of NVIDIA DALI, which decodes on the device."
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator
    is_cuda = DEVICE.type == 'cuda'

    @pipeline_def(batch_size=batch_size, num_threads=max(1, num_workers), device_id=0 if is_cuda else None)
    def pipeline():
        encoded, targets = fn.readers.file(file_root=str(data), random_shuffle=True, name='reader')
        images = fn.decoders.image_random_crop(encoded, device='mixed' if is_cuda else 'cpu', output_type=types.RGB)
        images = fn.resize(images, size=(size, size))
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT16, output_layout='CHW', mean=[255 * value for value in MEAN], std=[255 * value for value in STD],
            mirror=fn.random.coin_flip())
        return images, targets

    for output in forever(DALIGenericIterator(pipeline(), ['images', 'targets'], reader_name='reader', auto_reset=True)):
        yield output[0]['images'].to(DEVICE, torch.bfloat16), output[0]['targets'].squeeze(1).to(DEVICE, torch.int64)


def steps(name: str, feed: Feed, train: Callable, seconds: float, warm: int) -> dict[str, Any]:
    "Train for a while; images per second, how long the loop waited for its batches, and the loader's CPU time in this process."
    advance = feed.clocks.timed('training thread', feed.batches.__next__)
    for _ in range(warm): train(*advance())
    wait_for_device()
    feed.clocks.clear()
    waits, first_waits, count, start = [], [], 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        images, targets = advance()
        waits.append(time.perf_counter() - before)
        if feed.num_steps and (warm + len(waits) - 1) % feed.num_steps == 0: first_waits.append(waits[-1])
        train(images, targets)
        count += len(images)
        if len(waits) % 4 == 0: wait_for_device()   # the loop is not far ahead of the device: a late batch shows
    wait_for_device()
    rate = count / (time.perf_counter() - start)
    python_us = {thread: 1e6 * used / count for thread, used in sorted(feed.clocks.copy().items())}   # the prefetch thread goes on
    waits = sorted(waits)
    found = {'images_per_s': rate, 'wait_ms': statistics.median(waits) * 1e3, 'wait_p99_ms': waits[int(len(waits) * .99)] * 1e3,
             'wait_max_ms': waits[-1] * 1e3, 'steps': len(waits), 'python_us_per_image': python_us}
    if first_waits:
        found |= {'epoch_steps': feed.num_steps, 'epochs': len(first_waits), 'first_wait_ms': statistics.median(first_waits) * 1e3,
                  'first_wait_max_ms': max(first_waits) * 1e3}
    say(f'  {name}: {rate:,.0f} images/s, waits of {found["wait_ms"]:.1f} ms, at most {found["wait_max_ms"]:.0f}')
    if first_waits: say(f'    first batches of {len(first_waits)} epochs: waits of {found["first_wait_ms"]:.1f} ms')
    say('    Python per image: ' + ', '.join(f'{thread} {used:.1f} µs' for thread, used in python_us.items()))
    return found


def step(
    model: Callable, optimizer: torch.optim.Optimizer, images: torch.Tensor, targets: torch.Tensor, is_bfloat16: bool = True,
) -> torch.Tensor:
    "One training step; its loss."
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=is_bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trainer(model: torch.nn.Module, is_compiled: bool) -> Callable:
    "Training steps of a model in bfloat16, channels-last."
    model = model.to(DEVICE, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    run = torch.compile(model) if is_compiled else model

    def train(images: torch.Tensor, targets: torch.Tensor):
        step(run, optimizer, images.contiguous(memory_format=torch.channels_last), targets)

    return train


def works() -> dict[str, dict[str, Any]]:
    "Arithmetic on the device, by its settings."
    mixed = dict(color_jitter=0.4, re_prob=0.25, re_mode='pixel', mixup=timmdata.Mixup(mixup_alpha=0.2, cutmix_alpha=1., num_classes=1000))
    return {
        'crop, flip': dict(color_jitter=None),
        '… and color jitter': dict(color_jitter=0.4),
        '… and erasing': dict(color_jitter=0.4, re_prob=0.25, re_mode='pixel'),
        '… and mixing': mixed,
        'exact jitter': dict(color_jitter=0.4, color_jitter_mode='exact'),
        'jitter, blur, grayscale, solarize': dict(color_jitter=0.4, gaussian_blur_prob=0.5, grayscale_prob=0.2, solarize_prob=0.2),
        '… and hue': dict(color_jitter=(0.4, 0.4, 0.2, 0.1), color_jitter_prob=0.8, gaussian_blur_prob=0.5, grayscale_prob=0.2,
                          solarize_prob=0.2)}


def transform_of(loader: Any, host: Any) -> Callable:
    "Return the transform of the prefetch thread for a batch on the device, with the numbers that a worker drew, if any."
    drawn = [host.drawn] if hasattr(host, 'drawn') else []
    return lambda batch: loader.batch_transform.on_batch(batch, host.keys, *drawn)


def each_work(a: argparse.Namespace, num: int) -> Iterator[tuple[str, Any, Callable]]:
    "Each kind of arithmetic, a batch on the host, and the transform of that batch."
    for name, settings in works().items():
        loader = timmdata.create_loader(timmdata.ImageDataset(a.data), 224, num, is_training=True, seed=1, num_workers=2, device=DEVICE,
                                        img_dtype=torch.bfloat16, channels_last=True, **settings)
        host = next(iter(loader.loader.host_batches()))
        yield name, host, transform_of(loader, host)
        del loader, host


# the parts


def gpu_tests() -> list[Path]:
    "The files with tests marked `gpu`."
    return sorted(path for path in (ROOT/'tests').rglob('test_*.py') if 'mark.gpu' in path.read_text(encoding='utf-8'))


def tests(a: argparse.Namespace) -> dict[str, Any]:
    "The tests marked `gpu`, including slow ones; the result file names those that were skipped."
    command = [sys.executable, '-m', 'pytest', '-q', '-n', '2' if a.dry_run else '4', '-p', 'no:cacheprovider', '-rs',
               '--no-fold-skipped', '-m', 'gpu', *gpu_tests()]
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, 'TIMMDATA_FULL': '1'}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    assert found.returncode == 0, found.stdout[-6000:]
    lines = found.stdout.splitlines()
    skipped = [line.removeprefix('SKIPPED ').partition(' - ')[0] for line in lines if line.startswith('SKIPPED ')]
    return {'summary': lines[-1].strip('= '), 'not_run': skipped}


def streams(a: argparse.Namespace) -> dict[str, Any]:
    "Each batch from the side stream has the bits that it has if the device does one thing at a time, and the CPU's pixels."
    num_steps, batch_size = (20, 16) if a.dry_run else (10_000, 16)
    settings = dict(input_size=64, batch_size=batch_size, is_training=True, color_jitter=None, re_prob=0.3, seed=3,
                    num_workers=a.num_workers, device=DEVICE)   # arithmetic whose pixels are whole numbers on every device

    def checksum(images: torch.Tensor) -> torch.Tensor:
        bits = images.contiguous().view(torch.int32).flatten().to(torch.int64)
        return (bits * weights[:len(bits)]).sum()

    def pixels(images: torch.Tensor) -> torch.Tensor:
        "Return a checksum of the pixels as integers, which the last bit of a float does not change."
        scale = [torch.tensor(values, device=images.device)[:, None, None] for values in (MEAN, STD)]
        return ((images * scale[1] + scale[0]) * 255).round().to(torch.int64).flatten().mul(places[images.device.type]).sum()

    weights = torch.randint(1, 1 << 20, (batch_size * 3 * 64 * 64,), generator=torch.Generator().manual_seed(0))
    places = {'cpu': weights}
    weights = places[DEVICE.type] = weights.to(DEVICE)
    dataset = timmdata.ImageDataset(a.data)
    loader, expected, on_cpu = timmdata.create_loader(dataset, **settings), [], []
    cpu_transform = timmdata.create_loader(dataset, **{**settings, 'device': 'cpu'}).batch_transform
    for host in itertools.islice(itertools.chain.from_iterable(loader.loader.host_batches() for _ in itertools.count()), num_steps):
        batch = [part.to(DEVICE) for part in host.batch]
        expected.append(checksum(transform_of(loader, host)(batch)[0]).item())
        on_cpu.append(pixels(cpu_transform.on_batch([part.clone() for part in host.batch], host.keys)[0]).item())
    del loader
    found, levels, kept, noise = [], [], [], torch.randn(1024, 1024, device=DEVICE)
    start, random = time.perf_counter(), torch.Generator().manual_seed(1)
    with closing(forever(timmdata.create_loader(dataset, **settings))) as feed:
        for number in range(num_steps):
            images, targets = next(feed)
            if number % 3 == 0: noise = torch.tanh(noise @ noise)   # the device is behind the loop
            found.append(checksum(images))
            levels.append(pixels(images))
            shape = images.shape
            del images, targets
            kept.append(torch.full(shape, float('nan'), device=DEVICE))   # takes what the batch has left
            drawn = int(torch.randint(1, 6, (), generator=random))
            if len(kept) > drawn: del kept[:drawn]
    found, levels = (torch.stack(sums).tolist() for sums in (found, levels))
    wrong = sum(one != other for one, other in zip(found, expected, strict=True))
    wrong_pixels = sum(one != other for one, other in zip(levels, on_cpu, strict=True))
    assert len(set(expected)) == num_steps and wrong == 0, f'{wrong} of {num_steps} batches are not what they were'
    assert wrong_pixels == 0, f'{wrong_pixels} of {num_steps} batches have other pixels than on the CPU'
    return {'batches': num_steps, 'wrong': wrong, 'wrong_pixels': wrong_pixels, 'seconds': time.perf_counter() - start}


def exact(a: argparse.Namespace) -> dict[str, Any]:
    "The losses of a short training, with the same seed and different workers."
    os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'
    torch.use_deterministic_algorithms(True)
    curves = {}
    try:
        for num_workers, kind in [(0, 'threads'), (1, 'processes'), (3, 'processes'), (a.num_workers, 'processes'), (4, 'threads')]:
            torch.manual_seed(0)
            model = timm.create_model('resnet18', num_classes=1000).to(DEVICE)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            loader = timmdata.create_loader(
                timmdata.ImageDataset(a.data), 64, 32, is_training=True, re_prob=0.25, seed=1, num_workers=num_workers, worker_type=kind,
                device=DEVICE, mixup=timmdata.Mixup(mixup_alpha=0.2, cutmix_alpha=1., num_classes=1000))
            losses = []
            for images, targets in itertools.islice(loader, 3 if a.dry_run else 60):
                losses.append(step(model, optimizer, images, targets, is_bfloat16=False))
            curves[f'{num_workers} {kind}'] = torch.stack(losses).tolist()
            del loader
    finally: torch.use_deterministic_algorithms(False)
    first, *others = curves.values()
    assert all(other == first for other in others), {name: curve[:3] for name, curve in curves.items()}
    return {'workers': list(curves), 'steps': len(first), 'first': first[0], 'last': first[-1]}


def kernels(a: argparse.Namespace) -> dict[str, Any]:
    "Milliseconds of a batch: the copy, each kind of arithmetic, and until it is queued; Python time and bytes of an image."
    num, rounds = (8, 2) if a.dry_run else (256, 30)
    found = {}
    for name, host, transform in each_work(a, num):
        times, cpu = {'copy_ms': [], 'device_ms': [], 'host_ms': []}, []
        for _ in range(rounds + 3):
            wait_for_device()
            start = time.perf_counter()
            batch = [part.to(DEVICE) for part in host.batch]
            wait_for_device()
            copied, begun = time.perf_counter(), time.thread_time()
            transform(batch)
            queued, ended = time.perf_counter(), time.thread_time()
            wait_for_device()
            done = time.perf_counter()
            cpu.append(ended - begun)
            for key, value in {'copy_ms': copied - start, 'device_ms': done - copied, 'host_ms': queued - copied}.items():
                times[key].append(value * 1e3)
        images = host.batch[0]
        found[name] = {key: statistics.median(values[3:]) for key, values in times.items()}
        found[name] |= {'python_us_per_image': statistics.median(cpu[3:]) / num * 1e6, 'bytes_per_image': images.nbytes // len(images),
                        'is_pinned': images.is_pinned() if DEVICE.type == 'cuda' else None}
        say(f'  {name}: {found[name]}')
    return {'batch_size': num, 'works': found, 'bytes_of_float32': 3 * 224 * 224 * 4}


def headroom(a: argparse.Namespace) -> dict[str, Any]:
    "A training step fed by each loader in epochs of 50 steps, and by this library also of 3, relative to a batch that stays on the device."
    batch_size, seconds, warm = (4, 0.5, 1) if a.dry_run else (256, a.seconds, 12)
    models = {'ResNet-50, channels-last': ('resnet50', False), 'ViT-S/16, compiled': ('vit_small_patch16_224', DEVICE.type == 'cuda')}
    if a.dry_run: models = {'a small ResNet': ('test_resnet', False)}
    of_50, of_3 = (enlarge(a.photos, a.scratch/f'epochs of {num}', num * batch_size) for num in (50, 3))
    dali = {'DALI': of_50} if find_spec('nvidia') and find_spec('nvidia.dali') else {}
    feeds = {'resident': None, 'copied': None, 'timmdata': of_50, 'timmdata, epochs of 3 steps': of_3, 'timm': of_50, 'torchvision': of_50,
             **dali, 'timmdata again': of_50, 'resident again': None}
    found = {}
    for title, (name, is_compiled) in models.items():
        say(f'{title}')
        train = trainer(timm.create_model(name, num_classes=1000), is_compiled)
        rows = {}
        for feed_name, data in feeds.items():
            with feed_of(feed_name.replace(',', '').split()[0], data, batch_size, 224, a.num_workers) as feed:
                rows[feed_name] = steps(feed_name, feed, train, seconds, warm)
        best = (rows['resident']['images_per_s'] + rows['resident again']['images_per_s']) / 2
        for feed_name, row in rows.items():
            row['share'] = row['images_per_s'] / best
            say(f'  {feed_name}: {row["share"]:.2f}{"" if row["share"] >= BAR else f", below {BAR:.2f}"}')
        found[title] = rows
        del train
    return {'batch_size': batch_size, 'num_workers': a.num_workers, 'bar': BAR, 'models': found}


@contextmanager
def limited_cores(counts: Iterable[int]):
    "Iterate over numbers of cores, up to those of this machine; meanwhile, the process may use only that many."
    whole = sorted(os.sched_getaffinity(0))

    def each() -> Iterator[int]:
        for count in [n for n in counts if n <= len(whole)] or [len(whole)]:
            os.sched_setaffinity(0, set(whole[:count]))
            yield count

    try: yield each()
    finally: os.sched_setaffinity(0, set(whole))


def pack(a: argparse.Namespace) -> dict[str, Any]:
    "A small ViT fed from a pack of photos with a shorter side of 256, as `timmdata pack --short-side 256` writes it, and from the files."
    batch_size, seconds, warm = (4, 0.5, 1) if a.dry_run else (256, a.seconds, 12)
    files = enlarge(a.photos, a.scratch/'files', (3 if a.dry_run else 50) * batch_size)
    start = time.perf_counter()
    timmdata.write_pack(timmdata.ImageDataset(files), a.scratch/'packed', 'train', short_side=256, progress=False)
    found = {'batch_size': batch_size, 'pack_seconds': time.perf_counter() - start}
    for name, folder in {'files': files, 'pack': a.scratch/'packed'}.items():
        found[f'{name}_mb'] = sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6
    say(f'  packed: {found}')
    model = timm.create_model('test_resnet' if a.dry_run else 'vit_small_patch16_224', num_classes=1000)
    train, rows = trainer(model, DEVICE.type == 'cuda' and not a.dry_run), {}
    with feed_of('resident', None, batch_size, 224, 0) as feed: best = steps('resident', feed, train, seconds, warm)['images_per_s']
    with limited_cores([8, 16]) as counts:
        for count in counts:
            for name, folder in {'pack': a.scratch/'packed', 'files': files}.items():
                with feed_of('timmdata', folder, batch_size, 224, count) as feed:
                    row = steps(f'{count} cores, {name}', feed, train, seconds, warm)
                rows[f'{count} cores, {name}'] = {**row, 'share': row['images_per_s'] / best}
    return {**found, 'resident_images_per_s': best, 'rows': rows}


def memory(a: argparse.Namespace) -> dict[str, Any]:
    "Peak memory of the device beyond a batch and its result, in float32 batches of the same size; two is the aim."
    num, found = 8 if a.dry_run else 256, {}
    size = num * 3 * 224 * 224 * 4
    for name, host, transform in each_work(a, num):
        batch = [part.to(DEVICE) for part in host.batch]
        transform([part.clone() for part in batch])   # what is made once is not counted
        wait_for_device()
        if DEVICE.type == 'cuda': torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = transform(batch)
        wait_for_device()
        peak, kept = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
        found[name] = {'peak_mb': peak / 1e6, 'result_mb': kept / 1e6, 'temporaries': (peak - kept) / size}
        say(f'  {name}: {found[name]}')
        del result
    return {'batch_size': num, 'float32_batch_mb': size / 1e6, 'works': found}


def find_decoders() -> dict[str, Callable]:
    "Decode a list of JPEG files on the device, by library; on a CPU if there is no GPU."
    found = {}
    with suppress(ImportError):
        from torchvision.io import decode_jpeg
        found[f'torchvision {torchvision.__version__}'] = lambda encoded: decode_jpeg(encoded, 'RGB', device=DEVICE.type)
    with suppress(ImportError, OSError, RuntimeError):   # it fits only the torch that it was built for
        import torchcodec
        from torchcodec.decoders import decode_jpeg as of_torchcodec
        found[f'torchcodec {torchcodec.__version__}'] = lambda encoded: of_torchcodec(encoded, device=DEVICE.type)
    return found


def count_wrong(decode: Callable, batches: list[list[torch.Tensor]], num_steps: int, waits: bool = False) -> int:
    """Count the batches whose pixels are not those of the same files decoded alone, when they are handed over or two batches later.

    A side stream decodes and stacks a batch, an event says when it is done, and `record_stream` keeps it until the consumer's stream has
    read it. Both streams are behind the program, as they are beside training. So the memory of the decoded images, which the program has
    dropped, is free for the next batch while they are still to be stacked. That is correct if the decoder works in the stream's order.

    Args:
        decode: Decodes a list of files.
        batches: Files as bytes, with other images of the same sizes in each batch.
        num_steps: Number of batches.
        waits: Wait for the side stream before each batch is decoded; then no batch may be wrong.
    """
    is_cuda = DEVICE.type == 'cuda'
    alone = []
    for encoded in batches:
        alone.append(torch.stack(decode(encoded)))
        wait_for_device()
    side = torch.cuda.Stream() if is_cuda else None
    kept, wrong, done = deque(), [], deque()

    def look_again():
        stacked, expected, was_wrong = kept.popleft()
        wrong.append(was_wrong | (stacked != expected).any())

    for number in range(num_steps):
        with torch.cuda.stream(side):   # None: the current stream
            if is_cuda and waits: side.synchronize()
            images = decode(batches[number % len(batches)])
            if is_cuda: torch.cuda._sleep(30_000_000)   # about 15 ms
            stacked = torch.stack(images)
            del images
        if is_cuda:
            consumer = torch.cuda.current_stream()
            consumer.wait_event(side.record_event())
            stacked.record_stream(consumer)
            torch.cuda._sleep(30_000_000)   # a training step
        expected = alone[number % len(batches)]
        kept.append((stacked, expected, (stacked != expected).any()))
        if len(kept) > 2: look_again()
        if is_cuda: done.append(consumer.record_event())
        if len(done) > 2: done.popleft().synchronize()   # the program is at most two batches ahead
    while kept: look_again()
    return int(torch.stack(wrong).sum())


def nvjpeg(a: argparse.Namespace) -> dict[str, Any]:
    "Batches with wrong pixels when the device decodes them beside training; if the decoder's stream is waited for first, none may be."
    num_steps, num = (5, 2) if a.dry_run else (200, 32)
    files = images_in(a.photos)

    def encode(path: Path) -> torch.Tensor:
        "A baseline JPEG of 500 x 375 pixels, which the hardware engine takes."
        data = io.BytesIO()
        Image.open(path).convert('RGB').resize((500, 375)).save(data, 'JPEG', quality=90, subsampling='4:2:0')
        return torch.frombuffer(bytearray(data.getvalue()), dtype=torch.uint8)

    batches = [[encode(files[(2 * k + number) % len(files)]) for k in range(num)] for number in range(2)]
    found = {}
    for name, decode in find_decoders().items():
        found[name] = {'wrong': count_wrong(decode, batches, num_steps),
                       'wrong_after_waiting': count_wrong(decode, batches, num_steps, waits=True)}
        say(f'  {name}: {found[name]}')
    return {'batches': num_steps, 'libraries': found}


def cores(a: argparse.Namespace) -> dict[str, Any]:
    "Images per second on the device, without a model, by the number of cores that the process may use."
    batch_size, seconds, warm = (4, 0.5, 1) if a.dry_run else (128, a.seconds, 10)
    found = {}
    with limited_cores([] if a.dry_run else [2, 4, 8, 16, 32, 64]) as counts:
        for count in counts:
            row = {}
            for name in ('timmdata', 'timm', 'torchvision'):
                with feed_of(name, a.data, batch_size, 224, count) as feed:
                    row[name] = steps(f'{count} cores, {name}', feed, lambda images, targets: None, seconds, warm)['images_per_s']
            found[count] = row
    return {'images_per_s': found}


def learning(a: argparse.Namespace) -> dict[str, Any]:
    "Top-1 in percent after ten epochs from scratch, with the same model, seeds and schedule."
    train_data, val_data = a.learn or split_subset(a.photos, a.scratch/'learning', *([8, 4] if a.dry_run else []))
    num_epochs, seeds, size = (1, 1, 32) if a.dry_run else (10, 3, a.learn_size)
    found = {'timmdata': [], 'timm': []}
    for seed, (name, module) in itertools.product(range(seeds), [('timmdata', timmdata), ('timm', timm.data)]):
        torch.manual_seed(seed)
        train_set, val_set = module.ImageDataset(train_data), module.ImageDataset(val_data)
        settings = dict(batch_size=64, num_workers=min(8, a.num_workers), device=DEVICE, mean=MEAN, std=STD)
        more = {'seed': seed} if module is timmdata else {'persistent_workers': True}
        shape = size if module is timmdata else (3, size, size)
        loader = module.create_loader(train_set, shape, is_training=True, scale=(0.35, 1), color_jitter=0.2, **more, **settings)
        val_loader = module.create_loader(val_set, shape, crop_pct=1., **(more if module is timmdata else {}), **settings)
        num_classes = len(train_set.reader.class_to_idx)
        model = timm.create_model('resnet18', num_classes=num_classes).to(DEVICE, memory_format=torch.channels_last)
        if size <= 64: model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False).to(DEVICE), torch.nn.Identity()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=num_epochs * len(loader) + 1)
        for _ in range(num_epochs):
            model.train()
            for images, targets in loader:
                step(model, optimizer, images, targets, is_bfloat16=DEVICE.type == 'cuda')   # slow on many CPUs
                schedule.step()
        model.eval()
        right = seen = 0
        with torch.inference_mode():
            for images, targets in val_loader:
                right += int((model(images).argmax(1) == targets).sum())
                seen += len(targets)
        found[name].append(100 * right / seen)
        say(f'  seed {seed}, {name}: {right} of {seen}')
        del loader, val_loader
    return {'top1': found, 'epochs': num_epochs, 'images': len(train_set), 'classes': num_classes}


PARTS = {part.__name__: part for part in (tests, kernels, headroom, pack, memory, nvjpeg, streams, exact, cores, learning)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--images', type=int, default=12_800, help='files in an epoch, except of headroom and pack')
    parser.add_argument('--num-workers', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--seconds', type=float, default=8., help='length of one measurement')
    parser.add_argument('--minutes', type=float, default=30., help='no part starts later')
    parser.add_argument('--learn', type=Path, nargs=2, metavar=('TRAIN', 'VAL'), help='for the part learning; without: ten classes of DIR')
    parser.add_argument('--learn-size', type=int, default=128)
    parser.add_argument('--dry-run', action='store_true')
    a = parser.parse_args()
    if DEVICE.type != 'cuda' and not a.dry_run: sys.exit('torch finds no CUDA device; --dry-run tries every part on the CPU')
    settings = {'images': a.images, 'seconds': a.seconds, 'num_workers': a.num_workers}
    settings |= {'timm': timm.__version__, 'cuda': torch.version.cuda} | ({'dry_run': True} if a.dry_run else {})
    record = json.loads(a.out.read_text(encoding='utf-8')) if a.out.exists() else {'settings': settings, 'parts': {}}
    if record['settings'] != settings: sys.exit(f'{a.out} was measured with {record["settings"]}, not {settings}: pass another --out')
    a.photos, parts, left, begin = a.data, record['parts'], {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        a.scratch = Path(folder)
        a.data = enlarge(a.photos, a.scratch/'photos', 0 if a.dry_run else a.images)
        for name in a.parts:
            if name in parts: continue
            if time.monotonic() - begin > 60 * a.minutes:
                left[name] = 'no time left'
                continue
            say(f'{name}: {PARTS[name].__doc__}')
            start = time.perf_counter()
            try:
                with signs_of_life(name, time.monotonic()): found = rounded(PARTS[name](a))
            except Exception:   # the other parts are worth having
                traceback.print_exc()
                left[name] = 'failed'
                continue
            say(f'{name}: {time.perf_counter() - start:.0f} s\n{json.dumps(found, indent=1)}')
            if not a.dry_run: found = {**found, 'part_seconds': round(time.perf_counter() - start)}
            parts[name] = found
            write_results(a.out.stem, settings, a.out.parent, parts=parts)
    if left: sys.exit(f'missing: {", ".join(f"{name} ({why})" for name, why in left.items())}; the same command runs these parts')


if __name__ == '__main__': main()
