"Ray actors on a cluster of two nodes on this machine: whatever is killed, batches equal those of threads, and nothing is left behind."
import os
import signal
import time
import warnings

import psutil
import pytest
import torch
from epoch_stories import Story
from frameworks import require
from loader_parts import Coded, Deadly, Failing, Fields, Slow, SplitStream, command, is_alive, program, wait_until
from pool_contract import CHECKS, build, keys
from synthetic import ROOT
from training_parts import THREADS, assert_equal, collected, few_images, notes, training

from timmdata.core.faults import ImageReadError
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loader import create_loader
from timmdata.workers.ray_pool import RayPool
from timmdata.workers.settings import WorkerSettings

pytestmark = pytest.mark.timeout(500)   # on a busy machine, an actor takes a minute to start
full = pytest.mark.full
STORE = 150_000_000   # bytes of each node
OPTIONS = dict(num_cpus=1, placement_timeout=240)
RAY = dict(num_workers=2, worker_type='ray', ray_options=OPTIONS)


# ---- without Ray

def test_actors_are_described():
    assert WorkerSettings(1, 'ray').describe() == '1 Ray actor'
    assert WorkerSettings(3, 'ray', threads_per_worker=2).describe() == '3 Ray actors with 2 threads each'
    assert WorkerSettings(3, 'ray', prefetch_factor=4).num_ahead == 12
    assert hash(WorkerSettings(3, 'ray', ray_options={'num_cpus': 1})) == hash(WorkerSettings(3, 'ray'))


@pytest.mark.parametrize('dataset, settings', [
    (IterableImageDataset('', reader=SplitStream(8)), {}), (Coded(8), dict(buffer='1MB')),
    (Coded(8), dict(cache='memory'))], ids=['stream', 'buffer', 'cache'])
def test_what_belongs_to_this_machine_is_refused(dataset, settings):
    with pytest.raises(ValueError, match="worker_type='ray'.* cannot be used together"):
        create_loader(dataset, 8, 4, device='cpu', **RAY, **settings)


# ---- on a cluster

def processes_of_ray(word: str = 'ray') -> list:
    "Return the running descendants of this process: Ray's nodes and their actors."
    return [p for p in psutil.Process().children(recursive=True) if is_alive(p) and word in command(p)]


def actors_of_ray() -> list: return processes_of_ray('BatchMaker')


def start_cluster(num_nodes: int):
    "Start a cluster on this machine, and connect this program to it."
    ray = require('ray')
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args=dict(
        num_cpus=2, object_store_memory=STORE, include_dashboard=False))
    for _ in range(num_nodes - 1): cluster.add_node(num_cpus=2, object_store_memory=STORE)
    ray.init(address=cluster.address, logging_level='ERROR', log_to_driver=False)
    return cluster


def end_cluster(cluster):
    import ray
    ray.shutdown()
    cluster.shutdown()
    wait_until(lambda: not processes_of_ray(), 'processes of Ray are left', 30)


@pytest.fixture(autouse=True, scope='module')
def actors_find_the_tests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPATH', os.pathsep.join(map(str, (ROOT, ROOT/'tests/support'))))
        patch.delenv('RAY_ADDRESS', raising=False)
        yield
        while shared: end_cluster(shared.pop())


shared = []   # the cluster of two nodes, while tests use it: a program has one connection at a time


@pytest.fixture
def two_nodes():
    if not shared: shared.append(start_cluster(2))
    return shared[0]


@pytest.fixture
def no_cluster():
    while shared: end_cluster(shared.pop())


@pytest.fixture
def nothing_is_left(two_nodes):
    "Check that, at the end of the test, no actor holds a core and this program holds no Ray object."
    import ray
    held = ray._private.worker.global_worker.core_worker.get_all_reference_counts   # there is no public way
    def is_free(): return ray.available_resources().get('CPU') == 4 and not actors_of_ray()
    wait_until(is_free, 'actors of another test', 20)
    before = set(held())
    yield
    wait_until(is_free, lambda: f'actors are left: {actors_of_ray()}, {ray.available_resources()}', 20)
    wait_until(lambda: set(held()) <= before, lambda: f'objects are left: {held()}', 20)


