"The batches of all epochs have one number; none is given up too soon."
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timmdata.samplers.numbering import Numbering

pytestmark = pytest.mark.timeout(120)
QUICK = settings(max_examples=80, deadline=None)


@QUICK
@given(epoch=st.integers(0, 3), start=st.integers(0, 30), length=st.integers(31, 90), batch_size=st.integers(1, 9),
       num_replicas=st.integers(1, 3), drop_last=st.booleans(), repeats=st.integers(1, 3), window=st.integers(1, 4))
def test_no_batch_is_given_up_before_its_last_delivery(epoch, start, length, batch_size, num_replicas, drop_last, repeats, window):
    numbering = Numbering(epoch, start, length, batch_size, num_replicas, drop_last, repeats, window)
    if not (numbering.batches(epoch) and numbering.batches(epoch + 1)): return
    deliveries = [numbering.delivery(count) for count in range(120)]
    for count in range(60): assert min(number for number, _ in deliveries[count:]) == numbering.low_watermark(count)
    assert len(set(deliveries)) == len(deliveries)
    for count in range(60): assert numbering.count(*numbering.position(count)) == count
