"Folders as they are found: links, loops, strange names, splits of all fashions, class maps that lie, an index that is old."
import os
import pickle
import random
import shutil
import time
import warnings
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image, features
from timm.data.readers.reader_image_folder import ReaderImageFolder as TimmReaderImageFolder
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS as torchvision_extensions

import timmdata.readers.folder as readers
from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.datasets.packing import write_pack
from timmdata.inspection.inspection import inspect
from timmdata.loader import create_loader
from timmdata.look.pictures import show_batch
from timmdata.readers import extensions as img_extensions
from timmdata.readers.base import NoSplitError
from timmdata.readers.class_map import load_class_map, natural_key
from timmdata.readers.folder import ReaderImageFolder, find_splits, resolve_split, scan_folder

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def tree(tmp_path):
    "Make folders and files: a name that ends with / is a folder."
    def make(*names: str, root='data') -> Path:
        (tmp_path/root).mkdir(exist_ok=True)
        for name in names:
            path = tmp_path/root/name
            (path if name.endswith('/') else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith('/'): path.write_bytes(b'content of ' + name.encode())
        return tmp_path/root
    return make


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield


def told(make, *args, **settings) -> list[str]:
    "What was warned of."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        make(*args, **settings)
    return [str(warning.message) for warning in caught]


def listing(reader) -> dict[str, int]: return {reader.filename(k): reader.samples[k][1] for k in range(len(reader))}


# ---- links

def test_linked_files_and_folders_are_followed(tree, tmp_path):
    elsewhere = tree('far/1.jpg', root='elsewhere')
    root = tree('a/1.jpg')
    os.symlink(elsewhere/'far', root/'b')
    os.symlink(elsewhere/'far/1.jpg', root/'a/2.jpg')
    assert listing(ReaderImageFolder(root)) == {'a/1.jpg': 0, 'a/2.jpg': 0, 'b/1.jpg': 1}
    os.symlink(root, tmp_path/'link')
    assert listing(ReaderImageFolder(tmp_path/'link')) == listing(ReaderImageFolder(root))


@pytest.mark.parametrize('target', ['.', '..', '../..', '../a'])
def test_link_to_a_folder_above_is_not_followed(tree, target):
    root = tree('x/a/1.jpg')
    os.symlink(target, root/'x/a/loop')
    assert ReaderImageFolder(root).filenames() == ['x/a/1.jpg']


def test_links_that_loop_together_are_not_followed(tree):
    root = tree('a/1.jpg', 'b/2.jpg')
    os.symlink('../b', root/'a/to_b')
    os.symlink('../a', root/'b/to_a')
    assert ReaderImageFolder(root).filenames() == ['a/1.jpg', 'a/to_b/2.jpg', 'b/2.jpg', 'b/to_a/1.jpg']


@pytest.mark.parametrize('target', ['/', '/usr/..', '../..', '../../..'])
def test_link_to_a_folder_above_the_root_is_not_followed(tree, target):
    root = tree('a/1.jpg')
    os.symlink(target, root/'a/everything')
    assert ReaderImageFolder(root).filenames() == ['a/1.jpg']


def test_folders_that_are_linked_to_each_other_do_not_multiply(tree):
    names = 'abcdef'
    root = tree(*[f'{name}/{name}.jpg' for name in names])
    for name in names:
        for other in names:
            if other != name: os.symlink(f'../{other}', root/name/f'to_{other}')
    found = ReaderImageFolder(root).filenames()
    assert len(found) == len(set(found)) == 6 + 30 * 5 and {f'{name}/{name}.jpg' for name in names} <= set(found)   # not 1,956


def test_two_splits_may_link_to_the_same_folders(tree, tmp_path):
    tree('set/cat/1.jpg', 'set/dog/2.jpg', root='elsewhere')
    root = tree('x/')
    (root/'x').rmdir()
    for split in ('train', 'val'): os.symlink(tmp_path/'elsewhere/set', root/split)
    os.symlink(tmp_path/'elsewhere/set/cat', tmp_path/'elsewhere/set/pet')
    for split in ('train', 'val'):
        assert ReaderImageFolder(root, split).filenames(basename=True) == ['1.jpg', '2.jpg', '1.jpg']


def test_order_is_timms_in_any_tree(tree):
    rng, pieces = random.Random(0), ['a', 'A', 'b', '1', '01', '10', '9', ' ', '-', 'é', '_']
    names = set()
    for _ in range(400):
        parts = [''.join(rng.choices(pieces, k=rng.randint(1, 3))).strip() or 'x' for _ in range(rng.randint(1, 4))]
        names.add('/'.join(parts) + '.jpg')
    root = tree(*names, 'stray.jpg')
    oracle = [os.path.relpath(path, root) for path, _ in TimmReaderImageFolder(str(root)).samples]
    found = [path for path, _ in scan_folder(root).table]
    assert sorted(found) == sorted(oracle)
    assert [natural_key(path) for path in found] == [natural_key(path) for path in oracle]   # equal keys: in the order of names
    assert found == sorted(sorted(oracle), key=natural_key)


@pytest.mark.parametrize('name', ['loop', 'loop.jpg'])
def test_link_to_itself_does_not_end_the_scan(tree, name, quiet):
    root = tree('a/1.jpg')
    os.symlink(name, root/'a'/name)
    assert 'a/1.jpg' in ReaderImageFolder(root).filenames()


def test_broken_link_is_found_and_is_an_error_when_read(tree):
    root = tree('a/1.jpg')
    os.symlink('gone.jpg', root/'a/2.jpg')
    dataset = ImageDataset(root)
    assert dataset.filenames() == ['a/1.jpg', 'a/2.jpg']
    with pytest.raises(ImageReadError, match=r'a/2\.jpg \(index 1\).*FileNotFoundError'): dataset[1]


# ---- names

@pytest.mark.skipif(os.name == 'nt' or os.uname().sysname == 'Darwin', reason='this file system takes valid text only')
@pytest.mark.parametrize('index_file', [None, 'index.npz'])
def test_names_that_are_no_text(tmp_path, index_file):
    root = os.fsencode(tmp_path/'data')
    for name in b'a\xff/1\xfe.jpg', b'a\xff/2.jpg', 'ü/é.jpg'.encode(), b'b c/ x.jpg':
        os.makedirs(os.path.dirname(root + b'/' + name), exist_ok=True)
        with open(root + b'/' + name, 'wb') as file: file.write(name)
    index_file = index_file and tmp_path/index_file
    for _ in range(2):   # the second time from the index
        reader = ReaderImageFolder(tmp_path/'data', index_file=index_file)
        assert all(data == os.fsencode(name) for name,
                   (data, _) in zip(reader.filenames(), [reader[k] for k in range(4)], strict=True))
        assert len(reader) == 4 and sorted(reader.class_to_idx.values()) == [0, 1, 2]
    assert os.fsdecode(b'a\xff') in reader.class_to_idx


def test_extensions_in_any_case(tree):
    root = tree('a/1.JPG', 'a/2.Jpeg', 'a/3.pNg', 'a/4.txt', 'a/jpg', 'a/.jpg', 'a/5.jpg.bak', 'a/6.tar.jpg')
    with pytest.warns(UserWarning, match=r'not read: 1 \.jpg\.bak, 1 without an extension\. To read them'):
        assert ReaderImageFolder(root).filenames(basename=True) == ['1.JPG', '2.Jpeg', '3.pNg', '6.tar.jpg']
    root = tree('b/1.HEIC', 'b/2.jpg', root='other')
    with warnings.catch_warnings():
        warnings.simplefilter('error')   # what the user chose needs no warning
        assert ReaderImageFolder(root, extensions='.heic').filenames() == ['b/1.HEIC']
    with pytest.warns(UserWarning, match=r'1 \.heic'): ReaderImageFolder(root)


def test_types_are_those_of_torchvision_other_names_of_jpeg_and_two_more(tmp_path):
    "A file of each type is found, as by `ImageFolder`, and its pixels are Pillow's."
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))
    jpegs = '.jfif', '.jpe', '.jif', '.pjpeg', '.pjp'
    types = (*torchvision_extensions, *jpegs, '.gif', *['.avif'] * features.check('avif'))
    for number, extension in enumerate(types):
        folder = tmp_path/str(number % 3)
        folder.mkdir(exist_ok=True)
        kind = 'JPEG' if extension in jpegs else None
        image.convert('L' if extension == '.pgm' else 'RGB').save(folder/f'photo{extension.upper()}', kind)
    dataset, others = ImageDataset(tmp_path), ImageFolder(tmp_path)
    kept = [os.path.relpath(path, tmp_path) for path, _ in others.samples]
    assert sorted(name for name in dataset.filenames() if os.path.splitext(name)[1].lower() in torchvision_extensions) == sorted(kept)
    assert len(dataset) == len(types) and dataset.class_to_idx == others.class_to_idx
    for name, (found, target) in zip(dataset.filenames(), dataset, strict=True):
        with Image.open(tmp_path/name) as file: expected = file.convert('RGB')
        assert found.tobytes() == expected.tobytes() and target == int(name[0])
    assert len(list(create_loader(dataset, 32, 4, num_workers=0, device='cpu'))) == -(-len(types) // 4)


@pytest.fixture
def extensions_put_back():
    before = img_extensions.get_img_extensions()
    yield
    img_extensions.set_img_extensions(before)


def test_extensions_can_be_changed_for_all(tree, extensions_put_back):
    root = tree('a/1.jpg', 'a/2.webp', 'a/3.heic')
    img_extensions.add_img_extensions('.HEIC')
    assert len(ReaderImageFolder(root)) == 3 and img_extensions.is_img_extension('.heic')
    img_extensions.set_img_extensions(('.png', '.jpg', '.jpeg'))   # timm's
    with pytest.warns(UserWarning, match='1 .webp'): assert len(ReaderImageFolder(root)) == 1
    img_extensions.del_img_extensions('.png')
    assert img_extensions.get_img_extensions() == ('.jpg', '.jpeg')
    assert img_extensions.get_img_extensions(as_set=True) == {'.jpg', '.jpeg'}
    with pytest.raises(ValueError): img_extensions.del_img_extensions(('.jpg', '.jpeg'))


def test_hidden_files_and_folders_are_not_read(tree):
    root = tree('a/1.jpg', 'a/.2.jpg', '.hidden/3.jpg', 'a/.ipynb_checkpoints/1.jpg', '.val/a/1.jpg', '.DS_Store')
    assert listing(ReaderImageFolder(root)) == {'a/1.jpg': 0} and find_splits(root) == []


def test_folder_named_like_an_image(tree):
    assert listing(ReaderImageFolder(tree('a.jpg/1.jpg', 'b.jpg/'))) == {'a.jpg/1.jpg': 0}


# ---- splits

REPORT = 'report.html', 'report.json', 'measures/train.npy'
SPLITS = {   # files; split asked for; what comes, or what the error says
    'train by default': (['train/a/1.jpg', 'val/a/2.jpg'], 'train', {'train/a/1.jpg': 0}),
    'val': (['train/a/1.jpg', 'val/a/2.jpg'], 'val', {'val/a/2.jpg': 0}),
    'validation is val': (['train/a/1.jpg', 'val/a/2.jpg'], 'validation', {'val/a/2.jpg': 0}),
    'val is validation': (['training/a/1.jpg', 'validation/a/2.jpg'], 'val', {'validation/a/2.jpg': 0}),
    'train is training': (['training/a/1.jpg', 'validation/a/2.jpg'], 'train', {'training/a/1.jpg': 0}),
    'capitals': (['Train/a/1.jpg', 'TEST/a/2.jpg'], 'train', {'Train/a/1.jpg': 0}),
    'capitals asked': (['train/a/1.jpg', 'val/a/2.jpg'], 'VAL', {'val/a/2.jpg': 0}),
    'none reads all': (['train/a/1.jpg', 'val/a/2.jpg'], None, {'train/a/1.jpg': 0, 'val/a/2.jpg': 0}),
    'empty reads all': (['train/a/1.jpg', 'val/a/2.jpg'], '', {'train/a/1.jpg': 0, 'val/a/2.jpg': 0}),
    'only train': (['train/a/1.jpg'], 'train', {'train/a/1.jpg': 0}),
    'only val': (['val/a/1.jpg'], 'train', "there is no split 'train'.*available: val"),
    'no test': (['train/a/1.jpg', 'val/a/2.jpg'], 'test', "no split 'test'.*available: train, val"),
    'not divided': (['a/1.jpg', 'b/2.jpg'], 'train', {'a/1.jpg': 0, 'b/2.jpg': 1}),
    'not divided, val': (['a/1.jpg', 'b/2.jpg'], 'val', "no split 'val'.*available: a, b"),
    'class called train': (['train/1.jpg', 'bus/2.jpg'], 'train', {'bus/2.jpg': 0, 'train/1.jpg': 1}),
    'class called train, in train': (['train/train/1.jpg', 'train/bus/2.jpg', 'val/bus/3.jpg'], 'train',
                                     {'train/bus/2.jpg': 0, 'train/train/1.jpg': 1}),
    'class called val, in val': (['train/val/1.jpg', 'train/a/1.jpg', 'val/val/1.jpg'], 'val', {'val/val/1.jpg': 1}),
    'flat test': (['train/a/1.jpg', 'train/b/1.jpg', 'test/1.jpg'], 'test', {'test/1.jpg': -1}),
    'flat train and val': (['train/1.jpg', 'val/2.jpg'], 'val', {'val/2.jpg': -1}),
    'another name': (['train/a/1.jpg', 'holdout/a/2.jpg', 'holdout/b/3.jpg'], 'holdout',
                     {'holdout/a/2.jpg': 0, 'holdout/b/3.jpg': 1}),
    'two of a kind': (['val/a/1.jpg', 'validation/a/2.jpg', 'train/a/3.jpg'], 'valid',
                      'could be any of val, validation'),
    'two of a kind, exact': (['val/a/1.jpg', 'validation/a/2.jpg', 'train/a/3.jpg'], 'validation',
                             {'validation/a/2.jpg': 0}),
    'class missing in val': (['train/a/1.jpg', 'train/b/1.jpg', 'val/b/1.jpg'], 'val', {'val/b/1.jpg': 1}),
    'class only in val': (['train/b/1.jpg', 'val/a/1.jpg', 'val/b/1.jpg'], 'train', {'train/b/1.jpg': 1}),
    'empty folder': (['train/a/', 'train/b/1.jpg', 'val/b/1.jpg'], 'train', {'train/b/1.jpg': 0}),
    'empty folder, not divided': (['a/', 'b/1.jpg'], 'train', {'b/1.jpg': 0}),
    'class whose folder is empty in val': (['train/a/1.jpg', 'train/b/1.jpg', 'val/a/', 'val/b/1.jpg'], 'val', {'val/b/1.jpg': 1}),
    'flat beside labels': (['train/1.jpg', 'val/2.jpg', 'labels/1.xml'], 'train', {'train/1.jpg': -1}),
    'flat beside a report': (['train/1.jpg', 'val/2.jpg', *(f'inspection/{name}' for name in REPORT)], 'train', {'train/1.jpg': -1}),
    'deep': (['train/x/b/1.jpg', 'train/y/a/2.jpg', 'val/z/b/3.jpg'], 'val', {'val/z/b/3.jpg': 1}),
    'natural order': (['c10/1.jpg', 'c9/1.jpg', 'c9/10.jpg', 'c9/9.jpg'], 'train',
                      {'c9/1.jpg': 0, 'c9/9.jpg': 0, 'c9/10.jpg': 0, 'c10/1.jpg': 1}),
}


@pytest.mark.parametrize('name', SPLITS)
def test_split(tree, name):
    files, split, expected = SPLITS[name]
    root = tree(*files)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected): ImageDataset(root, split=split)
    else:
        found = listing(ImageDataset(root, split=split).reader)
        assert found == expected and list(found) == list(expected)


