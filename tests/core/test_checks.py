"Sizes in bytes, as they are read and written."
import random

import pytest

from timmdata.core.checks import format_size, parse_size


@pytest.mark.parametrize('num_bytes, text', [
    (0, '0 bytes'), (999, '999 bytes'), (1000, '1 KB'), (24_576, '24.6 KB'), (1_500_000, '1.5 MB'), (30e9, '30 GB'), (9e15, '9000 TB')])
def test_a_size_has_a_unit(num_bytes, text): assert format_size(num_bytes) == text


def test_what_is_written_is_read_as_about_the_same():
    rng = random.Random(0)
    for _ in range(500):
        num_bytes = int(10 ** rng.uniform(3, 16))
        assert parse_size(format_size(num_bytes)) == pytest.approx(num_bytes, rel=0.06)
