"""timmdata compared with other streaming loaders: the same photos on one server, each loader with its own format.

    python benchmarks/beside_store_peers.py DIR [--parts epochs,kills,requests] [--latencies disk,0,30] [--rounds 5]

DIR contains class folders. Their photos are resized to a shorter side of 256 pixels, and each becomes a class, so that targets identify
samples. All shards are on the range server of the tests, in its own process on the same cores. It also answers S3 requests and checks no
signatures. The parts:

- epochs: a new process with an empty cache creates each loader and runs two epochs. Images per second (the first epoch includes creating
  the loader), medians of rounds in which the loaders take turns; CPU time of the loader's processes and of the server.
- kills: a program is killed (SIGKILL) in the middle of its first epoch, and a new program resumes from the last state; then another one
  with an empty cache, as on another machine. The time from the imports to the first batch, and whether this batch has the same samples and
  pixels as in an undisturbed run.
- requests: CPU time of a process per 20 KB range, with 64 requests in flight: timmdata's `Ranges`, and obstore alone.

The numbers go to results/store_peers.json, which keeps the parts and latencies of earlier runs. Use an otherwise idle machine;
peers/requirements.txt lists what to install.
"""
import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from beside_packed import smaller
from beside_peers import Loader
from beside_store import far
from results import RESULTS, rounded, write_results
from side_by_side import cpu_seconds

from timmdata.readers.requests import open_ranges

SHARD_BYTES, KILLS = 4 << 20, 3
PEERS = {
    'timmdata, threads': ('timmdata_pack', dict(format='keep', worker_type='threads'), False),
    'timmdata, threads, cache_dir': ('timmdata_pack', dict(format='keep', worker_type='threads'), True),
    'MosaicML Streaming': ('streaming_', {}, True),
    'LitData': ('litdata_', {}, True),
    'WebDataset': ('webdataset_', {}, False),
    'WebDataset, cache_dir': ('webdataset_', {}, True)}   # name → module, options, whether it has a cache


@contextmanager
def served(root: Path, latency: str):
    "Serve a folder; gives the options of a peer that reads from the server, and the server's process. Both are empty for disk."
    if latency == 'disk': yield {}, None
    else:
        with far(root.parent, float(latency)) as url:
            os.environ |= dict(AWS_ENDPOINT_URL=url, S3_ENDPOINT_URL=url, AWS_ALLOW_HTTP='true', AWS_REGION='us-east-1',
                               AWS_DEFAULT_REGION='us-east-1', AWS_ACCESS_KEY_ID='a-key', AWS_SECRET_ACCESS_KEY='a-secret')
            yield dict(bucket=f's3://{root.name}', web=f'{url}/{root.name}'), psutil.Process().children()[-1]


class Bench:
    "The photos in all formats, and loaders for them."

    def __init__(self, a, scratch: Path):
        self.a, self.root, self.cache, self.state = a, scratch/'store', scratch/'cache', scratch/'state'
        self.log, data = Path(tempfile.gettempdir())/'beside_store_peers.log', scratch/'photographs'
        for path in sorted(smaller(a.data, a.repeats, a.batch_size * a.num_workers, scratch/'small').glob('*/*'), key=lambda p: p.stem):
            (data/path.stem).mkdir(parents=True)
            path.rename(data/path.stem/path.name)
        self.settings = dict(data_dir=str(data), work='train', workers=a.num_workers, batch_size=a.batch_size, scratch=str(self.root))
        self.root.mkdir()
        self.num, self.versions = sum(1 for _ in data.iterdir()), {}
        for name in PEERS:   # write all formats
            loader = self.child(name, {})
            self.versions[loader.about['name']] = loader.about['version']
            loader.close()

    def child(self, name: str, place: dict) -> Loader:
        "A loader process that has imported everything and created nothing yet."
        module, options, has_cache = PEERS[name]
        options = {**options, **place, 'shard_bytes': SHARD_BYTES}
        if has_cache and place:
            options['cache'] = str(self.cache/'shards')
            Path(options['cache']).mkdir(exist_ok=True)
        return Loader(module, sys.executable, self.log, {**self.settings, 'options': options})

    def empty(self, keep_state: bool = False):
        "Delete all copies, as on another machine, and the state."
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir()
        os.environ['TIMMDATA_CACHE'] = str(self.cache/'index')   # copies of a pack's index
        if not keep_state: self.state.unlink(missing_ok=True)


