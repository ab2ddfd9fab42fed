"The buffer: kills at any moment, damage, several readers, echo; always the batches of an undisturbed run."
import contextlib
import fcntl
import json
import os
import random
import re
import shlex
import shutil
import signal
import tempfile
import time
import warnings
import zlib
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from loader_parts import Coded, children, nothing_is_left, program, wait_until

from timmdata import BatchBuffer, create_loader
from timmdata.buffer import status as buffer_status
from timmdata.buffer.producer import socket_path
from timmdata.buffer.status import drop_reader, remove_buffer
from timmdata.buffer.store import BatchBufferError, BatchStore
from timmdata.cli import main
from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.pipeline.fetch import BatchBuilder, SampleLoader
from timmdata.samplers.epoch import EpochSampler
from timmdata.workers.base import WorkerSettings

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)
MAKE = '''
from timmdata.loaders.batch_loader import BatchLoader, BatchSettings
from timmdata.workers.base import WorkerSettings

def make_loader(num=50, batch_size=4, timeout=0.):
    from torchvision.transforms.v2.functional import pil_to_tensor
    dataset = Coded(num)
    builder = BatchBuilder(SampleLoader(dataset, transform=Pixels(), seed=7, size=(40, 40)))
    return BatchLoader(builder, EpochSampler(dataset, seed=7), BatchSettings(batch_size),
                       WorkerSettings(num_workers=0, timeout=timeout))

class Pixels:
    "Noise that follows from the sample, large enough for a slot; no global generator, which a producer thread would share."
    def __call__(self, image):
        generator = torch.Generator().manual_seed(zlib.crc32(image.tobytes()))
        return torch.randint(0, 256, (3, 80, 80), dtype=torch.uint8, generator=generator)

def mark(host): return f"{zlib.crc32(host.batch[0].numpy().tobytes())} {host.batch[1].tolist()}".replace(' ', '')
'''
exec(MAKE)


def undisturbed(num: int) -> list[str]:
    "What the loader gives without a buffer."
    loader, seen = make_loader(), []   # noqa: F821
    while len(seen) < num: seen += [mark(host) for host in loader.host_batches()]   # noqa: F821
    return seen[:num]


TRAIN = """
buffer = BatchBuffer(make_loader(), batches=12, low=8, directory=directory, producer=producer, auto_ack=False)
log = open(log, 'a')
count = int(buffer.stats()['readers']['main']['used'])
print('ready', flush=True)
while count < stop:
    epoch = buffer.sampler.epoch
    for host in buffer.host_batches():
        log.write(f'{count} {mark(host)}\\n')
        log.flush()
        buffer.acknowledge(epoch, host.position)
        count += 1
        time.sleep(0.002)
        if count == stop: break
buffer.close()
print('end', flush=True)
"""


def training(folder: Path, producer: str, stop: int) -> str:
    "A program that logs each batch, then acknowledges it."
    values = dict(directory=str(folder/'buffer'), producer=producer, log=str(folder/'log'), stop=stop)
    return f'import zlib\n{MAKE}\nglobals().update({values!r})\n{TRAIN}'


def kill_children(run) -> int:
    "Kill a program's producer, which may be ending by itself; how many were killed."
    killed = 0
    for child in run.process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
            killed += 1
    return killed


def acknowledged(log: Path) -> list[str]:
    "The batches of the log. One that was logged, and not acknowledged before a kill, is there again, the same."
    seen = {}
    for number, line in (line.split(' ', 1) for line in log.read_text().splitlines() if line.count(' ') == 1):
        assert int(number) in (len(seen), len(seen) - 1), f'batch {number} after {len(seen)}: lost, or far back'
        assert seen.setdefault(int(number), line) == line
    return list(seen.values())


FOREVER = 10**9


def finish(folder: Path, producer: str):
    "After all kills: a run that ends has seen, with those before it, what an undisturbed one sees."
    stop = len(acknowledged(folder/'log')) + 30
    code, _, errors = program(training(folder, producer, stop)).end(60)
    assert code == 0 and errors == '' and acknowledged(folder/'log') == undisturbed(stop)


