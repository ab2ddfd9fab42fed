"What a newcomer gets wrong is an error or a warning that says what was got and what to do, not an empty or a wrong batch."
import inspect
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from grids import few
from PIL import Image
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from timmdata import (
    ImageDataset,
    IterableImageDataset,
    Mixup,
    NaFlex,
    create_dataset,
    create_loader,
    create_reader,
    create_transform,
)
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
    with pytest.raises(ValueError, match="input_img_mode='GRAY': .* Pillow mode, such as 'RGB'"):
        ImageDataset(folder, input_img_mode='GRAY', on_error='skip')
    for mode in ('L', 'RGBA', 'CMYK', None): assert ImageDataset(folder, input_img_mode=mode)[0][0].mode == (mode or 'RGB')


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
    Image.new('L', (8, 8)).save(root/'train'/'a'/'x.png')
    (root/'train'/'a'/'x.png').rename(root/'train'/'a'/'x.heic')
    index_file = tmp_path/'index.npz'
    for _ in range(2):   # a scan, then its index file
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            assert len(ImageDataset(root, split='val', index_file=index_file)) == 1
        with pytest.warns(UserWarning, match='not read: 1 .heic'): ImageDataset(root, split='train', index_file=index_file)


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


WORKERS = [dict(num_workers=0), dict(num_workers=2), dict(num_workers=1, worker_type='processes')]
SMALL = v2.Compose([v2.Resize((24, 28)), v2.PILToTensor()])


@pytest.mark.parametrize('transform', few([SMALL, v2.Resize((24, 28)), v2.Compose([v2.Resize((24, 28)), np.asarray])], SMALL))
@pytest.mark.parametrize('num_workers', [0, 1])
def test_transform_of_another_size_is_named(folder, transform, num_workers):
    stream = IterableImageDataset(reader=[(Image.new('RGB', (40, 40)), 0)] * 4)
    for dataset in (ImageDataset(folder), stream):
        with pytest.raises(ValueError, match=r'the transform returned .*input_size is \(32, 32\)'):
            next(iter(loader_of(dataset, transform=transform, num_workers=num_workers)))


def test_own_collate_function_may_take_other_sizes(folder):
    def padded(samples): return torch.nn.functional.pad(torch.stack([image for image, _ in samples]), (0, 4, 0, 8)), [0] * len(samples)
    images, _ = next(iter(loader_of(ImageDataset(folder), transform=SMALL, collate_fn=padded)))
    assert images.shape == (4, 3, 32, 32)


def test_arrays_of_a_transform_may_have_their_channels_last(folder):
    arrays = v2.Compose([v2.Resize((32, 32)), np.asarray])
    tensors = v2.Compose([v2.Resize((32, 32)), v2.PILToTensor()])
    stream = IterableImageDataset(reader=list(ImageDataset(folder)))
    (a, _), (b, _), (c, _) = (next(iter(loader_of(dataset, transform=transform))) for dataset, transform in (
        (ImageDataset(folder), arrays), (ImageDataset(folder), tensors), (stream, arrays)))
    assert torch.equal(a, b) and torch.equal(a, c)


def test_warnings_of_create_loader_point_to_its_caller(folder):
    for settings in (dict(re_prob=0.5), dict(is_training=True, num_batches=3)):
        with pytest.warns(UserWarning, match='no effect') as caught:
            create_loader(ImageDataset(folder), 32, 4, device='cpu', num_workers=0, **settings)
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize('settings', few(WORKERS, WORKERS[0], WORKERS[2]))
def test_epoch_in_which_everything_was_skipped_is_an_error(folder, settings):
    for path in folder.rglob('*.jpg'): path.write_text('no image')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with pytest.raises(ImageReadError, match=r'every sample of epoch 0 was skipped \(8 in all\): see dataset.bad_samples'):
            list(loader_of(ImageDataset(folder, on_error='skip'), **settings))


