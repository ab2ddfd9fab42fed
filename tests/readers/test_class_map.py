"The order of names: timm's, for any names."
import random

import pytest
from timm.utils.misc import natural_key as timm_natural_key

from timmdata.readers.class_map import build_class_map, natural_key

pytestmark = pytest.mark.timeout(60)
PIECES = ['a', 'B', 'b', 'ü', 'Σ', 'ß', '٣', '²', ' ', '.', '-', '_', '/', '0', '00', '1', '9', '10', '007', '8' * 40,
          '日', '\udcff', '\U0001f600']


def test_order_is_timms():
    rng = random.Random(0)
    for _ in range(300):
        names = [''.join(rng.choices(PIECES, k=rng.randint(1, 7))) for _ in range(20)]
        names = [name for name in names if '²' not in name]   # timm raises on it
        assert sorted(names, key=natural_key) == sorted(names, key=timm_natural_key)
    assert sorted(['a²', 'a1', 'a'], key=natural_key) == ['a', 'a1', 'a²']


def test_a_folders_key_begins_the_keys_of_its_files():
    rng = random.Random(1)
    for _ in range(2000):
        folder, name = (''.join(rng.choices(PIECES, k=rng.randint(1, 7))) for _ in range(2))
        assert natural_key(f'{folder}/{name}') == natural_key(f'{folder}/') + natural_key(name)


def test_classes_are_numbered_in_that_order():
    assert list(build_class_map(['c10', 'C9', 'c9', 'c1'])) == ['c1', 'C9', 'c9', 'c10']
