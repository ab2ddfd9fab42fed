"Two ranks of torch.distributed: they share a seed that nobody passed, and a forgotten `distributed=True` is noticed."
import warnings

import pytest
import torch
from loader_parts import Coded, nothing_is_left, run_two_ranks
from seed_ranks import BASES, NUM

from timmdata import create_loader
from timmdata.core.rng import sample_seed

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(scope='module')
def ranks(tmp_path_factory) -> list[dict]:
    "What both have found; one run for all tests, because starting it takes seconds."
    return run_two_ranks('seed_ranks', 'run_seed_rank', tmp_path_factory.mktemp('ranks'))


def drawn(base: int) -> int:
    return int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(base)))


@pytest.mark.full
def test_rank_0_draws_the_seed_and_the_others_get_it(ranks):
    "The global generators of the ranks differ, as they do where each rank seeds itself."
    for rank in ranks:
        assert rank['seeds'] == [drawn(base) for base in BASES] and rank['generator'] == drawn(7) and rank['given'] == 11
    for first, second in zip(*(rank['targets'] for rank in ranks)): assert sorted(first + second) == list(range(NUM))
    assert ranks[0]['targets'][0] != ranks[0]['targets'][1]


@pytest.mark.full
def test_samples_of_a_stream_are_those_of_their_rank(ranks):
    "Each counts its random numbers from 0, so their seeds differ, and all come from that of rank 0."
    seed = ranks[0]['stream']
    assert ranks[1]['stream'] == sample_seed(seed, 0, 1) and seed not in (0, ranks[1]['stream'])


@pytest.mark.full
def test_training_on_everything_in_each_rank_warns(ranks):
    for rank in ranks:
        for name in ('forgotten', 'forgotten stream'):
            [text] = rank[name]
            assert text.startswith('this is one of 2 ranks, and each of them trains on all samples: pass distributed=True')
        assert rank['fine'] == []


@pytest.mark.parametrize('env, expected', [
    (dict(TORCHELASTIC_RUN_ID='1', WORLD_SIZE='2'), 1), (dict(TORCHELASTIC_RUN_ID='1', WORLD_SIZE='1'), 0), (dict(WORLD_SIZE='2'), 0)])
def test_torchrun_without_a_group(env, expected, monkeypatch):
    "Its variables tell of the ranks before `init_process_group`; other programs set WORLD_SIZE for purposes of their own."
    for name, value in env.items(): monkeypatch.setenv(name, value)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        create_loader(Coded(8), 8, 4, True, num_workers=0, device='cpu')
    assert len(found) == expected
    with pytest.raises(RuntimeError, match='start with torchrun and call torch.distributed.init_process_group first'):
        create_loader(Coded(8), 8, 4, True, num_workers=0, device='cpu', distributed=True)
    with pytest.raises(RuntimeError, match='init_process_group first'):
        create_loader(Coded(8), 8, 4, True, num_workers=0, device='cpu', distributed=True, seed=1)