@pytest.mark.filterwarnings('ignore:.*is skipped')
@pytest.mark.parametrize('settings', few([
    *WORKERS[:2], dict(num_workers=2, persistent_workers=False), dict(num_workers=1, multiprocessing_context='spawn'),
    dict(is_training=True)], WORKERS[0], WORKERS[1]))
def test_stream_in_which_everything_was_skipped_is_an_error(settings):
    dataset = IterableImageDataset(reader=[(b'no image', 0)] * 8, on_error='skip')
    loader = loader_of(dataset, **settings)
    for epoch in range(2):   # workers that are kept say it again
        with pytest.raises(ImageReadError, match=f'epoch {epoch} of the stream has no batch, because samples were skipped'): list(loader)
    loader.close()
    assert len(dataset.bad_samples) == 8


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
    loader = loader_of(IterableImageDataset(reader=Share(8), on_error='skip'), distributed=True, seed=0)
    if rank: assert [targets.tolist() for _, targets in loader] == [[1, 3, 5, 7]]
    else:
        with pytest.raises(ImageReadError, match='samples were skipped'): list(loader)


@pytest.mark.parametrize('reader, is_training, message', [
    ([], False, 'it yielded no sample'), ([(Image.new('RGB', (40, 40)), 0)] * 3, True,
                                               'fewer samples than batch_size=4, and drop_last=True drops')])
@pytest.mark.parametrize('num_workers', [0, 1])
def test_stream_without_a_batch_is_worth_a_warning(reader, is_training, message, num_workers):
    loader = loader_of(IterableImageDataset(reader=reader), is_training=is_training, num_workers=num_workers)
    with pytest.warns(UserWarning, match=f'epoch 0 of the stream has no batch: .*{message}'): assert list(loader) == []


@pytest.mark.parametrize('settings', few([*WORKERS, dict(num_workers='auto')], WORKERS[0]))
def test_an_empty_subset_is_an_empty_evaluation(folder, settings):
    with loader_of(Subset(ImageDataset(folder), []), **settings) as loader: assert list(loader) == []
    with pytest.raises(ValueError, match='no samples to train on: check its split'):
        loader_of(Subset(ImageDataset(folder), []), is_training=True, **settings)


@pytest.mark.parametrize('dataset', [
    [1, 2, 3], range(9), {'a': 1}, torch.zeros(4, 3, 8, 8), np.zeros((4, 8, 8, 3)), ['a.jpg'], [(1,)]], ids=lambda value: str(value)[:12])
def test_a_list_of_other_things_is_no_dataset(dataset):
    with pytest.raises(TypeError, match=rf'dataset has type {type(dataset).__name__} and items of type .*: samples must be \('):
        loader_of(dataset)


def test_unknown_arguments_are_told_with_the_one_that_is_meant(folder):
    for name, meant in (('labels', r"ImageDataset\('labels.csv'\)"), ('train', "use split='train'"), ('input_size', 'to create_loader'),
                        ('transforms', 'did you mean transform'), ('qqq', 'allowed: root')):
        with pytest.raises(TypeError, match=f'ImageDataset has no argument .*{meant}') as caught: ImageDataset(folder, **{name: 1})
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(TypeError, match='create_reader has no argument'): create_reader('', folder, **{name: 1})
    for name, meant in (('size', r'did you mean input_size'), ('training', r'did you mean is_training'), ('mixup_alpha', 'mixup=Mixup'),
                        ('qqq', r'help\(create_loader\) lists all')):
        with pytest.raises(TypeError, match=f'create_loader has no argument .*{meant}'): create_loader(ImageDataset(folder), **{name: 1})


