"Reading and writing sizes in bytes; indexes and arrays."
import random

import numpy as np
import pytest
import torch

from timmdata.core.checks import check_index, check_range, check_weights, format_size, parse_size


@pytest.mark.parametrize('num_bytes, text', [
    (0, '0 bytes'), (999, '999 bytes'), (1000, '1 KB'), (24_576, '24.6 KB'), (1_500_000, '1.5 MB'), (30e9, '30 GB'), (9e15, '9000 TB')])
def test_a_size_has_a_unit(num_bytes, text): assert format_size(num_bytes) == text


def test_what_is_written_is_read_as_about_the_same():
    rng = random.Random(0)
    for _ in range(500):
        num_bytes = int(10 ** rng.uniform(3, 16))
        assert parse_size(format_size(num_bytes)) == pytest.approx(num_bytes, rel=0.06)


@pytest.mark.parametrize('value', [
    5, -5, np.int8(5), np.uint64(5), np.array(5), torch.tensor(5), torch.tensor([5]), torch.tensor(5, dtype=torch.uint8)], ids=repr)
def test_integers_of_any_type_are_indexes(value):
    "Python lists accept the same."
    assert check_index('it', value) == range(-9, 9)[int(value) + 9] and type(check_index('it', value)) is int


@pytest.mark.parametrize('value', [
    5., np.float32(5), np.array(5.), torch.tensor(5.), True, np.True_, np.array(True), torch.tensor(True), '5', None, [5], (5, 6),
    torch.tensor([5, 6]), np.array([5, 6]), 5j], ids=repr)
def test_what_would_be_cut_or_guessed_is_no_index(value):
    with pytest.raises(TypeError, match='^it has .*, of type .*, as an index: must be an integer; do this$'):
        check_index('it', value, '; do this')


@pytest.mark.parametrize('kind', [list, tuple, np.array, torch.tensor])
def test_ranges_and_weights_may_be_arrays(kind):
    assert check_range('scale', kind([0.25, 0.5])) == (0.25, 0.5) and check_weights('weights', kind([1., 3.]), 2) == [1, 3]
    for wrong in ([0.5, 0.25], [0., 1.], [1., 2., 3.]):
        with pytest.raises(ValueError, match='scale='): check_range('scale', kind(wrong))