@pytest.mark.parametrize('name, split',
                         [('train', 'train'), ('val', 'val'), ('validation', 'val'), ('Val', 'validation'),
                          ('test', 'test'), ('val', 'train')])
def test_root_that_is_a_split_already(tree, name, split):
    root = tree(f'{name}/a/1.jpg', f'{name}/b/1.jpg')
    assert listing(ReaderImageFolder(root/name, split)) == {'a/1.jpg': 0, 'b/1.jpg': 1}


MINE = ['train/ant/1.jpg', 'train/bee/1.jpg', 'val/ant/2.jpg', 'val/bee/2.jpg']


@pytest.mark.parametrize('above', ['', 'data', os.path.join('data', 'of', 'all')])
@pytest.mark.parametrize('split', ['train', 'val', 'test'])
def test_a_root_above_the_data_set_is_no_split(tree, above, split):
    "Read as one split, its validation images would be trained on."
    root = tree(*(os.path.join('proj', above, 'mine', name) for name in MINE))/'proj'
    mine = os.path.join(root, above, 'mine')
    with pytest.raises(NoSplitError) as raised: ImageDataset(root, split=split)
    said = f"{os.path.join(mine, 'train')} and …/val are nested deeper: did you mean ImageDataset({mine!r})?"
    assert said in str(raised.value) and 'split=None reads the whole folder' in str(raised.value)
    assert len(ImageDataset(root, split=None)) == 4 and len(ImageDataset(mine)) == 2