@pytest.mark.parametrize('producer', ['process', 'thread'])
def test_kills_of_the_trainer(producer, tmp_path):
    "SIGKILL at 50 random moments, 25 with each kind of producer, also while it starts."
    rng, kills = random.Random(producer), 0
    code = training(tmp_path, producer, FOREVER)
    for _ in range(25):
        run = program(code)
        if rng.random() < 0.7: run.wait_for('ready')
        time.sleep(rng.uniform(0, 0.15))
        run.process.kill()   # its producer ends by itself
        wait_until(partial(run.read, 'code'), 'the program is killed')
        kills += int(run.read('code')) == -signal.SIGKILL
        assert run.read('err') == ''
    assert kills == 25
    finish(tmp_path, producer)


def test_kills_of_the_producer(tmp_path):
    "50 times; the trainer goes on, and nobody is left in the end."
    rng, stop = random.Random(1), 2000
    run = program(training(tmp_path, 'process', stop))
    run.wait_for('ready')
    kills = 0
    while kills < 50 and not run.read('code'):
        time.sleep(rng.uniform(0, 0.06))
        kills += kill_children(run)
    code, _, errors = run.end(60)
    assert code == 0 and errors == '' and kills >= 50 and acknowledged(tmp_path/'log') == undisturbed(stop)


def test_kills_of_both(tmp_path):
    "25 times the producer twice, then the trainer and the third one together."
    rng, kills, code = random.Random(2), [0, 0], training(tmp_path, 'process', FOREVER)
    for _ in range(25):
        run = program(code)
        run.wait_for('ready')
        while kills[1] < 2 * kills[0] + 2:
            time.sleep(rng.uniform(0, 0.05))
            kills[1] += kill_children(run)
        time.sleep(rng.uniform(0, 0.05))
        run.kill()
        wait_until(partial(run.read, 'code'), 'the program is killed')
        kills[0] += int(run.read('code')) == -signal.SIGKILL
    assert kills[0] == 25 and kills[1] >= 50
    finish(tmp_path, 'process')


def forever(buffer):
    "Batches of all epochs; one is acknowledged when the next is asked for."
    while True:
        epoch = buffer.sampler.epoch
        for host in buffer.host_batches():
            found, position = mark(host), host.position   # noqa: F821
            del host
            yield found
            buffer.acknowledge(epoch, position)


def values(buffer, num=26): return list(islice(forever(buffer), num))


def buffered(tmp_path=None, **kwargs):
    kwargs = dict(batches=8, producer='thread') | kwargs
    return BatchBuffer(make_loader(), directory=tmp_path and tmp_path/'buffer', **kwargs)   # noqa: F821


def test_flipped_bits_are_made_again(tmp_path):
    "In pixels, targets and entries of the control file, while it runs and while it does not."
    expected, rng = undisturbed(60), np.random.default_rng(0)
    buffer = buffered(tmp_path, low=8)
    batches = forever(buffer)
    seen = list(islice(batches, 20))
    with pytest.warns(RuntimeWarning, match='damaged, and is made again'):
        for k in range(10):
            wait_until(lambda: buffer.stats()['waiting'] >= 7, 'it is not filled')
            store = buffer.store
            slot = store.numbers()[buffer.stats()['readers']['main']['used'] + 1 + k % 2]
            at = [int(rng.integers(store.slot_bytes)), store.slot_bytes + 3, store.slot_bytes + 40][k % 3]
            store.memory(slot)[at] ^= 1 << int(rng.integers(8))
            seen += islice(batches, 2)
    rebuilt = buffer.stats()['rebuilt']
    buffer.close()
    with open(tmp_path/'buffer'/'slots', 'r+b') as file:
        file.seek(store.slot_bytes * 2 + 77)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 16]))
    again = buffered(tmp_path)
    again.store.slots['entry'][3] ^= 1 << 20   # as if it had never been there
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        seen += values(again, 21)[1:]   # the one that was not acknowledged comes again
    again.close()
    assert seen == expected and rebuilt == 10


def test_damaged_position_is_an_error(tmp_path):
    buffer = buffered(tmp_path)
    values(buffer, 5)
    buffer.close()
    buffer.store.readers['acked'][0] ^= 1 << 18
    with pytest.raises(BatchBufferError, match='control file of the buffer is damaged'): buffered(tmp_path)


