"Which type of workers is chosen, and what threads reject."
import multiprocessing
import os
import sys
import time

import pytest
import torch
from grids import full
from loader_parts import Coded, Noise, nothing_is_left, plain_collate
from torch.utils.data import Subset
from training_parts import INLINE, large_tensors_begin_small, noise

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.readers.base import Reader
from timmdata.samplers.keys import SampleKey
from timmdata.workers import autotune
from timmdata.workers.autotune import LockShare, choose_workers, measure_lock, resolve_workers
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
small_batches_use_the_slots = pytest.fixture(autouse=True)(large_tensors_begin_small)


def test_user_transform_that_draws_globally_repeats_in_processes():
    expected = noise(**INLINE)
    assert len(expected.flatten(1).unique(dim=0)) == 16
    for num_workers in (1, 2): assert torch.equal(noise(num_workers=num_workers, worker_type='processes'), expected)
    assert torch.equal(noise(num_workers=2), expected)   # 'auto' knows that threads would not do


class Slow(Reader):
    "Wait before reading."
    is_thread_safe = True
    def __init__(self, reader): self.reader = reader
    def __len__(self): return len(self.reader)

    def __getitem__(self, index):
        time.sleep(0.02)
        return self.reader[index]


FORK = pytest.mark.skipif('fork' not in multiprocessing.get_all_start_methods(), reason='there is no fork')


def kind_of(dataset, num=2, context='fork', function=None, **settings):
    "Return the type that 'auto' chooses."
    builder = create_loader(dataset, 8, 4, use_prefetcher=False, **settings).builder
    asked = WorkerSettings(num, multiprocessing_context=context, worker_init_fn=function)
    return choose_workers(builder, asked).worker_type


@FORK
def test_auto_takes_processes_where_they_fork_and_there_are_several(samples):
    own = ImageDataset(samples)
    assert kind_of(own) == kind_of(Subset(own, [1])) == kind_of(own, 9) == 'processes'
    assert kind_of(own, context=multiprocessing.get_context('fork')) == 'processes'
    assert kind_of(own, 1) == kind_of(Subset(own, [1]), 1) == 'threads'


@pytest.mark.parametrize('context', ['spawn', 'forkserver', multiprocessing.get_context('spawn')], ids=['spawn', 'forkserver', 'a context'])
def test_auto_takes_up_to_eight_threads_where_processes_do_not_fork(samples, context):
    own = ImageDataset(samples)
    assert kind_of(own, 2, context) == kind_of(own, 8, context) == 'threads'
    assert kind_of(own, 9, context) == 'processes'   # each with its own GIL


def test_auto_takes_threads_where_python_has_no_lock(samples, monkeypatch):
    monkeypatch.setattr(sys, '_is_gil_enabled', lambda: False, raising=False)
    assert kind_of(ImageDataset(samples), 9, 'spawn') == kind_of(ImageDataset(samples), 2) == 'threads'
    assert kind_of(Coded(8), 2) == 'processes'
    monkeypatch.setattr(autotune, 'available_cores', lambda: 64)
    builder = create_loader(ImageDataset(samples), 8, 4, use_prefetcher=False).builder
    assert resolve_workers(builder, WorkerSettings('auto'), SAMPLES).num_workers == 63


def test_auto_asks_for_the_platforms_way_without_deciding_it(samples, monkeypatch):
    monkeypatch.setattr(multiprocessing, 'get_start_method', lambda allow_none=False: None if allow_none else pytest.fail('decided'))
    for methods, kind in ((['fork', 'spawn'], 'processes'), (['spawn'], 'threads'), (['forkserver', 'fork'], 'threads')):
        monkeypatch.setattr(multiprocessing, 'get_all_start_methods', lambda methods=methods: methods)
        assert kind_of(ImageDataset(samples), context=None) == kind


def test_auto_takes_threads_in_a_daemonic_process_which_may_start_none(samples, monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, 'daemon', True)
    assert kind_of(ImageDataset(samples)) == 'threads'


def test_auto_takes_processes_for_code_of_the_users(samples):
    own = ImageDataset(samples)
    for num in (1, 2):
        assert kind_of(Coded(8), num) == kind_of(own, num, transform=Noise()) == kind_of(own, num, collate_fn=plain_collate) == 'processes'
        assert kind_of(own, num, function=print) == 'processes'   # threads would never call it
    own.target_transform = int
    assert kind_of(own, 1) == 'processes'


