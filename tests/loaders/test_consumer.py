"The epoch and the lengths in a training loop are those of the loop, even if something reads ahead of it."
import gc
import time
import weakref

import pytest
import torch
from loader_parts import Coded
from training_parts import FakeStream

from timmdata import NaFlex, create_loader
from timmdata.loaders import prefetch

pytestmark = pytest.mark.timeout(60)


def of_other_sizes() -> list:
    "Enough tokens that epochs, whose crops differ, have different numbers of batches and samples."
    generator = torch.Generator().manual_seed(0)
    def image(k): return torch.randint(255, (3, 16 * (1 + k % 7), 16 * (1 + k * 5 % 9)), dtype=torch.uint8, generator=generator)
    return [(image(k), k % 10) for k in range(60)]


def packed(num_workers=0):
    naflex = NaFlex(mode='packed', train_seq_lens=(64,), row_len=64)
    return create_loader(of_other_sizes(), batch_size=4, is_training=True, seed=3, device='cpu', num_workers=num_workers, color_jitter=None,
                         scale=(0.1, 1.), naflex=naflex)


def progressive(num_workers=0):
    return create_loader(Coded(50), 4, 4, is_training=True, seed=3, device='cpu', num_workers=num_workers, input_size_choices=[4, 8],
                         batch_size_choices=[6, 2], batch_choice_schedule='progressive', batch_schedule_epochs=6, num_batches=7)


def facts(loader) -> tuple: return loader.sampler.current, len(loader), loader.num_valid


def expected(loader, num_epochs) -> list:
    "Ask before each epoch, as if no loop were running."
    found = []
    for epoch in range(num_epochs):
        loader.set_epoch(epoch)
        found.append(facts(loader))
    loader.set_epoch(0)
    assert len({fact[1:] for fact in found}) > 1   # else this test could not fail
    return found


@pytest.fixture(params=['as on a CPU', 'as on a GPU'])
def ahead(request, monkeypatch):
    "On a GPU, the prefetcher reads the loader's last batch long before the loop gets it."
    if request.param == 'as on a GPU': monkeypatch.setattr(prefetch, 'create_stream', lambda device, source: FakeStream())


@pytest.mark.parametrize('make, num_workers', [(packed, 0), (progressive, 0), pytest.param(packed, 2, marks=pytest.mark.full)])
def test_in_a_loop_its_own_epoch_counts(make, num_workers, ahead):
    with make(num_workers) as loader:
        for epoch, fact in enumerate(expected(loader, 4)):
            num = 0
            for _ in loader:
                num += 1
                time.sleep(0.02)   # whoever reads ahead has the next batch, or is at the end
                assert facts(loader) == fact
            assert num == fact[1] and loader.sampler.current == epoch + 1


@pytest.mark.parametrize('make', [packed, progressive])
def test_loops_in_loops_and_loops_that_are_left_have_their_own(make, ahead):
    loader = make()
    facts_of = expected(loader, 4)
    first = iter(loader)
    next(first)
    for number, _ in enumerate(loader):   # epoch 1, while a loop of epoch 0 stands still
        time.sleep(0.02)
        assert facts(loader) == facts_of[1]
        if number == 0:   # the old loop ends here, for example because its last reference goes
            gone = weakref.ref(first)
            del first
            gc.collect()
            assert gone() is None and facts(loader) == facts_of[1]
            for _ in loader: assert facts(loader) == facts_of[2]
            assert facts(loader) == facts_of[3]   # between them, the next one counts
        elif number == 1: break
    assert facts(loader) == facts_of[3]
