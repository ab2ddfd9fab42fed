"The order of names: timm's, for any names; and files of names that are damaged or made to harm."
import pickle
import random

import pytest
from timm.data.readers.class_map import load_class_map as timm_load_class_map
from timm.utils.misc import natural_key as timm_natural_key

from timmdata.readers.class_map import build_class_map, load_class_map, natural_key

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


def test_a_number_of_any_length_is_a_number():
    "Python reads no more than 4,300 digits as one."
    long = ['a' + '0' * 9 + '9' * 5000, 'a1' + '0' * 5000, 'a2']
    assert sorted(long, key=natural_key) == ['a2', long[0], long[1]]


@pytest.mark.parametrize('separator', ['\x0b', '\x1c', '\x85', '\u2028'])
def test_only_a_line_feed_ends_a_name(tmp_path, separator):
    "Otherwise all classes after it would have another index than in timm."
    (tmp_path/'map.txt').write_text(f'a{separator}b\nc\r\nd\n', encoding='utf-8')
    ours = load_class_map(tmp_path/'map.txt')
    assert ours == timm_load_class_map(str(tmp_path/'map.txt')) == {f'a{separator}b': 0, 'c': 1, 'd': 2}


NESTED = b'\x80\x02}K\x01' + b'\x85' * 10**6 + b'K\x00s.'   # a key of a million tuples in each other: hashing it overflows the stack
DAMAGED = {'bytes.txt': b'\xff\xfe', 'bytes.csv': b'\xff', 'bytes.json': b'\xff', 'half.json': b'{"a": ', 'deep.json': b'[' * 10**5,
           'list.json': b'[["a"]]', 'long.csv': b'a,"' + b'b' * 200_000 + b'"', 'digits.csv': b'a,' + b'9' * 5000, 'text.pkl': b'abc',
           'half.pkl': pickle.dumps({'a': 0})[:-3], 'memo.pkl': b'\x80\x02}r' + (2**28).to_bytes(4, 'little') + b'.', 'nested.pkl': NESTED,
           'large.json': b'{"a": 2147483648}', 'name.json': b'[1.5]', 'empty.pkl': b''}


@pytest.mark.parametrize('name', DAMAGED)
def test_a_damaged_class_map_is_an_error_with_its_name(tmp_path, name):
    (tmp_path/name).write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=name.replace('.', r'\.')): load_class_map(tmp_path/name)
