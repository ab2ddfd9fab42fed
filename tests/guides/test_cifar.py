"The guide `cifar10` with the data that its stored outputs are not made of."
import pickle
from unittest.mock import patch

import numpy as np
import pytest
from notebooks import read_notebook
from synthetic import ROOT

GUIDE = ROOT/'nbs/guides/cifar10.ipynb'
NAMES = 'airplane automobile bird cat deer dog frog horse ship truck'.split()


def code_cells() -> list[str]:
    return [''.join(cell['source']) for cell in read_notebook(GUIDE)['cells'] if cell['cell_type'] == 'code']


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
    names = {'get_ipython': lambda: None}
    with patch('torchvision.datasets.cifar.check_integrity', return_value=True):   # of files that are made up
        for cell in cells[:last + 1]: exec(compile(cell, 'cell', 'exec'), names)
    assert names['is_archive'] and names['is_cifar10'] and names['class_names'] == NAMES
    assert len(names['train_data']) == 150 and len(names['test_data']) == 30
