"What a newcomer gets wrong is an error or a warning that says what was got and what to do, not an empty or a wrong batch."
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, Subset
from torchvision.transforms import v2

from timmdata import ImageDataset, IterableImageDataset, create_loader, create_transform
from timmdata.core.faults import ImageReadError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder(tmp_path):
    "Two classes of four images, 50 x 40."
    for number in range(8):
        path = tmp_path/'data'/'ab'[number % 2]/f'{number}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (40, 50, 3), np.uint8)).save(path)
    return tmp_path/'data'


def loader_of(dataset, **settings): return create_loader(dataset, 32, 4, device='cpu', **{'num_workers': 0, **settings})


def test_unknown_mode_is_refused_before_a_file_is_read(folder):
    with pytest.raises(ValueError, match="input_img_mode='GREY': give a mode of Pillow, such as 'RGB'"):
        ImageDataset(folder, input_img_mode='GREY', on_error='skip')
    for mode in ('L', 'RGBA', 'CMYK', None): assert ImageDataset(folder, input_img_mode=mode)[0][0].mode == (mode or 'RGB')


def test_text_in_place_of_an_image_is_said_in_one_line(folder):
    (folder/'a'/'0.jpg').write_text('<!DOCTYPE html>\n<html>not found</html>')
    with pytest.raises(ImageReadError) as caught: ImageDataset(folder)[0]
    message = str(caught.value)
    assert message == ("cannot read a/0.jpg (index 0): the file is no image that Pillow knows, it begins with "
                       "b'<!DOCTYPE html>\\n'") and '0x' not in message


def test_training_without_classes_is_worth_a_warning(folder):
    dataset = ImageDataset(folder/'a')
    assert [target for _, target in dataset] == [-1] * 4
    with pytest.warns(UserWarning, match='no image of .* has a class, so every target is -1: put the images into class folders'):
        loader_of(dataset, is_training=True)
    with warnings.catch_warnings():   # prediction
        warnings.simplefilter('error')
        loader_of(dataset)
        loader_of(ImageDataset(folder), is_training=True)


def test_files_of_another_split_are_not_warned_of(folder, tmp_path):
    root = tmp_path/'divided'
    for split in ('train', 'val'):
        (root/split/'a').mkdir(parents=True)
        Image.new('RGB', (8, 8)).save(root/split/'a'/'1.jpg')
    Image.new('L', (8, 8)).save(root/'train'/'a'/'x.gif')
    index_file = tmp_path/'index.npz'
    for _ in range(2):   # a scan, then its index file
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            assert len(ImageDataset(root, split='val', index_file=index_file)) == 1
        with pytest.warns(UserWarning, match='not read: 1 .gif'): ImageDataset(root, split='train', index_file=index_file)


@pytest.mark.parametrize('as_what', [str, lambda path: path])
def test_path_in_place_of_a_dataset(folder, as_what):
    with pytest.raises(TypeError, match=r'dataset is the path .*: give ImageDataset\('): create_loader(as_what(folder), 32, 4)


SMALL = v2.Compose([v2.Resize((24, 28)), v2.PILToTensor()])


@pytest.mark.parametrize('transform', [SMALL, v2.Resize((24, 28)), v2.Compose([v2.Resize((24, 28)), np.asarray])],
                         ids=['tensor', 'PIL', 'array'])
@pytest.mark.parametrize('num_workers', [0, 1])
def test_transform_of_another_size_is_named(folder, transform, num_workers):
    with pytest.raises(ValueError, match=r'the transform made .* pixels .*input_size is \(32, 32\)'):
        next(iter(loader_of(ImageDataset(folder), transform=transform, num_workers=num_workers)))


def test_own_collate_function_may_take_other_sizes(folder):
    def padded(samples): return torch.nn.functional.pad(torch.stack([image for image, _ in samples]), (0, 4, 0, 8)), [0] * len(samples)
    images, _ = next(iter(loader_of(ImageDataset(folder), transform=SMALL, collate_fn=padded)))
    assert images.shape == (4, 3, 32, 32)


def test_arrays_of_a_transform_may_have_their_channels_last(folder):
    arrays = v2.Compose([v2.Resize((32, 32)), np.asarray])
    tensors = v2.Compose([v2.Resize((32, 32)), v2.PILToTensor()])
    (a, _), (b, _) = (next(iter(loader_of(ImageDataset(folder), transform=t))) for t in (arrays, tensors))
    assert torch.equal(a, b)


