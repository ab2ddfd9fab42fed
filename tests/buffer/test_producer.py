"The producer of a buffer: kills at any moment, errors of samples, other stores."
import random
import signal
import tempfile
import time
from functools import partial

import pytest
import torch
from buffer_parts import (
    FOREVER,
    acknowledged,
    buffered,
    finish,
    kill_children,
    loader_of,
    make_loader,
    mark,
    training,
    undisturbed,
    values,
)
from loader_parts import Deadly, Failing, nothing_is_left, program, wait_until

from timmdata import BatchBuffer
from timmdata.buffer import BatchBufferError

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.mark.parametrize('num', [5, pytest.param(50, marks=pytest.mark.full)])
def test_kills_of_the_producer(num, tmp_path):
    "The trainer goes on, and nobody is left in the end."
    rng, stop = random.Random(1), 40 * num
    run = program(training(tmp_path, 'process', stop))
    run.wait_for('ready')
    kills = 0
    while kills < num and not run.read('code'):
        time.sleep(rng.uniform(0, 0.06))
        kills += kill_children(run)
    code, _, errors = run.end(60)
    assert code == 0 and errors == '' and kills >= num and acknowledged(tmp_path/'log') == undisturbed(stop)


@pytest.mark.parametrize('num', [3, pytest.param(25, marks=pytest.mark.full)])
def test_kills_of_both(num, tmp_path):
    "The producer twice, then the trainer and the third one together; this some times."
    rng, kills, code = random.Random(2), [0, 0], training(tmp_path, 'process', FOREVER)
    for _ in range(num):
        run = program(code)
        run.wait_for('ready')
        while kills[1] < 2 * kills[0] + 2:
            time.sleep(rng.uniform(0, 0.05))
            kills[1] += kill_children(run)
        time.sleep(rng.uniform(0, 0.05))
        run.kill()
        wait_until(partial(run.read, 'code'), 'the program is killed')
        kills[0] += int(run.read('code')) == -signal.SIGKILL
    assert kills[0] == num and kills[1] >= 2 * num
    finish(tmp_path, 'process')


def test_errors_of_samples_reach_the_loop(tmp_path):
    dataset = Failing(40, at=9)
    loader = loader_of(dataset)
    for producer in ('thread', 'process'):
        buffer = BatchBuffer(loader, batches=6, producer=producer)
        buffer.set_epoch(0)
        batches = buffer.host_batches()
        assert [next(batches).batch[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(ZeroDivisionError, match='one sample is bad'): next(batches)
        with pytest.raises(ZeroDivisionError): list(buffer.host_batches())   # and again
        buffer.close()


@pytest.mark.parametrize('producer', ['process', 'thread'])
def test_an_error_that_an_earlier_producer_left_is_not_news(tmp_path, producer):
    "What was wrong with the sample may be fixed: it is tried again, also where the new producer starts slowly."
    buffer = buffered(tmp_path)
    seen = values(buffer, 3)
    buffer.close()
    for number in range(20): buffer.store.remove(number)
    for number in range(3, 6): buffer.store.fail(number, OSError('cannot read cat/1.jpg'))
    again = buffered(tmp_path, producer=producer)
    assert [*seen[:2], *values(again, 10)] == undisturbed(12)   # the third was not acknowledged
    again.close()


@pytest.mark.full
def test_a_producer_that_always_dies_is_an_error():
    dataset = Deadly(40, at=9)
    loader = loader_of(dataset)
    buffer = BatchBuffer(loader, batches=6)
    with pytest.raises(BatchBufferError, match=r'ended \d+ times while it made batch 2'): list(buffer)
    buffer.close()


def test_a_producer_thread_leaves_global_generators_alone(tmp_path):
    class Draws:
        def __call__(self, image): return torch.randint(0, 256, (3, 80, 80), dtype=torch.uint8)
    loader = make_loader()
    loader.builder.sample_loader.transform = Draws()
    buffer = BatchBuffer(loader, directory=tmp_path/'buffer', batches=8, producer='thread')
    try:
        with pytest.raises(ValueError, match='global'): values(buffer, 1)
    finally: buffer.close()


def test_a_producer_of_another_store_is_not_joined(tmp_path):
    "The directory was removed under a living producer, and the next program has other settings."
    first = buffered(tmp_path)
    assert values(first, 3) == undisturbed(3)
    (tmp_path/'buffer').rename(tmp_path/'moved')
    loader = make_loader(batch_size=5)
    plain = [mark(host) for host in make_loader(batch_size=5).host_batches()]
    second = BatchBuffer(loader, batches=8, directory=tmp_path/'buffer', producer='thread')
    assert values(second, 10) == plain
    assert values(first, 3) == undisturbed(16)[13:]   # it goes on, where its directory is now
    for one in (second, first): one.close()


def test_beyond_the_last_epoch_is_an_error():
    buffer = buffered(num_epochs=2)
    assert values(buffer, 26) == undisturbed(26)
    with pytest.raises(BatchBufferError, match='epoch 2 is wanted, but .* was asked for num_epochs=2'): list(buffer)
    buffer.set_epoch(1)
    assert values(buffer, 13) == undisturbed(26)[13:]
    buffer.close()


def test_a_temporary_directory_of_ones_own_changes_nothing(tmp_path, monkeypatch):
    "As batch systems give one to each job: programs that share a buffer find its producer all the same."
    buffer = buffered(tmp_path)
    values(buffer, 2)
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setattr('tempfile.tempdir', None)
    assert tempfile.gettempdir() == str(tmp_path)
    other = buffered(tmp_path, reader='other')
    assert values(other, 5) == undisturbed(5)
    for one in (buffer, other): one.close()