def test_each_switch_takes_true_and_false_alone(folder):
    "Whatever is annotated as a bool."
    parameters = inspect.signature(create_loader).parameters
    switches = {name for name, one in parameters.items() if 'bool' in str(one.annotation)} - {'tf_preprocessing'}
    assert len(switches) >= 16
    for name in switches:
        for value in ('no', 2):
            with pytest.raises(ValueError, match=f'{name}={value!r}: must be True or False'):
                loader_of(ImageDataset(folder), **{name: value})
    for name in ('normalize', 'use_prefetcher', 'separate', 'is_training'):
        with pytest.raises(ValueError, match=f"{name}='no': must be True or False"): create_transform(32, **{name: 'no'})
    loader = loader_of(ImageDataset(folder), is_training=1, shuffle=np.bool_(False), drop_last=0)
    assert len(next(iter(loader))[0]) == 4 and not loader.loader.sampler.shuffle


@pytest.mark.parametrize('dataset', [lambda folder: ImageDataset(folder), lambda _: IterableImageDataset(reader=[])], ids=['map', 'stream'])
def test_epochs_and_indexes_are_numbers(folder, dataset):
    loader = loader_of(dataset(folder), seed=1)
    for epoch in ('1', -1, 0.5, None):
        for part in (loader, *([loader.sampler, loader.batch_sampler] if len(loader) else [])):
            with pytest.raises(ValueError, match='epoch=.* integer >= 0'): part.set_epoch(epoch)
    loader.set_epoch(np.int64(3))
    if not len(loader): return
    assert loader.state_dict()['epoch'] == 3
    for wrong in (dict(epoch=-1, batch=0), dict(epoch='0', batch=0), dict(epoch=0, batch=0.5), dict(epoch=0, index='1')):
        with pytest.raises(ValueError, match='must be an integer'): loader.replay(**wrong)
    with pytest.raises(IndexError, match='index=8 is out of range'): loader.replay(epoch=0, index=8)


def test_settings_of_training_in_evaluation_are_worth_a_warning(folder):
    dataset = ImageDataset(folder)
    for given in (dict(re_prob=0.25), dict(auto_augment='rand-m9'), dict(scale=(0.5, 1.)), dict(hflip=0.1), dict(color_jitter=0.3)):
        with pytest.warns(UserWarning, match=f'{next(iter(given))}: no effect in evaluation; for training, pass is_training=True'):
            loader_of(dataset, **given)
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            loader_of(dataset, is_training=True, **given)
            loader_of(dataset, hflip=0.5, color_jitter=0.4, re_prob=0.)
            loader_of(dataset, hflip=0., color_jitter=None)   # as evaluation is
            for name in ('color_jitter_prob', 'grayscale_prob', 'gaussian_blur_prob'):   # None, as timm's script gives it
                loader_of(dataset, is_training=True, **{name: None})


