"`create_loader` under strain: any number of workers, crashes, interrupts, early ends, several processes, wrong arguments."
import gc
import os
import pickle
import sys
import warnings

import numpy as np
import psutil
import pytest
import torch
from grids import quick
from loader_parts import (
    Coded,
    Fields,
    Noise,
    Refuse,
    Reporting,
    SplitStream,
    Stream,
    children,
    nothing_is_left,
    plain_collate,
    run_two_ranks,
    wait_until,
)
from PIL import Image
from torch.utils.data import RandomSampler, SequentialSampler, Subset, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import CIFAR10, FakeData, VOCDetection

from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.batch_loader import BatchLoader
from timmdata.transforms.mixup import Mixup
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(60)
CPU = dict(device='cpu')
SHARES = [(19, False), (26, True)]   # samples, is_training


THREADS, PROCESSES = dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes')
KINDS = quick(2, 'settings', [dict(num_workers=0), THREADS, PROCESSES], ids=['inline', 'threads', 'processes'])
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


def collected(loader) -> list:
    return [[part.clone() if isinstance(part, torch.Tensor) else part for part in batch] for batch in loader]


def assert_equal(a: list, b: list):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert len(x) == len(y) and all(torch.equal(p, q) if isinstance(p, torch.Tensor) else p == q for p,
                                        q in zip(x, y, strict=True))


# ---- what making one costs

def num_calls(function) -> int:
    "Count calls of Python functions and steps of generators: a measure of work that does not depend on the load of the machine."
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == 'call'

    sys.setprofile(note)
    try: function()
    finally: sys.setprofile(None)
    return count


@quick(3, 'settings', [dict(), dict(is_training=True), dict(is_training=True, buffer=dict(batches=4)),
                                      dict(pad_last=True), dict(is_training=True, num_aug_repeats=3), dict(use_prefetcher=False)], ids=str)
def test_a_larger_data_set_is_no_more_work(settings):
    "On Python 3.10 and 3.11, a protocol check computes the attributes; one of them read all samples."
    def make(num): return create_loader(Coded(num), 8, 4, num_workers=0, **CPU, **settings)
    make(1000)   # what is made once
    few, many = (num_calls(lambda num=num: make(num).num_valid) for num in (1000, 100_000))
    assert abs(many - few) < 50


@quick(2, 'settings', [dict(), dict(input_size_choices=[8, 12]), dict(buffer=dict(batches=4))], ids=str)
def test_nothing_is_computed_to_know_a_loader(settings, monkeypatch):
    monkeypatch.setattr(BatchLoader, 'num_valid', property(lambda loader: pytest.fail('num_valid was computed')))
    loader = create_loader(Coded(20), 8, 4, True, num_workers=0, **CPU, **settings)
    for _ in range(2): assert len(list(loader)) == 5
    loader.close()


# ---- the same batches, whoever computes them

def test_without_a_seed_torchs_global_one_decides(samples):
    first = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        first.append(next(iter(create_loader(Coded(64), 8, 16, True, num_workers=0, **CPU)))[1])
    assert torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])
    generator = [torch.Generator().manual_seed(7) for _ in range(2)]
    a, b = (next(iter(create_loader(Coded(64), 8, 16, True, num_workers=0, generator=g, **CPU)))[1] for g in generator)
    assert torch.equal(a, b)


@quick(1, 'settings', [dict(num_workers=0), PROCESSES], ids=['inline', 'processes'])
def test_all_generators_are_keyed_to_the_sample(settings):
    "The random numbers of a sample do not depend on the order, and the user's own generators continue as if nothing had been loaded."
    def by_target(shuffle):
        loader = create_loader(Coded(20), 4, 4, transform=Noise(), seed=1, shuffle=shuffle, use_prefetcher=False,
                               **settings)
        return {int(t): image[:, 0, 0].tolist() for images, targets in loader for image,
                t in zip(images, targets, strict=True)}
    state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert by_target(True) == by_target(False) and len({str(v) for v in by_target(True).values()}) == 20
    assert torch.equal(state[0], torch.get_rng_state()) and (state[1] == np.random.get_state()[1]).all()


# ---- nothing is mutated

# ---- no hang

@KINDS
def test_error_of_the_transform_keeps_its_type_and_names_the_sample(settings):
    with pytest.raises(ValueError, match='cannot transform this') as raised:
        list(create_loader(Coded(12), 4, 4, transform=Refuse(), **settings, **CPU))
    assert 'index 5' in '\n'.join([str(raised.value), *getattr(raised.value, '__notes__', [])])


# ---- no leak

