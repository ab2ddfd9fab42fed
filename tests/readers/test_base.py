"One way to find a split, and one to open a file, for all readers."
import copy
import gc
import io
import itertools
import json
import mmap
import os
import re
import shutil
import socket
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from grids import quick
from PIL import Image
from synthetic import JPEG
from torch.utils.data import Subset

from timmdata import ImageDataset, create_dataset, create_loader, write_pack
from timmdata.core.faults import ImageReadError
from timmdata.core.jpeg import Pixels
from timmdata.readers.base import Reader, choose_split, choose_splits, matching_splits, split_group
from timmdata.readers.tar import ReaderImageTar

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize('names, split, found', [
    (['train', 'val'], 'val', 'val'), (['train', 'validation'], 'val', 'validation'), (['Train', 'TEST'], 'testing', 'TEST'),
    (['val', 'validation'], 'validation', 'validation'), (['fold1', 'fold2'], 'fold2', 'fold2'), (['Fold1'], 'fold1', 'Fold1')])
def test_a_split_has_several_names(names, split, found):
    assert choose_split(names, split, 'here') == found and found in matching_splits(names, split)
    assert found.lower() in split_group(split)


def test_expressions_keep_what_is_in_brackets():
    splits = ['train', 'validation']
    assert choose_splits(splits, 'train[10%:20%]+val[:5]+train', 'here') == 'train[10%:20%]+validation[:5]+train'
    with pytest.raises(ValueError, match="no split 'test'"): choose_splits(splits, 'train+test[:3]', 'here')


def put_fifo(path): os.mkfifo(path)
def put_socket(path):
    with socket.socket(socket.AF_UNIX) as listening: listening.bind(os.path.relpath(path))   # a short path
def put_link_to_a_fifo(path):
    os.mkfifo(f'{path}.pipe')
    os.symlink(f'{path}.pipe', path)
def put_link_to_a_device(path): os.symlink('/dev/zero', path)
def put_folder(path): os.mkdir(path)


KINDS = [put_fifo, put_socket, put_link_to_a_fifo, put_link_to_a_device, put_folder]


@pytest.mark.timeout(20)
@quick(2, 'put', KINDS, ids=lambda put: put.__name__)
def test_what_is_no_file_is_an_error_with_its_name_and_waits_for_nothing(tmp_path, monkeypatch, put):
    "Put there after the folder was listed, as well as by a link."
    monkeypatch.chdir(tmp_path)
    (tmp_path/'cat').mkdir()
    for k in range(2): (tmp_path/f'cat/{k}.jpg').write_bytes(JPEG)
    dataset = ImageDataset(tmp_path)
    (tmp_path/'cat/1.jpg').unlink()
    put(tmp_path/'cat/1.jpg')
    for settings in (dict(num_workers=0), dict(num_workers=1, worker_type='processes')):
        with create_loader(dataset, 8, 1, device='cpu', **settings) as loader, \
                pytest.raises(ImageReadError, match=r'cat/1\.jpg \(index 1\)'): list(loader)
    if 'link' in put.__name__:   # another kind of file with an image's name is left out, with a warning
        with pytest.raises(ImageReadError, match=r'cat/1\.jpg .* not a regular file'): ImageDataset(tmp_path)[1]


@pytest.mark.timeout(20)
@pytest.mark.parametrize('put', KINDS[:4], ids=lambda put: put.__name__)
def test_what_is_no_archive_is_an_error_at_once(tmp_path, monkeypatch, put):
    monkeypatch.chdir(tmp_path)
    put(tmp_path/'photos.tar')
    with pytest.raises(OSError, match='photos.tar'): ReaderImageTar(tmp_path/'photos.tar')


@pytest.mark.parametrize('split', [1, True, 0.5, ['train']])
def test_a_split_that_is_no_text_is_refused(samples, split):
    table = dict(path=['val/cat/0000.jpg'], target=['cat'], split=['val'])
    for make in (lambda: ImageDataset(samples, split=split), lambda: create_dataset('', samples, split=split),
                 lambda: create_dataset('wds/', samples, split=split), lambda: ImageDataset(samples, table=table, split=split)):
        with pytest.raises(TypeError, match=f"split={re.escape(repr(split))}: must be a string such as 'train' or 'val', or None"): make()


# ---- bytes are any buffer, and a reader hears what comes

