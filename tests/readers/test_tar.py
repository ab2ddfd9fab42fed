"Tars: what a folder gives, a tar of it gives; timm's readers as oracle; damage, links, strange names, threads, forks."
import bz2
import gzip
import io
import lzma
import os
import pickle
import shutil
import subprocess
import tarfile
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from timm.data.readers.reader_image_in_tar import ReaderImageInTar
from timm.data.readers.reader_image_tar import ReaderImageTar as TimmReaderImageTar

import timmdata.readers.tar as tar_reader
from timmdata.core.faults import SourceError
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.readers.factory import create_reader, holds_tars
from timmdata.readers.folder import ReaderImageFolder
from timmdata.readers.tar import ReaderImageTar, choose_folders, index_tars, list_tar, sample_key

pytestmark = pytest.mark.timeout(60)
NAMES = ('n10/b_2.jpg', 'n10/b_10.jpg', 'n9/A.JPEG', 'n9/a.png', 'N11/deep/x/1.jpg', 'n9/notes.txt', 'n9/é ü.jpg')


def content(name: str) -> bytes: return b'content of ' + name.encode()


def write_tar(path: Path, names, format=tarfile.PAX_FORMAT, prefix: str = '') -> Path:
    "A tar whose members hold their own names; bytes in place of a name's own content: (name, bytes)."
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w', format=format) as tar:
        for name in names:
            name, data = name if isinstance(name, tuple) else (name, content(name))
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def all_of(reader) -> list: return [reader[k] for k in range(len(reader))]


def timms(reader) -> list:
    return [(reader[k][0].read(), int(reader[k][1])) for k in range(len(reader))]


# ---- as timm's readers, as folders

