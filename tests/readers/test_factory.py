"The reader of a name: TensorFlow data sets are read by timm's reader, over stand-ins for TensorFlow's two packages."
import inspect
import re
import subprocess
import sys
import tarfile
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from grids import full
from PIL import Image
from torch import distributed

from timmdata import ImageDataset, create_dataset, create_loader
from timmdata.loaders.stream_loader import check_ranks
from timmdata.look.pictures import show_batch
from timmdata.readers.factory import ReaderSettings
from timmdata.readers.folder import ReaderImageFolder
from timmdata.readers.huggingface import ReaderHfds
from timmdata.readers.pack import ReaderPack, ReaderShards
from timmdata.readers.table import ReaderTable
from timmdata.readers.tar import ReaderImageTar

timm_data = pytest.importorskip('timm.data')
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings('ignore:This DataLoader will create'),
              pytest.mark.filterwarnings("ignore:.*'mode' parameter is deprecated:DeprecationWarning")]
TF_READER = 'timm.data.readers.reader_tfds'
SPLITS = {'train': 20, 'test': 7}


class Stream:
    "What tf.data gives: some records, with their seeds and shares noted."

    def __init__(self, num, shuffles): self.num, self.shuffles, self.times = num, shuffles, 1
    def with_options(self, options): return self
    def prefetch(self, num): return self
    def shuffle(self, num, seed): return self

    def repeat(self):
        self.times = 1000
        return self

    def __iter__(self):
        order = np.random.default_rng(self.shuffles).permutation(self.num) if self.shuffles is not None else range(self.num)
        for _ in range(self.times):
            for k in order: yield {'image': np.full((20, 24, 3), k, np.uint8), 'label': int(k) % 3}


class Builder:
    "A prepared data set of gray photographs."

    def __init__(self, name, data_dir):
        if name != 'Gray/1M': raise FileNotFoundError(f'no {name} in {data_dir}')
        label = SimpleNamespace(names=['cat', 'dog', 'owl'])
        splits = {name: SimpleNamespace(num_examples=num, num_shards=1) for name, num in SPLITS.items()}
        self.info = SimpleNamespace(features={'image': None, 'label': label}, splits=splits)

    def as_dataset(self, split, shuffle_files, decoders, read_config):
        return Stream(SPLITS[split], read_config['shuffle_seed'] if shuffle_files else None)


@pytest.fixture
def tfds(monkeypatch):
    "timm's own module, imported over the stand-ins."
    tensorflow, packages = ModuleType('tensorflow'), ModuleType('tensorflow_datasets')
    tensorflow.config = SimpleNamespace(set_visible_devices=lambda devices, kind: None)
    tensorflow.data = SimpleNamespace(Options=lambda: SimpleNamespace(threading=SimpleNamespace()))
    packages.even_splits = lambda split, num, drop_remainder=False: [split] * num
    packages.decode = SimpleNamespace(make_decoder=lambda: lambda function: lambda **settings: function)
    packages.builder, packages.ReadConfig, packages.as_numpy = Builder, dict, lambda stream: stream
    monkeypatch.setitem(sys.modules, 'tensorflow', tensorflow)
    monkeypatch.setitem(sys.modules, 'tensorflow_datasets', packages)
    monkeypatch.delitem(sys.modules, TF_READER, raising=False)
    yield
    sys.modules.pop(TF_READER, None)


def noting(told, function):
    "The same function, with its arguments noted."
    def noted(*args, **settings):
        told.append((args, settings))
        return function(*args, **settings)
    return noted


def samples_of(dataset): return [(image.tobytes(), target) for image, target in dataset]


def test_tfds_is_timms_reader_with_timms_samples(tfds):
    class_map = {'cat': 5, 'dog': 0, 'owl': 1}
    for split, settings in ('test', {}), ('test', dict(class_map=class_map)), ('train', dict(is_training=True, batch_size=8)):
        ours = create_dataset('TFDS/Gray/1M', 'root', split, **settings)
        theirs = timm_data.create_dataset('tfds/Gray/1M', 'root', split, **settings)
        assert type(ours.reader) is type(theirs.reader) and ours.class_to_idx == theirs.reader.class_to_idx
        assert len(ours) == len(theirs) and samples_of(ours) == samples_of(theirs)