def test_persistent_workers_are_the_same_and_others_are_not():
    kept, fresh = (create_loader(Reporting(16), 8, 4, persistent_workers=p, **PROCESSES, **CPU)
                   for p in (True, False))
    processes = [{int(t) for _, targets in loader for t in targets} for loader in (kept, kept, fresh, fresh)]
    assert len(processes[0] | processes[1]) <= 2 and not processes[2] & processes[3]   # on a busy machine, one may make all batches
    assert os.getpid() not in set.union(*processes)


@pytest.mark.parametrize('settings', [
    pytest.param(dict(num_workers=0), marks=pytest.mark.full), THREADS, pytest.param(PROCESSES, marks=pytest.mark.full)],
    ids=['inline', 'threads', 'processes'])
def test_threads_files_and_memory_are_stable_over_epochs(settings):
    process = psutil.Process()
    loader = create_loader(Coded(600), 64, 50, True, re_prob=0.5, **settings, **CPU)
    def measure():
        gc.collect()
        return process.num_threads(), len(children())
    for _ in range(2): list(loader)
    before, files, memory = measure(), process.num_fds(), process.memory_info().rss
    for _ in range(3):
        for _ in loader: pass
    # a thread that has ended may have been counted before
    wait_until(lambda: all(now <= then for now, then in zip(measure(), before)), 'threads or processes are left')
    assert process.num_fds() == files
    assert process.memory_info().rss - memory < 60e6   # an epoch is 29 MB of floats, and three were made


# ---- several processes

@pytest.fixture(scope='module')
def ranks(tmp_path_factory):
    "Return what the two processes of a distributed run have seen; one run serves all cases, because starting it takes seconds."
    return run_two_ranks('loader_parts', 'run_rank', tmp_path_factory.mktemp('ranks'), SHARES)


@pytest.mark.full
@pytest.mark.parametrize('case', [0, 1])
def test_two_ranks_have_disjoint_shares(ranks, case):
    (num, is_training), ranks = SHARES[case], [rank[case] for rank in ranks]
    for epoch in (0, 1):
        shares = [[t for batch in rank['epochs'][epoch] for t in batch] for rank in ranks]
        assert len(ranks[0]['epochs'][epoch]) == len(ranks[1]['epochs'][epoch]) == ranks[0]['length'] == ranks[1]['length']
        if is_training: assert not set(shares[0]) & set(shares[1]) and len(shares[0]) == len(shares[1]) == 12
        # the first one twice, so that the ranks have equally many
        else: assert sorted(shares[0] + shares[1]) == sorted([*range(num), 0])
    assert (ranks[0]['epochs'][0] != ranks[0]['epochs'][1]) == is_training


# ---- what may be loaded

@quick(2, 'num_workers', [0, 1, 2, 3])
@pytest.mark.parametrize('kind', [Stream, SplitStream])
def test_stream_is_divided_among_workers(kind, num_workers):
    loader = create_loader(IterableImageDataset(reader=kind(23)), 8, 4, num_workers=num_workers, **CPU)
    for _ in range(2):
        with warnings.catch_warnings():
            # torch warns if more come than were promised
            warnings.filterwarnings('error', message='Length of IterableDataset')
            targets = [int(t) for _, batch in loader for t in batch]
        assert sorted(targets) == list(range(23))
    if num_workers == 0: assert targets == sorted(targets)


def test_stream_is_told_the_workers_and_the_epoch():
    reader = SplitStream(23)
    loader = create_loader(IterableImageDataset(reader=reader), 8, 4, num_workers=3, persistent_workers=False, **CPU)
    loader.set_epoch(5)
    assert (reader.num_workers, reader.epoch) == (3, 5)