@pytest.mark.parametrize('files', [['bus/1.jpg', 'vehicles/train/1.jpg', 'vehicles/val/2.jpg'],   # classes: they hold no folders
                                   ['a/train/x/1.jpg', 'b/val/x/1.jpg'], ['a/train/x/1.jpg', 'a/bus/y/1.jpg'],
                                   ['a/val/x/1.jpg', 'a/eval/x/1.jpg']])
def test_folders_with_names_of_splits_below_the_root_may_be_classes(tree, files):
    assert len(ImageDataset(tree(*files))) == len(files)


def test_an_index_file_does_not_hide_the_splits_below_the_root(tree, tmp_path):
    root = tree(*(f'mine/{name}' for name in MINE))
    for _ in range(2):
        with pytest.raises(NoSplitError, match='nested deeper: did you mean'): ImageDataset(root, index_file=tmp_path/'index.npz')


def test_a_folder_that_is_not_divided_claims_no_split(tree):
    root = tree(*MINE)
    for dataset in (ImageDataset(root/'val'), ImageDataset(root, split=None)): assert 'split: none, the whole root' in repr(dataset)
    for split in ('train', 'val'): assert f'split: {split}\n' in repr(ImageDataset(root, split=split))


def test_split_of_a_relative_root(tree, monkeypatch):
    monkeypatch.chdir(tree('val/a/1.jpg')/'val')
    assert resolve_split('.', 'val') == '' and ReaderImageFolder('.', 'val').filenames() == ['a/1.jpg']