@pytest.mark.parametrize('what', ['truncated', 'removed', 'directory removed'])
def test_files_that_go_are_an_error(tmp_path, what):
    buffer = buffered(tmp_path, low=8)
    values(buffer, 3)
    wait_until(lambda: buffer.stats()['waiting'] >= 8, 'it is not filled')   # then nobody writes
    if what == 'truncated': os.truncate(tmp_path/'buffer/slots', 100)
    elif what == 'removed': (tmp_path/'buffer/slots').unlink()
    else: shutil.rmtree(tmp_path/'buffer')
    with pytest.raises(BatchBufferError, match='was cut short' if what == 'truncated' else 'was removed'): values(buffer, 30)
    buffer.close()
    if what != 'directory removed':
        with pytest.raises((BatchBufferError, FileNotFoundError)): buffered(tmp_path)


def test_no_room(tmp_path, monkeypatch):
    "Refused before anything is written, with what would fit; a disk that fills up at this moment, too."
    with pytest.raises(BatchBufferError, match=r'do not fit in .* batches of 0.1 MB would'): buffered(tmp_path, batches=10**9)
    assert not list((tmp_path/'buffer').glob('slots'))
    def full(*args): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(os, 'posix_fallocate', full)
    with pytest.raises(BatchBufferError, match='No space left on device'): buffered(tmp_path)
    assert not list((tmp_path/'buffer').glob('slots'))