def test_stream_with_bad_samples(samples):
    class Files:
        def __iter__(self):
            return (((path.read_bytes(), k) for k, path in enumerate(sorted((samples/'oddities').iterdir()))))
    dataset = IterableImageDataset(reader=Files(), on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        targets = sorted(int(t) for _,
            batch in create_loader(dataset, 8, 4, num_workers=2, multiprocessing_context='fork', **CPU) for t in batch)
    bad = [sample.index for sample in dataset.bad_samples]
    assert len(bad) == 3 and sorted(targets + bad) == list(range(11))
    with pytest.raises(ImageReadError, match='sample [0-9]+ of the stream'):
        list(create_loader(IterableImageDataset(reader=Files()), 8, 4, num_workers=0, **CPU))


def test_stream_repeats_with_the_seed():
    first, second = (collected(create_loader(IterableImageDataset(reader=Stream(8)), 4, 4, transform=Noise(), seed=3,
                                            num_workers=0, **CPU)) for _ in range(2))
    assert_equal(first, second)


def test_torchvisions_cifar10(tmp_path, monkeypatch):
    folder = tmp_path/CIFAR10.base_folder
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]:
        (folder/name).write_bytes(pickle.dumps(dict(data=rng.integers(0, 256, (6, 3072), np.uint8),
                                                labels=list(range(6)))))
    (folder/CIFAR10.meta['filename']).write_bytes(pickle.dumps({CIFAR10.meta['key']: list('abcdefghij')}))
    monkeypatch.setattr(CIFAR10, '_check_integrity', lambda self: True)
    monkeypatch.setattr('torchvision.datasets.cifar.check_integrity', lambda *args: True)
    dataset = CIFAR10(str(tmp_path))
    images, targets = zip(*create_loader(dataset, 32, 10, num_workers=1, crop_pct=1., mean=0., std=1 / 255, **CPU))
    assert torch.cat(targets).tolist() == dataset.targets and len(dataset) == 30
    assert torch.equal(torch.cat(images).permute(0, 2, 3, 1).round().byte(), torch.from_numpy(dataset.data))


def test_torchvisions_voc_detection(tmp_path):
    base = tmp_path/'VOCdevkit/VOC2012'
    for name in 'JPEGImages', 'Annotations', 'ImageSets/Main': (base/name).mkdir(parents=True)
    names = [f'{k:06}' for k in range(3)]
    (base/'ImageSets/Main/train.txt').write_text('\n'.join(names))
    for k, name in enumerate(names):
        Image.new('RGB', (40 + k, 30)).save(base/f'JPEGImages/{name}.jpg')
        boxes = '<object><name>dog</name></object>' * (k + 1)
        (base/f'Annotations/{name}.xml').write_text(f'<annotation><filename>{name}.jpg</filename>{boxes}</annotation>')
    images, targets = next(iter(create_loader(VOCDetection(str(tmp_path), image_set='train'), 24, 3, num_workers=1,
                                            **CPU)))
    assert images.shape == (3, 3, 24, 24)
    assert [t['annotation']['filename'] for t in targets] == [f'{n}.jpg' for n in names]
    assert [len(t['annotation']['object']) for t in targets] == [1, 2, 3]


@quick(1, 'num_workers', [0, 2])
def test_torchvisions_fake_data_and_dict_samples(num_workers):
    images, targets = next(iter(create_loader(FakeData(8, (3, 20, 30), 10), 16, 8, num_workers=num_workers, **CPU)))
    assert images.shape == (8, 3, 16, 16) and targets.dtype == torch.int64
    batches = list(create_loader(Fields(8), 8, 4, num_workers=num_workers, **CPU))
    assert [b['name'] for b in batches] == [[f'{k}.jpg' for k in range(4)], [f'{k}.jpg' for k in range(4, 8)]]
    assert batches[1]['box'][:, 3].tolist() == [4., 5., 6., 7.] and batches[0]['image'].dtype == torch.float32


@pytest.mark.parametrize('convert', [
    lambda image: image, np.asarray, lambda image: torch.from_numpy(np.array(image)).permute(2, 0,
                                            1), lambda image: image.convert('RGB').copy()],
    ids=['PIL', 'array', 'tensor', 'copy'])
def test_users_list_of_samples(convert):
    data = [(convert(Coded(300)[k][0]), k) for k in (0, 7, 290)]
    images, targets = next(iter(create_loader(data, 8, 3, num_workers=0, crop_pct=1., mean=0., std=1 / 255, **CPU)))
    assert images[:, 0, 0, 0].round().tolist() == [0, 7, 34] and images[:, 2, 0, 0].round().tolist() == [0, 0, 1]
    assert targets.tolist() == [0, 7, 290]


@pytest.mark.parametrize('sampler', [
    SequentialSampler(range(12)), RandomSampler(range(12)), WeightedRandomSampler([1.] * 12, 20), [5, 3, 5,
                                            1], np.array([2, 0])], ids=lambda s: type(s).__name__)
def test_users_sampler_decides(sampler):
    loader = create_loader(Coded(12), 8, 4, sampler=sampler, num_workers=1, **CPU)
    targets = [int(t) for _, batch in loader for t in batch]
    assert len(targets) == len(sampler)
    if isinstance(sampler, (list, np.ndarray)): assert targets == list(sampler)