def test_transforms_of_albumentations_are_called_in_its_way(folder, monkeypatch):
    "A stand-in with its signature: `albumentations` itself needs OpenCV."
    class Flip:
        def __call__(self, *, image): return {'image': image[:32, 31::-1]}
    Flip.__module__ = 'albumentations.augmentations.geometric'
    monkeypatch.setitem(sys.modules, 'albumentations', ModuleType('albumentations'))
    dataset = ImageDataset(folder)
    images, _ = next(iter(loader_of(dataset, transform=Flip(), mean=0., std=1 / 255)))
    expected = np.asarray(dataset[0][0])[:32, 31::-1].transpose(2, 0, 1)
    assert np.abs(images[0].numpy() - expected).max() < 1e-3
    assert ImageDataset(folder, transform=Flip())[0][0].shape == (32, 32, 3)


@pytest.mark.parametrize('settings', [dict(num_workers=0), dict(num_workers=2), dict(num_workers=1, workers='processes')], ids=str)
def test_epoch_in_which_everything_was_skipped_is_an_error(folder, settings):
    for path in folder.rglob('*.jpg'): path.write_text('no image')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with pytest.raises(ImageReadError, match=r'all 8 samples of epoch 0 were skipped: dataset.bad_samples'):
            list(loader_of(ImageDataset(folder, on_error='skip'), **settings))


@pytest.mark.parametrize('epoch', ['1', -1, 0.5, None])
def test_epoch_that_is_no_number(folder, epoch):
    loader = loader_of(ImageDataset(folder))
    for part in (loader, loader.sampler, loader.batch_sampler):
        with pytest.raises(ValueError, match='give a whole number, 0 or more'): part.set_epoch(epoch)
    loader.set_epoch(np.int64(3))
    assert loader.state_dict()['epoch'] == 3


@pytest.mark.parametrize('epoch, batch', [(-1, 0), (0, -1)])
def test_replay_counts_from_zero(folder, epoch, batch):
    with pytest.raises(ValueError, match='they count from 0'): loader_of(ImageDataset(folder), seed=1).replay(epoch, batch)


@pytest.mark.parametrize('statistics', [dict(mean=(123., 116., 103.), std=(58., 57., 57.)), dict(mean=0., std=255.)], ids=str)
def test_statistics_for_bytes_are_refused(folder, statistics):
    with pytest.raises(ValueError, match='for pixels in 0..1; divide those for 0..255 by 255'):
        loader_of(ImageDataset(folder), **statistics)


WORKERS = [dict(num_workers=0), dict(num_workers=2), dict(num_workers=2, persistent_workers=False)]


@pytest.mark.filterwarnings('ignore:.*is skipped')
@pytest.mark.parametrize('settings', [*WORKERS, dict(num_workers=1, multiprocessing_context='spawn'), dict(is_training=True)], ids=str)
def test_stream_in_which_everything_was_skipped_is_an_error(settings):
    dataset = IterableImageDataset(reader=[(b'no image', 0)] * 8, on_error='skip')
    loader = loader_of(dataset, **settings)
    for epoch in range(2):   # workers that are kept say it again
        with pytest.raises(ImageReadError, match=f'epoch {epoch} of the stream has no batch, because samples were skipped'): list(loader)
    loader.close()
    assert len(dataset.bad_samples) == 8


class Nones(IterableDataset):
    "A stream of one's own that passes over all it has."
    def __iter__(self): return iter([None] * 4)


def test_stream_of_nones_is_an_error():
    with pytest.raises(ImageReadError, match='has no batch'): list(loader_of(Nones(), transform=v2.Identity()))


