"TensorFlow datasets, made by tensorflow_datasets itself; timm's reader as oracle; skipped where the package is not installed."
import io
import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from timmdata import create_loader
from timmdata.core.faults import ImageReadError
from timmdata.datasets.factory import create_dataset

tfds = pytest.importorskip('tensorflow_datasets')
pytest.importorskip('tensorflow')
pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings('ignore:This DataLoader will create'),
              pytest.mark.filterwarnings('ignore::DeprecationWarning')]
NAMES, NUM, TEST = ['cat', 'dog', 'owl'], 41, 7
NEVER = {'mask': np.zeros((8, 8, 1), np.uint8), 'heat': np.zeros((4, 4, 1), np.float32)}   # features that nobody asks for


def file_of(k: int) -> bytes:
    "Photograph k, in its own file format and mode."
    rng, file = np.random.default_rng(k), io.BytesIO()
    pixels = rng.integers(0, 255, (3, 4) if k % 5 == 4 else (3, 4, 3), np.uint8)
    Image.fromarray(pixels).resize((24 + k % 3, 20), 3).save(file, 'PNG' if k % 3 == 2 else 'JPEG')
    return file.getvalue()


class TinyPhotos(tfds.core.GeneratorBasedBuilder):
    "Photographs of noise."
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
        features = tfds.features
        return tfds.core.DatasetInfo(builder=self, features=features.FeaturesDict({
            'image': features.Image(), 'label': features.ClassLabel(names=NAMES), 'filename': features.Text(),
            'objects': features.Sequence({'label': features.ClassLabel(names=['wheel', 'wing']), 'size': np.float32}),
            'sun': np.int64, 'rain': np.bool_, 'scene': {'image': features.Image(), 'word': features.Text()},
            'mask': features.Image(shape=(None, None, 1)), 'heat': features.Image(shape=(None, None, 1), dtype=np.float32)}))

    def _split_generators(self, dl_manager):
        return {'train': self._generate_examples(0, NUM), 'test': self._generate_examples(100, 100 + TEST)}

    def _generate_examples(self, start, stop):
        for k in range(start, stop):
            yield k, {'image': io.BytesIO(file_of(k)), 'label': k % 3, 'filename': f'{k % 3}/{k}.jpg', 'sun': k % 2, 'rain': k % 3 == 0,
                      'objects': [{'label': k % 2, 'size': 1.}] * (k % 3), **NEVER,
                      'scene': {'image': io.BytesIO(file_of(k + 1)), 'word': NAMES[k % 3]}}


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    "The data set in four files a split."
    tfds.disable_progress_bar()
    folder = tmp_path_factory.mktemp('tfds')
    config = tfds.download.DownloadConfig(num_shards=4, try_download_gcs=False)
    TinyPhotos(data_dir=folder).download_and_prepare(download_config=config)
    return folder


def read(root, split='train', **settings): return create_dataset('tfds/tiny_photos', root, split, load_bytes=False, **settings)


def targets_of(loader) -> list[int]: return [int(t) for _, targets in loader for t in torch.as_tensor(targets).view(-1)]


def names_of(reader) -> list[str]:
    "File names, for which a label without a class map is as good a target as any."
    return [name for _, name in reader]


# ---- as timm's

@pytest.mark.parametrize('split, settings', [
    ('train', {}), ('test', {}), ('train[:30%]', {}), ('train+test', {}), ('train', dict(class_map={'cat': 2, 'dog': 0, 'owl': 1})),
    ('train', dict(class_map={0: 5, 1: 4, 2: 4})), ('test', dict(target_key='sun,rain')), ('test', dict(input_key='scene/image'))])
def test_samples_are_timms(root, split, settings):
    timms = pytest.importorskip('timm.data.readers.reader_tfds').ReaderTfds('tiny_photos', str(root), split, **settings)
    ours = read(root, split, **settings)
    oracle, found = list(timms), list(ours)
    assert ours.reader.class_to_idx == timms.class_to_idx and len(ours) == len(timms) == len(oracle) == len(found)
    for (image, target), (timm_image, timm_target) in zip(found, oracle):
        assert np.array_equal(target, timm_target) and image.tobytes() == timm_image.tobytes()


def test_names_of_files_are_timms(root):
    timms = pytest.importorskip('timm.data.readers.reader_tfds').ReaderTfds('tiny_photos', str(root), 'test')
    reader = read(root, 'test').reader
    assert reader.filenames() == [name.decode() for name in timms.filenames()] == names_of(
        create_dataset('tfds/tiny_photos', root, 'test', target_key='filename'))
    assert reader.filenames() == read(root, 'test', is_training=True).reader.filenames()
    assert sorted(reader.filenames(basename=True)) == [f'{k}.jpg' for k in range(100, 100 + TEST)]


def test_bytes_are_those_of_the_file(root):
    reader = read(root, target_key='filename').reader
    assert all(data == file_of(int(name.split('/')[1][:-4])) for data, name in reader)


@pytest.mark.parametrize('key, wanted', [('objects/label', lambda k: [k % 2] * (k % 3)), ('scene/word', lambda k: NAMES[k % 3]),
                                         ('sun,rain', lambda k: [0] * (k % 2) + [1] * (k % 3 == 0))])
def test_targets_of_other_features(root, key, wanted):
    names = names_of(read(root, target_key='filename'))
    assert [target for _, target in read(root, target_key=key)] == [wanted(int(name.split('/')[1][:-4])) for name in names]


# ---- shares

