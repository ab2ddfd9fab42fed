"Which kind of workers is chosen, and what threads refuse."
import pytest
import torch
from loader_parts import Coded, Noise, nothing_is_left, plain_collate
from torch.utils.data import Subset
from training_parts import INLINE, PROCESSES, THREADS, large_tensors_begin_small, noise

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.workers.autotune import choose_workers

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
