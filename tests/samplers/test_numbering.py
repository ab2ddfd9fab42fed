"The batches of all epochs have one number, and an epoch and a position follow from it."
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.samplers.numbering import Numbering

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=80, deadline=None)


@QUICK
@given(epoch=st.integers(0, 3), start=st.integers(0, 30), length=st.integers(31, 90), batch_size=st.integers(1, 9),
       num_replicas=st.integers(1, 3), drop_last=st.booleans())
def test_numbers_are_those_of_batches_counted_one_by_one(epoch, start, length, batch_size, num_replicas, drop_last):
    numbering = Numbering(epoch, start, length, batch_size, num_replicas, drop_last)
    counted = []   # epoch and position of each batch, as a loop comes by them
    for number in range(epoch, epoch + 4):
        first = start if number == epoch else 0
        share = -(-(length - first) // num_replicas)
        steps = range(0, share - batch_size + 1 if drop_last else share, batch_size)
        counted += [(number, first + step * num_replicas) for step in steps]
    if {where[0] for where in counted} != set(range(epoch, epoch + 4)): return   # an epoch without a batch
    assert [numbering.position(number) for number in range(len(counted))] == counted
    assert [numbering.count(*where) for where in counted] == list(range(len(counted)))
