"create_dataset: the same data sets as timm's, by the same words; open_splits: what commands read."
import json
import os
import tarfile
import warnings

import pytest
import timm.data as timm_data
import timm.data.dataset_factory as timm_factory
from grids import quick
from torchvision import datasets as torchvision_datasets

from timmdata import ImageDataset, create_reader
from timmdata.datasets.factory import create_dataset, exclusion_file, open_splits

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def calls(monkeypatch):
    "torchvision's classes, replaced by ones that write down how they were called; in timm as well."
    made = []

    def recorder(name):
        def make(root, **settings):
            made.append((name, os.path.abspath(root), settings))   # ours keep a relative root as it is at the call
            return name
        return make

    for name in ('CIFAR10', 'CIFAR100', 'MNIST', 'KMNIST', 'FashionMNIST', 'QMNIST', 'ImageNet', 'Places365',
                 'INaturalist', 'ImageFolder'):
        monkeypatch.setattr(torchvision_datasets, name, recorder(name))
        monkeypatch.setattr(timm_factory, name, recorder(name))
    basic = dict(cifar10='CIFAR10', cifar100='CIFAR100', mnist='MNIST', kmnist='KMNIST', fashion_mnist='FashionMNIST')
    monkeypatch.setattr(timm_factory, '_TORCH_BASIC_DS', {k: recorder(v) for k, v in basic.items()})
    return made


SETS = ['cifar10', 'CIFAR100', 'mnist', 'kmnist', 'fashion_mnist', 'qmnist', 'places365', 'inaturalist', 'inat']


@pytest.mark.parametrize('name', SETS)
@quick(2, 'split', ['train', 'training', 'val', 'validation', 'eval'])
@quick(1, 'settings', [{}, {'download': True, 'transform': 'a transform', 'target_transform': None}])
def test_torchvision_is_called_as_by_timm(calls, name, split, settings):
    for create in (create_dataset, timm_data.create_dataset): create(f'torch/{name}', 'data', split=split, **settings)
    ours, timms = calls
    assert ours == timms


@pytest.mark.parametrize('name, split', [
    ('cifar10', 'test'), ('places365', 'train-challenge'), ('inat', '2017'), ('inat', 'kingdom/2018'),
    ('inat', 'family_genus/validation'), ('inat', 'full/train'), ('Torch/imagenet', 'validation'),
    ('TORCH/ImageNet', 'train')])
def test_own_splits_are_passed_as_by_timm(calls, name, split):
    name = name if '/' in name else f'torch/{name}'
    for create in (create_dataset, timm_data.create_dataset): create(name, 'data', split=split)
    ours, timms = calls
    assert ours == timms


def test_image_folder_of_torchvision(samples):
    ours = create_dataset('torch/image_folder', samples, 'validation')
    oracle = timm_data.create_dataset('torch/folder', str(samples), 'val')
    assert [tuple(map(str, s)) for s in ours.samples] == [tuple(map(str, s)) for s in oracle.samples] and len(ours) == 80
    with pytest.raises(ValueError, match='no split'): create_dataset('torch/folder', samples, 'test')
    assert len(create_dataset('torch/folder', samples/'val', 'test', search_split=False)) == 80


# ---- create_dataset: files

@pytest.mark.parametrize('split', ['train', 'training', 'val', 'valid', 'validation', 'eval'])
def test_folders_are_as_timms(samples, split, tmp_path):
    folder = {'train': 'train', 'training': 'train'}.get(split, 'val')
    ours, oracle = create_dataset('', samples, split), timm_data.create_dataset('', str(samples), split)
    assert ours.filenames() == [f'{folder}/{name}' for name in oracle.filenames()]
    assert [ours.reader[k][1] for k in range(len(ours))] == [oracle.reader[k][1] for k in range(len(oracle))]


@pytest.mark.parametrize('name', ['imagenet', 'imagefolder', 'ImageFolder', 'image_folder', 'folder', 'x/imagenet', 'Imagenet-1k'])
def test_a_name_without_a_known_prefix_is_a_folder_as_in_timm(samples, name):
    for split in ('train', 'validation'):
        ours, timms = create_dataset(name, root=samples, split=split), timm_data.create_dataset(name, root=str(samples), split=split)
        assert ours.filenames(absolute=True) == timms.filenames(absolute=True)
        assert [target for _, target in ours.reader.samples] == [target for _, target in timms.reader.samples]
    ours, timms = (create(name, str(samples/'val')) for create in (create_reader, timm_data.create_reader))
    assert ours.filenames(absolute=True) == timms.filenames(absolute=True)


