"The order of names: timm's, for any names; names that look alike; and files of names that are damaged or made to harm."
import pickle
import random
import unicodedata
import warnings

import pytest
from timm.data.readers.class_map import load_class_map as timm_load_class_map
from timm.utils.misc import natural_key as timm_natural_key

from timmdata.datasets.relabel import number_classes
from timmdata.readers.class_map import (
    ClassMapError,
    build_class_map,
    check_class_map,
    describe_twins,
    find_twins,
    load_class_map,
    natural_key,
    unseen_form,
    warn_twins,
)
from timmdata.readers.target_fields import TargetFields

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


# ---- names that look alike

ALIKE = [('caf\u00e9', 'cafe\u0301'), ('Cat', 'cat'), ('STRASSE', 'stra\u00dfe'), ('cat', ' cat'), ('cat', 'cat\t'),
         ('red fox', 'red  fox'),
         ('red fox', 'red\u00a0fox'), ('red fox', 'red\u3000fox'), ('red fox', 'red\u2009fox'), ('cat', 'c\u200bat'), ('cat', '\ufeffcat'),
         ('cat', 'ca\u00adt'), ('cat', 'cat\u2060'), ('\u2764', '\u2764\ufe0f'), ('\ud55c', '\u1112\u1161\u11ab'), ('\u212b', '\u00c5'),
         ('cat', 'cat\x00'), ('\u0130', 'i\u0307'), ('cat\r', 'cat')]
APART = [('cat', 'cats'), ('m2', 'm\u00b2'), ('resume', 'r\u00e9sum\u00e9'), ('red fox', 'redfox'), ('a-b', 'a_b'), ('1', '01'),
         ('\uff11', '1'),
         ('a\udcff', 'a\udcfe'), ('\u2460', '1'), ('', 'a')]


@pytest.mark.parametrize('first, second', ALIKE)
def test_names_that_look_alike_have_one_form(first, second):
    assert first != second and unseen_form(first) == unseen_form(second)
    assert find_twins([first, 'other', second]) == {second: first} and find_twins([second], [first, 'other']) == {second: first}
    assert find_twins([first, second], known=[first, second]) == {}   # both are known
    with pytest.warns(UserWarning) as caught: ours = build_class_map([first, second])
    [message] = [str(warning.message) for warning in caught]
    assert ascii(first) in message and ascii(second) in message and message.isascii()
    assert set(ours.values()) == {0, 1}   # they stay different classes


@pytest.mark.parametrize('first, second', APART)
def test_names_that_look_different_have_two_forms(first, second):
    assert unseen_form(first) != unseen_form(second) and not find_twins([first, second])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        build_class_map([first, second])


def test_the_form_of_any_text_is_that_of_its_other_forms():
    rng = random.Random(2)
    for _ in range(2000):
        text = ''.join(chr(rng.choice([*range(32, 127), *range(0xa1, 0x600), *range(0xac00, 0xac80), 0x1f600])) for _ in range(6))
        for other in (unicodedata.normalize('NFC', text), unicodedata.normalize('NFD', text), f' {text} ', text.casefold()):
            assert unseen_form(other) == unseen_form(text)
        assert unseen_form(unseen_form(text)) == unseen_form(text)


def test_many_twins_are_one_line_and_numbers_have_none():
    names = [name for k in range(1000) for name in (f'Class {k}', f'class {k}')]
    with pytest.warns(UserWarning) as caught: build_class_map(names)
    assert len(caught) == 1 and len(str(caught[0].message)) < 500 and '…' in str(caught[0].message)
    assert find_twins([1, '1', 2]) == {} and find_twins(['cat'], [1, 2]) == {}


def test_one_index_for_both_names_is_not_told(recwarn):
    warn_twins({'Cat': 0, 'cat': 0, 'dog': 1})
    assert not recwarn
    warn_twins({'Cat': 0, 'cat': 1})
    assert len(recwarn) == 1


def test_a_name_that_is_missing_only_in_its_form_is_an_error_that_says_so():
    said = r"'cafe\u0301' looks like 'caf\xe9'"
    known, other = {'caf\u00e9': 0, 'tea': 1}, {'cafe\u0301': 0, 'tea': 1}
    assert said in describe_twins(other, known) and describe_twins(known, known) == describe_twins(['milk'], known) == ''
    for wrong, error in ((lambda: check_class_map(other, known), ClassMapError), (lambda: number_classes(str, other, known), ValueError),
                         (lambda: TargetFields('label', (), known)({'label': 'cafe\u0301'}), ValueError)):
        with pytest.raises(error) as raised: wrong()
        assert said in str(raised.value)


def test_names_of_a_feature_that_look_alike_are_told():
    "Those of a Hugging Face ClassLabel."
    with pytest.warns(UserWarning, match="look alike.*'Cat' and 'cat'"): fields = TargetFields('label', ('Cat', 'dog', 'cat'))
    assert fields.class_to_idx == {'Cat': 0, 'dog': 1, 'cat': 2}


def test_a_number_of_any_length_is_a_number():
    "Python reads no more than 4,300 digits as one."
    long = ['a' + '0' * 9 + '9' * 5000, 'a1' + '0' * 5000, 'a2']
    assert sorted(long, key=natural_key) == ['a2', long[0], long[1]]


@pytest.mark.parametrize('separator', ['\x0b', '\x1c', '\x85', '\u2028'])
def test_only_a_line_feed_ends_a_name(tmp_path, separator):
    "Otherwise, the indexes of all classes after it would differ from timm's."
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
