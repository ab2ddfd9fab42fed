"Packs: compared with the source dataset, WebDataset, timm and DALI; kills, full disks, damage; a million samples."
import errno
import io
import json
import os
import pickle
import random
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import time
import warnings
import zlib
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from careless import careless_jpegs
from grids import few, full, quick
from loader_parts import is_alive, program, wait_until
from PIL import Image

from timmdata import ImageDataset, create_loader
from timmdata.core.faults import ImageReadError, SourceError
from timmdata.datasets import packing
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.datasets.packing import check_pack, write_pack
from timmdata.datasets.relabel import LabelMap, relabel
from timmdata.datasets.wrappers import fingerprint
from timmdata.inspection.measure import measure_dataset
from timmdata.readers.pack import ROW, ReaderPack, ReaderShards, open_index, save_index
from timmdata.readers.sample_table import LabelLists, SampleTable

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope='module')
def val(samples) -> ImageDataset: return ImageDataset(samples, split='val')


@pytest.fixture(scope='module')
def packed(val, tmp_path_factory) -> Path:
    "A pack of unchanged photos in four shards."
    root = tmp_path_factory.mktemp('packed')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, '_SHARD_BYTES', 800_000)
        report = write_pack(val, root, num_workers=2)
    assert report.num_shards == 4 and report.num_samples == len(val) and report.kinds == {'as it is': len(val)}
    return root


def all_bytes(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob('*')) if path.is_file()}


def is_whole(root: Path, split: str) -> bool:
    "Return whether all checksums match, and the shards, read by tarfile, have the images and targets of the index."
    found, reader = {}, ReaderPack(root, split)
    for path in sorted(root.glob(f'{split}-*.tar')):
        with tarfile.open(path) as tar:
            for member in tar: found.setdefault(member.name.split('.')[0], []).append(tar.extractfile(member).read())
    def target_of(content: bytes):
        target = json.loads(content)
        return target['label'] if isinstance(target, dict) else target
    def plain(target): return np.flatnonzero(target) if isinstance(reader.targets, LabelLists) else target
    pairs = list(zip((found[key] for key in sorted(found)), reader, strict=True))
    assert all(image == data and np.array_equal(target_of(content), plain(target)) for (image, content), (data, target) in pairs)
    return check_pack(root) == []


def batches(dataset, **settings) -> list:
    loader = create_loader(dataset, 48, 16, is_training=True, seed=7, device='cpu', **{'num_workers': 0, **settings})
    return [(images.clone(), targets.clone()) for images, targets in loader]


def same(one, other) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(one, other))


# ---- the data set that was packed

def test_samples_names_and_batches_are_those_of_the_source(val, packed):
    found = ImageDataset(packed, split='val')
    assert [(image.tobytes(), target) for image, target in found] == [(image.tobytes(), target) for image, target in val]
    assert found.filenames() == val.filenames() and found.class_to_idx == val.class_to_idx and found.targets == val.targets
    assert fingerprint(found.reader) != '' and found.reader.samples.paths.tobytes() == val.reader.samples.paths.tobytes()
    assert same(batches(found), batches(val))
    assert [bytes(data) for data, _ in found.reader] == [path.read_bytes() for path in map(Path, val.filenames(absolute=True))]