def test_the_name_of_a_split_in_place_of_a_name(samples):
    "timm passes over it and reads what split= says; so do we, and say so where the two differ."
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert create_dataset('train', samples, 'training').filenames() == create_dataset('', samples, 'train').filenames()
    with pytest.warns(UserWarning, match=r"create_dataset\('train', …\) reads split='validation'.*split='train'"):
        dataset = create_dataset('train', samples)
    assert [len(dataset), len(timm_data.create_dataset('train', str(samples)))] == [80, 80]
    for make in (lambda: create_reader('train', samples), lambda: ImageDataset(samples, 'train')):
        with pytest.raises(ValueError, match="'train' is the name of a split, not of a reader: pass split='train'"): make()


def test_a_root_in_place_of_the_name(samples, monkeypatch):
    monkeypatch.chdir(samples)
    with pytest.raises(ValueError, match=r"root is missing: 'val' is only a name.* create_dataset\('', 'val'\)"): create_dataset('val')
    with pytest.raises(ValueError, match=r"root is missing: 'no' is only a name.* create_dataset\('no', root\)"): create_dataset('no')


def test_words_of_training_scripts_pass_through(samples):
    words = dict(is_training=True, batch_size=32, seed=7, repeats=3, download=False, num_samples=None, class_map='',
                 trust_remote_code=False, transform=None)
    ours = create_dataset('', root=samples, split='train', **words)
    assert len(ours) == len(timm_data.create_dataset('', root=str(samples), split='train', **words))
    gray = create_dataset('folder', samples, 'val', input_img_mode='L', load_bytes=False)
    assert gray[0][0].mode == 'L' and create_dataset('', samples, 'val', load_bytes=True)[0][0][:2] == b'\xff\xd8'
    mapped = create_dataset('', samples, 'val', class_map={name: 3 for name in ours.class_to_idx})
    assert mapped[0][1] == 3


def test_case_of_paths_is_kept(samples, tmp_path):
    root = tmp_path/'Data'
    (root/'val').mkdir(parents=True)
    with tarfile.open(root/'val/Photos.tar', 'w') as tar: tar.add(samples/'val', '.')
    assert len(create_dataset('', root, 'validation')) == 80
    assert len(create_dataset('', root/'val/Photos.tar', None)) == 80
    with pytest.raises(ValueError, match="no split 'validation'"): create_dataset('', root/'val/Photos.tar')


def test_every_name_of_timm_is_known(calls):
    for name in timm_factory._TORCH_BASIC_DS: create_dataset(f'torch/{name}', 'data', split='train')
    assert len(calls) == len(timm_factory._TORCH_BASIC_DS) > 4


# ---- open_splits

def test_a_list_is_for_the_split_in_its_name(samples, tmp_path):
    "A list with any other name is for all splits, and its samples must exist."
    for split, names in dict(train=['train/cat/0000.jpg', 'train/cat/0001.jpg'], val=['val/cat/0000.jpg']).items():
        (tmp_path/exclusion_file(split)).write_text(json.dumps(dict.fromkeys(names, 'a reason')))
    (tmp_path/'more.txt').write_text('val/cat/0001.jpg\n')
    (tmp_path/'nothing.json').write_text('[]')
    whole, lists = open_splits(samples), [tmp_path/exclusion_file(split) for split in ('val', 'train')]
    found = open_splits(samples, exclude_files=lists)
    for split, names in dict(train=['cat/0000.jpg', 'cat/0001.jpg'], val=['cat/0000.jpg']).items():
        assert set(whole[split].filenames()) - set(found[split].filenames()) == {f'{split}/{name}' for name in names}
        assert found[split].class_to_idx == whole[split].class_to_idx and len(found[split]) == len(whole[split]) - len(names)
    both = open_splits(samples, 'val', exclude_files=[str(lists[0]), tmp_path/'more.txt'])['val']
    assert len(both) == len(whole['val']) - 2
    assert len(open_splits(samples, exclude_files=[tmp_path/'nothing.json'])['train']) == len(whole['train'])
    with pytest.raises(ValueError, match='1 of 1 names match no sample'): open_splits(samples, exclude_files=[tmp_path/'more.txt'])
    with pytest.raises(ValueError, match='2 of 3 names match no sample'): open_splits(samples, 'val', exclude_files=lists)
    with pytest.raises(FileNotFoundError, match='no such file'): open_splits(samples, exclude_files=['no/such.json'])


@pytest.mark.parametrize('data', ['hf:', 'hf:/', 'hf:.', 'hf: '])
def test_a_dataset_of_hugging_face_has_a_name(data):
    with pytest.raises(ValueError, match=f"'{data}' does not name a dataset: write hf:NAME"): open_splits(data)


@pytest.mark.parametrize('split', ['train', 'train[:10%]', 'a/b', '../up'])
def test_the_file_of_a_split_is_a_name_in_one_folder(split):
    assert exclusion_file(split).count('/') == 0 and exclusion_file(split).startswith('exclude-')
