"The reader of a buffer: several at once, waits that end, records that are damaged or dropped."
import gc
import os
import re
import shlex
import signal
import time
import warnings

import pytest
from buffer_parts import buffered, flip, forever, loader_of, make_loader, mark, reading, undisturbed, values
from loader_parts import Slow, nothing_is_left, program, wait_until

from timmdata import BatchBuffer
from timmdata.buffer import BatchBufferError, buffer_status, drop_reader, remove_buffer
from timmdata.cli import main
from timmdata.pipeline.fetch import HostBatch

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


def count_hosts() -> int:
    gc.collect()
    return sum(type(one) is HostBatch for one in gc.get_objects())


@pytest.mark.full
def test_two_readers_share_one_producer_and_one_is_killed(tmp_path):
    "Both see all batches; each was made once. Then one is killed, and the other waits for it until it is dropped."
    directory = str(tmp_path/'buffer')
    def reader(name, stop, sleep): return program(reading(tmp_path, name, stop, sleep))
    (tmp_path/'wait').touch()   # none begins before the other is there
    runs = [reader('a', 60, 0.005), reader('b', 60, 0.001)]
    for run in runs: run.wait_for('ready')
    (tmp_path/'wait').unlink()
    for run in runs:
        code, out, errors = run.end(60)
        assert code == 0 and errors == '' and out.split()[1:] == undisturbed(60)
    assert buffer_status(directory)['produced'] <= 60 + 8 + 8
    slow, fast = reader('a', 1000, 0.01), reader('b', 1000, 0.001)
    slow.wait_for('ready')
    fast.wait_for('ready')
    time.sleep(0.5)
    slow.kill()
    wait_until(lambda: slow.read('code'), 'it is killed')
    wait_until(lambda: not buffer_status(directory)['readers']['a']['is_alive'], 'it is not noticed')
    time.sleep(0.5)
    before = len(fast.read('out').split())
    time.sleep(0.3)
    assert len(fast.read('out').split()) == before and not fast.read('code')   # it waits, and status says for whom
    drop_reader(directory, 'a')
    wait_until(lambda: len(fast.read('out').split()) > before + 50, 'it does not go on')
    fast.kill()
    wait_until(lambda: fast.read('code'), 'it is killed')
    assert fast.read('out').split()[1:-1] == undisturbed(2000)[60:][:len(fast.read('out').split()) - 2]


def test_a_reader_has_one_program(tmp_path):
    run = program(reading(tmp_path, 'main', 500, 0.01))
    run.wait_for('ready')
    with pytest.raises(BatchBufferError, match='which is alive: give another reader='): buffered(tmp_path)
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')


def test_a_reader_whose_record_cannot_be_written_holds_nothing(tmp_path, monkeypatch):
    "The disk is full at that moment; then the buffer may be discarded."
    def refuse(*_): raise BatchBufferError('the disk is full')
    with monkeypatch.context() as patch:
        patch.setattr('timmdata.buffer.store.Readers.save', refuse)
        with pytest.raises(BatchBufferError, match='the disk is full') as kept: buffered(tmp_path)
    remove_buffer(tmp_path/'buffer')
    assert kept.tb


def test_damaged_position_is_an_error(tmp_path):
    buffer = buffered(tmp_path)
    values(buffer, 5)
    buffer.close()
    flip(tmp_path/'buffer'/'main.reader', 20)
    with pytest.raises(BatchBufferError, match='main.reader is damaged: discard the buffer'): buffered(tmp_path)


def test_a_producer_that_does_nothing_is_an_error_with_a_timeout(tmp_path):
    "Somebody holds its lock, and makes nothing."
    buffer = BatchBuffer(make_loader(timeout=0.3), batches=8, directory=tmp_path/'buffer')
    lock = buffer.store.files.lock('producer.lock')
    with pytest.raises(BatchBufferError, match='no batch within timeout=0.3 s: batch 0 waits for the producer'): values(buffer, 1)
    lock.release()
    buffer.close()
    patient = buffered(tmp_path)
    assert values(patient, 1) == undisturbed(1)
    patient.close()