@pytest.mark.parametrize('files', [[], ['a/'], ['train/', 'val/'], ['a/readme.txt'], ['.a/1.jpg']])
def test_root_without_images(tree, files):
    with pytest.raises(ValueError, match='found no image'): ImageDataset(tree(*files))


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='root may read everything')
def test_folder_without_permission_is_an_error(tree):
    root = tree('a/1.jpg', 'b/2.jpg')
    (root/'b').chmod(0)
    try:
        with pytest.raises(PermissionError, match='b'): ReaderImageFolder(root)
    finally: (root/'b').chmod(0o700)


def test_images_beside_class_folders_are_left_out_aloud(tree):
    root = tree('a/1.jpg', 'stray.jpg', 'more.png')
    with pytest.warns(UserWarning, match='left out: 2; .*directly in the root'):
        assert len(ReaderImageFolder(root)) == 1


# ---- folders without images

BESIDE = {   # files beside cat/1.jpg, dog/2.jpg; the folders that are named
    'labels': (['labels/1.xml', 'labels/2.xml'], 'labels'), 'an empty folder': (['empty/'], 'empty'),
    'checkpoints': (['checkpoints/last/model.pth', 'runs/1/events.out.tfevents.17.host.1'], 'checkpoints, runs'),
    'many': ([f'no{k}/' for k in range(7)], 'no0, no1, no2, no3, no4, …'), 'only the topmost': (['a/b/c/d/', 'a/e/'], 'a')}


@pytest.mark.parametrize('name', BESIDE)
@pytest.mark.parametrize('index_file', [None, 'index.npz'])
def test_a_folder_without_images_is_not_a_class(tree, tmp_path, name, index_file):
    "As in timm; torchvision raises an error for it."
    others, named = BESIDE[name]
    root = tree('cat/1.jpg', 'dog/2.jpg', *others)
    theirs = TimmReaderImageFolder(str(root))
    for _ in range(2):   # the second time from the index
        messages = told(ReaderImageFolder, root, index_file=index_file and tmp_path/index_file)
        reader = ReaderImageFolder(root, index_file=index_file and tmp_path/index_file)
        assert reader.class_to_idx == theirs.class_to_idx == {'cat': 0, 'dog': 1}
        assert [os.path.join(root, name) for name in reader.filenames()] == [path for path, _ in theirs.samples]
        assert len(messages) == 1 and f'folders without images are not classes: {named}. To give' in messages[0]
    with pytest.raises(FileNotFoundError, match=named.split(',')[0]): ImageFolder(root)