@pytest.mark.parametrize('format', [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_one_tar_is_as_timms(tmp_path, format):
    names = [*NAMES, 'n12/' + 'long' * 23 + '.jpg']
    path = write_tar(tmp_path/'a.tar', names, format)
    ours = ReaderImageTar(path)
    for oracle in (ReaderImageInTar(str(path)), TimmReaderImageTar(str(path))):
        assert all_of(ours) == timms(oracle) and ours.filenames() == oracle.filenames()
        assert ours.filenames(basename=True) == oracle.filenames(basename=True)
    assert ours.class_to_idx == ReaderImageInTar(str(path)).class_name_to_idx
    assert ours.filename(0, absolute=True).startswith(str(path))


def test_folder_of_tars_is_as_timms(tmp_path):
    for name in ('n10', 'n9', 'n2'): write_tar(tmp_path/'data'/f'{name}.tar', [f'{name}_{k}.JPEG' for k in (1, 10, 2)])
    oracle = ReaderImageInTar(str(tmp_path/'data'))
    ours = create_reader('', tmp_path/'data')
    assert isinstance(ours, ReaderImageTar) and all_of(ours) == timms(oracle)
    assert ours.class_to_idx == oracle.class_name_to_idx == {'n2': 0, 'n9': 1, 'n10': 2}
    assert ours.filenames(basename=True) == oracle.filenames(basename=True)


@pytest.mark.parametrize('in_folder', [False, True])
def test_tars_in_tars_are_as_timms(tmp_path, in_folder):
    inner = [(f'{name}.tar', write_tar(tmp_path/f'{name}.tar', [f'{name}_{k}.jpg' for k in range(3)]).read_bytes())
             for name in ('b', 'a')]
    path = write_tar(tmp_path/'data/outer.tar', [*inner, 'c/c_1.jpg'])
    root = path.parent if in_folder else path
    oracle, ours = ReaderImageInTar(str(root)), ReaderImageTar(root)
    assert all_of(ours) == timms(oracle) and ours.class_to_idx == oracle.class_name_to_idx == {'a': 0, 'b': 1, 'c': 2}
    assert ours.filename(0).endswith('a.tar/a_0.jpg')


@pytest.mark.parametrize('class_map', [{'n9': 4, 'x': 0}, {'n10': 0, 'n9': 0, 'x': 1}])
def test_class_map_is_as_timms(tmp_path, class_map):
    path = write_tar(tmp_path/'a.tar', NAMES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        ours = ReaderImageTar(path, class_map=class_map)
    assert all_of(ours) == timms(ReaderImageInTar(str(path), class_map=class_map))
    assert ('n10' in class_map) != any('left out' in str(w.message) and 'n10' in str(w.message) for w in caught)
    (tmp_path/'classes.txt').write_text('x\nn9\nn10\n')
    assert ReaderImageTar(path, class_map='classes.txt').class_to_idx == {'x': 0, 'n9': 1, 'n10': 2}   # beside the tar


def test_tar_of_a_folder_is_the_folder(samples, tmp_path):
    for prefix in ('.', 'data', 'a/b'):
        with tarfile.open(tmp_path/'a.tar', 'w') as tar:
            for split in ('train', 'val'): tar.add(samples/split, f'{prefix}/{split}')
        for split in ('train', 'validation'):
            folder, ours = ReaderImageFolder(samples, split), ReaderImageTar(tmp_path/'a.tar', split)
            assert ours.class_to_idx == folder.class_to_idx and all_of(ours) == all_of(folder)
            assert [name.removeprefix(prefix + '/') for name in ours.filenames()] == folder.filenames()


# ---- what timm does otherwise

def test_dots_and_hidden_files(tmp_path):
    for name in ('cat', 'dog'): write_tar(tmp_path/'data'/f'{name}.tar', ['1.jpg', '._1.jpg', '.hidden/2.jpg'], prefix='./')
    ours = ReaderImageTar(tmp_path/'data')
    assert ours.class_to_idx == {'cat': 0, 'dog': 1} and ours.filenames() == ['cat.tar/1.jpg', 'dog.tar/1.jpg']


def test_images_without_a_folder(tmp_path):
    flat = ReaderImageTar(write_tar(tmp_path/'flat.tar', ['1.jpg', '2.jpg']))
    assert flat.class_to_idx == {} and [target for _, target in all_of(flat)] == [-1, -1]
    with pytest.warns(UserWarning, match='left out: 1; .*: directly in the root'):
        mixed = ReaderImageTar(write_tar(tmp_path/'mixed.tar', ['readme.jpg', 'b/1.jpg', 'a/2.jpg']))
    assert mixed.class_to_idx == {'a': 0, 'b': 1} and mixed.filenames() == ['a/2.jpg', 'b/1.jpg']


def test_the_last_version_of_a_file_counts(tmp_path):
    path = write_tar(tmp_path/'a.tar', ['a/1.jpg', 'a/2.jpg', ('a/1.jpg', b'newer')])
    assert all_of(ReaderImageTar(path)) == [(b'newer', 0), (content('a/2.jpg'), 0)]


def test_links_and_other_types_are_told(tmp_path):
    (tmp_path/'a').mkdir()
    (tmp_path/'a/1.jpg').write_bytes(b'one')
    os.link(tmp_path/'a/1.jpg', tmp_path/'a/2.jpg')
    os.symlink('1.jpg', tmp_path/'a/3.jpg')
    (tmp_path/'a/4.heic').write_bytes(b'four')
    with tarfile.open(tmp_path/'a.tar', 'w') as tar: tar.add(tmp_path/'a', 'a')
    with pytest.warns(UserWarning, match='2 links'): reader = ReaderImageTar(tmp_path/'a.tar')
    assert len(reader) == 1
    with pytest.warns(UserWarning, match='2 links'):
        assert len(ReaderImageTar(tmp_path/'a.tar', extensions=('.jpg', '.heic'))) == 2


def test_same_names_in_two_tars_have_an_order(tmp_path, monkeypatch):
    for name in ('x10', 'x9'): write_tar(tmp_path/'data'/f'{name}.tar', ['1.jpg', '2.jpg'])
    listing = os.listdir
    for turn in (False, True):
        monkeypatch.setattr(os, 'listdir', lambda folder, turn=turn: sorted(listing(folder), reverse=turn))
        assert ReaderImageTar(tmp_path/'data').filenames() == [
            'x9.tar/1.jpg', 'x10.tar/1.jpg', 'x9.tar/2.jpg', 'x10.tar/2.jpg']


# ---- splits

@pytest.mark.parametrize('folders, split, chosen', [
    (['train/a', 'train/b', 'val/a'], 'train', [0, 1]), (['train/a', 'val/a'], 'eval', [1]),
    (['train/a', 'val/a'], None, [0, 1]), (['train/a', 'val/a'], '', [0, 1]), (['x/train/a', 'x/test/a'], 'test', [1]),
    (['train/a', 'val'], 'val', [1]), (['a', 'b'], 'train', [0, 1]), (['val/a', 'val/b'], 'val', [0, 1]),
    (['val/a', 'val/b'], 'train', [0, 1]), (['train/a', 'bus/a'], 'train', [0, 1]), ([''], 'train', [0]),
    (['val/a', 'valid/a', 'train/a'], 'valid', [1]), (['Train/a', 'Val/a'], 'train', [0])])
def test_split_is_chosen(folders, split, chosen):
    assert np.flatnonzero(choose_folders(folders, split, 'data.tar')).tolist() == chosen


def test_a_folder_beside_the_splits_belongs_to_none_of_them(tmp_path):
    "As in folders, which are the oracle: before, 'train' took everything, and 'val' was refused."
    names = ('train/cat/1.jpg', 'train/dog/2.jpg', 'val/cat/3.jpg', 'oddities/4.jpg', 'oddities/deep/5.jpg')
    for name in names:
        (tmp_path/'data'/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/'data'/name).write_bytes(content(name))
    path = write_tar(tmp_path/'data.tar', names)
    for split in ('train', 'val'):
        assert ReaderImageTar(path, split).filenames() == ReaderImageFolder(tmp_path/'data', split).filenames()
    with pytest.raises(ValueError, match='no split .test.*available: train, val'): ReaderImageTar(path, 'test')


def test_own_name_is_a_split(tmp_path):
    path = write_tar(tmp_path/'val.tar', ['a/1.jpg'])
    assert len(ReaderImageTar(path, 'validation')) == 1
    with pytest.raises(ValueError, match="no split 'test'"): ReaderImageTar(path, 'test')


def test_splits_as_tars_and_as_folders_of_tars(tmp_path):
    for split, classes in (('train', 'abc'), ('val', 'bc')):
        write_tar(tmp_path/'tars'/f'{split}.tar', [f'{name}/{split}_{name}.jpg' for name in classes])
        for name in classes: write_tar(tmp_path/'folders'/split/f'{name}.tar', [f'{split}_{name}.jpg'])
    for root in (tmp_path/'tars', tmp_path/'folders'):
        train, val = create_reader('', root), create_reader('', root, 'val')
        assert train.filenames(basename=True) == [f'train_{name}.jpg' for name in 'abc']
        assert [target for _, target in all_of(val)] == [1, 2]   # as in train, though a is missing
        assert len(create_reader('', root, None)) == 5


def test_a_tar_beside_folders_changes_nothing(tmp_path):
    write_tar(tmp_path/'data/left_over.tar', ['x/1.jpg'])
    (tmp_path/'data/cat').mkdir()
    (tmp_path/'data/cat/1.jpg').write_bytes(b'')
    assert not holds_tars(tmp_path/'data') and isinstance(create_reader('', tmp_path/'data'), ReaderImageFolder)
    assert isinstance(create_reader('tar', tmp_path/'data'), ReaderImageTar)


# ---- damage

@pytest.mark.parametrize('compress, ending, command', [
    (gzip.compress, '.tar.gz', 'gunzip'), (gzip.compress, '.tgz', 'gunzip'), (gzip.compress, '.tar', 'gunzip'),
    (bz2.compress, '.tar.bz2', 'bunzip2'), (lzma.compress, '.tar.xz', 'unxz')])
def test_compressed_tar_is_an_error(tmp_path, compress, ending, command):
    path = tmp_path/f'a{ending}'
    path.write_bytes(compress(write_tar(tmp_path/'plain.tar', NAMES).read_bytes()))
    with pytest.raises(ValueError, match=rf'is compressed.*\({command}\)'): ImageDataset(path)


def test_no_truncation_passes(tmp_path):
    path = write_tar(tmp_path/'a.tar', NAMES)
    data, end = path.read_bytes(), max(offset + size for _, offset, size in list_tar(path))
    for size in range(0, end, 137):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match='damaged, truncated or not a tar'): list_tar(path)
    for size in (end, -(-end // 512) * 512):   # the end mark alone is lost
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match='damaged, truncated or not a tar'): list_tar(path)


@pytest.mark.parametrize('size', [600, 2**40, 2**62, 2**70])
def test_a_size_that_no_file_has_is_an_error_with_a_name(tmp_path, size):
    info = tarfile.TarInfo('a/huge.jpg')
    info.size = size
    (tmp_path/'a.tar').write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(512))
    with pytest.raises(ValueError, match=r'a\.tar is damaged.*a/huge\.jpg would extend past its end'): list_tar(tmp_path/'a.tar')


@pytest.mark.parametrize('size', [-512, -1024, -2**40])
def test_a_negative_size_does_not_lead_back_for_ever(tmp_path, size):
    "Python's tarfile before 3.13.6 reads the same header again and again (CVE-2025-8194)."
    data, path = io.BytesIO(), tmp_path/'a.tar'
    with tarfile.open(fileobj=data, mode='w') as tar:
        for name in ('a/1.jpg', 'a/2.jpg'): tar.addfile(tarfile.TarInfo(name))
    header = bytearray(data.getvalue()[512:1024])
    header[124:136] = (2**96 + size).to_bytes(12, 'big')
    header[148:156] = b'%06o\0 ' % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    path.write_bytes(data.getvalue()[:512] + header + data.getvalue()[1024:])
    with pytest.raises(ValueError, match=r'a\.tar is damaged'): list_tar(path)


@pytest.mark.parametrize('headers', [
    {'GNU.sparse.map': '0,x'}, {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.realsize': '9'}], ids=str)
def test_damage_that_tarfile_has_no_error_for_names_the_archive(tmp_path, headers):
    with tarfile.open(tmp_path/'a.tar', 'w') as tar:
        member = tarfile.TarInfo('a/1.jpg')
        member.pax_headers, member.size = headers, 3
        tar.addfile(member, io.BytesIO(b'abc'))
    with pytest.raises(ValueError, match=r'a\.tar is damaged'): list_tar(tmp_path/'a.tar')


def test_empty_and_useless_tars(tmp_path):
    with pytest.raises(ValueError, match='found no image'): ReaderImageTar(write_tar(tmp_path/'a.tar', ['a/b.txt']))
    with pytest.raises(ValueError, match='found no image'): ReaderImageTar(write_tar(tmp_path/'b.tar', []))
    with pytest.raises(ValueError, match='made for WebDataset'):
        ReaderImageTar(write_tar(tmp_path/'c.tar', ['1.jpg', '1.cls', '2.jpg', '2.cls']))
    with pytest.raises(FileNotFoundError): ReaderImageTar(tmp_path/'nothing.tar')


def test_changed_tar_is_no_sample_s_fault(tmp_path):
    path = write_tar(tmp_path/'a.tar', ['a/1.jpg', 'a/2.jpg'])
    dataset = ImageDataset(path, on_error='skip')
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(SourceError, match='has changed since it was indexed'): dataset[1]
    assert not dataset.bad_samples


# ---- the index

def test_index_file_is_used_and_renewed(tmp_path, monkeypatch):
    root, index = tmp_path/'data', tmp_path/'index.npz'
    for name in 'ab': write_tar(root/f'{name}.tar', ['1.jpg'])
    walks = []
    monkeypatch.setattr(tar_reader, 'list_tar', lambda path: walks.append(path) or list_tar(path))
    def read(**settings): return all_of(ReaderImageTar(root, index_file=index, **settings))
    first = read()
    assert read() == first and len(walks) == 2   # the second time no archive is opened
    write_tar(root/'b.tar', ['1.jpg', '2.jpg'])
    assert len(read()) == 3 and len(walks) == 4
    write_tar(root/'c.tar', ['1.jpg'])
    assert len(read()) == 4 and len(walks) == 7
    assert len(read(extensions='.jpg')) == 4 and len(walks) == 10   # other settings
    index.write_bytes(index.read_bytes()[:500])
    assert len(read()) == 4 and len(walks) == 13
    assert not [path for path in tmp_path.iterdir() if path.suffix == '.tmp']


def test_index_holds_no_pickle(tmp_path, monkeypatch):
    monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path/'cache'))
    path = write_tar(tmp_path/'a.tar', NAMES)
    index_tars(path, index_file='cache')
    (index,) = (tmp_path/'cache').iterdir()
    with np.load(index, allow_pickle=False) as z: assert all(z[name].dtype != object for name in z.files)
    class Evil:
        def __reduce__(self): return os.mkdir, (str(tmp_path/'evil'),)
    np.savez(index, key=np.array([Evil()], dtype=object))
    assert len(ReaderImageTar(path, index_file='cache')) == 6 and not (tmp_path/'evil').exists()


# ---- threads and processes

@pytest.fixture(params=[3, 150], ids=['kept open', 'more than are kept open'])
def many(request, tmp_path):
    "A reader of some archives, and what sample k must be."
    data = {k: bytes([k % 251]) * (1000 + 97 * k) for k in range(300)}
    for part in range(request.param):
        write_tar(tmp_path/'data'/f'{part}.tar', [(f'{k}.jpg', data[k]) for k in range(part, 300, request.param)])
    return ReaderImageTar(tmp_path/'data'), {k: (data[k], k % request.param) for k in range(300)}


def test_threads_do_not_mix_images(many):
    reader, data = many
    wrong = []
    def read(seed):
        for k in np.random.default_rng(seed).permutation(300):
            if reader[k] != data[k]: wrong.append(k)
    threads = [threading.Thread(target=read, args=[seed]) for seed in range(12)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong


def test_forks_do_not_mix_images(many):
    reader, data = many
    reader[0]   # open in the parent
    children = []
    for seed in range(4):
        pid = os.fork()
        if pid == 0:
            order = np.random.default_rng(seed).permutation(300)
            os._exit(0 if all(reader[k] == data[k] for k in order) else 1)
        children.append(pid)
    assert all(reader[k] == data[k] for k in range(300))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4


def test_files_are_closed_with_the_reader(many):
    reader, _ = many
    before = len(os.listdir('/proc/self/fd')) if Path('/proc/self/fd').exists() else pytest.skip('no /proc')
    copied = pickle.loads(pickle.dumps(reader))
    for k in range(9): copied[k]
    del copied
    assert len(os.listdir('/proc/self/fd')) <= before
    shutil.rmtree(reader.root)


def test_an_archive_after_the_end_of_an_archive_is_told(tmp_path):
    "cat a.tar b.tar > both.tar: readers of tars stop at the end of the first."
    for name in 'ab':
        with tarfile.open(tmp_path/f'{name}.tar', 'w') as tar:
            member = tarfile.TarInfo(f'{name}/0.jpg')
            member.size = 7
            tar.addfile(member, io.BytesIO(b'content'))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert len(list_tar(tmp_path/'a.tar')) == 1   # zeros fill up its last record, and are no archive
    (tmp_path/'both.tar').write_bytes((tmp_path/'a.tar').read_bytes() + (tmp_path/'b.tar').read_bytes())
    with pytest.warns(UserWarning, match=r'both.tar: .*18,944 bytes'):
        assert len(list_tar(tmp_path/'both.tar')) == 1


# ---- names, and members that are not in one piece

def test_keys_are_those_of_webdataset():
    from webdataset.tariterators import base_plus_ext
    for name in ('a.jpg', 'a.JPG', 'a.b.Left.JPG', 'x/a.jpg', 'x.y/a.jpg', 'x.y/a.b.cls', 'é ü.jpg', 'a', 'x.y/a', '.a.jpg', 'a.',
                 '__a.jpg', 'a/__b__.jpg'):
        key, extension = base_plus_ext(name)
        assert sample_key(name) == (None if key is None else (key, extension.lower()))
    assert sample_key('__meta__/a.jpg') is None and sample_key('__meta__') is None   # as its tar_file_iterator


def test_names_that_lead_out_are_read_as_by_timm(tmp_path):
    names = ['../cat/a.jpg', '/dog/b.jpg', './dog/c.jpg', '../../cat/d.jpg', 'cat/../../dog/e.jpg', 'dog/f..g.jpg']
    path = write_tar(tmp_path/'a.tar', names)
    oracle, ours = ReaderImageInTar(str(path)), ReaderImageTar(path)
    assert sorted((bytes(data), k) for data, k in all_of(ours)) == sorted(timms(oracle))
    assert ours.class_to_idx == oracle.class_name_to_idx == {'cat': 0, 'dog': 1}
    assert sorted(ours.filenames()) == ['cat/a.jpg', 'cat/d.jpg', 'dog/b.jpg', 'dog/c.jpg', 'dog/e.jpg', 'dog/f..g.jpg']
    index = tmp_path/'index.npz'
    first = ReaderImageTar(path, index_file=index)
    written = index.stat().st_mtime_ns
    assert list(ReaderImageTar(path, index_file=index).samples) == list(first.samples) and index.stat().st_mtime_ns == written
    inner = write_tar(tmp_path/'b.tar', [('../cat.tar', write_tar(tmp_path/'c.tar', ['../x.jpg']).read_bytes())])
    assert ReaderImageTar(inner).filenames() == ['cat.tar/x.jpg']
    for names in (['../cat/a.jpg', 'cat/a.jpg'], ['cat/a.jpg', '../cat/a.jpg'], ['../cat/a.jpg', '../../cat/a.jpg']):
        with pytest.raises(ValueError, match=r'has two files cat/a\.jpg, one of them as \.\./'):
            ReaderImageTar(write_tar(tmp_path/'d.tar', names))


@pytest.mark.skipif(shutil.which('tar') is None, reason='needs tar')
@pytest.mark.parametrize('format', ['gnu', 'posix', 'pax 0.0', 'pax 0.1'])
def test_a_sparse_file_is_told_and_the_others_are_read(tmp_path, format):
    (tmp_path/'cat').mkdir()
    for name in ('a.bmp', 'c.bmp', 'd.jpg'): (tmp_path/'cat'/name).write_bytes(content(name))
    with (tmp_path/'cat'/'b.bmp').open('wb') as file:
        for k in range(40):   # so many pieces that their map needs further headers
            file.seek(k * 200_000)
            file.write(b'some')
    kind, _, version = format.partition(' ')
    options = [f'--format={"posix" if version else kind}', *[f'--sparse-version={version}'] * bool(version)]
    subprocess.run(['tar', '-S', *options, '--sort=name', '-cf', 'a.tar', 'cat'], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path/'a.tar') as tar: assert tar.getmember('cat/b.bmp').issparse()
    with pytest.warns(UserWarning, match='1 links or sparse files'): ours = ReaderImageTar(tmp_path/'a.tar')
    assert all_of(ours) == [(content(name), 0) for name in ('a.bmp', 'c.bmp', 'd.jpg')]
    data = (tmp_path/'a.tar').read_bytes()
    with tarfile.open(tmp_path/'a.tar') as tar: begin = tar.getmember('cat/b.bmp').offset_data
    for size in (*range(512, begin, 512), begin + 100):   # inside its headers, and inside the file
        (tmp_path/'a.tar').write_bytes(data[:size])
        with pytest.raises(ValueError, match='damaged, truncated'): list_tar(tmp_path/'a.tar')


@pytest.mark.parametrize('kind', [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
                                  tarfile.SOLARIS_XHDTYPE])
@pytest.mark.parametrize('size', [2**33, 2**62, -512])
@pytest.mark.parametrize('is_inside', [False, True])
def test_a_header_of_gigabytes_is_damage_and_takes_no_memory(tmp_path, kind, size, is_inside):
    info = tarfile.TarInfo('a/huge.jpg')
    info.type, info.size = kind, abs(size)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = ((2**96 + size) if size < 0 else 2**95 + size).to_bytes(12, 'big')
    header[148:156] = b'%06o\0 ' % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    data = write_tar(tmp_path/'b.tar', ['a/1.jpg']).read_bytes()[:1024] + header + bytes(4096)
    path = write_tar(tmp_path/'a.tar', [('in.tar', data)]) if is_inside else tmp_path/'a.tar'
    if not is_inside: path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r'a\.tar is damaged'): list_tar(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally: tracemalloc.stop()
    assert peak < 40_000_000


@pytest.mark.parametrize('make', [
    lambda name: [(name, -512)], lambda name: [(name, 2**40)], lambda name: [(f'{name}.tar', 2000)],
    lambda name: [(name, 3)]], ids=range(4))
def test_no_name_of_a_member_reaches_a_message_raw(tmp_path, make):
    headers = b''
    for name, size in make('a/\x1b[31mred\x07.jpg'):
        info = tarfile.TarInfo(name)
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[124:136] = ((2**96 + size) if size < 0 else 2**95 + size).to_bytes(12, 'big')
        header[148:156] = b'%06o\0 ' % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
        headers += header
    (tmp_path/'\x1b[1ma.tar').write_bytes(headers + b'x' * 2048)
    with pytest.raises(ValueError, match=r'\\x1b\[1ma\.tar is damaged') as found: list_tar(tmp_path/'\x1b[1ma.tar')
    assert str(found.value).isprintable()


# ---- WebDataset shards are no classes

PHOTO_NAMES = [['a', 'b'], ['c', 'd']]


@pytest.mark.parametrize('names, message', [
    (['{}.jpg', '{}.txt'], r'has \.txt files next to.*no class from \.txt.*class_map=\{.*0'), (['{}.jpg', '{}.json'], 'pass target_key='),
    (['{}.JPG', '{}.JSON'], 'pass target_key='), (['{}.jpg', '{}.npy'], r'no class from \.npy'),
    (['{}.png', '{}.caption.txt'], r'\.caption\.txt'),
    (['{}.jpg', '{}.json', '{}.txt'], 'pass target_key='), (['./{}.jpg', './{}.txt'], r'\.txt'),
    (['{}.webp', '{}.cls2.json'], 'pass target_key=')])
@pytest.mark.parametrize('layout', ['tars', 'one', 'inside'])
def test_the_number_of_a_shard_is_never_a_class(tmp_path, names, message, layout):
    for k, keys in enumerate(PHOTO_NAMES[:1] if layout == 'one' else PHOTO_NAMES):
        write_tar(tmp_path/'in'/f'{k}.tar', [name.format(key) for key in keys for name in names])
    root = tmp_path/'in'
    if layout == 'one':
        root, message = root/'0.tar', message.partition('.*class_map')[0]
    if layout == 'inside':
        root = write_tar(tmp_path/'all.tar', [(path.name, path.read_bytes()) for path in sorted(root.iterdir())])
    with pytest.raises(ValueError, match=f'made for WebDataset.*{message}' if 'pass' in message else message): ImageDataset(root)
    with pytest.raises(ValueError, match='made for WebDataset'): ImageDataset(root, index_file=tmp_path/'index.npz')
    with pytest.raises(ValueError, match='made for WebDataset'): ImageDataset(root, index_file=tmp_path/'index.npz')   # from its file


def test_archives_that_are_classes_stay_classes(tmp_path):
    for name in ('cat', 'dog'):
        write_tar(tmp_path/'plain'/f'{name}.tar', [f'{name}_1.jpg', f'{name}_1.png', f'{name}.2.jpg', 'readme.txt', 'LICENSE',
                                                     '.x.txt', '.x.jpg'])
        write_tar(tmp_path/'sidecars'/f'{name}.tar', [f'{name}.jpg', f'{name}.xmp'])
    yolo = write_tar(tmp_path/'yolo.tar', ['cat/a.jpg', 'cat/a.txt', 'dog/b.jpg', 'dog/b.txt', 'dog/b.json', 'labels/c.txt'])
    assert ImageDataset(tmp_path/'plain').class_to_idx == ReaderImageInTar(str(tmp_path/'plain')).class_name_to_idx == {'cat': 0, 'dog': 1}
    assert ImageDataset(yolo).class_to_idx == ReaderImageInTar(str(yolo)).class_name_to_idx == {'cat': 0, 'dog': 1}
    with pytest.raises(ValueError, match=r"class_map=\{'cat': 0, 'dog': 1, …\}"): ImageDataset(tmp_path/'sidecars')
    chosen = ImageDataset(tmp_path/'sidecars', class_map={'cat': 0, 'dog': 1})
    assert chosen.targets == [0, 1] and chosen.filenames() == ['cat.tar/cat.jpg', 'dog.tar/dog.jpg']
    with pytest.raises(ValueError, match='made for WebDataset'): ImageDataset(tmp_path/'sidecars', class_map={3: 0, 4: 1})


def test_labels_in_folders_are_not_ignored(tmp_path):
    path = write_tar(tmp_path/'a.tar', ['x/a.left.jpg', 'x/a.right.jpg', 'x/a.cls'])
    with pytest.raises(ValueError, match='pass input_key='): ReaderImageTar(path)
    late = write_tar(tmp_path/'b.tar', [*(f'{k}.jpg' for k in range(70)), *((f'{k}.cls', b'%d' % (k % 3)) for k in range(70))])
    with pytest.raises(ValueError, match="pass input_key=, the extension of the images, such as 'jpg'"): ImageDataset(late)
    found = ImageDataset(late, input_key='jpg')   # what the message says
    assert found.targets == [k % 3 for k in range(70)] and bytes(found.reader[5][0]) == content('5.jpg')
