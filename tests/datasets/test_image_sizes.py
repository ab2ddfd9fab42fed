"Sizes of images: each header is read once; unreadable images get a size, too."
import errno
import os

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from timmdata import ImageDataset, NaFlex, create_loader
from timmdata.datasets.image_sizes import image_sizes
from timmdata.readers import base
from timmdata.readers.base import read_file
from timmdata.readers.store import StoreError


@pytest.mark.parametrize('transform', [None, lambda image: image.resize((32, 48))], ids=['none', 'own'])
def test_a_damaged_file_that_is_skipped_has_the_usual_size(tmp_path, transform):
    for number in range(4):
        path = tmp_path/'a'/f'{number}.png'
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((48, 32, 3), number, np.uint8)).save(path)
    (tmp_path/'a/2.png').write_bytes(b'torn')
    dataset = ImageDataset(tmp_path, transform=transform, on_error='skip')
    assert image_sizes(dataset).tolist() == [[48, 32]] * 4
    loader = create_loader(dataset, batch_size=4, naflex=NaFlex(mode='native'), num_workers=0, device='cpu')
    assert sum(len(targets) for _, targets in loader) == 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    "Four images of several sizes, and a cache folder for this test."
    monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path/'cache'))
    for number in range(4):
        path = tmp_path/'images/a'/f'{number}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (10 + number, 20)).save(path)
    return tmp_path/'images'


@pytest.fixture
def reads(monkeypatch):
    "Return a list of the files that are read, in order."
    seen = []
    def read(path):
        seen.append(os.path.basename(path))
        return read_file(path)
    monkeypatch.setattr(base, 'read_file', read)
    return seen


SIZES = [[20, 10], [20, 11], [20, 12], [20, 13]]


def test_headers_are_read_once(folder, reads, tmp_path):
    for _ in range(2): assert image_sizes(ImageDataset(folder)).tolist() == SIZES
    assert sorted(reads) == ['0.png', '1.png', '2.png', '3.png']
    dataset = ImageDataset(folder)
    for _ in range(2):   # nested ones have a file of their own
        assert image_sizes(ConcatDataset([Subset(dataset, [3]), dataset])).tolist() == [SIZES[3], *SIZES]
    assert len(reads) == 9 and len(list((tmp_path/'cache/sizes').iterdir())) == 2
    NaFlex(mode='native', image_sizes=SIZES).sizes(lambda: pytest.fail('asked'), 4)


def test_a_changed_file_is_read_again(folder, reads):
    image_sizes(ImageDataset(folder))
    Image.new('RGB', (10, 77)).save(folder/'a/1.png')
    assert image_sizes(ImageDataset(folder)).tolist() == [SIZES[0], [77, 10], *SIZES[2:]]
    os.utime(folder/'a/1.png', ns=(0, 0))
    image_sizes(ImageDataset(folder))
    assert len(reads) == 12


@pytest.mark.parametrize('content', [
    b'', b'torn', np.zeros((3, 2), np.int32), np.ones((4, 2)), np.full((4, 2), -1, np.int32), np.array([[None] * 2] * 4)], ids=repr)
def test_a_file_of_sizes_that_does_not_fit_is_made_again(folder, reads, tmp_path, content):
    image_sizes(ImageDataset(folder))
    path, = (tmp_path/'cache/sizes').iterdir()
    whole = path.read_bytes()
    if isinstance(content, bytes): path.write_bytes(content)
    else: np.save(path, content)
    assert image_sizes(ImageDataset(folder)).tolist() == SIZES and path.read_bytes() == whole
    path.write_bytes(whole[:-1])   # it claims more than it has
    assert image_sizes(ImageDataset(folder)).tolist() == SIZES and len(reads) == 12


def test_a_cache_folder_that_cannot_be_written_to_stops_nothing(folder, reads, tmp_path):
    (tmp_path/'cache').write_text('a file in its place')
    for _ in range(2): assert image_sizes(ImageDataset(folder)).tolist() == SIZES
    assert len(reads) == 8


def test_what_could_not_be_read_is_tried_again(folder, reads):
    (folder/'a/2.png').write_bytes(b'torn')
    usual = [*SIZES[:2], [20, 11], SIZES[3]]
    for _ in range(2): assert image_sizes(ImageDataset(folder, on_error='skip')).tolist() == usual
    assert reads.count('2.png') == 2 and len(reads) == 5
    with pytest.raises(OSError, match='2.png'): image_sizes(ImageDataset(folder))
    dataset = ImageDataset(folder, on_error='skip')
    (folder/'a/3.png').unlink()   # after it was listed
    assert image_sizes(dataset).tolist() == [*SIZES[:2], [20, 10], [20, 10]]


@pytest.mark.parametrize('on_error', ['raise', 'skip', 'replace'])
@pytest.mark.parametrize('error', [OSError(errno.EMFILE, 'Too many open files'), StoreError('cannot be reached'), MemoryError()], ids=repr)
def test_a_machine_or_a_store_at_fault_is_no_missing_image(folder, monkeypatch, on_error, error):
    def fail(path): raise error
    monkeypatch.setattr(base, 'read_file', fail)
    with pytest.raises(type(error)) as caught: image_sizes(ImageDataset(folder, on_error=on_error))
    assert caught.value is error