@pytest.mark.parametrize('extensions', [None, ('.png',), ('.jpg', '.png'), ('.xyz',)])
def test_classes_are_timms_in_any_tree(tmp_path, extensions, quiet):
    rng = random.Random(str(extensions))
    for number in range(40):
        root = tmp_path/str(number)
        for _ in range(rng.randint(3, 14)):
            folder = root.joinpath(*rng.choices(['a', 'b', 'B', 'c10', 'c9', 'labels', 'ü'], k=rng.randint(1, 3)))
            folder.mkdir(parents=True, exist_ok=True)
            for name in rng.sample(['1.jpg', '2.png', '3.xyz', '4.txt', '5'], rng.randint(0, 3)): (folder/name).touch()
        types = list(extensions or img_extensions.get_img_extensions())
        try: theirs = TimmReaderImageFolder(str(root), input_key=';'.join(types))
        except RuntimeError:   # no images
            with pytest.raises(ValueError, match='found no images'): ReaderImageFolder(root, extensions=extensions)
            continue
        ours = ReaderImageFolder(root, extensions=extensions)
        # with names that differ only in case, timm's order is that of a set
        assert list(map(str.lower, ours.class_to_idx)) == list(map(str.lower, theirs.class_to_idx))
        assert set(ours.class_to_idx) == set(theirs.class_to_idx)
        assert sorted(ours.filenames(absolute=True)) == sorted(path for path, _ in theirs.samples)


def test_a_checkpoint_of_timm_meets_the_same_classes(tree, quiet):
    "The classes of all splits together: a class that is missing or has an empty folder in one split keeps its index."
    root = tree('train/cat/1.jpg', 'train/rocket/2.jpg', 'train/astronaut/3.jpg', 'train/labels/1.xml',
                'val/rocket/4.jpg', 'val/cat/', 'val/zebra/')
    theirs = TimmReaderImageFolder(str(root/'train')).class_to_idx
    assert all(ImageDataset(root, split=split).class_to_idx == theirs for split in ('train', 'val'))
    assert listing(ImageDataset(root, split='val').reader) == {'val/rocket/4.jpg': theirs['rocket']}


def test_folders_of_the_other_split_and_empty_folders_of_classes_are_not_named(tree):
    root = tree('train/cat/1.jpg', 'train/dog/1.jpg', 'train/labels/1.xml', 'train/cat/notes/', 'val/cat/1.jpg', 'val/dog/', 'val/bird/')
    for split, named in (('train', 'train/labels'), ('val', 'val/bird')):
        [message] = told(ImageDataset, root, split=split)
        assert f'are not classes: {named}. To give' in message


def test_a_class_map_gives_an_empty_folder_an_index(tree):
    root, class_map = tree('cat/1.jpg', 'empty/', 'labels/1.xml'), {'empty': 0, 'cat': 1}
    datasets = []
    assert told(lambda: datasets.append(ImageDataset(root, class_map=class_map))) == []
    assert datasets[0].class_to_idx == class_map and listing(datasets[0].reader) == {'cat/1.jpg': 1}


def test_a_folder_whose_images_are_all_left_out_is_not_a_class(tree):
    root = tree('cat/1.jpg', 'dog/1.heic', 'dog/2.heic')
    messages = told(lambda: ImageDataset(root))
    assert ImageDataset(root).class_to_idx == TimmReaderImageFolder(str(root)).class_to_idx == {'cat': 0}
    assert len(messages) == 2 and 'not read: 2 .heic' in messages[0] and 'are not classes: dog.' in messages[1]
    [message] = told(lambda: ImageDataset(root, extensions='.heic'))   # the types were chosen, what follows for the classes was not
    assert 'are not classes: cat.' in message
    assert ImageDataset(root, extensions='.heic').class_to_idx == TimmReaderImageFolder(str(root), input_key='.heic').class_to_idx


def test_a_flat_folder_beside_a_folder_without_images_is_read(tree):
    root = tree('1.jpg', '2.jpg', 'labels/1.xml')
    datasets = []
    assert told(lambda: datasets.append(ImageDataset(root))) == []
    assert listing(datasets[0].reader) == {'1.jpg': -1, '2.jpg': -1}


def test_a_store_has_the_classes_and_the_reports_of_its_folder(tree):
    names = ['cat/1.jpg', 'dog/2.jpg', 'dog/3.heic', 'dog/4', 'labels/1.xml', '@eaDir/1.jpg', *(f'inspection/{name}' for name in REPORT)]
    root, store = tree(*names), fsspec.filesystem('memory')
    for name in names: store.pipe(f'/left_out/{name}', b'1')
    here, there = (told(ImageDataset, place) for place in (root, 'memory://left_out'))
    assert [message.replace(str(root), 'memory://left_out') for message in here] == there and len(there) == 2
    assert ImageDataset(root).class_to_idx == ImageDataset('memory://left_out').class_to_idx == {'cat': 0, 'dog': 1}


def test_a_class_called_train_of_other_types_is_a_class(tree):
    root = tree('train/1.heic', 'bus/2.heic')
    assert listing(ImageDataset(root, extensions='.heic').reader) == {'bus/2.heic': 0, 'train/1.heic': 1}


def test_folders_of_the_system_are_not_listed(tree):
    root = tree('cat/1.jpg', 'dog/1.jpg', '@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg', 'cat/@eaDir/1.jpg', '$RECYCLE.BIN/1.jpg',
                '__MACOSX/cat/1.jpg', 'lost+found/1.jpg', '#recycle/cat/1.jpg', 'System Volume Information/1.jpg')
    datasets = []
    assert told(lambda: datasets.append(ImageDataset(root))) == []
    assert listing(datasets[0].reader) == {'cat/1.jpg': 0, 'dog/1.jpg': 1}
    assert find_splits(tree('train/1.jpg', 'val/2.jpg', '@eaDir/x/1.jpg', root='divided')) == ['train', 'val']


