"Test the order of an epoch: a function of seed and epoch, for any sampler, divided among any number of ranks."
import math
import warnings
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.weighted import BalancedSampler, WeightedSampler

pytestmark = pytest.mark.timeout(120)


class Labeled(list):
    "Provide samples with known labels."
    @property
    def targets(self): return [target for _, target in self]


QUICK = settings(max_examples=80, deadline=None)


@QUICK
@given(size=st.integers(1, 60), num_replicas=st.integers(1, 6), seed=st.integers(-2**40, 2**40), epoch=st.integers(0, 9),
       repeats=st.sampled_from([0, 1, 1.5, 2, 3.3]))
def test_every_share_of_an_epoch(size, num_replicas, seed, epoch, repeats):
    ranks = [EpochSampler(range(size), True, seed, None, num_replicas, rank, repeats) for rank in range(num_replicas)]
    shares = [list(rank.keys(epoch)) for rank in ranks]
    assert {len(share) for share in shares} == {len(rank) for rank in ranks} == {math.ceil(size / num_replicas)}
    for rank, share in zip(ranks, shares):
        rank.set_epoch(epoch)
        assert list(rank) == share and rank.epoch == epoch + 1
    keys = [key for together in zip(*shares) for key in together][:size]
    assert len(set(keys)) == size   # a sample that comes again is another view
    if repeats <= 1: assert sorted(key.index for key in keys) == list(range(size))
    counts = Counter(key.index for key in keys)
    assert max(counts.values()) <= max(1, math.ceil(repeats))


@QUICK
@given(size=st.integers(1, 60), before=st.integers(1, 5), after=st.integers(1, 5), used=st.integers(0, 9))
def test_the_rest_of_an_epoch_goes_to_any_number_of_ranks(size, before, after, used):
    begun = [key for rank in range(before)
             for key in list(EpochSampler(range(size), num_replicas=before, rank=rank).keys(0))[:used]]
    start = before * min(used, math.ceil(size / before))
    shares = [list(EpochSampler(range(size), num_replicas=after, rank=rank).keys(0, start)) for rank in range(after)]
    rest = [key for together in zip(*shares) for key in together][:max(0, size - start)]
    assert sorted({key.index for key in [*begun, *rest]}) == list(range(size))
    if start <= size: assert len(begun) + len(rest) == size


@pytest.mark.parametrize('make', [
    lambda: RandomSampler(range(20)), lambda: WeightedRandomSampler([1.] * 9 + [9.], 30),
    lambda: DistributedSampler(range(20), 2, 1), lambda: [3, 1, 3, 3, 0]])
def test_any_sampler_has_an_order_that_repeats(make):
    runs = []
    for junk in (0, 5):
        torch.rand(junk)   # the global generator is elsewhere
        sampler = EpochSampler(range(20), seed=7, sampler=make())
        runs.append([list(sampler.keys(epoch)) for epoch in (0, 1)])
        assert len(sampler) == len(make()) == len(set(runs[-1][0]))
    assert runs[0] == runs[1]
    if not isinstance(make(), list): assert [key.index for key in runs[0][0]] != [key.index for key in runs[0][1]]


