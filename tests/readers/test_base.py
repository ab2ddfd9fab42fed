"One way to find a split, and one to open a file, for all readers."
import os
import re
import socket

import pytest
from synthetic import JPEG

from timmdata import ImageDataset, create_dataset, create_loader
from timmdata.core.faults import ImageReadError
from timmdata.readers.base import Reader, choose_split, choose_splits, matching_splits, split_group
from timmdata.readers.tar import ReaderImageTar

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize('names, split, found', [
    (['train', 'val'], 'val', 'val'), (['train', 'validation'], 'val', 'validation'), (['Train', 'TEST'], 'testing', 'TEST'),
    (['val', 'validation'], 'validation', 'validation'), (['fold1', 'fold2'], 'fold2', 'fold2'), (['Fold1'], 'fold1', 'Fold1')])
def test_a_split_has_several_names(names, split, found):
    assert choose_split(names, split, 'here') == found and found in matching_splits(names, split)
    assert found.lower() in split_group(split)


@pytest.mark.parametrize('names, split, message', [
    (['val', 'valid'], 'eval', "'eval' could be any of val, valid in here: use its own name"),
    (['train'], 'val', "no split 'val' in here; there is: train. Ask again"), ([], 'val', 'there is: a, b. Ask again')])
def test_no_split_is_taken_for_another(names, split, message):
    with pytest.raises(ValueError, match=message): choose_split(names, split, 'here', 'Ask again', ['a', 'b'])


def test_expressions_keep_what_is_in_brackets():
    splits = ['train', 'validation']
    assert choose_splits(splits, 'train[10%:20%]+val[:5]+train', 'here') == 'train[10%:20%]+validation[:5]+train'
    with pytest.raises(ValueError, match="no split 'test'"): choose_splits(splits, 'train+test[:3]', 'here')


def test_a_reader_needs_three_methods():
    class Nothing(Reader): "No method."
    for use in (len, lambda reader: reader[0], lambda reader: reader.filename(0)):
        with pytest.raises(NotImplementedError): use(Nothing())
    assert not Nothing.is_thread_safe and not Nothing.class_to_idx and Nothing.targets is None


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
@pytest.mark.parametrize('put', KINDS, ids=lambda put: put.__name__)
def test_what_is_no_file_is_an_error_with_its_name_and_waits_for_nothing(tmp_path, monkeypatch, put):
    "Put there after the folder was listed, as well as by a link."
    monkeypatch.chdir(tmp_path)
    (tmp_path/'cat').mkdir()
    for k in range(2): (tmp_path/f'cat/{k}.jpg').write_bytes(JPEG)
    dataset = ImageDataset(tmp_path)
    (tmp_path/'cat/1.jpg').unlink()
    put(tmp_path/'cat/1.jpg')
    for settings in (dict(num_workers=0), dict(num_workers=1, workers='processes')):
        with create_loader(dataset, 8, 1, device='cpu', **settings) as loader, \
                pytest.raises(ImageReadError, match=r'cat/1\.jpg \(index 1\)'): list(loader)
    if 'link' in put.__name__:   # another kind of file with an image's name is left out, with a warning
        with pytest.raises(ImageReadError, match=r'cat/1\.jpg .* no regular file'): ImageDataset(tmp_path)[1]


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
        with pytest.raises(TypeError, match=f"split={re.escape(repr(split))}: give a text such as 'train' or 'val'; None reads all"): make()
