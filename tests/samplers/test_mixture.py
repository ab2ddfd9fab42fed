"Compare the order of mixtures with loops that count: shares in every window, no repeats, any rank and any resume."
import json
import random
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, Subset
from training_parts import INLINE, PROCESSES, THREADS, assert_equal, collected, copied, training

from timmdata import ImageDataset, Mixup, NaFlex, View, create_loader, relabel
from timmdata.buffer.files import BatchBufferError
from timmdata.datasets.mixture import Mixture
from timmdata.datasets.relabel import classes_of, targets_of
from timmdata.loaders.batch_loader import BatchSettings
from timmdata.pipeline.collate import fast_collate
from timmdata.samplers.mixture import MixtureSampler, SourcePattern, arrange

pytestmark = pytest.mark.timeout(120)
QUICK = examples(max_examples=60, deadline=None)
WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=8)


def mixture(sizes: dict, proportions: dict, **others) -> Mixture:
    sources = {name: [(f'{name}{k}', k) for k in range(size)] for name, size in sizes.items()}
    return Mixture(sources, proportions, join_classes=False, **others)


def names_of(mix: Mixture, keys) -> list[str]:
    "Return the source of each key, from the sample itself."
    return [mix[key.index][0][0] for key in keys]


# ---- which source comes next

def slowly(weights: list[int]) -> list[int]:
    "Apply Tijdeman's rule as in the paper, in exact fractions."
    num, counts, order = len(weights), [0] * len(weights), []
    if num == 1: return [0] * weights[0]
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    least = Fraction(1, 2 * num - 2)
    for step in range(1, sum(weights) + 1):
        lags = [share * step - count for share, count in zip(shares, counts)]
        _, chosen = min(((1 - least - lag) / share, k) for k, (lag, share) in enumerate(zip(lags, shares)) if lag >= least)
        counts[chosen] += 1
        order.append(chosen)
    return order


@QUICK
@given(weights=WEIGHTS)
def test_sources_take_turns_by_the_rule_of_the_paper(weights):
    assert arrange(weights) == slowly(weights)
    assert np.bincount(arrange(weights)).tolist() == weights


@QUICK
@given(weights=WEIGHTS, window=st.integers(1, 300))
def test_every_window_has_its_shares(weights, window):
    "The error is at most 1 for two sources, and 2 - 1 / (m - 1) for m: twice the paper's bound for a prefix."
    num, period = len(weights), sum(weights)
    order = (arrange(weights) * (2 + window // period))[:period + window]
    bound = 0 if num == 1 else 2 - Fraction(1, num - 1)
    for source, weight in enumerate(weights):
        before = np.concatenate([[0], np.cumsum(np.array(order) == source)])
        counts = before[window:window + period] - before[:period]
        errors = [abs(count - Fraction(weight * window, period)) for count in {*counts.tolist()}]
        assert max(errors) <= bound and (weight * window % period or max(errors) <= 1)


def test_draws_by_chance_do_not_have_the_shares():
    "Not every order meets the bound."
    drawn = random.Random(0).choices(range(2), [3, 1], k=400)
    assert max(abs(drawn[first:first + 16].count(0) - 12) for first in range(384)) > 2


@QUICK
@given(weights=WEIGHTS, start=st.integers(0, 10**6), num=st.integers(0, 50))
def test_sources_and_counts_follow_from_the_position(weights, start, num):
    pattern, order = SourcePattern(weights), arrange(weights)
    assert pattern.sources(start, num).tolist() == [order[k % len(order)] for k in range(start, start + num)]
    start %= 1000
    counts = Counter(order[k % len(order)] for k in range(start))
    assert pattern.counts(start).tolist() == [counts[k] for k in range(len(weights))]


def test_a_position_far_away_needs_no_more_work():
    counts = SourcePattern([3, 1]).counts(4 * 10**17 + 2)
    assert counts.tolist() == [3 * 10**17 + 2, 10**17]


# ---- which samples

@QUICK
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), weights=st.lists(st.integers(1, 6), min_size=4, max_size=4),
       length=st.integers(1, 60), batch=st.integers(1, 9), seed=st.integers(0, 2**40), changes=st.lists(st.integers(1, 6), max_size=4))
