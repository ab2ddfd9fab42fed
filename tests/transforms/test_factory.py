"create_dataset, data configs, class infos, real labels, target fields: timm's functions as oracle."
import dataclasses
import itertools
import json
import logging
import tarfile
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import timm.data as timm_data
import timm.data.dataset_factory as timm_factory
import torch
from timm.data.readers.targets import get_field as timm_get_field
from torchvision import datasets as torchvision_datasets

import timmdata.datasets.factory as dataset_factory
from timmdata import create_loader
from timmdata.datasets.class_info import (
    CustomDatasetInfo,
    DatasetInfoLabelMapper,
    infer_imagenet_subset,
    load_class_info,
)
from timmdata.datasets.factory import create_dataset
from timmdata.datasets.real_labels import RealLabelsImagenet
from timmdata.readers.target_fields import MultiLabelTarget, TargetFields, get_field
from timmdata.transforms.model_config import (
    resolve_data_config,
    resolve_input_data_config,
    resolve_model_data_config,
)

pytestmark = pytest.mark.timeout(60)

# ---- create_dataset: torchvision


@pytest.fixture
def calls(monkeypatch):
    "torchvision's classes, replaced by ones that write down how they were called; in timm as well."
    made = []

    def recorder(name):
        def make(root, **settings):
            made.append((name, str(root), settings))
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
@pytest.mark.parametrize('split', ['train', 'training', 'val', 'validation', 'eval'])
@pytest.mark.parametrize('settings', [{}, {'download': True, 'transform': 'a transform', 'target_transform': None}])
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


@pytest.mark.parametrize('name, split, there', [
    ('cifar10', 'tset', 'train, test'), ('imagenet', 'test', 'train, val'), ('places365', 'test', 'train-standard'),
    ('inat', '2016', '2021_train'), ('mnist', '', 'train, test')])
def test_wrong_split_of_torchvision_is_an_error(calls, name, split, there):
    with pytest.raises(ValueError, match=f'no split {split!r} in torch/{name}; there is: {there}'):
        create_dataset(f'torch/{name}', 'data', split=split)
    assert not calls


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


def test_words_of_training_scripts_pass_through(samples):
    words = dict(is_training=True, batch_size=32, seed=7, repeats=3, download=False, num_samples=None, class_map='',
                 trust_remote_code=False, transform=None)
    ours = create_dataset('', root=samples, split='train', **words)
    assert len(ours) == len(timm_data.create_dataset('', root=str(samples), split='train', **words))
    grey = create_dataset('folder', samples, 'val', input_img_mode='L', load_bytes=False)
    assert grey[0][0].mode == 'L' and create_dataset('', samples, 'val', load_bytes=True)[0][0][:2] == b'\xff\xd8'
    mapped = create_dataset('', samples, 'val', class_map={name: 3 for name in ours.class_to_idx})
    assert mapped[0][1] == 3


def test_case_of_paths_is_kept(samples, tmp_path):
    root = tmp_path/'Data'
    (root/'val').mkdir(parents=True)
    with tarfile.open(root/'val/Photos.tar', 'w') as tar: tar.add(samples/'val', '.')
    assert len(create_dataset('', root, 'validation')) == 80
    assert len(create_dataset('', root/'val/Photos.tar', None)) == 80
    with pytest.raises(ValueError, match="no split 'validation'"): create_dataset('', root/'val/Photos.tar')


@pytest.mark.parametrize('name, error, message', [
    ('cifar10', ValueError, 'is not known'), ('hfd/x', ValueError, "'hfd/x' is not known"),
    ('torch/voc', ValueError, 'there are image_folder'), ('tfd/cifar10', ValueError, "'tfd/cifar10' is not known")])
def test_unknown_names_are_errors(samples, name, error, message):
    with pytest.raises(error, match=message): create_dataset(name, samples, 'val')


def test_every_name_of_timm_is_known():
    assert set(timm_factory._TORCH_BASIC_DS) <= set(dataset_factory._TORCH)


# ---- data configs

CFG = dict(input_size=(3, 192, 160), test_input_size=(3, 256, 256), interpolation='bilinear', mean=(0.5, 0.4, 0.3),
           std=(0.1, 0.2, 0.3), crop_pct=0.9, test_crop_pct=0.95, crop_mode='border', num_classes=10)