def test_users_collate_function():
    loader = create_loader(Coded(12), 8, 4, collate_fn=plain_collate, num_workers=1, **CPU)
    assert [targets.tolist() for _, targets in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


# ---- unreadable files

@KINDS
def test_skipped_files_are_left_out_and_written_down(samples, settings):
    dataset = ImageDataset(samples/'oddities', on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        sizes = [[len(images) for images, _ in create_loader(dataset, 8, 2, **settings, **CPU)]
                 for _ in range(2)]
    assert sum(sizes[0]) == sum(sizes[1]) == 8 and 0 not in sizes[0]
    assert {sample.path for sample in dataset.bad_samples} == {'empty.jpg', 'text.jpg', 'truncated.jpg'}
    assert all(sample.replaced_by is None and sample.cause for sample in dataset.bad_samples)


def test_replaced_files_are_the_same_with_any_workers(samples):
    found = []
    for settings in (dict(num_workers=0), THREADS, PROCESSES):
        dataset = ImageDataset(samples/'oddities', on_error='replace', replace_seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            loader = create_loader(dataset, 8, 4, True, drop_last=False, seed=2, **settings, **CPU)
            found.append((torch.cat([images for images, _ in loader]),
                          [(s.index, s.replaced_by) for s in dataset.bad_samples]))
    assert all(torch.equal(found[0][0], images) and found[0][1] == log for images, log in found[1:])
    assert len(found[0][0]) == 11 and len(found[0][1]) == 3


def test_skipped_files_do_not_reach_the_users_collate_function(samples):
    dataset = ImageDataset(samples/'oddities', on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        assert sum(len(images) for images,
                   _ in create_loader(dataset, 8, 4, collate_fn=plain_collate, num_workers=0, **CPU)) == 8


def test_evaluation_does_not_substitute_in_a_subset_either(samples):
    with pytest.raises(ValueError, match='never substitutes'):
        create_loader(Subset(ImageDataset(samples, on_error='replace'), [0]), 8, 4)


# ---- wrong arguments

TRAINING, V, T = dict(is_training=True), ValueError, TypeError
WRONG = [
    *[(V, 'batch_size', dict(batch_size=size)) for size in (0, 2.5, '8', None)], (V, 'num_workers', dict(num_workers=-1)),
    *[(V, 'input_size', dict(input_size=size)) for size in (0, 2.5, '224', (), (8,), (2, 3, 8, 8), (8, None), True, None)],
    (V, 'mean has length 3, .*4 channels', dict(input_size=(4, 8, 8))), (V, 'std', dict(std=(1., -1., 1.))),
    (V, 'std', dict(std=0., use_prefetcher=False)), (V, 'crop_pct', dict(crop_pct=0.)), (V, 'interpolation', dict(interpolation='cubic')),
    (V, 'border', dict(crop_border_pixels=-1)), (V, 'scale', dict(**TRAINING, scale=(1., 0.5))),
    (V, 'ratio', dict(**TRAINING, ratio=(0., 1.))), (V, 'hflip', dict(**TRAINING, hflip=1.5)),
    (V, 'color_jitter', dict(**TRAINING, color_jitter=-1.)), (V, 're_mode', dict(**TRAINING, re_prob=0.5, re_mode='x')),
    (V, 're_count', dict(**TRAINING, re_prob=0.5, re_count=2.5)), (V, 'one of rand', dict(**TRAINING, auto_augment='best')),
    (V, 'num_aug_splits', dict(**TRAINING, num_aug_splits=1)), (V, 'num_aug_repeats', dict(**TRAINING, num_aug_repeats=0.5)),
    (V, 'input_size_choices', dict(**TRAINING, input_size_choices=[])), (V, 'seed', dict(**TRAINING, seed=2**63)),
    (V, 'num_aug_splits and mixup', dict(**TRAINING, num_aug_splits=2, mixup=Mixup(num_classes=9))),
    (V, 'use_prefetcher=False with collate_fn and mixup .* images are finished before collate_fn gets them',
     dict(**TRAINING, use_prefetcher=False, collate_fn=list, mixup=Mixup())),
    (V, 'input_size_choices and transform', dict(**TRAINING, input_size_choices=[8], transform=str)),
    (NotImplementedError, 'tf_preprocessing', dict(tf_preprocessing=True)), (V, 'worker_seeding', dict(worker_seeding='none')),
    (V, 'divided twice', dict(sampler=DistributedSampler(range(12), 2, 0), distributed=True)),
    (T, 'does not provide labels', dict(**TRAINING, balanced_batches=True)), (T, 'img_dtype', dict(img_dtype=torch.uint8)),
    (T, 'dataset', dict(dataset=iter([]))), (T, 'dataset', dict(dataset=None)), (T, 'batch_choise_seed', dict(batch_choise_seed=1)),
    (V, r'channels must come first; pass \(channels, height, width\)', dict(input_size=(224, 224, 3))),
    (V, "such as 'rand-m9-mstd0.5-inc1'", dict(**TRAINING, auto_augment='randaugment')),
    (V, 'no crop has this area; pass shares', dict(**TRAINING, scale=(2, 3))),
    (RuntimeError, 'start with torchrun and call torch.distributed.init_process_group first', dict(distributed=True))]


@pytest.mark.parametrize('error, message, wrong', WRONG, ids=lambda v: ' '.join(v)
                         if isinstance(v, dict) else getattr(v, '__name__', ''))
def test_wrong_argument_is_an_error_before_the_first_batch(error, message, wrong):
    right = dict(dataset=Coded(12), input_size=8, batch_size=4, num_workers=0, device='cpu')
    create_loader(**right)
    with pytest.raises(error, match=message): create_loader(**{**right, **wrong})


@pytest.mark.parametrize('image, message', [
    (torch.rand(3, 8, 8), 'float32'), (np.zeros((8, 8, 3), np.uint16), 'uint16'),
    ('a.jpg', "the path 'a.jpg' as an image: .* read the files with ImageDataset"),
    (None, 'None instead of an image: leave such samples out')])
def test_wrong_images_are_errors(image, message):
    with pytest.raises(TypeError, match=message): list(create_loader([(image, 0)], 8, 1, num_workers=0, **CPU))


def test_loader_of_nothing_gives_nothing():
    loader = create_loader([], 8, 4, num_workers=0, **CPU)
    assert len(loader) == 0 and list(loader) == []


# ---- settings reach their part, and refusals come before any part

def test_each_setting_of_the_pixels_arrives_under_its_name():
    words = dict(is_training=True, train_crop_mode='rc', scale=(0.5, 0.6), ratio=(0.7, 0.8), hflip=0.1, vflip=0.2,
                 color_jitter=(0.1, 0.2, 0.3), color_jitter_prob=0.4, grayscale_prob=0.6, gaussian_blur_prob=0.7,
                 interpolation='bicubic', crop_pct=0.9, crop_mode='squash', crop_border_pixels=2, mean=(0.4, 0.5, 0.6),
                 rc_padding=3, padding_mode='edge', num_aug_splits=2)
    loader = create_loader(Coded(12), 8, 4, num_workers=0, device='cpu', **words)
    expected = AugmentSettings(8, **words)
    assert expected in loader.loader.settings
    for name, value in words.items(): assert getattr(expected, name) == value, name


@pytest.mark.parametrize('wrong', [
    dict(buffer='1GB', cache='device'), dict(buffer='1GB', is_training=True, input_size_choices=[8]),
    dict(buffer='1GB', dataset=IterableImageDataset(reader=Stream(4))), dict(sampler=[0], shuffle=True),
    dict(dataset=IterableImageDataset(reader=Stream(4)), shuffle=True),
    dict(weights=[1] * 12), dict(balanced_batches=True), dict(samples_per_epoch=5),   # evaluation takes every sample once
    dict(is_training=True, weights=[1] * 12, shuffle=True), dict(is_training=True, weights=[1] * 12, sampler=[0]),
    dict(is_training=True, weights=[1] * 12, num_aug_repeats=2), dict(is_training=True, weights=[1] * 12, balanced_batches=True),
    dict(is_training=True, balanced_batches=True, input_size_choices=[8]), dict(is_training=True, samples_per_epoch=5, sampler=[0]),
    dict(is_training=True, samples_per_epoch=5, num_aug_repeats=2), dict(sampler=DistributedSampler(range(12), 2, 0), distributed=True),
    dict(is_training=True, dataset=IterableImageDataset(reader=Stream(4)), samples_per_epoch=5)], ids=lambda v: ' '.join(v))
def test_combinations_are_refused_before_any_part_is_made(monkeypatch, wrong):
    def made(*args, **kwargs): raise AssertionError('a part was made')
    for name in ('DeviceCache', 'BatchLoader', 'StreamLoader', 'WorkerSettings'): monkeypatch.setattr(f'timmdata.loader.{name}', made)
    monkeypatch.setattr('timmdata.formats.BatchTransform', made)
    for name in ('EpochSampler', 'WeightedSampler', 'BalancedSampler'): monkeypatch.setattr(f'timmdata.samplers.order.{name}', made)
    with pytest.raises(ValueError): create_loader(**{**dict(dataset=Coded(12), input_size=8, batch_size=4), **wrong})
