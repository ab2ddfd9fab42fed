"Directories and files of other users, locks across processes, and bytes that are not a batch."
import json
import multiprocessing
import os
import struct
import threading
import time
import zlib

import pytest
import torch
from buffer_parts import make_loader

from timmdata import BatchBuffer
from timmdata.buffer import BatchBufferError, BatchStore
from timmdata.buffer.buffer import remove_stale
from timmdata.buffer.files import PrivateDirectory
from timmdata.buffer.store import DamagedBatch, decode_batch, encode_batch
from timmdata.pipeline.builder import HostBatch
from timmdata.samplers.keys import SampleKey

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize('mode', [0o701, 0o710, 0o755, 0o777])
def test_directories_that_others_may_open_are_refused(mode, tmp_path):
    (tmp_path/'buffer').mkdir()
    (tmp_path/'buffer').chmod(mode)
    with pytest.raises(BatchBufferError, match='others may open it: pass a directory of your own with mode 700'):
        BatchBuffer(make_loader(), directory=tmp_path/'buffer')
    assert not list((tmp_path/'buffer').iterdir())


def test_links_are_refused(tmp_path):
    "A link to a directory, and a link to a file in a directory."
    (tmp_path/'mine').mkdir(mode=0o700)
    (tmp_path/'link').symlink_to('mine')
    with pytest.raises(BatchBufferError, match='it is a link'): BatchBuffer(make_loader(), directory=tmp_path/'link')
    files, secret = PrivateDirectory(tmp_path/'mine'), tmp_path/'secret'
    secret.write_text('x')
    (tmp_path/'mine'/'identity').symlink_to(secret)
    with pytest.raises(OSError): files.load('identity')
    files.save('identity', {})   # a link is replaced, not followed
    assert secret.read_text() == 'x' and files.load('identity') == {}


@pytest.mark.skipif(os.getuid() != 0, reason='only root may give files away')
def test_a_directory_of_another_user_is_refused(tmp_path):
    (tmp_path/'buffer').mkdir(mode=0o700)
    (tmp_path/'buffer'/'identity').touch()   # of a buffer
    os.chown(tmp_path/'buffer', 12345, -1)
    with pytest.raises(BatchBufferError, match='it belongs to another user'): BatchStore(tmp_path/'buffer')


def test_files_are_for_this_user_alone(tmp_path):
    old = os.umask(0)
    try: files = PrivateDirectory(tmp_path/'buffer', create=True)
    finally: os.umask(old)
    files.save('record', {})
    assert (tmp_path/'buffer').stat().st_mode & 0o777 == 0o700
    assert (tmp_path/'buffer'/'record').stat().st_mode & 0o777 == 0o600


def hold(path, ready, end):
    lock = PrivateDirectory(path).lock('lock')
    ready.set()
    end.wait()
    os._exit(not lock.is_held)


def test_a_lock_ends_with_its_process(tmp_path):
    "However the process ends; a lock file that is removed while another process waits for it does not count."
    context = multiprocessing.get_context('fork')
    files, ready, end = PrivateDirectory(tmp_path/'buffer', create=True), context.Event(), context.Event()
    process = context.Process(target=hold, args=(files.path, ready, end))
    process.start()
    assert ready.wait(20) and files.is_locked('lock')
    with pytest.raises(BatchBufferError, match=rf'lock was locked for more than 0.02 s by process {process.pid} on '):
        files.lock('lock', patience=0.02)
    process.kill()
    process.join()
    lock = files.lock('lock', patience=10.)
    assert files.is_locked('lock')
    files.remove('lock')
    assert not files.is_locked('lock') and files.lock('lock').is_held and lock.is_held


def test_stale_directories_go_and_living_ones_stay(tmp_path, monkeypatch):
    "A lock decides, not a process ID, which means nothing in a different container."
    monkeypatch.setattr('timmdata.buffer.buffer.default_directory', lambda: tmp_path)   # other tests tidy up theirs
    stale, alive = (PrivateDirectory(tmp_path/f'run-{name}', create=True) for name in ('stale', 'alive'))
    lock = alive.lock('trainer.lock')
    try:
        assert stale.path in remove_stale() and alive.path.exists() and not stale.path.exists()
    finally: lock.release()
    with PrivateDirectory(tmp_path).lock('lock'):   # another program makes a directory, which has no lock yet
        waiting = threading.Thread(target=remove_stale)
        waiting.start()
        time.sleep(0.1)
        assert alive.path.exists()
    waiting.join()
    assert not alive.path.exists()


BATCHES = [
    (torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), torch.arange(4)),
    {'image': torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), 'name': ['a', 'ü\udcff'], 'box': [(0, 1.5), (2, 3.)]},
    [torch.zeros(0, 3), torch.tensor(1.5), torch.tensor([True, False]), None, float('inf'), 10**30, ''],
    (torch.arange(6.).view(2, 3).T, torch.randn(3, dtype=torch.bfloat16), torch.randn(2, dtype=torch.complex64), {1: 'one', None: ()}),
]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b) and (a.stride() == b.stride() or not a.is_contiguous())
    if isinstance(a, dict): return type(b) is dict and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)): return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def memory_of(data: bytes) -> torch.Tensor: return torch.tensor(list(data), dtype=torch.uint8)


@pytest.mark.parametrize('batch', BATCHES, ids=['usual', 'dict', 'odd', 'types'])
def test_bytes_of_batches(batch):
    host = HostBatch(batch, [SampleKey(2**40, 3, 1, 2)], 17)
    again = decode_batch('a', memory_of(b''.join(encode_batch('a', host))))
    assert same(batch, again.batch) and again[1:] == host[1:] and type(again.keys[0]) is SampleKey


@pytest.mark.parametrize('change', [
    *(dict(batch={'tensor': layout}) for layout in (
        ['uint8', [10**9], [1], 0], ['nothing', [1], [1], 0], ['uint8', [4], [-1], 0], ['uint8', [1]], 9)),
    dict(batch={'set': []}), dict(keys=[[1]]), dict(batch={})], ids=str)
def test_a_right_checksum_of_wrong_words_is_a_damaged_batch(change):
    parts = encode_batch('a', HostBatch(BATCHES[0], [SampleKey(1, 0)], 0))
    said = json.dumps({**json.loads(parts[1]), **change}).encode()
    body = said + b''.join(parts[2:])
    check = zlib.crc32(body, zlib.crc32(f'a {len(said)}'.encode()))
    data = struct.pack('<8sIIQ', b'timmdat2', check, len(said), 24 + len(body)) + body
    with pytest.raises(DamagedBatch): decode_batch('a', memory_of(data))
