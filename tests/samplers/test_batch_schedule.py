"Compare plans with timm's for the same random numbers, and test properties of every plan."
import math
from collections import Counter
from unittest.mock import patch

import pytest
import timm.data.scheduled_sampler as timm_scheduled
import torch
from grids import few
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, RandomSampler

from timmdata.samplers.batch_schedule import PlannedBatch, ScheduledBatchSampler, choice_probabilities, create_batch_schedule
from timmdata.samplers.epoch import EpochSampler

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=80, deadline=None)
SEEDS = st.integers(-2**40, 2**40)


class TimmRandom:
    "Replace our draws with timm's."
    def __init__(self, seed, epoch, index):
        self.generator = torch.Generator().manual_seed(seed + 2 * epoch + (index == -4))

    def choices(self, population, weights, k=1):
        weights = torch.tensor(weights, dtype=torch.float64)
        draws = [torch.multinomial(weights, 1, generator=self.generator).item() for _ in range(k)]
        return [population[draw] for draw in draws]

    def shuffle(self, batches):
        batches[:] = [batches[k] for k in torch.randperm(len(batches), generator=self.generator).tolist()]


SCHEDULES = {
    'budget': {}, 'budget, all': dict(drop_last=False), 'in order': dict(shuffle_schedule=False),
    'weights': dict(choice_weights=[1, 0, 3]), 'fixed': dict(num_batches=9),
    'progressive': dict(choice_schedule='progressive', schedule_epochs=6),
    'progressive, all': dict(choice_schedule='progressive', schedule_epochs=6, drop_last=False),
    'nearest': dict(choice_schedule='progressive', schedule_epochs=4, schedule_spread=0, schedule_random_mix=0),
    'at once': dict(choice_schedule='progressive', schedule_epochs=1, num_batches=4, choice_weights=[1, 2, 1]),
}


@pytest.mark.parametrize('schedule', few(SCHEDULES, num=4))
def test_plans_are_timms_for_the_same_numbers(schedule):
    for seed in range(5):
        for size in (9, 50, 83):
            with patch('timmdata.samplers.batch_schedule.KeyedRandom', TimmRandom):
                ours = ScheduledBatchSampler(range(size), [8, 4, 2], seed=seed, **SCHEDULES[schedule])
                timms = timm_scheduled.ScheduledBatchSampler(range(size), [8, 4, 2], seed=seed, **SCHEDULES[schedule])
                assert len(ours) == len(timms) and math.isclose(ours.average_batch_size, timms.average_batch_size)
                for epoch in range(8):
                    ours.set_epoch(epoch)
                    timms.set_epoch(epoch)
                    assert list(ours) == list(timms)


def test_weights_are_timms():
    for weights in (None, [1, 2, 3, 4], [0, 1, 0, 2], [1, 0, 0, 0]):
        for spread, mix in ((0.65, 0.1), (0.3, 0), (5, 0.9), (0, 0.1), (0.65, 1)):
            for epochs in (1, 2, 8):
                options = dict(choice_weights=weights, choice_schedule='progressive', schedule_epochs=epochs,
                               schedule_spread=spread, schedule_random_mix=mix, num_batches=3)
                ours = ScheduledBatchSampler(range(50), [4, 3, 2, 1], **options)
                timms = timm_scheduled.ScheduledBatchSampler(range(50), [4, 3, 2, 1], **options)
                for epoch in range(-1, epochs + 2):
                    torch.testing.assert_close(ours.choice_weights_for_epoch(epoch), timms.choice_weights_for_epoch(epoch))
                torch.testing.assert_close(ours.choice_weights, timms.choice_weights)   # tensors, as in timm


@QUICK
@given(weights=st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(any), progress=st.floats(0, 1),
       spread=st.floats(0, 10), mix=st.floats(0, 1))
def test_every_probability(weights, progress, spread, mix):
    shares = choice_probabilities(weights, progress, spread, mix)
    assert len(shares) == len(weights) and abs(sum(shares) - 1) < 1e-9 and min(shares) >= 0
    assert all(share == 0 for share, weight in zip(shares, weights) if weight == 0)


def test_the_smallest_weights_are_weights():
    "A product with the smallest float was 0, so that the shares summed to one half."
    assert choice_probabilities([5e-324], 0., 0., 0.5) == (1.,)


def test_sizes_come_as_often_as_their_weights_say():
    sampler = ScheduledBatchSampler(range(10**5), [10, 10, 10], choice_weights=[1, 2, 1])
    counts = Counter(batch.bucket for batch in sampler.plan(0))
    assert abs(counts[1] / len(sampler) - 0.5) < 0.02 and len(sampler) == 10**4
    growing = ScheduledBatchSampler(range(10**5), [20, 10], choice_schedule='progressive', schedule_epochs=5)
    for epoch in range(7):
        share = Counter(batch.bucket for batch in growing.plan(epoch))[0] / len(growing)
        assert abs(share - growing.choice_weights_for_epoch(epoch)[0]) < 0.03
    used = sum(batch.batch_size for epoch in range(5) for batch in growing.plan(epoch))
    assert abs(used / 5e5 - 1) < 0.02   # each sample once an epoch, on average


plans = dict(size=st.integers(8, 90), sizes=st.lists(st.integers(1, 8), min_size=2, max_size=4), seed=SEEDS,
             kind=st.sampled_from(['budget', 'fixed', 'progressive']), drop_last=st.booleans(), epoch=st.integers(0, 9),
             num_replicas=st.integers(1, 4))


