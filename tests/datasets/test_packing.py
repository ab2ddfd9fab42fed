"Packs: the source data set, WebDataset, timm and DALI as oracles; kills, full disks, damage; a million samples."
import errno
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from loader_parts import is_alive, program, wait_until
from PIL import Image

from timmdata import ImageDataset, create_loader
from timmdata.core.faults import ImageReadError, SourceError
from timmdata.core.restarts import encode_jpeg
from timmdata.datasets import packing
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.datasets.packing import PackSettings, check_pack, pack
from timmdata.datasets.relabel import LabelMap, relabel
from timmdata.datasets.wrappers import fingerprint
from timmdata.inspection.inspection import inspect
from timmdata.readers.pack import ROW, ReaderPack, ReaderShards, open_index, save_index
from timmdata.readers.sample_table import LabelLists, SampleTable

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope='module')
def val(samples) -> ImageDataset: return ImageDataset(samples, split='val')


@pytest.fixture(scope='module')
def packed(val, tmp_path_factory) -> Path:
    "Photographs with segments, in four shards."
    root = tmp_path_factory.mktemp('packed')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, '_SHARD_BYTES', 800_000)
        report = pack(val, root, num_workers=2)
    assert report.num_shards == 4 and report.num_samples == len(val) and report.kinds == {'segments': len(val)}
    return root


def all_bytes(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob('*')) if path.is_file()}


def batches(dataset, **settings) -> list:
    loader = create_loader(dataset, 48, 16, is_training=True, seed=7, device='cpu', **{'num_workers': 0, **settings})
    return [(images.clone(), targets.clone()) for images, targets in loader]


def same(one, other) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(one, other))


# ---- the data set that was packed

@pytest.mark.parametrize('format', ['jpeg', 'keep'])
def test_samples_names_and_batches_are_those_of_the_source(val, packed, tmp_path, format):
    if format == 'keep':
        pack(val, tmp_path, format='keep', num_workers=0)
        packed = tmp_path
    found = ImageDataset(packed, split='val')
    assert [(image.tobytes(), target) for image, target in found] == [(image.tobytes(), target) for image, target in val]
    assert found.filenames() == val.filenames() and found.class_to_idx == val.class_to_idx and found.targets == val.targets
    assert fingerprint(found.reader) != '' and found.reader.samples.paths.tobytes() == val.reader.samples.paths.tobytes()
    assert same(batches(found), batches(val))


@pytest.mark.parametrize('settings', [dict(workers='threads'), dict(workers='processes'), dict(multiprocessing_context='spawn')])
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


@pytest.mark.parametrize('settings', [dict(short_side=64), dict(format='raw')])
def test_a_state_does_not_move_to_other_pixels(val, packed, tmp_path, settings):
    def loader_of(dataset): return create_loader(dataset, 48, 16, is_training=True, seed=7, device='cpu', num_workers=0)
    pack(val, tmp_path, num_workers=0, **settings)
    small, lossless, source = (loader_of(ImageDataset(root, split='val')) for root in (tmp_path, packed, val.root))
    half = torch.utils.data.Subset(ImageDataset(tmp_path, split='val'), range(40))
    for loader, other in (small, source), (source, small), (small, lossless), (lossless, small):
        with pytest.raises(ValueError, match='changed_pixels was .*(none|format=)'): loader.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match='changed_pixels'): loader_of(half).load_state_dict(
        loader_of(torch.utils.data.Subset(val, range(40))).state_dict())
    for loader in small, lossless, source:
        loader.load_state_dict(loader.state_dict())
        state = source.state_dict()
        del state['settings']['changed_pixels']   # as before they were compared: dataset and samples are the same for all
        loader.load_state_dict(state)