def epochs(bench: Bench, latency: str) -> dict[str, dict[str, float]]:
    "Medians of two epochs of each loader; the loaders take turns."
    names = [name for name in PEERS if latency != 'disk' or 'cache_dir' not in name]
    found = {name: [] for name in names}
    with served(bench.root, latency) as (place, server):
        for _ in range(bench.a.rounds):
            for name in names: found[name].append(two_epochs(bench, name, place, server))
    medians = {name: {key: statistics.median(one[key] for one in rows) for key in rows[0]} for name, rows in found.items()}
    ours = medians[names[0]]
    for row in medians.values(): row |= {f'{key}_ratio': row[key] / ours[key] for key in ('first', 'second')}
    return medians


def two_epochs(bench: Bench, name: str, place: dict, server: psutil.Process | None) -> dict[str, float]:
    "Images per second in the first and second epoch; CPU time per image of the loader and of the server, in ms."
    bench.empty()
    loader = bench.child(name, place)
    found = {}
    try:
        for epoch in 'first', 'second':
            before = cpu_seconds([server]) if server else 0.
            one = loader.round()
            found |= {epoch: one['rate'], f'{epoch}_cpu_ms': one['cpu_ms'], f'{epoch}_batch_s': one['first']}
            if server: found[f'{epoch}_server_ms'] = (cpu_seconds([server]) - before) / one['images'] * 1000
    finally: loader.close()
    return found


def kills(bench: Bench, latency: str) -> dict[str, dict[str, float]]:
    "Median seconds to the first batch after a kill, with the same and an empty cache, and how often the batch was the same."
    rows, half = {name: [] for name in PEERS}, bench.num // bench.a.batch_size // 2
    with served(bench.root, latency) as (place, _):
        for name in PEERS:
            bench.empty()
            whole = begun(bench, name, place, half + 1)   # not killed before this batch
            for _ in range(KILLS):
                bench.empty()
                begun(bench, name, place, half)
                rows[name].append(resumed(bench, name, place, whole[-1], 'here'))
                bench.empty(keep_state=True)
                rows[name][-1] |= resumed(bench, name, place, whole[-1], 'elsewhere')
    return {name: {key: (sum if key.startswith('same') else statistics.median)(row[key] for row in found) for key in found[0]}
            for name, found in rows.items()}


def begun(bench: Bench, name: str, place: dict, count: int) -> list:
    "Digests of the first batches of a program, which is then killed with all its processes."
    loader = bench.child(name, place)
    try: return loader.ask('begin', count, str(bench.state))['digests']
    finally: loader.close()


def resumed(bench: Bench, name: str, place: dict, wanted: list, where: str) -> dict[str, float]:
    "Seconds to the first batch of a new program, and whether it is the expected batch."
    loader = bench.child(name, place)
    try: found = loader.ask('resume', str(bench.state))
    finally: loader.close()
    samples, pixels = (mine == theirs for mine, theirs in zip(found['digest'], wanted))
    return {f'seconds_{where}': found['first'], 'import_s': loader.about['import_s'], f'same_samples_{where}': int(samples),
            f'same_pixels_{where}': int(pixels)}


