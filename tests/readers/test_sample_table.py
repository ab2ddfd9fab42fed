"1.28 million samples: their memory, their pickle, and what a forked worker copies of them."
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from synthetic import ROOT

from timmdata.readers.sample_table import LabelLists, SampleTable

pytestmark = pytest.mark.timeout(120)

PROGRAM = ROOT/'tests/support/measure_table.py'


def measure(*args) -> dict:
    done = subprocess.run([sys.executable, PROGRAM, *args], env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='private memory is measured on Linux')
@pytest.mark.full
def test_imagenet_fits_and_workers_do_not_copy_it():
    found = measure('1281167')
    assert found['nbytes'] < 120e6 and found['pickled'] < 120e6, found
    assert found['rss'] < 250e6, found
    assert found['worker'] < 20e6, found


NAMES = ['a.jpg', '', 'ü/é 日本.png', os.fsdecode(b'x\xff/\xfe.jpg'), 'a' * 4000, 'a.jpg']


def test_names_targets_and_order_survive():
    table = SampleTable.from_samples(NAMES, [0, -1, 2**31 - 1, 5, 5, 0])
    copy = pickle.loads(pickle.dumps(table))
    for t in table, copy:
        assert list(t) == list(zip(NAMES, [0, -1, 2**31 - 1, 5, 5, 0], strict=True)) and len(t) == 6 and t[-1] == t[5]
        assert t[np.int64(2)] == t[2]
        assert all(type(target) is int for _, target in t)
        for k in (6, -7):
            with pytest.raises(IndexError, match='out of range'): t[k]


def test_random_tables_and_selections():
    rng = np.random.default_rng(0)
    for num in (0, 1, 2, 50):
        names = [''.join(map(chr, rng.integers(97, 1000, rng.integers(0, 9)))) for _ in range(num)]
        targets = rng.integers(0, 4, num).tolist()
        table, keep = SampleTable.from_samples(names, targets), rng.random(num) < 0.5
        rows = list(zip(names, targets, strict=True))
        assert list(table) == rows
        for part in slice(3), slice(-3, None), slice(40, 2, -7), slice(9, 9): assert list(table[part]) == rows[part]
        expected = [(n, t * 10) for n, t, k in zip(names, targets, keep, strict=True) if k]
        assert list(table.select(keep, np.array([0, 10, 20, 30])[table.targets[keep]])) == expected
        assert [n for n, _ in table.select(keep)] == [n for n, _ in expected]


def test_tables_are_joined():
    rng = np.random.default_rng(1)
    parts = [([f'{k}/' + 'é' * int(rng.integers(5)) for k in range(int(rng.integers(4)))]) for _ in range(9)]
    tables = [SampleTable.from_samples(paths, [number] * len(paths)) for number, paths in enumerate(parts)]
    assert list(SampleTable.concatenate(tables)) == [row for table in tables for row in table]


def test_rows_in_any_order_take_all_their_columns_along():
    "Against lists of Python's own."
    rng = np.random.default_rng(0)
    names = [f'{"x" * int(rng.integers(0, 9))}{k}' for k in range(40)]
    boxes = [[k] * (k % 3) for k in range(40)]
    for targets in (list(range(40)), np.arange(40) / 4, LabelLists.from_lists([[k % 5] for k in range(40)], 5)):
        columns = {'weight': np.arange(40.), 'box': np.fromiter(boxes, object, 40)}
        table, rows = SampleTable.from_samples(names, targets, columns), rng.permutation(40)[:17]
        some = table.select(rows)
        assert [some.path(k) for k in range(17)] == [names[row] for row in rows]
        assert all(np.array_equal(some.target(k), table.target(row)) for k, row in enumerate(rows))
        assert some.columns['weight'].tolist() == rows.tolist() and list(some.columns['box']) == [boxes[row] for row in rows]
    assert len(table.select(np.zeros(40, bool))) == 0
