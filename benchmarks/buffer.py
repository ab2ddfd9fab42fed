"""The buffer compared with the plain loader: idle time with bursts and pauses, slow preprocessing, cost of handing over a batch.

    python benchmarks/buffer.py [--rounds 3] [--cycles 5] [--burst 24] [--capacities 4,8,12,16] [--num-workers 2] [--data DIR]

Uses the sample photos, or the class folders of DIR, with expensive preprocessing: Pillow, bicubic, one color operation at a time, blur.
The trainer's work runs on another device: it waits for a batch, then sleeps for the duration of a step. The script first measures how long
it takes to make a batch. The steps depend on this time:

bursts    `--burst` steps of 0.6 of the time of a batch, then a pause, such as an evaluation. Preprocessing is 10% faster than both.
steady    Steps of half the time of a batch, without pauses: preprocessing is too slow.
hand-over The time that the loop itself takes to get a batch that is already waiting, with uint8 batches of 64 images.

The trainer is idle between requesting a batch and getting it; the first cycle is not counted. The loaders take turns. The script prints the
medians as tables for the README and writes them to results/buffer.json for the guide `buffer`. Use an otherwise idle machine.
"""
import argparse
import statistics
import time

import torch
from results import write_results

from timmdata.core.demo_data import get_samples
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import describe_machine, format_machine
from timmdata.measure.stages import spread

BATCH, STEP, SPARE = 8, 0.6, 1.1   # images; duration of a step, without and with its share of the pauses ÷ time to make a batch
EXPENSIVE = dict(backend='pillow', interpolation='bicubic', color_jitter_mode='exact', gaussian_blur_prob=0.5)


def host_loader(dataset, num_workers: int, **settings):
    "The part of a loader that runs the workers; its batches are uint8, and the device would do the rest."
    settings = EXPENSIVE | settings
    return create_loader(dataset, 224, BATCH, is_training=True, seed=0, num_workers=num_workers, device='cpu', **settings).loader


def forever(loader):
    while True: yield from loader


def train(loader, step_s: float, burst: int, pause_s: float, cycles: int) -> tuple[list[tuple[float, float]], list]:
    "Train with bursts and pauses; return when each batch was requested and received, and how many batches a buffer held then."
    batches, events, levels, begin = iter(forever(loader)), [], [], time.perf_counter()
    for cycle in range(cycles):
        for _ in range(burst):
            asked = time.perf_counter()
            next(batches)
            got = time.perf_counter()
            events.append((asked - begin, got - begin))
            if hasattr(loader, 'store'): levels.append((got - begin, loader.status()['waiting']))
            time.sleep(max(0, step_s - (time.perf_counter() - got)))
        if cycle < cycles - 1: time.sleep(pause_s)
    batches.close()
    loader.close()
    return events, levels


def idle_share(events: list, burst: int, step_s: float) -> float:
    "The share of the bursts that the trainer waits, without the first burst."
    waits = sum(got - asked for asked, got in events[burst:])
    return waits / (waits + (len(events) - burst) * step_s)


def batch_seconds(dataset, num_workers: int) -> float:
    "Seconds to make a batch if the trainer never waits: median of five sequences of 20 batches, with the workers of a run."
    loader, found = host_loader(dataset, num_workers), []
    batches = iter(forever(loader))
    for _ in range(20): next(batches)
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20): next(batches)
        found.append((time.perf_counter() - start) / 20)
    batches.close()
    loader.close()
    return statistics.median(found)


def bursts(dataset, num_workers: int, capacities: list, rounds: int, cycles: int, burst: int, made_s: float) -> dict:
    "Idle share without a buffer (0) and with each capacity; events of a run without a buffer and with the largest."
    step_s = STEP * made_s
    pause_s = burst * (SPARE * made_s - step_s)
    idle, runs = {capacity: [] for capacity in (0, *capacities)}, {}
    for _ in range(rounds):
        for capacity in idle:
            buffer = dict(buffer=dict(batches=capacity, low_watermark=capacity)) if capacity else {}
            events, levels = train(host_loader(dataset, num_workers, **buffer), step_s, burst, pause_s, cycles)
            idle[capacity].append(idle_share(events, burst, step_s))
            if capacity in (0, max(capacities)): runs[bool(capacity)] = events, levels
    return dict(idle={capacity: statistics.median(shares) for capacity, shares in idle.items()},
                step_s=step_s, pause_s=pause_s, runs=runs)


def steady(dataset, num_workers: int, rounds: int, num: int, made_s: float) -> dict[str, tuple[float, float]]:
    "Steps of half the time of a batch: idle share, and steps per second relative to no buffer in the same round."
    kinds = {'without a buffer': {}, 'a buffer of 24': dict(buffer=dict(batches=24))}
    idle, speed = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, settings in kinds.items():
            events, _ = train(host_loader(dataset, num_workers, **settings), made_s / 2, num, 0, 1)
            first = num // 3   # before that, batches may have been made before training began
            idle[kind].append(idle_share(events, first, made_s / 2))
            speed[kind].append((num - 1 - first) / (events[-1][1] - events[first][1]))
    base = speed['without a buffer']
    return {kind: (statistics.median(idle[kind]), statistics.median(v / b for v, b in zip(speed[kind], base))) for kind in kinds}