@QUICK
@given(size=st.integers(1, 1300), repeats=st.floats(1.01, 400), seed=st.integers(0, 99))
def test_repeats_come_in_a_row_and_the_epoch_gets_no_longer(size, repeats, seed):
    sampler = EpochSampler(range(size), seed=seed, num_repeats=repeats)
    keys, once = list(sampler.keys(0)), [key.index for key in EpochSampler(range(size), seed=seed).keys(0)]
    assert len(keys) == len(sampler) == (size if size < 256 else size // 256 * 256)
    counts = Counter(key.index for key in keys)
    assert list(counts) == once[:len(counts)]   # the first samples of the order
    assert [(key.index, key.view) for key in keys] == [(index, view) for index in counts for view in range(counts[index])]
    assert all(num in (math.floor(repeats), math.ceil(repeats)) for num in [*counts.values()][:-1])


@QUICK
@given(size=st.integers(1, 40), num_replicas=st.integers(1, 5), start=st.integers(0, 50), multiple=st.integers(1, 7))
def test_valid_samples_of_all_ranks_are_each_sample_once(size, num_replicas, start, multiple):
    ranks = [EpochSampler(range(size), seed=2, num_replicas=num_replicas, rank=rank) for rank in range(num_replicas)]
    shares = [list(rank.keys(0, start, multiple=multiple)) for rank in ranks]
    order = [key.index for key in EpochSampler(range(size), seed=2).keys(0)]
    assert sorted(key.index for share in shares for key in share if key.valid) == sorted(order[start:])
    share, = {len(share) for share in shares}
    assert share % multiple == 0 and (share - multiple) * num_replicas < max(0, size - start)   # no batch too many
    filling = [key.index for together in zip(*shares) for key in together if not key.valid]
    assert filling == (order * (len(filling) // size + 1))[:len(filling)]   # the next samples of the order again


@settings(max_examples=400, deadline=None)
@given(size=st.integers(1, 40), num_replicas=st.integers(1, 5), row_size=st.integers(1, 9), of_rows=st.integers(0, 9),
       kind=st.sampled_from(['plain', 'repeats', 'given length', "user's", 'weighted', 'balanced']))
def test_valid_samples_are_counted_as_they_come(size, num_replicas, row_size, of_rows, kind):
    "The number is computed, so it is compared with the keys for every sampler, share and row size."
    data = Labeled((None, index % 3) for index in range(size))
    kinds = {'plain': partial(EpochSampler, data, row_size=row_size), 'weighted': partial(WeightedSampler, data, [1.] * size),
             'repeats': partial(EpochSampler, data, num_repeats=2, row_size=row_size), 'balanced': partial(BalancedSampler, data, row_size),
             'given length': partial(EpochSampler, data, samples_per_epoch=17, row_size=row_size),
             "user's": partial(EpochSampler, data, sampler=list(range(0, size, 2)), row_size=row_size)}
    for rank in range(num_replicas):
        sampler = kinds[kind](num_replicas=num_replicas, rank=rank)
        assert sampler.count_valid() == sum(key.valid for key in sampler.keys(0))
        padded = list(sampler.keys(0, multiple=row_size))
        assert sampler.count_valid(len(padded)) == sum(key.valid for key in padded)
        share = min(len(sampler), of_rows * row_size)   # as of whole batches alone
        assert sampler.count_valid(share) == sum(key.valid for key in list(sampler.keys(0))[:share])


@pytest.mark.parametrize('make', [RandomSampler, lambda data, generator: WeightedRandomSampler([1.] * 20, 20, generator=generator)])
def test_a_generator_of_the_samplers_own_is_keyed_and_left_as_it_was(make):
    "Otherwise, ranks with differently seeded generators, or a resumed run, would have different orders."
    orders = []
    for number in (5, 6):
        generator = torch.Generator().manual_seed(number)
        sampler = EpochSampler(range(20), seed=7, sampler=make(range(20), generator=generator))
        orders.append([list(sampler.keys(epoch)) for epoch in (1, 0)])
        assert torch.equal(generator.get_state(), torch.Generator().manual_seed(number).get_state())
    assert orders[0] == orders[1] and orders[0][0] != [key._replace(epoch=1) for key in orders[0][1]]


@QUICK
@given(size=st.integers(1, 30), length=st.integers(1, 70), shuffle=st.booleans())
def test_epochs_of_a_given_length_go_on_in_the_passes(size, length, shuffle):
    sampler, plain = EpochSampler(range(size), shuffle, 4, samples_per_epoch=length), EpochSampler(range(size), shuffle, 4)
    epochs = [list(sampler.keys(epoch)) for epoch in range(5)]
    passes = [key.index for number in range(5 * length // size + 1) for key in plain.keys(number)]
    assert [key.index for keys in epochs for key in keys] == passes[:5 * length]
    for keys in epochs: assert len(set(keys)) == len(keys) == len(sampler) == length


class OfLength(list):
    "Define a sampler whose length is wrong."
    def __init__(self, indexes, length): super().__init__(indexes); self.length = length
    def __len__(self): return self.length


def torchs(sampler) -> list[int]:
    "Return the indexes that torch's DataLoader reads."
    return [int(index) for index in DataLoader(range(10), batch_size=None, sampler=sampler)]


@pytest.mark.parametrize('sampler', [
    [4, 0, 4], np.array([4, 0]), np.array([4, 0], np.uint8), torch.tensor([4, 0]), [np.int32(4), torch.tensor(0)], [np.array(4)], (3, 0),
    OfLength([4, 0], 5), []], ids=repr)
def test_indexes_of_any_integer_type_are_torchs(sampler):
    indexes = EpochSampler(range(10), sampler=sampler).order(0)[0]
    assert indexes == torchs(sampler) and {*map(type, indexes)} <= {int}


@pytest.mark.parametrize('sampler', [
    [0., 1.7], [3.], np.array([1., 2.]), torch.tensor([1., 2.]), ['1'], [None], [[0, 1], [2, 3]], BatchSampler(range(4), 2, False),
    [True, False], np.array([True, False]), torch.tensor([True, False]), [(1, 2)], [0, 1, 2.5]],
    ids=lambda sampler: repr(sampler).partition(" object at")[0])
def test_what_is_no_index_is_an_error(sampler):
    "torch passes it to the dataset; it used to be cut to an integer here."
    with pytest.raises(TypeError, match='as an index: must be an integer, the index of one sample; for a mask.*BatchSampler'):
        EpochSampler(range(10), sampler=sampler).order(0)


@pytest.mark.parametrize('share', [1, 2])
def test_a_sampler_that_is_longer_than_its_length_loses_nothing_in_silence(share):
    longer = OfLength(range(6), 3)
    assert torchs(longer) == [*range(6)]   # torch reads all of them
    with pytest.raises(ValueError, match='OfLength yields more samples than its length, 3: make __len__ return'):
        list(EpochSampler(range(10), sampler=longer, num_replicas=share))


@pytest.mark.parametrize('is_end', [False, True])
@pytest.mark.parametrize('start', [0, 6])
@pytest.mark.parametrize('epoch', range(4))
def test_a_discarded_position_is_named(epoch, start, is_end):
    "This includes the start of an epoch: a loader in its second pass, whose trainer is in its first epoch."
    sampler = EpochSampler(range(8))
    sampler.set_position(1, start, is_end)
    goes_on = epoch == 1 or is_end and epoch == 2
    for _ in range(2):   # the second call finds nothing to discard
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            sampler.set_epoch(epoch)
        texts = [str(one.message) for one in found]
        assert bool(texts) == (not goes_on) and (sampler.epoch, sampler.start) == (epoch, start if epoch == 1 else 0)
        said = f'set_epoch({epoch}) discards the position that was loaded or set, {start} samples into epoch 1'
        if texts: assert texts[0].startswith(said)
        goes_on = True
    next(iter(sampler))
    sampler.set_epoch(7)   # the position was used


def test_choosing_epochs_without_a_loaded_position_says_nothing():
    sampler = EpochSampler(range(8))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for epoch in (0, 1, 5, 2): sampler.set_epoch(epoch)
        list(sampler)
        sampler.set_epoch(0)
