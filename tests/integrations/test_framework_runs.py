"The contract itself: a plain loop meets it, and a loop that forgets the loader does not."
import pytest
from framework_runs import check_resume

pytestmark = [pytest.mark.timeout(120), pytest.mark.full]


def test_a_plain_loop_meets_the_contract(tmp_path):
    check_resume('plain_training', tmp_path)


def test_a_loop_that_forgets_the_loader_does_not(tmp_path):
    with pytest.raises(AssertionError): check_resume('plain_training', tmp_path, kill_after=[6], forgets=True)