class Listening(Reader):
    "Images in one mapped file; what it hears goes to a file, which all processes share."
    is_thread_safe = True

    def __init__(self, folder, images, as_buffer):
        self.path, self.heard, self.as_buffer = str(folder/'all.bin'), str(folder/'heard.txt'), as_buffer
        self.ends = [0, *itertools.accumulate(map(len, images))]
        (folder/'all.bin').write_bytes(b''.join(images))

    def __len__(self): return len(self.ends) - 1

    def __getitem__(self, index):
        with open(self.path, 'rb') as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self.as_buffer(memoryview(mapped)[self.ends[index]:self.ends[index + 1]]), index

    def filename(self, index, basename=False, absolute=False): return f'{index}'

    def prefetch(self, indexes):
        with open(self.heard, 'a') as file: file.write(f'{list(indexes)}\n')


def images_of(samples) -> list[bytes]:
    "Six JPEGs and six PNGs."
    paths = [*sorted(samples.glob('val/*/0001.jpg'))[:6], *[path for path in sorted(samples.glob('oddities/*.png'))][:6]]
    return [path.read_bytes() for path in paths]


@quick(2, 'workers, num_workers', [('threads', 0), ('threads', 2), ('processes', 2)])
def test_a_reader_hears_the_samples_of_each_batch(samples, tmp_path, workers, num_workers):
    "Each sample is announced once before it is loaded, by the thread or process that loads it; also through exclude and torch's Subset."
    images = images_of(samples)
    dataset = ImageDataset('', Listening(tmp_path, images, bytes), exclude=['3'])
    loader = create_loader(Subset(dataset, range(len(dataset) - 1, -1, -1)), 32, 4, num_workers=num_workers, worker_type=workers,
                           device='cpu', persistent_workers=False)   # of one epoch only
    targets = [batch[1].tolist() for batch in loader]
    heard = [json.loads(line) for line in (tmp_path/'heard.txt').read_text().splitlines()]
    assert sorted(heard) == sorted(targets) and sum(map(len, heard)) == len(dataset) == len(images) - 1


@quick(1, 'as_buffer', [memoryview, bytearray])
@quick(2, 'backend', ['auto', 'torchvision', 'torchcodec', 'pillow'])
@quick(1, 'exif_transpose', [False, True])
def test_batches_of_any_buffer_are_those_of_bytes(samples, tmp_path, as_buffer, backend, exif_transpose):
    if backend == 'torchcodec': pytest.importorskip('torchcodec')
    made = []
    for number, kind in enumerate((bytes, as_buffer)):
        (tmp_path/f'{number}').mkdir()
        dataset = ImageDataset('', Listening(tmp_path/f'{number}', images_of(samples), kind), exif_transpose=exif_transpose)
        settings = dict(is_training=True, seed=0, num_workers=0, device='cpu', backend=backend)
        made.append(next(iter(create_loader(dataset, 32, 8, **settings))))
        kept = ImageDataset('', dataset.reader, load_bytes=True)[0][0]
        assert type(kept) is bytes and kept == images_of(samples)[0]
    assert all(torch.equal(*pair) for pair in zip(*made, strict=True))


def test_a_mapped_file_is_not_closed(samples):
    with open(next(samples.glob('val/*/0001.jpg')), 'rb') as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert np.array_equal(Pixels(mapped).read(), Pixels(mapped[:]).read()) and not mapped.closed


# ---- a relative root is below the folder in which the dataset was made