def test_errors_of_samples_reach_the_loop(tmp_path):
    from loader_parts import Failing
    dataset = Failing(40, at=9)
    loader = BatchLoader(BatchBuilder(SampleLoader(dataset, transform=Pixels(), size=(80, 80))),   # noqa: F821
                         EpochSampler(dataset, shuffle=False), BatchSettings(4))
    for producer in ('thread', 'process'):
        buffer = BatchBuffer(loader, batches=6, producer=producer)
        buffer.set_epoch(0)
        batches = buffer.host_batches()
        assert [next(batches).batch[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(ZeroDivisionError, match='one sample is bad'): next(batches)
        with pytest.raises(ZeroDivisionError): list(buffer.host_batches())   # and again
        buffer.close()


def test_a_producer_that_always_dies_is_an_error():
    from loader_parts import Deadly
    dataset = Deadly(40, at=9)
    loader = BatchLoader(BatchBuilder(SampleLoader(dataset, transform=Pixels(), size=(80, 80))),   # noqa: F821
                         EpochSampler(dataset, shuffle=False), BatchSettings(4))
    buffer = BatchBuffer(loader, batches=6)
    with pytest.raises(BatchBufferError, match='ended 6 times while it made batch 2'): list(buffer)
    buffer.close()


READ = """
buffer = BatchBuffer(make_loader(), batches=8, directory=directory, reader=reader, auto_ack=False)
count = 0
print('ready', flush=True)
while count < stop:
    epoch = buffer.sampler.epoch
    for host in buffer.host_batches():
        print(mark(host), flush=True)
        buffer.acknowledge(epoch, host.position)
        count += 1
        time.sleep(sleep)
        if count == stop: break
buffer.close()
"""


def reading(folder: Path, reader: str, stop: int, sleep: float) -> str:
    "A program that prints what it reads."
    values = dict(directory=str(folder/'buffer'), reader=reader, stop=stop, sleep=sleep)
    return f'import zlib\n{MAKE}\nglobals().update({values!r})\n{READ}'


def test_two_readers_share_one_producer_and_one_is_killed(tmp_path):
    "Both see all batches; each was made once. Then one is killed, and the other waits for it until it is dropped."
    directory = str(tmp_path/'buffer')
    def reader(name, stop, sleep): return program(reading(tmp_path, name, stop, sleep))
    runs = [reader('a', 60, 0.005), reader('b', 60, 0.001)]
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
    drop_reader(BatchStore(directory), 'a')
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


@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_through_create_loader(workers, tmp_path):
    "Prefetcher, device half, states and replays are those of a loader without a buffer; the seed is drawn once."
    settings = dict(is_training=True, re_prob=0.5, re_mode='pixel', device='cpu', num_workers=2, workers=workers)
    plain = create_loader(Coded(40), 8, 4, seed=5, **settings)
    expected = [[images.clone() for images, _ in plain] for _ in range(3)]
    loader = create_loader(Coded(40), 8, 4, seed=5, buffer=dict(batches=6, directory=tmp_path/'buffer'), **settings)
    for epoch in range(2): assert all(map(torch.equal, [images for images, _ in loader], expected[epoch]))
    for number, (images, _) in enumerate(loader):
        assert torch.equal(images, expected[2][number])
        if number == 4: break
    state = loader.state_dict()
    assert torch.equal(loader.replay(1, batch=3).batch[0], expected[1][3]) and state['position'] == 20
    loader.loader.close()
    resumed = create_loader(Coded(40), 8, 4, seed=5, **settings)   # without a buffer
    resumed.load_state_dict(state)
    assert all(map(torch.equal, [images for images, _ in resumed], expected[2][5:]))
    drawn = create_loader(Coded(40), 8, 4, buffer=dict(batches=6, directory=tmp_path/'other'), **settings)
    next(iter(drawn))
    drawn.loader.close()
    again = create_loader(Coded(40), 8, 4, buffer=dict(batches=6, directory=tmp_path/'other'), **settings)
    assert again.seed == drawn.seed == again.loader.seed
    again.loader.close()


def test_kept_batches_stay_as_they_are():
    "More are kept than there are slots."
    buffer = buffered(batches=4, auto_ack=True)
    kept = [batch for _ in range(2) for batch in buffer]
    marks = [f'{zlib.crc32(images.numpy().tobytes())} {targets.tolist()}'.replace(' ', '') for images, targets in kept]
    assert marks == undisturbed(26)
    buffer.close()


def test_echo_draws_the_device_half_anew(tmp_path):
    settings = dict(is_training=True, re_prob=1, re_mode='pixel', device='cpu', num_workers=1, seed=5, color_jitter=0.4)
    loader = create_loader(Coded(40), 8, 4, buffer=dict(batches=8, repeats=3, repeat_window=2), **settings)
    batches = [(images.clone(), targets.tolist()) for images, targets in loader]
    order = [targets for _, targets in batches]
    assert len(batches) == len(loader) == 30 and order[:6] == [*order[:2]] * 3 and order[6:12] == [*order[6:8]] * 3
    assert not torch.equal(batches[0][0], batches[2][0])
    plain = create_loader(Coded(40), 8, 4, **settings)
    assert torch.equal(batches[0][0], next(iter(plain))[0])   # the first delivery is that of the plain loader
    state_after_7 = None
    for number, _ in enumerate(loader):
        if number == 6: state_after_7 = loader.state_dict()
    again = create_loader(Coded(40), 8, 4, buffer=dict(batches=8, repeats=3, repeat_window=2), **settings)
    again.load_state_dict(state_after_7)
    assert len(list(again)) == 23
    with pytest.raises(ValueError, match='belongs to other settings'): plain.load_state_dict(state_after_7)
    for one in (loader, again): one.loader.close()


def test_early_break_and_collection_leave_nothing():
    "Like a loader without a buffer: the next pass is the next epoch; processes, threads and files go."
    from timmdata.buffer.buffer import _base
    before = set(_base().glob('*'))
    buffer = BatchBuffer(make_loader(), batches=8)   # noqa: F821
    for _ in buffer: break
    assert values(buffer, 13) == undisturbed(26)[13:] and len(children()) == 1
    listens_at = Path(socket_path(buffer.directory))
    assert listens_at.exists()
    buffer.close()
    del buffer
    wait_until(lambda: set(_base().glob('*')) <= before and not listens_at.exists(), 'files are left')


def said(capsys, *arguments):
    "What a command prints, its errors, and its exit status."
    status = main(['buffer', *map(str, arguments)])
    return *capsys.readouterr(), status


def test_commands_while_programs_run(tmp_path, capsys):
    "Status of a buffer in use, and what is refused; after a kill, a reader is dropped, and the buffer removed."
    directory = tmp_path/'buffer'
    run = program(reading(tmp_path, 'main', 10**6, 0.01))
    run.wait_for('ready')
    wait_until(lambda: buffer_status(directory)['used_per_s'] > 0, 'no batch is used')
    out, errors, status = said(capsys, 'status', directory)
    assert status == 0 and errors == '' and 'of 8 batches wait' in out and 'lasts' in out and 'not running' not in out
    found = json.loads(said(capsys, 'status', directory, '--json')[0])
    reader = found['readers']['main']
    assert found['producer_is_alive'] and reader['is_alive'] and reader['process'] == run.process.pid
    assert found['capacity'] == 8 and 0 <= found['waiting'] <= 8 and found['produced_per_s'] > 0
    for arguments, message in (['drop', directory], "is used by reader 'main' (process"), (
            ['drop', directory, '--reader', 'main'], 'which is alive: end it first'):
        out, errors, status = said(capsys, *arguments)
        assert (out, status) == ('', 2) and message in errors and errors.count('\n') == 1
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    wait_until(lambda: not buffer_status(directory)['producer_is_alive'], 'its producer lives')
    out = said(capsys, 'status', directory)[0]
    assert '(no producer runs)' in out and 'not running, last seen' in out
    assert said(capsys, 'drop', directory, '--reader', 'other')[1:] == (
        "timmdata: error: the buffer has no reader 'other'\n", 2)
    assert said(capsys, 'drop', directory, '--reader', 'main') == ("reader 'main' was dropped\n", '', 0)
    assert said(capsys, 'status', directory, '--plot', tmp_path/'plot.png')[2] == 0
    assert (tmp_path/'plot.png').read_bytes()[:4] == b'\x89PNG'
    (directory/'mine').touch()   # a file of somebody else's stays
    assert said(capsys, 'drop', directory)[2] == 0 and [path.name for path in directory.iterdir()] == ['mine']
    out, errors, status = said(capsys, 'status', directory)
    assert status == 2 and 'there is no buffer in' in errors


@pytest.mark.parametrize('harm', ['slots', 'control', 'identity', 'readers'])
def test_damaged_buffers_are_told_and_removed(tmp_path, capsys, harm):
    buffer, directory = buffered(tmp_path), tmp_path/'buffer'
    values(buffer, 3)
    buffer.close()
    if harm == 'slots': os.truncate(directory/'slots', 100)
    elif harm == 'control': (directory/'control').unlink()
    elif harm == 'identity': (directory/'identity.json').write_text('{"store": 3}')
    else: buffer.store.readers['acked'][0] ^= 1 << 18
    out, errors, status = said(capsys, 'status', directory)
    assert (out, status) == ('', 2) and errors.startswith('timmdata: error: ') and errors.count('\n') == 1
    assert said(capsys, 'drop', directory)[2] == 0 and not directory.exists()


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


def test_a_producer_thread_leaves_global_generators_alone(tmp_path):
    class Draws:
        def __call__(self, image): return torch.randint(0, 256, (3, 80, 80), dtype=torch.uint8)
    loader = make_loader()   # noqa: F821
    loader.builder.sample_loader.transform = Draws()
    buffer = BatchBuffer(loader, directory=tmp_path/'buffer', batches=8, producer='thread')
    try:
        with pytest.raises(ValueError, match='global'): values(buffer, 1)
    finally: buffer.close()


def test_a_producer_that_cannot_be_reached_is_an_error(tmp_path, monkeypatch):
    "Somebody holds its lock, and does not listen."
    buffer = buffered(tmp_path)
    seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr('timmdata.buffer.client.time', SimpleNamespace(monotonic=partial(next, seconds), sleep=time.sleep))
    with open(tmp_path/'buffer'/'producer.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BatchBufferError, match='cannot be reached'): values(buffer, 1)


def test_a_dropped_reader_is_told(tmp_path):
    buffer = buffered(tmp_path, low=8)
    batches = forever(buffer)
    next(batches)
    drop_reader(buffer.store, 'main')
    with pytest.raises(BatchBufferError, match="reader 'main' was dropped"): next(batches)
    with pytest.raises(BatchBufferError, match='or close the buffer'): remove_buffer(tmp_path/'buffer')
    buffer.close()
    remove_buffer(tmp_path/'buffer')


def test_what_is_in_use_is_not_discarded(tmp_path):
    "A living producer or reader keeps its buffer; what it had before is not written over when it is discarded later."
    first = buffered(tmp_path, reader='a')
    values(first, 3)
    other = partial(buffered, tmp_path, repeats=2, reader='b', on_mismatch='discard')
    with pytest.raises(BatchBufferError, match=r'is used by its producer \(process'): other()
    run = program(reading(tmp_path, 'c', 10**6, 0.01))
    run.wait_for('ready')
    first.close()
    with pytest.raises(BatchBufferError, match=r"is used by reader 'c' \(process"): other()
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    second = other()
    assert values(second, 20)[::2] == undisturbed(10)
    with pytest.raises(BatchBufferError, match='was removed'): values(first, 2)
    second.close()


def test_a_producer_of_another_store_is_not_joined(tmp_path):
    "The directory was removed under a living producer, and the next program has other settings."
    first = buffered(tmp_path)
    assert values(first, 3) == undisturbed(3)
    (tmp_path/'buffer').rename(tmp_path/'moved')
    loader = make_loader(batch_size=5)   # noqa: F821
    plain = [mark(host) for host in make_loader(batch_size=5).host_batches()]   # noqa: F821
    second = BatchBuffer(loader, batches=8, directory=tmp_path/'buffer', producer='thread')
    assert values(second, 10) == plain
    for one in (second, first): one.close()


def test_beyond_the_last_epoch_is_an_error():
    buffer = buffered(num_epochs=2)
    assert values(buffer, 26) == undisturbed(26)
    with pytest.raises(BatchBufferError, match='epoch 2 is wanted, but .* was asked for num_epochs=2'): list(buffer)
    buffer.set_epoch(1)
    assert values(buffer, 13) == undisturbed(26)[13:]
    buffer.close()


def test_going_back_before_the_first_epoch():
    buffer = buffered()
    buffer.set_epoch(3)
    assert values(buffer, 1) == undisturbed(40)[39:]
    buffer.set_epoch(1)
    assert values(buffer, 15) == undisturbed(28)[13:]
    buffer.close()
    loader = make_loader()   # noqa: F821
    loader.set_epoch(1)
    loader.sampler.start = 6   # of other ranks: between two batches
    buffer = BatchBuffer(loader, batches=8, producer='thread')
    assert len(list(buffer)) == 11
    buffer.set_epoch(0)
    with pytest.raises(BatchBufferError, match='position 0 of epoch 0 is before the first of the batches'): list(buffer)
    buffer.close()


@pytest.mark.parametrize('ended', [False, True])
def test_a_reader_that_holds_others_up_is_named(ended, tmp_path, monkeypatch):
    "Once in a warning; with a timeout, in an error."
    monkeypatch.setattr('timmdata.buffer.client._PATIENCE', 0.1)
    slow = program(reading(tmp_path, "b's", 10**6, 1000))
    slow.wait_for('[')   # its first batch
    if ended:
        slow.kill()
        wait_until(lambda: slow.read('code'), 'it is killed')
    loader = make_loader(timeout=0.5)   # noqa: F821
    buffer = BatchBuffer(loader, batches=8, directory=tmp_path/'buffer', reader='a', producer='thread')
    state = 'its program has ended' if ended else f'process {slow.process.pid}'
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
    fast, slow = (buffered(tmp_path, low=1, reader=name) for name in 'ab')
    fast.loader.workers = WorkerSettings(num_workers=0, timeout=5)
    assert values(slow, 2) == undisturbed(2)   # one is used
    assert values(fast, 9) == undisturbed(9)   # the store had room for eight, and the ninth is in the place of that one
    for one in (fast, slow): one.close()


def test_a_slow_producer_is_named():
    from loader_parts import Slow
    dataset = Slow(40, 9, 1)
    loader = BatchLoader(BatchBuilder(SampleLoader(dataset, transform=Pixels(), size=(80, 80))),   # noqa: F821
                         EpochSampler(dataset, shuffle=False), BatchSettings(4), WorkerSettings(num_workers=0, timeout=0.2))
    buffer = BatchBuffer(loader, batches=6, producer='thread')
    with pytest.raises(BatchBufferError, match=rf'batch 2 waits for the producer \(process {os.getpid()}\)'): list(buffer)
    buffer.close()


def test_an_interrupted_wait_leaves_nothing_behind():
    "The answer that nobody took is not the next one's, and no slot stays held for it."
    from loader_parts import Slow
    dataset = Slow(60, 9, 0.4)
    def loader():
        return BatchLoader(BatchBuilder(SampleLoader(dataset, transform=Pixels(), size=(80, 80))),   # noqa: F821
                           EpochSampler(dataset, shuffle=False), BatchSettings(4))
    buffer, before = BatchBuffer(loader(), batches=4, producer='thread'), signal.getsignal(signal.SIGALRM)
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
        seen, plain = values(buffer, 15), [mark(host) for host in loader().host_batches()]   # noqa: F821
    assert len(plain) == 15 and seen == plain and buffer.stats()['rebuilt'] == 0
    wait_until(lambda: not buffer._mine['held'].any(), 'a slot stays held')
    buffer.close()


@pytest.mark.parametrize('producer', ['process', 'thread'])
def test_the_end_of_a_forked_child_changes_nothing(producer):
    run = program(f"""import gc, os, zlib
{MAKE}
buffer = BatchBuffer(make_loader(), batches=8, producer={producer!r})
hosts = buffer.host_batches()
held = next(hosts)
marks = [mark(held)]
child = os.fork()
if not child:
    del held, hosts, buffer   # as at the end of a program
    gc.collect()
    if {producer == 'thread'}: raise SystemExit
    os._exit(0)   # else Python's own multiprocessing ends the parent's processes
assert os.waitpid(child, 0)[1] == 0
assert buffer._mine['held'].any()   # still
for host in hosts:
    marks.append(mark(host))
    buffer.acknowledge(0, host.position)
assert mark(held) == marks[0]
print(*marks)
buffer.close()
""")
    code, out, errors = run.end()
    assert code == 0 and errors == '' and out.split() == undisturbed(13)


def test_wrong_settings_are_named(tmp_path):
    (tmp_path/'file').touch()
    for wrong in (dict(capacity=0), dict(capacity=float('nan')), dict(batches='8'), dict(batches=8.5), dict(repeats=1.5),
                  dict(reader=None), dict(max_held=-1), dict(num_epochs=0), dict(directory=tmp_path/'file'),
                  dict(directory=''), dict(directory=tmp_path/'file'/'inside')):
        (name, value), = wrong.items()
        with pytest.raises(ValueError, match=re.escape(f'{name}={str(value)!r}' if name == 'directory' else f'{name}={value!r}')):
            BatchBuffer(make_loader(), **wrong)   # noqa: F821
    buffer = buffered()
    with pytest.raises(BatchBufferError, match='none was yet'): buffer.ack()
    assert repr(buffer) == f'BatchBuffer(8 batches of this program, {buffer.loader!r})'


def test_memory_and_files_stay_flat():
    buffer, process = buffered(batches=6), psutil.Process()
    values(buffer, 40)
    def counts(): return process.num_fds(), process.num_threads(), process.memory_info().rss
    files, threads, memory = counts()
    values(buffer, 600)
    after = counts()
    assert after[:2] == (files, threads) and after[2] < memory + 20e6
    buffer.close()


@pytest.mark.skipif(not os.environ.get('TIMMDATA_SOAK'), reason='a soak test: set TIMMDATA_SOAK to its seconds')
@pytest.mark.timeout(0)
def test_soak(tmp_path):
    "Kills of trainers and producers for as long as the variable says."
    end, rng, log, kills = time.monotonic() + float(os.environ['TIMMDATA_SOAK']), random.Random(3), tmp_path/'log', [0, 0]
    code = training(tmp_path, 'process', FOREVER)
    while time.monotonic() < end:
        run = program(code)
        run.wait_for('ready')
        for _ in range(rng.randint(0, 5)):
            time.sleep(rng.uniform(0, 0.5))
            kills[1] += kill_children(run)
        time.sleep(rng.uniform(0, 1))
        run.kill()
        kills[0] += 1
        wait_until(partial(run.read, 'code'), 'the program is killed')
    found = acknowledged(log)
    assert found == undisturbed(len(found)) and len(list((tmp_path/'buffer').iterdir())) <= 6
    print(f'{len(found):,} batches, {kills[0]} trainers and {kills[1]} producers killed')


def test_signals_reach_nobody_twice(tmp_path):
    "Ctrl-C in a terminal reaches the producer as well: the trainer ends, and the producer with it."
    run = program(reading(tmp_path, 'main', 5000, 0.01))
    run.wait_for('ready')
    time.sleep(0.2)
    inside = run.process.children()
    os.killpg(run.process.pid, signal.SIGINT)
    code, _, errors = run.end()
    assert code != 0 and 'KeyboardInterrupt' in errors and len(inside) == 1
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in inside), 'it is left')
