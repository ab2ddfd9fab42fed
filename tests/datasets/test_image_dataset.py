"Real-world files: every odd format in every mode, compared with Pillow; every kind of damage, and how it is handled."
import errno
import io
import os
import pickle
import shutil
import struct
import tarfile
import warnings
import zlib

import numpy as np
import pytest
import timm.data
import timm.data.readers.reader
import torch
from pictures import encoded
from PIL import Image
from torch.utils.data import DataLoader

import timmdata
from timmdata import relabel
from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield


# ---- kinds of damage

def png_with_broken_chunk() -> bytes:
    data = bytearray(encoded(Image.effect_noise((20, 20), 50), 'png'))
    data[data.index(b'IDAT') + 10] ^= 255   # its checksum is wrong now
    return bytes(data)


def bomb(side=20000) -> bytes:
    "Return a PNG of a few bytes whose header has a large size."
    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    header = struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(b'')) + chunk(b'IEND', b'')


def whole() -> bytes: return encoded(Image.effect_noise((64, 48), 80).convert('RGB'), quality=95)


DAMAGE = {'empty': lambda: b'', 'text': lambda: b'no image at all', 'broken chunk': png_with_broken_chunk,
          'bomb': bomb, 'cut': lambda: whole()[:900],
          'header only': lambda: whole()[:20], 'html': lambda: b'<!DOCTYPE html><title>404</title>',
          'zeros': lambda: bytes(2000),
          'png header only': lambda: png_with_broken_chunk()[:30], 'gif': lambda: b'GIF89a' + bytes(5),
          'tiff': lambda: b'II*\x00\xff\xff\xff\xff' + bytes(20),
          'pdf': lambda: b'%PDF-1.4\n', 'bmp': lambda: b'BM' + bytes(30), 'psd': lambda: b'8BPS' + bytes(30)}


@pytest.mark.parametrize('name', DAMAGE)
def test_damaged_file_is_one_kind_of_error_that_names_it(tmp_path, name, quiet):
    (tmp_path/'a').mkdir()
    (tmp_path/'a/1.jpg').write_bytes(whole())
    (tmp_path/'a/2.jpg').write_bytes(DAMAGE[name]())
    with pytest.raises(ImageReadError, match=r'a/2\.jpg \(index 1\): .') as raised: ImageDataset(tmp_path)[1]
    assert raised.value.__cause__ is not None and isinstance(raised.value, OSError)
    skipping = ImageDataset(tmp_path, on_error='skip')
    assert skipping[1] is None
    assert [(s.index, s.path, s.replaced_by) for s in skipping.bad_samples] == [(1, 'a/2.jpg', None)]
    assert skipping.bad_samples[0].cause
    replacing = ImageDataset(tmp_path, on_error='replace')
    assert replacing[1][0].size == (64, 48) and replacing.bad_samples[0].replaced_by == 0


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='root may read everything')
def test_file_without_permission(tmp_path):
    (tmp_path/'1.jpg').write_bytes(whole())
    (tmp_path/'1.jpg').chmod(0)
    with pytest.raises(ImageReadError, match='PermissionError'): ImageDataset(tmp_path)[0]


@pytest.mark.parametrize('on_error', ['raise', 'skip', 'replace'])
@pytest.mark.parametrize('error', [MemoryError(), KeyboardInterrupt(), *(OSError(code, os.strerror(code)) for code in (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE))], ids=repr)
def test_fault_of_the_machine_is_never_skipped(samples, monkeypatch, on_error, error):
    dataset = ImageDataset(samples, on_error=on_error)
    def no_open(*args, **kwargs): raise error
    monkeypatch.setattr(os, 'open', no_open)
    with pytest.raises(type(error)) as raised: dataset[0]
    assert raised.value is error and dataset.bad_samples == []


# ---- the rule of replacement

def with_bad(tmp_path, num, bad) -> str:
    for k in range(num):
        (tmp_path/f'{k}.jpg').write_bytes(b'bad' if k in bad else encoded(Image.new('RGB', (k + 1, 5)), 'jpeg'))
    return tmp_path


def test_replacement_is_seeded_and_the_same_again(tmp_path, quiet):
    root, bad = with_bad(tmp_path, 40, range(0, 40, 2)), range(0, 40, 2)
    def chosen(**settings):
        dataset = ImageDataset(root, on_error='replace', **settings)
        for _ in range(2):
            assert [dataset[k][0].size[0] - 1 for k in bad] == [s.replaced_by for s in dataset.bad_samples]
        return [s.replaced_by for s in dataset.bad_samples]
    assert chosen() == chosen() == chosen(replace_seed=0) != chosen(replace_seed=1)
    assert all(other % 2 for other in chosen()) and len(set(chosen())) > 8