WRONG = [   # settings of create_loader, and what the error says
    (dict(mean='imagenet'), 'must be one number, or one per channel'), (dict(std=('a', 'b', 'c')), 'must be one number, or one'),
    (dict(sampler=3), 'pass a torch Sampler'), (dict(mixup=0.2), 'timmdata.Mixup'), (dict(transform='resize'), 'pass a function'),
    (dict(collate_fn=3), 'pass a function'), (dict(generator=3), 'pass a torch.Generator'), (dict(class_to_idx=['a', 'b']), 'pass a dict'),
    (dict(img_dtype='float16'), 'pass .*torch.float16'), (dict(crop_pct=95), 'crop_pct=95: .*above 0'),
    (dict(crop_pct=True), 'crop_pct=True'), (dict(crop_pct='0.9'), "crop_pct='0.9': must be"),
    (dict(hflip='yes'), "hflip='yes': .*probability, 0..1"),
    (dict(hflip=True), 'hflip=True: .*probability'), (dict(vflip=None), 'vflip=None'), (dict(re_prob=25), 're_prob=25: .*probability'),
    (dict(re_prob='0.5'), "re_prob='0.5'"), (dict(re_count=0), 're_count=0: .*; pass re_prob=0'), (dict(scale=(8, 100)), 'area.* 0.08'),
    (dict(ratio=(2, 1)), 'ratio='), (dict(color_jitter=40), 'color_jitter=40: .*factor.* 0.4'), (dict(color_jitter=True), 'factor'),
    (dict(crop_border_pixels=0.1), 'crop_border_pixels=0.1: .*pixels'), (dict(rc_padding=2.5, train_crop_mode='rc'), 'rc_padding=2.5'),
    (dict(seed=True), 'seed=True'), (dict(timeout=True), 'timeout=True: .*seconds'), (dict(std=(58., 57., 57.)), 'for 0..255 by 255'),
    (dict(batch_size='32'), "batch_size='32'"), (dict(batch_size=0), 'batch_size=0'), (dict(batch_size=9), 'fill'),
    (dict(num_workers=True), 'num_workers=True'), (dict(num_workers=-1), 'num_workers=-1'), (dict(mean=None), 'mean=None'),
    (dict(img_dtype=torch.float16, use_prefetcher=False), 'float16'), (dict(weights=[1, 2]), 'weights'),
    (dict(samples_per_epoch=0), 'samples_per_epoch'), (dict(input_size_choices=[]), 'input_size_choices'), (dict(device='moon'), 'device'),
    (dict(auto_augment='best'), 'best'), (dict(worker_seeding='none'), 'worker_seeding'), (dict(color_jitter_mode='x'), 'mode'),
    (dict(distributed=True), 'init_process_group'), (dict(interpolation='cubic'), 'interpolation'), (dict(backend='x'), 'backend'),
    (dict(naflex=NaFlex(mode='packed', row_len=8), input_size=None), 'row_len'), (dict(mixup=Mixup(num_classes=2), batch_size=0), '')]


@pytest.mark.parametrize('wrong, message', WRONG, ids=lambda value: str(value)[:30])
def test_wrong_settings_are_refused_at_once_and_leave_no_cache(folder, tmp_path, wrong, message):
    settings = dict(input_size=32, batch_size=4, is_training=True, num_workers=0, device='cpu') | wrong
    for more in ({}, dict(cache=dict(where='disk', directory=tmp_path/'cache'))):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=None if more else message):
            create_loader(ImageDataset(folder), **settings, **more)
    assert not (tmp_path/'cache').exists()


@pytest.mark.parametrize('wrong, error, message', [
    (dict(load_bytes='no'), ValueError, "load_bytes='no': .*True or False"), (dict(exif_transpose='no'), ValueError, 'exif_transpose='),
    (dict(transform='x'), TypeError, 'transform has type str: pass a function'), (dict(background=255), ValueError, 'background=255'),
    (dict(target_transform=3), TypeError, 'target_transform has type int'), (dict(max_retries=-1), ValueError, 'max_retries=-1'),
    (dict(replace_seed='x'), ValueError, "replace_seed='x'"), (dict(class_map='nothing.txt'), FileNotFoundError, 'no class map'),
    (dict(class_map=['a', 'b']), TypeError, 'class_map has type list: pass a dict')], ids=str)
def test_datasets_take_what_they_say(folder, wrong, error, message):
    with pytest.raises(error, match=message): ImageDataset(folder, **wrong)


# ---- at the entrance; {here}: the working directory, in which data/ is

