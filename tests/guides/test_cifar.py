"The guide `cifar10` with the data that its stored outputs are not made of, and the benchmark whose numbers it shows."
import json
import os
import pickle
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from notebooks import read_notebook
from PIL import Image
from save import execute
from shared_data import shared_data
from synthetic import ROOT

GUIDE = ROOT/'nbs/guides/cifar10.ipynb'
NAMES = 'airplane automobile bird cat deer dog frog horse ship truck'.split()


def code_cells() -> list[str]:
    return [''.join(cell['source']) for cell in read_notebook(GUIDE)['cells'] if cell['cell_type'] == 'code']


@pytest.mark.skipif(not os.environ.get('TIMMDATA_SLOW'), reason='a minute: set TIMMDATA_SLOW=1')
@pytest.mark.timeout(290)
def test_class_folders_of_cifar10(cache):
    "The whole guide; its own cells check the results."
    folder = str(shared_data('cifar10-mini').resolve())
    nb = execute(GUIDE, timeout=280, env={'TIMMDATA_CIFAR10': folder, 'TIMMDATA_CACHE': str(cache)})
    assert any(', '.join(NAMES) in str(cell.get('outputs')) for cell in nb.cells)


@pytest.fixture
def archive(tmp_path):
    "CIFAR-10 as torchvision unpacks it, three images a class and file."
    folder = tmp_path/'cifar-10-batches-py'
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in [*(f'data_batch_{k}' for k in range(1, 6)), 'test_batch']:
        labels = [k % 10 for k in range(30)]
        data = rng.integers(0, 256, (30, 3072), np.uint8)
        (folder/name).write_bytes(pickle.dumps({'data': data, 'labels': labels}))
    (folder/'batches.meta').write_bytes(pickle.dumps({'label_names': NAMES}))
    return tmp_path


def test_the_real_thing(archive, cache, monkeypatch):
    "The cells that choose the data, with torchvision's layout."
    monkeypatch.setenv('TIMMDATA_CIFAR10', str(archive))
    monkeypatch.setenv('TIMMDATA_CACHE', str(cache))
    monkeypatch.delenv('TIMMDATA_DOWNLOAD', raising=False)
    cells = code_cells()
    last = next(k for k, cell in enumerate(cells) if 'is_cifar10 =' in cell)
    names = {}
    with patch('torchvision.datasets.cifar.check_integrity', return_value=True):   # of files that are made up
        for cell in cells[:last + 1]: exec(compile(cell, 'cell', 'exec'), names)
    assert names['is_archive'] and names['is_cifar10'] and names['class_names'] == NAMES
    assert len(names['train_data']) == 150 and len(names['test_data']) == 30


@pytest.mark.timeout(120)
@pytest.mark.full
def test_benchmark_writes_what_the_page_reads(tmp_path):
    rng = np.random.default_rng(0)
    for name in ('a', 'b'):
        (tmp_path/name).mkdir()
        for k in range(4): Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(tmp_path/name/f'{k}.png')
    options = ['--rounds', '1', '--num-workers', '1', '--batch-size', '4', '--seconds', '0', '--out', tmp_path/'results']
    subprocess.run([sys.executable, ROOT/'benchmarks/cifar.py', tmp_path, *options], capture_output=True, text=True, cwd=ROOT, check=True)
    written, recorded = (json.loads(path.read_text(encoding='utf-8'))
                         for path in (tmp_path/'results/cifar.json', ROOT/'benchmarks/results/cifar.json'))
    assert written['machine']['torch'] and list(written['results']) == list(recorded['results'])
    first, *others = written['results'].values()
    assert first['speed'] == 1 and all(found['speed'] > 0 for found in others)
    assert 'benchmarks/results/cifar.json' in '\n'.join(code_cells())