def on_a_cluster(test):
    "Mark a test that needs the two nodes and does not change them."
    return full(pytest.mark.usefixtures('nothing_is_left')(test))


@on_a_cluster
@pytest.mark.parametrize('check', CHECKS, ids=lambda check: check.__name__)
def test_a_pool_of_actors_keeps_the_contract(check):
    check(lambda builder: RayPool(builder, WorkerSettings(**RAY), slot_bytes=1 << 16))


@on_a_cluster
@pytest.mark.parametrize('settings', [
    dict(num_workers=1), dict(num_workers=3, prefetch_factor=1), dict(num_workers=1, threads_per_worker=2),
    dict(use_prefetcher=False, device=None), dict(input_size_choices=[24, 32, 16], num_workers=1)],
    ids=['one', 'three', 'threads', 'float32', 'sizes'])
def test_batches_are_those_of_threads(samples, settings):
    dataset = few_images(samples)
    same = {name: value for name, value in settings.items() if name not in ('num_workers', 'threads_per_worker', 'prefetch_factor')}
    by_threads, by_actors = training(dataset, **THREADS, **same), training(dataset, **{**RAY, **settings})
    for _ in range(2): assert_equal(collected(by_actors), collected(by_threads))   # two epochs, of the same actors
    assert_equal([by_actors.replay(epoch=1, batch=2).batch], [by_threads.replay(epoch=1, batch=2).batch])
    by_actors.close()


@on_a_cluster
@pytest.mark.timeout(900)
def test_no_batch_of_a_random_story_differs(samples):
    "Actors begin the next epoch while one ends; then the user changes that epoch, or an actor is lost."
    def kill(): os.kill(actors_of_ray()[0].pid, signal.SIGKILL)
    story = Story(samples, RAY, 5, kill).run(60)
    assert story.num_batches > 80 and story.loaders[0].stats().discarded > 5


@on_a_cluster
def test_samples_with_names_and_a_batch_that_is_written_into():
    "Samples are dicts with more fields; the consumer may write to a batch, and keep all batches."
    def fields(**workers): return list(create_loader(Fields(24), 8, 4, use_prefetcher=False, **workers))
    by_threads, by_actors = fields(**THREADS), fields(**RAY, persistent_workers=False)
    for a, b in zip(by_threads, by_actors, strict=True):
        assert a.keys() == b.keys() and a['name'] == b['name'] and torch.equal(a['image'], b['image'])
        b['image'].mul_(2)
        assert torch.equal(a['image'] * 2, b['image'])


@on_a_cluster
def test_a_run_goes_on_with_another_number_of_actors(samples):
    dataset = few_images(samples)
    expected = collected(training(dataset, **THREADS))
    loader = training(dataset, **RAY)
    batches = iter(loader)
    seen = [[part.clone() for part in next(batches)] for _ in range(2)]
    state = loader.state_dict()
    del batches
    loader.close()
    for workers in ({**RAY, 'num_workers': 1}, {**RAY, 'num_workers': 3}, THREADS):
        rest = training(dataset, **workers)
        rest.load_state_dict(state)
        assert_equal(seen + collected(rest), expected)
        rest.close()


@on_a_cluster
def test_an_error_names_its_sample_and_keeps_the_traceback():
    with pytest.raises(ZeroDivisionError, match='one sample is bad') as raised:
        list(create_loader(Failing(12, 9), 8, 4, device='cpu', **RAY))
    assert 'in __getitem__' in str(raised.value.__cause__)
    assert notes(raised.value) == 'while loading index 9 of the dataset (Failing), epoch 0'


@on_a_cluster
def test_unreadable_files_follow_their_rule_and_are_logged_here(samples):
    "The trainer's log has the entries, and the trainer warns once; on another machine, neither would be seen."
    folder = samples/'oddities'
    with pytest.raises(ImageReadError, match=r'cannot read .*\.jpg \(index \d+\)'):
        list(create_loader(ImageDataset(folder), 8, 2, device='cpu', **RAY))
    for rule in ('skip', 'replace'):
        def read(workers, rule=rule):
            dataset = ImageDataset(folder, on_error=rule)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter('always')
                loader = create_loader(dataset, 8, 2, is_training=True, seed=1, device='cpu', persistent_workers=False, **workers)
                batches = collected(loader)
            return batches, dataset.bad_samples, sum('(index' in str(one.message) for one in caught)
        by_threads, by_actors = read(THREADS), read(RAY)
        assert_equal(by_actors[0], by_threads[0])
        assert by_actors[1:] == by_threads[1:] and len(by_actors[1]) > 1 == by_actors[2]