ARGS = [{}, {'img_size': 96}, {'input_size': (3, 64, 80)}, {'input_size': [1, 64, 80], 'mean': [0.5], 'std': [0.2]},
        {'in_chans': 1}, {'chans': 4, 'img_size': 32, 'mean': (0.1,), 'std': (1, 2, 3, 4)}, {'in_chans': 1, 'chans': 4},
        {'mean': (0.1, 0.2, 0.3), 'std': None, 'crop_pct': 0.7, 'crop_mode': 'squash', 'interpolation': 'random'},
        {'crop_pct': 0, 'interpolation': '', 'crop_mode': '', 'img_size': None, 'input_size': None}]
CFGS = [{}, CFG, {**CFG, 'test_input_size': None, 'test_crop_pct': None}, {'input_size': (1, 28, 28)},
        {'crop_pct': None, 'mean': None, 'interpolation': ''}]


class Model(torch.nn.Module):
    "A model with a config."
    def __init__(self, cfg): super().__init__(); self.pretrained_cfg = cfg


@pytest.mark.parametrize('use_test_size', [False, True])
@pytest.mark.parametrize('cfg', CFGS, ids=range(len(CFGS)))
@pytest.mark.parametrize('args', ARGS, ids=range(len(ARGS)))
def test_data_config_is_timms(args, cfg, use_test_size):
    model = Model(cfg)
    for given in (dict(pretrained_cfg=cfg), dict(model=model), dict(model=model, pretrained_cfg=CFG)):
        given = dict(args=args, use_test_size=use_test_size, **given)
        if not args and not given.get('pretrained_cfg') and 'model' not in given: continue   # refused by both
        ours = resolve_data_config(**given)
        assert ours == timm_data.resolve_data_config(**given) and list(ours) == list(timm_data.resolve_data_config(**given))
    assert resolve_model_data_config(model, args, None, use_test_size) == timm_data.resolve_model_data_config(
        model, args, None, use_test_size)
    assert resolve_data_config(Namespace(**args), model=model) == timm_data.resolve_data_config(args, model=model)


def test_configs_of_other_forms():
    @dataclasses.dataclass
    class Config: input_size: tuple = (3, 64, 64); crop_pct: float = 0.8; mean: tuple = None
    as_dict = resolve_data_config(pretrained_cfg=dataclasses.asdict(Config()))
    assert resolve_data_config(pretrained_cfg=Config()) == as_dict == resolve_data_config(
        model=SimpleNamespace(default_cfg=dataclasses.asdict(Config())))
    from_json = resolve_data_config(pretrained_cfg=json.loads(json.dumps(CFG)))
    assert from_json == resolve_data_config(pretrained_cfg=CFG)


@pytest.mark.parametrize('args', [{'input_size': (64, 64)}, {'input_size': 64}, {'img_size': 'big'}, {'mean': (1, 2)},
                                  {'std': (1, 2), 'in_chans': 3}, {'input_size': (3, 0, 5)}])
def test_wrong_arguments_are_errors(args):
    with pytest.raises(ValueError): resolve_data_config(args)


def test_verbose_logs(caplog):
    with caplog.at_level(logging.INFO): resolve_data_config({'img_size': 96}, verbose=True)
    assert '(3, 96, 96)' in caplog.text


@pytest.fixture(scope='module')
def models():
    import timm
    make = timm.create_model
    return [make('vit_tiny_patch16_224', depth=1), make('vit_tiny_patch16_224', depth=1, img_size=96, in_chans=1),
            make('vit_tiny_patch16_224', depth=1, dynamic_img_size=True), make('resnet18'),
            make('resnet18', in_chans=4), make('resnet18.a1_in1k')]


def outcome(function, *args, **settings):
    "The result, or that there is none."
    try: return function(*args, **settings)
    except ValueError: return ValueError