def requests(bench: Bench, num: int = 2048, size: int = 20_000, depth: int = 64) -> dict[str, dict[str, float]]:
    "CPU time and wall time per request in this process, in ms; medians of rounds."
    (bench.root/'blob').write_bytes(random.Random(0).randbytes(num * 2 * size))
    spans = [(0, 2 * size * k, size) for k in random.Random(1).sample(range(num), num)]   # no two are adjacent
    ways = {'obstore, ranges alone': partial(obstore_ranges, depth), 'obstore, with ETags': partial(obstore_objects, depth),
            'Ranges, 1 thread': partial(our_ranges, depth, 1), 'Ranges, 2 threads': partial(our_ranges, depth, 2)}
    found = {way: [] for way in ways}
    with served(bench.root, '0') as (place, _):
        for _ in range(bench.a.rounds + 1):
            for way, run in ways.items():
                cpu, wall = time.process_time(), time.perf_counter()
                run(place['bucket'], spans)
                found[way].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {way: dict(zip(('cpu_ms', 'wall_ms'), (statistics.median(column) / num * 1000 for column in zip(*rows[1:]))))
            for way, rows in found.items()}


def gathered(depth: int, ask: Callable[[tuple], Awaitable], spans: list[tuple]):
    "Request all spans, `depth` at a time."
    async def one(span: tuple, gate: asyncio.Semaphore):
        async with gate: assert len(await ask(span)) == span[2]

    async def run():
        gate = asyncio.Semaphore(depth)
        await asyncio.gather(*(one(span, gate) for span in spans))

    asyncio.run(run())


def from_url(url: str) -> Any: return import_module('obstore.store').from_url(url, client_options={'allow_http': True})


def obstore_ranges(depth: int, url: str, spans: list[tuple]):
    "The fastest way with obstore."
    store = from_url(url)
    gathered(depth, lambda span: import_module('obstore').get_range_async(store, 'blob', start=span[1], length=span[2]), spans)


def obstore_objects(depth: int, url: str, spans: list[tuple]):
    "obstore with ETags, which tell whether the object has changed; `Ranges` also requests them."
    store = from_url(url)

    async def ask(span: tuple) -> Any:
        found = await import_module('obstore').get_async(store, 'blob', options={'range': (span[1], span[1] + span[2])})
        assert found.meta['e_tag']
        return await found.bytes_async()

    gathered(depth, ask, spans)


def our_ranges(depth: int, num_threads: int, url: str, spans: list[tuple]):
    "`Ranges`, used as by threads that load samples: when a batch begins, the next batch is prefetched."
    ranges = open_ranges(url, ['blob'])
    batches = [spans[k:k + depth] for k in range(0, len(spans), depth)]
    with ThreadPoolExecutor(num_threads) as pool:
        ranges.prefetch(batches[0])
        for batch, following in zip(batches, [*batches[1:], []]):
            ranges.prefetch(following)
            for data in pool.map(lambda span: ranges.read(*span), batch): assert len(data) == spans[0][2]
    ranges.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', type=Path)
    parser.add_argument('--parts', default='epochs,kills,requests')
    parser.add_argument('--latencies', default='disk,0,30', help='milliseconds before each answer, or disk (not for kills)')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--repeats', type=int, default=6, help='number of times the photos are repeated')
    parser.add_argument('--num-workers', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--out', type=Path, default=RESULTS)
    a = parser.parse_args()
    path = a.out/'store_peers.json'
    found = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    found = {part: found.get(part, {}) for part in ('epochs', 'kills', 'requests')}
    with tempfile.TemporaryDirectory(prefix='store-peers-') as scratch:
        bench = Bench(a, Path(scratch))
        for part in a.parts.split(','):
            if part == 'requests': found[part] = rounded(requests(bench))
            for latency in a.latencies.split(',') if part == 'epochs' else []: found[part][latency] = rounded(epochs(bench, latency))
            for latency in a.latencies.split(',') if part == 'kills' else []:
                if latency != 'disk': found[part][latency] = rounded(kills(bench, latency))
            print(part, json.dumps(found[part], indent=1), flush=True)
        settings = dict(num_workers=a.num_workers, batch_size=a.batch_size, images=bench.num, rounds=a.rounds, kills=KILLS,
                        shard_bytes=SHARD_BYTES, versions=bench.versions)
    write_results('store_peers', settings, a.out, **found)


if __name__ == '__main__': main()