@on_a_cluster
def test_a_batch_whose_actor_died_is_made_again(tmp_path):
    with pytest.warns(RuntimeWarning, match=r'Ray actor \d was lost \(ActorDiedError\)'):
        loader = create_loader(Deadly(64, 21, tmp_path/'died'), 8, 4, device='cpu', persistent_workers=False, **RAY)
        by_actors = collected(loader)
    assert_equal(by_actors, collected(create_loader(Coded(64), 8, 4, device='cpu', **THREADS)))


@on_a_cluster
def test_a_batch_that_kills_every_actor_is_an_error():
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match='lost .*, repeatedly with the same batch'):
        list(create_loader(Deadly(64, 21), 8, 4, device='cpu', **RAY))


@on_a_cluster
@pytest.mark.parametrize('how', ['break', 'iterator', 'close', 'kept'])
def test_leaving_early_leaves_nothing(how):
    loader = create_loader(Coded(640), 8, 4, device='cpu', persistent_workers=how != 'kept', **RAY)
    iterator = iter(loader)
    next(iterator)
    assert len(actors_of_ray()) >= 1
    if how == 'close': loader.close()
    if how in ('break', 'kept'): del iterator
    if how != 'close': del loader
    if how == 'iterator': del iterator


@on_a_cluster
def test_an_actor_that_cannot_start_is_an_error_with_the_cause():
    def fail(info): raise KeyError('no such seed')
    with pytest.raises(RuntimeError, match=r"Ray actor \d could not start: KeyError: 'no such seed'; the dataset"):
        list(create_loader(Coded(8), 8, 4, device='cpu', worker_seeding=fail, **RAY))


@on_a_cluster
def test_a_time_limit_names_what_it_waits_for():
    loader = create_loader(Slow(16, 6, 3), 8, 4, device='cpu', timeout=150, **RAY)
    assert len(list(loader)) == 4
    loader.close()
    late = RayPool(build(Slow(16, 2, 3)), WorkerSettings(**RAY))
    late.take(late.submit(keys(4)), 150)
    with pytest.raises(RuntimeError, match=r'no batch within timeout=0.2 s'): late.take(late.submit(keys(0)), 0.2)
    late.close()


# ---- nodes that come and go: clusters of their own

def watch(loader, events) -> tuple[list, list]:
    "Return the batches and the seconds that each one took; `events` are called before the batch with their number."
    batches, seconds, iterator = [], [], iter(loader)
    while True:
        if len(batches) in events: events[len(batches)]()
        start = time.monotonic()
        try: batch = next(iterator)
        except StopIteration: return batches, seconds
        seconds.append(time.monotonic() - start)
        batches.append([part.clone() for part in batch])


class Heavy(Coded):
    "Load slowly, so that actors are always busy; images have 96 pixels, so that they go through Ray's store."
    def __getitem__(self, index):
        time.sleep(0.01)
        image, target = super().__getitem__(index)
        return image.resize((96, 96)), target


@on_a_cluster
def test_an_actor_that_sigterm_ends_is_a_lost_one():
    "A machine that is drained or reclaimed sends SIGTERM; the batches are the same, and the program continues."
    settings = dict(is_training=True, seed=2, device='cpu')
    loader = create_loader(Heavy(160), 96, 8, persistent_workers=False, **settings, **RAY)
    def terminate(): [os.kill(actor.pid, signal.SIGTERM) for actor in actors_of_ray()]
    with pytest.warns(RuntimeWarning, match=r'Ray actor \d was lost'): batches, _ = watch(loader, {6: terminate})
    assert_equal(batches, collected(create_loader(Heavy(160), 96, 8, **settings, **THREADS)))