def test_a_dropped_reader_is_told(tmp_path):
    buffer = buffered(tmp_path, low=8)
    batches = forever(buffer)
    next(batches)
    with pytest.raises(BatchBufferError, match='which is alive: end it first, or close its buffer'): drop_reader(buffer.store, 'main')
    with pytest.raises(BatchBufferError, match='or close the buffer'): remove_buffer(tmp_path/'buffer')
    buffer.close()
    drop_reader(buffer.store, 'main')
    with pytest.raises(BatchBufferError, match="reader 'main' was dropped"): next(batches)
    buffer.close()
    remove_buffer(tmp_path/'buffer')


@pytest.mark.parametrize('ended', [False, True])
def test_a_reader_that_holds_others_up_is_named(ended, tmp_path, monkeypatch):
    "Once in a warning; with a timeout, in an error."
    monkeypatch.setattr('timmdata.buffer.client._PATIENCE', 0.1)
    slow = program(reading(tmp_path, "b's", 10**6, 1000))
    slow.wait_for('[')   # its first batch
    if ended:
        slow.kill()
        wait_until(lambda: slow.read('code'), 'it is killed')
    loader = make_loader(timeout=0.5)
    buffer = BatchBuffer(loader, batches=8, directory=tmp_path/'buffer', reader='a', producer='thread')
    state = 'its program has ended' if ended else f'process {slow.process.pid}, -c'
    who = rf"reader \"b's\" \({state}\), which is [78] batches behind"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        with pytest.raises(BatchBufferError, match=rf'no batch within timeout=0.5 s: batch \d waits for {who}'): values(buffer, 20)
    warned = [str(one.message) for one in caught]
    assert len(warned) == 1 and re.match(rf'batch \d waits for {who}', warned[0])
    command = warned[0].partition('gone for good: timmdata ')[2]
    if ended:
        assert main(shlex.split(command)) == 0   # and then the next epoch
        assert values(buffer, 20) == undisturbed(33)[13:]
    slow.kill()
    wait_until(lambda: slow.read('code'), 'it is killed')
    buffer.close()


def test_a_reader_that_is_ahead_need_not_wait_for_the_mark(tmp_path):
    "It asks for a batch that there is room for, while enough wait for the other one."
    fast, slow = (BatchBuffer(make_loader(timeout=5), batches=8, directory=tmp_path/'buffer', producer='thread', low=1,
                              reader=name) for name in 'ab')
    assert values(slow, 2) == undisturbed(2)   # one is used
    assert values(fast, 9) == undisturbed(9)   # the store had room for eight, and the ninth is in the place of that one
    for one in (fast, slow): one.close()


def test_a_slow_producer_is_named():
    dataset = Slow(40, 9, 1)
    loader = loader_of(dataset, timeout=0.2)
    buffer = BatchBuffer(loader, batches=6, producer='thread')
    with pytest.raises(BatchBufferError, match=rf'batch 2 waits for the producer \(process {os.getpid()}, .+\)'): list(buffer)
    buffer.close()


def test_an_interrupted_wait_leaves_nothing_behind():
    "The answer that nobody took is not the next one's, and no slot stays held for it."
    dataset, known = Slow(60, 9, 0.4), count_hosts()   # what other tests have made, and pytest keeps
    buffer, before = BatchBuffer(loader_of(dataset), batches=4, producer='thread'), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        batches = buffer.host_batches()
        next(batches)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt): list(batches)
    finally: signal.signal(signal.SIGALRM, before)
    wait_until(lambda: 2 in buffer.store.numbers(), 'it is not made')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        seen, plain = values(buffer, 15), [mark(host) for host in loader_of(dataset).host_batches()]
    assert len(plain) == 15 and seen == plain and buffer.status()['rebuilt'] == 0
    assert count_hosts() - known <= 2   # the next one, and the one in the traceback
    buffer.close()