def test_input_data_config_is_timms(models):
    cases = [*ARGS, {'img_size': (224, 224)}, {'img_size': 224}, {'in_chans': 3}, {'mean': 0.5, 'std': 0.5},
             {'model_kwargs': {'img_size': 96, 'in_chans': 1}}, {'img_size': 96, 'model_kwargs': {'img_size': 64}}]
    seen = []
    for model, args, use_test_size, cfg in itertools.product(models, cases, (False, True), (None, CFG)):
        given = dict(args=args, use_test_size=use_test_size, pretrained_cfg=cfg)
        ours, timms = (outcome(f, model, **given)
                       for f in (resolve_input_data_config, timm_data.resolve_input_data_config))
        assert ours == timms, (type(model).__name__, given)
        seen.append(ours is ValueError)
    assert 20 < sum(seen) < len(seen) - 20


def test_config_fits_create_loader(samples):
    config = resolve_data_config({'img_size': 32}, CFG)
    loader = create_loader(create_dataset('', samples, 'val'), batch_size=8, num_workers=0, device='cpu', **config)
    assert next(iter(loader))[0].shape == (8, 3, 32, 32)


# ---- classes

NAMES = ['n3', 'n1', 'n2']
WORDS = {'n1': 'one', 'n2': 'two', 'n3': 'three'}


@pytest.mark.parametrize('names', [NAMES, tuple(NAMES), {0: 'n3', '5': 'n1'}, {2: 'n2'}])
@pytest.mark.parametrize('words', [None, WORDS])
def test_class_info_is_timms(names, words):
    ours, oracle = CustomDatasetInfo(names, words), timm_data.CustomDatasetInfo(names, words)
    assert ours.num_classes() == oracle.num_classes() and ours.label_indices() == oracle.label_indices()
    for idx in oracle.label_indices():
        assert ours.index_to_description(idx) == oracle.index_to_description(idx)
        assert ours.index_to_label_name(torch.tensor(idx)) == oracle.index_to_label_name(idx)
    assert [ours.has_label(k) for k in range(-1, 7)] == [oracle.has_label(k) for k in range(-1, 7)]
    for label_type, fallback in itertools.product(('name', 'description', 'detail'), ('<unmapped:{index}>', 'class {index}')):
        mappers = (ours_is(ours, label_type, fallback) for ours_is, ours in (
            (DatasetInfoLabelMapper, ours), (timm_data.DatasetInfoLabelMapper, oracle)))
        first, second = mappers
        assert [first(k) for k in range(8)] == [second(k) for k in range(8)]
        assert all(first.coverage(n) == second.coverage(n) for n in range(8))


@pytest.mark.parametrize('names, words', [([], None), ('abc', None), (3, None), ({'x': 'a'}, None), ({-1: 'a'}, None),
                                          ({1: 'a', '1': 'b'}, None), ([1], None), (['a'], {'b': 'x'}), ({1.5: 'a'}, None)])
def test_wrong_class_info_is_refused_as_by_timm(names, words):
    for kind in (CustomDatasetInfo, timm_data.CustomDatasetInfo):
        with pytest.raises((ValueError, TypeError)): kind(names, words)


def test_imagenets_own_words_from_files(tmp_path):
    oracle = timm_data.ImageNetInfo()
    lines = [f'{name}\t{oracle.label_name_to_description(name)}\t{oracle._definitions[name]}' for name in oracle.label_names()]
    (tmp_path/'words.tsv').write_text('\n'.join(lines))
    ours = load_class_info(tmp_path/'words.tsv')
    assert ours.num_classes() == 1000 and ours.label_names() == oracle.label_names()
    for detailed, as_dict in itertools.product((False, True), repeat=2):
        assert ours.label_descriptions(detailed, as_dict) == oracle.label_descriptions(detailed, as_dict)
    assert ours.index_to_description(1, detailed=True) == oracle.index_to_description(1, detailed=True)


@pytest.mark.parametrize('num_classes', [1000, 11221, 11821, 21841, 21842, 21843, 10, 0, None])
def test_subset_is_guessed_as_by_timm(num_classes):
    for given in ({'num_classes': num_classes}, SimpleNamespace(num_classes=num_classes), {},
                  SimpleNamespace(pretrained_cfg={'num_classes': num_classes})):
        assert infer_imagenet_subset(given) == timm_data.infer_imagenet_subset(given)