@pytest.fixture(scope='module')
def everywhere(tmp_path_factory) -> Path:
    "Four images of two classes: a folder, a tar, a table, a pack and a shard, beside a link to a folder elsewhere."
    root = tmp_path_factory.mktemp('relative')
    folder, names = root/'photos', [f'{name}/{k}.png' for name in ('cat', 'dog') for k in range(2)]
    for k, name in enumerate(names):
        (folder/name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8), (50 * k, 0, 0)).save(folder/name)
    with tarfile.open(root/'photos.tar', 'w') as tar:
        for name in names: tar.add(folder/name, name)
    (root/'shards').mkdir()
    with tarfile.open(root/'shards/train-0.tar', 'w') as tar:
        for k, name in enumerate(names):
            for ending, data in (('png', (folder/name).read_bytes()), ('cls', b'%d' % (k // 2))):
                item = tarfile.TarInfo(f'{k}.{ending}')
                item.size = len(data)
                tar.addfile(item, io.BytesIO(data))
    (folder/'labels.csv').write_text('path,label\n' + ''.join(f'{name},{name[:3]}\n' for name in names))
    write_pack(ImageDataset(folder), root/'pack')
    (root/'elsewhere/deep').mkdir(parents=True)
    (root/'link').symlink_to(root/'elsewhere/deep')
    (root/'elsewhere/photos').symlink_to(folder)   # link/../photos; without the link it would be photos itself
    return root


RELATIVE = {
    'folder': lambda: ImageDataset('photos'),
    'path': lambda: create_dataset('', Path('./photos/'), 'train'),
    'link': lambda: ImageDataset('link/../photos'),
    'torchvision': lambda: create_dataset('torch/image_folder', 'photos', ''),
    'tar': lambda: ImageDataset('photos.tar', index_file='tar.npz'),
    'table': lambda: ImageDataset('photos/labels.csv'),
    'frame': lambda: ImageDataset('photos', table={'path': ['cat/0.png', 'dog/1.png'], 'target': ['cat', 'dog']}),
    'excluded': lambda: ImageDataset('photos', exclude=['dog/0.png', 'cat/1.png']),
    'pack': lambda: ImageDataset('pack'),
    'shards': lambda: ImageDataset('shards'),
    'stream': lambda: create_dataset('wds/', 'shards', 'train-0.tar', num_samples=4)}
WORKERS = [dict(num_workers=0), dict(num_workers=1, worker_type='threads'), dict(num_workers=1, worker_type='processes')]


@pytest.mark.parametrize('kind', RELATIVE)
def test_a_change_of_the_working_directory_changes_no_dataset(everywhere, tmp_path, monkeypatch, kind):
    if kind == 'stream': pytest.importorskip('webdataset')
    monkeypatch.chdir(everywhere)
    dataset = RELATIVE[kind]()
    before = [(np.asarray(image).tolist(), target) for image, target in dataset]
    names = dataset.filenames() if hasattr(dataset, 'filenames') else []
    dataset = RELATIVE[kind]()   # which has read nothing
    monkeypatch.chdir(tmp_path)
    for settings in WORKERS:
        with create_loader(dataset, 8, 1, device='cpu', interpolation='nearest', mean=0, std=1, **settings) as loader:
            assert [int(targets[0]) for _, targets in loader] == [target for _, target in before]
    assert [(np.asarray(image).tolist(), target) for image, target in dataset] == before and len(before) in (2, 4)
    if not names: return
    assert dataset.filenames() == names and not any(map(os.path.isabs, names))   # and a root is shown as it was given
    assert str(everywhere) not in repr(dataset) + str(dataset.root)
    if kind == 'stream': return
    for path in dataset.filenames(absolute=True):
        container = path.partition('.tar')
        assert os.path.isfile(container[0] + container[1])


def test_a_root_is_read_where_its_links_lead_and_keeps_its_name(everywhere, tmp_path, monkeypatch):
    "As the system reads it: `..` after a link is the folder above where the link leads."
    monkeypatch.chdir(everywhere)
    dataset = ImageDataset('link/../photos')
    assert dataset.filename(0, absolute=True) == str(everywhere/'link/../photos/cat/0.png')
    assert os.path.samefile(dataset.filename(0, absolute=True), everywhere/'elsewhere/photos/cat/0.png')
    assert [path for path, _ in dataset.samples] == dataset.filenames(absolute=True)
    (tmp_path/'named').symlink_to(everywhere/'photos')
    monkeypatch.chdir(tmp_path)
    assert ImageDataset('named').filename(0, absolute=True) == str(tmp_path/'named/cat/0.png')


@pytest.mark.parametrize('settings', [
    dict(cache={'where': 'disk', 'directory': 'kept'}), dict(cache={'where': 'memory', 'directory': 'kept'}),
    dict(buffer={'directory': 'kept', 'batches': 4})], ids=['disk', 'memory', 'buffer'])
def test_a_change_of_the_working_directory_changes_no_cache_or_buffer(everywhere, tmp_path, monkeypatch, settings):
    "Data in memory is also removed at the end."
    (tmp_path/'first').mkdir()
    monkeypatch.chdir(tmp_path/'first')
    dataset = ImageDataset(everywhere/'photos')
    with create_loader(dataset, 8, 1, device='cpu', num_workers=1, **settings) as loader:
        monkeypatch.chdir(tmp_path)
        assert [int(targets[0]) for _, targets in copy.copy(loader)] == [0, 0, 1, 1]
    del loader
    gc.collect()
    assert os.listdir(tmp_path) == ['first'] and os.listdir(tmp_path/'first') == ['kept']
    if settings.get('cache', {}).get('where') == 'memory':
        assert [*(tmp_path/'first/kept').glob('*/*/*')] == []


def test_a_file_that_vanished_is_named_with_the_folder_in_which_it_was(everywhere, tmp_path, monkeypatch):
    shutil.copytree(everywhere/'photos', tmp_path/'photos')
    shutil.copy(everywhere/'photos.tar', tmp_path/'photos.tar')
    monkeypatch.chdir(tmp_path)
    for root, lost in {'photos': 'photos/cat/0.png', 'photos.tar': 'photos.tar'}.items():
        dataset = ImageDataset(root)
        os.unlink(lost)
        with pytest.raises(OSError, match=re.escape(str(tmp_path/lost))): dataset[0]
