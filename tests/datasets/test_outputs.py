"Where commands write: outside the data, at a path that can be written."
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from synthetic import JPEG
from torchvision.datasets import ImageFolder

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.datasets.outputs import check_writable, data_folders, output_path, shortest
from timmdata.datasets.packing import write_pack
from timmdata.inspection import inspect


@pytest.fixture
def photos(tmp_path) -> Path:
    "Two splits of two classes."
    for name in ('train/ant', 'train/bee', 'val/ant'):
        (tmp_path/'photos'/name).mkdir(parents=True)
        (tmp_path/'photos'/name/'0.jpg').write_bytes(JPEG)
    return tmp_path/'photos'


def names(root: Path) -> list[str]: return sorted(os.path.join(folder, name) for folder, _, files in os.walk(root) for name in [*files, ''])


# ---- where a dataset reads; the oracle is where its files are

def test_folders_of_the_data_hold_all_its_files(photos, tmp_path):
    (photos/'train/link').symlink_to(shutil.copytree(photos/'val/ant', tmp_path/'elsewhere'))
    with tarfile.open(tmp_path/'photos.tar', 'w') as tar: tar.add(photos/'train', '.')
    (tmp_path/'table.csv').write_text('path,label\nphotos/val/ant/0.jpg,a\n')
    for root in photos, photos/'train', tmp_path/'table.csv', tmp_path/'photos.tar':
        dataset = ImageDataset(root)
        folders = data_folders(dataset.reader)
        for name in dataset.filenames(absolute=True):
            file = name if os.path.exists(name) else tmp_path/'photos.tar'
            assert any(Path(os.path.realpath(file)).is_relative_to(folder) for folder in folders), (root, name, folders)
    assert data_folders(ImageDataset(tmp_path/'table.csv').reader) == [photos.resolve()/'val/ant']   # not what is beside the table
    assert data_folders([(0, 0)]) == []


# ---- the default

@pytest.mark.parametrize('here, root', [
    ('photos', '.'), ('photos/train', '..'), ('photos/train/ant', '../..'), ('photos/train/ant', None), ('link', '.'),
    ('photos', '../link'), ('photos/train', '.')])
def test_the_default_is_beside_the_data_for_a_folder_in_it(photos, tmp_path, monkeypatch, here, root):
    (tmp_path/'link').symlink_to(photos)
    monkeypatch.chdir(tmp_path/here)
    found = output_path(None, 'inspection', [ImageDataset(root or photos).reader])
    assert found.resolve() == tmp_path.resolve()/'photos-inspection' and not found.exists()


@pytest.mark.parametrize('here, root', [('.', 'photos'), ('.', 'photos/train'), ('other', '../photos'), ('photos-2', '../photos')])
def test_the_default_is_here_outside_the_data(photos, tmp_path, monkeypatch, here, root):
    for name in ('other', 'photos-2'): (tmp_path/name).mkdir()
    monkeypatch.chdir(tmp_path/here)
    assert output_path(None, 'batch.png', [ImageDataset(root).reader], is_folder=False) == Path('batch.png')


@pytest.mark.parametrize('here, root', [
    ('photos', 'val'), ('photos', 'train/ant'), ('photos/train', 'ant'), ('photos/train', '../val'), ('photos/train', 'bee')])
def test_the_default_is_not_among_the_other_classes_and_splits(photos, tmp_path, monkeypatch, here, root):
    "`cd photos && timmdata inspect cat`"
    monkeypatch.chdir(tmp_path/here)
    reader = ImageDataset(root, split=None).reader
    assert output_path(None, 'inspection', [reader]).resolve() == tmp_path.resolve()/'photos-inspection'
    assert output_path('mine', 'inspection', [reader]) == Path('mine')   # where you want it


def test_a_folder_of_classes_alone_is_a_dataset_as_well(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos/'train')
    before = ImageFolder('.').class_to_idx
    found = inspect(ImageDataset('ant', split=None), exact=True, progress=False)
    assert found.out.resolve().parent == tmp_path.resolve() and ImageFolder('.').class_to_idx == before


