"Streams on two ranks of torch.distributed: what each gets, with `distributed=True` and without, and what is refused."
from pathlib import Path

import pytest
from loader_parts import nothing_is_left, run_two_ranks
from stream_ranks import NUM, NUM_WORKERS, SHARDS

pytestmark = [pytest.mark.timeout(120), pytest.mark.full]
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(scope='module')
def shards(samples, tmp_path_factory) -> Path:
    "Photographs whose class is their own number."
    wds = pytest.importorskip('webdataset')
    root, photos = tmp_path_factory.mktemp('shards'), sorted((samples/'val').glob('*/*.jpg'))[:NUM]
    for shard in range(SHARDS):
        with wds.TarWriter(str(root/f'{shard}.tar')) as writer:
            for k in range(shard, NUM, SHARDS): writer.write({'__key__': f'{k:04}', 'jpg': photos[k].read_bytes(), 'cls': k})
    return root


@pytest.fixture(scope='module')
def ranks(shards, tmp_path_factory) -> list[dict]:
    "What both have seen; one run for all tests, because starting it takes seconds."
    return run_two_ranks('stream_ranks', 'run_stream_rank', tmp_path_factory.mktemp('ranks'), str(shards))


def flat(batches: list) -> list: return [target for batch in batches for target in batch]


@pytest.mark.parametrize('num_workers', NUM_WORKERS)
def test_evaluation_gives_each_sample_once(ranks, num_workers):
    for epoch in range(3):
        shares = [flat(rank[f'False {num_workers}'][epoch]) for rank in ranks]
        assert sorted(shares[0] + shares[1]) == list(range(NUM)) and all(shares)


@pytest.mark.parametrize('num_workers', NUM_WORKERS)
def test_training_gives_all_ranks_as_many_batches(ranks, num_workers):
    epochs = [rank[f'True {num_workers}'] for rank in ranks]
    for first, second in zip(*epochs):
        assert len(first) == len(second) and {len(batch) for batch in first + second} == {4}
        # whole shards without workers: when the shorter share is read again, the shards are dealt anew
        whole = None if num_workers else NUM // SHARDS
        assert not set(flat(first)[:whole]) & set(flat(second)[:whole]), 'both ranks have the same samples'
    for rank in epochs: assert rank[0] != rank[1] != rank[2] != rank[0]


def test_a_reader_divides_whether_it_is_asked_or_not(ranks):
    "As timm's: it looks for the process group when it is made."
    for num_workers in NUM_WORKERS:
        for rank in ranks: assert rank[f'not asked {num_workers}'] == rank[f'False {num_workers}'][0]
    for rank in ranks: assert flat(rank['made early']) == flat(ranks[0]['made early']) and len(flat(rank['made early'])) == NUM


def test_ranks_draw_other_random_numbers(ranks):
    assert flat(ranks[0]['same photographs']) == flat(ranks[1]['same photographs']), 'the photographs differ'
    first, second = (rank['pixels'] for rank in ranks)
    assert len(first) == len(second) > 0 and not set(first) & set(second)


def test_what_would_not_be_divided_is_refused(ranks):
    for k, rank in enumerate(ranks):
        assert f'this is rank {k} of 2, but the stream yields the share of rank 0 of 1' in rank['early']
        assert 'SplitStream does not split its samples among ranks: make it a StreamReader' in rank["user's"]
        assert 'init_process_group, then create the dataset' in rank['no ranks']
        assert "num_workers='auto' may differ between ranks" in rank['auto'] and 'pass a number' in rank['auto']
        assert "use on_error='raise'" in rank['skip'][0] and rank['skip'][1] == 'nothing'