# ---- what our commands wrote

@pytest.fixture(scope='module')
def written_before(tmp_path_factory):
    "A folder of classes that contains what `inspect` and `write_pack` wrote."
    top = tmp_path_factory.mktemp('before')
    root = top/'photos'
    for k, name in enumerate(('astronaut', 'cat', 'rocket')):
        (root/name).mkdir(parents=True)
        for j in range(2): Image.new('RGB', (20, 16), (80 * k, 99 * j, 7)).save(root/name/f'{j}.png')
    before = ImageDataset(root)
    inspect(before, top/'inspection', exact=True, progress=False)
    write_pack(before, top/'packed', progress=False, format='keep')
    for name in ('inspection', 'packed'): shutil.move(top/name, root)
    return root


def test_what_our_commands_wrote_changes_no_class(written_before, tmp_path):
    datasets = []
    assert told(lambda: datasets.append(ImageDataset(written_before, index_file=tmp_path/'index.npz'))) == []
    assert told(lambda: datasets.append(ImageDataset(written_before, index_file=tmp_path/'index.npz'))) == []
    for dataset in datasets: assert dataset.class_to_idx == {'astronaut': 0, 'cat': 1, 'rocket': 2} and len(dataset) == 6
    assert datasets[0].class_to_idx == TimmReaderImageFolder(str(written_before)).class_to_idx


def test_a_report_hides_no_images(written_before, tmp_path):
    "It may have been written into a class folder, or into the root."
    for name in ('photos', 'photos/cat', 'photos/measures'):
        shutil.copytree(written_before/'inspection', tmp_path/name, dirs_exist_ok=True)
    for name in ('cat', 'dog', 'measures'):
        (tmp_path/'photos'/name).mkdir(exist_ok=True)
        (tmp_path/'photos'/name/'1.jpg').touch()
    datasets = []
    assert told(lambda: datasets.append(ImageDataset(tmp_path/'photos'))) == []
    assert listing(datasets[0].reader) == {'cat/1.jpg': 0, 'dog/1.jpg': 1, 'measures/1.jpg': 2}


def test_the_picture_of_demo_is_not_a_sample(tmp_path):
    "Its content tells, not its name."
    for name in ('a.png', 'b.png'): Image.new('RGB', (20, 16)).save(tmp_path/name)
    batch = torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])
    show_batch(batch).savefig(tmp_path/'batch.png', dpi=100)
    datasets = []
    [message] = told(lambda: datasets.append(ImageDataset(tmp_path)))
    assert datasets[0].filenames() == ['a.png', 'b.png'] and 'not read: 1 batch.png of `timmdata demo`' in message
    shutil.copy(tmp_path/'batch.png', tmp_path/'c.png')   # another name: a sample
    Image.new('RGB', (20, 16)).save(tmp_path/'batch.png')   # another content: a sample
    assert told(lambda: datasets.append(ImageDataset(tmp_path))) == []
    assert datasets[1].filenames() == ['a.png', 'b.png', 'batch.png', 'c.png']
    (tmp_path/'batch.png').unlink()
    os.symlink('gone.png', tmp_path/'batch.png')
    assert 'batch.png' in ImageDataset(tmp_path).filenames()


# ---- files that are not read

UNREAD = ['.heic', '.jp2', '.pbm', '.mpo', '.tga', '.ico', '.apng', '.dib', '.jxl', '.dng', '.svg',
          '.jpg_', '.jpg.bak', '', '.jpg?x=1', '.jpg ']


@pytest.mark.parametrize('ending', UNREAD)
@pytest.mark.parametrize('kind', ['classes', 'flat', 'tar', 'store'])
def test_every_file_that_may_be_an_image_is_counted(tree, tmp_path, ending, kind):
    folder = '' if kind == 'flat' else 'cat/'
    places = {}
    for name, files in (('mixed', ('a.jpg',)), ('alone', ())):
        names = [f'{folder}{k}{ending}' for k in range(3)] + [f'{folder}{file}' for file in files] + [f'{folder}notes.txt']
        places[name] = tree(*names, root=name)
        if kind == 'tar': places[name] = shutil.make_archive(str(tmp_path/name), 'tar', tmp_path/name)
        if kind == 'store':
            places[name] = f'memory://unread{UNREAD.index(ending)}{name}'
            for path in names: fsspec.filesystem('memory').pipe(f'{places[name][8:]}/{path}', b'1')
    [message] = told(lambda: ImageDataset(places['mixed']))
    assert len(ImageDataset(places['mixed'])) == 1 and 'files that may be images are not read: 3 ' in message
    shown = {'': 'without an extension', '.jpg?x=1': '.jpg?…', '.jpg ': "'.jpg '"}.get(ending, ending)
    assert f'not read: 3 {shown}. To read them, ' in message
    with pytest.raises(ValueError, match='left out: 3 ') as raised: ImageDataset(places['alone'])
    advice = f'extensions=[{ending!r}]' if ending and '?' not in ending else 'rename images so that they end in an image extension'
    assert f'left out: 3 {shown}; ' in str(raised.value) and advice in str(raised.value)
    if ending and '?' not in ending:   # the advice works
        assert len(ImageDataset(places['alone'], extensions=[ending])) == 3
        assert len(ImageDataset(places['mixed'], extensions=['.jpg', ending])) == 4