@full
@pytest.mark.usefixtures('no_cluster')
def test_a_lost_node_costs_seconds_and_no_batch():
    "A node dies in the middle; its batches are made on the other node, and are the same."
    cluster = start_cluster(2)
    try:
        dataset = Heavy(480)
        expected = collected(create_loader(dataset, 96, 8, is_training=True, seed=2, device='cpu', **THREADS))
        loader = create_loader(dataset, 96, 8, is_training=True, seed=2, device='cpu', **RAY)
        list(loader)   # all actors are there now
        loader.set_epoch(0)
        node = cluster.list_all_nodes()[1]
        with pytest.warns(RuntimeWarning, match=r'Ray actor \d was lost'):
            batches, seconds = watch(loader, {20: lambda: cluster.remove_node(node, allow_graceful=False)})
        assert_equal(batches, expected)
        print(f'the slowest batch took {max(seconds):.2f} s')
        assert max(seconds) < 10   # Ray's own repetition is silent for twenty
        loader.close()
    finally: end_cluster(cluster)


@full
@pytest.mark.usefixtures('no_cluster')
def test_an_actor_is_taken_when_there_is_room():
    cluster = start_cluster(1)
    try:
        loader = create_loader(Heavy(320), 96, 8, device='cpu', **{**RAY, 'num_workers': 3})
        batches, _ = watch(loader, {10: lambda: cluster.add_node(num_cpus=2, object_store_memory=STORE),
                                    11: lambda: wait_until(lambda: len(actors_of_ray()) == 3, 'no third actor', 120)})
        assert_equal(batches, collected(create_loader(Heavy(320), 96, 8, device='cpu', **THREADS)))
        list(loader)
        assert all(loader.stats().of_workers)
        loader.close()
    finally: end_cluster(cluster)


# ---- a cluster that the pool starts

@full
@pytest.mark.usefixtures('no_cluster')
def test_a_local_cluster_ends_with_the_last_pool_and_one_of_the_user_stays():
    ray = require('ray')
    own = dict(num_workers=2, worker_type='ray')
    training, evaluation = (create_loader(Coded(16), 8, 4, device='cpu', **own) for _ in range(2))
    expected = collected(create_loader(Coded(16), 8, 4, device='cpu', **THREADS))
    assert_equal(collected(training), expected)
    assert_equal(collected(evaluation), expected)   # beside it: the actors of both have room
    training.close()
    assert_equal(collected(evaluation), expected)
    evaluation.close()
    assert not ray.is_initialized()
    wait_until(lambda: not processes_of_ray(), 'processes of Ray are left', 30)
    ray.init(address='local', num_cpus=2, object_store_memory=STORE, include_dashboard=False, logging_level='ERROR')
    try:
        assert_equal(collected(training), expected)
        training.close()
        assert ray.is_initialized()
        pool = RayPool(build(Slow(8, 0, 30)), WorkerSettings(**RAY))
        task = pool.submit(keys(0))
        ray.shutdown()
        with pytest.raises(RuntimeError, match='Ray is no longer running|Ray failed|lost'): pool.take(task, 150)
        pool.close()
    finally: ray.shutdown()
    wait_until(lambda: not processes_of_ray(), 'processes of Ray are left', 30)


INTERRUPTED = '''
loader = create_loader(Coded(40000), 8, 4, num_workers=2, worker_type='ray', device='cpu')
try:
    for k, _ in enumerate(loader):
        print('batch', k, flush=True)
        time.sleep(0.05)
except KeyboardInterrupt:
    print('interrupted', flush=True)
    raise SystemExit(7)
'''


@full
@pytest.mark.usefixtures('no_cluster')
@pytest.mark.parametrize('to', ['group', 'process'])
def test_interrupt_ends_the_program_and_all_of_ray(to):
    require('ray')
    run = program(INTERRUPTED)
    try:
        wait_until(lambda: 'batch 3' in run.read('out') or run.read('code'), 'no batch', 90)
        assert 'batch 3' in run.read('out'), run.read('err')
        inside = run.process.children(recursive=True)
        assert len(inside) > 2
        if to == 'group': os.killpg(run.process.pid, signal.SIGINT)
        else: run.process.send_signal(signal.SIGINT)
        code, out, errors = run.end(40)
        assert code == 7 and 'interrupted' in out and 'Traceback' not in errors, errors
        wait_until(lambda: not any(map(is_alive, inside)), 'orphans are left', 20)
    finally: run.kill()
