"What the guides about your own folder and labels show as errors and warnings."
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from timmdata import ImageDataset, create_loader, get_samples
from timmdata.readers.class_map import ClassMapError
from timmdata.readers.table import TableError

pytestmark = pytest.mark.timeout(180)   # the first test may make the sample photos


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    "The folder `photos` of the guides, in the current directory."
    monkeypatch.chdir(tmp_path)
    for name in ('cat', 'coffee', 'rocket'):
        Path('photos', name).mkdir(parents=True)
        for k in range(2): shutil.copy(get_samples()/f'train/{name}/000{k}.jpg', f'photos/{name}/{k}.jpg')
    return Path('photos')


def read_all(dataset):
    for _ in create_loader(dataset, 32, 2, num_workers=0, device='cpu'): pass


def test_splits_and_classes(photos):
    shutil.copytree(photos, 'data/train')
    shutil.copytree(photos/'coffee', 'data/val/coffee')
    with pytest.raises(ValueError, match="there is no split 'test' in data; available: train, val"): ImageDataset('data', split='test')
    with pytest.raises(ValueError, match="there is no split 'val' in photos"): ImageDataset('photos', split='val')
    train = ImageDataset('data').class_to_idx
    with pytest.raises(ClassMapError, match=r'2 missing \(cat, rocket\)'):
        create_loader(ImageDataset('data/val', split=None), 64, 4, device='cpu', class_to_idx=train)
    (photos/'labels').mkdir()
    (photos/'labels/0.xml').write_text('<object/>')
    with pytest.warns(UserWarning, match='photos: folders without images are not classes: labels.*pass class_map='): ImageDataset('photos')


def test_files(photos):
    shutil.copy(photos/'cat/0.jpg', photos/'cat/drawing.heic')
    shutil.copy(photos/'cat/0.jpg', photos/'cat/download')
    with pytest.warns(UserWarning, match='not read: 1 .heic, 1 without an extension'): ImageDataset('photos')
    for name in ('drawing.heic', 'download'): (photos/'cat'/name).unlink()
    with pytest.warns(UserWarning, match='images left out: 2.*coffee'): ImageDataset('photos', class_map={'cat': 0, 'rocket': 1})
    with pytest.warns(UserWarning, match='every target is -1'):
        create_loader(ImageDataset('photos/coffee'), 64, 2, is_training=True, num_workers=0, device='cpu')
    with pytest.raises(ValueError, match='match no sample'): ImageDataset('photos', exclude=['0.jpg'])
    (photos/'coffee').rename(photos/'Cat')
    with pytest.warns(UserWarning, match="'Cat' and 'cat'"): ImageDataset('photos')


@pytest.mark.parametrize('data, message', [
    (b'\xff\xd8', 'cannot read cat/0.jpg'), (b'%!PS-Adobe-3.0 EPSF-3.0', 'in the format EPS'),
    (b'version https://git-lfs.github.com/spec/v1', 'git lfs pull')])
def test_corrupt_files(photos, data, message):
    (photos/'cat/0.jpg').write_bytes(data)
    with pytest.raises(OSError, match=message): read_all(ImageDataset('photos'))
    skipping = ImageDataset('photos', on_error='skip')
    with pytest.warns(RuntimeWarning, match='cat/0.jpg .*is skipped'): read_all(skipping)
    assert [sample.path for sample in skipping.bad_samples] == ['cat/0.jpg']


def test_white_level(photos):
    Image.fromarray(np.zeros((8, 8), np.float32)).save(photos/'cat/0.tiff')
    with pytest.raises(OSError, match='no fixed white level'): read_all(ImageDataset('photos'))


TWO = {'path': ['cat/0.jpg', 'cat/1.jpg']}


@pytest.mark.parametrize('table, error, message', [
    ({'photo': ['cat/0.jpg'], 'breed': ['a']}, ValueError, 'available: photo, breed. Pass the one to use as input_key='),
    ({**TWO, 'label': 'ab', 'class': 'ab'}, ValueError, 'label, class. Pass the one to use as target_key='),
    ({**TWO, 'target': [[0, 1], [1, 0]]}, ValueError, "pass target_format='indices' for indexes"),
    ({'path': ['cat/0.jpg', 'cat/9.jpg'], 'target': 'ab'}, TableError, r'1 × missing file: row 2 \(cat/9.jpg\)'),
    ({'path': ['cat/0.JPG'], 'target': ['a']}, TableError, "'cat/0.JPG' is there as 'cat/0.jpg'")])
def test_tables(photos, table, error, message):
    with pytest.raises(error, match=message): ImageDataset('photos', table={name: [*values] for name, values in table.items()})


def test_table_files(photos):
    Path('photos/no_header.csv').write_text('cat/0.jpg,coffee\ncat/1.jpg,cat\n')
    with pytest.raises(ValueError, match='its first line looks like data: add a line path,label'): ImageDataset('photos/no_header.csv')
    shutil.copy('photos/no_header.csv', 'photos/labels.xlsx')
    for arguments in (dict(root='photos/labels.xlsx'), dict(root='photos', table='photos/labels.xlsx')):
        with pytest.raises((ValueError, OSError), match='timmdata reads .csv, .tsv, .jsonl, .ndjson, .parquet'): ImageDataset(**arguments)


@pytest.mark.parametrize('table, settings, message', [
    ({**TWO, 'target': [1, 2]}, {}, 'no sample has index 0'), ({**TWO, 'target': ['cat', 'cat ']}, {}, "'cat' and 'cat '"),
    ({**TWO, 'dog': [0, 1], 'cat': [1, 0]}, dict(target_key='cat'), r"pass all of them as a list, such as target_key=\['cat', 'dog'\]"),
    ({'path': ['cat/0.jpg', 'cat/9.jpg'], 'target': ['a', 'b']}, dict(on_problem='drop'), '(?s)missing file.*These rows are left out')])
def test_warnings_of_tables(photos, table, settings, message):
    with pytest.warns(UserWarning, match=message): ImageDataset('photos', table=table, **settings)
