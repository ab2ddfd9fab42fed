"Indexes kept in files: they know their root, and name nothing outside it."
import os
import shutil
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from grids import full

from timmdata.readers.file_index import FileIndex, keep_index, stamp
from timmdata.readers.folder import ReaderImageFolder
from timmdata.readers.sample_table import SampleTable
from timmdata.readers.tar import ReaderImageTar

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def two_roots(tmp_path):
    "Two folders with equal times and other files."
    for name in ('one', 'two'):
        (tmp_path/name/'a').mkdir(parents=True)
        (tmp_path/name/'a'/f'{name}.jpg').touch()
        for folder in (tmp_path/name/'a', tmp_path/name): os.utime(folder, ns=(10**18, 10**18))
    return tmp_path/'one', tmp_path/'two'


def test_an_index_of_another_root_is_not_believed(two_roots, tmp_path):
    for _ in range(2):
        for root in two_roots:
            assert ReaderImageFolder(root, index_file=tmp_path/'index.npz').filenames() == [f'a/{root.name}.jpg']


def test_a_relative_root_is_the_same_root(two_roots, tmp_path, monkeypatch):
    ReaderImageFolder(two_roots[0], index_file=tmp_path/'index.npz')
    before = (tmp_path/'index.npz').stat().st_mtime_ns
    monkeypatch.chdir(tmp_path)
    ReaderImageFolder('one', index_file='index.npz')
    assert (tmp_path/'index.npz').stat().st_mtime_ns == before


OUTSIDE = ['../../etc/passwd', 'a/../../x.jpg', os.path.abspath('x.jpg'), '..', 'a/..']


@pytest.mark.parametrize('name', OUTSIDE)
@pytest.mark.parametrize('where', ['path', 'second path', 'folder', 'source'])
def test_names_outside_the_root_are_refused(tmp_path, name, where):
    paths = [name, 'a/2.jpg'] if where == 'path' else ['a/1.jpg', name if where == 'second path' else 'a/2.jpg']
    folders = (name if where == 'folder' else 'a',)
    sources = ('', name) if where == 'source' else ('',)
    (tmp_path/'root/a').mkdir(parents=True)
    stamps = np.array([stamp(str(tmp_path/'root'), source if os.path.exists(tmp_path/'root'/source) else '') for source in sources])
    bad = FileIndex(SampleTable.from_samples(paths, [0, 0]), folders, sources, stamps, {})
    good = FileIndex(SampleTable.from_samples(['a/..b.jpg'], [0]), ('a',), ('',), stamps[:1], {})
    path, root = tmp_path/'index.npz', str(tmp_path/'root')
    keep_index(path, root, [], lambda: bad)
    assert list(keep_index(path, root, [], lambda: good).table) == [('a/..b.jpg', 0)]
    assert list(keep_index(path, root, [], lambda: bad).table) == [('a/..b.jpg', 0)]   # two dots in a name are no harm


def test_a_poisoned_index_reads_no_other_file(tmp_path):
    root, index_file = tmp_path/'root', tmp_path/'index.npz'
    (root/'a').mkdir(parents=True)
    (root/'a/11.jpg').write_bytes(b'mine')
    (tmp_path/'x.jpg').write_bytes(b'secret')
    ReaderImageFolder(root, index_file=index_file)
    with np.load(index_file) as arrays: kept = dict(arrays)
    kept['paths'] = np.frombuffer(b'../x.jpg', np.uint8)
    kept['ends'] = np.array([8])
    np.savez(index_file, **kept)
    assert ReaderImageFolder(root, index_file=index_file)[0][0] == b'mine'


def test_an_index_of_archives_follows_its_archives(tmp_path):
    root = tmp_path/'data'
    root.mkdir()
    def write(name, members):
        with tarfile.open(root/name, 'w') as tar:
            for member in members: tar.add(__file__, member)
    write('a.tar', ['x/1.jpg'])
    def read(): return ReaderImageTar(root, index_file=tmp_path/'index.npz').filenames()
    assert read() == read() == ['a.tar/x/1.jpg']
    write('b.tar', ['y/2.jpg'])
    assert read() == ['a.tar/x/1.jpg', 'b.tar/y/2.jpg']
    (root/'a.tar').unlink()
    assert read() == ['b.tar/y/2.jpg']
    shutil.move(root, tmp_path/'moved')
    root = tmp_path/'moved'
    assert read() == ['b.tar/y/2.jpg']


@full
def test_a_poisoned_index_asks_for_no_memory(tmp_path):
    "A compressed key of half a gigabyte in a file of half a megabyte; an array that says it has a terabyte."
    (tmp_path/'a').mkdir()
    good = FileIndex(SampleTable.from_samples(['a/1.jpg'], [0]), ('a',), ('a',), np.array([stamp(str(tmp_path), 'a')]), {})
    np.savez_compressed(tmp_path/'bomb.npz', key=np.zeros(1 << 29, np.uint8))
    with zipfile.ZipFile(tmp_path/'vast.npz', 'w') as file, file.open('key.npy', 'w') as member:
        np.lib.format.write_array_header_1_0(member, {'descr': '|u1', 'fortran_order': False, 'shape': (1 << 40,)})
    for name in ('bomb', 'vast'):
        tracemalloc.start()
        kept = keep_index(tmp_path/f'{name}.npz', str(tmp_path), [], lambda: good)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert list(kept.table) == [('a/1.jpg', 0)] and most < 8e6, name


def test_no_temporary_file_stays_when_an_index_cannot_be_written(tmp_path):
    index = FileIndex(SampleTable.from_samples(['a/1.jpg'], [0]), ('a',), ('',), np.array([stamp(str(tmp_path), '')]), {})
    (tmp_path/'kept.npz'/'in the way').mkdir(parents=True)
    with pytest.raises(OSError): keep_index(tmp_path/'kept.npz', str(tmp_path), [], lambda: index)
    assert [path.name for path in tmp_path.iterdir()] == ['kept.npz']
