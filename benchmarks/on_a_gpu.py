"""What a GPU gains from this library: tests, checks and measurements that need one, in a single command.

    python benchmarks/on_a_gpu.py DIR --out benchmarks/results/gpu-NAME.json [--parts NAME …] [--dry-run]

DIR has one folder per class. Links to about `--images` of its files, each as often as it takes, are what the loaders read. The operating
system keeps them in memory, so disks are not measured. Each part is written to the file when it ends, and the same command runs only the
parts that are missing. No part starts after `--minutes`; 30 of them leave time for the longest part to end within 40. A line once a
minute says that it goes on. With `--dry-run`, every part runs for a moment, on a CPU if there is no GPU; its numbers mean nothing.

    tests     the tests that need CUDA
    streams   10,000 batches copied on a side stream while the consumer fills the allocator: each batch bit for bit
    exact     the same losses to the bit with any workers
    kernels   time of the arithmetic on the device, bytes per image
    headroom  images per second of a training step, relative to batches that stay on the device, and waits; the bar is that of MLPerf
              Storage, 0.90
    cores     images per second that 2, 4, 8 … cores bring to the device
    learning  ten epochs of ten classes from scratch, three seeds, this library and timm
"""
import argparse
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import timm
import timm.data
import torch
import torchvision
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
    "Say once a minute that a part goes on, if it says nothing itself."
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
    "Make a folder of links to about `num_images` images of `data`, each of them as often as it takes; 0: to all of them."
    files = images_in(data)
    if num_images: files = files[::max(1, len(files) // num_images)]
    for number in range(max(1, -(-num_images // len(files)))):
        for path in files:
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


@contextmanager
def feed_of(name: str, data: Path, batch_size: int, size: int, num_workers: int):
    "Batches on the device, without end: of crops and flips, normalized."
    common = dict(batch_size=batch_size, num_workers=num_workers)
    if name == 'timmdata':
        loader = timmdata.create_loader(
            timmdata.ImageDataset(data), size, is_training=True, color_jitter=None, device=DEVICE, img_dtype=torch.bfloat16,
            channels_last=True, **common)
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
    try: yield feed
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


def steps(name: str, feed: Iterator, train: Callable, seconds: float, warm: int) -> dict[str, float]:
    "Train for a while; images per second, and how long the loop waited for its batches."
    for _ in range(warm): train(*next(feed))
    wait_for_device()
    waits, count, start = [], 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        images, targets = next(feed)
        waits.append(time.perf_counter() - before)
        train(images, targets)
        count += len(images)
        if len(waits) % 4 == 0: wait_for_device()   # the loop is not far ahead of the device: a late batch shows
    wait_for_device()
    rate = count / (time.perf_counter() - start)
    waits = sorted(waits)
    found = {'images_per_s': rate, 'wait_ms': statistics.median(waits) * 1e3, 'wait_p99_ms': waits[int(len(waits) * .99)] * 1e3,
             'wait_max_ms': waits[-1] * 1e3, 'steps': len(waits)}
    say(f'  {name}: {rate:,.0f} images/s, waits of {found["wait_ms"]:.1f} ms, at most {found["wait_max_ms"]:.0f}')
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


# the parts


def tests(a: argparse.Namespace) -> dict[str, Any]:
    "The tests marked `gpu`."
    files = sorted(path for path in (ROOT/'tests').rglob('test_*.py') if 'mark.gpu' in path.read_text(encoding='utf-8'))
    command = [sys.executable, '-m', 'pytest', '-q', '-n', '2' if a.dry_run else '4', '-p', 'no:cacheprovider',
               '-m', 'gpu', *files]
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, 'TIMMDATA_FULL': '1'}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    assert found.returncode == 0, found.stdout[-6000:]
    return {'summary': found.stdout.splitlines()[-1].strip('= ')}


def streams(a: argparse.Namespace) -> dict[str, Any]:
    "Each batch from the side stream has the bits that it has if the device does one thing at a time, and the CPU's pixels."
    num_steps, batch_size = (20, 16) if a.dry_run else (10_000, 16)
    settings = dict(input_size=64, batch_size=batch_size, is_training=True, color_jitter=None, re_prob=0.3, seed=3,
                    num_workers=a.num_workers, device=DEVICE)   # arithmetic whose pixels are whole numbers on every device

    def checksum(images: torch.Tensor) -> torch.Tensor:
        bits = images.contiguous().view(torch.int32).flatten().to(torch.int64)
        return (bits * weights[:len(bits)]).sum()

    def pixels(images: torch.Tensor) -> torch.Tensor:
        "The checksum of the pixels as whole numbers, which the last bit of a float does not change."
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
        expected.append(checksum(loader.batch_transform.on_batch(batch, host.keys)[0]).item())
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
    "The losses of a short training, with the same seed and other workers."
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
    "Milliseconds of the device for a batch, the copy and each kind of arithmetic; bytes of an image on the way."
    num, rounds = (8, 2) if a.dry_run else (256, 30)
    works = {
        'crop, flip': dict(color_jitter=None),
        '… and color jitter': dict(color_jitter=0.4),
        '… and erasing': dict(color_jitter=0.4, re_prob=0.25, re_mode='pixel'),
        '… and mixing': dict(color_jitter=0.4, re_prob=0.25, re_mode='pixel',
                             mixup=timmdata.Mixup(mixup_alpha=0.2, cutmix_alpha=1., num_classes=1000)),
        "exact jitter": dict(color_jitter=0.4, color_jitter_mode='exact'),
        'jitter, blur, grayscale, solarize': dict(color_jitter=0.4, gaussian_blur_prob=0.5, grayscale_prob=0.2, solarize_prob=0.2)}
    found = {}
    for name, settings in works.items():
        loader = timmdata.create_loader(timmdata.ImageDataset(a.data), 224, num, is_training=True, seed=1, num_workers=2, device=DEVICE,
                                        img_dtype=torch.bfloat16, channels_last=True, **settings)
        host = next(iter(loader.loader.host_batches()))
        times = {'copy_ms': [], 'device_ms': [], 'host_ms': []}
        for _ in range(rounds + 3):
            wait_for_device()
            marks = [time.perf_counter()]
            batch = [part.to(DEVICE) for part in host.batch]
            wait_for_device()
            marks.append(time.perf_counter())
            loader.batch_transform.on_batch(batch, host.keys)
            marks.append(time.perf_counter())
            wait_for_device()
            marks.append(time.perf_counter())
            start, copied, queued, done = marks
            for key, value in {'copy_ms': copied - start, 'device_ms': done - copied, 'host_ms': queued - copied}.items():
                times[key].append(value * 1e3)
        found[name] = {key: statistics.median(values[3:]) for key, values in times.items()}
        images = host.batch[0]
        found[name] |= {'bytes_per_image': images.nbytes // len(images), 'is_pinned': images.is_pinned() if DEVICE.type == 'cuda' else None}
        say(f'  {name}: {found[name]}')
        del loader, host, images
    return {'batch_size': num, 'works': found, 'bytes_of_float32': 3 * 224 * 224 * 4}


def headroom(a: argparse.Namespace) -> dict[str, Any]:
    "A training step fed by each loader, relative to a batch that stays on the device."
    batch_size, seconds, warm = (4, 0.5, 1) if a.dry_run else (256, a.seconds, 12)
    models = {'ResNet-50, channels-last': ('resnet50', False), 'ViT-S/16, compiled': ('vit_small_patch16_224', DEVICE.type == 'cuda')}
    if a.dry_run: models = {'a small ResNet': ('test_resnet', False)}
    found = {}
    for title, (name, is_compiled) in models.items():
        say(f'{title}')
        train = trainer(timm.create_model(name, num_classes=1000), is_compiled)
        rows, dali = {}, ['DALI'] if find_spec('nvidia') and find_spec('nvidia.dali') else []
        for feed_name in ('resident', 'copied', 'timmdata', 'timm', 'torchvision', *dali, 'timmdata again', 'resident again'):
            with feed_of(feed_name.removesuffix(' again'), a.data, batch_size, 224, a.num_workers) as feed:
                rows[feed_name] = steps(feed_name, feed, train, seconds, warm)
        best = (rows['resident']['images_per_s'] + rows['resident again']['images_per_s']) / 2
        for feed_name, row in rows.items():
            row['share'] = row['images_per_s'] / best
            say(f'  {feed_name}: {row["share"]:.2f}{"" if row["share"] >= BAR else f", below {BAR:.2f}"}')
        found[title] = rows
        del train
    return {'batch_size': batch_size, 'num_workers': a.num_workers, 'bar': BAR, 'models': found}


def cores(a: argparse.Namespace) -> dict[str, Any]:
    "Images per second on the device, without a model, by the number of cores that the process may use."
    whole = sorted(os.sched_getaffinity(0))
    counts = [n for n in (2, 4, 8, 16, 32, 64) if n <= len(whole)] if not a.dry_run else [len(whole)]
    batch_size, seconds, warm = (4, 0.5, 1) if a.dry_run else (128, a.seconds / 2, 10)
    found = {}
    try:
        for count in counts:
            os.sched_setaffinity(0, set(whole[:count]))
            row = {}
            for name in ('timmdata', 'timm', 'torchvision'):
                with feed_of(name, a.data, batch_size, 224, count) as feed:
                    row[name] = steps(f'{count} cores, {name}', feed, lambda images, targets: None, seconds, warm)['images_per_s']
            found[count] = row
    finally: os.sched_setaffinity(0, set(whole))
    return {'images_per_s': found}


def learning(a: argparse.Namespace) -> dict[str, Any]:
    "Top-1 in percent after ten epochs from scratch, with the same model, seeds and schedule."
    train_data, val_data = a.learn or split_subset(a.photos, a.scratch/'learning', *([40, 10] if a.dry_run else []))
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
                step(model, optimizer, images, targets)
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


PARTS = {part.__name__: part for part in (tests, streams, exact, kernels, headroom, cores, learning)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--images', type=int, default=120_000, help='files in an epoch, about')
    parser.add_argument('--num-workers', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--seconds', type=float, default=30., help='length of one measurement')
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
