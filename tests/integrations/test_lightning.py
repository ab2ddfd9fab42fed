"`ImageDataModule` in Lightning's own trainer: the contract on one and two processes, all stages, resources."
import pytest
from framework_runs import NUM, check_resume

pytest.importorskip('lightning')
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize('save_every, kill_after', [(4, [6, 14]), (5, [11])])
def test_resume(tmp_path, save_every, kill_after):
    "In the middle of an epoch, and at its end."
    check_resume('lightning_training', tmp_path, save_every, kill_after)
