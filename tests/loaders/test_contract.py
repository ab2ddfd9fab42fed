"What every loader guarantees to a trainer, with any workers."
import copy
import pickle
import warnings
from functools import cache
from itertools import islice, product

import pytest
import torch
from grids import quick
from loader_parts import Coded, SplitStream, nothing_is_left, wait_until
from torch.utils.data import BatchSampler
from training_parts import FakeStream, workers

from timmdata import create_loader
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.loaders.base import HostLoader, Loader
from timmdata.loaders.batch_loader import EpochBatchSampler
from timmdata.samplers.batch_schedule import ScheduledBatchSampler
from timmdata.samplers.epoch import EpochSampler

pytestmark = pytest.mark.timeout(60)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
NUM, BATCH = 14, 4   # samples and batch size: three batches of four, and one of two

INLINE, THREADS = dict(num_workers=0), dict(num_workers=2, worker_type='threads')
PROCESSES = dict(num_workers=2, worker_type='processes', multiprocessing_context='fork')
WORKERS = dict(inline=INLINE, threads=THREADS, processes=PROCESSES)
KINDS = dict(
    batch=dict(use_prefetcher=False), prefetch=dict(device='cpu'), schedule=dict(device='cpu', input_size_choices=[4, 8]),
    buffer=dict(use_prefetcher=False, buffer=dict(batches=4)),
    prefetch_buffer=dict(device='cpu', buffer=dict(batches=4)))
STREAMS = dict(stream=dict(use_prefetcher=False), prefetch_stream=dict(device='cpu'))


class EpochStream(SplitStream):
    "Targets are the index, and 100 for each epoch."
    def __iter__(self):
        for image, index in super().__iter__(): yield image, index + 100 * self.epoch


def made(kind: str, who: str, **settings):
    "A loader whose targets are the indexes of the samples."
    if kind in STREAMS:
        stream = IterableImageDataset(reader=EpochStream(NUM))
        workers = {'num_workers': WORKERS[who]['num_workers']}
        return create_loader(stream, 4, BATCH, seed=3, **{**STREAMS[kind], **workers, **settings})
    schedule = dict(is_training=True, drop_last=False) if kind == 'schedule' else dict(shuffle=True)
    return create_loader(Coded(NUM), 4, BATCH, seed=3, **{**KINDS[kind], **WORKERS[who], **schedule, **settings})


FIRST = [*(('prefetch', who) for who in WORKERS), *((kind, 'inline') for kind in ('batch', 'schedule', 'prefetch_buffer'))]
CASES = [*FIRST, *(case for case in product(KINDS, WORKERS) if case not in FIRST)]
OF_STREAMS = [('stream', 'inline'), ('prefetch_stream', 'processes'), ('stream', 'processes'), ('prefetch_stream', 'inline')]
EVERY = quick(8, 'kind, who', [*FIRST, *OF_STREAMS, *CASES[len(FIRST):]])
INDEXED = quick(6, 'kind, who', CASES)   # a stream has no position and no order of this library


@pytest.fixture
def loader(kind, who):
    loader = made(kind, who)
    yield loader
    loader.close()


def targets(batches) -> list: return [batch[1].tolist() for batch in batches]


@cache
def epochs(kind: str, who: str = 'inline') -> list:
    "Return the targets of two epochs from a loader that is read without interruption; workers divide a stream in their own way."
    loader = made(kind, who)
    found = [targets(loader) for _ in range(2)]
    loader.close()
    return found


def where(loader, **ahead) -> tuple: return tuple(loader.state_dict(**ahead)[name] for name in ('epoch', 'position'))


@EVERY
def test_iter_has_no_effect_before_the_first_next(loader, kind, who):
    "Lightning calls `iter` once to check that it works."
    before, parts = workers(), [loader] if kind in STREAMS else [loader, loader.sampler]
    iterators = [iter(part) for part in parts]
    if isinstance(loader, HostLoader): iterators.append(loader.host_batches())
    assert workers() == before
    if kind in KINDS: assert where(loader) == (0, 0) and loader.sampler.epoch == 0
    assert targets(loader) == epochs(kind, who)[0]
    del iterators


@EVERY
def test_a_loop_that_is_left_and_begun_again_is_the_next_epoch(loader, kind, who):
    begun = targets(islice(loader, 2))
    later = targets(loader)
    assert [begun, later] == [epochs(kind, who)[0][:2], epochs(kind, who)[1]]


