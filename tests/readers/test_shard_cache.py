"Copies of shards on this disk: damaged, dead, private or read-only ones, and what was asked for before they were there."
import errno
import os
import stat
import time

import pytest
from filelock import FileLock

pytest.importorskip('obstore')
from loader_parts import wait_until
from range_server import RangeServer

from timmdata.readers.requests import open_ranges
from timmdata.readers.shard_cache import CachedRanges, ShardCache
from timmdata.readers.store import StoreLimits
from timmdata.readers.tar import Archives

pytestmark = pytest.mark.timeout(60)
BYTES = [bytes((k + j) % 251 for j in range(100_000)) for k in range(4)]


@pytest.fixture
def server(tmp_path):
    (tmp_path/'store').mkdir()
    for k, data in enumerate(BYTES): (tmp_path/f'store/{k}.bin').write_bytes(data)
    with RangeServer(tmp_path/'store') as server: yield server


@pytest.fixture
def ranges(server): return open_ranges(server.url, [f'{k}.bin' for k in range(4)])


@pytest.fixture
def copies(tmp_path): return ShardCache(tmp_path/'copies', 250_000)


def cached(ranges, copies): return CachedRanges(ranges, copies, Archives([str(copies.path(ranges, k)) for k in range(4)]))


def test_a_copy_that_was_cut_is_dropped_and_made_again(ranges, copies):
    assert copies.copy(ranges, 1)
    path = copies.path(ranges, 1)
    os.truncate(path, 40_000)
    reader = cached(ranges, copies)
    reader.prefetch([(1, 90_000, 100)])
    assert bytes(reader.read(1, 90_000, 100)) == BYTES[1][90_000:90_100]
    wait_until(lambda: path.exists() and path.read_bytes() == BYTES[1], 'it was not copied again')


def test_a_copy_that_is_removed_meanwhile_is_read_from_the_store(ranges, copies):
    class Gone(Archives):
        def read(self, *span): raise PermissionError(errno.EACCES, 'not for you')
    assert copies.copy(ranges, 1)
    reader = CachedRanges(ranges, copies, Gone([str(copies.path(ranges, k)) for k in range(4)]))
    assert bytes(reader.read(1, 5, 10)) == BYTES[1][5:15]


def test_what_was_asked_for_before_the_copy_came_is_read_from_the_copy(server, ranges, copies):
    "After a loop that was left early, the next epoch does not wait for the requests of the last one."
    ranges.limits = StoreLimits(num_requests=1)
    reader, spans = cached(ranges, copies), [(1, 9_000 * k, 1000) for k in range(10)]
    server.latency = 0.1
    reader.prefetch(spans)
    assert copies.copy(ranges, 1)
    for _ in range(2):
        for number, offset, size in spans: assert bytes(reader.read(number, offset, size)) == BYTES[1][offset:offset + size]
    time.sleep(0.5)
    assert ranges.counts.requests < 8   # of ten


def test_an_unfinished_copy_is_removed_when_nobody_writes_it(ranges, copies):
    dead, alive = (copies.folder/f'{name}.shard.123.tmp' for name in ('dead', 'alive'))
    for path in (dead, alive): path.write_bytes(bytes(80_000))
    with FileLock(copies.folder/'alive.lock'):
        assert copies.copy(ranges, 0) and not dead.exists() and alive.exists()
        with pytest.raises(OSError): copies.copy(ranges, 1)   # 80,000 + 2 × 100,000 bytes
    assert copies.copy(ranges, 1) and not alive.exists()


def test_a_copy_is_synced_before_it_has_its_name(ranges, copies, monkeypatch):
    synced, sync = [], os.fsync
    def note(file):
        sync(file)
        synced.append((os.fstat(file).st_size, copies.path(ranges, 0).exists()))
    monkeypatch.setattr(os, 'fsync', note)
    assert copies.copy(ranges, 0) and synced[0] == (100_000, False)
    assert len(synced) == 2 and synced[1][1]   # then the folder, which has the name


@pytest.mark.parametrize('folder, copy', [(None, 0o600), (0o755, 0o600), (0o1777, 0o600), (0o770, 0o644), (0o2775, 0o644)])
def test_copies_are_private_unless_a_group_shares_the_folder(ranges, tmp_path, folder, copy):
    path = tmp_path/'copies'
    before = os.umask(0o022)
    try:
        if folder is not None:
            path.mkdir()
            path.chmod(folder)
        copies = ShardCache(path)
        assert copies.copy(ranges, 0)
        assert stat.S_IMODE(path.stat().st_mode) == (folder or 0o700)
        assert stat.S_IMODE(copies.path(ranges, 0).stat().st_mode) == copy
    finally: os.umask(before)


def test_copies_in_a_folder_that_is_read_only_are_read(server, ranges, copies, monkeypatch):
    assert copies.copy(ranges, 0)
    def refuse(*args, **settings): raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(os, 'utime', refuse)
    reader, before = cached(ranges, copies), server.num
    reader.prefetch([(0, 0, 10)])
    assert bytes(reader.read(0, 5, 10)) == BYTES[0][5:15] and server.num == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path/'file').write_bytes(b'')
    for folder in (tmp_path/'file', tmp_path/'file/copies'):
        with pytest.raises(ValueError, match=f"cache_dir='{folder}': the folder cannot be created"): ShardCache(folder)