# ---- real labels

def test_real_labels_are_timms(tmp_path):
    rng, num = np.random.default_rng(0), 200
    labels = [rng.choice(12, rng.integers(0, 4), replace=False).tolist() for _ in range(num)]
    (tmp_path/'real.json').write_text(json.dumps(labels))
    names = [f'val/n{k % 7}/ILSVRC2012_val_{k:08d}.JPEG' for k in rng.permutation(np.arange(1, num + 1))]
    output = torch.from_numpy(rng.permuted(np.tile(np.arange(12.), (num, 1)), axis=1))
    for topk in ((1, 5), (3,), (5, 1, 2)):
        judges = [kind(names, tmp_path/'real.json', topk) for kind in (RealLabelsImagenet, timm_data.RealLabelsImagenet)]
        for judge in judges:
            for batch in output.split(32): judge.add_result(batch)
        assert judges[0].get_accuracy() == judges[1].get_accuracy()
        assert all(judges[0].get_accuracy(k) == judges[1].get_accuracy(k) for k in topk)
        assert 0 < judges[0].get_accuracy(topk[0]) < 100 and judges[0].sample_idx == judges[1].sample_idx == num


# ---- targets

@pytest.mark.parametrize('num_classes, dense, target', [
    (5, False, [0, 3, 3]), (5, False, []), (5, False, torch.tensor([1])), (5, False, np.array([4, 0])),
    (3, True, [0, 1, 1]), (3, True, [0.5, 0, 1]), (3, True, [True, False, False]), (3, True, np.array([0, 1, 0])),
    (5, False, [5]), (5, False, [-1]), (5, False, [0.5]), (5, False, 3), (5, False, [True]), (3, True, [1, 0]),
    (3, True, [2, 0, 0]), (3, True, [float('nan'), 0, 0]), (3, True, [[1, 0, 0]]), (5, False, [1j])])
def test_multi_label_target_is_timms(num_classes, dense, target):
    ours, timms = (outcome(kind(num_classes, dense), target) for kind in (MultiLabelTarget, timm_data.MultiLabelTarget))
    if timms is ValueError: assert ours is ValueError
    else: assert ours.dtype == timms.dtype == torch.float32 and torch.equal(ours, timms)


def test_multi_label_target_reaches_the_batch(samples):
    dataset = create_dataset('', samples, 'val', target_transform=lambda k: MultiLabelTarget(10)([k, 9]))
    _, targets = next(iter(create_loader(dataset, 32, 16, num_workers=0, device='cpu')))
    assert targets.shape == (16, 10) and targets[8].tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize('path', ['a', 'b/c', 'b/d/e', 'x/y', 'l/k', 'l/m/n'])
def test_fields_are_found_as_by_timm(path):
    record = {'a': 1, 'b': {'c': 2, 'd': {'e': 3}}, 'x/y': 4, 'x': {'y': 5}, 'l': [{'k': 1, 'm': {'n': 7}}, {'k': 2, 'm': {'n': 8}}]}
    assert get_field(record, path) == timm_get_field(record, path)


@pytest.mark.parametrize('path', ['z', 'a/b', 'b/z', 'l/z', 'x/z'])
def test_missing_fields_are_errors(path):
    with pytest.raises(ValueError, match='no field'):
        get_field({'a': 1, 'b': {'c': 2}, 'x': {'y': 5}, 'l': [{'k': 1}]}, path)


def test_targets_are_remapped_as_by_timm():
    from timm.data.readers.class_map import remap_target
    cases = [(2, {2: 0, 'a': 1}, ()), (1, {'b': 4}, ('a', 'b')), ([0, 1], {'a': 1, 'b': 0}, ('a', 'b')), ('x', {'x': 3}, ())]
    for label, class_map, names in cases:
        assert TargetFields('t', names, class_map)({'t': label}) == remap_target(label, class_map, dict(enumerate(names)))
    for values, class_map in (([0, .5, 1], {0: 2, 2: 0}), ([1, 0], {1: 0})):
        ours = TargetFields('t', (), class_map, 'multihot')({'t': values})
        assert ours == remap_target(values, class_map, dense=True)