def test_a_source_is_used_up_before_it_starts_again(sizes, weights, length, batch, seed, changes):
    "This holds across epochs and changes of the proportions: a loop removes each sample from the rest of its source."
    names = 'abcd'[:len(sizes)]
    mix = mixture(dict(zip(names, sizes)), dict(zip(names, weights)))
    sampler = MixtureSampler(mix, batch, length, seed)
    left, counted = defaultdict(set), Counter()
    for epoch in range(6):
        if epoch and changes: mix.set_proportions({**mix.proportions, 'a': changes.pop()})
        _, start = sampler.begin()
        assert sampler.counts(epoch) == {name: counted[name] for name in names} and not start
        indexes, views = sampler.order(epoch)
        assert len(indexes) == length
        of_epoch = Counter()
        for index, view in zip(indexes.tolist(), views.tolist()):
            name = mix[index][0]
            source = left[name[0]]
            if not source: source.update(f'{name[0]}{k}' for k in range(sizes[names.index(name[0])]))
            source.remove(name)   # a KeyError: it came again too early
            counted[name[0]] += 1
            assert view == of_epoch[name]   # a repeat in an epoch is another view
            of_epoch[name] += 1
    assert sampler.counts(5, length) == {name: counted[name] for name in names}


def test_shuffles_differ_between_passes_sources_and_seeds():
    def passes(seed):
        mix = mixture({'a': 30, 'b': 30}, {'a': 1, 'b': 1})
        order = [mix[index][1] for epoch in range(2) for index in MixtureSampler(mix, 4, 60, seed).order(epoch)[0]]
        return [tuple(k for k in order[first::2][60 // 2 * number:][:30]) for first in (0, 1) for number in (0, 1)]
    found = passes(1) + passes(2)
    assert len({*found}) == 8 and all(sorted(one) == list(range(30)) for one in found)
    assert passes(1) == passes(1)


def test_a_source_that_is_added_does_not_change_the_shuffles_of_the_others():
    def of_a(sizes):
        mix = mixture(sizes, dict.fromkeys(sizes, 1))
        return [mix[index][0] for index in MixtureSampler(mix, 4, 200, 3).order(0)[0] if mix[index][0][0] == 'a'][:50]
    assert of_a({'a': 20, 'b': 7}) == of_a({'a': 20, 'b': 7, 'c': 5})


def test_samples_inside_a_source_are_drawn_by_weight():
    mix = mixture({'a': 4, 'b': 5}, {'a': 1, 'b': 1}, weights={'b': [0, 1, 1, 2, 0]})
    drawn = Counter(mix[index][0] for epoch in range(4) for index in MixtureSampler(mix, 4, 2000, 3).order(epoch)[0])
    assert [drawn[f'a{k}'] for k in range(4)] == [1000] * 4
    assert drawn['b0'] == drawn['b4'] == 0 and drawn['b1'] + drawn['b2'] + drawn['b3'] == 4000
    assert all(abs(drawn[name] - expected) < 150 for name, expected in {'b1': 1000, 'b2': 1000, 'b3': 2000}.items())   # 5 sigma
    with pytest.raises(ValueError, match='shape'):
        MixtureSampler(mixture({'a': 4, 'b': 5}, {'a': 1, 'b': 1}, weights={'b': [1, 2]}), 4)


def test_an_epoch_has_as_many_samples_as_all_sources_by_default():
    mix = mixture({'a': 10, 'b': 30}, {'a': 3, 'b': 1})
    assert len(MixtureSampler(mix, 4)) == 40 and len(MixtureSampler(mix, 4, num_replicas=4, rank=2)) == 10


# ---- ranks and batches

def batches_of(mix, seed, ranks, batch, length, epoch, start, history=None) -> list[list[list]]:
    "Return the batches of each rank from a position on, from independent samplers."
    found = []
    for rank in range(ranks):
        sampler = MixtureSampler(mix, batch, length, seed, ranks, rank)
        if history: sampler.adopt(history)
        sampler.set_position(epoch, start)
        found.append(list(BatchSettings(batch).cut(sampler, epoch, start)))
    return found


@QUICK
@given(weights=st.lists(st.integers(1, 6), min_size=2, max_size=4), batch=st.integers(1, 24), ranks=st.integers(1, 5),
       epoch=st.integers(0, 3))
def test_each_batch_of_each_rank_has_its_shares(weights, batch, ranks, epoch):
    mix = mixture(dict.fromkeys('abcd'[:len(weights)], 9), dict(zip('abcd', weights)))
    bound = 2 - Fraction(1, len(weights) - 1)
    for batches in batches_of(mix, 1, ranks, batch, 3 * batch * ranks, epoch, 0):
        for keys in batches:
            counts = Counter(names_of(mix, keys))
            for name, weight in mix.proportions.items():
                assert abs(counts[name] - Fraction(weight * len(keys), sum(weights))) <= bound


@pytest.mark.parametrize('part', range(3))
def test_resumes_with_other_ranks_and_batch_sizes(part):
    "In a hundred cases each, the samples of both runs are the epoch of one rank, and the next epoch continues."
    rng = random.Random(part)
    for _ in range(100):
        sizes = {name: rng.randint(1, 25) for name in 'abc'[:rng.randint(1, 3)]}
        first, later = ({name: rng.randint(1, 7) for name in sizes} for _ in range(2))
        length, seed, epoch = rng.randint(1, 160), rng.getrandbits(40), rng.randint(0, 5)
        (ranks, batch), (others, other_batch) = ((rng.randint(1, 5), rng.randint(1, 12)) for _ in range(2))
        mix = mixture(sizes, first)
        whole = MixtureSampler(mix, batch, length, seed)
        if rng.random() < 0.5:   # the proportions have changed before, or in, the epoch
            whole.set_epoch(rng.randint(0, epoch))
            mix.set_proportions(later)
            whole.begin()
        state = json.loads(json.dumps(whole.changes))
        expected = list(whole.keys(epoch))

        used = rng.randint(0, length // (batch * ranks))
        before = batches_of(mixture(sizes, first), seed, ranks, batch, length, epoch, 0, state)
        begun = [keys for batches in before for keys in batches[:used]]
        start = used * batch * ranks
        after = batches_of(mixture(sizes, first), seed, others, other_batch, length, epoch, start, state)
        rest = [keys for batches in after for keys in batches]
        seen = [key for keys in begun + rest for key in keys if key.valid]
        assert sorted(seen) == sorted(expected)
        assert Counter(names_of(mix, (key for keys in begun for key in keys))) == Counter(
            {name: num - whole.counts(epoch)[name] for name, num in whole.counts(epoch, start).items()})
        again = batches_of(mixture(sizes, first), seed, ranks, batch, length, epoch, start, state)
        assert again == [batches[used:] for batches in before]   # on as many ranks, the batches themselves


# ---- proportions that change

def test_a_change_begins_with_the_next_epoch():
    mix = mixture({'a': 8, 'b': 8}, {'a': 3, 'b': 1})
    sampler = MixtureSampler(mix, 4, 40, 1)
    reading = iter(sampler)
    first = [next(reading) for _ in range(10)]
    mix.set_proportions({'a': 1, 'b': 1})
    first += list(reading)
    assert Counter(names_of(mix, first)) == {'a': 30, 'b': 10}
    assert Counter(names_of(mix, sampler.keys(0))) == {'a': 30, 'b': 10}   # a replay
    assert Counter(names_of(mix, sampler)) == {'a': 20, 'b': 20} and sampler.counts(2) == {'a': 50, 'b': 30}
    mix.set_proportions({'a': 2, 'b': 2})   # the same
    assert len(sampler.history) == 2


def test_a_change_in_a_resumed_epoch_begins_with_the_one_after_it():
    mix = mixture({'a': 8, 'b': 8}, {'a': 3, 'b': 1})
    sampler = MixtureSampler(mix, 4, 40, 1)
    sampler.set_position(2, 20)
    before = list(sampler.keys(2, 20))
    mix.set_proportions({'a': 1, 'b': 1})
    assert list(sampler) == before and sampler.history[1][0] == 3
    assert Counter(names_of(mix, sampler)) == {'a': 20, 'b': 20}


def test_the_last_change_before_an_epoch_counts():
    mix = mixture({'a': 8, 'b': 8}, {'a': 3, 'b': 1})
    sampler = MixtureSampler(mix, 4, 40, 1)
    mix.set_proportions({'a': 1, 'b': 9})
    mix.set_proportions({'a': 1, 'b': 1})
    assert sampler.history == ((0, (1, 1)),)
    sampler.begin()
    mix.set_proportions({'a': 1, 'b': 9})
    mix.set_proportions({'a': 1, 'b': 1})
    assert sampler.history == ((0, (1, 1)),)


def test_an_epoch_of_the_past_has_the_proportions_that_it_had():
    mix = mixture({'a': 8, 'b': 8}, {'a': 3, 'b': 1})
    sampler = MixtureSampler(mix, 4, 40, 1)
    epochs = []
    for weight in 1, 1, 3, 5:
        mix.set_proportions({'a': 3, 'b': weight})
        epochs.append(list(sampler))
    sampler.set_epoch(0)
    assert [list(sampler) for _ in range(4)] == epochs


@pytest.mark.parametrize('text', [
    None, 'x', '3', '[3]', '[]', '[[1, [1, 1]]]', '[[0, [1, 1]], [0, [1, 2]]]', '[[0, [1, 1]], [2, [1, 2]], [1, [1, 1]]]',
    '[[0, [1]]]', '[[0, [1, 0]]]', '[[0, [1, "2"]]]', '[[0, [1, 1]], [1.5, [1, 2]]]', '[[0, null]]', '[[false, [1, 1]]]',
    '[[[], [1, 1]]]', '[' * 100_000])
def test_a_damaged_state_is_refused(text):
    mix = mixture({'a': 8, 'b': 8}, {'a': 3, 'b': 1})
    with pytest.raises(ValueError, match='the state has proportions_by_epoch=.*must be a list'):
        MixtureSampler(mix, 4).adopt({'proportions_by_epoch': text})
    assert mix.proportions == {'a': 3, 'b': 1}


# ---- in a loader

BATCH = 8


@pytest.fixture(scope='module')
def sources(samples):
    photos = ImageDataset(samples, split='val')
    return {'vehicles': relabel(photos, {'motorcycle': 'motorcycle', 'rocket': 'rocket'}),
            'others': Subset(relabel(photos, {'cat': 'cat', 'rocket': 'rocket', 'coffee': 'coffee'}), range(3, 20))}


def mixed(sources, proportions=(3, 1), **settings):
    "Create a loader of its own mixture, with all augmentation."
    of_mixture = {name: settings.pop(name) for name in ('weights', 'with_source') if name in settings}
    mix = Mixture(sources, dict(zip(sources, proportions)), **of_mixture)
    return mix, training(mix, **{'batch_size': BATCH, 'samples_per_epoch': 40, **settings})


def test_batches_do_not_depend_on_the_workers(sources):
    "This includes changes of the proportions after the workers have begun the next epoch early."
    found = []
    for settings in INLINE, PROCESSES, THREADS:
        mix, loader = mixed(sources, with_source=True, **settings)
        with loader:
            batches = [collected(loader)]
            mix.set_proportions({'vehicles': 1, 'others': 1})
            batches += [collected(loader), collected(loader)]
            mix.set_proportions({'vehicles': 3, 'others': 1})
            batches.append(collected(loader))
            counts = [[torch.bincount(numbers, minlength=2).tolist() for _, _, numbers in epoch] for epoch in batches]
            assert counts == [[[6, 2]] * 5, [[4, 4]] * 5, [[4, 4]] * 5, [[6, 2]] * 5]
            found.append(batches)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True): assert_equal(one, other)


def test_workers_that_began_early_with_old_proportions_are_discarded(sources):
    mix, loader = mixed(sources, with_source=True, **PROCESSES, multiprocessing_context='fork')
    with loader:
        collected(loader)
        assert sum(loader.stats().of_workers) == 5
        mix.set_proportions({'vehicles': 1, 'others': 1})
        collected(loader)
        assert loader.stats().discarded > 0
        before = loader.stats().discarded
        collected(loader)
        assert loader.stats().discarded == before   # nothing has changed


@pytest.mark.parametrize('used', [0, 2, 5])
def test_a_resumed_run_has_the_same_proportions_and_batches(sources, used):
    mix, loader = mixed(sources)
    collected(loader)
    mix.set_proportions({'vehicles': 1, 'others': 4})
    reading = iter(loader)
    for _ in range(used): next(reading)
    if used == 2: mix.set_proportions({'vehicles': 5, 'others': 1})   # from the next epoch on
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [copied(batch) for batch in reading] + collected(loader) + collected(loader)

    other, resumed = mixed(sources)
    resumed.load_state_dict(state)
    assert other.proportions == mix.proportions
    found = collected(resumed)
    while len(found) < len(rest): found += collected(resumed)
    assert_equal(rest, found)
    assert resumed.sampler.counts(3) == loader.sampler.counts(3)


def test_a_loader_that_is_made_again_in_the_same_program_resumes(sources):
    mix, loader = mixed(sources)
    collected(loader)
    mix.set_proportions({'vehicles': 1, 'others': 4})
    first = collected(loader)
    state = loader.state_dict()
    expected = collected(loader)
    again = training(mix, batch_size=BATCH, samples_per_epoch=40)
    again.load_state_dict(state)
    assert_equal(collected(again), expected)
    again.set_epoch(1)
    assert_equal(collected(again), first)


@pytest.mark.parametrize('change, message', [
    (dict(proportions=(1, 1)), 'proportions was vehicles: 3, others: 1, is vehicles: 1, others: 1'),
    (dict(weights={'others': 'balanced'}), 'weights_of_sources was')])
def test_a_state_of_another_mixture_is_refused(sources, change, message):
    state = mixed(sources)[1].state_dict()
    with pytest.raises(ValueError, match=message): mixed(sources, **change)[1].load_state_dict(state)


def test_a_state_of_the_same_samples_without_proportions_is_refused(sources):
    mix, loader = mixed(sources)
    plain = training(ConcatDataset(mix.datasets), batch_size=BATCH, samples_per_epoch=40)
    with pytest.raises(ValueError, match='proportions was None, is vehicles: 3'): loader.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match='proportions was vehicles: 3, others: 1, is None'): plain.load_state_dict(loader.state_dict())


def test_a_batch_and_a_sample_of_the_past_are_made_again(sources):
    mix, loader = mixed(sources, with_source=True)
    epochs = [collected(loader)]
    mix.set_proportions({'vehicles': 1, 'others': 1})
    epochs += [collected(loader)]
    for epoch in 0, 1:
        for number in 0, 3:
            replay = loader.replay(epoch, batch=number)
            assert_equal([replay.batch], [epochs[epoch][number]])
    assert loader.replay(0, index=len(mix) - 1).batch[2].tolist() == [1]
    loader.set_epoch(0)
    assert_equal(collected(loader), epochs[0])


def test_repeats_in_an_epoch_are_augmented_differently(sources):
    mix, loader = mixed(sources, proportions=(1, 9), samples_per_epoch=400, with_source=True)
    images = {}
    for batch in loader.loader.host_batches():
        for key, image in zip(batch.keys, batch.batch[0]): images.setdefault(key.index, []).append(image.clone().numpy().tobytes())
    repeated = [found for index, found in images.items() if mix.source_of(index) == 1]
    assert min(map(len, repeated)) >= 20 and all(len({*found}) > len(found) // 2 for found in repeated)


@pytest.mark.parametrize('settings', [{}, dict(is_training=True, shuffle=False)], ids=['evaluation', 'in order'])
def test_without_shuffling_every_sample_comes_once_in_order(sources, settings):
    mix = Mixture(sources, {'vehicles': 3, 'others': 1}, with_source=True)
    loader = create_loader(mix, 24, BATCH, drop_last=False, num_workers=0, device='cpu', **settings)
    assert [key.index for batch in loader.loader.host_batches() for key in batch.keys] == list(range(len(mix)))


def test_shuffled_evaluation_has_every_sample_once(sources):
    mix = Mixture(sources, {'vehicles': 3, 'others': 1})
    loader = create_loader(mix, 24, BATCH, shuffle=True, num_workers=0, device='cpu')
    assert sorted(key.index for batch in loader.loader.host_batches() for key in batch.keys) == list(range(len(mix)))


@pytest.mark.parametrize('settings', [dict(weights='sqrt-balanced'), dict(balanced_batches=True), dict(num_aug_repeats=2)])
def test_other_orders_are_refused(sources, settings):
    with pytest.raises(ValueError, match='a mixture and .* cannot be used together: the proportions decide'):
        training(Mixture(sources, {'vehicles': 3, 'others': 1}), **settings)


def in_every_batch(loader) -> list:
    return [Counter(loader.dataset.source_of(key.index) for key in batch.keys) for batch in loader.loader.host_batches()]


PLAIN = dict(gaussian_blur_prob=0, grayscale_prob=0)


@pytest.mark.parametrize('settings', [
    dict(views=[View(24, count=2), View(16)], input_size=None, re_mode='const', **PLAIN),
    dict(num_aug_splits=2, re_split=True), dict(collate_fn=fast_collate), dict(auto_augment='rand-m5'),
    dict(cache='device', train_crop_mode='rc', gaussian_blur_prob=0),
    dict(transform=lambda image: image.resize((24, 24)), **PLAIN), dict(mixup=Mixup(mixup_alpha=1., num_classes=4)),
    dict(weights={'others': 'balanced'}), dict(use_prefetcher=False), dict(input_size_choices=[24, 32], batch_size_choices=[8, 4]),
], ids=lambda settings: next(iter(settings)))
def test_formats_of_batches(sources, settings):
    "Each batch has the right shares and sources, in any format."
    if 'cache' in settings:   # images of one size
        sources = {name: Sized(source) for name, source in sources.items()}
    mix, loader = mixed(sources, with_source=True, num_workers=0, **settings)
    host = getattr(loader, 'loader', None) or loader
    num = 0
    for batch in host.host_batches():
        indexes = [key.index for key in batch.keys]
        numbers = [mix.source_of(index) for index in indexes]
        share = len(numbers) // 4
        if len(numbers) % 4 == 0: assert numbers.count(1) in (share - 1, share, share + 1)
        assert batch.batch[2].tolist() == numbers[:len(batch.batch[2])]
        num += len(numbers)
    assert num >= 32 and len(next(iter(loader))) == 3


class Sized(Dataset):
    "Provide the same samples at one size, in memory."
    def __init__(self, dataset):
        self.images = [dataset[k][0].resize((32, 32)) for k in range(len(dataset))]
        self.targets, self.class_to_idx = targets_of(dataset), classes_of(dataset)
    def __len__(self): return len(self.images)
    def __getitem__(self, index): return self.images[index], int(self.targets[index])


def test_batches_of_tokens_follow_a_change(sources):
    "A plan for old proportions is not used."
    counts = {}
    for changes in (), (1,):
        mix = Mixture(sources, {'vehicles': 3, 'others': 1}, with_source=True)
        loader = create_loader(mix, batch_size=8, is_training=True, samples_per_epoch=32, seed=1, num_workers=0, device='cpu',
                               naflex=NaFlex(mode='native', patch_size=16, max_seq_len=16))
        for epoch in range(3):
            assert len(loader)   # plans the epoch
            if epoch in changes: mix.set_proportions({'vehicles': 1, 'others': 1})
            found = Counter(mix.source_of(key.index) for keys in loader.batch_sampler for key in keys)
            loader.sampler.begin()   # as a pass does
            counts[len(changes), epoch] = found[1] / found.total()
    assert all(counts[key] < 0.35 for key in ((0, 0), (0, 1), (0, 2), (1, 0))) and all(counts[key] > 0.4 for key in ((1, 1), (1, 2)))


def test_ranks_of_a_process_group_get_their_shares(sources, monkeypatch):
    found = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, 'get_world_size', lambda: 2)
        monkeypatch.setattr(torch.distributed, 'get_rank', lambda rank=rank: rank)
        mix, loader = mixed(sources, distributed=True, num_workers=0)
        found += in_every_batch(loader)
    assert len(found) == 4 and all(counts == {0: 6, 1: 2} for counts in found)   # two whole batches of each rank


def test_a_buffer_refuses_a_change(sources, tmp_path):
    "Its batches were made before; in its directory, a state with different proportions finds no batches."
    mix, loader = mixed(sources, buffer=dict(batches=4, directory=tmp_path), num_workers=0)
    with loader:
        collected(loader)
        state = loader.state_dict()
        mix.set_proportions({'vehicles': 1, 'others': 1})
        with pytest.raises(BatchBufferError, match="dataset.proportions.* changed since the previous pass"): collected(loader)
    state['settings']['proportions_by_epoch'] = json.dumps([[0, [3, 1]], [1, [1, 1]]])
    mix, loader = mixed(sources, buffer=dict(batches=4, directory=tmp_path), num_workers=0)
    with loader:
        loader.load_state_dict(state)
        with pytest.raises(BatchBufferError, match='proportions_by_epoch changed since the previous pass'): collected(loader)
