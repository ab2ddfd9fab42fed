"Keyed random numbers against the paper's Philox, NumPy's, and the distributions of Python's own generator."
import threading
from collections import Counter

import numpy as np
import pytest

from timmdata.core.rng import KeyedRandom

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