def test_target_and_transform_of_a_replacement_are_its_own(tmp_path, quiet):
    for name in 'a', 'b': (tmp_path/name).mkdir()
    (tmp_path/'a/1.jpg').write_bytes(b'bad')
    (tmp_path/'b/2.jpg').write_bytes(whole())
    dataset = ImageDataset(tmp_path, on_error='replace', transform=lambda image: image.size,
                           target_transform=lambda target: target * 10)
    assert dataset[0] == ((64, 48), 10)   # the label belongs to the picture


@pytest.mark.parametrize('context', ['fork', pytest.param('spawn', marks=pytest.mark.full)])
def test_bad_sample_log_of_three_workers(tmp_path, context, quiet):
    dataset = ImageDataset(with_bad(tmp_path, 30, range(0, 30, 3)), on_error='skip')
    rows = list(DataLoader(dataset, batch_size=None, num_workers=3 if context == 'fork' else 1,
                           multiprocessing_context=context, collate_fn=is_there))
    assert [row is None for row in rows] == [k % 3 == 0 for k in range(30)]
    assert [s.index for s in dataset.bad_samples] == list(range(0, 30, 3))
    path = dataset.faults.log.path
    assert os.path.exists(path)
    del dataset
    assert not os.path.exists(path)


def is_there(sample): return None if sample is None else sample[1]


def test_bad_sample_log_warns_once_and_survives_pickling(tmp_path):
    dataset = ImageDataset(with_bad(tmp_path, 4, [1, 2]), on_error='skip')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for _ in range(3):
            for k in range(4): dataset[k]
        copy = pickle.loads(pickle.dumps(dataset))
        copy[1]
    assert [(one.category, one.filename) for one in caught] == [(RuntimeWarning, __file__)]
    assert '1.jpg (index 1) is skipped' in str(caught[0].message) and 'dataset.bad_samples lists all' in str(caught[0].message)
    assert copy.bad_samples == dataset.bad_samples and [sample.index for sample in dataset.bad_samples] == [1, 2]


# ---- the rest of a dataset

def test_index_out_of_range_and_negative(samples):
    dataset = ImageDataset(samples, split='val')
    assert dataset[-1][1] == dataset[79][1] and dataset[np.int64(3)][1] == dataset[torch.tensor(3)][1]
    for k in (80, -81):
        with pytest.raises(IndexError, match='out of range'): dataset[k]
    assert len(list(zip(range(200), dataset, strict=False))) == 80   # iteration by index ends


class OpenFiles:
    "A reader that returns open files, as timm's readers do, and additional fields."
    def __init__(self, paths): self.paths, self.opened = paths, []
    def __len__(self): return len(self.paths)

    def __getitem__(self, index):
        self.opened.append(open(self.paths[index], 'rb'))
        return self.opened[-1], index, self.paths[index].name


def test_reader_of_the_users(samples):
    reader = OpenFiles(sorted((samples/'val/cat').iterdir()))
    dataset = ImageDataset('', reader=reader)
    image, target, name = dataset[2]
    assert (image.mode, target, name) == ('RGB', 2, '0002.jpg') and all(file.closed for file in reader.opened)
    assert dataset.class_to_idx == {} and dataset.filename(2) == 'sample 2'
    assert ImageDataset('', reader=reader, load_bytes=True)[0][0][:2] == b'\xff\xd8'
    with pytest.raises(TypeError, match='index_file'): ImageDataset('', reader=reader, index_file='x')


def test_missing_label_is_minus_one(samples):
    class Unlabeled(OpenFiles):
        def __getitem__(self, index): return super().__getitem__(index)[0], None
    dataset = ImageDataset('', reader=Unlabeled(sorted((samples/'val/cat').iterdir())),
                           target_transform=lambda target: 1 / 0)
    assert dataset[0][1] == -1


def test_stream_that_says_no_length(samples):
    stream = IterableImageDataset(reader=((path.read_bytes(), k) for k,
                                          path in enumerate(sorted((samples/'val/cat').iterdir()))))
    with pytest.raises(TypeError): len(stream)
    assert [target for _, target in stream] == list(range(8))
    with pytest.raises(ValueError, match='needs samples with an index'):
        IterableImageDataset(reader=[], on_error='replace')
    with pytest.raises(TypeError, match='reader is missing'): IterableImageDataset()


# ---- what torchvision's data sets have

def test_relabeled_samples_have_targets_of_their_own(samples):
    whole = ImageDataset(samples, split='val')
    assert len(whole.targets) == len(whole.samples) == 80
    few = relabel(whole, {'cat': 'animal', 'horse': 'animal', 'rocket': 'thing'})
    assert few.classes == ['animal', 'thing'] and few.targets == [t for _, t in few] and len(few.samples) == len(few)
    assert pickle.loads(pickle.dumps(whole)).targets == whole.targets and len(pickle.dumps(whole)) < len(pickle.dumps(whole.samples)) + 9000


def test_targets_and_samples_cannot_be_set(samples):
    dataset = ImageDataset(samples, split='val')
    for name in ('classes', 'targets', 'samples'):
        with pytest.raises(AttributeError): setattr(dataset, name, [])


