"Compare shares with timm's where these are right, and test properties for every size, rank, seed and epoch."
import math
from collections import Counter
from itertools import chain

import pytest
import timm.data.distributed_sampler as timm_samplers
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from timmdata.samplers.distributed import OrderedDistributedSampler, RepeatAugSampler, num_selected
from timmdata.samplers.epoch import EpochSampler

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=80, deadline=None)
SEEDS = st.integers(-2**40, 2**40)


# in order

@QUICK
@given(size=st.integers(1, 60), num_replicas=st.integers(1, 9))
def test_ordered_shares_are_timms(size, num_replicas):
    ranks = [OrderedDistributedSampler(range(size), num_replicas, rank) for rank in range(num_replicas)]
    for rank, ours in enumerate(ranks):
        timms = timm_samplers.OrderedDistributedSampler(range(size), num_replicas, rank)
        assert list(ours) == list(timms) and len(ours) == len(timms) == len(ranks[0])
        assert ours.num_valid_samples == timms.num_valid_samples and ours.total_size == timms.total_size
        ours.set_epoch(3)
        assert list(ours) == list(timms)
    assert sorted(chain(*(list(ours)[:ours.num_valid_samples] for ours in ranks))) == list(range(size))


def test_ranks_come_from_the_process_group(tmp_path):
    for sampler in (OrderedDistributedSampler, RepeatAugSampler):
        with pytest.raises(RuntimeError, match='init_process_group'): sampler(range(5))
        for rank in (-1, 2):
            with pytest.raises(ValueError, match='rank='): sampler(range(5), 2, rank)
    torch.distributed.init_process_group('gloo', init_method=f'file://{tmp_path}/rendezvous', world_size=1, rank=0)
    try:
        for sampler in (OrderedDistributedSampler, RepeatAugSampler):
            assert (sampler(range(5)).num_replicas, sampler(range(5)).rank) == (1, 0)
    finally: torch.distributed.destroy_process_group()


def test_an_empty_dataset_has_empty_shares():
    for sampler in (OrderedDistributedSampler([], 2, 1), RepeatAugSampler([], 2, 1)):
        assert list(sampler) == [] and len(sampler) == 0


# repeated augmentation

def repeated_order(size, num_repeats, seed, epoch, num_replicas, **rounding):
    "Return indexes and views of all ranks."
    return RepeatAugSampler(range(size), num_replicas, 0, num_repeats=num_repeats, seed=seed, **rounding).order(epoch)


repeats = dict(size=st.integers(1, 60), num_repeats=st.sampled_from([1, 1.5, 2, 2.5, 3, 3.3, 5]), epoch=st.integers(0, 9),
               num_replicas=st.integers(1, 9), rounding=st.sampled_from([0, 8, 256]), ratio=st.sampled_from([0, 1, 2, 3.5]))


@QUICK
@given(**repeats, seed=SEEDS)
def test_every_repeated_order(size, num_repeats, epoch, num_replicas, rounding, ratio, seed):
    rounds = dict(selected_round=rounding, selected_ratio=ratio)
    options = dict(num_replicas=num_replicas, **rounds)
    indexes, views = repeated_order(size, num_repeats, seed, epoch, **options)
    again = repeated_order(size, num_repeats, seed, epoch, **options)
    assert torch.equal(indexes, again[0]) and torch.equal(views, again[1])
    keys = list(zip(indexes.tolist(), views.tolist()))
    assert len(keys) == len(set(keys)) == num_replicas * num_selected(size, num_replicas, num_repeats, **rounds)
    plain = EpochSampler(range(size), seed=seed).order(epoch)[0].tolist()
    assert list(dict.fromkeys(indexes.tolist())) == plain[:len(set(indexes.tolist()))]   # in the order of a plain epoch
    for index, count in Counter(indexes.tolist()).items():
        assert {view for other, view in keys if other == index} >= set(range(min(count, math.floor(num_repeats))))
    if num_replicas >= math.ceil(num_repeats) and len(keys) <= size * num_repeats:
        owners = [(index, place % num_replicas) for place, (index, _) in enumerate(keys)]
        assert len(owners) == len(set(owners))   # repeats go to different ranks
    other = repeated_order(size, num_repeats, seed, epoch, num_replicas=1, selected_round=rounding)[0]
    common = min(len(other), len(indexes), math.floor(size * num_repeats))
    assert torch.equal(other[:common], indexes[:common])


