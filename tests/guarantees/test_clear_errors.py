"What a newcomer gets wrong is an error or a warning that says what was got and what to do, not an empty or a wrong batch."
import inspect
import pickle
import re
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from synthetic import ROOT
from torch.utils.data import IterableDataset, Subset
from torchvision.transforms import v2

from timmdata import (
    ImageDataset,
    IterableImageDataset,
    Mixup,
    NaFlex,
    View,
    create_loader,
    create_reader,
    create_transform,
    get_recipe,
    list_recipes,
    show_batch,
)
from timmdata.buffer import BufferSettings
from timmdata.core.faults import ImageReadError
from timmdata.measure.diagnosis import GUIDE

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
    with pytest.raises(ValueError, match="input_img_mode='GRAY': .* Pillow mode, such as 'RGB'"):
        ImageDataset(folder, input_img_mode='GRAY', on_error='skip')
    for mode in ('L', 'RGBA', 'CMYK', None): assert ImageDataset(folder, input_img_mode=mode)[0][0].mode == (mode or 'RGB')


def test_text_in_place_of_an_image_is_said_in_one_line(folder):
    (folder/'a'/'0.jpg').write_text('<!DOCTYPE html>\n<html>not found</html>')
    with pytest.raises(ImageReadError) as caught: ImageDataset(folder)[0]
    message = str(caught.value)
    assert message == ("cannot read a/0.jpg (index 0): Pillow does not recognize the file as an image; it begins with "
                       "b'<!DOCTYPE html>\\n'. Use on_error='skip' to skip it; `timmdata inspect FOLDER` lists all such "
                       'files') and '0x' not in message


def test_an_error_of_a_stream_names_no_tool_for_folders():
    with pytest.raises(ImageReadError, match="sample 0 .*on_error='skip' to skip it$"):
        list(IterableImageDataset(reader=[(b'no image', 0)]))


def test_the_log_and_the_report_have_the_cause_alone(folder):
    (folder/'a'/'0.jpg').write_bytes(b'')
    skipping = ImageDataset(folder, on_error='skip')
    with pytest.warns(RuntimeWarning) as caught: assert skipping[0] is None
    with pytest.raises(ImageReadError) as raised: ImageDataset(folder)[0]
    texts = [str(caught[0].message), skipping.bad_samples[0].cause, raised.value.cause]
    assert not any('on_error' in text for text in texts)


@pytest.mark.parametrize('is_training', [False, True])
def test_a_data_set_without_classes_is_worth_a_warning(folder, is_training):
    dataset = ImageDataset(folder/'a')
    assert [target for _, target in dataset] == [-1] * 4
    with pytest.warns(UserWarning, match='no image of .* has a class, so every target is -1: put the images into class folders'):
        loader_of(dataset, is_training=is_training)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        loader_of(ImageDataset(folder), is_training=is_training)


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
    with pytest.raises(TypeError, match=r'dataset is the path .*: pass ImageDataset\('): create_loader(as_what(folder), 32, 4)


@pytest.mark.parametrize('dataset, what', [
    ([1, 2, 3], 'list of int'), (range(9), 'range of int'), ({'a': 1}, 'dict of str'), (torch.zeros(4, 3, 8, 8), 'Tensor of Tensor'),
    (np.zeros((4, 8, 8, 3)), 'ndarray of ndarray'), (['a.jpg'], 'list of str'),
    ([(1,)], 'list of tuple')], ids=lambda value: str(value)[:12])
def test_a_list_of_other_things_is_no_dataset(dataset, what):
    message = r'dataset has type {} and items of type {}: samples must be \(image, target, …\) or dicts .*ImageDataset'
    message = message.format(*what.split(' of '))
    with pytest.raises(TypeError, match=message): loader_of(dataset)


def test_a_list_of_samples_is_a_dataset_and_is_not_read_before_the_first_batch():
    class Counted(list):
        num_read = 0
        def __getitem__(self, index):
            self.num_read += 1
            return super().__getitem__(index)

    image = Image.new('RGB', (40, 40))
    for samples in ([(image, 1)] * 4, [None, (image, 1)], [{'image': image, 'target': 1}], []):
        loader = loader_of(counted := Counted(samples))
        assert counted.num_read == 0 and sum(1 for _ in loader) == min(1, len(samples))


