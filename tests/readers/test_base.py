"One way to find a split, and one to open a file, for all readers."
import itertools
import json
import mmap
import os
import re
import socket

import numpy as np
import pytest
import torch
from grids import quick
from synthetic import JPEG
from torch.utils.data import Subset

from timmdata import ImageDataset, create_dataset, create_loader
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
    "Before they are loaded, once each, by whoever loads them; through exclude and torch's Subset as well."
    images = images_of(samples)
    dataset = ImageDataset('', Listening(tmp_path, images, bytes), exclude=['3'])
    loader = create_loader(Subset(dataset, range(len(dataset) - 1, -1, -1)), 32, 4, num_workers=num_workers, worker_type=workers,
                           device='cpu')
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
