"Which kind of workers is chosen, and what threads refuse."
import os

import pytest
import torch
from loader_parts import Coded, Noise, nothing_is_left, plain_collate
from torch.utils.data import Subset
from training_parts import INLINE, PROCESSES, THREADS, large_tensors_begin_small, noise

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.workers.autotune import choose_workers, resolve_workers
from timmdata.workers.base import WorkerSettings

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
small_batches_use_the_slots = pytest.fixture(autouse=True)(large_tensors_begin_small)


def test_user_transform_that_draws_globally_repeats_in_processes():
    expected = noise(**INLINE)
    assert len(expected.flatten(1).unique(dim=0)) == 16
    for num_workers in (1, 2): assert torch.equal(noise(num_workers=num_workers, workers='processes'), expected)
    assert torch.equal(noise(num_workers=2), expected)   # 'auto' knows that threads would not do


@pytest.mark.parametrize('settings', [THREADS, {**PROCESSES, 'threads_per_worker': 2}], ids=['threads', 'threads_per_worker'])
def test_user_transform_that_draws_globally_is_refused_in_threads(settings):
    with pytest.raises(ValueError, match="Python and NumPy and torch, which threads share: use workers='processes'"):
        noise(**settings)


def test_auto_takes_threads_for_own_code_only(samples):
    own = ImageDataset(samples)
    def kind(dataset, num=2, **settings):
        return choose_workers('auto', create_loader(dataset, 8, 4, use_prefetcher=False, **settings).builder, num)
    assert kind(own) == kind(Subset(own, [1])) == 'threads' and kind(own, 9) == 'processes'
    assert kind(Coded(8)) == kind(own, transform=Noise()) == kind(own, collate_fn=plain_collate) == 'processes'
    own.target_transform = int
    assert kind(own) == 'processes'


def test_auto_takes_processes_where_each_has_a_function_to_call(samples):
    builder = create_loader(ImageDataset(samples), 8, 4, use_prefetcher=False, num_workers=0).builder
    for function, kind in ((None, 'threads'), (print, 'processes')):
        assert resolve_workers(builder, WorkerSettings(2, worker_init_fn=function))[0].workers == kind


def test_a_function_for_worker_seeding_is_called_in_worker_processes(samples, tmp_path):
    def give_seed(info):
        (tmp_path/f'{info.id}-{os.getpid()}').touch()
        return info.id
    settings = dict(num_workers=1, worker_seeding=give_seed, multiprocessing_context='fork', device='cpu')
    assert len(next(iter(create_loader(ImageDataset(samples), 8, 4, **settings)))[1]) == 4
    [called] = tmp_path.iterdir()
    assert called.name.startswith('0-') and called.name != f'0-{os.getpid()}'
    with pytest.raises(ValueError, match='worker_seeding of create_loader.*never call'):
        create_loader(ImageDataset(samples), 8, 4, workers='threads', **settings)