@pytest.mark.parametrize('wrong, error, message', [
    (dict(mean='imagenet'), ValueError, r"mean='imagenet': must be one number, or one per channel, such as mean=\("),
    (dict(std='imagenet'), ValueError, "std='imagenet': must be one number"),
    (dict(mean=('a', 'b', 'c')), ValueError, r"mean=\('a', 'b', 'c'\): must be one number, or one"),
    (dict(sampler=3), TypeError, 'sampler has type int: pass a Sampler of torch, or a list of indexes'),
    (dict(mixup=0.2), TypeError, r'timmdata.Mixup, such as Mixup\(mixup_alpha=0.2, num_classes=…\)')], ids=str)
def test_wrong_words_are_told_in_the_users_words(folder, wrong, error, message):
    with pytest.raises(error, match=message): loader_of(ImageDataset(folder), is_training=True, **wrong)


def test_a_fifth_positional_argument_is_named(folder):
    message = 'only dataset, input_size, batch_size, is_training by position: pass 2 by name'
    with pytest.raises(TypeError, match=message):
        create_loader(ImageDataset(folder), 32, 4, True, 2)


def test_a_recipe_that_mixes_asks_for_the_number_of_classes():
    for name in list_recipes():
        try: mixes = 'mixup' in get_recipe(name).train
        except ValueError as error:
            assert f"recipe '{name}' mixes" in str(error) and 'pass num_classes' in str(error)
            mixes = get_recipe(name, num_classes=10).train['mixup'].num_classes == 10
        assert mixes == ('mixup' in get_recipe(name, num_classes=10).train)
    with pytest.raises(ValueError): get_recipe('rsb-a2')


SMALL = v2.Compose([v2.Resize((24, 28)), v2.PILToTensor()])


@pytest.mark.parametrize('transform', [SMALL, v2.Resize((24, 28)), v2.Compose([v2.Resize((24, 28)), np.asarray])],
                         ids=['tensor', 'PIL', 'array'])
@pytest.mark.parametrize('num_workers', [0, 1])
def test_transform_of_another_size_is_named(folder, transform, num_workers):
    with pytest.raises(ValueError, match=r'the transform returned .* pixels .*input_size is \(32, 32\)'):
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


@pytest.mark.parametrize('words, message', [
    (dict(labels='bad.csv'), r"no argument 'labels': .* table .* as the root, ImageDataset\('labels.csv'\)"),
    (dict(csv='a.csv'), r"ImageDataset\('labels.csv'\)"),
    (dict(train=True), "use split='train'"), (dict(input_size=224), 'pass it to create_loader'),
    (dict(transforms=None), r'did you mean transform\?'),
    (dict(extension='png'), r'did you mean extensions\? \(allowed: root, reader, split, .*, extensions, index_file\)'),
    (dict(qqq=1), "no argument 'qqq': allowed: root, ")], ids=str)
def test_unknown_argument_of_a_dataset_is_told_in_the_users_words(folder, words, message):
    with pytest.raises(TypeError, match=message) as caught: ImageDataset(folder, **words)
    assert str(caught.value).startswith('ImageDataset has no') and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(TypeError, match='create_reader has no argument'): create_reader('', folder, **words)


@pytest.mark.parametrize('words, message', [
    *[({word: 32}, r'did you mean input_size\?') for word in ('image_size', 'img_size', 'size')],
    *[({word: True}, r'did you mean is_training\?') for word in ('train', 'training')], ({'batch': 4}, r'did you mean batch_size\?'),
    ({'num_worker': 1}, r'did you mean num_workers\?'), ({'mixup_alpha': 1.}, r'did you mean mixup=Mixup'),
    ({'qqq': 1}, r'help\(create_loader\) lists all')], ids=str)
def test_unknown_argument_of_create_loader_is_told_with_the_one_that_is_meant(folder, words, message):
    with pytest.raises(TypeError, match=rf'create_loader has no argument .*{message}'): create_loader(ImageDataset(folder), **words)


