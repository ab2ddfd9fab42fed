"Photographs in a store: the batches of the local copy, whatever happens on the way; a dead store ends a run, and skips nothing."
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from urllib.request import pathname2url

import numpy as np
import pytest
import torch
from grids import full, quick

pytest.importorskip('obstore')
from loader_parts import wait_until
from range_server import RangeServer

from timmdata import ImageDataset, create_loader, write_pack
from timmdata.core.faults import SourceError, is_system_error
from timmdata.readers.requests import Ranges, copied_object, open_object, open_ranges
from timmdata.readers.shard_cache import ShardCache
from timmdata.readers.store import (
    StoreError,
    StoreLimits,
    check_url,
    find_objects,
    list_objects,
    open_store,
    wait_for,
)

pytestmark = pytest.mark.timeout(120)
HASTY = StoreLimits(deadline=1.5, ask_again=0.3)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch): monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path/'cache'))


@pytest.fixture(scope='module')
def data(samples, tmp_path_factory):
    "A pack, a tar and plain bytes."
    root = tmp_path_factory.mktemp('data')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('timmdata.datasets.packing._SHARD_BYTES', 700_000)
        write_pack(ImageDataset(samples, split='val'), root/'pack', format='keep', num_workers=0)
    shutil.make_archive(str(root/'val'), 'tar', samples, 'val')
    (root/'plain').mkdir()
    for k in range(4): (root/f'plain/{k}.bin').write_bytes(bytes((k + j) % 251 for j in range(100_000)))
    return root


@pytest.fixture
def server(data):
    with RangeServer(data) as server: yield server


def ranges_of(server, limits=HASTY):
    ranges = open_ranges(f'{server.url}/plain', [f'{k}.bin' for k in range(4)])
    ranges.limits = limits
    return ranges


def loader_of(root, epochs=1, **settings):
    settings = dict(num_workers=2, worker_type='threads', device='cpu', seed=3, is_training=True) | settings
    dataset = root if isinstance(root, ImageDataset) else ImageDataset(root, split='val')
    return create_loader(dataset, 32, 8, **settings)


def batches(root, **settings):
    with closing(loader_of(root, **settings)) as loader: return [(images.clone(), targets.clone()) for images, targets in loader]


def same(one, other):
    assert len(one) == len(other)
    return all(torch.equal(a, b) for first, second in zip(one, other) for a, b in zip(first, second))


# ---- the same batches as of a disk

@quick(1, 'settings', [
    dict(num_workers=0), dict(num_workers=2), pytest.param(dict(num_workers=1, worker_type='processes'), marks=pytest.mark.full),
    pytest.param(dict(num_workers=1, worker_type='processes', multiprocessing_context='spawn'), marks=pytest.mark.full)], ids=str)
@quick(2, 'name', ['pack', 'val.tar'])
def test_batches_are_those_of_the_local_copy(data, server, name, settings):
    server.latency = 0.005
    assert same(batches(f'{server.url}/{name}', **settings), batches(data/name))


def test_a_run_goes_on_from_a_disk_to_a_store(data, server):
    "The state of a loader over local files is loaded by one over the store: the rest of the epoch is the same."
    whole = batches(data/'pack')
    with closing(loader_of(data/'pack')) as loader:
        iterator = iter(loader)
        for _ in range(3): next(iterator)
        state = loader.state_dict()
        del iterator
    with closing(loader_of(f'{server.url}/pack')) as loader:
        loader.load_state_dict(state)
        assert same([(a.clone(), b.clone()) for a, b in loader], whole[3:])


def test_an_index_of_a_tar_is_made_once(server):
    first = ImageDataset(f'{server.url}/val.tar', split='val')
    bytes_before = sum(stop - start for _, start, stop in server.spans)
    server.spans.clear()
    again = ImageDataset(f'{server.url}/val.tar', split='val')
    assert again.filenames() == first.filenames()
    assert sum(stop - start for _, start, stop in server.spans) < bytes_before   # the first members, to see what it is


def test_a_file_url_is_a_path(data):
    url = 'file://' + pathname2url(str(data/'pack'))
    assert ImageDataset(url, split='val').reader[0][0] == ImageDataset(data/'pack', split='val').reader[0][0]


