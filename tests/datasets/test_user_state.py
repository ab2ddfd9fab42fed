"Batches do not depend on the workers, whatever state the user's dataset, transform and collate function have."
import logging
import pickle
import random
import threading
import warnings

import numpy as np
import pytest
import torch
from grids import quick
from loader_parts import Stream, nothing_is_left
from own_state import GENERATORS, PLACES, Collate, Drawing, Epochs, Method, OfClass, Own, Transform, Wrapper, draw, draw_shared
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.datasets.user_objects import Snapshot, references
from timmdata.datasets.user_state import UserState, copy_generators, find_state
from timmdata.loader import create_loader

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
WORKERS = {
    'inline': dict(num_workers=0), 'threads': dict(num_workers=2, worker_type='threads'),
    'fork': dict(num_workers=2, worker_type='processes', multiprocessing_context='fork'),
    'threads in processes': dict(num_workers=1, worker_type='processes', threads_per_worker=2, multiprocessing_context='fork')}
SPAWN = dict(num_workers=2, worker_type='processes', multiprocessing_context='spawn')


def loader_of(dataset, how='inline', **settings):
    settings = dict(transform=torch.nn.Identity(), seed=1, device='cpu', mean=0., std=1 / 255) | settings
    return create_loader(dataset, 8, 4, **settings, **(how if isinstance(how, dict) else WORKERS[how]))


def targets_of(loader) -> list:
    with loader: return [target for _, targets in loader for target in targets.tolist()]


def images_of(loader) -> list:
    with loader: return [round(image.mean().item()) for images, _ in loader for image in images]


# ---- generators

@quick(2, 'kind', GENERATORS)
def test_own_generators_of_a_dataset_are_set_for_each_sample(kind):
    "16 different numbers, whoever draws them, in any order; another run, a resumed one and a replay draw the same."
    expected = targets_of(loader_of(Own(GENERATORS[kind]())))
    assert len(set(expected)) == 16
    for how in WORKERS:
        assert targets_of(loader_of(Own(GENERATORS[kind]()), how)) == expected, how
    assert targets_of(loader_of(Own(GENERATORS[kind]()), sampler=range(15, -1, -1))) == expected[::-1]
    with loader_of(Own(GENERATORS[kind]()), 'fork') as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
        assert loader.replay(0, 3).batch[1].tolist() == expected[12:]
        del iterator
    with loader_of(Own(GENERATORS[kind]())) as resumed:
        resumed.load_state_dict(state)
        assert targets_of(resumed) == expected[8:]
        second = targets_of(resumed)   # of the next epoch
    assert not set(second) & set(expected)


@quick(5, 'place', PLACES)
def test_own_generators_are_found_in_every_place(place):
    make = PLACES[place]
    expected = targets_of(loader_of(make(np.random.default_rng(0))))
    assert len(set(expected)) == 16
    for how in 'threads', 'fork':
        assert targets_of(loader_of(make(np.random.default_rng(0)), how)) == expected, how
    rng = np.random.default_rng(5)
    targets_of(loader_of(make(rng), 'threads'))
    targets_of(loader_of(make(rng)))
    assert draw(rng) == draw(np.random.default_rng(5))   # other uses of it are not disturbed


@pytest.mark.parametrize('make', [lambda: Drawing(draw_shared), OfClass], ids=['global variable', 'class'])
def test_generators_that_threads_must_share_are_refused_there(make):
    expected = targets_of(loader_of(make()))
    assert len(set(expected)) == 16 and targets_of(loader_of(make(), 'fork')) == expected
    with pytest.raises(ValueError, match='(SHARED|rng), a random generator which threads share: use worker_type'):
        targets_of(loader_of(make(), 'threads'))


def test_own_generators_of_transforms_and_collate_functions():
    data = [(Image.new('RGB', (8, 8)), k) for k in range(16)]
    results = [images_of(loader_of(data, how, transform=Transform(random.Random(0)))) for how in WORKERS]
    assert len(set(results[0])) > 10 and all(result == results[0] for result in results)
    results = [targets_of(loader_of(data, how, collate_fn=Collate(np.random.default_rng(0)))) for how in WORKERS]
    assert len(set(results[0])) == 4 and all(result == results[0] for result in results)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_spawned_processes_draw_the_same():
    "All together, since they start slowly; one of the generators is only found in the worker's own module."
    datasets = [Own(GENERATORS['torch']()), Own(GENERATORS['legacy']()), Own(random.Random(0)), Drawing(draw_shared), OfClass(),
                Drawing(Method(np.random.default_rng(0)).draw)]
    joined = torch.utils.data.ConcatDataset(datasets)
    expected = targets_of(loader_of(joined))
    assert len(set(expected)) == 16 * 6 and targets_of(loader_of(joined, SPAWN)) == expected