def test_many_types_are_one_line(tree):
    root = tree('cat/1.jpg', *[f'cat/{k}.x{k % 30}x' for k in range(60)], *[f'cat/{k}.heic' for k in range(70)])
    [message] = told(lambda: ImageDataset(root))
    assert '70 .heic' in message and ', …. To read them' in message and len(message) < 400


def test_a_type_that_was_added_and_is_not_chosen_is_counted(tree, extensions_put_back):
    root = tree('cat/1.xyz', 'cat/2.jpg')
    img_extensions.add_img_extensions('.xyz')
    with pytest.raises(ValueError, match=r'left out: 1 \.jpg, 1 \.xyz'): ImageDataset(root, extensions='.png')


# ---- names that look alike

@pytest.mark.parametrize('first, second', [('caf\u00e9', 'cafe\u0301'), ('Cat', 'cat'), ('dog', 'dog '), ('red fox', 'red\u00a0fox'),
                                           ('red fox', 'red  fox'), ('ant', 'a\u200bnt'), ('bee', '\ufeffbee')])
@pytest.mark.parametrize('kind', ['folders', 'splits', 'tar'])
def test_classes_that_look_alike_are_named_once(tree, tmp_path, first, second, kind):
    names = [f'train/{first}/1.jpg', f'val/{second}/2.jpg'] if kind == 'splits' else [f'{first}/1.jpg', f'{second}/2.jpg']
    root = tree(*names, *(['train/tea/3.jpg', 'val/tea/4.jpg'] if kind == 'splits' else ['tea/3.jpg']))
    folders = {path.name for path in root.rglob('*') if path.is_dir()} - {'train', 'val'}
    if len(folders) < 3: pytest.skip('this file system joins the names')
    timms = TimmReaderImageFolder(str(root)).class_to_idx
    if kind == 'tar': root = shutil.make_archive(str(tmp_path/'archive'), 'tar', root)
    datasets = []
    [message] = told(lambda: datasets.append(ImageDataset(root)))
    assert ascii(first) in message and ascii(second) in message and message.isascii() and 'class_map=' in message
    assert set(datasets[0].class_to_idx) == set(timms) and datasets[0].class_to_idx['tea'] == timms['tea']   # the indexes stay
    merged = {first: 0, second: 0, 'tea': 1}
    apart = {first: 2, second: 0, 'tea': 1}
    for class_map in (merged, apart):   # what the message advises
        assert told(ImageDataset, root, class_map=class_map) == []


def test_a_class_map_that_lacks_only_a_twin_says_so(tree):
    root = tree('cafe\u0301/1.jpg', 'tea/2.jpg')
    [message] = told(lambda: ImageDataset(root, class_map={'caf\u00e9': 0, 'tea': 1}))
    assert "images left out: 1; " in message
    assert "'cafe\\u0301' looks like 'caf\\xe9', but is a different name: rename one of them" in message
    with pytest.raises(ValueError, match='in the class map.*looks like'): ImageDataset(root, class_map={'caf\u00e9': 0})


# ---- class maps

def written(path: Path, content) -> Path:
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content, encoding='utf-8')
    return path


MAPS = {'map.txt': 'b\na\n', 'map.csv': 'b,0\na,1\n', 'head.csv': 'class,index\nb,0\na,1\n',
        'turned.csv': '0,b\n1,a\n', 'map.json': '{"b": 0, "a": 1}',
        'list.json': '["b", "a"]', 'map.pkl': pickle.dumps({'b': 0,
                                                'a': 1}), 'bom.txt': '\ufeffb\r\na\r\n', 'CAPS.TXT': 'b\na'}


@pytest.mark.parametrize('name', MAPS)
@pytest.mark.parametrize('place', ['beside', 'in the root'])
def test_class_map_file(tree, tmp_path, name, place, monkeypatch):
    root = tree('a/1.jpg', 'b/2.jpg')
    path = written((root if place == 'in the root' else tmp_path)/name, MAPS[name])
    for class_map in [name] if place == 'in the root' else [path, str(path), {'b': 0, 'a': 1}]:
        assert listing(ReaderImageFolder(root, class_map=class_map)) == {'a/1.jpg': 1, 'b/2.jpg': 0}


def test_class_map_chooses_merges_and_numbers(tree):
    root = tree('a/1.jpg', 'b/2.jpg', 'c/3.jpg')
    with pytest.warns(UserWarning, match='left out: 1; .*: c'):
        assert listing(ReaderImageFolder(root, class_map={'a': 7, 'b': 7, 'absent': 3})) == {'a/1.jpg': 7, 'b/2.jpg': 7}
    with pytest.raises(ValueError, match='none of the folders is in the class map'):
        ReaderImageFolder(root, class_map={'x': 0})


class Evil:
    "Runs a command when it is unpickled."
    def __init__(self, path): self.path = path
    def __reduce__(self): return os.mkdir, (str(self.path),)


def test_class_map_pickle_runs_no_code(tree, tmp_path):
    for k, content in enumerate((Evil(tmp_path/'was here'), {'a': Evil(tmp_path/'was here')})):
        path = written(tmp_path/f'{k}.pkl', pickle.dumps(content))
        with pytest.raises(ValueError, match=rf'{k}\.pkl is not a valid class map: .* not allowed'): load_class_map(path)
    assert not (tmp_path/'was here').exists()
    with open(path, 'rb') as file: pickle.load(file)   # the file is as bad as it should be
    assert (tmp_path/'was here').exists()