def test_a_number_of_workers_is_not_their_kind(folder):
    with pytest.raises(ValueError, match=r'worker_type=4: .* did you mean num_workers=4\?'): loader_of(ImageDataset(folder), worker_type=4)


def test_warnings_of_create_loader_point_to_its_caller(folder):
    for settings in (dict(re_prob=0.5), dict(is_training=True, num_batches=3)):
        with pytest.warns(UserWarning, match='no effect') as caught:
            create_loader(ImageDataset(folder), 32, 4, device='cpu', num_workers=0, **settings)
        assert {warning.filename for warning in caught} == {__file__}


def test_a_dataset_of_floats_hears_of_both_ways_out(folder):
    dataset = ImageDataset(folder, transform=v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]))
    with pytest.raises(TypeError, match='uint8 .*create_loader.* transform= .*mean=None, std=None'):
        next(iter(loader_of(dataset)))


def test_doctor_names_a_page_that_is_there():
    assert (ROOT/re.search(r'\((.*)\)', GUIDE)[1]).exists()


@pytest.mark.parametrize('settings', [dict(num_workers=0), dict(num_workers=2), dict(num_workers=1, worker_type='processes')], ids=str)
def test_epoch_in_which_everything_was_skipped_is_an_error(folder, settings):
    for path in folder.rglob('*.jpg'): path.write_text('no image')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with pytest.raises(ImageReadError, match=r'every sample of epoch 0 was skipped \(8 in all\): see dataset.bad_samples'):
            list(loader_of(ImageDataset(folder, on_error='skip'), **settings))


@pytest.mark.parametrize('epoch', ['1', -1, 0.5, None])
def test_epoch_that_is_no_number(folder, epoch):
    loader = loader_of(ImageDataset(folder))
    for part in (loader, loader.sampler, loader.batch_sampler):
        with pytest.raises(ValueError, match='epoch=.* integer >= 0'): part.set_epoch(epoch)
    loader.set_epoch(np.int64(3))
    assert loader.state_dict()['epoch'] == 3


@pytest.mark.parametrize('epoch, batch', [(-1, 0), (0, -1)])
def test_replay_counts_from_zero(folder, epoch, batch):
    with pytest.raises(ValueError, match='(epoch|batch)=-1: must be an integer >= 0'):
        loader_of(ImageDataset(folder), seed=1).replay(epoch, batch)


@pytest.mark.parametrize('statistics', [dict(mean=(123., 116., 103.), std=(58., 57., 57.)), dict(mean=0., std=255.)], ids=str)
def test_statistics_for_bytes_are_refused(folder, statistics):
    with pytest.raises(ValueError, match='for pixels in 0..1; divide values for 0..255 by 255'):
        loader_of(ImageDataset(folder), **statistics)


WORKERS = [dict(num_workers=0), dict(num_workers=2), dict(num_workers=2, persistent_workers=False)]


@pytest.mark.filterwarnings('ignore:.*is skipped')
@pytest.mark.parametrize('settings', [
    *WORKERS, pytest.param(dict(num_workers=1, multiprocessing_context='spawn'), marks=pytest.mark.full), dict(is_training=True)], ids=str)
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
    with pytest.raises(ImageReadError, match='every sample of epoch 0'):
        list(loader_of(ImageDataset(folder, on_error='skip'), distributed=True))


@pytest.mark.parametrize('reader, is_training, message', [
    ([], False, 'it yielded no sample'), ([(Image.new('RGB', (40, 40)), 0)] * 3, True,
                                               'fewer samples than batch_size=4, and drop_last=True drops')])
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
    with pytest.raises(ValueError, match=r'the transform returned .*24, 28.* for a sample of the stream, .*input_size is \(32, 32\)'):
        list(loader_of(IterableImageDataset(reader=reader), transform=SMALL))
    arrays = v2.Compose([v2.Resize((32, 32)), np.asarray])
    (images, _), = loader_of(IterableImageDataset(reader=reader), transform=arrays)
    assert images.shape == (4, 3, 32, 32)


