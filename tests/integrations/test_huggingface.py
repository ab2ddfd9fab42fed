"`ImageTrainer`: the contract on one and two processes, evaluation and prediction in order, and errors."
import json

import pytest
import torch
from framework_runs import BATCH, NUM, Run, check_resume, make_dataset, make_loader, run_all
from frameworks import require
from loader_parts import Fields, children, wait_until

accelerate = require('accelerate')
require('transformers')
pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
def test_resume(tmp_path):
    "After 4 batches of ten, and after the last one of an epoch."
    check_resume('trainer_training', tmp_path, 4, [6])
    check_resume('trainer_training', tmp_path/'end', 5, [11])


@pytest.mark.full
def test_resume_with_accumulated_gradients(tmp_path):
    "Of ten batches, three make a step; the last step of an epoch has one. Saved after 8 and 12 batches: steps 3, and 4 with the end."
    whole = Run(str(tmp_path/'whole'), save_every=2, options=dict(gradient_accumulation_steps=3))
    killed = Run(str(tmp_path/'killed'), 'killed', save_every=2, kill_after=9, options=whole.options)
    resumed = Run(killed.folder, 'resumed', save_every=2, resume=True, options=whole.options)
    run_all('trainer_training', [whole, killed, resumed])
    assert resumed.seen() == whole.seen()[6:] and len(whole.seen()) == 20
    states = [json.loads((tmp_path/name/'checkpoint-8'/'trainer_state.json').read_text()) for name in ('whole', 'killed')]
    epochs = [[(entry['step'], entry['epoch']) for entry in state['log_history'] if 'loss' in entry] for state in states]
    assert epochs[0] == epochs[1] and epochs[0][-1] == (8, 2.0)   # eight steps, the last of each epoch with one batch


@pytest.mark.full
def test_resume_on_two_processes(tmp_path):
    check_resume('trainer_training', tmp_path, 3, [4, 7], world=2)


@pytest.mark.full
def test_predictions_have_the_order_of_the_dataset_on_three_processes(tmp_path):
    runs = [Run(str(tmp_path/f'{world}'), world=world, function='predict_all', options=dict(folder=str(tmp_path/f'{world}')))
            for world in (1, 3)]
    run_all('trainer_training', runs)
    targets, predicted, loss = runs[0].answer()
    assert targets == list(range(NUM))
    for rank in range(3):
        assert runs[1].answer(rank)[:2] == [targets, predicted]


@pytest.fixture
def make_trainer(tmp_path):
    "A trainer in this process that leaves no Accelerate state behind."
    from accelerate.state import AcceleratorState, GradientState
    from trainer_training import make_trainer as make
    made = []

    def create(*args, **changes):
        made.append(make(tmp_path, *args, **{'settings': dict(num_workers=0), **changes}))
        return made[-1]

    yield create
    for trainer in made: trainer.close()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def test_what_the_arguments_say_is_what_the_loaders_do(make_trainer):
    trainer = make_trainer(settings={}, dataloader_num_workers=2, data_seed=None, seed=9, per_device_eval_batch_size=8)
    training, evaluation = trainer.get_train_dataloader(), trainer.get_eval_dataloader()
    assert (training.batch_size, training.num_workers, training.drop_last, training.loader.loader.seed) == (BATCH, 2, True, 9)
    assert (evaluation.batch_size, evaluation.drop_last, len(evaluation)) == (8, False, 6)
    assert trainer.get_train_dataloader() is training and trainer.get_eval_dataloader() is evaluation
    for batch in evaluation: assert set(batch) == {'pixel_values', 'labels'}


def test_several_evaluations_by_name(make_trainer):
    trainer = make_trainer()
    trainer.eval_dataset = dict(first=make_dataset(), second=torch.utils.data.Subset(make_dataset(), range(5)))
    assert len(trainer.get_eval_dataloader('second')) == 2
    assert set(trainer.evaluate()) >= {'eval_first_loss', 'eval_second_loss'}


def test_a_checkpoint_without_our_state_is_refused_unless_the_epoch_is_to_begin_again(make_trainer, tmp_path):
    make_trainer(save_every=4).train()
    path = tmp_path/'checkpoint-4'/'trainer_state.json'
    state = json.loads(path.read_text())
    assert state['stateful_callbacks']['LoaderState']['attributes']['saved']['position'] == 16
    del state['stateful_callbacks']['LoaderState']
    path.write_text(json.dumps(state))
    with pytest.raises(ValueError, match='has no loader state'):
        make_trainer().train(resume_from_checkpoint=str(path.parent))
    seen = []
    make_trainer(seen.append, ignore_data_skip=True).train(resume_from_checkpoint=str(path.parent))
    first = [targets.tolist() for _, targets in make_loader(num_workers=0)]
    assert [targets.tolist() for targets in seen[:10]] == first


def test_other_trainers_skip_as_they_did(make_trainer):
    "Also after a failed training: Accelerate skips batches of a torch loader, and a timmdata loader stays as it is."
    import transformers.trainer
    def fail(targets): raise ZeroDivisionError
    trainer, torchs = make_trainer(fail), torch.utils.data.DataLoader(range(10), batch_size=2, shuffle=False)
    for _ in range(2):   # trainings do not pile up
        with pytest.raises(ZeroDivisionError): trainer.train()
    for number in (0, 3):
        skipped, expected = transformers.trainer.skip_first_batches(torchs, number), accelerate.skip_first_batches(torchs, number)
        assert type(skipped) is type(expected) and [*map(list, skipped)] == [*map(list, expected)]
    loader = trainer.get_train_dataloader()
    assert transformers.trainer.skip_first_batches(loader, 2) is loader


def test_workers_end_with_training(make_trainer):
    make_trainer(settings=dict(num_workers=1, worker_type='processes'), num_train_epochs=1).train()
    wait_until(lambda: not children(), 'workers are left')


def test_fields_of_dicts_get_the_models_names(make_trainer):
    trainer = make_trainer()
    trainer.train_dataset = Fields(8)
    batch = next(iter(trainer.get_train_dataloader()))
    assert set(batch) == {'pixel_values', 'labels'} and batch['pixel_values'].shape == (BATCH, 3, 8, 8)