# ---- the index file

class Scans:
    "Counts the scans."
    def __init__(self, monkeypatch):
        self.count, scan = 0, readers.scan_folder
        def counted(*args):
            self.count += 1
            return scan(*args)
        monkeypatch.setattr(readers, 'scan_folder', counted)


@pytest.fixture
def indexed(tree, tmp_path, monkeypatch):
    "A divided data set that was read with an index file before, and the count of its scans."
    root, scans = tree('train/a/1.jpg', 'train/b/2.jpg', 'val/a/3.jpg'), Scans(monkeypatch)
    def read(**kwargs): return ReaderImageFolder(root, 'train', index_file=tmp_path/'index.npz', **kwargs)
    first = read()
    assert scans.count == 1 and listing(read()) == listing(first) and read().class_to_idx == first.class_to_idx
    assert scans.count == 1
    time.sleep(0.02)   # beyond the resolution of the file system's clock
    return root, read, scans


CHANGES = {'added': lambda r: (r/'train/a/4.jpg').touch(), 'removed': lambda r: (r/'train/a/1.jpg').unlink(),
           'renamed': lambda r: (r/'train/a/1.jpg').rename(r/'train/a/9.jpg'),
           'moved': lambda r: (r/'train/a/1.jpg').rename(r/'train/b/1.jpg'),
           'new folder': lambda r: (r/'train/c').mkdir(), 'folder gone': lambda r: shutil.rmtree(r/'train/b'),
           'folder renamed': lambda r: (r/'train/b').rename(r/'train/z'),
           'in the other split': lambda r: (r/'val/b').mkdir(),
           'a new split': lambda r: (r/'test/a').mkdir(parents=True),
           'deep': lambda r: (r/'train/b/deep/er').mkdir(parents=True)}


@pytest.mark.parametrize('name', CHANGES)
def test_change_makes_the_index_stale(indexed, name):
    root, read, scans = indexed
    CHANGES[name](root)
    reader = read()
    assert scans.count == 2 and listing(reader) == listing(ReaderImageFolder(root, 'train'))
    assert reader.class_to_idx == ReaderImageFolder(root, 'train').class_to_idx
    before = scans.count
    read()
    assert scans.count == before   # the index is current again


def test_other_settings_make_the_index_stale(indexed, quiet):
    root, read, scans = indexed
    (root/'train/a/1.jpg').write_bytes(b'other content')   # content is not part of the index
    read()
    assert scans.count == 1
    read(extensions=('.jpg', '.txt'))
    assert scans.count == 2


def test_index_with_any_damaged_byte_is_never_wrong(indexed, tmp_path):
    root, read, scans = indexed
    path, expected = tmp_path/'index.npz', listing(read())
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        assert listing(read()) == expected, place


def test_scan_with_any_number_of_threads_is_the_same(tree):
    root = tree(*[f'c{k % 7}/d{k % 3}/{k}.jpg' for k in range(100)])
    first, *others = [scan_folder(root, num_threads=n) for n in (1, 2, 16)]
    assert all(list(o.table) == list(first.table) and o.folders == first.folders for o in others)


# ---- folders in class folders

@pytest.mark.parametrize('files, here, elsewhere', [
    (('cat/1.jpg', 'cat/sub/2.jpg', 'dog/sub/3.jpg'), ['cat', 'sub'], ['cat', 'dog']),
    (('cat/sub/2.jpg', 'dog/sub/3.jpg'), ['sub'], ['cat', 'dog']),
    (('train/cat/1.jpg', 'train/cat/sub/2.jpg', 'val/cat/3.jpg'), ['cat', 'sub'], ['cat'])])
def test_classes_that_torchvision_would_count_otherwise_are_told(tree, files, here, elsewhere):
    root = tree(*files)
    messages = told(lambda: ImageDataset(root))
    inside = root/'train' if files[0].startswith('train') else root
    assert ImageFolder(inside).classes == elsewhere and list(ImageDataset(root).class_to_idx) == here   # timm's rule
    assert len(messages) == 1 and f'as in timm: {len(here)} ({", ".join(here)})' in messages[0]
    assert f'would be {len(elsewhere)} ({", ".join(elsewhere)})' in messages[0] and "create_dataset('torch/image_folder'" in messages[0]


@pytest.mark.parametrize('split, files', [
    ('train', ('cat/1.jpg', 'dog/2.jpg')), ('train', ('animal/cat/1.jpg', 'thing/car/2.jpg')),
    (None, ('train/cat/1.jpg', 'val/cat/2.jpg')), ('train', ('train/cat/1.jpg', 'train/cat/empty/', 'val/cat/2.jpg'))])
def test_folders_that_name_each_class_once_are_not_told(tree, split, files):
    assert told(lambda: ImageDataset(tree(*files), split=split)) == []


def test_files_that_come_several_times_through_links_are_told(tree):
    root = tree(*(f'{name}/{k}.jpg' for name in 'abc' for k in range(5)))
    for name in 'abc':
        for other in 'abc':
            if other != name: os.symlink(f'../{other}', root/name/f'to_{other}')
    index = []
    messages = told(lambda: index.append(scan_folder(root)))
    times = len(index[0].table) - 15
    assert times > 0 and len(messages) == 1 and f'{times} of {times + 15} files are listed more than once' in messages[0]