def test_generators_of_one_sample_draw_different_numbers():
    class Two(Drawing):
        def __init__(self):
            self.rngs = [np.random.default_rng(0), np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]
            super().__init__(lambda: 0)
        def __getitem__(self, index):
            return Image.new('RGB', (8, 8)), [*map(draw, self.rngs), int(np.random.randint(2**20)), random.randrange(2**20)]
    rows = targets_of(loader_of(Two()))
    assert len({number for row in rows for number in row}) == 16 * 6


def test_a_shared_generator_is_one_generator():
    "Both parts draw from it in turn, and the copies for one thread share a single copy."
    class Both(Own):
        def __init__(self, rng): self.size, self.rng, self.other = 16, rng, Method(rng)
        def __getitem__(self, index): return Image.new('RGB', (8, 8)), [draw(self.rng), self.other.draw()]
    rows = [targets_of(loader_of(Both(np.random.default_rng(0)), how)) for how in ('inline', 'threads', 'fork')]
    assert rows[0] == rows[1] == rows[2] and len({number for row in rows[0] for number in row}) == 32


def test_a_generator_that_a_worker_function_replaces_is_found(monkeypatch):
    "As PyTorch advises: `worker_init_fn` creates a generator for each worker."
    def seeding(info):
        info.dataset.rng = np.random.default_rng(info.id)
        return info.id
    expected = targets_of(loader_of(Own(np.random.default_rng(0))))
    assert targets_of(loader_of(Own(np.random.default_rng(0)), 'fork', worker_seeding=seeding)) == expected


def test_generators_of_samplers_and_global_ones_are_left_alone():
    sampler = RandomSampler(range(16), generator=torch.Generator().manual_seed(3))
    orders = []
    for seed in 0, 0, 1:
        sampler.generator.manual_seed(seed)
        loader = loader_of([(Image.new('RGB', (8, 8)), k) for k in range(16)], sampler=sampler)
        orders.append(targets_of(loader))
    assert orders[0] == orders[1] == orders[2]   # keyed to the epoch, as before
    roots = dict(dataset=Wrapper([sampler, DataLoader([1], generator=torch.Generator())]), transform=[
        np.random.mtrand._rand, random._inst, torch.default_generator])
    assert find_state(roots).generators == []


def test_label_noise_of_a_target_transform_is_keyed_too(samples):
    "Files are decoded by the loader, but the user's function of targets draws from a global generator."
    dataset = ImageDataset(samples, split='val', target_transform=lambda target: random.randrange(2**20))
    def drawn(**workers): return targets_of(create_loader(dataset, 8, 4, seed=1, device='cpu', sampler=range(8), **workers))
    assert drawn(num_workers=0) == drawn(num_workers=2, worker_type='processes') and len(set(drawn(num_workers=0))) == 8


def test_own_generators_of_a_streams_transform():
    "Samples are numbered across workers, so each sample has unique numbers, the same for any number of workers."
    def drawn(num_workers):
        dataset, transform = IterableImageDataset(reader=Stream(16)), Transform(np.random.default_rng(0))
        return sorted(images_of(loader_of(dataset, dict(num_workers=num_workers), transform=transform)))
    assert drawn(0) == drawn(2) and len(set(drawn(0))) > 12


# ---- what cannot be set

class RNG:
    def uniform(self): return 0.


class Generator(torch.nn.Module):
    "A network."
    def sample(self): return 0


def warnings_of(dataset, **settings) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        loader_of(dataset, **settings).close()
    return [str(one.message) for one in found]


def test_generators_of_other_libraries_are_named_once():
    Key = type('ArrayImpl', (), {'__module__': 'jaxlib._jax'})
    class Many(Own):
        def __init__(self): self.size, self.rng, self.secure, self.key = 4, RNG(), random.SystemRandom(), Key()
    [message] = warnings_of(Many())
    for name in 'dataset.rng (RNG)', 'dataset.secure (SystemRandom)', 'dataset.key (ArrayImpl)': assert name in message
    assert 'use a generator of NumPy, torch or Python' in message


