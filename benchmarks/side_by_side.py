"Shared by the benchmarks: the line of versions, CPU time, and loaders that take turns."
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from importlib import metadata

import psutil

from timmdata.measure.machine import processor_name


def versions(*packages: str) -> str:
    "The date, the machine and the versions of packages."
    return ', '.join([str(date.today()), platform.machine(), processor_name(), f'{os.cpu_count()} cores',
                      f'Python {platform.python_version()}', *(f'{name} {metadata.version(name)}' for name in packages)])


def process_tree(pid: int | None = None) -> list[psutil.Process]:
    "A process (default: this one) and its live children."
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(tree: Iterable[psutil.Process]) -> float:
    "CPU time of processes and of their children that have ended."
    return sum(sum(process.cpu_times()[:4]) for process in tree)   # user and system, of both


def epoch(loader: Iterable, count: int) -> tuple[float, float]:
    "(images per second, CPU time per image in ms) of one pass, which must have `count` samples."
    if hasattr(loader, 'set_epoch'): loader.set_epoch(0)   # timmdata's workers would begin the next epoch in another's turn
    cpu, start = cpu_seconds(process_tree()), time.perf_counter()
    seen = sum(len(images) for images, _ in loader)
    seconds = time.perf_counter() - start
    assert seen == count, f'{seen} of {count} samples arrived'
    return seen / seconds, (cpu_seconds(process_tree()) - cpu) / seen * 1000


def take_turns(turns: Mapping[str, Callable[[], tuple]], rounds: int) -> dict[str, list[tuple]]:
    "Results of each turn, one per round. The first round starts the workers and is dropped."
    found = {name: [] for name in turns}
    for _ in range(rounds + 1):
        for name, turn in turns.items(): found[name].append(turn())
    return {name: column[1:] for name, column in found.items()}


def print_head(work: str):
    "Print the head of a table for the rows of `print_row`."
    print(f'\n| {work} | images/s ÷ timm | ÷ decoding alone | CPU-ms an image | timm CPU-ms |\n|---|---|---|---|---|')


def print_row(label: str, ours: Callable[[], tuple], timms: Callable[[], tuple], decodes: Callable[[], tuple],
              rounds: int) -> dict[str, float]:
    """Print a table row with medians of epochs: timmdata's speed relative to timm's and to that of decoding alone, CPU time per image.
    The result also has the lowest and the highest ratio of a round."""
    found = take_turns({'ours': ours, 'timm': timms, 'decoding': decodes}, rounds)
    ratios = [speed / timm for (speed, _), (timm, _), _ in zip(*found.values(), strict=True)]
    (speed, cpu), (timm_speed, timm_cpu), (decode_speed, _) = (
        [statistics.median(values) for values in zip(*column)] for column in found.values())
    row = {'speed': speed / timm_speed, 'low': min(ratios), 'high': max(ratios), 'cpu_ms': cpu, 'timm_cpu_ms': timm_cpu,
           'share': speed / decode_speed}
    print(f'| {label} | {row["speed"]:.2f} | {row["share"]:.2f} | {cpu:.2f} | {timm_cpu:.2f} |', flush=True)
    return {name: round(value, 2) for name, value in row.items()}
