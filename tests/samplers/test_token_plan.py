"Compare plans by tokens with plain loops over lists, and with timm's batch sizes."

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.samplers.epoch import EpochSampler
from timmdata.samplers.token_plan import TokenPlan, first_fit, group_by_length

pytestmark = pytest.mark.timeout(120)
LENGTHS = st.lists(st.integers(1, 100), min_size=1, max_size=120)
SEQ_LENS, SIZES = (20, 50, 100), (6, 4, 2)


def same_in_every_epoch(lengths):
    lengths = np.array(lengths)
    return lambda seed, epoch, indexes, views: lengths[indexes]


def plan_of(lengths, mode, **given) -> TokenPlan:
    lengths = lengths if callable(lengths) else same_in_every_epoch(lengths)
    if mode == 'native': return TokenPlan(lengths, mode, SEQ_LENS, SIZES, **given)
    return TokenPlan(lengths, mode, (150,), (2,), **{'window': 16, **given})


def ranks_of(lengths, num, seed=1) -> list[EpochSampler]:
    return [EpochSampler(range(len(lengths)), seed=seed, num_replicas=num, rank=rank) for rank in range(num)]


@given(lengths=LENGTHS, row_len=st.integers(100, 300), window=st.integers(1, 40))
def test_first_fit_is_that_of_a_loop(lengths, row_len, window):
    expected, num_rows = [], 0
    for first in range(0, len(lengths), window):
        used = []   # of each row of this window
        for length in lengths[first:first + window]:
            row = next((k for k, tokens in enumerate(used) if tokens + length <= row_len), len(used))
            if row == len(used): used.append(0)
            expected.append((num_rows + row, used[row]))
            used[row] += length
        num_rows += len(used)
    assert list(zip(*(part.tolist() for part in first_fit(np.array(lengths), row_len, window)))) == expected


@given(lengths=LENGTHS)
def test_full_batches_of_a_length_come_where_they_are_full(lengths):
    waiting, expected = {k: [] for k in range(3)}, []
    for position, length in enumerate(lengths):
        bucket = int(np.searchsorted(SEQ_LENS, length))
        waiting[bucket].append(position)
        if len(waiting[bucket]) == SIZES[bucket]:
            expected.append((bucket, waiting[bucket]))
            waiting[bucket] = []
    found = group_by_length(np.array(lengths), SEQ_LENS, SIZES)
    batches = [(int(found.places[end - 1]), found.positions[start:end].tolist())
               for start, end in zip([0, *found.ends], found.ends)]
    assert batches[:len(expected)] == expected
    assert sorted(found.positions.tolist()) == list(range(len(lengths)))   # the rest is there, once
    for bucket, positions in batches: assert max(lengths[p] for p in positions) <= SEQ_LENS[bucket]
    assert all(len(positions) == SIZES[bucket] for bucket, positions in batches[:-1])