@pytest.mark.filterwarnings('ignore:.*is skipped')
@pytest.mark.parametrize('rank', [0, 1])
def test_rank_whose_share_was_skipped_says_so(rank, monkeypatch):
    "In evaluation, where skipping is allowed: the other rank goes on, this one does not end in silence."
    from timmdata.readers.stream import StreamReader

    class Share(StreamReader):
        def read_shard(self, shard_index, num_shards, seed):
            good = Image.new('RGB', (40, 40))
            return ((good if k % 2 else b'no image', k) for k in range(shard_index, 8, num_shards))

    monkeypatch.setattr(torch.distributed, 'is_initialized', lambda: True)
    monkeypatch.setattr(torch.distributed, 'get_rank', lambda: rank)
    monkeypatch.setattr(torch.distributed, 'get_world_size', lambda: 2)
    loader = loader_of(IterableImageDataset(reader=Share(8), on_error='skip'), distributed=True)
    if rank: assert [targets.tolist() for _, targets in loader] == [[1, 3, 5, 7]]
    else:
        with pytest.raises(ImageReadError, match='samples were skipped'): list(loader)


@pytest.mark.filterwarnings('ignore:.*is skipped')
def test_message_counts_the_samples_of_its_rank(folder, monkeypatch):
    for path in folder.rglob('*.jpg'): path.write_text('no image')
    for name, value in dict(is_initialized=True, get_rank=1, get_world_size=2).items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with pytest.raises(ImageReadError, match='all 4 samples of epoch 0'):
        list(loader_of(ImageDataset(folder, on_error='skip'), distributed=True))


@pytest.mark.parametrize('reader, is_training, message', [
    ([], False, 'it gave no sample'), ([(Image.new('RGB', (40, 40)), 0)] * 3, True, 'fewer than 4, and incomplete batches are dropped')])
@pytest.mark.parametrize('num_workers', [0, 1])
def test_stream_without_a_batch_is_worth_a_warning(reader, is_training, message, num_workers):
    loader = loader_of(IterableImageDataset(reader=reader), is_training=is_training, num_workers=num_workers)
    with pytest.warns(UserWarning, match=f'epoch 0 of the stream has no batch: .*{message}'): assert list(loader) == []


@pytest.mark.filterwarnings('ignore:.*is skipped')
def test_stream_that_has_something_is_no_error():
    reader = [(b'no image', 0), (Image.new('RGB', (40, 40)), 1)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert sum(len(t) for _, t in loader_of(IterableImageDataset(reader=reader, on_error='skip'))) == 2


def test_stream_transform_of_another_size_is_named():
    reader = [(Image.new('RGB', (40, 40)), 0)] * 4
    with pytest.raises(ValueError, match=r'the transform made .*24, 28.* of a sample of the stream, input_size is \(32, 32\)'):
        list(loader_of(IterableImageDataset(reader=reader), transform=SMALL))
    arrays = v2.Compose([v2.Resize((32, 32)), np.asarray])
    (images, _), = loader_of(IterableImageDataset(reader=reader), transform=arrays)
    assert images.shape == (4, 3, 32, 32)


@pytest.mark.parametrize('epoch', ['1', -1, 0.5, None, True])
def test_epoch_of_a_stream_that_is_no_number(epoch):
    loader = loader_of(IterableImageDataset(reader=[]))
    with pytest.raises(ValueError, match='give a whole number, 0 or more'): loader.set_epoch(epoch)


@pytest.mark.parametrize('settings', [dict(num_workers=0), dict(num_workers=2), dict(num_workers='auto'),
                                      dict(num_workers=1, workers='processes')], ids=str)
def test_an_empty_subset_is_an_empty_evaluation(folder, settings):
    with loader_of(Subset(ImageDataset(folder), []), **settings) as loader: assert list(loader) == []
    with pytest.raises(ValueError, match='no samples, so there is nothing to train on'):
        loader_of(Subset(ImageDataset(folder), []), is_training=True, **settings)


@pytest.mark.parametrize('wrong, error, message', [
    (dict(epoch='0', batch=0), TypeError, "epoch='0': give a whole number"), (dict(epoch=0, batch=0.5), TypeError, 'batch=0.5'),
    (dict(epoch=0, index='1'), TypeError, "index='1'"), (dict(epoch=0, index=8), IndexError, 'no index 8: the dataset has 8 samples')])
def test_replay_of_what_is_no_number(folder, wrong, error, message):
    with pytest.raises(error, match=message): loader_of(ImageDataset(folder), seed=1).replay(**wrong)


def test_statistics_for_bytes_are_refused_by_the_transform():
    for is_training in (False, True):
        with pytest.raises(ValueError, match='divide those for 0..255 by 255'):
            create_transform(32, is_training, mean=(123., 116., 103.), std=(58., 57., 57.))
