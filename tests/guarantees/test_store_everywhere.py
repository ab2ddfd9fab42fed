"Photographs in a store, wherever files may be: a pack is made of them, a cache keeps them, the doctor measures them, ranks share them."
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip('obstore')
from range_server import RangeServer

from timmdata import ImageDataset, create_loader, write_pack
from timmdata.measure.diagnosis import diagnose

pytestmark = pytest.mark.timeout(240)
SUPPORT = Path(__file__).resolve().parents[1]/'support'


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch): monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path/'cache'))


@pytest.fixture(scope='module')
def root(samples, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('store')
    write_pack(ImageDataset(samples, split='val'), root/'photos', format='keep', num_workers=0)
    return root


@pytest.fixture
def server(root):
    with RangeServer(root) as server: yield server


def loader_of(dataset, **settings):
    return create_loader(dataset, 32, 8, **dict(is_training=True, seed=5, num_workers=1, worker_type='threads', device='cpu') | settings)


def images_of(dataset, **settings):
    with loader_of(dataset, **settings) as loader: return [images.clone() for images, _ in loader]


@pytest.mark.full
def test_a_pack_of_a_store_is_that_of_the_disk_and_its_requests_overlap(root, server, tmp_path):
    server.latency = 0.02
    there, here = ImageDataset(f'{server.url}/photos', split='val'), ImageDataset(root/'photos', split='val')
    start = time.monotonic()
    write_pack(there, tmp_path/'there', format='keep', num_workers=0)
    assert time.monotonic() - start < 80 * 2 * 0.02   # one after the other, they would wait longer
    assert server.most >= 3   # neighbors are asked for together
    write_pack(here, tmp_path/'here', format='keep', num_workers=0)
    assert (tmp_path/'there/val-000000.tar').read_bytes() == (tmp_path/'here/val-000000.tar').read_bytes()


def test_a_cache_of_a_store_asks_once_and_notices_a_change(root, server, samples, tmp_path):
    def cached(): return ImageDataset(f'{server.url}/photos', split='val')
    settings = dict(cache=dict(where='disk', directory=tmp_path/'decoded'))
    expected = images_of(ImageDataset(root/'photos', split='val'), scaled_decode=False)
    first, num = images_of(cached(), **settings), len(server.spans)
    again = images_of(cached(), **settings)
    assert all(map(torch.equal, first, expected)) and all(map(torch.equal, again, expected))
    assert len(server.spans) - num < 20   # the index is looked at, no photograph is read
    other = tmp_path/'other'
    write_pack(ImageDataset(samples, split='val'), other/'photos', format='keep', seed=1, num_workers=0)   # other shards
    with RangeServer(other) as moved:
        moved_data = ImageDataset(f'{moved.url}/photos', split='val')
        assert all(map(torch.equal, images_of(moved_data, **settings), expected))
    assert len(list((tmp_path/'decoded').glob('*.lock'))) == 2


@pytest.mark.full
def test_the_doctor_measures_a_store(server):
    "A request waits for 20 ms, which takes no CPU time."
    server.latency = 0.02
    dataset = ImageDataset(f'{server.url}/photos', split='val')
    found = diagnose(dataset, 32, 8, 32, rounds=1, with_changes=False, device='cpu', num_workers=1, worker_type='threads')
    reading = next(stage for stage in found.stages if stage.name == 'read')
    assert 20 <= reading.wall_ms < 200 and reading.cpu_ms < 20
    assert found.shares['read'] == max(found.shares.values())


def ranks(num: int, *words) -> None:
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', str(num), str(SUPPORT/'store_ranks.py')]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.full
def test_ranks_ask_for_their_share_and_go_on_with_another_number_of_ranks(root, server, tmp_path):
    expected = [hashlib.md5(image.contiguous().numpy().tobytes()).hexdigest()
                for images in images_of(ImageDataset(root/'photos', split='val')) for image in images]
    ranks(2, f'{server.url}/photos', tmp_path, 'begun', 4, 2)
    ranks(4, f'{server.url}/photos', tmp_path, 'resumed', 4)
    begun, resumed = ([json.loads((tmp_path/f'{name}.{rank}.json').read_text()) for rank in range(num)]
                      for name, num in (('begun', 2), ('resumed', 4)))
    assert [len(one['seen']) for one in (*begun, *resumed)] == [8, 8, 16, 16, 16, 16]
    assert sorted(digest for one in (*begun, *resumed) for digest in one['seen']) == sorted(expected)   # each once, same pixels
    total = (root/'photos/val-000000.tar').stat().st_size
    assert sum(one['asked'] for one in resumed) < total and max(one['asked'] for one in resumed) < total / 3
