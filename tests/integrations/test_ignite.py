"A loader in Ignite, which needs no adapter: an `Engine` accepts any iterable, a `Checkpoint` any object with a state."
import pytest
from framework_runs import check_resume, in_a_plain_loop, make_loader
from frameworks import require
from loader_parts import nothing_is_left

pytestmark = pytest.mark.timeout(300)
nothing_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.mark.full
def test_a_killed_run_goes_on(tmp_path):
    require('ignite.engine')
    check_resume('ignite_training', tmp_path)


def test_an_epoch_of_another_length_goes_on_where_the_last_one_ended():
    "Ignite's `epoch_length` counts batches, which it takes from one pass after another."
    engine, loader, seen = require('ignite.engine'), make_loader(), []
    trainer = engine.Engine(lambda engine, batch: seen.append(batch[1].tolist()))
    trainer.run(loader, max_epochs=3, epoch_length=6)
    loader.close()
    assert seen == in_a_plain_loop()[0][:18]