@given(lengths=LENGTHS, mode=st.sampled_from(['native', 'packed']), epoch=st.integers(0, 3))
def test_a_packed_batch_has_slots_that_do_not_overlap_and_every_sample_once(lengths, mode, epoch):
    plan, (sampler,) = plan_of(lengths, mode), ranks_of(lengths, 1)
    sampler.set_epoch(epoch)
    batches = list(plan.cut(sampler, epoch))
    assert sorted(key.index for keys in batches for key in keys) == list(range(len(lengths)))
    assert len(batches) == plan.count(sampler) and {key.epoch for keys in batches for key in keys} == {epoch}
    assert max(map(len, batches)) <= plan.batch_size
    if mode == 'native': return
    for keys in batches:
        taken = [token for key in keys for token in range(key.bucket, key.bucket + lengths[key.index])]
        assert len(set(taken)) == len(taken) and max(taken) < 300
        assert all(key.bucket // 150 == (key.bucket + lengths[key.index] - 1) // 150 for key in keys)   # within a row
        assert [key.bucket for key in keys] == sorted(key.bucket for key in keys)


@settings(max_examples=60)
@given(lengths=LENGTHS, mode=st.sampled_from(['native', 'packed']), worlds=st.lists(st.integers(1, 4), min_size=1, max_size=4),
       turns=st.integers(0, 4))
def test_other_numbers_of_ranks_use_each_sample_once(lengths, mode, worlds, turns):
    plan, position, seen = plan_of(lengths, mode), 0, []
    for world in worlds:
        shares = [list(plan.cut(sampler, 0, position)) for sampler in ranks_of(lengths, world)]
        assert len({len(share) for share in shares}) == 1   # every rank has as many steps
        for step in list(zip(*shares))[:turns]:
            seen += [key.index for keys in step for key in keys if key.valid]
            position = plan.advance(ranks_of(lengths, world)[0], 0, position, num=0)
        assert position == len(seen)
    rest = [key.index for keys in plan.cut(ranks_of(lengths, 1)[0], 0, position) for key in keys]
    assert sorted(seen + rest) == list(range(len(lengths))) and plan.end(ranks_of(lengths, 1)[0], 0) == len(lengths)


@given(lengths=LENGTHS, world=st.integers(1, 4), mode=st.sampled_from(['native', 'packed']))
def test_counts_are_those_of_the_batches(lengths, world, mode):
    plan, samplers = plan_of(lengths, mode), ranks_of(lengths, world)
    for sampler in samplers:
        batches = list(plan.cut(sampler, 0))
        assert plan.count(sampler) == len(batches)
        assert plan.count_valid(sampler) == sum(key.valid for keys in batches for key in keys)
    assert sum(map(plan.count_valid, samplers)) == len(lengths)


@given(lengths=LENGTHS, mode=st.sampled_from(['native', 'packed']))
def test_an_incomplete_last_batch_can_be_dropped(lengths, mode):
    (sampler,) = ranks_of(lengths, 1)
    every, full = (list(plan_of(lengths, mode, drop_last=drop).cut(sampler, 0)) for drop in (False, True))
    assert full == every[:len(full)] and len(every) - len(full) <= 1
    if mode == 'native': assert all(len(keys) == SIZES[keys[0].bucket] for keys in full)
    else: assert all(max(key.bucket for key in keys) >= 150 for keys in full)   # both rows are used


def test_an_epoch_may_have_a_budget_of_tokens():
    lengths = np.full(100, 50)
    plan = plan_of(lengths, 'native', tokens_per_epoch=1000)
    assert plan.count(*ranks_of(lengths, 1)) == 1000 // (4 * 50)
    assert plan_of(lengths, 'packed', tokens_per_epoch=1000).count(*ranks_of(lengths, 1)) == 1000 // 300
    with pytest.raises(ValueError, match='fill 5,000 tokens: use fewer, or more samples_per_epoch'):
        plan_of(lengths, 'native', tokens_per_epoch=5001).count(*ranks_of(lengths, 1))


@pytest.mark.parametrize('mode', ['native', 'packed'])
def test_a_later_epoch_with_less_than_its_budget_is_used_whole(mode):
    def lengths(seed, epoch, indexes, views): return np.full(len(indexes), 50 if epoch == 0 else 20)
    (sampler,) = ranks_of(range(100), 1)
    plan, whole = (plan_of(lengths, mode, tokens_per_epoch=budget) for budget in (5000, None))
    first, later = ([list(each.cut(sampler, epoch)) for each in (plan, whole)] for epoch in (0, 1))
    assert first[0] == first[1][:len(first[0])] and later[0] == later[1]
    assert sum(map(len, later[0])) == 100 and plan.tokens(plan.batches(sampler, 1)).sum() < 5000


def test_epochs_and_seeds_pack_differently():
    lengths = np.random.default_rng(0).integers(10, 100, 200)
    plan = plan_of(lengths, 'packed', window=64)
    of = {(seed, epoch): str(list(plan.cut(ranks_of(lengths, 1, seed)[0], epoch))) for seed in (1, 2) for epoch in (0, 1)}
    assert len(set(of.values())) == 4
    assert of[1, 0] == str(list(plan_of(lengths, 'packed', window=64).cut(ranks_of(lengths, 1)[0], 0)))   # made again


def test_a_million_images_are_planned_at_once():
    lengths = np.random.default_rng(0).integers(50, 577, 1_000_000)
    rows, starts = first_fit(lengths, 4096)
    assert starts.max() + 50 <= 4096 and len(rows) == len(lengths)
    assert 1 - lengths.sum() / ((rows.max() + 1) * 4096) < 0.04   # of 4096 tokens each
    assert group_by_length(lengths, (128, 256, 576), (128, 64, 32)).ends[-1] == len(lengths)


@pytest.mark.parametrize('mode', ['native', 'packed'])
def test_lengths_are_those_of_the_epoch_and_are_asked_for_once(mode):
    asked, (sampler,) = [], ranks_of(range(60), 1)
    def lengths(seed, epoch, indexes, views):
        asked.append((seed, epoch))
        return 20 + (7 * indexes) % 60 // (epoch + 1)
    plan = plan_of(lengths, mode)
    for _ in range(20):   # as in a loop over a loader in which someone asks about the next epoch
        tokens = [plan.tokens(plan.batches(sampler, epoch)).sum() for epoch in (0, 1)]
    assert asked == [(1, 0), (1, 1)] and tokens[0] > tokens[1]
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        number = plan.count(sampler)
        assert number == len(list(plan.cut(sampler, epoch)))
        sampler.begin()
        sampler.running = epoch   # as a loader notes it: until the pass is over, its length counts
        assert plan.count(sampler) == number and plan.count_valid(sampler) == 60


def test_a_plan_of_another_order_with_the_same_seed_is_its_own():
    plan, order = TokenPlan(same_in_every_epoch([4] * 8), 'native', (4,), (4,)), EpochSampler(range(8), shuffle=False)
    other = EpochSampler(range(8), sampler=[5, 3, 5, 1])
    assert [[key.index for key in keys] for keys in plan.cut(order, 0)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [[key.index for key in keys] for keys in plan.with_sampler(other).cut(other, 0)] == [[5, 3, 5, 1]]
