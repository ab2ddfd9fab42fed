"""The cost of the order of a large epoch per rank, and whether many ranks miss or repeat a sample: a simulation on one machine.

    python benchmarks/many_ranks.py [--samples 14000000] [--ranks 1,8,64,1024]

For each number of ranks, one rank computes its order in its own process: seconds to the first key, microseconds per key, and the memory in
MB by which the process grows. Worker processes do not hold the order; they receive the keys of a batch. Then the script counts how often
each sample comes in an epoch of all ranks, also if the epoch stops in the middle and resumes with another number of ranks. With photo sizes
distributed like ImageNet's, it computes the bytes that the busiest rank reads, relative to the mean. Results go to results/many_ranks.json.
"""
import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from results import rounded, write_results

from timmdata.samplers import EpochSampler

EPOCH = 3


def sampler_of(size: int, ranks: int, rank: int) -> EpochSampler:
    return EpochSampler(range(size), shuffle=True, seed=1, num_replicas=ranks, rank=rank)


def peak_mb(begin: bool = False) -> float:
    "Peak memory of this process since the last call with `begin` (Linux)."
    if begin: Path('/proc/self/clear_refs').write_text('5')
    return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]) / 1000


def measure(size: int, ranks: int):
    "Compute the order of one rank, and print time and memory."
    for _ in sampler_of(1000, ranks, 0).keys(EPOCH): pass
    before, began = peak_mb(begin=True), time.perf_counter()
    keys = sampler_of(size, ranks, ranks // 2).keys(EPOCH)
    next(keys)
    first = time.perf_counter() - began
    began, num = time.perf_counter(), 0
    for num, _ in zip(range(1, 200_001), keys): pass   # noqa: B007
    key_us = (time.perf_counter() - began) / max(1, num) * 1e6
    print(json.dumps(dict(first_key_s=first, key_us=key_us, mb=max(0., peak_mb() - before))))


def positions(size: int, ranks: int, rank: int, start: int = 0) -> np.ndarray:
    "Positions of a rank's samples in the order of an epoch, without those that pad it."
    share = -(-(size - start) // ranks)
    found = [np.arange(row.start, row.stop) for row in sampler_of(size, ranks, rank).rows(start, start + share * ranks)]
    found = np.concatenate(found)
    return found[found < size]


def counted(size: int, all_ranks: list[int]) -> dict[str, int]:
    "How many positions are missed and repeated in an epoch that resumes with the next number of ranks after each stop."
    times, start = np.zeros(size, np.int32), 0
    stops = [size * k // len(all_ranks) for k in range(1, len(all_ranks))]
    for ranks, stop in zip(all_ranks, [*stops, size]):
        num = size - start if stop == size else (stop - start) // ranks
        for rank in range(ranks): np.add.at(times, positions(size, ranks, rank, start)[:num], 1)
        start += num * ranks
    return dict(missed=int((times == 0).sum()), repeated=int((times > 1).sum()))


def checked_keys(size: int, ranks: int) -> bool:
    "Whether keys and positions agree for all ranks of a small epoch."
    order = sampler_of(size, 1, 0).order(EPOCH)[0].numpy()
    for rank in range(ranks):
        keys = [key.index for key in sampler_of(size, ranks, rank).keys(EPOCH) if key.valid]
        if keys != order[positions(size, ranks, rank)].tolist(): return False
    return True


def largest_share(size: int, ranks: int) -> float:
    "Bytes of the rank that reads most ÷ the mean, for file sizes distributed like ImageNet's (log-normal)."
    sizes = np.random.default_rng(0).lognormal(np.log(95_000), 0.55, size)
    by_position = sizes[sampler_of(size, 1, 0).order(EPOCH)[0].numpy()]
    shares = [by_position[positions(size, ranks, rank)].sum() for rank in range(ranks)]
    return float(max(shares) / np.mean(shares))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--samples', type=int, default=14_000_000)
    parser.add_argument('--ranks', default='1,8,64,1024')
    parser.add_argument('--measure', type=int, help='measure one rank (the script uses this to start itself)')
    a = parser.parse_args()
    if a.measure: return measure(a.samples, a.measure)
    found = {}
    for ranks in map(int, a.ranks.split(',')):
        command = [sys.executable, __file__, '--samples', str(a.samples), '--measure', str(ranks)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
        numbers = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
        numbers |= counted(a.samples, [ranks]) | dict(keys_agree=checked_keys(20_011, ranks), largest_share=largest_share(a.samples, ranks))
        found[str(ranks)] = numbers
        print(ranks, rounded(numbers))
    all_ranks = list(map(int, a.ranks.split(',')))
    elastic = {f'{one} → {other}': counted(a.samples, [one, other]) for one, other in (*pairwise(all_ranks), *pairwise(all_ranks[::-1]))}
    print(elastic)
    write_results('many_ranks', dict(samples=a.samples), ranks=rounded(found), elastic=elastic)


if __name__ == '__main__': main()