def test_what_only_looks_like_a_generator_causes_no_warning():
    class Wrapped(RNG):   # what it draws from can be set
        def __init__(self): self.inner = np.random.default_rng(0)
    class Many(Own):
        def __init__(self):
            self.size, self.net, self.generator, self.key, self.seed = 4, Generator(), (k for k in range(3)), 'name', 7
            self.rng, self.numbers, self.kind = Wrapped(), np.random, RNG
    assert warnings_of(Many()) == [] == warnings_of([(Image.new('RGB', (8, 8)), 0)] * 4, transform=Generator())


# ---- the walk

def test_a_million_samples_cost_nothing(monkeypatch):
    for samples in [(k, k) for k in range(10**6)], [RNG() for _ in range(10**5)], {k: k for k in range(10**5)}:
        assert len([*references({'dataset': samples})]) == 1


def test_odd_objects_are_no_hindrance():
    class Odd:
        __slots__ = ('empty', '__dict__')
        def __getattr__(self, name): raise RuntimeError(name)
        def __eq__(self, other): raise RuntimeError
        __hash__ = None
        def __len__(self): raise RuntimeError
    def forgotten(): return later
    odd = Odd()
    odd.me, odd.lock, odd.file, odd.many = odd, threading.Lock(), open(__file__), [[]] * 3
    assert {found.path for found in references({'x': [odd, forgotten]})} >= {'x[0].me', 'x[0].lock', 'x[0].many[2]'}
    assert Snapshot({'x': odd}).changes(Snapshot({'x': odd})) == []
    odd.file.close()
    later = 0   # noqa: F841


def test_a_deep_chain_ends():
    chain = None
    for _ in range(10**5): chain = [chain]
    assert 100 < len([*references({'x': chain})]) < 20_000


def test_a_copy_has_only_the_generators_of_its_own():
    class Listed(list): pass
    rng = np.random.default_rng(0)
    listed = Listed([Own(rng), {'a': (1, rng)}])
    listed.mine = rng
    copied = copy_generators({'x': listed})['x']
    assert type(copied) is Listed and copied.mine is copied[0].rng is copied[1]['a'][1] is not rng
    assert listed[0].rng is rng and copied[0].size == 16
    pickle.loads(pickle.dumps(UserState(dataset=Own(rng))))


# ---- the epoch

def test_every_sample_is_made_in_the_epoch_of_its_key():
    expected = [[[k, epoch, epoch] for k in range(8)] for epoch in range(3)]
    for how in (*WORKERS, dict(num_workers=2, worker_type='processes', persistent_workers=False)):
        dataset = Wrapper(Epochs())
        with loader_of(dataset, how) as loader:
            epochs = [[row for _, rows in loader for row in rows.tolist()] for _ in range(3)]
            assert epochs == expected, how
            assert loader.replay(1, 0).batch[1].tolist() == expected[1][:4] and dataset.inner.epoch == 2
            loader.set_epoch(0)
            assert next(iter(loader))[1].tolist() == expected[0][:4]


def test_two_loops_at_once_do_not_mix_their_epochs():
    for how in 'inline', 'threads', 'fork':
        with loader_of(Epochs(), how) as loader:
            for (_, first), (_, second) in zip(loader, loader):
                assert {*first[:, 1].tolist()} == {0} and {*second[:, 1].tolist()} == {1}, how


def test_transforms_have_epochs_too():
    class Later:
        def set_epoch(self, epoch): self.epoch = epoch
        def __call__(self, image): return torch.full((3, 8, 8), self.epoch, dtype=torch.uint8)
    data = [(Image.new('RGB', (8, 8)), 0)] * 4
    with loader_of(data, 'fork', transform=Later()) as loader:
        assert [[*images_of_pass(loader)] for _ in range(3)] == [[0] * 4, [1] * 4, [2] * 4]


def images_of_pass(loader): return [round(image.mean().item()) for images, _ in loader for image in images]