def test_a_place_that_can_be_written_is_named(photos, tmp_path, monkeypatch):
    "Outputs go beside the data; if that fails, into the home directory or the folder of temporary files."
    monkeypatch.chdir(photos)
    reader, home = ImageDataset('.').reader, tmp_path/'home'
    home.mkdir()
    monkeypatch.setenv('HOME', str(home))
    monkeypatch.setenv('USERPROFILE', str(home))
    (tmp_path/'photos-inspection').write_text('a file is in the way')
    found = output_path(None, 'inspection', [reader])
    assert found.resolve() == home.resolve()/'photos-inspection'
    check_writable(found)
    monkeypatch.setenv('HOME', str(photos))
    monkeypatch.setenv('USERPROFILE', str(photos))
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))   # the data is no home of reports
    assert not output_path(None, 'batch.png', [reader], is_folder=False).resolve().is_relative_to(photos.resolve())


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='root may write anywhere')
def test_a_folder_without_permission_is_no_place(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    tmp_path.chmod(0o500)
    try: assert output_path(None, 'inspection', [ImageDataset('.').reader]).parent.resolve() != tmp_path.resolve()
    finally: tmp_path.chmod(0o700)


# ---- what is refused

@pytest.mark.parametrize('out', [
    'photos', 'photos/report', 'photos/train/ant/report', 'other/../photos/report', 'link/report', './photos/new/deep'])
def test_a_path_in_the_data_is_refused_with_one_that_works(photos, tmp_path, monkeypatch, out):
    (tmp_path/'link').symlink_to(photos)
    (tmp_path/'other').mkdir()
    monkeypatch.chdir(tmp_path)
    before, reader = names(tmp_path), ImageDataset('photos').reader
    with pytest.raises(ValueError, match='is inside .*: use a path outside, such as') as refused: output_path(out, 'report', [reader])
    advised = str(refused.value).rpartition('such as ')[2]
    assert output_path(advised, 'report', [reader]) == Path(advised) and Path(advised).resolve() == tmp_path.resolve()/'photos-report'
    assert names(tmp_path) == before   # nothing is left of the check


@pytest.mark.parametrize('out, is_folder, kind, message', [
    ('file', True, FileExistsError, 'it is a file: pass the name of a folder'), ('file/new', True, PermissionError, 'cannot be written'),
    ('photos', False, IsADirectoryError, 'it is a folder: pass the name of a file'),
    ('no/such/batch.png', False, FileNotFoundError, 'the folder no.such does not exist')])
def test_what_cannot_be_written_is_refused(photos, tmp_path, monkeypatch, out, is_folder, kind, message):
    (tmp_path/'file').write_text('')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message): check_writable(out, is_folder)
    with pytest.raises(kind, match=f'^--out {out}: '): output_path(out, 'x', [], is_folder, '--out')


def test_python_functions_do_not_write_into_the_data_either(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos/'train')
    before, classes = names(photos), ImageFolder(photos/'train').class_to_idx
    for out in 'report', '.', 'ant/report', str(photos/'report'):
        with pytest.raises(ValueError, match='photos-inspection'): inspect(photos, out, exact=True, progress=False)
        with pytest.raises(ValueError, match='photos-packed'): write_pack(ImageDataset(photos), out, progress=False)
    found = inspect(photos, exact=True, progress=False)
    assert found.out.resolve() == tmp_path.resolve()/'photos-inspection' and (found.out/'report.html').is_file()
    assert names(photos) == before and ImageFolder(photos/'train').class_to_idx == classes == {'ant': 0, 'bee': 1}
    assert ImageDataset(photos).class_to_idx == classes
    (tmp_path/'file').write_text('')
    for call in (inspect, write_pack):
        with pytest.raises(FileExistsError, match='it is a file'): call(ImageDataset(photos), tmp_path/'file')


def test_a_path_is_written_the_short_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shortest(tmp_path/'a') == 'a' and shortest(tmp_path.parent/'b') == os.path.join('..', 'b')
    assert shortest(Path('/')) == '/'


def test_the_folders_of_a_table_have_one_place_beside_them(photos, tmp_path, monkeypatch):
    "A report on `train/ant` and `train/bee` is not written among the classes."
    (tmp_path/'table.csv').write_text('path,label\nphotos/train/ant/0.jpg,a\nphotos/train/bee/0.jpg,b\n')
    monkeypatch.chdir(photos/'train/bee')
    reader = ImageDataset(tmp_path/'table.csv').reader
    assert output_path(None, 'inspection', [reader]).resolve() == tmp_path.resolve()/'photos-inspection'


@pytest.mark.parametrize('root, place', [
    ('photos', 'photos'), ('album', 'album'), ('photos/val/ant', 'photos'), ('photos/train/ant', 'photos')])
def test_beside_a_class_is_beside_the_dataset(photos, tmp_path, monkeypatch, root, place):
    "A folder of images beside other folders of images is a class; a dataset beside a photo album is not."
    (tmp_path/'album').mkdir()
    (tmp_path/'album/0.jpg').write_bytes(JPEG)
    monkeypatch.chdir(tmp_path/root)
    expected = tmp_path.resolve()/f'{place}-inspection'
    assert output_path(None, 'inspection', [ImageDataset('.').reader]).resolve() == expected