def test_selections_work_as_on_folders(val, packed):
    name = val.filename(3)
    left = ImageDataset(packed, split='val', exclude=[name])
    assert len(left) == len(val) - 1 and name not in left.filenames()
    mapped = relabel(ImageDataset(packed, split='val'), LabelMap({'cat': 'animal', 'coffee': 'drink'}))
    assert [target for _, target in mapped] == [target for _, target in relabel(val, LabelMap({'cat': 'animal', 'coffee': 'drink'}))]
    with pytest.warns(UserWarning, match='64 images are left out'):
        numbered = ImageDataset(packed, split='val', class_map={'coffee': 0, 'cat': 5})
    assert numbered.targets == [0 if 'coffee' in name else 5 for name in val.filenames() if 'coffee' in name or 'cat/' in name]
    assert all(pickle.loads(pickle.dumps(reader)).filename(2) == reader.filename(2) for reader in (left.reader, numbered.reader))
    with pytest.raises(ValueError, match='none of the classes'): ImageDataset(packed, split='val', class_map={'xyz': 0})
    with pytest.raises(ValueError, match="there is no split 'test'"): ImageDataset(packed, split='test')
    with pytest.raises(TypeError, match='index_file'): ImageDataset(packed, split='val', index_file='x')


def test_what_has_no_file_of_its_own_says_so(packed):
    dataset = ImageDataset(packed, split='val')
    with pytest.raises(AttributeError, match='has no file of its own'): _ = dataset.samples
    assert 'samples: 80' in repr(dataset) and '<img' in dataset._repr_html_()


def test_a_pack_is_inspected_as_its_folder(val, packed, tmp_path):
    found, expected = (inspect({'val': dataset}, tmp_path/name, exact=True, num_threads=1)
                       for name, dataset in (('packed', ImageDataset(packed, split='val')), ('folder', val)))
    assert str(found).replace('packed', 'folder') == str(expected)


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


def test_dali_reads_the_shards_by_their_index(val, packed):
    fn = pytest.importorskip('nvidia.dali.fn')
    from nvidia.dali import pipeline_def
    shards = sorted(map(str, packed.glob('*.tar')))

    @pipeline_def(batch_size=16, num_threads=1, device_id=None)
    def read():
        indexes = sorted(map(str, packed.glob('index/val/*.idx')))
        images, targets = fn.readers.webdataset(paths=shards, index_paths=indexes, ext=['jpg', 'cls'], name='reader')
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