def test_a_users_call_of_set_epoch_does_not_restart_the_workers(caplog):
    caplog.set_level(logging.DEBUG, 'timmdata')
    dataset = Epochs()
    with loader_of(dataset, 'fork') as loader, warnings.catch_warnings():
        warnings.simplefilter('error')
        for epoch in range(3):
            dataset.set_epoch(epoch)
            assert {*(row[1] for _, rows in loader for row in rows.tolist())} == {epoch}
    assert caplog.records == []
    with loader_of(dataset, 'fork') as loader, pytest.warns(UserWarning, match='this pass is epoch 1, .* call loader.set_epoch'):
        list(loader)
        dataset.set_epoch(5)
        assert {*(row[1] for _, rows in loader for row in rows.tolist())} == {1}


# ---- changes

def change_number(dataset): dataset.shade = 50
def add_samples(dataset): dataset.size = 12
def change_array(dataset): dataset.scale *= 2
def change_step(dataset): dataset.steps[0] = np.negative
def grow_list(dataset): dataset.shades.append(70)


class Shades(Dataset):
    "A dataset whose samples depend on all of its attributes."
    def __init__(self):
        self.shade, self.size, self.scale, self.steps, self.shades = 0, 8, np.ones(2), [np.positive], [3] * 200
    def __len__(self): return self.size
    def __getitem__(self, index):
        value = self.shade + self.scale.sum() + self.shades[-1]
        return Image.fromarray(np.full((8, 8, 3), self.steps[0](value) % 256, np.uint8)), index


@quick(3, 'change', [change_number, add_samples, change_array, change_step, grow_list], ids=lambda f: f.__name__)
def test_workers_see_what_was_changed_between_epochs(change, caplog):
    "As in PyTorch's own loader, whose workers restart in each epoch by default."
    caplog.set_level(logging.DEBUG, 'timmdata')
    torchs = DataLoader(dataset := Shades(), 4, collate_fn=lambda batch: [float(np.asarray(image).mean()) for image, _ in batch])
    expected = [[number for batch in torchs for number in batch]]
    change(dataset)
    expected.append([number for batch in torchs for number in batch])
    assert expected[0] != expected[1]
    for how in WORKERS:
        caplog.clear()
        with loader_of(dataset := Wrapper(Shades()), how) as loader:
            first = images_of_pass(loader)
            again = images_of_pass(loader)
            change(dataset.inner)
            assert (first, again, images_of_pass(loader)) == (expected[0], expected[0], expected[1]), how
            assert len(loader) == len(expected[1]) // 4
            restarts = [record.getMessage() for record in caplog.records]
            assert len(restarts) == 1 and 'the workers start again' in restarts[0] and 'dataset.inner.' in restarts[0], how
            state = loader.state_dict()
        resumed = loader_of(dataset)
        resumed.load_state_dict(state)   # the number of samples is that of the changed dataset


def test_a_change_ends_no_pass_that_runs():
    for how in 'threads', 'fork':
        with loader_of(dataset := Shades(), how) as loader:
            outer = iter(loader)
            next(outer)
            dataset.shade = 50
            assert images_of_pass(loader) == [55] * 8 and len([*outer]) == 1


def test_what_plans_were_made_for_must_stay():
    for settings in dict(weights=[1] * 8), dict(balanced_batches=True):
        dataset = Shades()
        dataset.targets = [k % 2 for k in range(8)]
        with create_loader(dataset, 8, 4, True, seed=0, device='cpu', num_workers=0, **settings) as loader:
            list(loader)
            dataset.size = 9
            with pytest.raises(ValueError, match='9 samples, but there were 8 when the loader was created'): list(loader)


def test_a_buffer_refuses_changes(tmp_path):
    with loader_of(dataset := Shades(), 'inline', buffer='10MB') as loader:
        list(loader)
        dataset.shade = 50
        with pytest.raises(Exception, match='dataset.shade changed since the previous pass, but the buffer has batches'): list(loader)


def test_persistent_workers_of_a_stream_see_changes():
    class Numbers(torch.utils.data.IterableDataset):
        shade = 0
        def __iter__(self): return iter([(Image.fromarray(np.full((8, 8, 3), self.shade, np.uint8)), 0)] * 4)
    dataset = Numbers()
    with loader_of(dataset, dict(num_workers=1)) as loader:
        assert images_of_pass(loader) == images_of_pass(loader) == [0] * 4
        dataset.shade = 50
        assert images_of_pass(loader) == [50] * 4
