"Memory of a table of samples, here and in a forked worker that reads all of it: python measure_table.py NUM"
import gc
import json
import os
import pickle
import sys

import psutil

from timmdata.readers.sample_table import SampleTable


def paths(num: int):
    "Names as in ImageNet, one at a time."
    for k in range(num): yield f'train/n{k % 1000:08}/n{k % 1000:08}_{k % 50000}.JPEG'


def memory() -> int:
    "Bytes of this process in memory."
    return psutil.Process().memory_info().rss


def own_memory() -> int:
    "Bytes that this process does not share with any other."
    return psutil.Process().memory_full_info().uss


def copied_by_a_fork(rows) -> int:
    "Bytes that a forked process copies when it reads all rows."
    read, write = os.pipe()
    if not os.fork():
        before, total = own_memory(), 0
        for path, _ in rows: total += len(path)
        os.write(write, str(own_memory() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 99))


if __name__ == '__main__':
    num = int(sys.argv[1])
    before = memory()
    table = SampleTable.from_samples(paths(num), (k % 1000 for k in range(num)))
    gc.collect()
    found = dict(rss=memory() - before, nbytes=table.nbytes, pickled=len(pickle.dumps(table)))
    assert len(table) == num
    print(json.dumps({**found, 'worker': copied_by_a_fork(table)}))
