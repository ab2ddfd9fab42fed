"The producer of a buffer: kills at any moment, errors of samples, and stores of other settings."
import random
import signal
import time
from dataclasses import replace
from functools import partial

import pytest
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
from grids import full
from loader_parts import Deadly, Failing, nothing_is_left, program, wait_until

from timmdata import BatchBuffer
from timmdata.buffer import BatchBufferError

pytestmark = pytest.mark.timeout(300)
clean = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.mark.full
@pytest.mark.parametrize('num', [1, 50])
def test_kills_of_the_producer(num, tmp_path):
    "The trainer continues, and no process is left at the end."
    rng, stop = random.Random(1), 40 * num
    run = program(training(tmp_path, stop))
    run.wait_for('ready')
    kills = 0
    while kills < num and not run.read('code'):
        time.sleep(rng.uniform(0, 0.06))
        kills += kill_children(run)
    code, _, errors = run.end(60)
    assert code == 0 and errors == '' and kills >= num and acknowledged(tmp_path/'log') == undisturbed(stop)


@pytest.mark.full
@pytest.mark.parametrize('num', [1, 25])
def test_kills_of_both(num, tmp_path):
    "Kill the producer twice, then the trainer and the third producer together; repeat this several times."
    rng, kills, code = random.Random(2), [0, 0], training(tmp_path, FOREVER)
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
    finish(tmp_path)


def test_errors_of_samples_reach_the_loop(tmp_path):
    dataset = Failing(40, at=9)
    loader = loader_of(dataset)
    buffer = BatchBuffer(loader, batches=6)
    batches = buffer.host_batches()
    assert [next(batches).batch[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ZeroDivisionError, match='one sample is bad'): next(batches)
    with pytest.raises(ZeroDivisionError): list(buffer.host_batches())   # and again
    buffer.close()


def test_an_error_that_an_earlier_producer_left_is_not_news(tmp_path):
    "The sample may have been fixed, so it is tried again, even if the new producer starts slowly."
    buffer = buffered(tmp_path)
    seen = values(buffer, 3)
    buffer.close()
    for number in range(20): buffer.store.remove(number)
    for number in range(3, 6): buffer.store.fail(number, OSError('cannot read cat/1.jpg'))
    again = buffered(tmp_path)
    assert [*seen[:2], *values(again, 10)] == undisturbed(12)   # the third was not acknowledged
    again.close()


@pytest.mark.full
def test_a_producer_that_always_dies_is_an_error():
    dataset = Deadly(40, at=9)
    loader = loader_of(dataset)
    buffer = BatchBuffer(loader, batches=6)
    with pytest.raises(BatchBufferError, match=r'died \d+ times while making batch 2'): list(buffer)
    buffer.close()


@full
@pytest.mark.parametrize('method', ['fork', 'spawn'])
def test_what_cannot_be_pickled_is_made_by_a_forked_producer_alone(method):
    "A forked process has the lambda; another process would need to unpickle it, and an error says so."
    loader = make_loader()
    transform = loader.builder.sample_loader.transform
    loader.builder.sample_loader.transform = lambda image: transform(image)
    loader.workers = replace(loader.workers, multiprocessing_context=method)
    buffer = BatchBuffer(loader, batches=8)
    if method == 'fork': assert values(buffer, 5) == undisturbed(5)
    else:
        with pytest.raises(TypeError, match='^transform: a lambda cannot be pickled for a process that is not forked'):
            values(buffer, 1)
    buffer.close()


def test_a_producer_of_another_store_is_not_joined(tmp_path):
    "The directory was removed while its producer was running, and the next program has different settings."
    first = buffered(tmp_path)
    assert values(first, 3) == undisturbed(3)
    (tmp_path/'buffer').rename(tmp_path/'moved')
    loader = make_loader(batch_size=5)
    plain = [mark(host) for host in make_loader(batch_size=5).host_batches()]
    second = BatchBuffer(loader, batches=8, directory=tmp_path/'buffer')
    assert values(second, 10) == plain
    assert values(first, 3) == undisturbed(16)[13:]   # it goes on, where its directory is now
    for one in (second, first): one.close()