@pytest.mark.parametrize('epoch', ['1', -1, 0.5, None, True])
def test_epoch_of_a_stream_that_is_no_number(epoch):
    loader = loader_of(IterableImageDataset(reader=[]))
    with pytest.raises(ValueError, match='epoch=.* integer >= 0'): loader.set_epoch(epoch)


@pytest.mark.parametrize('settings', [dict(num_workers=0), dict(num_workers=2), dict(num_workers='auto'),
                                      dict(num_workers=1, worker_type='processes')], ids=str)
def test_an_empty_subset_is_an_empty_evaluation(folder, settings):
    with loader_of(Subset(ImageDataset(folder), []), **settings) as loader: assert list(loader) == []
    with pytest.raises(ValueError, match='no samples to train on: check its split'):
        loader_of(Subset(ImageDataset(folder), []), is_training=True, **settings)


@pytest.mark.parametrize('wrong, error, message', [
    (dict(epoch='0', batch=0), ValueError, "epoch='0': must be an integer"), (dict(epoch=0, batch=0.5), ValueError, 'batch=0.5'),
    (dict(epoch=0, index='1'), ValueError, "index='1'"), (dict(epoch=0, index=8), IndexError, 'index=8 is out of range: .* length 8')])
def test_replay_of_what_is_no_number(folder, wrong, error, message):
    with pytest.raises(error, match=message): loader_of(ImageDataset(folder), seed=1).replay(**wrong)


def test_statistics_for_bytes_are_refused_by_the_transform():
    for is_training in (False, True):
        with pytest.raises(ValueError, match='divide values for 0..255 by 255'):
            create_transform(32, is_training, mean=(123., 116., 103.), std=(58., 57., 57.))


SWITCHES = [
    'is_training', 'no_aug', 're_split', 'distributed', 'pin_memory', 'fp16', 'use_prefetcher', 'use_multi_epochs_loader',
    'persistent_workers', 'shuffle', 'drop_last', 'pad_last', 'valid_mask', 'balanced_batches', 'scaled_decode', 'channels_last']


def test_each_switch_of_the_loader_is_checked():
    "Whatever is annotated as a bool."
    parameters = inspect.signature(create_loader).parameters
    assert {name for name, one in parameters.items() if 'bool' in str(one.annotation)} - {'tf_preprocessing'} == set(SWITCHES)


@pytest.mark.parametrize('name', SWITCHES)
@pytest.mark.parametrize('value', ['no', 'False', 2, 0.5])
def test_texts_are_no_switches(folder, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}: must be True or False"): loader_of(ImageDataset(folder), **{name: value})


@pytest.mark.parametrize('name', ['color_jitter_prob', 'grayscale_prob', 'gaussian_blur_prob'])
def test_none_is_a_probability_where_timms_script_gives_it(folder, name):
    assert len(loader_of(ImageDataset(folder), is_training=True, **{name: None})) == 2


def test_numbers_and_numpy_are_switches(folder):
    loader = loader_of(ImageDataset(folder), is_training=1, shuffle=np.bool_(False), drop_last=0)
    assert len(next(iter(loader))[0]) == 4 and not loader.loader.sampler.shuffle


@pytest.mark.parametrize('wrong, message', [
    (dict(crop_pct=95), 'crop_pct=95: .*above 0, such as 0.875.* 0.95'), (dict(crop_pct=True), 'crop_pct=True'),
    (dict(crop_pct='0.9'), "crop_pct='0.9': must be"), (dict(hflip='yes'), "hflip='yes': .*probability, 0..1"),
    (dict(hflip=True), 'hflip=True: .*probability'), (dict(hflip=None), 'hflip=None: .*probability'),
    (dict(vflip=None), 'vflip=None'), (dict(grayscale_prob='0.2'), 'grayscale_prob='), (dict(re_prob=25), 're_prob=25: .*probability'),
    (dict(re_prob='0.5'), "re_prob='0.5': .*probability"),
    (dict(re_count=0), 're_count=0: .*; pass re_prob=0'),
    (dict(scale=(8, 100)), r"scale=\(8, 100\): .*area.* 0.08"),
    (dict(color_jitter=40), 'color_jitter=40: .*factor.* 0.4'), (dict(color_jitter='0.4'), "color_jitter='0.4'"),
    (dict(color_jitter=True), 'color_jitter=True'), (dict(crop_border_pixels=0.1), 'crop_border_pixels=0.1: .*pixels'),
    (dict(rc_padding=2.5, train_crop_mode='rc'), 'rc_padding=2.5'), (dict(seed=True), 'seed=True: must be'),
    (dict(timeout=True), 'timeout=True: .*seconds'), (dict(std=(58., 57., 57.)), 'divide values for 0..255 by 255'),
    (dict(batch_size='32'), "batch_size='32'"), (dict(num_workers=True), 'num_workers=True')], ids=lambda value: str(value)[:30])