def test_classes_of_a_map_with_gaps_and_two_names_for_one():
    class Own(list): class_to_idx = {'b': 3, 'kitty': 0, 'cat': 0}
    assert ImageDataset('', Own()).classes == ['kitty', '1', '2', 'b']


def test_a_data_set_without_paths_or_targets_says_so(samples, tmp_path):
    archive = shutil.make_archive(str(tmp_path/'val'), 'tar', samples, 'val')
    packed, own = ImageDataset(archive, split='val'), ImageDataset('', [(b'', 0)])
    assert packed.targets == ImageDataset(samples, split='val').targets
    with pytest.raises(AttributeError, match='ReaderImageTar has no separate file for each sample: use dataset.filename'):
        packed.samples   # noqa: B018
    for name in ('samples', 'targets'):
        with pytest.raises(AttributeError, match='list does not know the targets without reading all samples'):
            getattr(own, name)
    assert not hasattr(own, 'targets') and own.classes == []


def test_several_labels_and_numbers_are_targets_as_they_are(samples):
    paths = ['val/cat/0000.jpg', 'val/rocket/0000.jpg']
    tags = ImageDataset(samples, table=dict(path=paths, target=[['a', 'b'], []]))
    assert tags.targets == [[0, 1], []]
    ages = ImageDataset(samples, table=dict(path=paths, target=[0.5, 3.0]))
    assert ages.targets == [0.5, 3.0] and ages.samples == [(str(samples/path), age) for path, age in zip(paths, [0.5, 3.0])]


# ---- subclasses and readers that were written for timm

def opening(base):
    class Opening(base):
        "Read as scripts do: open the file here, and return the index beside the target."
        def __getitem__(self, index):
            file, target = self.reader[index]
            return Image.open(file).convert('RGB'), target, index
    return Opening


def test_a_subclass_opens_what_the_reader_gives_as_in_timm(samples, tmp_path):
    root, folder = str(samples/'val'), ImageDataset(samples/'val', split=None)
    timms, ours = opening(timm.data.ImageDataset)(root), opening(ImageDataset)(root, split=None)
    for index in (0, 41, 79):
        for here, there in zip(ours[index], timms[index], strict=True):
            assert np.array_equal(here, there)
    assert ours.reader.samples[5] == (timms.reader.samples[5][0], timms.reader.samples[5][1])
    assert [*ours.reader.samples] == timms.reader.samples and open(ours.reader.samples[5][0], 'rb').read(2) == b'\xff\xd8'
    tar = tmp_path/'photos.tar'
    with tarfile.open(tar, 'w') as archive: archive.add(root, 'photos')
    for others in (opening(ImageDataset)(tar, split=None), opening(ImageDataset)(root, split=None, exclude=['cat/0000.jpg'])):
        assert others[0][0].size == ours[0][0].size
    given = opening(ImageDataset)('', reader=folder.reader)
    assert given[3][0].size == ours[3][0].size and isinstance(folder.reader[3][0], bytes)   # the other dataset's reader is as it was
    images, targets, indexes = next(iter(timmdata.create_loader(ours, 32, 4, num_workers=0, device='cpu')))
    assert images.shape == (4, 3, 32, 32) and indexes.tolist() == [0, 1, 2, 3] and targets.tolist() == folder.targets[:4]


def test_a_subclass_that_asks_its_base_gets_images(samples):
    class Indexed(ImageDataset):
        def __getitem__(self, index): return *super().__getitem__(index), index
    dataset, plain = Indexed(samples, split='val'), ImageDataset(samples, split='val')
    assert np.array_equal(dataset[7][0], plain[7][0]) and dataset[7][1:] == (plain[7][1], 7)


class Damaged(timm.data.readers.reader.Reader):
    def __len__(self): return 3
    def __getitem__(self, index): return io.BytesIO(b'no image'), index
    def _filename(self, index, basename=False, absolute=False): return f'{"/data/" if absolute else ""}photo-{index}.jpg'


def test_a_reader_of_timm_names_its_files():
    class OnOurs(timmdata.readers.Reader):
        __len__, __getitem__, _filename = Damaged.__len__, Damaged.__getitem__, Damaged._filename
    for reader in (Damaged(), OnOurs()):
        dataset = ImageDataset('', reader=reader)
        with pytest.raises(ImageReadError, match=r'cannot read photo-1.jpg \(index 1\)'): dataset[1]
        assert dataset.filename(1, absolute=True) == '/data/photo-1.jpg' and dataset.filenames() == [f'photo-{k}.jpg' for k in range(3)]


def test_a_reader_without_names_says_the_number():
    class Nameless(timmdata.readers.Reader):
        __len__, __getitem__ = Damaged.__len__, Damaged.__getitem__
    with pytest.raises(ImageReadError, match=r'cannot read sample 1 \(index 1\)'): ImageDataset('', reader=Nameless())[1]
