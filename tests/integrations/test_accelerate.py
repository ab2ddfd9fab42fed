"Loops with Accelerate: the contract on one and two processes, the end of a loader, gathered results."
import pytest
from framework_runs import BATCH, NUM, Run, check_resume, make_dataset, make_loader, run_all
from frameworks import require

accelerate = require('accelerate')
pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
def test_resume(tmp_path):
    "After 4 batches of ten, and after the last one of an epoch."
    check_resume('accelerate_training', tmp_path, 4, [6])
    check_resume('accelerate_training', tmp_path/'end', 5, [11])


@pytest.mark.full
def test_resume_on_two_processes(tmp_path):
    check_resume('accelerate_training', tmp_path, 3, [4, 7], world=2)


@pytest.mark.full
@pytest.mark.parametrize('world', [2, 3])
def test_gathered_results_are_the_dataset_in_its_order(tmp_path, world):
    "With any remainder, `gather_for_metrics` removes repeated samples and nothing else."
    numbers = [4 * world, 4 * world + 1, 4 * world + 2, 5 * world - 1, 1, NUM]
    runs = [Run(str(tmp_path), f'of{num}', world=world, function='gather_all', options=dict(num=num)) for num in numbers]
    run_all('accelerate_training', runs)
    for num, run in zip(numbers, runs):
        for rank in range(world): assert run.answer(rank) == list(range(num)), (num, rank)


@pytest.fixture
def accelerator():
    "Accelerate keeps its state in class attributes, so tests would see each other's state."
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def accelerated(accelerator, **settings):
    from timmdata.integrations.huggingface import create_accelerated_loader
    return create_accelerated_loader(accelerator, make_dataset(), 8, BATCH, **{'num_workers': 0, **settings})


def test_prepare_leaves_the_loader_as_it_is(accelerator):
    loader = accelerated(accelerator, is_training=True)
    assert accelerator.prepare(loader) is loader


def test_the_end_of_the_loader_is_known_with_the_last_batch(accelerator):
    loader, ends, steps = accelerated(accelerator), [], []
    for _ in loader:
        with accelerator.accumulate(): steps.append(accelerator.sync_gradients)
        ends.append(accelerator.gradient_state.end_of_dataloader)
    assert ends == [False] * 10 + [True] and accelerator.gradient_state.in_dataloader is False
    assert steps == [False, False, True] * 3 + [False, True]   # eleven batches: the last step has two


def test_a_loop_inside_a_loop_is_the_active_one_until_it_ends(accelerator):
    outer, inner = accelerated(accelerator, is_training=True, seed=0), accelerated(accelerator)
    for _ in outer:
        for _ in inner: break
        assert accelerator.gradient_state.active_dataloader is outer
        break
    assert not accelerator.gradient_state.in_dataloader


def test_the_state_is_that_of_the_batch_that_was_given_out(accelerator):
    loader, plain = accelerated(accelerator, is_training=True, seed=0), make_loader(seed=0, num_workers=0)
    for number, _ in enumerate(zip(loader, plain)):
        assert loader.state_dict() == plain.state_dict()
        if number == 3: break
    loader.load_state_dict(loader.state_dict())
    assert loader.state_dict() == plain.state_dict()


def test_in_its_last_batch_too_the_epoch_is_that_of_the_loop(accelerator):
    "The inner loader has ended by then; with packed rows, epochs have different numbers of batches."
    import torch

    from timmdata import NaFlex
    from timmdata.integrations.huggingface import AcceleratedLoader
    from timmdata.loader import create_loader
    samples = [(torch.zeros(3, 16 * (1 + k % 7), 16 * (1 + k * 5 % 9), dtype=torch.uint8), k) for k in range(60)]
    naflex = NaFlex(mode='packed', train_seq_lens=(64,), row_len=64)
    loader = AcceleratedLoader(create_loader(samples, batch_size=4, is_training=True, seed=3, device='cpu', num_workers=0, scale=(0.1, 1.),
                                             color_jitter=None, naflex=naflex))
    for epoch in range(4):
        expected = epoch, len(loader)
        assert {(loader.sampler.current, len(loader)) for _ in loader} == {expected}
