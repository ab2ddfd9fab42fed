"Keyed random numbers, compared with Philox from the paper, NumPy's Philox, and the distributions of Python's own generator."
import threading
from collections import Counter

import numpy as np
import pytest
from grids import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.core.rng import KeyedBatch, KeyedRandom, keyed_words

pytestmark = pytest.mark.timeout(60)


def philox(counter, key) -> list[int]:
    "Philox 4x64-10, from the paper: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011)."
    (a, b, c, d), (k, m), mask = counter, key, 2**64 - 1
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = second >> 64 ^ b ^ k, second & mask, first >> 64 ^ d ^ m, first & mask
        k, m = k + 0x9E3779B97F4A7C15 & mask, m + 0xBB67AE8584CAA73B & mask
    return [a, b, c, d]


KNOWN = [   # Random123, kat_vectors: counter, key, answer
    ([0] * 4, [0] * 2, [0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b]),
    ([2**64 - 1] * 4, [2**64 - 1] * 2, [0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0]),
    ([0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89],
     [0x452821e638d01377, 0xbe5466cf34e90c6c],
     [0xa528f45403e61d95, 0x38c72dbd566e9788, 0xa5a1610e72fd18b5, 0x57bd43b5e52b7fe6])]
RUNS = [(0, 0, 0, 0, 0), (1, 2, 3, 4, 5), (-1, 0, -2, 0, 1), (2**63 - 1, 7, -2**63, 1, 2), (12345, 90, 1281166, 0, 0)]


@pytest.mark.parametrize('counter, key, answer', KNOWN)
def test_oracle_gives_the_known_answers(counter, key, answer): assert philox(counter, key) == answer


@pytest.mark.parametrize('seed, epoch, index, view, sequence', RUNS)
def test_keyed_random_is_philox(seed, epoch, index, view, sequence):
    mask = 2**64 - 1
    key, rest = [seed & mask, epoch & mask], [sequence & mask, index & mask, view & mask]
    words = [word for block in range(1, 26) for word in philox([block, *rest], key)]
    def fresh(): return KeyedRandom(seed, epoch, index, view, sequence)
    rng = fresh()
    assert [rng.getrandbits(64) for _ in range(100)] == words
    rng = fresh()
    assert [rng.random() for _ in range(100)] == [(word >> 11) / 2**53 for word in words]
    numpys = np.random.Philox(key=np.array(key, np.uint64), counter=np.array([0, *rest], np.uint64))
    assert np.random.Generator(numpys).random(100).tolist() == [(word >> 11) / 2**53 for word in words]
    rng = fresh()
    assert [rng.getrandbits(k) for k in (1, 7, 32, 63)] == [word >> 64 - k for word, k in zip(words, (1, 7, 32, 63))]


def test_keyed_randoms_that_take_turns_do_not_disturb_each_other():
    alone = [[KeyedRandom(1, 0, k).random() for _ in range(1)] for k in range(3)]
    rngs = [KeyedRandom(1, 0, k) for k in range(3)]
    turns = [[rng.random() for rng in rngs] for _ in range(60)]
    assert turns[0] == [first for first, in alone]
    for k, rng in enumerate(KeyedRandom(1, 0, k) for k in range(3)):
        assert [rng.random() for _ in range(60)] == [turn[k] for turn in turns]
    found = {}
    def work(k):
        rng = KeyedRandom(1, 0, k)
        found[k] = [rng.random() for _ in range(60)]
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(found[k] == [turn[k] for turn in turns] for k in range(3))


