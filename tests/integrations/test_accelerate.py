"Loops with Accelerate: the contract on one and two processes, the end of a loader, gathered results."
import pytest
from framework_runs import check_resume
from frameworks import require

require('accelerate')
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize('save_every, kill_after', [(4, [6, 14]), (5, [11])])
def test_resume(tmp_path, save_every, kill_after):
    check_resume('accelerate_training', tmp_path, save_every, kill_after)
