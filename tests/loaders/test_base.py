"What every host loader can do, and the adapter for other loaders."
import copy
import inspect
import pickle

import pytest
import torch
from loader_parts import Coded, Stream
from torch.utils.data import DataLoader

from timmdata import BatchBuffer, Mixup, PrefetchLoader, create_loader
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.loaders.base import ForeignLoader, HostLoader, as_host_loader, number_batches
from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.keys import SampleKey

pytestmark = pytest.mark.timeout(60)
HOST = dict(use_prefetcher=False, num_workers=0)


def test_loaders_of_this_library_are_host_loaders():
    loaders = [create_loader(Coded(8), 8, 4, **HOST), create_loader(IterableImageDataset(reader=Stream(8)), 8, 4, **HOST)]
    buffer = BatchBuffer(loaders[0], batches=4)
    for loader in (*loaders, buffer): assert isinstance(loader, HostLoader) and as_host_loader(loader) is loader
    assert [loader.auto_ack for loader in (*loaders, buffer)] == [None, None, True]
    assert isinstance(as_host_loader(DataLoader([1])), ForeignLoader) and isinstance(as_host_loader([]), ForeignLoader)


def test_keys_count_through_an_epoch_and_skipped_batches_are_left_out():
    batches = [(torch.zeros(2, 3, 4, 4), 0), None, {'image': torch.zeros(3, 3, 4, 4)}]
    hosts = list(number_batches(batches, 6))
    assert [host.keys for host in hosts] == [[SampleKey(0, 6), SampleKey(1, 6)], [SampleKey(k, 6) for k in (2, 3, 4)]]


def test_adapter_counts_epochs():
    loader = ForeignLoader([(torch.zeros(2, 3, 4, 4), 0)])
    assert [next(loader.host_batches()).keys[0].epoch for _ in range(2)] == [0, 1]
    loader.set_epoch(9)
    assert next(loader.host_batches()).keys[0].epoch == 9


def test_a_sampler_that_counts_epochs_is_believed():
    class Loader(list): sampler = EpochSampler(range(2))
    loader = ForeignLoader(Loader([(torch.zeros(2, 3, 4, 4), 0)]))
    loader.sampler.set_epoch(3)
    assert next(loader.host_batches()).keys[0].epoch == 3


def test_epoch_is_told_to_the_sampler_and_the_dataset():
    class Noting:
        def set_epoch(self, epoch): self.epoch = epoch
    class Loader(list): dataset, sampler = Noting(), Noting()
    loader = PrefetchLoader(Loader(), device='cpu')
    loader.set_epoch(4)
    assert loader.dataset.epoch == loader.sampler.epoch == 4


def test_switch_of_a_collate_function_of_timm():
    timms = pytest.importorskip('timm.data').FastCollateMixup(num_classes=3)
    loader = PrefetchLoader(DataLoader([0], collate_fn=timms), device='cpu')
    assert loader.mixup_enabled
    loader.mixup_enabled = False
    assert not timms.mixup_enabled


SETTINGS = dict(
    batch_size=2, drop_last=True, sampler=[0, 1], batch_sampler=[[0]], num_workers=3, seed=7, device=torch.device('meta'), collate_fn=len,
    persistent_workers=False, prefetch_factor=9, pin_memory=True, generator=torch.Generator(), timeout=3, worker_init_fn=print,
    multiprocessing_context='spawn', num_valid=3, dataset=[1], mixing=None)
LOADERS = {
    'prefetch': lambda: create_loader(Coded(8), 8, 4, num_workers=0, device='cpu'), 'batch': lambda: create_loader(Coded(8), 8, 4, **HOST),
    'stream': lambda: create_loader(IterableImageDataset(reader=Stream(8)), 8, 4, **HOST),
    'buffer': lambda: BatchBuffer(create_loader(Coded(8), 8, 4, **HOST), batches=4), 'foreign': lambda: ForeignLoader(DataLoader([1])),
    'prefetch foreign': lambda: PrefetchLoader(DataLoader(Coded(8)), device='cpu')}


@pytest.mark.parametrize('kind', LOADERS)
def test_settings_cannot_be_assigned(kind):
    "torch's DataLoader rejects some of these assignments; the others would be stored but have no effect."
    loader = LOADERS[kind]()
    names = SETTINGS | dict(mean=0.5, std=0.5, img_dtype=torch.float16) if isinstance(loader, PrefetchLoader) else SETTINGS
    for name, value in names.items():
        before = getattr(loader, name)
        with pytest.raises(AttributeError, match=f'{name} of a {type(loader).__name__} cannot be changed.*Create a new loader'):
            setattr(loader, name, value)
        assert name == 'batch_sampler' or repr(getattr(loader, name)) == repr(before)   # that is made anew each time


@pytest.mark.parametrize('kind', ['prefetch', 'batch'])
def test_copies_and_own_attributes_are_as_before(kind):
    loader = LOADERS[kind]()
    loader.note = 'mine'
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert other.note == 'mine' and other.batch_size == 4 and other.sampler.seed == loader.sampler.seed
        with pytest.raises(AttributeError): other.sampler = None
        assert len(list(other)) == 2


def test_the_switch_of_mixing_can_be_assigned():
    loader = create_loader(Coded(8), 8, 4, True, mixup=Mixup(num_classes=8), num_workers=0, device='cpu')
    loader.mixup_enabled = False
    assert not loader.mixup_enabled


def test_a_loader_of_ones_own_sets_what_it_provides():
    "Settings can be assigned in `__init__`, also in that of a subclass; after it, they are read-only."
    class Own(HostLoader):
        def __init__(self, size): self.batch_size = size

    class More(Own):
        def __init__(self, size):
            super().__init__(size)
            self.seed = 3

    class Same(More): pass
    for kind in (Own, More, Same):
        loader = kind(5)
        assert loader.batch_size == 5 and list(inspect.signature(kind).parameters) == ['size']
        for name in ('batch_size', 'seed'):
            with pytest.raises(AttributeError, match=f'{name} of a {kind.__name__} cannot be changed'): setattr(loader, name, 9)
