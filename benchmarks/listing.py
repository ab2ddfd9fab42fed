"""How long it takes to list ImageNet's files, and how much memory the list takes, compared with torchvision and timm.

    python benchmarks/listing.py [--files 1281167] [--folders 1000] [--rounds 3] [--keep DIR]

Creates empty files with ImageNet's names, in a temporary folder or in DIR, which is kept. Each listing runs in its own process, after a run
that warms the file system cache. Listings take turns, and the script prints medians. It measures wall time and CPU time; other programs on
the machine affect CPU time less. Memory is how much the process has grown when the list is complete, and its peak until then.
The numbers go to results/listing.json.
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from results import write_results


def make_tree(root: Path, num_files: int, num_folders: int):
    "Create folders of empty files with ImageNet's names; existing files stay."
    for k in range(num_folders):
        name = f'n{1440764 + 137 * k:08}'
        (root/name).mkdir(parents=True, exist_ok=True)
        for n in range(k, num_files, num_folders): (root/name/f'{name}_{7919 * n % 50_000_017}.JPEG').touch()


def list_with_timmdata(root: str, index_file: str | None = None) -> Any:
    "timmdata's folder reader."
    from timmdata.readers.folder import ReaderImageFolder
    return ReaderImageFolder(root, index_file=index_file)


def list_with_timm(root: str) -> Any:
    "timm's folder reader."
    from timm.data.readers.reader_image_folder import ReaderImageFolder
    return ReaderImageFolder(root)


def list_with_torchvision(root: str) -> Any:
    "torchvision's ImageFolder."
    from torchvision.datasets import ImageFolder
    return ImageFolder(root)


LISTINGS = {'timmdata': list_with_timmdata, 'torchvision': list_with_torchvision, 'timm': list_with_timm}


def measure(name: str, root: str, index_file: str | None):
    "List the files in this process, and print time and memory."
    import timm.data  # noqa: F401  imports are not part of the listing
    import torchvision.datasets  # noqa: F401

    import timmdata.readers.folder  # noqa: F401
    settings = {'index_file': index_file} if index_file else {}
    process = psutil.Process()
    before, clock, cpu = process.memory_info().rss, time.perf_counter(), time.process_time()
    found = LISTINGS[name](root, **settings)
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024   # Linux counts in KiB
    print(json.dumps(dict(files=len(found), seconds=seconds, cpu_seconds=cpu_seconds, megabytes=(process.memory_info().rss - before) / 1e6,
                          peak_megabytes=(peak - before) / 1e6)))


def run(name: str, root: str, index_file: str | None = None) -> dict:
    "List the files in a separate process."
    arguments = [sys.executable, __file__, '--measure', name, '--keep', root, *(['--index-file', index_file] if index_file else [])]
    return json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def medians(runs: list[dict]) -> dict:
    "Medians of several runs."
    return {key: round(statistics.median(one[key] for one in runs), 2) for key in runs[0]}


def compare(root: str, num_rounds: int) -> dict[str, dict]:
    "Run all listings in turns, and timmdata's also from an index file."
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        index_file = str(Path(folder, 'index.npz'))
        run('timmdata', root, index_file)
        for _ in range(num_rounds):
            for name in LISTINGS: found.setdefault(name, []).append(run(name, root))
            found.setdefault('timmdata, from its index file', []).append(run('timmdata', root, index_file))
    return {name: medians(runs) for name, runs in found.items()}


def main():
    "Measure, print and record."
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--files', type=int, default=1_281_167)
    parser.add_argument('--folders', type=int, default=1000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--keep', help='folder for the files, which are created if it does not exist')
    parser.add_argument('--measure', choices=LISTINGS, help=argparse.SUPPRESS)
    parser.add_argument('--index-file', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure: measure(args.measure, args.keep, args.index_file)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            root = args.keep or temporary
            if not args.keep or not Path(root).is_dir(): make_tree(Path(root), args.files, args.folders)
            listings = compare(root, args.rounds)
        versions = {name: version(name) for name in ('timm', 'torchvision', 'numpy')}
        write_results('listing', dict(files=args.files, folders=args.folders, rounds=args.rounds), versions=versions, listings=listings)
        for name, numbers in listings.items():
            print(f'{name:30} {numbers["seconds"]:6.2f} s ({numbers["cpu_seconds"]:.2f} of CPU), '
                  f'{numbers["megabytes"]:4.0f} MB, {numbers["peak_megabytes"]:4.0f} at most')


if __name__ == '__main__': main()