def test_a_loader_of_tfds_knows_epochs_and_workers(tfds):
    dataset = create_dataset('tfds/Gray/1M', 'root', 'train', is_training=True, batch_size=8, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        told = []
        for name in ('set_epoch', 'set_loader_cfg'):
            patch.setattr(dataset.reader, name, noting(told, getattr(dataset.reader, name)))
        loader = create_loader(dataset, 16, 8, is_training=True, num_workers=0, device='cpu', seed=1)
        assert len(loader) == 3
        epochs = [[(images.clone(), targets.clone()) for images, targets in loader] for _ in range(2)]
        loader.close()
    assert told == [((), {'num_workers': 0}), ((0,), {}), ((1,), {})]
    assert all(len(epoch) == 3 and epoch[0][0].shape == (8, 3, 16, 16) for epoch in epochs)
    assert not all(torch.equal(a, b) for (_, a), (_, b) in zip(*epochs))


def test_tfds_is_divided_among_ranks_by_timm(tfds, monkeypatch):
    for name, value in dict(is_initialized=True, get_rank=1, get_world_size=2).items():
        monkeypatch.setattr(distributed, name, lambda value=value: value)
    share = create_dataset('tfds/Gray/1M', 'root', 'train', is_training=True, batch_size=8)
    check_ranks(share, 1)
    assert len(share) == 16   # of 20
    monkeypatch.setattr(distributed, 'get_rank', lambda: 0)
    with pytest.raises(ValueError, match='this is rank 0 of 2, but the stream yields the share of rank 1 of 2'): check_ranks(share, 1)


@full
def test_without_tensorflow_or_timm_the_package_is_named():
    code = """
import sys
sys.modules['{}'] = None
from timmdata import create_dataset
try: create_dataset('tfds/mnist', 'root', 'train')
except ImportError as error: print('refused:', error)
"""
    for package, message in ('tensorflow', 'tensorflow'), ('timm', 'tfds/mnist requires timm: pip install timm'):
        done = subprocess.run([sys.executable, '-c', code.format(package)], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert re.search(f'refused: .*{message}', done.stdout), done.stdout


def test_an_error_of_tensorflow_is_not_taken_for_a_missing_timm(monkeypatch):
    def missing(name): raise AttributeError("module 'numpy' has no attribute 'object0'")
    broken = ModuleType('tensorflow')   # as one that was built for another NumPy
    broken.__getattr__ = missing
    monkeypatch.setitem(sys.modules, 'tensorflow', broken)
    monkeypatch.delitem(sys.modules, TF_READER, raising=False)
    with pytest.raises(AttributeError, match='object0'): create_dataset('tfds/mnist', 'root', 'train')


def test_shards_beside_what_our_commands_wrote_are_still_shards(tmp_path):
    "`timmdata inspect .` and `timmdata demo .` in a folder of tars."
    for k in range(2): Image.new('RGB', (20, 16)).save(tmp_path/f'{k}.png')
    for name in ('cat', 'dog'):
        with tarfile.open(tmp_path/f'{name}.tar', 'w') as tar:
            for k in range(2): tar.add(tmp_path/f'{k}.png', f'{k}.png')
    for k in range(2): (tmp_path/f'{k}.png').unlink()
    before = ImageDataset(tmp_path)
    assert isinstance(before.reader, ReaderImageTar) and before.class_to_idx == {'cat': 0, 'dog': 1}
    (tmp_path/'inspection/measures').mkdir(parents=True)
    for name in ('report.html', 'report.json', 'measures/train.npy'): (tmp_path/'inspection'/name).touch()
    (tmp_path/'labels').mkdir()
    (tmp_path/'labels/1.xml').touch()
    show_batch((torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))).savefig(tmp_path/'batch.png')
    after = ImageDataset(tmp_path)
    assert after.filenames() == before.filenames() and after.class_to_idx == before.class_to_idx
    Image.new('RGB', (20, 16)).save(tmp_path/'labels/1.png')
    assert isinstance(ImageDataset(tmp_path).reader, ReaderImageFolder)   # images beside archives: a folder, as before


def test_the_settings_of_readers_are_those_of_their_parameters():
    kinds = [ReaderImageFolder, ReaderImageTar, ReaderTable, ReaderPack, ReaderShards, ReaderHfds]
    taken = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    given = {'self', 'root', 'name', 'split', 'class_map'}   # by name, in ImageDataset
    assert set(ReaderSettings.__annotations__) == taken - given