class Ready:
    "A transform that returns a ready image."
    image = torch.randint(0, 256, (3, 224, 224), dtype=torch.uint8)
    def __call__(self, _): return self.image


def hand_over(rounds: int, num: int = 24, size: int = 64) -> tuple[dict, float]:
    "Milliseconds that the loop takes to get a waiting batch, and the size of a batch in MB."
    samples = [(torch.zeros(1), k) for k in range(size * num)]
    base = dict(transform=Ready(), is_training=True, seed=0, num_workers=1, device='cpu', prefetch_factor=num)
    kinds = {'threads': dict(worker_type='threads'), 'processes': dict(worker_type='processes'),
             'a buffer': dict(buffer=dict(batches=2 * num, low_watermark=num + 2))}   # 21 are used, and 27 wait: no worker is busy
    loaders = {kind: create_loader(samples, 224, size, **{**base, **settings}).loader for kind, settings in kinds.items()}
    found = {kind: [] for kind in kinds}
    for _ in range(rounds + 1):
        for kind, loader in loaders.items():
            batches = iter(loader)
            next(batches)
            time.sleep(1.5)   # until all batches are made and the workers are idle
            times = []
            for _ in range(num - 4):
                start = time.perf_counter()
                batch = next(batches)
                times.append(time.perf_counter() - start)
                del batch
            for _ in batches: pass   # the rest of the epoch
            found[kind].append(1000 * statistics.median(times))
    for loader in loaders.values(): loader.close()
    return {kind: statistics.median(times[1:]) for kind, times in found.items()}, size * 3 * 224 * 224 / 1e6


def ms(pairs: list) -> list: return [(round(1000 * a), round(1000 * b)) for a, b in pairs]


def write(made_s: float, burst: dict, kinds: dict, handed: dict, a: argparse.Namespace):
    "Write what the guide reads: times in ms, and three bursts of each recorded run."
    runs = {}
    for is_buffered, (events, levels) in burst['runs'].items():
        runs['with_buffer' if is_buffered else 'without_buffer'] = ms(events[:3 * a.burst])
        last = events[:3 * a.burst][-1][1] + burst['pause_s']
        if levels: runs['fill'] = [(round(1000 * t), n) for t, n in levels if t <= last][::3]
    settings = dict(num_workers=a.num_workers, batch_size=BATCH, rounds=a.rounds, burst=a.burst)
    write_results('buffer', settings, made_ms=round(1000 * made_s, 1), step_ms=round(1000 * burst['step_s'], 1),
                  pause_ms=round(1000 * burst['pause_s']), idle={str(n): round(share, 3) for n, share in burst['idle'].items()},
                  steady={kind: dict(idle=round(idle, 2), speed=round(speed, 2)) for kind, (idle, speed) in kinds.items()},
                  hand_over_ms={kind: round(value, 2) for kind, value in handed.items()}, **runs)


def tables(machine: dict, made_s: float, burst: dict, kinds: dict, handed: dict, megabytes: float, a: argparse.Namespace) -> str:
    lines = [f'{format_machine(machine)}; {a.num_workers} workers, '
             f'batches of {BATCH} that take {1000 * made_s:.0f} ms, {a.rounds} rounds', '',
             '| buffer | a trainer with bursts of '
             f'{a.burst} steps of {1000 * burst["step_s"]:.0f} ms and pauses of {burst["pause_s"]:.2f} s is idle |', '|---|---|']
    names = {capacity: f'{capacity} batches' if capacity else 'none' for capacity in burst['idle']}
    lines += [f'| {names[capacity]} | {share:.1%} of the bursts |' for capacity, share in burst['idle'].items()]
    lines += ['', f'| steps of {500 * made_s:.0f} ms, no pauses | idle | steps a second ÷ without a buffer |', '|---|---|---|']
    lines += [f'| {kind} | {share:.1%} | {speed:.2f} |' for kind, (share, speed) in kinds.items()]
    lines += ['', f'| hand-over of a batch of {megabytes:.1f} MB that waits | ms | ÷ threads |', '|---|---|---|']
    lines += [f'| {kind} | {value:.2f} | {value / handed["threads"]:.1f} |' for kind, value in handed.items()]
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--data', default='', help='class folders; default: the sample photos')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--cycles', type=int, default=5, help='bursts per run; the first is not counted')
    parser.add_argument('--burst', type=int, default=24, help='steps between two pauses')
    parser.add_argument('--capacities', default='4,8,12,16', help='capacities of the buffers, in batches')
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--steady', type=int, default=90, help='steps per run without pauses')
    parser.add_argument('--images', type=int, default=1280, help='samples per epoch')
    a = parser.parse_args()
    dataset = spread(ImageDataset(a.data or get_samples(), split=None if a.data else 'train'), a.images)
    capacities = [int(number) for number in a.capacities.split(',')]
    made_s = batch_seconds(dataset, a.num_workers)
    burst = bursts(dataset, a.num_workers, capacities, a.rounds, a.cycles, a.burst, made_s)
    kinds = steady(dataset, a.num_workers, a.rounds, a.steady, made_s)
    handed, megabytes = hand_over(a.rounds)
    write(made_s, burst, kinds, handed, a)
    print(tables(describe_machine(), made_s, burst, kinds, handed, megabytes, a))


if __name__ == '__main__': main()