@QUICK
@given(**repeats, seed=SEEDS, start=st.integers(0, 5))
def test_every_share_of_repeats(size, num_repeats, epoch, num_replicas, rounding, ratio, seed, start):
    options = dict(num_repeats=num_repeats, selected_round=rounding, selected_ratio=ratio, seed=seed)
    ranks = [RepeatAugSampler(range(size), num_replicas, rank, **options) for rank in range(num_replicas)]
    shares = [list(sampler.keys(epoch)) for sampler in ranks]
    assert {len(share) for share in shares} == {len(sampler) for sampler in ranks} == {len(shares[0])}
    assert {key.epoch for share in shares for key in share} == {epoch}
    dealt = list(chain(*zip(*shares)))
    order = list(zip(*(part.tolist() for part in ranks[0].order(epoch))))
    assert [(key.index, key.view) for key in dealt] == order
    for rank, share in zip(ranks, shares):
        assert list(rank.keys(epoch, start * num_replicas)) == share[start:]
        more = list(rank.keys(epoch, share=2 * len(share)))
        assert more[:len(share)] == share and len(more) == 2 * len(share)
    both = list(chain(*(rank.keys(epoch, share=2 * len(rank)) for rank in ranks)))
    assert len(both) == len(set(both))   # another view when it begins again


@QUICK
@given(**{name: values for name, values in repeats.items() if name != 'epoch'})
def test_shares_and_counts_are_timms(size, num_repeats, num_replicas, rounding, ratio):
    options = dict(num_replicas=num_replicas, num_repeats=num_repeats, selected_round=rounding, selected_ratio=ratio)
    for rank in range(num_replicas):
        timms = timm_samplers.RepeatAugSampler(range(size), rank=rank, shuffle=False, **options)
        ours = RepeatAugSampler(range(size), rank=rank, shuffle=False, **options)
        assume(len(timms) > 0)   # rounded down to nothing, with more ranks than samples
        assert len(ours) == len(timms) and list(ours) == list(timms)


@pytest.mark.parametrize('size', [255, 256, 300, 1000, 12_345])
def test_counts_of_larger_datasets_are_timms(size):
    for num_replicas in (1, 3, 8):
        for options in (dict(), dict(selected_round=0), dict(selected_ratio=2), dict(num_repeats=1.5)):
            timms = timm_samplers.RepeatAugSampler(range(size), num_replicas, 0, shuffle=False, **options)
            ours = RepeatAugSampler(range(size), num_replicas, 0, shuffle=False, **options)
            assert len(ours) == len(timms) and list(ours) == list(timms)


def test_no_rank_is_left_without_samples():
    assert len(timm_samplers.RepeatAugSampler(range(300), 512, 0)) == 0
    assert len(RepeatAugSampler(range(300), 512, 0)) == 1
    small = [RepeatAugSampler(range(100), 4, rank) for rank in range(4)]
    assert sum(map(len, small)) == 100   # a full epoch


def test_epochs_pass_and_can_be_chosen():
    sampler, other = RepeatAugSampler(range(30), 2, 1, seed=5), RepeatAugSampler(range(30), 2, 1, seed=5)
    epochs = [list(sampler) for _ in range(3)]
    assert sampler.epoch == 3 and len(set(map(tuple, epochs))) == 3
    for epoch in (2, 0, 1):
        other.set_epoch(epoch)
        assert list(other) == epochs[epoch]
    assert list(RepeatAugSampler(range(30), 2, 1, seed=6)) != epochs[0]
    loader = DataLoader(torch.arange(30), batch_size=5, sampler=RepeatAugSampler(range(30), 2, 1, seed=5))
    assert [torch.cat(list(loader)).tolist() for _ in range(3)] == epochs
    resumed = RepeatAugSampler(range(30), 2, 1, seed=5)
    resumed.start = 8
    assert list(resumed) == epochs[0][4:] and list(resumed) == epochs[1]
