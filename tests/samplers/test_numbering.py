"Test that the number of a batch determines its epoch and its position."
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.samplers.numbering import Numbering

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=80, deadline=None)


@QUICK
@given(length=st.integers(1, 90), batch_size=st.integers(1, 9),
       num_replicas=st.integers(1, 3), drop_last=st.booleans())
def test_numbers_are_those_of_batches_counted_one_by_one(length, batch_size, num_replicas, drop_last):
    numbering = Numbering(length, batch_size, num_replicas, drop_last)
    share = -(-length // num_replicas)
    steps = range(0, share - batch_size + 1 if drop_last else share, batch_size)
    if not steps: return   # an epoch without a batch
    counted = [(epoch, step * num_replicas) for epoch in range(4) for step in steps]   # as a loop comes by them
    assert [numbering.position(number) for number in range(len(counted))] == counted
    assert [numbering.count(*where) for where in counted] == list(range(len(counted)))
    # a state of another number of ranks may lie in the rest that is dropped, or at the end of all samples
    for position in range(counted[len(steps) - 1][1] + 1, length + 1): assert numbering.count(1, position) == 2 * len(steps)