def test_exclude_and_class_map_work_as_with_files(data, server):
    settings = dict(split='val', class_map={'cat': 0, 'coffee': 1}, exclude=['val/cat/0000.jpg'])
    with pytest.warns(UserWarning, match='left out'): there = ImageDataset(f'{server.url}/pack', **settings)
    with pytest.warns(UserWarning, match='left out'): here = ImageDataset(data/'pack', **settings)
    assert there.filenames() == here.filenames()
    assert all(there.reader[k][0] == here.reader[k][0] for k in range(len(here)))


# ---- requests

def test_requests_are_on_their_way_together(data, server):
    "The samples of the batches ahead are requested before the first sample is decoded."
    server.latency = 0.1
    batches(f'{server.url}/pack', num_workers=1)
    assert server.most >= 12   # two batches of eight


def test_no_more_requests_and_bytes_than_allowed(server):
    server.latency = 0.05
    ranges = ranges_of(server, StoreLimits(num_requests=3))
    spans = [(k % 4, 9_000 * (k // 4), 1000) for k in range(40)]
    server.most = 0
    ranges.prefetch(spans)
    for span in spans: ranges.read(*span)
    assert 2 <= server.most <= 4   # three, and the one that is waited for


def test_little_memory_never_stands_still(server):
    ranges = ranges_of(server, StoreLimits(max_bytes=2500))
    spans = [(k % 4, 9_000 * (k // 4), 1000) for k in range(40)]
    ranges.prefetch(spans)
    time.sleep(0.2)
    assert ranges.counts.requests <= 3
    for number, offset, size in reversed(spans):
        assert bytes(ranges.read(number, offset, size)) == bytes((number + j) % 251 for j in range(offset, offset + size))
    assert ranges.counts.requests == 40


def test_neighbors_are_joined_and_others_are_not(server):
    ranges = ranges_of(server)
    near, far = [(0, 2_000 * k, 1_500) for k in range(10)], [(1, 20_000 * k, 1_500) for k in range(5)]
    ranges.prefetch(near + far)
    for span in near + far: assert len(ranges.read(*span)) == 1_500
    counts = ranges.counts
    assert counts.requests == 1 + 5 and counts.bytes_asked == 15 * 1_500 and counts.bytes_read == counts.bytes_asked + 9 * 500


def test_a_span_asked_for_twice_is_read_twice_and_fetched_once(server):
    ranges = ranges_of(server)
    ranges.prefetch([(0, 0, 10), (0, 0, 10)])
    assert bytes(ranges.read(0, 0, 10)) == bytes(ranges.read(0, 0, 10)) and ranges.counts.requests == 1
    ranges.read(0, 0, 10)
    assert ranges.counts.requests == 2   # it was kept for two


def test_many_threads_read_at_once(server):
    ranges, wrong = ranges_of(server), []
    def read(number):
        for k in range(50):
            if bytes(ranges.read(number, 100 * k, 100)) != bytes((number + j) % 251 for j in range(100 * k, 100 * k + 100)): wrong.append(k)
    threads = [threading.Thread(target=read, args=(k % 4,)) for k in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong


def test_an_object_is_a_file(data, server):
    expected = (data/'val.tar').read_bytes()
    with io.BufferedReader(open_object(f'{server.url}/val.tar')) as file:
        assert file.read() == expected
        for at, size in ((1_999_990, 20), (5, 3)): assert file.seek(at) == at and file.read(size) == expected[at:at + size]
    with copied_object(f'{server.url}/val.tar') as path:
        with open(path, 'rb') as file: assert file.read() == expected
    assert not os.path.exists(path)


# ---- what goes wrong

@quick(1, 'fault', [
    lambda path, number: 500 if number % 7 == 6 else None,
    lambda path, number: 503 if number % 5 == 4 else None,
    lambda path, number: 'cut' if number % 6 == 5 else None], ids=['500', '503', 'cut'])
def test_faults_on_the_way_change_no_batch(data, server, fault):
    dataset = ImageDataset(f'{server.url}/pack', split='val')
    server.fault = fault
    assert same(batches(dataset), batches(data/'pack')) and dataset.reader.store.counts.retries > 3


@full
def test_a_busy_store_is_asked_more_slowly(server):
    "After sixteen refusals at once, requests come one after the other, and slowly more."
    ranges = ranges_of(server, StoreLimits(num_requests=16))
    server.latency, server.fault = 0.02, lambda path, number: 503
    spans = [(k % 4, 9_000 * (k // 4), 1000) for k in range(40)]
    ranges.prefetch(spans)
    time.sleep(0.25)
    assert ranges.counts.retries >= 16 and ranges.counts.requests == 16
    server.fault, server.most = lambda path, number: None, 0
    while ranges.counts.requests < 40: time.sleep(0.01)
    assert 2 <= server.most <= 12
    assert all(len(ranges.read(*span)) == 1000 for span in spans)


@full
def test_a_store_that_dies_and_comes_back(data, server):
    dataset = ImageDataset(f'{server.url}/pack', split='val')
    with closing(loader_of(dataset)) as loader:
        iterator = iter(loader)
        made = [tuple(part.clone() for part in next(iterator))]
        server.stop()
        back = threading.Timer(1.5, server.start)
        back.start()
        made += [(images.clone(), targets.clone()) for images, targets in iterator]
        back.join()
    assert same(made, batches(data/'pack'))


@pytest.mark.full
@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_a_dead_store_ends_the_run_and_skips_nothing(server, workers):
    dataset = ImageDataset(f'{server.url}/pack', split='val', on_error='skip')
    dataset.reader.store.limits = HASTY
    with closing(loader_of(dataset, num_workers=1, worker_type=workers)) as loader:
        server.stop()
        start = time.monotonic()
        message = r'could not be read within 1.5 s; last error: connection refused'
        with pytest.raises(StoreError, match=message) as failed: next(iter(loader))
    assert is_system_error(failed.value) and not dataset.bad_samples and time.monotonic() - start < 60


@pytest.mark.parametrize('status, message', [
    (403, 'denies access'), (401, 'denies access'), (500, 'last error: HTTP status 500')])
def test_what_a_store_answers_is_said(server, status, message):
    ranges = ranges_of(server)
    server.fault = lambda path, number: status
    with pytest.raises(StoreError, match=message) as failed: ranges.read(1, 0, 10)
    assert f'{server.url}/plain/1.bin' in str(failed.value)


@quick(1, 'change', ['other', 'longer', 'shorter', 'gone'])
@quick(2, 'span', [(2, 0, 100_000), (2, 50_000, 10)], ids=['whole', 'part'])
def test_a_changed_object_of_one_sample_is_its_own_fault_and_one_of_many_is_the_source_s(data, tmp_path, change, span):
    shutil.copytree(data/'plain', tmp_path/'plain')
    path = tmp_path/'plain/2.bin'
    with RangeServer(tmp_path) as server:
        ranges = ranges_of(server)
        assert len(ranges.read(*span)) == span[2]
        if change == 'gone': path.unlink()
        else: path.write_bytes({'other': b'x' * 100_000, 'longer': path.read_bytes() + b'x', 'shorter': b'x' * 10}[change])
        ranges.prefetch([span])
        with pytest.raises(OSError, match=r'plain/2\.bin') as failed: ranges.read(*span)
        assert is_system_error(failed.value) == isinstance(failed.value, SourceError) == (span[2] == 10)
        assert len(ranges.read(1, 0, 10)) == 10   # the others are as they were


@full
@pytest.mark.parametrize('change', ['other', 'gone'])
def test_no_sample_is_skipped_for_a_shard_that_is_gone_or_has_changed(data, tmp_path, change):
    shutil.copytree(data/'pack', tmp_path/'pack')
    with RangeServer(tmp_path) as server:
        dataset = ImageDataset(f'{server.url}/pack', split='val', on_error='skip')
        shard = sorted((tmp_path/'pack').glob('*.tar'))[1]
        if change == 'gone': shard.unlink()
        else: shard.write_bytes(bytes(shard.stat().st_size))
        message = {'gone': f'there is no object .*{shard.name}', 'other': f'{shard.name} has changed since it was indexed'}[change]
        with closing(loader_of(dataset)) as loader, pytest.raises(SourceError, match=message): list(loader)
        assert not dataset.bad_samples


def test_a_server_that_ignores_ranges_is_named_at_once(server):
    ranges, start = ranges_of(server, StoreLimits()), time.monotonic()
    server.fault = lambda path, number: 'whole'
    with pytest.raises(StoreError, match='the web server ignores Range, like python -m http.server'): ranges.read(1, 0, 10)
    assert time.monotonic() - start < 20 and len(ranges.read(1, 0, 100_000)) == 100_000


def test_an_outage_that_is_over_is_not_raised(server):
    "A span that was prefetched and failed is requested again."
    ranges = ranges_of(server)
    spans = [(k % 4, 9_000 * (k // 4), 1000) for k in range(40)]
    server.fault = lambda path, number: 403
    ranges.prefetch(spans)
    wait_until(lambda: ranges.counts.requests == 40 and not server.now, 'not all were asked for')
    time.sleep(0.2)
    server.fault = lambda path, number: None
    assert all(len(ranges.read(*span)) == 1000 for span in spans)


def test_what_is_not_needed_any_more_is_not_asked_for(server):
    ranges = ranges_of(server, StoreLimits(num_requests=1))
    server.latency, spans = 0.1, [(k % 4, 9_000 * (k // 4), 1000) for k in range(40)]
    ranges.prefetch(spans)
    wait_until(lambda: ranges.counts.requests, 'nothing was asked for')
    for span in spans: ranges.forget(span)
    time.sleep(0.5)
    assert ranges.counts.requests <= 3 and len(ranges.read(*spans[-1])) == 1000


def test_a_pack_without_a_shard_is_refused_at_once(data, tmp_path):
    shutil.copytree(data/'pack', tmp_path/'pack')
    shard = sorted((tmp_path/'pack').glob('*.tar'))[0]
    with RangeServer(tmp_path) as server:
        shard.write_bytes(b'short')
        with pytest.raises(ValueError, match=rf'{shard.name} has 5 bytes'): ImageDataset(f'{server.url}/pack', split='val')
        shard.unlink()
        with pytest.raises(FileNotFoundError, match=shard.name): ImageDataset(f'{server.url}/pack', split='val')


def test_a_web_server_cannot_be_listed(server):
    server.fault = lambda path, number: None
    with pytest.raises(ValueError, match='cannot be listed, as is usual for web servers'): ImageDataset(f'{server.url}/plain', split='val')


# ---- what lives how long

def test_an_interrupt_ends_a_wait(server):
    ranges = ranges_of(server, StoreLimits(ask_again=30))
    server.fault = lambda path, number: 20.
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt): ranges.read(0, 0, 10)
        assert time.monotonic() - start < 5
    finally: signal.signal(signal.SIGALRM, before)
    server.fault = lambda path, number: None
    assert len(ranges.read(1, 0, 10)) == 10


@full
def test_a_closed_or_dropped_reader_asks_for_nothing_more(server):
    server.latency = 0.1
    for end in (Ranges.close, lambda ranges: None):
        ranges = ranges_of(server, StoreLimits(num_requests=4))
        ranges.prefetch([(k % 4, 9_000 * (k // 4), 1000) for k in range(40)])
        time.sleep(0.05)
        end(ranges)
        del ranges
        time.sleep(0.3)
        before = server.num
        time.sleep(0.4)
        assert server.num == before


@full
def test_a_loader_that_is_left_early_leaves_nothing(server):
    server.latency = 0.05
    loader = loader_of(f'{server.url}/pack')
    next(iter(loader))
    loader.close()
    del loader
    time.sleep(1)
    before = server.num
    time.sleep(0.5)
    assert server.num == before and server.now == 0


@pytest.mark.full
def test_a_program_that_ends_with_requests_on_their_way_ends_at_once(server, tmp_path):
    code = f"""
from timmdata.readers.requests import open_ranges
ranges = open_ranges({f'{server.url}/plain'!r}, ['0.bin'])
ranges.prefetch([(0, 9000 * k, 100) for k in range(8)])
ranges.read(0, 0, 100)
print('read')
"""
    server.latency = 0.5
    start = time.monotonic()
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == 'read\n' and not done.stderr and time.monotonic() - start < 30


def test_a_pickle_holds_a_url_and_no_bytes(server):
    dataset = ImageDataset(f'{server.url}/pack', split='val')
    first = bytes(dataset.reader[0][0])
    data = pickle.dumps(dataset)
    assert first[:100] not in data and bytes(pickle.loads(data).reader[0][0]) == first


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork here')
def test_a_forked_copy_says_so_and_does_not_hang(server):
    ranges = ranges_of(server)
    ranges.read(0, 0, 10)
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        try: ranges.read(0, 0, 10)
        except StoreError as error: os.write(writer, str(error).encode())
        finally: os._exit(0)
    os.waitpid(pid, 0)
    assert b"multiprocessing_context='spawn'" in os.read(reader, 1000)


def test_forked_workers_are_refused_by_name(server):
    with pytest.raises(ValueError, match="use 'forkserver' or 'spawn'"):
        next(iter(loader_of(f'{server.url}/pack', worker_type='processes', multiprocessing_context='fork')))


def test_auto_takes_threads(server):
    with closing(loader_of(f'{server.url}/pack', worker_type='auto')) as loader:
        next(iter(loader))
        assert 'threads' in repr(loader)


# ---- URLs

@pytest.mark.parametrize('url', ['https://me:hidden@host/data', 'https://hidden@host/data', 's3://bucket/train?sig=hidden', 'https://host/data#hidden'])
def test_a_secret_in_a_url_is_refused_and_not_repeated(url):
    for call in (check_url, open_store, ImageDataset):
        with pytest.raises(ValueError, match='contains a password, a query') as failed: call(url)
        assert 'hidden' not in str(failed.value)


# ---- S3, as moto speaks it

@pytest.fixture(scope='module')
def bucket(data, samples, shards):
    server = pytest.importorskip('moto.server').ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
    boto3 = pytest.importorskip('boto3')
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(AWS_ENDPOINT_URL=f'http://{host}:{port}', AWS_ALLOW_HTTP='true', AWS_ACCESS_KEY_ID='a-key',
                                AWS_SECRET_ACCESS_KEY='a-secret', AWS_REGION='us-east-1', AWS_DEFAULT_REGION='us-east-1').items():
            patch.setenv(name, value)
        client = boto3.client('s3')
        client.create_bucket(Bucket='photos')
        for prefix, root in (('folder', samples), ('pack', data/'pack'), ('shards', shards)):
            for path in sorted(path for path in root.rglob('*') if path.is_file()):
                client.put_object(Bucket='photos', Key=f'{prefix}/{path.relative_to(root).as_posix()}', Body=path.read_bytes())
        client.put_object(Bucket='photos', Key='val.tar', Body=(data/'val.tar').read_bytes())
        yield client
    server.stop()


@full
@pytest.mark.parametrize('name', ['folder', 'pack', 'val.tar', 'shards'])
@pytest.mark.parametrize('settings', [
    dict(), pytest.param(dict(num_workers=1, worker_type='processes'), marks=pytest.mark.full)], ids=['threads', 'processes'])
def test_s3_gives_the_batches_of_the_local_copy(bucket, data, samples, shards, name, settings):
    here = {'folder': samples, 'pack': data/'pack', 'val.tar': data/'val.tar', 'shards': shards}[name]
    assert same(batches(f's3://photos/{name}', **settings), batches(here))


@full
def test_s3_folders_are_those_of_the_disk(bucket, samples):
    for split in ('train', 'val', 'oddities', None):
        there, here = (ImageDataset(root, split=split) for root in ('s3://photos/folder', samples))
        assert there.filenames() == here.filenames() and there.targets == here.targets and there.class_to_idx == here.class_to_idx
    assert there.filename(3, absolute=True) == f's3://photos/folder/{here.filename(3)}'
    with pytest.raises(ValueError, match="there is no split 'nothing' in s3://photos/folder; available: train, val"):
        ImageDataset('s3://photos/folder', split='nothing')


@full
def test_s3_a_kept_list_of_a_folder_notices_a_changed_photograph(bucket, samples, tmp_path):
    settings = dict(split='val', index_file=tmp_path/'index.npz')
    first = ImageDataset('s3://photos/folder', **settings)
    again = ImageDataset('s3://photos/folder', **settings)
    assert again.filenames() == first.filenames() and bytes(again.reader[5][0]) == (samples/again.filename(5)).read_bytes()
    bucket.put_object(Bucket='photos', Key=f'folder/{again.filename(5)}', Body=b'other')
    with pytest.raises(OSError, match='has changed since it was indexed'): again.reader[5]
    bucket.put_object(Bucket='photos', Key=f'folder/{again.filename(5)}', Body=(samples/again.filename(5)).read_bytes())


@full
def test_s3_keys_are_in_no_pickle_repr_or_error(bucket):
    dataset = ImageDataset('s3://photos/pack', split='val')
    bytes(dataset.reader[0][0])
    with pytest.raises(Exception) as failed: ImageDataset('s3://no-such-bucket/train')
    for text in (pickle.dumps(dataset).decode('latin-1'), repr(dataset), repr(dataset.reader), str(failed.value)):
        assert 'a-secret' not in text and 'a-key' not in text


@full
def test_s3_a_key_that_cannot_be_read_is_named(bucket):
    for key in ('odd/cat/0.jpg', 'odd/cat/../x.jpg'): bucket.put_object(Bucket='photos', Key=key, Body=b'x')
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"the key 'odd/cat/\.\./x\.jpg' has a part"): ImageDataset('s3://photos/odd')
    bucket.delete_object(Bucket='photos', Key='odd/cat/../x.jpg')
    assert time.monotonic() - start < 20


@full
def test_s3_many_objects_are_found_in_one_list(bucket):
    keys = [item.key for item in list_objects('s3://photos/folder')]
    found = find_objects('s3://photos/folder', [*keys, 'none'])
    assert len(keys) > 100 and found[-1] is None and found[0] == wait_for(open_store('s3://photos/folder').head(keys[0]))


@full
@pytest.mark.parametrize('where', ['s3://photos/folder', 'web'])
def test_a_table_lists_objects(bucket, samples, tmp_path, where):
    names = [path.relative_to(samples).as_posix() for path in sorted((samples/'val').rglob('*.jpg'))]
    lines = ''.join(f'{name},{name.split("/")[1]},{k}\n' for k, name in enumerate(names))
    shutil.copytree(samples, tmp_path/'photos')
    (tmp_path/'photos/labels.csv').write_text(f'path,label,number\n{lines}')
    bucket.put_object(Bucket='photos', Key='folder/labels.csv', Body=(tmp_path/'photos/labels.csv').read_bytes())
    settings = dict(split=None, fields=['number'])
    with RangeServer(tmp_path/'photos') as server:
        root = server.url if where == 'web' else where
        there, here = (ImageDataset(f'{base}/labels.csv', **settings) for base in (root, tmp_path/'photos'))
        assert there.filenames() == here.filenames() and there.class_to_idx == here.class_to_idx and len(there) == len(names)
        assert [(bytes(data), *others) for data, *others in there.reader] == [(data, *others) for data, *others in here.reader]
        assert ImageDataset(root, table=tmp_path/'photos/labels.csv', **settings).filename(0, absolute=True) == f'{root}/{names[0]}'
        (tmp_path/'more.csv').write_text('path,label\nval/none.jpg,cat\n')
        with pytest.raises(ValueError, match='missing file'): ImageDataset(root, table=tmp_path/'more.csv', split=None)


# ---- copies of shards on this disk

@pytest.mark.full
def test_after_an_epoch_nothing_is_asked_of_the_store(data, server, tmp_path):
    copies = dict(cache_dir=tmp_path/'copies', cache_limit='1GB')
    for name in ('pack', 'val.tar'):
        dataset = ImageDataset(f'{server.url}/{name}', split='val', **copies)
        assert same(batches(dataset), batches(data/name))
        paths = [dataset.reader.source.cache.path(dataset.reader.store, k) for k in range(len(dataset.reader.source.paths))]
        wait_until(lambda: all(path.exists() for path in paths), 'not all shards are copied')  # noqa: B023
        again = ImageDataset(f'{server.url}/{name}', split='val', **copies)
        before = server.num
        assert same(batches(again), batches(data/name)) and server.num == before
        assert same(batches(again, num_workers=1, worker_type='processes'), batches(data/name)) and server.num == before


@full
def test_a_cache_that_is_too_small_keeps_what_it_has(data, server, tmp_path):
    size = max(path.stat().st_size for path in (data/'pack').glob('*.tar'))
    dataset = ImageDataset(f'{server.url}/pack', split='val', cache_dir=tmp_path/'copies', cache_limit=2 * size)
    for _ in range(2): assert same(batches(dataset), batches(data/'pack'))
    time.sleep(0.5)
    kept = sorted((tmp_path/'copies').glob('*.shard'))
    assert 1 <= len(kept) <= 2 and sum(path.stat().st_size for path in kept) <= 2 * size and not list((tmp_path/'copies').glob('*.tmp'))


def test_one_program_copies_a_shard_and_the_others_do_not_wait(server, tmp_path):
    ranges, caches = ranges_of(server), [ShardCache(tmp_path/'copies') for _ in range(4)]
    server.latency, made = 0.1, []
    def copy(cache): made.append(cache.copy(ranges, 0))
    threads = [threading.Thread(target=copy, args=(cache,), daemon=True) for cache in caches]
    before = server.num
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert made.count(True) >= 1 and caches[0].path(ranges, 0).exists() and server.num == before + 1


def test_a_copy_that_cannot_be_made_is_a_warning(server, tmp_path):
    dataset = ImageDataset(f'{server.url}/pack', split='val', cache_dir=tmp_path/'copies')
    shutil.rmtree(tmp_path/'copies')
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter('always')
        assert bytes(dataset.reader[0][0]) == ImageDataset(server.root/'pack', split='val').reader[0][0]
        wait_until(lambda: any('stopped copying shards' in str(one.message) for one in told), 'no warning')


def test_a_changed_object_has_another_copy(data, tmp_path):
    shutil.copytree(data/'plain', tmp_path/'plain')
    with RangeServer(tmp_path) as server:
        cache, old = ShardCache(tmp_path/'copies'), ranges_of(server)
        assert cache.copy(old, 0)
        (tmp_path/'plain/0.bin').write_bytes(b'new')
        new = ranges_of(server)
        assert cache.path(new, 0) != cache.path(old, 0) and cache.copy(new, 0) and cache.path(new, 0).read_bytes() == b'new'
        with pytest.raises(OSError, match='has changed'): ShardCache(tmp_path/'others').copy(old, 0)
        assert not list((tmp_path/'others').glob('*.shard'))


def test_opening_asks_each_question_once(server, data):
    asked = []
    server.fault = lambda path, number: asked.append(path)
    for _ in range(2):   # the second time, small files are in the cache folder
        asked.clear()
        dataset = ImageDataset(f'{server.url}/pack', split='val')
    assert sorted(asked) == sorted(set(asked)) and '/pack/_info.json' in asked and len(dataset) == 80
    before = len(asked)
    find_objects(f'{server.url}/plain', ['0.bin'])
    find_objects(f'{server.url}/plain', ['0.bin'])
    assert len(asked) == before + 2   # answers are not kept any longer


def test_an_index_without_tags_of_its_objects_is_made_anew(samples, tmp_path):
    fsspec = pytest.importorskip('fsspec')
    store = fsspec.filesystem('memory')
    for path in (samples/'val/cat').iterdir(): store.pipe(f'/older/cat/{path.name}', path.read_bytes())
    index = tmp_path/'index.npz'
    first = ImageDataset('memory://older', split=None, index_file=index)
    with np.load(index) as arrays: older = {name: arrays[name] for name in arrays if name != 'object'}
    np.savez(index, **{**older, 'key': np.array(str(older['key']).replace(", ['object']", ''))})
    again = ImageDataset('memory://older', split=None, index_file=index)
    assert [bytes(data) for data, _ in again.reader] == [bytes(data) for data, _ in first.reader]


def test_a_selected_reader_of_single_objects_reads_its_own(samples):
    fsspec = pytest.importorskip('fsspec')
    store = fsspec.filesystem('memory')
    for path in (samples/'val').rglob('*.jpg'):
        store.pipe(f'/single/{path.relative_to(samples/"val").as_posix()}', path.read_bytes())
    there, here = ImageDataset('memory://single', split=None).reader, ImageDataset(samples, split='val').reader
    rows = np.array([70, 3, 41])
    chosen = pickle.loads(pickle.dumps(there.select(rows, None, there.class_to_idx)))
    assert [chosen.span(k)[0] for k in range(3)] == rows.tolist()   # its number is one of the source
    assert [bytes(chosen[k][0]) for k in range(3)] == [here[row][0] for row in rows]