def test_bytes_depend_on_nothing_but_the_settings(val, packed, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    pack(ImageDataset(val.root, split='val'), tmp_path/'again', num_workers=0)
    assert all_bytes(tmp_path/'again') == all_bytes(packed)
    pack(val, tmp_path/'other', num_workers=0, seed=1)
    assert all_bytes(tmp_path/'other')['val-000000.tar'] != all_bytes(packed)['val-000000.tar']


PACKS = '''
import sys
from timmdata import ImageDataset
from timmdata.datasets import packing
packing._SHARD_BYTES = 300_000
print('begin', flush=True)
packing.pack(ImageDataset({root!r}, split='val'), {out!r}, num_workers={num})
'''


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_pack_that_is_killed_goes_on_to_the_same_bytes(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, '_SHARD_BYTES', 300_000)
    start = time.monotonic()
    pack(val, tmp_path/'whole', num_workers=0)
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
        with suppress(FileExistsError): pack(val, tmp_path/'out', num_workers=0)   # it may have ended
        assert all_bytes(tmp_path/'out') == all_bytes(tmp_path/'whole')
        shutil.rmtree(tmp_path/'out')
    assert kills


def test_a_pack_that_is_killed_at_its_very_end_leaves_nothing(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing.shutil, 'rmtree', lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError): pack(val, tmp_path, num_workers=0)
    monkeypatch.undo()
    assert len(ImageDataset(tmp_path, split='val')) == len(val) and (tmp_path/'.packing-val').is_dir()
    with pytest.raises(FileExistsError): pack(val, tmp_path, num_workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['_info.json', 'index', 'val-000000.tar']


def test_interrupts_end_a_pack_and_its_processes(val, tmp_path):
    run = program(PACKS.format(root=str(val.root), out=str(tmp_path/'out'), num=2))
    try:
        run.wait_for('begin')
        time.sleep(0.4)
        run.process.send_signal(2)
        code, _, errors = run.end(20)
        assert code != 0 and errors.rstrip().endswith('KeyboardInterrupt')
    finally: run.kill()
    assert not list((tmp_path/'out'/'.packing-val').glob('*.tar'))


def test_another_pack_is_not_mixed_in(val, packed, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match="has a split 'val' already"): pack(val, packed, num_workers=0)
    monkeypatch.setattr(packing._Packing, 'finish', lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError): pack(val, tmp_path, num_workers=0)
    monkeypatch.undo()
    for other in (dict(short_side=64), dict(seed=1), dict(format='keep')):
        with pytest.raises(ValueError, match='begun with other settings'): pack(val, tmp_path, num_workers=0, **other)
    assert pack(val, tmp_path, num_workers=0).num_samples == 80
    train = pack(ImageDataset(val.root, split='train'), tmp_path, format='keep', num_workers=0)
    assert train.split == 'train' and sorted(part.split for part in check_pack(tmp_path)) == ['train', 'val']
    with pytest.raises(ValueError, match='has the splits val, train'): ImageDataset(tmp_path, split=None)


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
    with pytest.raises(ValueError, match=r'Give a folder of its own, such as .*(photos|copy|ant)-packed'):
        pack(ImageDataset(source, split=None), out, 'all', num_workers=0)
    assert all_bytes(tmp_path) == before and ImageDataset(photos, split=None).class_to_idx == classes == {'ant': 0, 'zebra': 1}


def test_a_pack_is_not_written_into_archives_nor_among_the_files_of_a_table(photos, tmp_path):
    def refused(dataset, out):
        with pytest.raises(ValueError, match='Give a folder of its own'): pack(dataset, out, 'all', num_workers=0)
    archive = shutil.make_archive(str(tmp_path/'tars'/'train'), 'tar', photos/'train')
    refused(ImageDataset(archive), tmp_path/'tars')
    refused(ImageDataset(tmp_path/'tars'), tmp_path/'tars'/'packed')
    (tmp_path/'here').mkdir()
    (tmp_path/'here'/'t.csv').write_text('path,label\n../photos/train/ant/1.jpg,a\n')
    table = ImageDataset(tmp_path/'here'/'t.csv', split=None)
    refused(table, photos/'train'/'ant'/'packed')
    refused(table, photos)
    assert pack(table, tmp_path/'here'/'packed', 'all', num_workers=0).num_samples == 1


SLOWLY = '''
import sys, time
from timmdata import ImageDataset
from timmdata.datasets import packing
write = packing._Packing.write
def slowly(self, number, *args):
    write(self, number, *args)
    print('begun', flush=True)
    if number == 0: sys.stdin.readline()
packing._Packing.write = slowly
packing.pack(ImageDataset({root!r}, split={split!r}), {out!r}, num_workers=1)
'''


@pytest.mark.parametrize('split', ['val', 'train'])
def test_a_second_packer_of_a_folder_is_refused_until_the_first_has_ended(photos, tmp_path, split):
    first = subprocess.Popen([sys.executable, '-c', SLOWLY.format(root=str(photos), split='val', out=str(tmp_path/'out'))],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout.readline() == b'begun\n'
        with pytest.raises(BlockingIOError, match='another program packs into .*out: wait until it has ended'):
            pack(ImageDataset(photos, split=split), tmp_path/'out', short_side=64, num_workers=0)
        if split == 'val': first.communicate(b'\n', 60)
    finally:
        first.kill()   # and its lock is free
        first.communicate()
    if split == 'val': assert [part.problems for part in check_pack(tmp_path/'out')] == [[]]
    else:
        def packed(): return pack(ImageDataset(photos, split='train'), tmp_path/'out', num_workers=0)
        wait_until(lambda: not is_packed_into(packed), 'the lock is held', 10)
        assert [part.split for part in check_pack(tmp_path/'out')] == ['train']
    assert not (tmp_path/'out'/'.packing.lock').exists()


def is_packed_into(packed) -> bool:
    try: packed()
    except BlockingIOError: return True
    return False


def test_an_encoder_that_outlives_its_program_does_not_hold_the_lock(photos, tmp_path):
    code = SLOWLY.replace('num_workers=1', 'num_workers=2').format(root=str(photos), split='val', out=str(tmp_path/'out'))
    first = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    encoders = []
    try:
        assert first.stdout.readline() == b'begun\n'
        encoders = psutil.Process(first.pid).children()
        assert len(encoders) == 2
        encoders[0].suspend()
        first.kill()
        first.wait(10)
        assert pack(ImageDataset(photos, split='val'), tmp_path/'out', num_workers=2).num_samples == 2
        encoders[0].resume()
        wait_until(lambda: not any(map(is_alive, encoders)), 'processes that encode are left', 10)
    finally:
        for process in first, *encoders:
            with suppress(psutil.NoSuchProcess): process.kill()
        first.communicate()


LOCKED = '''
import os, threading, time, warnings
from timmdata import ImageDataset, pack
from timmdata.core import processes
processes._SECONDS_TO_BEGIN = 0.7
lock = threading.Lock()
os.register_at_fork(after_in_child=lock.acquire)
lock.acquire()
if {seconds}: threading.Timer({seconds}, lock.release).start()
warnings.simplefilter('always')
print(pack(ImageDataset({root!r}, split='val'), {out!r}, num_workers=2).num_samples)
'''


@pytest.mark.parametrize('seconds', [0, 1])
def test_an_encoder_that_does_not_begin_is_replaced(photos, tmp_path, seconds):
    "A thread holds a lock that each copy of the program takes first: for ever, or for a second."
    run = program(LOCKED.format(root=str(photos), out=str(tmp_path/'out'), seconds=seconds))
    try: code, out, errors = run.end(40)
    finally: run.kill()
    assert 'a forked process did not begin' in errors and 'another takes its place' in errors
    if seconds: assert (code, out) == (0, '2\n'), errors
    else: assert code == 1 and 'num_workers=0 to pack' in errors.splitlines()[-1], errors


class Ending:
    "Ends the process that gets it."
    def __reduce__(self): return os._exit, (9,)


class Broken(PackSettings):
    def __call__(self, data): return 1 / 0


@pytest.mark.parametrize('num_workers', [1, 2])
def test_what_ends_an_encoder_or_is_an_error_in_it_is_said(num_workers):
    def encoded(*items, kind=PackSettings):
        with packing._encoders(kind('keep'), num_workers) as encode: return list(encode(enumerate(items)))
    with pytest.raises(RuntimeError, match='was killed, .*give fewer num_workers'): encoded(Ending(), *[b''] * 30)
    with pytest.raises(ZeroDivisionError) as error: encoded(b'', kind=Broken)
    assert 'in __call__' in str(error.value.__cause__)
    images = [Image.new('RGB', (k, 9)) for k in range(1, 40)]
    assert [(k, image.width) for k, image in encoded(*images)] == [(k, k + 1) for k in range(39)]
    assert [type(image) for _, image in encoded(b'no image', images[0])] == [str, packing.Encoded]


def test_a_refused_packing_does_not_block_the_next(val, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(packing.shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(10, 9, 1_000_000))
        with pytest.raises(OSError, match='GB more'): pack(val, tmp_path/'full', num_workers=0)
        patch.setattr(packing.shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(10, 9, 10**12))
        patch.setattr(packing._Packing, 'write', lambda *args: 1 / 0)   # before a shard is done
        with pytest.raises(ZeroDivisionError): pack(val, tmp_path/'full', num_workers=0)
    assert pack(val, tmp_path/'full', short_side=64, num_workers=0).num_samples == 80
    bad = folder_of(tmp_path, a_jpg=b'no image')
    bad.faults.on_error = 'skip'
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match='no image could be read'):
        pack(bad, tmp_path/'none', 'all', num_workers=0)
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


def test_what_has_no_segments_stays_as_it_is(tmp_path, image):
    files = dict(a_png=saved(image, 'PNG'), b_jpg=saved(image, 'JPEG', progressive=True),
                 d_jpg=encode_jpeg(image))
    report = pack(folder_of(tmp_path, **files), tmp_path/'out', 'all', num_workers=0)
    reader = ReaderPack(tmp_path/'out')
    assert report.kinds == {'as it is': 3} and [bytes(data) for data, _ in reader] == list(files.values())


@pytest.mark.parametrize('subsampling', ['4:4:4', '4:2:2', '4:2:0'])
def test_smaller_photographs_are_those_of_pillow(tmp_path, image, subsampling):
    source = saved(image, 'JPEG', quality=95, subsampling=subsampling)
    gray = saved(image.convert('L'), 'JPEG')
    pack(folder_of(tmp_path, a_jpg=source, b_jpg=gray), tmp_path/'out', 'all', short_side=100, num_workers=0)
    found, second = (bytes(data) for data, _ in ReaderPack(tmp_path/'out'))
    width, height = image.size
    size = (100, int(100 * height / width)) if width < height else (int(100 * width / height), 100)
    small = Image.open(io.BytesIO(source)).convert('RGB').resize(size, Image.Resampling.BICUBIC)
    expected = saved(small, 'JPEG', quality=90, subsampling=subsampling)
    assert np.array_equal(Image.open(io.BytesIO(found)), Image.open(io.BytesIO(expected)))
    assert Image.open(io.BytesIO(second)).mode == 'L' and min(Image.open(io.BytesIO(second)).size) == 100


def test_raw_pixels_are_those_of_pillow(val, tmp_path):
    pack(val, tmp_path, format='raw', num_workers=0)
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
    pack(dataset, tmp_path/'out', 'all', short_side=100, num_workers=0)
    for turned in (False, True):
        size = ImageDataset(tmp_path/'out', split='all', exif_transpose=turned)[0][0].size
        assert (size[0] > size[1]) == ((image.width > image.height) != (exif_transpose or turned))


@pytest.mark.parametrize('settings, message', [
    (dict(format='png'), 'allowed are jpeg, keep, raw'), (dict(short_side=8), 'give pixels, 16 or more'),
    (dict(short_side=2.5), 'give pixels'),
    (dict(quality=0), 'give a whole number, 1..95'), (dict(subsampling='4:1:1'), 'allowed are keep, 4:4:4'),
    (dict(format='keep', short_side=256), 'leave short_side out'), (dict(split='a/b'), 'letters and digits')])
def test_settings_that_cannot_be_are_refused(val, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message): pack(val, tmp_path/'out', num_workers=0, **settings)
    assert not list(tmp_path.rglob('*.tar'))


def test_data_sets_that_a_pack_would_change_are_refused(samples, val, tmp_path):
    def refused(dataset, message, kind=ValueError):
        with pytest.raises(kind, match=message): pack(dataset, tmp_path, num_workers=0)
    refused(ImageDataset(samples, split='val', transform=lambda image: image), 'has a transform')
    refused(ImageDataset(samples, split='val', target_transform=abs), 'has a target_transform')
    refused(ImageDataset(samples, split='val', on_error='replace'), 'would pack a sample twice')
    refused(torch.utils.data.Subset(val, [0]), 'this is a Subset', TypeError)
    refused(IterableImageDataset(reader=[]), 'this is a IterableImageDataset', TypeError)
    with pytest.raises(ValueError, match="cannot be kept in format='raw'"):
        pack(ImageDataset(samples, split='val', input_img_mode='RGBA'), tmp_path, format='raw', num_workers=0)


# ---- targets

class Given:
    "A reader whose targets are known only when a sample is read."
    def __init__(self, files, targets): self.files, self.found = files, targets
    def __len__(self): return len(self.files)
    def __getitem__(self, index): return self.files[index], self.found[index]
    def filename(self, index, basename=False, absolute=False): return f'{index}.jpg'


@pytest.mark.parametrize('targets', [[3, 1, 2], [0.5, -1.25, 3.], [None] * 3, [[0., 1.], [2., 3.], [4., 5.]],
                                     [np.float32(0.1), np.float32(2), np.float32(-7)], [np.int64(4)] * 3])
def test_targets_come_back(tmp_path, image, targets):
    data = saved(image, 'JPEG')
    pack(ImageDataset('', Given([data] * 3, targets)), tmp_path, 'all', num_workers=0)
    found = [target for _, target in ImageDataset(tmp_path, split='all')]
    expected = [-1 if target is None else target for target in targets]
    assert np.array_equal(np.asarray(found), np.asarray(expected)) and not check_pack(tmp_path)[0].problems


def test_several_labels_come_back(val, tmp_path):
    lines = ['path,label', *(f'{name},{labels}' for name, labels in zip(val.filenames()[:3], ('a b', 'c', 'b')))]
    (tmp_path/'t.csv').write_text('\n'.join(lines))
    table = ImageDataset(val.root, table=str(tmp_path/'t.csv'), split=None, target_key='label', target_separator=' ')
    pack(table, tmp_path/'out', 'all', num_workers=0)
    found = ImageDataset(tmp_path/'out', split='all')
    assert found.targets == table.targets == [[0, 1], [2], [1]] and found.class_to_idx == table.class_to_idx
    assert np.array_equal([t for _, t in found], [t for _, t in table]) and not check_pack(tmp_path/'out')[0].problems


def test_a_target_that_cannot_be_kept_names_its_sample(tmp_path, image):
    dataset = ImageDataset('', Given([saved(image, 'JPEG')], [{'boxes': []}]))
    with pytest.raises(ValueError, match=r'0\.jpg has a target of type dict'): pack(dataset, tmp_path, 'all', num_workers=0)


# ---- bad files, full disks

def test_bad_files_go_by_the_rule_of_the_data_set(tmp_path, image):
    good = saved(image, 'JPEG')
    dataset = folder_of(tmp_path, a_jpg=good, b_jpg=good[:len(good) // 2], c_jpg=good, d_jpg=b'no image')
    with pytest.raises(ImageReadError, match=r'c/[bd]\.jpg'): pack(dataset, tmp_path/'out', 'all', num_workers=0)
    skipping = ImageDataset(tmp_path/'in', split=None, on_error='skip')
    with pytest.warns(RuntimeWarning, match='skipped'): report = pack(skipping, tmp_path/'other', 'all', num_workers=2)
    assert [bad.path for bad in report.left_out] == ['c/b.jpg', 'c/d.jpg'] and 'left out: 2' in str(report)
    found = ImageDataset(tmp_path/'other', split='all')
    assert found.filenames() == ['c/a.jpg', 'c/c.jpg']
    assert [image.tobytes() for image, _ in found] == [dataset[k][0].tobytes() for k in (0, 2)]
    for name in ('a', 'c'): (tmp_path/'in'/'c'/f'{name}.jpg').unlink()
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match='no image could be read'):
        pack(ImageDataset(tmp_path/'in', split=None, on_error='skip'), tmp_path/'none', 'all', num_workers=0)


def test_too_little_room_is_said_before(val, tmp_path, monkeypatch):
    monkeypatch.setattr(packing.shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(10, 9, 1_000_000))
    with pytest.raises(OSError, match=r'needs about 0\.00 GB more') as error: pack(val, tmp_path, num_workers=0)
    assert error.value.errno == errno.ENOSPC and not list(tmp_path.glob('*.tar'))


FULL = '''
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
'''


def test_a_disk_that_gets_full_leaves_what_can_go_on(val, tmp_path, monkeypatch):
    run = program(PACKS.replace('300_000', '800_000').format(root=str(val.root), out=str(tmp_path/'out'), num=0), first=FULL)
    try: code, _, errors = run.end(60)
    finally: run.kill()
    assert code == 1 and 'File too large' in errors and not list((tmp_path/'out'/'.packing-val').glob('*.tar'))
    monkeypatch.setattr(packing, '_SHARD_BYTES', 800_000)
    pack(val, tmp_path/'out', num_workers=0)
    assert not check_pack(tmp_path/'out')[0].problems


# ---- damage of a pack

@pytest.fixture
def copy(packed, tmp_path) -> Path: return Path(shutil.copytree(packed, tmp_path/'copy'))


def test_a_pack_that_is_not_whole_is_not_opened(copy):
    def refused(message, kind=ValueError):
        with pytest.raises(kind, match=message): ImageDataset(copy, split='val')
    shard, info = copy/'val-000002.tar', (copy/'_info.json').read_text()
    data = shard.read_bytes()
    shard.write_bytes(data[:-512])
    refused(r'val-000002\.tar has .* bytes, the index says')
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
    (copy/'_info.json').write_text(info.replace('"pack_version": 1', '"pack_version": 99'))
    refused('of version 99')
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


@pytest.mark.parametrize('where, message', [('image', 'another checksum'), ('target', 'another target'), ('name', 'lies elsewhere')])
def test_a_check_finds_damage(copy, where, message):
    shard = copy/'val-000001.tar'
    with tarfile.open(shard) as tar: image, target = tar.getmembers()[6:8]
    data, at = bytearray(shard.read_bytes()), dict(image=image.offset_data + 4000, target=target.offset_data, name=target.offset)[where]
    if where == 'name':
        info = tarfile.TarInfo('000000099.cls')
        info.size, info.mode = 1, 0o644
        data[at:at + 512] = info.tobuf(tarfile.USTAR_FORMAT)
    else: data[at] = data[at] ^ 1
    shard.write_bytes(data)
    found, = check_pack(copy)
    assert len(found.problems) == 1 and message in found.problems[0] and image.name in found.problems[0]


@pytest.mark.parametrize('kind', ['gone', 'empty', 'folder'])
def test_a_shard_that_is_not_there_any_more_is_no_bad_sample(copy, kind):
    dataset = ImageDataset(copy, split='val', on_error='skip')
    for path in copy.glob('*.tar'):
        path.unlink()
        if kind == 'empty': path.touch()
        if kind == 'folder': path.mkdir()
    message = dict(gone='is gone', empty='is empty', folder='cannot be read')[kind]
    loader = create_loader(dataset, 48, 16, is_training=True, device='cpu', num_workers=0)
    with pytest.raises(SourceError, match=rf'\.tar {message}'): next(iter(loader))
    assert not dataset.bad_samples


@pytest.mark.parametrize('file', ['names.npy', 'rows.npy', '000002.idx'])
def test_a_check_finds_a_changed_index(copy, file):
    path = copy/'index'/'val'/file
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    found, = check_pack(copy)
    assert f'{path} has another checksum' in found.problems
    info = json.loads((copy/'_info.json').read_text())
    del info['timmdata']['splits']['val']['index']   # as of packs that were made before
    (copy/'_info.json').write_text(json.dumps(info))
    assert len(check_pack(copy)[0].problems) == (file == 'rows.npy')


def test_a_check_ends_when_a_target_is_no_json(copy):
    shard = copy/'val-000001.tar'
    with tarfile.open(shard) as tar: target = tar.getmembers()[7]
    with shard.open('r+b') as file:
        file.seek(target.offset_data)
        file.write(b'{')
    found, = check_pack(copy)
    assert len(found.problems) == 1 and 'another target' in found.problems[0]


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


@pytest.mark.parametrize('change', [
    lambda split, ours, info: info.update(timmdata={'pack_version': 1}),
    lambda split, ours, info: info['timmdata'].update(splits=[1]),
    lambda split, ours, info: info['timmdata'].update(splits={}),
    lambda split, ours, info: info['timmdata']['splits'].update(other=ours),
    lambda split, ours, info: ours.pop('shard_bytes'),
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


def header(shape: str, descr: str = '<i8') -> bytes:
    "An .npy file that says what it has, and has nothing."
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
    return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


@pytest.mark.parametrize('name, content', [
    ('targets', np.full(80, -7)), ('targets', np.full(80, 10**15)), ('targets', np.full(80, 'x')), ('targets', np.array(3)),
    ('targets', header('(1000000000000000,)')), ('targets', header('(' * 100)), ('targets', header('(-5,)')), ('targets', header("'x'")),
    ('targets', header('(80,)', '|O')), ('names', np.zeros(3)), ('names', header('(10000000000000000000000,)')),
    ('name_ends', np.full(80, -1)), ('name_ends', np.full((80, 2), 1)), ('name_ends', np.linspace(0, 1, 80)),
    ('rows', np.zeros((80, 2), ROW)), ('rows', np.full(80, np.array((0, 50, 2**64 - 10, 0, 0, 0), ROW))),
    ('rows', np.full(80, np.array((9, 50, 10, 0, 0, 0), ROW)))])
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
        timmdata=dict(pack_version=1, splits=dict(train=dict(num_samples=num, class_to_idx=classes, shard_bytes=sizes))))))
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


def test_settings_describe_themselves():
    assert PackSettings().format == 'jpeg' and 'short_side=None' in repr(PackSettings())
