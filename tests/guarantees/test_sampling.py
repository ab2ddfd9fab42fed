"Any sampler, weights and balanced batches: each rank its share of one order, whoever makes the batches, resumed anywhere."
import pytest
import timm.data.distributed_sampler as timm_samplers
import torch
from grids import few
from loader_parts import Coded, nothing_is_left
from torch import distributed
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from timmdata.loader import create_loader
from timmdata.samplers.distributed import OrderedDistributedSampler, RepeatAugSampler
from timmdata.samplers.weighted import WeightedSampler
from timmdata.transforms.mixup import Mixup

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM = 40


class Classes(Coded):
    "A quarter of the samples is of class 1."
    def __init__(self): super().__init__(NUM); self.targets = [int(k >= 30) for k in range(NUM)]


ORDERS = dict(
    random=lambda: dict(sampler=RandomSampler(range(NUM))),
    generator=lambda: dict(sampler=RandomSampler(range(NUM), generator=torch.Generator().manual_seed(torch.initial_seed()))),
    subset=lambda: dict(sampler=SubsetRandomSampler(range(3, 29))),
    torchs_weights=lambda: dict(sampler=WeightedRandomSampler([1.] * 39 + [20.], 50)),
    one_rank=lambda: dict(sampler=DistributedSampler(range(NUM), 1, 0)), listed=lambda: dict(sampler=[5, 3, 3, 8, 1, 0, 7, 7, 30]),
    ours=lambda: dict(sampler=WeightedSampler(range(NUM), range(NUM), 30)), weights=lambda: dict(weights=range(NUM)),
    balanced=lambda: dict(weights='balanced', samples_per_epoch=26), classes=lambda: dict(balanced_batches=True, samples_per_epoch=50),
    short=lambda: dict(samples_per_epoch=17))


def loader_of(monkeypatch, rank: int, num_ranks: int, order: str, **settings):
    monkeypatch.setattr(distributed, 'get_world_size', lambda: num_ranks)
    monkeypatch.setattr(distributed, 'get_rank', lambda: rank)
    torch.manual_seed(rank)   # each rank has other global numbers, and seeds its generators from them
    return create_loader(Classes(), 8, 4, True, **{**dict(
        distributed=True, seed=3, drop_last=False, num_workers=0, device='cpu', color_jitter=None), **ORDERS[order](), **settings})


def batches_of(loader) -> list: return [(images.clone(), targets.tolist()) for images, targets in loader]


def keys_of(loader) -> list: return [key for host in loader.loader.host_batches() for key in host.keys]


@pytest.mark.parametrize('order', few(ORDERS, 'random', 'balanced', 'classes'))
def test_each_rank_gets_its_share_of_one_order(monkeypatch, order):
    whole = loader_of(monkeypatch, 0, 1, order)
    for epoch in range(2):
        expected = keys_of(whole)
        assert len(set(expected)) == len(expected)
        shares = []
        for rank in range(3):
            loader = loader_of(monkeypatch, rank, 3, order)
            loader.set_epoch(epoch)
            shares.append(keys_of(loader))
        assert len({len(share) for share in shares}) == 1
        assert sorted(key for share in shares for key in share if key.valid) == sorted(expected)


@pytest.mark.parametrize('order', few(ORDERS, 'generator', 'classes', 'ours'))
def test_other_ranks_go_on_where_these_stopped(monkeypatch, order):
    "Two ranks stop after two batches; each of three loads the state of the first."
    expected = keys_of(loader_of(monkeypatch, 0, 1, order))
    begun = []
    for rank in range(2):
        loader = loader_of(monkeypatch, rank, 2, order)
        hosts = loader.loader.host_batches()
        if len(loader) > 1: begun += next(hosts).keys
        begun += next(hosts).keys
        if rank == 0: state = loader.loader.state_dict()
    rest = []
    for rank in range(3):
        loader = loader_of(monkeypatch, rank, 3, order)
        loader.load_state_dict(state)
        rest += keys_of(loader)
    assert sorted(key for key in begun + rest if key.valid) == sorted(expected)