def with_listed_restarts(image: Image.Image) -> bytes:
    "A JPEG as older versions packed it: two segments in a row, and a list of their markers in the header."
    across = -(-image.width // 16)
    data = saved(image, 'JPEG', quality=90, restart_marker_blocks=across // 2 if across % 2 == 0 else across)
    scan = data.index(b'\xff\xda')
    pixels = scan + 2 + int.from_bytes(data[scan + 2:scan + 4], 'big')
    markers = [at for at in range(len(data) - pixels - 2) if data[pixels + at] == 0xFF and 0xD0 <= data[pixels + at + 1] <= 0xD7]
    assert len(markers) > 10
    listed = b'segments\0' + struct.pack(f'<{len(markers)}I', *markers)
    return data[:scan] + struct.pack('>BBH', 0xFF, 0xE9, len(listed) + 2) + listed + data[scan:]


def test_a_pack_with_restart_markers_that_an_older_version_wrote_is_read(val, tmp_path):
    files = {f'{k}_jpg': with_listed_restarts(val[k][0]) for k in range(0, 80, 8)}
    folder = folder_of(tmp_path, **files)
    write_pack(folder, tmp_path/'old', 'train', num_workers=0)
    info = json.loads((tmp_path/'old'/'_info.json').read_text())
    info['timmdata']['splits']['train']['made'] |= dict(format='jpeg', quality=90, jpegtran='2.1.5')
    (tmp_path/'old'/'_info.json').write_text(json.dumps(info))
    found = ImageDataset(tmp_path/'old')
    assert check_pack(tmp_path/'old') == [] and found.filenames() == folder.filenames()
    assert sorted(bytes(data) for data, _ in found.reader) == sorted(files.values())
    for (image, _), (data, _) in zip(found, found.reader, strict=True):
        assert np.array_equal(image, Image.open(io.BytesIO(data)).convert('RGB'))
    before, after = (create_loader(dataset, 48, 4, is_training=True, seed=7, device='cpu', num_workers=0) for dataset in (folder, found))
    expected = [(images.clone(), targets.clone()) for images, targets in before]
    before.set_epoch(0)
    next(iter(before))
    after.load_state_dict(before.state_dict())   # no pixel differs, so a run goes on with it
    assert same([(images.clone(), targets.clone()) for images, targets in after], expected[1:])


def test_a_pack_that_an_older_version_began_does_not_go_on(val, begun):
    noted = begun/'.packing-val/settings.json'
    noted.write_text(json.dumps(json.loads(noted.read_text()) | dict(format='jpeg', quality=90, jpegtran='2.1.5')))
    with pytest.raises(ValueError, match=r'other settings, data, Pillow or timmdata: use those, or remove .*\.packing-val to start over'):
        write_pack(val, begun, num_workers=0)


@quick(1, 'settings', [dict(worker_type='threads'), dict(worker_type='processes'), dict(multiprocessing_context='spawn')])
def test_workers_of_every_kind_read_a_pack(val, packed, settings):
    assert same(batches(ImageDataset(packed, split='validation'), num_workers=2, **settings), batches(val))


def test_a_run_moves_from_the_folder_to_the_pack(val, packed):
    before = create_loader(val, 48, 16, is_training=True, seed=7, device='cpu', num_workers=0)
    first = next(iter(before))[1]
    state = before.state_dict()
    after = create_loader(ImageDataset(packed, split='val'), 48, 16, is_training=True, seed=7, device='cpu', num_workers=0)
    after.load_state_dict(state)
    expected = batches(val)
    assert torch.equal(first, expected[0][1])
    assert same([(images.clone(), targets.clone()) for images, targets in after], expected[1:])


def test_selections_work_as_on_folders(val, packed):
    name = val.filename(3)
    left = ImageDataset(packed, split='val', exclude=[name])
    assert len(left) == len(val) - 1 and name not in left.filenames()
    mapped = relabel(ImageDataset(packed, split='val'), LabelMap({'cat': 'animal', 'coffee': 'drink'}))
    assert [target for _, target in mapped] == [target for _, target in relabel(val, LabelMap({'cat': 'animal', 'coffee': 'drink'}))]
    with pytest.warns(UserWarning, match='images left out: 64'):
        numbered = ImageDataset(packed, split='val', class_map={'coffee': 0, 'cat': 5})
    assert numbered.targets == [0 if 'coffee' in name else 5 for name in val.filenames() if 'coffee' in name or 'cat/' in name]
    assert all(pickle.loads(pickle.dumps(reader)).filename(2) == reader.filename(2) for reader in (left.reader, numbered.reader))
    with pytest.raises(ValueError, match='none of the classes'): ImageDataset(packed, split='val', class_map={'xyz': 0})
    with pytest.raises(ValueError, match="there is no split 'test'"): ImageDataset(packed, split='test')
    with pytest.raises(TypeError, match='index_file'): ImageDataset(packed, split='val', index_file='x')


# ---- other programs

def test_webdataset_and_timm_read_the_shards(val, packed):
    wds = pytest.importorskip('webdataset')
    shards = sorted(map(str, packed.glob('*.tar')))
    seen = {sample['__key__']: (sample['jpg'], int(sample['cls'])) for sample in wds.WebDataset(shards, shardshuffle=False)}
    reader = ReaderPack(packed, 'val')
    assert len(seen) == len(val) and [seen[f'{k:09}'] for k in range(len(val))] == [(bytes(data), target) for data, target in reader]
    timms = pytest.importorskip('timm.data.readers.reader_wds').ReaderWds(str(packed), split='val')
    assert len(timms) == len(val)
    assert sorted((image.tobytes(), target) for image, target in timms) == sorted((image.tobytes(), target) for image, target in val)


def test_the_reader_of_any_shards_finds_the_same(val, packed):
    from timmdata.readers.pack import ReaderShards
    found, reader = ReaderShards(packed, 'val'), ReaderPack(packed, 'val')
    rows = {found.filename(k): (bytes(data), target) for k, (data, target) in enumerate(found)}
    assert [rows[f'{k:09}.jpg'] for k in range(len(reader))] == [(bytes(data), target) for data, target in reader]


def test_dali_reads_the_shards(val, packed):
    fn = pytest.importorskip('nvidia.dali.fn')
    from nvidia.dali import pipeline_def
    shards = sorted(map(str, packed.glob('*.tar')))

    @pipeline_def(batch_size=16, num_threads=1, device_id=None)
    def read():
        images, targets = fn.readers.webdataset(paths=shards, ext=['jpg', 'cls'], name='reader')
        return images, targets

    pipe, found = read(), []
    pipe.build()
    assert pipe.epoch_size('reader') == len(val)
    while len(found) < len(val):
        images, targets = pipe.run()
        found += [(images.at(k).tobytes(), int(targets.at(k).tobytes())) for k in range(16)]
    assert sorted(found[:len(val)]) == sorted((bytes(data), target) for data, target in ReaderPack(packed, 'val'))


def test_tars_are_plain(packed):
    names = []
    for path in sorted(packed.glob('*.tar')):
        with tarfile.open(path) as tar: members = tar.getmembers()
        assert all(m.isreg() and m.mtime == m.uid == m.gid == 0 and not (m.uname or m.gname or m.pax_headers) for m in members)
        names += [m.name for m in members]
    assert len(set(names)) == len(names) == 160 and all(name.isascii() and name.count('.') == 1 and len(name) < 100 for name in names)
    assert names[:2] != ['000000000.jpg', '000000000.cls']   # shuffled once


# ---- the same bytes

@pytest.mark.full
def test_bytes_depend_on_nothing_but_the_settings(val, packed, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    write_pack(ImageDataset(val.root, split='val'), tmp_path/'again', num_workers=0)
    assert all_bytes(tmp_path/'again') == all_bytes(packed)
    write_pack(val, tmp_path/'other', num_workers=0, seed=1)
    assert all_bytes(tmp_path/'other')['val-000000.tar'] != all_bytes(packed)['val-000000.tar']


PACKS = '''
import sys
from timmdata import ImageDataset
from timmdata.datasets import packing
packing._SHARD_BYTES = 300_000
print('begin', flush=True)
packing.write_pack(ImageDataset({root!r}, split='val'), {out!r}, num_workers={num})
'''


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_pack_that_is_killed_goes_on_to_the_same_bytes(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 300_000)
    start = time.monotonic()
    write_pack(val, tmp_path/'whole', num_workers=0)
    seconds, rng, kills = time.monotonic() - start, random.Random(0), 0
    for k in range(25):
        code = PACKS.format(root=str(val.root), out=str(tmp_path/'out'), num=k % 2 * 2)
        while True:
            run = program(code)
            try:
                run.wait_for('begin')
                time.sleep(rng.random() * seconds)
                inside = run.process.children(recursive=True)
                run.process.kill()
                if run.end()[0] == 0: break
                wait_until(lambda inside=inside: not any(map(is_alive, inside)), 'processes that encode are left', 10)
                kills += 1
            except psutil.NoSuchProcess: break   # it has ended by itself
            finally: run.kill()
            if kills % 4 == 0: break
        with suppress(FileExistsError): write_pack(val, tmp_path/'out', num_workers=0)   # it may have ended
        assert all_bytes(tmp_path/'out') == all_bytes(tmp_path/'whole')
        shutil.rmtree(tmp_path/'out')
    assert kills


@pytest.mark.full
def test_a_pack_that_is_killed_while_it_writes_its_index_leaves_nothing(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 300_000)
    write_pack(val, tmp_path/'whole', num_workers=0)
    code = 'import os\nimport numpy\nnumpy.save = lambda file, array: (file.write(b"half"), file.flush(), os._exit(9))\n'
    end = subprocess.run([sys.executable, '-c', code + PACKS.format(root=str(val.root), out=str(tmp_path/'out'), num=0)], timeout=100)
    assert end.returncode == 9
    write_pack(val, tmp_path/'out', num_workers=0)
    assert all_bytes(tmp_path/'out') == all_bytes(tmp_path/'whole')


@pytest.mark.full
def test_a_pack_that_is_killed_at_its_very_end_leaves_nothing(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing.shutil, 'rmtree', lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError): write_pack(val, tmp_path, num_workers=0)
    monkeypatch.undo()
    assert len(ImageDataset(tmp_path, split='val')) == len(val) and (tmp_path/'.packing-val').is_dir()
    with pytest.raises(FileExistsError): write_pack(val, tmp_path, num_workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['_info.json', 'index', 'val-000000.tar']


@full
def test_interrupts_end_a_pack_and_its_processes(val, tmp_path):
    run = program(PACKS.format(root=str(val.root), out=str(tmp_path/'out'), num=2))
    try:
        run.wait_for('begin')
        first = tmp_path/'out'/'.packing-val'/'0.json'
        while not first.exists(): time.sleep(0.001)   # the first of ten shards is written
        run.process.send_signal(2)
        code, _, errors = run.end(20)
        assert code != 0 and errors.rstrip().endswith('KeyboardInterrupt')
    finally: run.kill()
    assert not list((tmp_path/'out'/'.packing-val').glob('*.tar'))


@full
def test_another_pack_is_not_mixed_in(val, packed, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match="already has a split 'val'"): write_pack(val, packed, num_workers=0)
    monkeypatch.setattr(packing, 'finish_pack', lambda plan: 1 / 0)
    with pytest.raises(ZeroDivisionError): write_pack(val, tmp_path, num_workers=0)
    monkeypatch.undo()
    for other in (dict(short_side=64), dict(seed=1), dict(format='raw'), dict(quality=90)):
        with pytest.raises(ValueError, match='started with other settings'): write_pack(val, tmp_path, num_workers=0, **other)
    assert write_pack(val, tmp_path, num_workers=0).num_samples == 80
    train = write_pack(ImageDataset(val.root, split='train'), tmp_path, format='keep', num_workers=0)
    assert train.split == 'train' and is_whole(tmp_path, 'val') and is_whole(tmp_path, 'train')
    with pytest.raises(ValueError, match='has the splits val, train'): ImageDataset(tmp_path, split=None)


# ---- what a resumed pack trusts

@pytest.fixture(scope='module')
def killed(val, tmp_path_factory) -> Path:
    "A pack with four finished shards, killed before its index was written."
    root = tmp_path_factory.mktemp('killed')/'begun'
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(packing, '_SHARD_BYTES', 800_000)
        patch.setattr(packing, 'finish_pack', lambda plan: 1 / 0)
        write_pack(val, root, num_workers=2)
    assert len(list(root.glob('*.tar'))) == 4
    return root


@pytest.fixture
def begun(killed, tmp_path, monkeypatch) -> Path:
    "A copy of `killed`, to damage and resume."
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    return shutil.copytree(killed, tmp_path/'begun')


def flip(path: Path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    'a bit': lambda root: flip(root/'val-000001.tar'), 'cut': lambda root: (root/'val-000001.tar').write_bytes(b''),
    'longer': lambda root: (root/'val-000001.tar').write_bytes((root/'val-000001.tar').read_bytes() + bytes(512)),
    'gone': lambda root: (root/'val-000001.tar').unlink(), 'empty part': lambda root: (root/'.packing-val/1.json').write_bytes(b''),
    'half a part': lambda root: (root/'.packing-val/1.json').write_text('{"samples": []'),
    'other part': lambda root: (root/'.packing-val/1.json').write_text('[1]'),
    'part of texts': lambda root: (root/'.packing-val/1.json').write_text(
        '{"size": "1", "checksum": "2", "samples": [], "kinds": {}, "bad": []}'),
    'part without samples': lambda root: (root/'.packing-val/1.json').write_text('{"size": 1, "checksum": 2}')}


@pytest.mark.parametrize('damage', few(DAMAGES, 'a bit', 'half a part'))
def test_a_resumed_pack_writes_again_what_is_damaged(val, packed, begun, damage, monkeypatch):
    DAMAGES[damage](begun)
    kept = {name: (begun/name).stat().st_ino for name in ('val-000000.tar', 'val-000002.tar', 'val-000003.tar')}
    with pytest.warns(UserWarning, match=r'shards .*written again: val-000001\.tar$'): write_pack(val, begun, num_workers=2)
    assert all_bytes(begun) == all_bytes(packed)
    assert kept == {name: (begun/name).stat().st_ino for name in kept}   # and only that


@full
def test_a_resumed_pack_of_which_all_is_damaged_is_written_again(val, packed, begun):
    for path in begun.glob('*.tar'): flip(path)
    with pytest.warns(UserWarning, match='written again') as told: write_pack(val, begun, num_workers=2)
    assert len(told) == 1 and all_bytes(begun) == all_bytes(packed)


def test_a_resumed_pack_that_is_sound_keeps_its_shards_without_a_word(val, packed, begun):
    before = {path.name: path.stat().st_ino for path in begun.glob('*.tar')}
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        write_pack(val, begun, num_workers=2)
    assert before == {path.name: path.stat().st_ino for path in begun.glob('*.tar')} and all_bytes(begun) == all_bytes(packed)


@quick(1, 'content', [b'{', b'', None])
def test_what_is_missing_of_a_begun_pack_is_named(val, packed, begun, monkeypatch, content):
    noted, part, whole = begun/'.packing-val/settings.json', begun/'.packing-val/2.json', begun/'.packing-val/settings.json'
    kept = whole.read_bytes()
    noted.unlink() if content is None else noted.write_bytes(content)
    with pytest.raises(ValueError, match=r'settings\.json is missing or damaged.*remove .*\.packing-val to start over'):
        write_pack(val, begun, num_workers=2)
    noted.write_bytes(kept)
    write = packing.write_part
    def lost(plan, number, *args):   # by somebody else, after it was written
        write(plan, number, *args)
        if number == 3: part.unlink() if content is None else part.write_bytes(content)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r'2\.json is missing or damaged .*call write_pack again') as found:
        patch.setattr(packing, 'write_part', lost)
        write_pack(val, begun, num_workers=2)
    assert not isinstance(found.value, json.JSONDecodeError)
    with pytest.warns(UserWarning, match='val-000002') if content is not None else nullcontext(): write_pack(val, begun, num_workers=2)
    assert all_bytes(begun) == all_bytes(packed)


def test_a_part_counts_as_done_when_its_shard_and_folder_are_on_disk(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    steps, fsync, replace = [], os.fsync, os.replace
    names = {}
    def synced(fd):
        found = os.fstat(fd)
        steps.append(('synced', 'folder' if stat.S_ISDIR(found.st_mode) else 'file', found.st_ino))
        fsync(fd)
    def replaced(source, target):
        names[Path(target).name] = os.stat(source).st_ino
        steps.append(('named', Path(target).name))
        replace(source, target)
    monkeypatch.setattr(os, 'fsync', synced)
    monkeypatch.setattr(os, 'replace', replaced)
    write_pack(val, tmp_path/'out', num_workers=2)
    root = (tmp_path/'out').stat().st_ino
    for k in range(4):
        shard, done = steps.index(('named', f'val-{k:06}.tar')), steps.index(('named', f'{k}.json'))
        assert ('synced', 'file', names[f'val-{k:06}.tar']) in steps[:shard]
        assert ('synced', 'folder', root) in steps[shard:done] and ('synced', 'file', names[f'{k}.json']) in steps[:done]
    described = steps.index(('named', '_info.json'))
    for name in ('rows', 'names', 'name_ends', 'targets'): assert ('synced', 'file', names[f'{name}.npy']) in steps[:described]
    assert steps[-1] == ('synced', 'folder', root)


@quick(1, 'code', [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_says_how_much_is_missing_and_loses_nothing(val, packed, tmp_path, monkeypatch, code):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    fsync, left = os.fsync, [6]   # settings, folder; shard, folder; part, folder; and now it is full
    def full(fd):
        left[0] -= 1
        if left[0] < 0: raise OSError(code, os.strerror(code))   # as disks that allocate late, and NFS
        fsync(fd)
    told = r'needs about 0\.0. GB more, but .*out has .* GB: make room, and call write_pack again.*1 of 4'
    with monkeypatch.context() as patch, pytest.raises(OSError, match=told) as found:
        patch.setattr(os, 'fsync', full)
        write_pack(val, tmp_path/'out', num_workers=2)
    assert found.value.errno == code and [path.name for path in (tmp_path/'out').glob('*.tar')] == ['val-000000.tar']
    assert not list((tmp_path/'out').rglob('*.tmp'))
    kept = (tmp_path/'out'/'val-000000.tar').stat().st_ino
    write_pack(val, tmp_path/'out', num_workers=2)
    assert all_bytes(tmp_path/'out') == all_bytes(packed) and (tmp_path/'out'/'val-000000.tar').stat().st_ino == kept


def test_another_disk_that_is_full_is_not_taken_for_that_of_the_pack(val, tmp_path, monkeypatch):
    def full(*args, **kwargs): raise OSError(errno.ENOSPC, 'No space left', str(tmp_path/'elsewhere'/'log'))
    monkeypatch.setattr(packing, 'write_shard', full)
    with pytest.raises(OSError, match='elsewhere') as found: write_pack(val, tmp_path/'out', num_workers=1)
    assert 'GB' not in str(found.value)


@pytest.mark.parametrize('code', [errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL])
def test_a_disk_without_locks_is_told(photos, tmp_path, monkeypatch, code):
    fcntl = pytest.importorskip('fcntl')
    def locked(fd, operation): raise OSError(code, os.strerror(code))
    monkeypatch.setattr(fcntl, 'flock', locked)
    with pytest.warns(UserWarning, match=r'out is on a disk without locks \(.*run only one at a time') as told:
        write_pack(ImageDataset(photos, split='val'), tmp_path/'out', num_workers=1)
    assert told[0].filename == __file__ and is_whole(tmp_path/'out', 'val') and not (tmp_path/'out'/'.packing.lock').exists()


def test_a_disk_with_locks_of_another_kind_refuses_a_second_packer(photos, tmp_path, monkeypatch):
    "Without flock, filelock falls back to a file that marks the lock."
    fcntl = pytest.importorskip('fcntl')
    def locked(fd, operation): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr(fcntl, 'flock', locked)
    begin, refused = packing.begin_pack, []
    def again(plan):
        begin(plan)
        with pytest.raises(BlockingIOError, match='another program is packing'): write_pack(val, tmp_path/'out', num_workers=1)
        refused.append(True)
    val = ImageDataset(photos, split='val')
    monkeypatch.setattr(packing, 'begin_pack', again)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        write_pack(val, tmp_path/'out', num_workers=1)
    assert refused and is_whole(tmp_path/'out', 'val') and not (tmp_path/'out'/'.packing.lock').exists()


# ---- where a pack may lie, and that one program writes it

@pytest.fixture
def photos(tmp_path, image) -> Path:
    "Two classes in two splits."
    for split in ('train', 'val'):
        for name in ('ant', 'zebra'):
            (tmp_path/'photos'/split/name).mkdir(parents=True)
            image.save(tmp_path/'photos'/split/name/'1.jpg')
    return tmp_path/'photos'


@pytest.mark.parametrize('source, out', [
    ('photos', 'photos'), ('photos/train', 'photos/train'), ('photos/train', 'photos'), ('photos', 'photos/packed'), ('photos', '.'),
    ('photos', 'other/../photos'), ('photos', 'link'), ('photos', 'link/packed'), ('photos', 'copy'), ('photos', 'copy/val/ant')])
def test_a_pack_is_not_written_into_images(photos, tmp_path, monkeypatch, source, out):
    shutil.copytree(photos, tmp_path/'copy')
    (tmp_path/'link').symlink_to(photos)
    (tmp_path/'other').mkdir()
    before, classes = all_bytes(tmp_path), ImageDataset(photos, split=None).class_to_idx
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r'Use a separate folder, such as .*(photos|copy|ant)-packed'):
        write_pack(ImageDataset(source, split=None), out, 'all', num_workers=0)
    assert all_bytes(tmp_path) == before and ImageDataset(photos, split=None).class_to_idx == classes == {'ant': 0, 'zebra': 1}


def test_a_pack_is_not_written_into_archives_nor_among_the_files_of_a_table(photos, tmp_path):
    def refused(dataset, out):
        with pytest.raises(ValueError, match='Use a separate folder'): write_pack(dataset, out, 'all', num_workers=0)
    archive = shutil.make_archive(str(tmp_path/'tars'/'train'), 'tar', photos/'train')
    refused(ImageDataset(archive), tmp_path/'tars')
    refused(ImageDataset(tmp_path/'tars'), tmp_path/'tars'/'packed')
    (tmp_path/'here').mkdir()
    (tmp_path/'here'/'t.csv').write_text('path,label\n../photos/train/ant/1.jpg,a\n')
    table = ImageDataset(tmp_path/'here'/'t.csv', split=None)
    refused(table, photos/'train'/'ant'/'packed')
    refused(table, photos)
    assert write_pack(table, tmp_path/'here'/'packed', 'all', num_workers=0).num_samples == 1


SLOWLY = '''
import sys, time
from timmdata import ImageDataset
from timmdata.datasets import packing
write = packing.write_part
def slowly(plan, number, *args):
    write(plan, number, *args)
    print('begun', flush=True)
    if number == 0: sys.stdin.readline()
packing.write_part = slowly
packing.write_pack(ImageDataset({root!r}, split={split!r}), {out!r}, num_workers=1)
'''


@full
@pytest.mark.parametrize('split', ['val', 'train'])
def test_a_second_packer_of_a_folder_is_refused_until_the_first_has_ended(photos, tmp_path, split):
    first = subprocess.Popen([sys.executable, '-c', SLOWLY.format(root=str(photos), split='val', out=str(tmp_path/'out'))],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout.readline() == b'begun\n'
        with pytest.raises(BlockingIOError, match='another program is packing into .*out: wait until it ends'):
            write_pack(ImageDataset(photos, split=split), tmp_path/'out', short_side=64, num_workers=0)
        if split == 'val': first.communicate(b'\n', 60)
    finally:
        first.kill()   # and its lock is free
        first.communicate()
    if split == 'val': assert is_whole(tmp_path/'out', 'val')
    else:
        def packed(): return write_pack(ImageDataset(photos, split='train'), tmp_path/'out', num_workers=0)
        wait_until(lambda: not is_packed_into(packed), 'the lock is held', 10)
        assert is_whole(tmp_path/'out', 'train')
    assert not (tmp_path/'out'/'.packing.lock').exists()


def is_packed_into(packed) -> bool:
    try: packed()
    except BlockingIOError: return True
    return False


@full
def test_a_child_that_outlives_its_program_does_not_hold_the_lock(photos, tmp_path):
    "A child process of the killed program, such as a worker, does not keep its lock."
    started = "    import subprocess\n    print(subprocess.Popen(['sleep', '60']).pid, flush=True)\n"
    code = SLOWLY.replace("    print('begun'", started + "    print('begun'")
    first = subprocess.Popen([sys.executable, '-c', code.format(root=str(photos), split='val', out=str(tmp_path/'out'))],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = psutil.Process(int(first.stdout.readline()))
    try:
        assert first.stdout.readline() == b'begun\n'
        first.kill()
        first.wait(10)
        assert child.is_running() and write_pack(ImageDataset(photos, split='val'), tmp_path/'out', num_workers=2).num_samples == 2
    finally:
        for process in first, child: process.kill()
        first.communicate()


@quick(2, 'num_workers', [0, 1, 3])
def test_images_come_in_order_and_errors_in_encoding_are_raised(val, tmp_path, monkeypatch, num_workers):
    images = [Image.new('RGB', (k, 9)) for k in range(1, 40)]
    write_pack(ImageDataset('', Given(images, [*range(39)])), tmp_path/'out', 'all', num_workers=num_workers)
    assert [(image.width, target) for image, target in ImageDataset(tmp_path/'out', split='all')] == [(k + 1, k) for k in range(39)]
    monkeypatch.setattr(packing, '_reencode', lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError): write_pack(val, tmp_path/'other', short_side=16, num_workers=num_workers)


@full
def test_a_refused_packing_does_not_block_the_next(val, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(packing.shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(10, 9, 1_000_000))
        with pytest.raises(OSError, match='GB more'): write_pack(val, tmp_path/'full', num_workers=0)
        patch.setattr(packing.shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(10, 9, 10**12))
        patch.setattr(packing, 'write_part', lambda *args: 1 / 0)   # before a shard is done
        with pytest.raises(ZeroDivisionError): write_pack(val, tmp_path/'full', num_workers=0)
    assert write_pack(val, tmp_path/'full', short_side=64, num_workers=0).num_samples == 80
    bad = folder_of(tmp_path, a_jpg=b'no image')
    bad.faults.on_error = 'skip'
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match='no image could be read'):
        write_pack(bad, tmp_path/'none', 'all', num_workers=0)
    assert not list((tmp_path/'none').iterdir())


# ---- formats

def folder_of(tmp_path: Path, **images: bytes) -> ImageDataset:
    (tmp_path/'in'/'c').mkdir(parents=True)
    for name, data in images.items(): (tmp_path/'in'/'c'/name.replace('_', '.')).write_bytes(data)
    return ImageDataset(tmp_path/'in', split=None)


def saved(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.fixture(scope='module')
def image(val) -> Image.Image: return val[5][0]


@quick(1, 'subsampling', ['4:4:4', '4:2:2', '4:2:0'])
def test_smaller_photographs_are_those_of_pillow(tmp_path, image, subsampling):
    source = saved(image, 'JPEG', quality=95, subsampling=subsampling)
    gray = saved(image.convert('L'), 'JPEG')
    write_pack(folder_of(tmp_path, a_jpg=source, b_jpg=gray), tmp_path/'out', 'all', short_side=100, num_workers=0)
    found, second = (bytes(data) for data, _ in ReaderPack(tmp_path/'out'))
    width, height = image.size
    size = (100, int(100 * height / width)) if width < height else (int(100 * width / height), 100)
    small = Image.open(io.BytesIO(source)).convert('RGB').resize(size, Image.Resampling.BICUBIC)
    expected = saved(small, 'JPEG', quality=90, subsampling=subsampling)
    assert np.array_equal(Image.open(io.BytesIO(found)), Image.open(io.BytesIO(expected)))
    assert Image.open(io.BytesIO(second)).mode == 'L' and min(Image.open(io.BytesIO(second)).size) == 100


@pytest.mark.parametrize('settings', [dict(quality=60), dict(quality=60, short_side=100), dict(quality=60, short_side=5000)], ids=str)
def test_a_quality_encodes_all_images_again(tmp_path, image, settings):
    files = dict(a_jpg=saved(image, 'JPEG', quality=95, subsampling='4:2:0'), b_png=saved(image, 'PNG'))
    report = write_pack(folder_of(tmp_path, **files), tmp_path/'out', 'all', num_workers=0, **settings)
    assert report.kinds == {'encoded': 2}
    found = ImageDataset(tmp_path/'out', split='all')
    for (data, _), source, subsampling in zip(found.reader, files.values(), ('4:2:0', '4:4:4'), strict=True):
        made = Image.open(io.BytesIO(source)).convert('RGB')
        edge = settings.get('short_side', 5000)
        if min(made.size) > edge:
            made = made.resize([max(edge, int(edge * side / min(made.size))) for side in made.size], Image.Resampling.BICUBIC)
        assert bytes(data) == saved(made, 'JPEG', quality=60, subsampling=subsampling)
    state = create_loader(ImageDataset(tmp_path/'in', split=None), 48, 2, is_training=True, device='cpu', num_workers=0).state_dict()
    with pytest.raises(ValueError, match='changed_pixels was none, is format=keep'):
        create_loader(found, 48, 2, is_training=True, device='cpu', num_workers=0).load_state_dict(state)


def test_raw_pixels_are_those_of_pillow(val, tmp_path):
    write_pack(val, tmp_path, format='raw', num_workers=0)
    found = ImageDataset(tmp_path, split='val')
    assert [image.tobytes() for image, _ in found] == [image.tobytes() for image, _ in val]
    decoded = [ImageDataset.pixels(found, data).read() for data, _ in found.reader]
    assert all(np.array_equal(pixels, image) for pixels, (image, _) in zip(decoded, val))
    by_pillow = dict(backend='pillow')
    assert same(batches(found, **by_pillow), batches(val, **by_pillow))


@pytest.mark.parametrize('exif_transpose', [False, True])
def test_orientation_is_not_lost(tmp_path, image, exif_transpose):
    exif = Image.Exif()
    exif[0x0112] = 6
    dataset = folder_of(tmp_path, a_jpg=saved(image, 'JPEG', exif=exif))
    dataset.exif_transpose = exif_transpose
    write_pack(dataset, tmp_path/'out', 'all', short_side=100, num_workers=0)
    for turned in (False, True):
        size = ImageDataset(tmp_path/'out', split='all', exif_transpose=turned)[0][0].size
        assert (size[0] > size[1]) == ((image.width > image.height) != (exif_transpose or turned))


@pytest.mark.parametrize('settings, message', [
    (dict(format='png'), 'one of keep, raw'), (dict(short_side=8), '16 or more pixels'),
    (dict(short_side=2.5), '16 or more pixels'),
    (dict(quality=0), 'integer in 1..95'), (dict(subsampling='4:1:1'), 'one of keep, 4:4:4'),
    (dict(format='jpeg'), "use format='keep', which encodes smaller JPEGs if you pass short_side"),
    (dict(quality=2.5), 'integer in 1..95'), (dict(split='a/b'), 'letters, digits')])
def test_settings_that_cannot_be_are_refused(val, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message): write_pack(val, tmp_path/'out', num_workers=0, **settings)
    assert not list(tmp_path.rglob('*.tar'))


def test_data_sets_that_a_pack_would_change_are_refused(samples, val, tmp_path):
    def refused(dataset, message, kind=ValueError):
        with pytest.raises(kind, match=message): write_pack(dataset, tmp_path, num_workers=0)
    refused(ImageDataset(samples, split='val', transform=lambda image: image), 'has a transform')
    refused(ImageDataset(samples, split='val', target_transform=abs), 'has a target_transform')
    refused(ImageDataset(samples, split='val', on_error='replace'), 'would pack a sample twice')
    refused(torch.utils.data.Subset(val, [0]), 'dataset has type Subset', TypeError)
    refused(IterableImageDataset(reader=[]), 'dataset has type IterableImageDataset', TypeError)
    for settings in dict(format='raw'), dict(short_side=64), dict(quality=80):
        with pytest.raises(ValueError, match="input_img_mode='RGBA' cannot be kept: use format='keep' without short_side or quality"):
            write_pack(ImageDataset(samples, split='val', input_img_mode='RGBA'), tmp_path, num_workers=0, **settings)


# ---- targets

class Given:
    "A reader that knows targets only after reading a sample."
    def __init__(self, files, targets): self.files, self.found = files, targets
    def __len__(self): return len(self.files)
    def __getitem__(self, index): return self.files[index], self.found[index]
    def filename(self, index, basename=False, absolute=False): return f'{index}.jpg'


@pytest.mark.parametrize('targets', [[3, 1, 2], [0.5, -1.25, 3.], [None] * 3, [[0., 1.], [2., 3.], [4., 5.]],
                                     [np.float32(0.1), np.float32(2), np.float32(-7)], [np.int64(4)] * 3])
def test_targets_come_back(tmp_path, image, targets):
    data = saved(image, 'JPEG')
    write_pack(ImageDataset('', Given([data] * 3, targets)), tmp_path, 'all', num_workers=0)
    found = [target for _, target in ImageDataset(tmp_path, split='all')]
    expected = [-1 if target is None else target for target in targets]
    assert np.array_equal(np.asarray(found), np.asarray(expected)) and is_whole(tmp_path, 'all')


def test_several_labels_come_back(val, tmp_path):
    lines = ['path,label', *(f'{name},{labels}' for name, labels in zip(val.filenames()[:3], ('a b', 'c', 'b')))]
    (tmp_path/'t.csv').write_text('\n'.join(lines))
    table = ImageDataset(val.root, table=str(tmp_path/'t.csv'), split=None, target_key='label', target_separator=' ')
    write_pack(table, tmp_path/'out', 'all', num_workers=0)
    found = ImageDataset(tmp_path/'out', split='all')
    assert found.targets == table.targets == [[0, 1], [2], [1]] and found.class_to_idx == table.class_to_idx
    assert np.array_equal([t for _, t in found], [t for _, t in table]) and is_whole(tmp_path/'out', 'all')


class Classed(Given):
    "The same, of three classes."
    class_to_idx = {'a': 0, 'b': 1, 'c': 2}


@pytest.mark.parametrize('target', [
    float('nan'), float('inf'), -float('inf'), 1.0, 0.5, -2, 3, 10**12, True, np.float32(1), np.float64('nan'), np.bool_(True),
    [0, 3], [-2, 0],
    [0., float('nan'), 1.], [float('inf'), 0., 1.], [True, False, True], np.array([0, np.nan, 1])], ids=str)
def test_what_is_no_class_is_no_target_of_a_pack_with_classes(tmp_path, image, target):
    dataset = ImageDataset('', Classed([saved(image, 'JPEG')] * 2, [1, target]))
    with pytest.raises(ValueError, match=r'1\.jpg has the target .*but the dataset has classes: it must be a class index in 0\.\.2'):
        write_pack(dataset, tmp_path/'out', 'all', num_workers=0)
    assert not (tmp_path/'out'/'_info.json').exists()


@pytest.mark.parametrize('targets', [[0, 2], [None, -1], [np.int64(1), 2], [[0., .5, 1.], [1, 0, 0]], [[0, 1, 1], [1, 0, 0]],
                                     [[0, 2], [1, 2]]], ids=str)
def test_what_is_a_class_comes_back_from_a_pack_with_classes(tmp_path, image, targets):
    write_pack(ImageDataset('', Classed([saved(image, 'JPEG')] * 2, targets)), tmp_path, 'all', num_workers=0)
    found = ImageDataset(tmp_path, split='all')
    expected = [-1 if target is None else target for target in targets]
    assert np.array_equal([target for _, target in found], expected) and found.class_to_idx == Classed.class_to_idx


@pytest.mark.parametrize('targets', [[True, False], [np.bool_(False), np.bool_(True)]], ids=str)
def test_numbers_without_classes_come_back_though_they_are_bools(tmp_path, image, targets):
    write_pack(ImageDataset('', Given([saved(image, 'JPEG')] * 2, targets)), tmp_path, 'all', num_workers=0)
    assert [target for _, target in ImageDataset(tmp_path, split='all')] == targets


@pytest.mark.parametrize('targets', [[[0, 1], [2]], [[0.5], 1]], ids=str)
@pytest.mark.parametrize('kind', [Given, Classed])
def test_targets_of_several_lengths_are_told_before_a_shard_is_written(tmp_path, image, targets, kind):
    with pytest.raises(ValueError, match='targets of several lengths'):
        write_pack(ImageDataset('', kind([saved(image, 'JPEG')] * 2, targets)), tmp_path, 'all', num_workers=0)
    assert not list(tmp_path.rglob('*.tar'))


@pytest.mark.parametrize('targets', [np.full(80, np.nan), np.full(80, 1.), np.full((80, 10), np.nan), np.full((80, 10), np.inf),
                                     np.full(80, np.inf, np.float16)])
def test_a_pack_with_classes_and_such_targets_is_not_opened(copy, targets):
    np.save(copy/'index'/'val'/'targets.npy', targets)
    with pytest.raises(ValueError, match=r'the index .*index/val has the targets .*but its classes are 0\.\.9'):
        ImageDataset(copy, split='val')
    np.save(copy/'index'/'val'/'targets.npy', np.linspace(0, 1, 800).reshape(80, 10))   # one value per class
    assert ImageDataset(copy, split='val')[79][1][9] == 1


def test_a_target_that_cannot_be_kept_names_its_sample(tmp_path, image):
    dataset = ImageDataset('', Given([saved(image, 'JPEG')], [{'boxes': []}]))
    with pytest.raises(ValueError, match=r'0\.jpg has a target of type dict'): write_pack(dataset, tmp_path, 'all', num_workers=0)


# ---- bad files, full disks

def test_bad_files_go_by_the_rule_of_the_data_set(tmp_path, image):
    good = saved(image, 'JPEG')
    dataset = folder_of(tmp_path, a_jpg=good, b_jpg=good[:len(good) // 2], c_jpg=good, d_jpg=b'no image')
    with pytest.raises(ImageReadError, match=r'c/[bd]\.jpg'): write_pack(dataset, tmp_path/'out', 'all', num_workers=0)
    skipping = ImageDataset(tmp_path/'in', split=None, on_error='skip')
    with pytest.warns(RuntimeWarning, match='skipped'): report = write_pack(skipping, tmp_path/'other', 'all', num_workers=2)
    assert [bad.path for bad in report.left_out] == ['c/b.jpg', 'c/d.jpg'] and 'left out: 2' in str(report)
    found = ImageDataset(tmp_path/'other', split='all')
    assert found.filenames() == ['c/a.jpg', 'c/c.jpg']
    assert [image.tobytes() for image, _ in found] == [dataset[k][0].tobytes() for k in (0, 2)]
    for name in ('a', 'c'): (tmp_path/'in'/'c'/f'{name}.jpg').unlink()
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match='no image could be read'):
        write_pack(ImageDataset(tmp_path/'in', split=None, on_error='skip'), tmp_path/'none', 'all', num_workers=0)


FULL = '''
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
'''


@full
def test_a_disk_that_gets_full_leaves_what_can_go_on(val, tmp_path, monkeypatch):
    run = program(PACKS.replace('300_000', '800_000').format(root=str(val.root), out=str(tmp_path/'out'), num=0), first=FULL)
    try: code, _, errors = run.end(60)
    finally: run.kill()
    assert code == 1 and 'File too large' in errors and not list((tmp_path/'out'/'.packing-val').glob('*.tar'))
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    write_pack(val, tmp_path/'out', num_workers=0)
    assert is_whole(tmp_path/'out', 'val')


# ---- damage of a pack

@pytest.fixture
def copy(packed, tmp_path) -> Path: return Path(shutil.copytree(packed, tmp_path/'copy'))


def test_a_pack_that_is_not_whole_is_not_opened(copy):
    def refused(message, kind=ValueError):
        with pytest.raises(kind, match=message): ImageDataset(copy, split='val')
    shard, info = copy/'val-000002.tar', (copy/'_info.json').read_text()
    data = shard.read_bytes()
    shard.write_bytes(data[:-512])
    refused(r'val-000002\.tar has .* bytes, but the index says')
    shard.unlink()
    refused(r'has no shard .*val-000002\.tar', FileNotFoundError)
    shard.write_bytes(data)
    for name in ('rows', 'names', 'targets'):
        path = copy/'index'/'val'/f'{name}.npy'
        whole = path.read_bytes()
        path.write_bytes(whole[:-8])
        refused('is damaged')
        path.unlink()
        refused('is damaged')
        path.write_bytes(whole)
    (copy/'_info.json').write_text(info.replace('"pack_version": 2', '"pack_version": 99'))
    refused('has version 99')
    (copy/'_info.json').write_text(info[:-30])
    refused('is damaged')
    (copy/'_info.json').write_text(info)
    assert len(ImageDataset(copy, split='val')) == 80
    np.save(copy/'index'/'val'/'rows.npy', np.load(copy/'index'/'val'/'rows.npy')[:-1])
    refused('is damaged')


def test_a_shard_that_shrinks_is_an_error_not_a_crash(copy):
    dataset = ImageDataset(copy, split='val')
    rows = dataset.reader.samples.columns['row']
    last = int(np.lexsort((rows['offset'], rows['shard']))[-1])
    dataset[last]
    with (copy/'val-000003.tar').open('r+b') as file: file.truncate(int(rows['offset'][last]))
    for on_error in ('raise', 'skip', 'replace'):   # it is no sample's fault
        dataset.faults.on_error = on_error
        with pytest.raises(SourceError, match='has changed since it was indexed'): dataset[last]
    assert not dataset.bad_samples


@pytest.mark.parametrize('where', ['image', 'target', 'name', 'end'])
def test_a_check_finds_damage(copy, where):
    shard = copy/'val-000001.tar'
    with tarfile.open(shard) as tar: image, target = tar.getmembers()[6:8]
    data = bytearray(shard.read_bytes())
    at = dict(image=image.offset_data + 4000, target=target.offset_data, name=target.offset, end=len(data) - 1)[where]
    data[at] ^= 1
    shard.write_bytes(data)
    assert check_pack(copy) == ['val-000001.tar has changed since it was written']


@pytest.mark.parametrize('kind', ['gone', 'empty', 'folder'])
def test_a_shard_that_is_not_there_any_more_is_no_bad_sample(copy, kind):
    dataset = ImageDataset(copy, split='val', on_error='skip')
    for path in copy.glob('*.tar'):
        path.unlink()
        if kind == 'empty': path.touch()
        if kind == 'folder': path.mkdir()
    message = dict(gone='no longer exists', empty='is empty', folder='cannot be read')[kind]
    loader = create_loader(dataset, 48, 16, is_training=True, device='cpu', num_workers=0)
    with pytest.raises(SourceError, match=rf'\.tar {message}'): next(iter(loader))
    assert not dataset.bad_samples


@pytest.mark.parametrize('file', ['val-000002.tar', 'index/val/names.npy', 'index/val/rows.npy', 'index/val/targets.npy'])
def test_a_check_finds_a_file_that_is_missing_or_was_cut_short(copy, file):
    path = copy/file
    data = path.read_bytes()
    for content in data[:-1], b'':
        path.write_bytes(content)
        assert check_pack(copy) == [f'{file} has changed since it was written']
    path.unlink()
    assert check_pack(copy) == [f'{file} is missing']
    path.write_bytes(data)
    assert check_pack(copy) == []


# ---- packs of strangers

def described(root: Path, change) -> None:
    info = json.loads((root/'_info.json').read_text())
    change(info['splits']['val'], info['timmdata']['splits']['val'], info)
    (root/'_info.json').write_text(json.dumps(info))


@pytest.mark.parametrize('name', ['../private.tar', 'val-000000.tar/../../private.tar', 'ABSOLUTE', 'link.tar', 'link/private.tar', 'a\0b'])
def test_names_in_a_pack_stay_inside(copy, tmp_path, name):
    (tmp_path/'private.tar').write_bytes((copy/'val-000000.tar').read_bytes())
    (copy/'link.tar').symlink_to(tmp_path/'private.tar')
    (copy/'link').symlink_to(tmp_path)
    name = name.replace('ABSOLUTE', str(tmp_path/'private.tar'))
    described(copy, lambda split, ours, info: split['filenames'].__setitem__(0, name))
    for read in (lambda: ImageDataset(copy, split='val'), lambda: ReaderShards(copy, 'val'), lambda: check_pack(copy)):
        with pytest.raises(ValueError, match='leads out of .*names must be relative'): read()


@pytest.mark.parametrize('where', ['index', 'index/val', 'index/val/rows.npy', '_info.json', 'split'])
def test_links_and_splits_of_a_pack_stay_inside(copy, tmp_path, where):
    if where == 'split':
        def renamed(_, __, info):
            for part in (info, info['timmdata']): part['splits'] = {'../../private': part['splits']['val']}
        described(copy, renamed)
    else:
        (copy/where).rename(tmp_path/'private')
        (copy/where).symlink_to(tmp_path/'private')
    with pytest.raises(ValueError, match='names must be relative'): ImageDataset(copy, split=None)


def test_links_inside_a_pack_are_read(copy, val):
    (copy/'val-000000.tar').rename(copy/'other.tar')
    (copy/'val-000000.tar').symlink_to('other.tar')
    assert len(ImageDataset(copy, split='val')) == len(val)


@quick(6, 'change', [
    lambda split, ours, info: info.update(timmdata={'pack_version': 2}),
    lambda split, ours, info: info['timmdata'].update(splits=[1]),
    lambda split, ours, info: info['timmdata'].update(splits={}),
    lambda split, ours, info: info['timmdata']['splits'].update(other=ours),
    lambda split, ours, info: ours.pop('shard_bytes'),
    lambda split, ours, info: ours.pop('checksums'),
    lambda split, ours, info: ours.update(checksums=[1]),
    lambda split, ours, info: ours['checksums'].update({'../private.tar': 1}),
    lambda split, ours, info: ours.update(shard_bytes=[10**30] * 4),
    lambda split, ours, info: ours.update(shard_bytes=['1'] * 4),
    lambda split, ours, info: ours.update(shard_bytes=ours['shard_bytes'][:3]),
    lambda split, ours, info: ours.update(num_samples='80'),
    lambda split, ours, info: ours.update(num_samples=10**40),
    lambda split, ours, info: ours.update(class_to_idx=['cat']),
    lambda split, ours, info: ours['class_to_idx'].update(cat=10**15),
    lambda split, ours, info: ours['class_to_idx'].update(cat=-7),
    lambda split, ours, info: ours['class_to_idx'].update(cat='0'),
    lambda split, ours, info: split.update(filenames=3)])
def test_numbers_of_a_description_are_checked_once(copy, change):
    described(copy, change)
    with pytest.raises(ValueError, match='copy it again|_info.json'): ImageDataset(copy, split='val')


@pytest.mark.parametrize('change', [
    lambda split, ours, info: ours.update(checksums='../' * 350_000), lambda split, ours, info: ours.update(checksums=['a'] * 200_000),
    lambda split, ours, info: ours.update(checksums={f'{k}.tar': 1 for k in range(70_000)}),
    lambda split, ours, info: ours.update(shard_bytes='1' * 1_000_000),
    lambda split, ours, info: ours.update(class_to_idx='cat' * 350_000), lambda split, ours, info: ours.update(num_samples=80.),
    lambda split, ours, info: ours.update(num_samples=True), lambda split, ours, info: ours.update(shard_bytes={'a': 1}),
    lambda split, ours, info: ours['checksums'].update({'val-000000.tar': '1'}),
    lambda split, ours, info: ours['checksums'].update({'val-000000.tar': float('nan')}),
    lambda split, ours, info: info['timmdata'].update(splits='val' * 350_000),
    lambda split, ours, info: info['timmdata'].update(splits={'val': 'x' * 1_000_000}),
    lambda split, ours, info: split.update(filenames='val' * 350_000),
    lambda split, ours, info: split.update(shard_lengths='1' * 1_000_000)])
def test_types_of_a_description_are_looked_at_first(copy, change):
    described(copy, change)
    before = time.process_time()
    for read in (lambda: ImageDataset(copy, split='val'), lambda: check_pack(copy)):
        with pytest.raises(ValueError, match='_info.json is damaged') as found: read()
        assert len(str(found.value)) < 1000
    assert time.process_time() - before < 3


def test_names_of_a_stranger_s_pack_are_printed_escaped(copy):
    (copy/'val-000000.tar').rename(copy/'\x1b[1m.tar')
    def renamed(split, ours, info):
        split['filenames'][0] = '\x1b[1m.tar'
        ours['checksums']['\x1b[1m.tar'] = ours['checksums'].pop('val-000000.tar') ^ 1
    described(copy, renamed)
    assert check_pack(copy) == ['\\x1b[1m.tar has changed since it was written']
    with (copy/'\x1b[1m.tar').open('ab') as file: file.write(b'x')
    with pytest.raises(ValueError, match=r'the shard .*\\x1b\[1m\.tar has'): ImageDataset(copy, split='val')
    (copy/'\x1b[1m.tar').unlink()
    with pytest.raises(FileNotFoundError, match=r'no shard .*\\x1b\[1m\.tar'): ImageDataset(copy, split='val')


def header(shape: str, descr: str = '<i8') -> bytes:
    "An .npy file with a header and no data."
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
    return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


@quick(6, 'name, content', [
    ('targets', np.full(80, -7)), ('targets', np.full(80, 10**15)), ('targets', np.full(80, 'x')), ('targets', np.array(3)),
    ('targets', header('(1000000000000000,)')), ('targets', header('(' * 100)), ('targets', header('(-5,)')), ('targets', header("'x'")),
    ('targets', header('(80,)', '|O')), ('names', np.zeros(3)), ('names', header('(10000000000000000000000,)')),
    ('name_ends', np.full(80, -1)), ('name_ends', np.full((80, 2), 1)), ('name_ends', np.linspace(0, 1, 80)),
    ('rows', np.zeros((80, 2), ROW)), ('rows', np.full(80, np.array((0, 50, 2**64 - 10, 0, 0), ROW))),
    ('rows', np.full(80, np.array((9, 50, 10, 0, 0), ROW)))])
def test_arrays_of_an_index_are_checked_once(copy, name, content):
    path = copy/'index'/'val'/f'{name}.npy'
    if isinstance(content, bytes): path.write_bytes(content)
    else: np.save(path, content)
    with pytest.raises(ValueError, match=r'the index .*index/val'): ImageDataset(copy, split='val')


@pytest.mark.parametrize('change', [dict(num_classes=np.array([3, 4])), dict(num_classes=np.array(10**15)), dict(num_classes=np.array(2)),
                                    dict(labels=np.array([0, -1, 1])), dict(label_ends=np.array([3, 1, 3])), dict(labels=np.zeros(3))])
def test_labels_of_an_index_are_checked_once(tmp_path, change):
    labels = LabelLists.from_lists([[0], [2], [1]], 3)
    save_index(SampleTable.from_samples(['a', 'b', 'c'], labels, {'row': np.zeros(3, ROW)}), tmp_path)
    for name, array in change.items(): np.save(tmp_path/f'{name}.npy', array)
    with pytest.raises(ValueError, match='is damaged'): open_index(tmp_path)


# ---- a million

@pytest.mark.full
def test_a_million_samples_are_opened_at_once(tmp_path):
    num, shards = 1_281_167, 128
    per, rows = -(-num // shards), np.zeros(num, ROW)
    rows['shard'], rows['size'] = np.arange(num) // per, 110_000
    rows['offset'] = np.arange(num) % per * 111_000 + 512
    names = SampleTable.from_samples((f'train/n{k // 1300:08}/n{k // 1300:08}_{k}.JPEG' for k in range(num)), np.arange(num) // 1300)
    (tmp_path/'index'/'train').mkdir(parents=True)
    save_index(SampleTable(names.paths, names.ends, names.targets, {'row': rows}), tmp_path/'index'/'train')
    sizes = [per * 111_000 + 1024] * shards
    for k, size in enumerate(sizes):
        with (tmp_path/f'train-{k:06}.tar').open('wb') as file: file.truncate(size)   # no room on the disk
    classes = {f'n{k:08}': k for k in range(num // 1300 + 1)}
    filenames = [f'train-{k:06}.tar' for k in range(shards)]
    (tmp_path/'_info.json').write_text(json.dumps(dict(
        splits=dict(train=dict(name='train', filenames=filenames, num_samples=num)),
        timmdata=dict(pack_version=2, splits=dict(train=dict(num_samples=num, class_to_idx=classes, shard_bytes=sizes, checksums={}))))))
    run = program(f'''
import time, psutil
from timmdata import ImageDataset
before, start = psutil.Process().memory_full_info().uss, time.perf_counter()
dataset = ImageDataset({str(tmp_path)!r})
seconds = time.perf_counter() - start
for k in range(0, len(dataset), 1000): dataset.reader[k], dataset.filename(k)
print(len(dataset), seconds < 1, psutil.Process().memory_full_info().uss - before < 250e6)
''')
    try: assert run.end(60)[:2] == (0, f'{num} True True\n')
    finally: run.kill()


def test_a_pack_has_the_samples_that_its_folder_has(tmp_path):
    "JPEGs with sloppy headers that libjpeg reads and Pillow does not: training, packs and inspection agree about them."
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)).save(file, 'JPEG')
    (tmp_path/'photos'/'a').mkdir(parents=True)
    for name, data in careless_jpegs(file.getvalue()).items(): (tmp_path/'photos'/'a'/f'{name}.jpg').write_bytes(data)
    (tmp_path/'photos'/'a'/'damaged.jpg').write_bytes(file.getvalue()[:300])
    dataset = ImageDataset(tmp_path/'photos', on_error='skip')
    with pytest.warns(RuntimeWarning): batches = list(create_loader(dataset, 16, 8, num_workers=0, device='cpu'))
    num = sum(len(targets) for _, targets in batches)
    assert num == len(dataset) - 1
    for format in 'keep', 'raw':
        report = write_pack(ImageDataset(tmp_path/'photos', on_error='skip'), tmp_path/format, format=format)
        assert report.num_samples == num and [bad.path for bad in report.left_out] == ['a/damaged.jpg']
        in_pack = list(create_loader(ImageDataset(tmp_path/format), 16, 8, num_workers=0, device='cpu'))
        assert sum(len(targets) for _, targets in in_pack) == num
    table = measure_dataset(dataset, tmp_path/'measures.npy')
    assert sum(not row['error'] for row in table) == num


def test_a_pack_of_smaller_images_survives_a_broken_exif_block(tmp_path):
    "The orientation is copied into the smaller JPEG, unless Pillow cannot read its block."
    (tmp_path/'photos'/'a').mkdir(parents=True)
    file = io.BytesIO()
    Image.new('RGB', (80, 60)).save(file, 'PNG')
    png, block = file.getvalue(), b'eXIfxx'
    chunk = struct.pack('>I', len(block) - 4) + block + struct.pack('>I', zlib.crc32(block))
    (tmp_path/'photos'/'a'/'x.png').write_bytes(png[:33] + chunk + png[33:])
    report = write_pack(ImageDataset(tmp_path/'photos'), tmp_path/'packed', short_side=32)
    assert report.num_samples == 1 and ImageDataset(tmp_path/'packed')[0][0].size == (42, 32)


# ---- further fields: masks, weights, boxes

def segmented(root: Path, sizes=((90, 60), (60, 90), (40, 40), (130, 70), (71, 53))) -> Path:
    "Images whose colors encode the indexes in their masks of random blocks; mask names end in .png."
    rng = np.random.default_rng(0)
    for kind in 'images', 'masks': (root/kind).mkdir(parents=True)
    for k, (width, height) in enumerate(sizes):
        mask = rng.integers(0, 6, (height // 8 + 1, width // 8 + 1), np.uint8).repeat(8, 0).repeat(8, 1)[:height, :width]
        Image.fromarray(np.stack([40 * mask, 255 - 40 * mask, mask * 0], -1)).save(root/'images'/f'{k}.png')
        Image.fromarray(mask).save(root/'masks'/f'{k}.png')
    return root


def listed_rows(root: Path) -> Path:
    "A table of these images with all kinds of values; boxes are strings, as in CSV."
    rows = [dict(path=f'images/{k}.png', label='ab'[k % 2], share=k + 0.1, boxes=[[1.5, 2, 3, k]], text=f'Ünïcode {k}', age=k,
                 none=None, both={'a': [k]}, mask=f'masks/{k}.png') for k in range(5)]
    (root/'t.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    return root/'t.jsonl'


ALL = dict(weight_key='share', fields=['boxes', 'text', 'age', 'none', 'both'], mask_key='mask')


def as_it_is(value, geometry): return value


def test_a_pack_keeps_the_masks_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 8000)
    source = ImageDataset(segmented(tmp_path/'data')/'images', masks=tmp_path/'data'/'masks')
    assert write_pack(source, tmp_path/'pack').num_shards > 1 and check_pack(tmp_path/'pack') == []
    packed = ImageDataset(tmp_path/'pack')
    assert packed.field_names == ['image', 'mask'] and packed.classes == [] and 'samples have no target' in repr(packed)
    raw = [((tmp_path/'data'/'images'/f'{k}.png').read_bytes(), (tmp_path/'data'/'masks'/f'{k}.png').read_bytes()) for k in range(5)]
    assert [packed.reader[k] for k in range(5)] == raw and packed.filenames() == source.filenames()
    for k in range(5):
        image, mask = packed[k]
        assert mask.mode == 'L' and np.array_equal(40 * np.asarray(mask), np.asarray(image)[..., 0])
    for settings in (dict(num_workers=0), dict(num_workers=2, worker_type='processes')):
        loader = create_loader(packed, 16, 2, is_training=False, device='cpu', follow={'mask': as_it_is}, **settings)
        found = [mask for _, masks in loader for mask in masks]
        assert found == [mask for _, mask in raw]
    without = ImageDataset(tmp_path/'pack', exclude=['0.png'])
    for chosen in (without, pickle.loads(pickle.dumps(without))):
        assert [chosen.reader[k] for k in range(4)] == raw[1:]


def test_a_pack_keeps_the_fields_of_a_table(tmp_path):
    source = ImageDataset(listed_rows(segmented(tmp_path/'data')), **ALL)
    write_pack(source, tmp_path/'pack')
    packed = ImageDataset(tmp_path/'pack')
    assert packed.field_names == source.field_names == [
        'image', 'target', 'weight', 'boxes', 'text', 'age', 'none', 'both', 'mask'] and packed.class_to_idx == {'a': 0, 'b': 1}
    for k in range(5):
        image, *others, mask = packed[k]
        assert others == [k % 2, k + 0.1, [[1.5, 2, 3, k]], f'Ünïcode {k}', k, None, {'a': [k]}]
        assert list(map(type, others)) == list(map(type, source[k][1:-1])) and np.array_equal(mask, source[k][-1])
    chosen = pickle.loads(pickle.dumps(relabel(packed, {'a': None, 'b': 'x'})))
    assert [chosen.reader[k][1:] for k in range(2)] == [(0, *source.reader[row][2:]) for row in (1, 3)]


def test_other_programs_find_the_fields_in_the_shards(tmp_path):
    "Compared with Python's tarfile and WebDataset."
    wds = pytest.importorskip('webdataset')
    source = ImageDataset(listed_rows(segmented(tmp_path/'data')), **ALL)
    write_pack(source, tmp_path/'pack')
    shard, = (tmp_path/'pack').glob('*.tar')
    with tarfile.open(shard) as tar: names = sorted(name for name in tar.getnames() if name.startswith('000000003'))
    assert names == [f'000000003.{ending}' for ending in ('cls', 'json', 'mask.png', 'png')]
    for sample in wds.WebDataset(str(shard), shardshuffle=False):
        k = int(sample['__key__'])
        assert sample['mask.png'] == (tmp_path/'data'/'masks'/f'{k}.png').read_bytes() and int(sample['cls']) == k % 2
        values = dict(weight=k + 0.1, boxes=[[1.5, 2, 3, k]], text=f'Ünïcode {k}', age=k, none=None, both={'a': [k]})
        assert json.loads(sample['json']) == dict(fields=values)
    others = ReaderShards(tmp_path/'pack')
    assert [others[k][0] for k in range(5)] == [ImageDataset(tmp_path/'pack').reader[row][0] for row in map(int, (
        name.split('.')[0] for name in others.filenames()))]


def test_images_in_fields_are_kept_without_loss(tmp_path):
    hf = pytest.importorskip('datasets')
    masks = [Image.fromarray(np.full((6, 8), 40_000 + k, np.uint16)) for k in range(3)]
    def content(image): return dict(bytes=image.tobytes() and (file := io.BytesIO(), image.save(file, 'TIFF'))[0].getvalue(), path=None)
    features = hf.Features(image=hf.Image(), label=hf.Value('int64'), depth=hf.Image(), raw=hf.Value('binary'))
    table = hf.Dataset.from_dict(dict(
        image=[Image.new('RGB', (8, 6), (k, 0, 0)) for k in range(3)], label=[0, 1, 0], depth=list(map(content, masks)),
        raw=[b'a', b'', b'\0\1']), features=features)
    source = ImageDataset(table, additional_features=['depth', 'raw'])
    write_pack(source, tmp_path/'pack', split='train')
    packed = ImageDataset(tmp_path/'pack')
    assert packed.field_names == ['image', 'target', 'depth', 'raw']
    for k in range(3):
        _, target, depth, raw = packed[k]
        assert np.array_equal(depth, np.asarray(masks[k])) and depth.mode == 'I;16' and (target, raw) == (source[k][1], source[k][3])


@pytest.mark.parametrize('mode', ['L', 'P', 'I;16'])
def test_masks_follow_images_that_are_made_smaller(tmp_path, mode):
    "Compared with sampling by hand: each pixel is the one at its center. Colors encode the index, so a shift would be found."
    root = segmented(tmp_path/'data')
    for path in (root/'masks').iterdir():
        mask = Image.open(path)
        if mode == 'I;16': Image.fromarray(np.asarray(mask).astype(np.uint16) * 9000).save(path)
        elif mode == 'P':
            mask.putpalette([40 * k % 256 for k in range(768)])
            mask.save(path)
    source = ImageDataset(root/'images', masks=root/'masks')
    report = write_pack(source, tmp_path/'pack', short_side=48, quality=95, subsampling='4:4:4')
    packed = ImageDataset(tmp_path/'pack')
    assert report.kinds == {'encoded': 5} and [packed[k][1].size for k in range(5)] == [(72, 48), (48, 72), (40, 40), (89, 48), (64, 48)]
    for k in range(5):
        whole, (image, mask) = np.asarray(source[k][1]), packed[k]
        (old_height, old_width), (width, height) = whole.shape, mask.size
        rows = np.floor((np.arange(height) + 0.5) * old_height / height).astype(int)
        columns = np.floor((np.arange(width) + 0.5) * old_width / width).astype(int)
        assert mask.mode == source[k][1].mode and image.size == mask.size and np.array_equal(mask, whole[rows][:, columns])
        indexes = np.asarray(mask).astype(int) // (9000 if mode == 'I;16' else 1)
        assert (abs(np.asarray(image)[..., 0].astype(int) - 40 * indexes) < 20).mean() > 0.75   # all but the blurred edges


@pytest.mark.parametrize('exif_transpose', [False, True])
def test_a_mask_has_the_orientation_that_the_dataset_reads(tmp_path, exif_transpose):
    root = segmented(tmp_path/'data', sizes=[(90, 60)])
    mask = np.asarray(Image.open(root/'masks'/'0.png'))
    exif = Image.Exif()
    exif[0x0112] = 6   # to be turned clockwise
    Image.open(root/'images'/'0.png').save(root/'images'/'0.png', exif=exif)
    if exif_transpose: Image.fromarray(np.rot90(mask, -1)).save(root/'masks'/'0.png')
    source = ImageDataset(root/'images', masks=root/'masks', exif_transpose=exif_transpose)
    write_pack(source, tmp_path/'pack', short_side=48, quality=95)
    image, mask = ImageDataset(tmp_path/'pack', exif_transpose=exif_transpose)[0]
    assert image.size == mask.size == ((48, 72) if exif_transpose else (72, 48))
    assert (abs(np.asarray(image)[..., 0].astype(int) - 40 * np.asarray(mask)) < 20).mean() > 0.75


def test_what_cannot_follow_smaller_images_is_refused(tmp_path):
    table = listed_rows(segmented(tmp_path/'data'))
    for fields in (['boxes'], ['both']):
        with pytest.raises(ValueError, match=f"the field '{fields[0]}' has lists, and short_side=48 .*would no longer fit"):
            write_pack(ImageDataset(table, fields=fields), tmp_path/'pack', short_side=48)
    with pytest.warns(UserWarning, match='the numbers in age stay as they are'):
        write_pack(ImageDataset(table, fields=['age', 'text'], weight_key='share'), tmp_path/'pack', short_side=48)
    text = table.read_text().replace('[[1.5, 2, 3, 0]]', '"[[1.5, 2]]"')
    (tmp_path/'data'/'other.jsonl').write_text(text.splitlines()[0])
    with pytest.raises(ValueError, match="has lists"):
        write_pack(ImageDataset(tmp_path/'data'/'other.jsonl', fields=['boxes']), tmp_path/'other', short_side=48)
    assert not (tmp_path/'other'/'_info.json').exists()


def test_masks_that_cannot_be_packed(tmp_path):
    root = segmented(tmp_path/'data')
    Image.new('L', (60, 90)).save(root/'masks'/'0.png')
    (root/'masks'/'1.png').write_bytes(b'no mask')
    def made(on_error): return ImageDataset(root/'images', masks=root/'masks', on_error=on_error)
    with pytest.raises(ImageReadError, match='cannot read mask 1.png'): write_pack(made('raise'), tmp_path/'pack')
    with pytest.warns(RuntimeWarning): report = write_pack(made('skip'), tmp_path/'pack2', short_side=48)
    assert [bad.path for bad in report.left_out] == ['0.png', '1.png'] and report.num_samples == 3
    assert '60 × 90 pixels and the image 90 × 60' in report.left_out[0].cause
    with pytest.raises(ValueError, match="0.*'more' has a value of type tuple: a pack stores numbers"):
        class Own(list):
            field_names = 'image', 'target', 'more'
            def filename(self, index, basename=False, absolute=False): return f'{index}.png'
        write_pack(ImageDataset('', reader=Own([(Image.new('RGB', (8, 8)), 0, (1, 2))])), tmp_path/'pack3')


def test_kinds_of_fields_do_not_change(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_TRIED', 1)
    class Own(list):
        field_names = 'image', 'target', 'more'
        def filename(self, index, basename=False, absolute=False): return f'{index}.png'
    image = Image.new('RGB', (8, 8))
    with pytest.raises(ValueError, match="the field 'more' is a .* here, unlike in the previous samples"):
        write_pack(ImageDataset('', reader=Own([(image, 0, image), (image, 1, None)])), tmp_path/'pack')


def test_a_pack_with_other_values_does_not_go_on(tmp_path, monkeypatch):
    "A changed weight does not change the fingerprint."
    table = listed_rows(segmented(tmp_path/'data'))
    def killed(*args): raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(packing, 'finish_pack', killed)
        with pytest.raises(KeyboardInterrupt): write_pack(ImageDataset(table, **ALL), tmp_path/'pack')
    table.write_text(table.read_text().replace('"share": 0.1', '"share": 0.2'))
    with pytest.raises(ValueError, match='other settings, data, Pillow or'): write_pack(ImageDataset(table, **ALL), tmp_path/'pack')
    table.write_text(table.read_text().replace('"share": 0.2', '"share": 0.1'))
    write_pack(ImageDataset(table, **ALL), tmp_path/'pack')
    assert ImageDataset(tmp_path/'pack')[0][2] == 0.1


def test_versions_of_packs(packed, tmp_path):
    "Older versions read a pack without additional fields; for other packs, the error asks for a newer version."
    def version(root): return json.loads((root/'_info.json').read_text())['timmdata']['pack_version']
    write_pack(ImageDataset(listed_rows(segmented(tmp_path/'data')), **ALL), tmp_path/'pack')
    assert (version(packed), version(tmp_path/'pack')) == (2, 3)
    assert not (packed/'index'/'val'/'files.npy').exists()


def _drop(name): return lambda root: (root/'index'/'train'/f'{name}.npy').unlink()
def _outside(root):
    files = np.load(root/'index'/'train'/'files.npy')
    files['offset'] += 10**9
    np.save(root/'index'/'train'/'files.npy', files)
def _cut(root):
    data = np.load(root/'index'/'train'/'values.npy')
    data[data == ord('[')] = ord('{')
    np.save(root/'index'/'train'/'values.npy', data)
def _of_fields(**changes):
    def change(root):
        info = json.loads((root/'_info.json').read_text())
        info['timmdata']['splits']['train'].update(changes)
        (root/'_info.json').write_text(json.dumps(info))
    return change


@pytest.mark.parametrize('damage', [
    _drop('files'), _drop('values'), _drop('value_ends'), _outside, _cut, _of_fields(fields=[['mask', 'picture']]), _of_fields(fields=3),
    _of_fields(has_target=1), _of_fields(fields=[['a', 'image'], ['b', 'image']])],
    ids=['files', 'values', 'ends', 'outside', 'text', 'kind', 'fields', 'target', 'more'])
def test_damaged_fields_of_a_pack_are_named(tmp_path, damage):
    write_pack(ImageDataset(listed_rows(segmented(tmp_path/'data')), **ALL), tmp_path/'pack')
    damage(tmp_path/'pack')
    with pytest.raises((ValueError, SourceError), match='again'): ImageDataset(tmp_path/'pack')[0]
