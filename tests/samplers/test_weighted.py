"Test weights and balanced batches: torch's distribution, numpy's counts, the same draws for any number of ranks."
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, Subset, WeightedRandomSampler

from timmdata.datasets.relabel import relabel
from timmdata.samplers.weighted import BalancedSampler, WeightedSampler, sample_weights

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=60, deadline=None)


class Labeled(Dataset):
    "Provide labels, but raise an error when read."
    def __init__(self, targets): self.targets, self.class_to_idx = list(targets), {c: k for k, c in enumerate('abcdefgh')}
    def __len__(self): return len(self.targets)
    def __getitem__(self, index): raise AssertionError('a sample was read')


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    "Return the p-value of the chi-square test for these counts."
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2.), torch.tensor(statistic / 2)))


# ---- weights

@pytest.mark.parametrize('seed', range(4))
def test_draws_have_the_distribution_of_torchs_sampler(seed):
    weights = np.array([0.1, 3, 1, 0, 2, 0.5, 1, 9])
    drawn, _ = WeightedSampler(range(8), weights, 20_000, seed=seed).order(epoch=seed)
    torchs = list(WeightedRandomSampler(weights, 20_000, generator=torch.Generator().manual_seed(seed)))
    counts, others = (np.bincount(found, minlength=8) for found in (drawn.numpy(), torchs))
    assert counts[3] == 0
    present = weights > 0
    expected = (weights / weights.sum() * 20_000)[present]
    assert p_value(counts[present], expected) > 0.001 and p_value(others[present], expected) > 0.001
    # one draw tells nothing of the next one
    pairs = np.bincount(weights.nonzero()[0].searchsorted(drawn[::2].numpy()) * 7 + weights.nonzero()[0].searchsorted(drawn[1::2].numpy()),
                        minlength=49).reshape(7, 7)
    assert p_value(pairs.ravel(), np.outer(expected, expected).ravel() / expected.sum() / 2) > 0.001


def test_the_test_finds_a_wrong_distribution():
    counts = np.bincount(WeightedSampler(range(3), [1, 1, 1.2], 20_000).order(0)[0], minlength=3)
    assert p_value(counts, np.full(3, 20_000 / 3)) < 1e-6


def test_a_point_at_the_end_of_the_line_is_no_sample_of_weight_0(monkeypatch):
    "Rounding may move a point there: 1 - 2**-53 times a large sum."
    monkeypatch.setattr(torch, 'rand', lambda *size, **_: torch.ones(*size, dtype=torch.float64))
    assert set(WeightedSampler(range(4), [0, 2, 5, 0], 3).order(0)[0].tolist()) == {2}


def test_words_are_powers_of_the_number_of_samples():
    targets = [3] * 16 + [0] * 4 + [7]
    assert sample_weights(Labeled(targets), 'balanced').tolist() == [1 / 16] * 16 + [1 / 4] * 4 + [1.]
    assert sample_weights(Labeled(targets), 'sqrt-balanced').tolist() == [1 / 4] * 16 + [1 / 2] * 4 + [1.]


@pytest.mark.parametrize('make', [
    lambda: relabel(Labeled([0] * 6 + [1] * 2 + [2]), {'a': 'x', 'b': 'y'}),
    lambda: Subset(Labeled([0] * 6 + [2, 1, 2, 1]), [*range(6), 7, 9]),
    lambda: ConcatDataset([Labeled([0] * 6), Labeled([1] * 2)]),
    lambda: Subset(ConcatDataset([Labeled([0] * 7), Labeled([1] * 2)]), range(1, 9))])
def test_labels_are_found_through_wrappers_and_nothing_is_read(make):
    assert sample_weights(make(), 'balanced').tolist() == [1 / 6] * 6 + [1 / 2] * 2
    assert Counter(k >= 6 for k in BalancedSampler(make(), 4, 40).order(0)[0].tolist()) == {True: 20, False: 20}


@pytest.mark.parametrize('weights', [[1, 2, 3], (1., 2., 3.), np.array([1, 2, 3]), torch.tensor([1., 2., 3.]), range(1, 4)])
def test_weights_may_be_any_sequence(weights):
    assert sample_weights(range(3), weights).tolist() == [1., 2., 3.]


@pytest.mark.parametrize('dataset, message', [
    (Labeled([0, -1, 1, -1]), '2 of 4 samples have no label'), (type('Many', (Labeled,), {})([]), None)])
