"`ImageDataModule` in Lightning's own trainer: the contract on one and two processes, all stages, the end of workers."
import logging
import warnings
from contextlib import nullcontext

import pytest
import torch
from framework_runs import NUM, check_resume, make_loader
from frameworks import require
from loader_parts import children, wait_until

from timmdata.datasets.relabel import classes_of

require('lightning')
pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
def test_resume(tmp_path):
    "In the middle of an epoch, and at its end; with validations in between."
    check_resume('lightning_training', tmp_path, 4, [6])
    check_resume('lightning_training', tmp_path/'end', 5, [11])


@pytest.mark.full
def test_resume_on_two_processes(tmp_path):
    "With Lightning's strategy, which detects processes as torchrun starts them."
    check_resume('lightning_training', tmp_path, 3, [4, 7], world=2, strategy='ddp', devices=2)


@pytest.fixture
def quiet():
    "Settings of a trainer that prints nothing."
    warnings.simplefilter('ignore')
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    return dict(accelerator='cpu', logger=False, enable_progress_bar=False, enable_model_summary=False,
                enable_checkpointing=False, max_epochs=1)


def test_every_stage_has_its_loader(quiet):
    from lightning.pytorch import Trainer
    from lightning_training import Model, make_data
    data, model, trainer = make_data(num_workers=0), Model(), Trainer(**quiet)
    data.data['test'] = torch.utils.data.Subset(data.data['train'], range(6))
    data.data['predict'] = torch.utils.data.Subset(data.data['train'], range(3))
    trainer.fit(model, data)
    assert model.evaluated == [*[[*range(k, k + 4)] for k in (0, 4)], *[[*range(k, min(k + 4, NUM))] for k in range(0, NUM, 4)]]
    model.evaluated.clear()
    trainer.test(model, data)
    trainer.predict(model, data)
    assert model.evaluated == [[0, 1, 2, 3], [4, 5], [0, 1, 2]]


def test_a_stage_without_data_is_passed_over(quiet):
    from lightning.pytorch import Trainer
    from lightning_training import Model, make_data
    data, seen = make_data(num_workers=0), []
    del data.data['val']
    Trainer(**quiet).fit(Model(seen.append), data)
    assert [targets.tolist() for targets in seen] == [targets.tolist() for _, targets in make_loader(num_workers=0)]


@pytest.mark.parametrize('fails', [False, True])
def test_workers_end_with_training_and_with_an_error(quiet, fails):
    from lightning.pytorch import Trainer
    from lightning_training import Model, make_data
    def see(targets):
        assert children()
        if fails: raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        Trainer(**quiet).fit(Model(see), make_data(num_workers=1, worker_type='processes'))
    wait_until(lambda: not children(), 'workers are left')


def test_a_folder_gives_its_splits_and_stages_their_settings(samples):
    from timmdata.integrations.lightning import ImageDataModule
    data = ImageDataModule(samples, 16, 4, num_workers=0, seed=5, training=dict(seed=6), evaluation=dict(num_workers=1))
    training, validation = data.train_dataloader(), data.val_dataloader()
    assert len(training.dataset) > len(validation.dataset) and classes_of(training.dataset) == classes_of(validation.dataset)
    assert (training.drop_last, training.loader.seed, training.num_workers) == (True, 6, 0)
    assert (validation.drop_last, validation.loader.seed, validation.num_workers) == (False, 5, 1)
    assert data.train_dataloader() is training and data.val_dataloader() is validation