@EVERY
def test_a_with_block_ends_the_workers(loader, kind, who):
    before = workers()
    with pytest.raises(ZeroDivisionError), loader as opened:
        assert opened is loader
        for _ in opened: 1 / 0   # noqa: B018
    wait_until(lambda: workers() == before, 'workers are left')


@EVERY
def test_epochs_are_counted_and_chosen(loader, kind, who):
    assert [targets(loader) for _ in range(2)] == epochs(kind, who)
    if kind in STREAMS and who == 'processes':   # persistent workers count by themselves
        with pytest.raises(ValueError, match='the next epoch is 2'): loader.set_epoch(1)
        loader.close()
    loader.set_epoch(1)
    assert targets(loader) == epochs(kind, who)[1]


@INDEXED
@quick(1, 'chosen', [lambda loader: loader, lambda loader: loader.sampler, lambda loader: loader.batch_sampler],
                         ids=['loader', 'sampler', 'batch_sampler'])
def test_set_epoch_keeps_a_position_that_was_just_loaded(loader, kind, who, chosen):
    "timm's train.py, Lightning, Hugging Face's Trainer and torchtune load a state and then set its epoch."
    expected = epochs(kind)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    del iterator
    loader.load_state_dict(state)
    for _ in range(2): chosen(loader).set_epoch(0)
    assert where(loader) == (0, state['position'])
    assert targets(loader) == expected[0][2:]
    loader.load_state_dict(state)
    with pytest.warns(UserWarning, match=rf'set_epoch\(1\) discards .*, {state["position"]} samples into epoch 0'):
        chosen(loader).set_epoch(1)   # any other epoch begins at its start
    assert targets(loader) == expected[1]
    loader.load_state_dict(state)
    next(iter(loader))
    chosen(loader).set_epoch(0)   # the position was used
    assert where(loader) == (0, 0)
    assert targets(loader) == expected[0]


@INDEXED
def test_a_state_is_that_of_the_batch_which_was_handed_out_last(loader, kind, who):
    expected, sizes = epochs(kind), [len(batch) for batch in epochs(kind)[0]]
    states = [loader.state_dict()]
    for k, _ in enumerate(loader):
        states.append(loader.state_dict())
        assert where(loader) == (0, sum(sizes[:k + 1]))
    assert where(loader) == (1, 0)
    for done in (0, 2):
        loader.load_state_dict(states[done])
        assert targets(loader) == expected[0][done:]


@INDEXED
def test_a_state_of_the_last_batch_is_an_empty_rest_of_its_epoch(loader, kind, who):
    expected = epochs(kind)
    for _ in loader: state = loader.state_dict()
    loader.load_state_dict(state)
    assert targets(loader) == [] and where(loader) == (1, 0)   # what a plain loop sees
    assert targets(loader) == expected[1]
    for epoch, rest in ((0, []), (1, expected[1])):   # and a trainer that chooses the epoch
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        assert targets(loader) == rest


@INDEXED
def test_a_state_of_a_trainer_that_reads_ahead_is_that_of_the_batch_it_used(loader, kind, who):
    "As Accelerate does: read the next batch before using one, and the end of the pass before using the last one."
    sizes, used, batches = [len(batch) for batch in epochs(kind)[0]], 0, iter(loader)
    assert where(loader, ahead=1) == (0, 0)
    current = next(batches)
    while current is not None:
        following = next(batches, None)
        used += len(current[1])
        assert where(loader, ahead=1) == (0, used)
        if used == sum(sizes[:2]): state = loader.state_dict(ahead=1)
        current = following
    assert used == sum(sizes) and where(loader) == (1, 0)
    loader.load_state_dict(state)
    assert targets(loader) == epochs(kind)[0][2:]


@INDEXED
def test_a_choice_of_the_sampler_counts_after_a_loop_was_left(loader, kind, who):
    next(iter(loader))
    assert where(loader) != (5, 0)
    loader.sampler.set_epoch(5)
    assert where(loader) == where(loader, ahead=1) == (5, 0)