def test_samples_without_one_class_cannot_be_balanced(dataset, message):
    if message is None: dataset.targets = np.array([[True, False], [True, True]])
    for make in (lambda: sample_weights(dataset, 'balanced'), lambda: BalancedSampler(dataset, 4)):
        with pytest.raises(ValueError, match=message or 'several labels have no class'): make()


@QUICK
@given(size=st.integers(1, 30), length=st.integers(1, 90), ranks=st.integers(1, 5), later=st.integers(1, 5), used=st.integers(0, 9),
       seed=st.integers(0, 2**40), epoch=st.integers(0, 5))
def test_draws_do_not_depend_on_the_ranks(size, length, ranks, later, used, seed, epoch):
    def samplers(num): return [WeightedSampler(range(size), np.arange(1, size + 1), length, seed, num, rank) for rank in range(num)]
    common, = samplers(1)
    expected = list(common.keys(epoch))
    assert len(set(expected)) == length == len(common)   # a sample that comes again is another view
    begun = [key for rank in samplers(ranks) for key in list(rank.keys(epoch))[:used] if key.valid]
    rest = [key for rank in samplers(later) for key in rank.keys(epoch, start=ranks * used) if key.valid]
    assert sorted(begun + rest) == sorted(expected)


# ---- balanced batches

def is_balanced(classes: list, of: set) -> bool:
    counts = [Counter(classes)[k] for k in of]
    return max(counts) - min(counts) <= 1


@QUICK
@given(targets=st.lists(st.integers(0, 7), min_size=1, max_size=60), batch=st.integers(1, 12), ranks=st.integers(1, 4),
       length=st.integers(1, 200), epoch=st.integers(0, 3))
def test_each_batch_has_the_classes_in_equal_numbers(targets, batch, ranks, length, epoch):
    samplers = [BalancedSampler(Labeled(targets), batch, length, 5, ranks, rank) for rank in range(ranks)]
    shares = [list(sampler.keys(epoch)) for sampler in samplers]
    assert {len(share) for share in shares} == {len(sampler) for sampler in samplers}
    for start in range(0, len(shares[0]), batch):
        batches = [share[start:start + batch] for share in shares]
        if not all(key.valid for keys in batches for key in keys): continue   # the last one, filled up
        for keys in (*batches, sum(batches, [])): assert is_balanced([targets[key.index] for key in keys], set(targets))
    valid = [key for share in shares for key in share if key.valid]
    assert len(set(valid)) == len(valid) == length == sum(sampler.count_valid() for sampler in samplers)
    for k in set(targets):   # all samples of a class before one comes again
        counts = Counter(key.index for key in valid if targets[key.index] == k)
        counts.update({index: 0 for index, target in enumerate(targets) if target == k})
        assert max(counts.values()) - min(counts.values()) <= 1


@QUICK
@given(before=st.integers(1, 4), after=st.integers(1, 4), used=st.integers(0, 6), epoch=st.integers(0, 3))
def test_balanced_batches_go_on_with_any_number_of_ranks(before, after, used, epoch):
    def samplers(num): return [BalancedSampler(Labeled([0] * 20 + [1] * 5 + [2]), 4, 70, 5, num, rank) for rank in range(num)]
    expected = list(samplers(1)[0].keys(epoch))
    begun = [key for rank in samplers(before) for key in list(rank.keys(epoch))[:4 * used] if key.valid]
    rest = [list(rank.keys(epoch, start=4 * used * before)) for rank in samplers(after)]
    assert sorted(begun + [key for share in rest for key in share if key.valid]) == sorted(expected)
    if before == after: assert rest == [list(rank.keys(epoch))[4 * used:] for rank in samplers(before)]
    for share in rest:
        for start in range(0, len(share), 4):
            keys = share[start:start + 4]
            if all(key.valid for key in keys): assert is_balanced([(key.index >= 20) + (key.index >= 25) for key in keys], {0, 1, 2})


def test_epochs_of_balanced_batches_differ_and_repeat():
    epochs = [[list(BalancedSampler(Labeled([0, 0, 0, 1, 1]), 4, 20, seed).keys(epoch)) for epoch in (0, 1)] for seed in (1, 1, 2)]
    assert epochs[0] == epochs[1] and epochs[0][0] != epochs[2][0]
    assert [key.index for key in epochs[0][0]] != [key.index for key in epochs[0][1]]