@pytest.mark.parametrize('order', few(['torchs_weights', 'balanced', 'classes', 'short'], 'classes'))
def test_batches_are_the_same_whoever_makes_them_and_after_a_resume(monkeypatch, order):
    settings = [dict(), dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes')]
    if order == 'balanced': settings.append(dict(buffer=dict(batches=4)))
    expected = [batches_of(loader := loader_of(monkeypatch, 1, 2, order)), batches_of(loader)]
    assert expected[0][0][1] != expected[1][0][1]
    for how in settings:
        loader = loader_of(monkeypatch, 1, 2, order, **how)
        for k, _ in enumerate(loader):
            if k == 1: state = loader.state_dict()
        for batch, (images, targets) in zip(batches_of(loader), expected[1], strict=True):
            assert torch.equal(batch[0], images) and batch[1] == targets
        loader.load_state_dict(state)
        assert [targets for _, targets in batches_of(loader)] == [targets for _, targets in expected[0][2:]]
        loader.close()


def test_a_sample_that_comes_again_has_other_pixels(monkeypatch):
    loader = loader_of(monkeypatch, 0, 1, 'random', sampler=None, weights=[0.] * 39 + [1.], color_jitter=0.4)
    images = torch.cat([images for images, _ in loader]).flatten(1)
    assert len(images) == NUM and len(images.unique(dim=0)) == NUM


@pytest.mark.parametrize('make', [
    lambda: DistributedSampler(range(NUM), 2, 0), lambda: OrderedDistributedSampler(range(NUM), 2, 1),
    lambda: RepeatAugSampler(range(NUM), 2, 0), lambda: timm_samplers.OrderedDistributedSampler(range(NUM), 2, 0),
    lambda: timm_samplers.RepeatAugSampler(range(NUM), 2, 0)], ids=lambda make: type(make()).__module__)
def test_a_sampler_that_divides_is_not_divided_again(monkeypatch, make):
    with pytest.raises(ValueError, match='among 2 ranks: they would be divided twice. Omit distributed'):
        loader_of(monkeypatch, 0, 2, 'random', sampler=make())
    sampler = make()   # as timm's and torch's scripts do it
    loader = create_loader(Coded(NUM), 8, 4, sampler=sampler, num_workers=0, device='cpu')
    assert [target for _, targets in batches_of(loader) for target in targets] == list(make())


@pytest.mark.parametrize('was, now, name', [
    (dict(weights='balanced'), dict(weights='sqrt-balanced'), 'weights'), (dict(weights=range(1, NUM + 1)), dict(), 'weights'),
    (dict(samples_per_epoch=9), dict(samples_per_epoch=8), 'samples_per_epoch'),
    (dict(balanced_batches=True), dict(), 'balanced_batches'), (dict(valid_mask=True), dict(), 'valid_mask'),
    (dict(pad_last=True), dict(drop_last=False), 'pad_last'), (dict(auto_augment='3a'), dict(), 'auto_augment'),
    (dict(num_aug_splits=3), dict(), 'num_aug_splits'), (dict(mixup=Mixup(num_classes=2)), dict(), 'mixup'),
    (dict(input_size_choices=[8, 16]), dict(), 'schedule')])
def test_a_state_of_another_order_is_refused(was, now, name):
    old, new = (create_loader(Classes(), 8, 4, True, seed=3, num_workers=0, device='cpu', **settings) for settings in (was, now))
    with pytest.raises(ValueError, match=f'{name}'): new.load_state_dict(old.state_dict())


def test_equal_weights_are_equal_however_they_are_given():
    given = [list(range(NUM)), torch.arange(NUM), range(NUM)]
    states = [create_loader(Coded(NUM), 8, 4, True, seed=3, num_workers=0, device='cpu', weights=weights).state_dict() for weights in given]
    assert states[0] == states[1] == states[2]