ENTRANCE = {
    'a relative folder': (lambda: ImageDataset('daten'),
        'there is no folder daten: looked for {here}/daten, since the working directory is {here}'),
    'above': (lambda: ImageDataset('../data'), 'there is no folder ../data: looked for {here}/../data, since'),
    'a table': (lambda: ImageDataset('labels.csv'), 'there is no table labels.csv: looked for {here}/labels.csv, since'),
    'a tar': (lambda: ImageDataset('a.tar'), 'a.tar: looked for {here}/a.tar, since the working directory is {here}'),
    'an absolute folder': (lambda: ImageDataset('/no/data'), 'there is no folder /no/data'),
    'a blank': (lambda: ImageDataset(' data'), "there is no folder ' data': .* Did you mean 'data'?"),
    'a line end': (lambda: ImageDataset('data\n'), r"there is no folder 'data\\n': .* Did you mean 'data'?"),
    'quotes': (lambda: ImageDataset('"data"'), """there is no folder "data": .* Did you mean 'data'?"""),
    'an escape': (lambda: ImageDataset('\x1b[31m'), r'there is no folder \\x1b\[31m: looked for {here}/\\x1b\[31m'),
    'a backslash': (lambda: ImageDataset(r'data\a'), "Did you mean 'data/a'?"),
    'a drive': (lambda: ImageDataset(r'C:\photos'), r'there is no folder C:\\photos: this is a Windows path.* in WSL, C:\\ is /mnt/c/'),
    'no root': (lambda: ImageDataset(''), 'root is missing: pass the folder'),
    'a file URL': (lambda: ImageDataset('file://data'), 'file://data has no absolute path: write file:///path'),
    'packed': (lambda: ImageDataset('packed'), r'found no images in packed, but archives \(2\), such as a.zip: unpack them first'),
    'split second': (lambda: ImageDataset('data', 'train'), "'train' is the name of a split, not of a reader: pass split='train'"),
    'transform second': (lambda: ImageDataset('data', lambda x: x), 'reader has type function: .* pass a transform as transform='),
    'root first': (lambda: create_dataset('data'), r"root is missing: 'data' is only a name.* create_dataset\('', 'data'\)"),
    'only a dataset': (lambda: create_loader(ImageDataset('data')), r'needs batch_size: .*create_loader\(dataset, 224, 64\)'),
    'no input_size': (lambda: create_loader(ImageDataset('data'), batch_size=4),
        'needs input_size: .* such as 224, or views= or naflex='),
    'a path': (lambda: create_loader('data', 32, 4), r"dataset is the path 'data': pass ImageDataset\('data'\)"),
    'a class': (lambda: create_loader(ImageDataset, 32, 4),
        r'dataset is the class ImageDataset: pass a dataset, such as ImageDataset\(root\)'),
    'a reader': (lambda: create_loader(create_reader('', 'data'), 32, 4), r'dataset is a reader, ReaderImageFolder: pass ImageDataset\('),
    'a DataLoader': (lambda: create_loader(DataLoader(ImageDataset('data')), 32, 4), 'is a torch DataLoader: pass its dataset'),
    'paths': (lambda: next(iter(create_loader([('data/a/0.jpg', 0)] * 4, 32, 4, num_workers=0))),
        "the path 'data/a/0.jpg' as an image: .*table="),
    'images alone': (lambda: next(iter(create_loader(TensorDataset(torch.zeros(4, 3, 8, 8)), 32, 4, num_workers=0))),
        'returned tuple of length 1')}


@pytest.mark.parametrize('kind', ENTRANCE)
def test_an_error_at_the_entrance_says_where_it_looked_and_what_to_do(folder, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path/'packed').mkdir()
    for name in ('a.zip', 'b.tar.gz', 'read me.txt'): (tmp_path/'packed'/name).write_bytes(b'')
    call, message = ENTRANCE[kind]
    with pytest.raises((OSError, ValueError, TypeError)) as raised: call()
    text = str(raised.value)
    assert re.search(message.replace('{here}', re.escape(str(tmp_path))), text) and '\n' not in text and '\x1b' not in text
    if 'absolute' in kind: assert text == message   # which needs no working directory


def test_a_torchvision_dataset_needs_no_transform(folder):
    images, targets = next(iter(loader_of(ImageFolder(folder), mean=0., std=1.)))
    assert images.shape == (4, 3, 32, 32) and targets.tolist() == [0] * 4
    with pytest.raises(TypeError, match='returned torch.float32 Image as an image: return PIL images'):
        next(iter(loader_of(ImageFolder(folder, transform=v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])))))