def test_other_units_and_types_are_refused(folder, wrong, message):
    settings = dict(input_size=32, batch_size=4, is_training=True, num_workers=0, device='cpu') | wrong
    with pytest.raises(ValueError, match=message): create_loader(ImageDataset(folder), **settings)


@pytest.mark.parametrize('wrong', [
    dict(scale=(8, 100)), dict(ratio=(2, 1)), dict(hflip='yes'), dict(re_prob=25), dict(re_count=0), dict(color_jitter=40),
    dict(crop_pct=95), dict(batch_size=0), dict(batch_size=9), dict(num_workers=-1), dict(std=(58., 57., 57.)), dict(mean=None),
    dict(img_dtype=torch.float16, use_prefetcher=False), dict(seed=True), dict(weights=[1, 2]), dict(samples_per_epoch=0),
    dict(input_size_choices=[]), dict(device='nonsense'), dict(auto_augment='best'), dict(worker_seeding='none'),
    dict(color_jitter_mode='x'), dict(distributed=True), dict(timeout=True), dict(interpolation='cubic'), dict(backend='x'),
    dict(naflex=NaFlex(mode='packed', row_len=8)), dict(mixup=Mixup(num_classes=2), batch_size=0)], ids=str)
def test_what_is_refused_leaves_no_cache(folder, tmp_path, wrong):
    settings = dict(input_size=32, batch_size=4, is_training=True, num_workers=0, device='cpu') | wrong
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        create_loader(ImageDataset(folder), cache=dict(where='disk', directory=tmp_path/'cache'), **settings)
    assert not (tmp_path/'cache').exists()