def test_keyed_random_has_the_distributions_of_pythons():
    rng, num = KeyedRandom(5, 0, 0), 20_000
    assert np.mean([rng.uniform(2, 4) for _ in range(num)]) == pytest.approx(3, abs=0.02)
    assert np.std([rng.gauss(0, 3) for _ in range(num)]) == pytest.approx(3, abs=0.08)
    counts = Counter(rng.randint(0, 6) for _ in range(num))
    assert set(counts) == set(range(7)) and max(counts.values()) - min(counts.values()) < 400
    assert sorted(rng.sample(range(9), 9)) == list(range(9)) and rng.choice('abc') in 'abc'
    firsts = [KeyedRandom(0, 0, k).random() for k in range(num)]   # of neighboring samples
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.01) and abs(np.corrcoef(firsts[1:], firsts[:-1])[0, 1]) < 0.03


# ---- the numbers of a batch

KEYS = st.tuples(st.integers(-2**63, 2**63 - 1), st.integers(-2**63, 2**63 - 1))   # index and view
STEPS = st.one_of(   # method and its argument
    st.tuples(st.just('random'), st.none()), st.tuples(st.just('toss'), st.sampled_from([0., 0.3, 1., None])),
    st.tuples(st.just('uniform'), st.sampled_from([(-2., 5.), (0.1, 2.), (1., 1.)])),
    st.tuples(st.just('below'), st.sampled_from([1, 2, 3, 7, 224, 255, 256, 257, 1_000_003, 2**40])),
    st.tuples(st.just('shuffle'), st.integers(0, 5)))


def draw_one(rng: KeyedRandom, kind: str, argument):
    "Draw for one sample with Python's own methods."
    if kind == 'random': return rng.random()
    if kind == 'toss': return bool(argument) and rng.random() < argument
    if kind == 'uniform': return rng.uniform(*argument)
    if kind == 'below': return rng.randrange(argument)
    order = list(range(argument))
    rng.shuffle(order)
    return order


@pytest.mark.examples
@settings(max_examples=examples(200), deadline=None)
@given(keys=st.lists(KEYS, min_size=1, max_size=40), seed=st.integers(-2**63, 2**63 - 1), epoch=st.integers(0, 2**40),
       sequence=st.integers(0, 3), steps=st.lists(STEPS, max_size=12), chance=st.randoms(use_true_random=False))
def test_a_batch_draws_what_each_sample_draws_by_itself(keys, seed, epoch, sequence, steps, chance):
    "In any order, with any samples omitted, for few or many samples: bit-identical to Python's randrange and shuffle."
    indexes, views = np.array(keys, np.int64).T
    batch = KeyedBatch(seed, epoch, indexes, views, sequence)
    rngs = [KeyedRandom(seed, epoch, *key, sequence) for key in keys]
    for kind, argument in steps:
        where = np.array([chance.random() < 0.7 for _ in keys])
        if kind == 'shuffle': drawn = batch.order(argument, where).T.tolist()
        elif kind == 'uniform': drawn = batch.uniform(*argument, where).tolist()
        elif kind == 'random': drawn = batch.random(where).tolist()
        else: drawn = getattr(batch, kind)(argument, where).tolist()
        for rng, draws, one in zip(rngs, where, drawn):
            if draws: assert one == draw_one(rng, kind, argument), (kind, argument)
            elif kind != 'random': assert one == (list(range(argument)) if kind == 'shuffle' else 0)


@pytest.mark.parametrize('num', [1, 15, 16, 300])
def test_words_of_many_samples_are_the_papers(num):
    keys, mask = np.random.default_rng(num).integers(-2**63, 2**63 - 1, (2, num)), 2**64 - 1
    for block in range(3):
        words = keyed_words(-5, 2**40, *keys, sequence=3, block=block)
        for index, view, found in zip(*keys.tolist(), words.T.tolist()):
            assert found == philox([block + 1, 3, index & mask, view & mask], [-5 & mask, 2**40])


def test_numbers_below_those_of_each_sample():
    indexes, edges = np.arange(200), np.arange(200) % 9 + 1
    drawn = KeyedBatch(0, 0, indexes, indexes * 0).below(edges)
    assert drawn.tolist() == [KeyedRandom(0, 0, index).randrange(edge) for index, edge in enumerate(edges.tolist())]