@QUICK
@given(**plans)
def test_every_plan(size, sizes, seed, kind, drop_last, epoch, num_replicas):
    options = dict(drop_last=drop_last, seed=seed, input_sizes=[(8 * k, 9) for k in range(len(sizes))])
    options.update({'budget': {}, 'fixed': dict(num_batches=11),
                    'progressive': dict(choice_schedule='progressive', schedule_epochs=4)}[kind])
    orders = [EpochSampler(range(size), seed=seed, num_replicas=num_replicas, rank=k) for k in range(num_replicas)]
    assume(len(orders[0]) >= max(sizes))
    ranks = [ScheduledBatchSampler(order, sizes, **options) for order in orders]
    plan = ranks[0].plan(epoch)
    assert all(rank.plan(epoch) == plan and len(rank) == len(plan) for rank in ranks)
    made = [list(rank.batches(epoch)) for rank in ranks]
    for batches in made:
        assert [batch for batch, _ in batches] == plan
        assert all(len(keys) == batch.batch_size and {key.bucket for key in keys} == {batch.bucket}
                   for batch, keys in batches)
    assert all(batch.size == (8 * batch.bucket, 9) for batch in plan)
    used = sum(batch.batch_size for batch in plan)
    if kind == 'budget':
        assert used <= len(orders[0]) < used + (min(sizes) if drop_last else 1)
        assert Counter(plan) == Counter(ranks[0].plan(epoch + 1))   # the same batches, in another order
    else: assert all(batch.batch_size == sizes[batch.bucket] for batch in plan)
    keys = [key for batches in made for _, batch in batches for key in batch]
    counts = Counter(key.index for key in keys)
    laps = used * num_replicas / size
    assert max(counts.values()) <= math.ceil(laps) and min(counts[k] for k in range(size)) >= math.floor(laps)
    assert len(keys) == len(set(keys))   # a sample that comes again is another view
    for start in (0, 1, len(plan) // 2, len(plan)):   # a run goes on where it was
        assert list(ranks[-1].batches(epoch, start)) == made[-1][start:]


@pytest.mark.parametrize('schedule', SCHEDULES)
def test_plans_are_functions_of_seed_and_epoch(schedule):
    one, other = (ScheduledBatchSampler(EpochSampler(range(60), seed=3), [8, 4, 2], seed=3, **SCHEDULES[schedule])
                  for _ in range(2))
    epochs = [list(one) for _ in range(4)]
    assert one.epoch == 4
    for epoch in (3, 1, 0, 2):
        other.set_epoch(epoch)
        assert other.schedule == tuple((batch.bucket, batch.batch_size) for batch in one.plan(epoch))
        assert list(other) == epochs[epoch]
    neighbor = ScheduledBatchSampler(EpochSampler(range(60), seed=3), [8, 4, 2], seed=1, **SCHEDULES[schedule])
    plans_of = [[sampler.plan(epoch) for epoch in range(4)] for sampler in (one, neighbor)]
    if schedule not in ('nearest', 'in order'): assert plans_of[0][0] != plans_of[1][1]   # timm's are the same
    torch.manual_seed(torch.seed())
    assert [one.plan(epoch) for epoch in range(4)] == plans_of[0]


class Numbers(torch.utils.data.Dataset):
    "Return thirty samples: an image filled with the index, the index, and a name."
    class_to_idx = {'number': 0}
    def __len__(self): return 30
    def __getitem__(self, index): return torch.full((1, 2, 2), index), index, f'{index}.jpg'
    def filename(self, index): return f'{index}.jpg'


def double(image): return image.repeat(1, 2, 2)


def test_torchs_loader():
    dataset = timm_scheduled.ScheduledTransformDataset(Numbers(), [torch.clone, double])
    sampler = ScheduledBatchSampler(RandomSampler(dataset), [8, 4], choice_schedule='progressive', schedule_epochs=2)
    loader = DataLoader(dataset, batch_sampler=sampler)
    assert len(loader) == len(sampler)
    for epoch in range(3):
        expected = [(batch.batch_size, (2, 4)[batch.bucket]) for batch in sampler.plan(epoch)]
        batches = list(loader)
        assert [(len(images), images.shape[-1]) for images, *_ in batches] == expected
        for images, target, names in batches:
            assert images[:, 0, 0, 0].tolist() == target.tolist() == [int(name[:-4]) for name in names]


def test_a_loaders_settings():
    schedule = create_batch_schedule(range(100), 16, [32, (40, 48), (3, 64, 64)], batch_choice_weights=[1, 0, 1])
    plan = schedule.plan(0)
    assert {batch.size for batch in plan} == {(32, 32), (64, 64)} and {batch.batch_size for batch in plan} == {16}
    assert len(plan) == 6 and isinstance(plan[0], PlannedBatch)
    assert sum(b.batch_size for b in create_batch_schedule(range(100), 16, [32], drop_last=False).plan(0)) == 100
    for wrong in (dict(input_size_choices=[]), dict(input_size_choices=[(1, 32, 32)]), dict(input_size_choices=[0]),
                  dict(input_size_choices=[32, 64], batch_size_choices=[8])):
        with pytest.raises(ValueError): create_batch_schedule(range(100), 16, **wrong)