def test_a_pipeline_that_normalizes_belongs_to_the_loader(folder):
    dataset = ImageDataset(folder)
    dataset.transform = v2.Compose([v2.Resize((32, 32)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    with pytest.raises(ValueError, match='mean=None needs transform=.*pass it as transform='):
        loader_of(dataset, mean=None, std=None)
    transform, dataset.transform = dataset.transform, None
    assert next(iter(loader_of(dataset, transform=transform, mean=None, std=None)))[0].min() >= 0


@pytest.mark.parametrize('wrong, message', [
    (dict(transform='resize'), 'transform has type str: pass a function'), (dict(collate_fn=3), 'collate_fn has type int: pass a function'),
    (dict(generator=3), 'generator has type int: pass a torch.Generator'),
    (dict(class_to_idx=['a', 'b']), 'class_to_idx has type list: pass a dict'),
    (dict(img_dtype='float16'), 'img_dtype has type str: pass .*torch.float16')], ids=str)
def test_wrong_types_are_named_before_the_first_batch(folder, wrong, message):
    with pytest.raises(TypeError, match=message): loader_of(ImageDataset(folder), **wrong)


@pytest.mark.parametrize('given', [dict(re_prob=0.25), dict(auto_augment='rand-m9'), dict(vflip=0.5), dict(scale=(0.5, 1.)),
                                   dict(hflip=0.1), dict(color_jitter=0.3), dict(color_jitter=(0.1, 0.2, 0.3))], ids=str)
def test_settings_of_training_in_evaluation_are_worth_a_warning(folder, given):
    name, = given
    with pytest.warns(UserWarning, match=f'{name}: no effect in evaluation; for training, pass is_training=True'):
        loader_of(ImageDataset(folder), **given)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        loader_of(ImageDataset(folder), is_training=True, **given)
        loader_of(ImageDataset(folder), hflip=0.5, color_jitter=0.4, re_prob=0.)
        loader_of(ImageDataset(folder), hflip=0., color_jitter=None)   # as evaluation is


def test_swapped_sizes_are_worth_a_warning(folder):
    with pytest.warns(UserWarning, match='input_size=4, batch_size=224: are they swapped'): create_loader(
        ImageDataset(folder), 4, 224, num_workers=0, device='cpu')
    with pytest.raises(ValueError, match=r'input_size=\(3, 224\): .*height 3; pass \(channels, height, width\)'): create_transform((3, 224))


@pytest.mark.parametrize('wrong', [dict(mixup_alpha='0.2'), dict(prob=50), dict(prob=True), dict(num_classes=2.5), dict(num_classes=True),
                                   dict(num_classes='10'), dict(label_smoothing=None), dict(correct_lam='no'),
                                   dict(multi_label='yes')], ids=str)
def test_mixing_takes_numbers_and_switches(wrong):
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=f'{name}={value!r}: must be '): Mixup(**{'mixup_alpha': 0.2, **wrong})


@pytest.mark.parametrize('wrong, error, message', [
    (dict(load_bytes='no'), ValueError, "load_bytes='no': .*True or False"), (dict(exif_transpose='no'), ValueError, 'exif_transpose='),
    (dict(transform='x'), TypeError, 'transform has type str: pass a function'),
    (dict(target_transform=3), TypeError, 'target_transform has type int'),
    (dict(background=(0.5, 0.5, 0.5)), ValueError, 'three integers 0..255'), (dict(background=255), ValueError, 'background=255'),
    (dict(max_retries='3'), ValueError, "max_retries='3'"), (dict(max_retries=-1), ValueError, 'max_retries=-1'),
    (dict(replace_seed='x'), ValueError, "replace_seed='x'"),
    (dict(class_map=['a', 'b']), TypeError, 'class_map has type list: pass a dict'),
    (dict(class_map='nothing.txt'), FileNotFoundError, 'no class map at nothing.txt')], ids=str)
def test_datasets_take_what_they_say(folder, wrong, error, message):
    with pytest.raises(error, match=message): ImageDataset(folder, **wrong)


@pytest.mark.parametrize('wrong', [dict(normalize='no'), dict(use_prefetcher='no'), dict(separate='no'), dict(is_training='no')], ids=str)
def test_switches_of_the_transform_are_checked(wrong):
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=f'{name}={value!r}: must be True or False'): create_transform(32, **wrong)


@pytest.mark.parametrize('n', [0, -1, 2.5, True])
def test_pictures_are_counted_from_one(n):
    with pytest.raises(ValueError, match=f'n={n!r}: must be an integer >= 1'): show_batch(torch.zeros(4, 3, 8, 8), n=n)


def test_a_dataset_is_no_loader_to_draw(folder):
    with pytest.raises(TypeError, match=r'ImageDataset has no batches: .*show_batch\(create_loader\(dataset, …\)\)'):
        show_batch(ImageDataset(folder))


@pytest.mark.parametrize('kind, wrong, meant', [
    (View, 'size', 'input_size'), (NaFlex, 'seq_len', 'max_seq_len'), (BufferSettings, 'dirctory', 'directory')])
def test_settings_say_which_name_is_meant(kind, wrong, meant):
    message = rf'{kind.__name__} has no argument {wrong!r}: did you mean {meant}\? \(allowed: '
    with pytest.raises(TypeError, match=message): kind(**{wrong: 1})


def test_a_buffer_says_how_a_directory_is_given(folder):
    with pytest.raises(ValueError, match=r"capacity='dir'.*dict\(directory='dir', capacity='30GB'\)"):
        create_loader(ImageDataset(folder), 32, 2, is_training=True, buffer='dir')


@pytest.mark.filterwarnings('error')
def test_naflex_says_that_input_size_does_not_resize(folder):
    settings = dict(batch_size=4, is_training=True, naflex=NaFlex(train_seq_lens=(16,)), device='cpu', num_workers=0)
    with pytest.warns(UserWarning, match='input_size=64: naflex ignores it.*max_seq_len'):
        create_loader(ImageDataset(folder), 64, **settings)
    create_loader(ImageDataset(folder), 224, **settings)