@pytest.mark.parametrize('cores, workers, number', [
    (1, 'auto', 1), (2, 'auto', 2), (3, 'auto', 2), (64, 'processes', 63), (64, 'threads', 8)])
def test_auto_is_a_worker_for_each_core_and_one_core_for_training(samples, monkeypatch, cores, workers, number):
    monkeypatch.setattr(autotune, 'available_cores', lambda: cores)
    builder = create_loader(ImageDataset(samples), 8, 4, use_prefetcher=False).builder
    assert resolve_workers(builder, WorkerSettings('auto', workers)).num_workers == number
    assert resolve_workers(builder, WorkerSettings(12, 'threads')).num_workers == 12   # who asks gets it


SAMPLES = [SampleKey(index, epoch=0) for index in range(0, 64, 8)]


@FORK
@pytest.mark.parametrize('asked, share, expected', [
    ((8,), (3., 0.01), (8, 1)), ((9,), (3., 0.01), (4, 2)), ((16,), (3., 0.01), (8, 2)), ((63,), (3., 0.01), (8, 8)),
    ((200,), (3., 0.01), (25, 8)), ((32,), (2.6, 0.3), (16, 2)), ((32,), (2.6, 1.), (32, 1)), ((32,), None, (32, 1)),
    ((32, 'processes'), (3., 0.01), (32, 1)), ((32, 'auto', 3), (3., 0.01), (32, 3)), ((32, 'threads'), (3., 0.01), (32, 1))])
def test_auto_puts_many_processes_together_where_the_lock_allows_it(samples, monkeypatch, asked, share, expected):
    monkeypatch.setattr(autotune, 'measure_lock', lambda builder, keys: share and LockShare(*share))
    builder = create_loader(ImageDataset(samples), 8, 4, use_prefetcher=False).builder
    found = resolve_workers(builder, WorkerSettings(*asked, multiprocessing_context='fork'), SAMPLES)
    assert (found.num_workers, found.threads_per_worker) == expected
    assert ('need the GIL' in found.describe()) == (asked[1:] == () and asked[0] > 8 and share is not None)
    yours = create_loader(ImageDataset(samples), 8, 4, use_prefetcher=False, transform=Noise()).builder
    assert resolve_workers(yours, WorkerSettings(32), SAMPLES).describe() == '32 processes: to run your code'


def test_the_trial_measures_and_disturbs_nothing(samples, tmp_path):
    slow = ImageDataset(samples)
    slow.reader = Slow(slow.reader)
    builders = [create_loader(dataset, 64, 4, use_prefetcher=False).builder for dataset in (ImageDataset(samples), slow)]
    before = torch.get_num_threads(), torch.get_rng_state()
    share, waits = (measure_lock(builder, SAMPLES) for builder in builders)
    assert 0 < share.lock_ms < share.image_ms and waits.image_ms > 20 > 5 > waits.lock_ms   # it waits without the lock
    assert torch.get_num_threads() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    (tmp_path/'a').mkdir()
    (tmp_path/'a/0.jpg').write_bytes(b'no image')
    assert measure_lock(create_loader(ImageDataset(tmp_path), 8, 1, use_prefetcher=False).builder, SAMPLES[:1]) is None


@full
@FORK
def test_a_group_of_processes_makes_the_same_batches(samples):
    settings = dict(is_training=True, seed=3, device='cpu')
    with create_loader(ImageDataset(samples), 32, 8, num_workers=10, multiprocessing_context='fork', **settings) as loader:
        made = [images for images, _ in loader]
        assert 'ms per image need the GIL' in repr(loader) or '10 processes' in repr(loader)
    expected = [images for images, _ in create_loader(ImageDataset(samples), 32, 8, num_workers=0, **settings)]
    assert len(made) == len(expected) and all(map(torch.equal, made, expected))


def test_a_function_for_worker_seeding_is_called_in_worker_processes(samples, tmp_path):
    def give_seed(info):
        (tmp_path/f'{info.id}-{os.getpid()}').touch()
        return info.id
    settings = dict(num_workers=1, worker_seeding=give_seed, multiprocessing_context='fork', device='cpu')
    assert len(next(iter(create_loader(ImageDataset(samples), 8, 4, **settings)))[1]) == 4
    [called] = tmp_path.iterdir()
    assert called.name.startswith('0-') and called.name != f'0-{os.getpid()}'
    with pytest.raises(ValueError, match='never calls .*worker_seeding of create_loader'):
        create_loader(ImageDataset(samples), 8, 4, worker_type='threads', **settings)