@EVERY
def test_trainers_find_what_they_look_for(loader, kind, who):
    assert isinstance(loader, Loader)
    assert loader.batch_size == BATCH and loader.drop_last is False and len(loader) == len(epochs(kind, who)[0])
    assert loader.num_workers == WORKERS[who]['num_workers'] and callable(loader.collate_fn) and loader.pin_memory is False
    assert loader.timeout == 0 and loader.persistent_workers in (True, False) and loader.worker_init_fn is None
    dataset = getattr(loader.dataset, 'dataset', loader.dataset)   # without the prefetcher, a stream's is wrapped
    assert isinstance(dataset, IterableImageDataset if kind in STREAMS else Coded)
    if kind in KINDS: assert loader.generator is None and loader.prefetch_factor is None and isinstance(loader.sampler, EpochSampler)


@INDEXED
def test_batch_sampler_gives_the_keys_of_each_batch_and_moves_nothing(loader, kind, who):
    view = loader.batch_sampler
    assert isinstance(view, ScheduledBatchSampler if kind == 'schedule' else EpochBatchSampler)
    assert view.sampler is loader.sampler and len(view) == len(loader)
    expected = epochs(kind)
    found = [[key[0] for key in keys] for keys in view]
    assert found == expected[0] and where(loader) == (0, 0)
    view.set_epoch(1)
    assert where(loader) == (1, 0)
    if kind != 'schedule':
        torchs = BatchSampler(loader.sampler.keys(1), BATCH, drop_last=False)
        assert list(view) == list(torchs) and (view.batch_size, view.drop_last) == (torchs.batch_size, torchs.drop_last)
    assert targets(loader) == expected[1]


@quick(1, 'copied', [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))], ids=['copy', 'pickle'])
@pytest.mark.parametrize('kind', ['batch', 'schedule'])
def test_a_copy_has_an_order_and_a_batch_sampler_of_its_own(copied, kind):
    loader = made(kind, 'inline', use_prefetcher=False, device=None)
    other = copied(loader)
    other.batch_sampler.set_epoch(1)
    assert targets(other) == epochs(kind)[1] and loader.sampler.epoch == 0


def test_a_never_begun_iterator_of_a_side_stream_has_no_thread():
    loader = made('prefetch', 'threads')
    loader._stream = FakeStream()
    before, iterator = workers(), iter(loader)
    assert workers() == before and where(loader) == (0, 0)
    next(iterator)
    assert workers() != before and where(loader) == (0, BATCH)
    del iterator
    loader.close()
    assert torch.equal(next(iter(loader))[1], torch.tensor(epochs('prefetch')[1][0]))
    loader.close()


def test_a_stream_that_is_closed_in_its_loop_says_so():
    "It must not look like the end of an epoch."
    loader = made('stream', 'processes')
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(RuntimeError, match='closed during this loop'): list(batches)
    assert len(targets(loader)) == 4   # two workers, each with an incomplete last batch
    loader.close()


def test_a_loop_in_the_loop_of_a_stream_and_a_copy_have_workers_of_their_own():
    loader = made('stream', 'processes')
    outer = iter(loader)
    first = next(outer)
    inner = targets(loader)
    copied = copy.copy(loader)
    rest = targets(outer)
    assert len([first, *rest]) == len(inner) == 4
    assert [len(targets(copied)), len(targets(pickle.loads(pickle.dumps(copied))))] == [4, 4]
    for one in (loader, copied): one.close()


@INDEXED
@quick(1, 'drop_last', [False, True])
def test_a_state_of_the_last_batch_means_the_same_in_a_new_loader(kind, who, drop_last):
    "With any loader that saved or loads the state; the trainer may set the next epoch, and no batch is lost."
    settings = dict(drop_last=drop_last)
    with made(kind, who, **settings) as loader:
        for _ in loader: state = loader.state_dict()
        following = targets(loader)
    for choose in (False, True):
        with made(kind, who, **settings) as loader, warnings.catch_warnings():
            warnings.filterwarnings('error', 'set_epoch')
            loader.load_state_dict(state)
            assert where(loader) == (0, state['position'])
            if choose: loader.set_epoch(1)
            else: assert targets(loader) == []
            assert where(loader) == (1, 0) and targets(loader) == following


@quick(2, 'who', [*WORKERS])
def test_a_loaded_position_in_a_second_lap_is_not_lost_in_silence(who):
    "With Lightning's CombinedLoader('max_size_cycle'), the shorter loader is an epoch ahead of the trainer."
    with made('prefetch', who) as loader:
        loader.set_epoch(0)
        list(loader)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        assert where(loader) == (1, 4)
        loader.load_state_dict(state)
        with pytest.warns(UserWarning, match=r'set_epoch\(0\) discards .*, 4 samples into epoch 1'): loader.sampler.set_epoch(0)