@pytest.mark.parametrize('num_workers', [0, 1, 2, 3])
def test_workers_give_each_sample_once(root, num_workers):
    dataset = create_dataset('TFDS/tiny_photos', root, 'training')
    loader = create_loader(dataset, 16, 7, num_workers=num_workers, persistent_workers=False, device='cpu')
    assert Counter(targets_of(loader)) == Counter(k % 3 for k in range(NUM)) and len(dataset) == NUM


@pytest.mark.parametrize('world, num_workers, split, num', [(2, 1, 'train', NUM), (3, 2, 'train', NUM), (5, 2, 'test', TEST)])
def test_ranks_give_each_sample_once(monkeypatch, root, world, num_workers, split, num):
    import timmdata.readers.stream as stream_reader
    seen = []
    for rank in range(world):
        reader = read(root, split, target_key='filename').reader
        reader.world = (rank, world)
        for worker in range(num_workers):
            info = torch.utils.data._utils.worker.WorkerInfo(id=worker, num_workers=num_workers, seed=0, dataset=None)
            monkeypatch.setattr(stream_reader, 'get_worker_info', lambda info=info: info)
            seen.append(names_of(reader))
    assert len(set(sum(seen, []))) == num == sum(map(len, seen))
    assert max(map(len, seen)) - min(map(len, seen)) <= 1


@pytest.mark.parametrize('num_workers', [0, 2])
def test_training_gives_whole_batches(root, num_workers):
    dataset = read(root, is_training=True, batch_size=8)
    loader = create_loader(dataset, 16, 8, is_training=True, num_workers=num_workers, persistent_workers=False, device='cpu')
    sizes = [len(targets) for _, targets in loader]
    assert sizes == [8] * len(sizes) and sum(sizes) == len(dataset) >= NUM


def order(root, seed, epoch, num_workers=0, **settings):
    dataset = read(root, is_training=True, seed=seed, target_key='filename', **settings)
    dataset.set_epoch(epoch)
    return [name for _, name in DataLoader(dataset, None, num_workers=num_workers)]


def test_order_of_training_is_a_function_of_seed_and_epoch(root):
    first, everything = order(root, 1, 0), sorted(names_of(read(root, target_key='filename')))
    assert first == order(root, 1, 0) and first != order(root, 1, 1) and first != order(root, 2, 0)
    assert sorted(first) == sorted(order(root, 1, 1)) == everything and order(root, 1, 0, shuffle_size=1) != first
    divided = order(root, 1, 0, 2)
    assert divided == order(root, 1, 0, 2) and divided != order(root, 1, 1, 2)
    assert set(divided) == set(everything) and len(divided) == NUM + 1   # both workers give 21
    assert set(divided[::2]) != set(order(root, 1, 2, 2)[::2])   # a worker has other samples


def test_more_workers_than_samples_are_an_error_in_training(root):
    reader = read(root, 'test[:1]', is_training=True).reader
    reader.world = (0, 2)
    with pytest.raises(ValueError, match='has no samples'):
        for rank in (0, 1):
            reader.world = (rank, 2)
            list(reader)


# ---- faults

@pytest.mark.parametrize('settings, error, message', [
    (dict(split='validation'), ValueError, "no split 'validation' in tiny_photos; there is: train, test"),
    (dict(split='train+vall[:3]'), ValueError, "no split 'vall'"), (dict(split='train[:900]'), ValueError, '41 examples'),
    (dict(input_key='img'), ValueError, "no field 'img'; there are"), (dict(target_key='klass'), ValueError, "no field 'klass'"),
    (dict(input_key='filename'), ValueError, "'filename' of tiny_photos has no images"),
    (dict(input_key='heat'), ValueError, "'heat' of tiny_photos has no images"), (dict(split=''), ValueError, 'read by split')])
def test_wrong_words_are_errors(root, settings, error, message):
    with pytest.raises(error, match=message): read(root, **settings)


def test_nothing_is_fetched_unasked(root, tmp_path):
    with pytest.raises(FileNotFoundError, match='download=True fetches and prepares it'): create_dataset('tfds/mnist', tmp_path, 'test')
    with pytest.raises(FileNotFoundError, match='knows no such data set'): create_dataset('tfds/tiny_photographs', root, 'test')
    with pytest.raises(ValueError, match='name of the data set is missing'): create_dataset('tfds/', root, 'test')
    assert not list(tmp_path.iterdir())
    assert len(create_dataset('tfds/tiny_photos', tmp_path, 'test', download=True)) == TEST   # made by the class above


def test_a_broken_file_is_an_error_with_a_name(root, tmp_path):
    import shutil
    shutil.copytree(root/'tiny_photos', tmp_path/'tiny_photos')
    path, *_ = sorted(tmp_path.glob('*/*/*test*'))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ImageReadError, match='cannot read tiny_photos'): list(read(tmp_path, 'test'))


def test_a_reader_can_be_copied_before_and_after_reading(root):
    reader = read(root, 'test').reader
    copied = pickle.loads(pickle.dumps(reader))
    samples = list(reader)
    assert list(copied) == samples == list(pickle.loads(pickle.dumps(reader)))


PROGRAM = """
import sys
from torch.utils.data import DataLoader
from timmdata.datasets.factory import create_dataset
dataset = create_dataset('tfds/tiny_photos', sys.argv[1], 'train')
assert len(dataset) == len(list(DataLoader(dataset, None, num_workers=2))) == {num}
assert 'tensorflow' not in sys.modules, 'the parent has imported TensorFlow'
assert len(list(dataset)) == {num}
assert len(list(DataLoader(dataset, None, num_workers=2))) == {num}   # forked from a process in which TensorFlow ran
"""


def test_the_parent_of_workers_has_no_tensorflow(root):
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', PROGRAM.format(num=NUM), os.fspath(root)],
                          capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
