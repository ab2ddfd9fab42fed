"The buffer: kills at any moment, damage, several readers; always the batches of an undisturbed run."
import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import random
import re
import resource
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

import numpy as np
import psutil
import pytest
import torch
from buffer_parts import FOREVER, buffered, forever, loader_of, make_loader, mark, undisturbed, values
from loader_parts import Coded, Deadly, Failing, Slow, children, nothing_is_left, program, wait_until

from timmdata import BatchBuffer, create_loader
from timmdata.buffer import BatchBufferError, buffer_status, drop_reader, remove_buffer
from timmdata.buffer.buffer import default_directory
from timmdata.cli import main
from timmdata.pipeline.fetch import HostBatch

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


def training(folder: Path, producer: str, stop: int) -> str:
    "A program that logs each batch, then acknowledges it."
    return f'from pathlib import Path\nfrom buffer_parts import train\ntrain(Path({str(folder)!r}), {producer!r}, {stop})'


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


def finish(folder: Path, producer: str):
    "After all kills: a run that ends has seen, with those before it, what an undisturbed one sees."
    stop = len(acknowledged(folder/'log')) + 30
    code, _, errors = program(training(folder, producer, stop)).end(60)
    assert code == 0 and errors == '' and acknowledged(folder/'log') == undisturbed(stop)


@pytest.mark.parametrize('producer', [pytest.param('process', marks=pytest.mark.full), 'thread'])
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


@pytest.mark.full
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


@pytest.mark.full
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


def flip(path: Path, at: int):
    "Change a bit of a file, as a disk may."
    with open(path, 'r+b') as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 16]))


def batch_file(directory: Path, number: int) -> Path: return directory/f'{number:012}.batch'


def test_flipped_bits_are_made_again(tmp_path):
    "In header, names, pixels and targets, while it runs and while it does not; also in a file that is cut short."
    expected, rng, directory = undisturbed(81), np.random.default_rng(0), tmp_path/'buffer'
    buffer = buffered(tmp_path, low=8)
    batches = forever(buffer)
    seen = list(islice(batches, 20))
    with pytest.warns(RuntimeWarning, match='damaged, and is made again'):
        for k in range(10):
            wait_until(lambda: buffer.status()['waiting'] >= 7, 'it is not filled')
            used = buffer.status()['readers']['main']['used']   # it was delivered, and the next one is checked already
            damaged = batch_file(directory, used + 2 + k % 2)
            size = damaged.stat().st_size
            if k < 9: flip(damaged, [3, 9, 40, size - 1, *rng.integers(24, size, 5).tolist()][k])
            else: os.truncate(damaged, size // 2)
            seen += islice(batches, 4)
    rebuilt = buffer.status()['rebuilt']
    buffer.close()
    used = buffer.status()['readers']['main']['used']
    flip(batch_file(directory, used + 1), 77)
    batch_file(directory, used + 2).unlink()   # as if it had never been there
    batch_file(directory, used + 3).rename(batch_file(directory, used + 2))   # the wrong one
    again = buffered(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        seen += values(again, 22)[1:]   # the one that was not acknowledged comes again
    again.close()
    assert seen == expected and rebuilt == 10


def test_batches_of_another_store_are_no_batches(tmp_path):
    first, second = buffered(tmp_path/'a'), BatchBuffer(make_loader(), batches=9, directory=tmp_path/'b'/'buffer', producer='thread')
    for buffer in (first, second): assert values(buffer, 3)[0] == undisturbed(1)[0]
    wait_until(lambda: min(first.status()['waiting'], second.status()['waiting']) >= 4, 'they are not filled')
    second.close()
    shutil.copy(batch_file(first.store.directory, 3), batch_file(second.store.directory, 3))
    with pytest.raises(BatchBufferError, match='batch 3 of store .* is damaged'): second.store.read(3)
    first.close()


def test_damaged_position_is_an_error(tmp_path):
    buffer = buffered(tmp_path)
    values(buffer, 5)
    buffer.close()
    flip(tmp_path/'buffer'/'main.reader', 20)
    with pytest.raises(BatchBufferError, match='main.reader is damaged: discard the buffer'): buffered(tmp_path)


@pytest.mark.parametrize('what', ['identity', 'all', 'directory'])
def test_files_that_go_are_an_error(tmp_path, what):
    buffer = buffered(tmp_path, low=8)
    values(buffer, 3)
    wait_until(lambda: buffer.status()['waiting'] >= 8, 'it is not filled')   # then nobody writes
    if what == 'identity': (tmp_path/'buffer/identity').unlink()
    elif what == 'all':
        for path in (tmp_path/'buffer').iterdir(): path.unlink()
    else: shutil.rmtree(tmp_path/'buffer')
    with pytest.raises(BatchBufferError, match='was removed'): values(buffer, 30)
    buffer.close()


def test_a_buffer_whose_creation_failed_is_made_again_as_the_error_says(tmp_path):
    "In a notebook, which keeps the last error, and with it what its frames hold."
    buffer = buffered(tmp_path)
    values(buffer, 2)
    with pytest.raises(BatchBufferError, match='is used by') as kept_1: remove_buffer(tmp_path/'buffer')
    buffer.close()
    other = partial(BatchBuffer, make_loader(batch_size=5, timeout=20), directory=tmp_path/'buffer', batches=8, producer='thread')
    with pytest.raises(BatchBufferError, match="on_mismatch='discard'") as kept_2: other()
    discarding = other(on_mismatch='discard')
    assert values(discarding, 1) == [mark(next(make_loader(batch_size=5).host_batches()))]
    discarding.close()
    remove_buffer(tmp_path/'buffer')
    assert kept_1.tb and kept_2.tb


def test_a_reader_whose_record_cannot_be_written_holds_nothing(tmp_path, monkeypatch):
    "The disk is full at that moment; then the buffer may be discarded."
    def refuse(*_): raise BatchBufferError('the disk is full')
    with monkeypatch.context() as patch:
        patch.setattr('timmdata.buffer.store.Readers.save', refuse)
        with pytest.raises(BatchBufferError, match='the disk is full') as kept: buffered(tmp_path)
    remove_buffer(tmp_path/'buffer')
    assert kept.tb


def test_who_sets_a_buffer_up_for_too_long_is_named(tmp_path):
    run = program(f"""import time
from timmdata.buffer.files import PrivateDirectory
lock = PrivateDirectory({str(tmp_path/'buffer')!r}, create=True).locked('setup.lock')
print('ready', flush=True)
time.sleep(1000)
""")
    run.wait_for('ready')
    make = partial(BatchBuffer, make_loader(timeout=0.3), directory=tmp_path/'buffer', batches=8)
    with pytest.raises(BatchBufferError, match=rf'setup.lock is locked for more than 0.3 s by process {run.process.pid}, .+: wait for it, or end it'): make()
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    make().close()


def test_no_room(tmp_path):
    "Refused before anything is written, with what would fit."
    with pytest.raises(BatchBufferError, match=r'do not fit in .* batches of 0.1 MB would'): buffered(tmp_path, batches=10**9)
    assert [path.name for path in (tmp_path/'buffer').iterdir()] == ['setup.lock']


def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path):
    "A short write: files may have 50 kB for a while, a batch has 77."
    expected, buffer = undisturbed(30), buffered(tmp_path, low=8)
    batches = forever(buffer)
    seen = list(islice(batches, 5))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(BatchBufferError, match=r'\.batch cannot be written to .*: File too large'):
            for batch in batches: seen.append(batch)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 5 <= len(seen) < 20 and seen == expected[:len(seen)]
    assert not list((tmp_path/'buffer').glob('*.new'))
    del batches
    buffer.close()
    again = buffered(tmp_path)
    assert [*seen, *values(again, 30 - len(seen))] == expected
    again.close()


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
    "What was wrong with the sample may be mended: it is tried again, also where the new producer starts slowly."
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


def reading(folder: Path, reader: str, stop: int, sleep: float) -> str:
    "A program that prints what it reads."
    return f'from pathlib import Path\nfrom buffer_parts import read\nread(Path({str(folder)!r}), {reader!r}, {stop}, {sleep})'


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
    assert again.loader.seed == drawn.loader.seed == again.batch_transform.seed
    again.loader.close()


def test_kept_batches_stay_as_they_are():
    "More are kept than there are slots."
    buffer = buffered(batches=4, auto_ack=True)
    kept = [batch for _ in range(2) for batch in buffer]
    marks = [f'{zlib.crc32(images.numpy().tobytes())} {targets.tolist()}'.replace(' ', '') for images, targets in kept]
    assert marks == undisturbed(26)
    buffer.close()


def test_early_break_and_collection_leave_nothing():
    "Like a loader without a buffer: the next pass is the next epoch; processes, threads and files go."
    before = set(default_directory().glob('run-*'))
    buffer = BatchBuffer(make_loader(), batches=8)
    for _ in buffer: break
    assert values(buffer, 13) == undisturbed(26)[13:] and len(children()) == 1
    assert buffer.store.directory.exists()
    buffer.close()
    del buffer
    wait_until(lambda: set(default_directory().glob('run-*')) <= before, 'files are left')


@pytest.mark.parametrize('producer', ['process', 'thread'])
def test_twenty_loaders_that_are_dropped_leave_nothing(producer):
    "Read twice each, and never closed: no process, no thread, no memory, no open file."
    process, before = psutil.Process(), set(default_directory().glob('run-*'))
    def read_two():
        loader = create_loader(Coded(64), 32, 8, is_training=True, num_workers=0, device='cpu',
                               buffer=dict(batches=6, producer=producer))
        for _, batch in zip(range(2), loader): del batch
    read_two()
    files = process.num_fds()
    for _ in range(20): read_two()
    wait_until(lambda: not gc.collect() and not children(), 'producers live')
    wait_until(lambda: set(default_directory().glob('run-*')) <= before, 'memory is held')
    # Python lets go of ended children when it lists them
    wait_until(lambda: not multiprocessing.active_children() and process.num_fds() <= files, 'files are open')


@pytest.mark.parametrize('end', ['sys.exit(3)', '1 / 0', 'os._exit(1)', 'os.kill(os.getpid(), signal.SIGKILL)', 'os.abort()'])
def test_a_program_that_ends_takes_its_buffer_along(end):
    "However it ends, though a handler for SIGTERM only sets a flag."
    run = program(f"""import os, signal, sys
from buffer_parts import make_loader
signal.signal(signal.SIGTERM, lambda *_: None)
buffer = BatchBuffer(make_loader(), batches=8)
next(iter(buffer))
print(buffer.store.directory, *[child.pid for child in psutil.Process().children()], flush=True)
{end}
""")
    wait_until(lambda: run.read('code'), 'it does not end')
    directory, producer = run.read('out').split()
    wait_until(lambda: not psutil.pid_exists(int(producer)), 'its producer lives')
    wait_until(lambda: not Path(directory).exists(), 'its memory is held')


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
    (directory/'mine').touch()   # a file of somebody else's stays
    assert said(capsys, 'drop', directory)[2] == 0 and [path.name for path in directory.iterdir()] == ['mine']
    out, errors, status = said(capsys, 'status', directory)
    assert status == 2 and 'there is no buffer in' in errors


@pytest.mark.parametrize('harm', ['identity', 'readers'])
def test_damaged_buffers_are_told_and_removed(tmp_path, capsys, harm):
    buffer, directory = buffered(tmp_path), tmp_path/'buffer'
    values(buffer, 3)
    buffer.close()
    if harm == 'identity': (directory/'identity').write_text('{"store": 3}')
    else: flip(directory/'main.reader', 20)
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
    loader = make_loader()
    loader.builder.sample_loader.transform = Draws()
    buffer = BatchBuffer(loader, directory=tmp_path/'buffer', batches=8, producer='thread')
    try:
        with pytest.raises(ValueError, match='global'): values(buffer, 1)
    finally: buffer.close()


def test_a_producer_that_does_nothing_is_an_error_with_a_timeout(tmp_path):
    "Somebody holds its lock, and makes nothing."
    buffer = BatchBuffer(make_loader(timeout=0.3), batches=8, directory=tmp_path/'buffer')
    lock = buffer.store.files.lock('producer.lock')
    with pytest.raises(BatchBufferError, match='no batch within timeout=0.3 s: batch 0 waits for the producer'): values(buffer, 1)
    lock.release()
    buffer.set_epoch(0)
    assert values(buffer, 1) == undisturbed(1)
    buffer.close()


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


def test_what_is_in_use_is_not_discarded(tmp_path):
    "A living producer or reader keeps its buffer; what it had before is not written over when it is discarded later."
    first = buffered(tmp_path, reader='a')
    values(first, 3)
    other = partial(BatchBuffer, make_loader(batch_size=5), directory=tmp_path/'buffer', batches=8, producer='thread', reader='b',
                    on_mismatch='discard')
    with pytest.raises(BatchBufferError, match=r"is used by reader 'a' \(process \d+, .+\), its producer \(process \d+, "): other()
    run = program(reading(tmp_path, 'c', 10**6, 0.01))
    run.wait_for('ready')
    first.close()
    with pytest.raises(BatchBufferError, match=r"is used by reader 'c' \(process"): other()
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    second = other()
    assert values(second, 10) == [mark(host) for host in make_loader(batch_size=5).host_batches()]
    with pytest.raises(BatchBufferError, match='was removed'): values(first, 2)
    second.close()


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


def test_going_back_before_the_first_epoch():
    buffer = buffered()
    buffer.set_epoch(3)
    assert values(buffer, 1) == undisturbed(40)[39:]
    buffer.set_epoch(1)
    assert values(buffer, 15) == undisturbed(28)[13:]
    buffer.close()
    loader = make_loader()
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


def count_hosts() -> int:
    gc.collect()
    return sum(type(one) is HostBatch for one in gc.get_objects())


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


@pytest.mark.parametrize('producer', ['process', 'thread'])
def test_the_end_of_a_forked_child_changes_nothing(producer):
    run = program(f"""import gc, os
from buffer_parts import make_loader, mark
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
for host in hosts:
    marks.append(mark(host))
    buffer.acknowledge(0, host.position)
assert mark(held) == marks[0]
print(*marks)
buffer.close()
""")
    code, out, errors = run.end()
    assert code == 0 and errors == '' and out.split() == undisturbed(13)


@pytest.mark.parametrize('change', ['os.truncate(path, 0)', 'path.write_bytes(bytes(path.stat().st_size))'], ids=['cut', 'overwritten'])
def test_a_file_that_is_changed_in_place_changes_no_batch(change, tmp_path):
    "In a program of its own: to read a mapped file behind its new end would be a bus error."
    run = program(f"""import os, warnings
from pathlib import Path
from buffer_parts import make_loader, mark
warnings.simplefilter('ignore')   # damaged, and made again
buffer, marks = BatchBuffer(make_loader(), batches=8, directory={str(tmp_path/'buffer')!r}), []
for host in buffer.host_batches():
    if not marks: wait_until(lambda: len(buffer.store.numbers()) > 3, 'nothing is made ahead')
    for path in Path({str(tmp_path/'buffer')!r}).glob('*.batch'):   # the one in use, and those that wait
        try: {change}
        except FileNotFoundError: pass   # replaced at this moment
    marks.append(mark(host))
    buffer.acknowledge(0, host.position)
print(*marks)
assert buffer.status()['rebuilt']
buffer.close()
""")
    code, out, errors = run.end()
    assert code == 0 and errors == '' and out.split() == undisturbed(13)


def test_a_used_buffer_is_pickled_and_opens_its_own_store():
    buffer = buffered()
    seen = values(buffer, 3)
    copy = pickle.loads(pickle.dumps(buffer))
    copy.set_epoch(0)
    assert values(copy, 5)[:3] == seen and copy.store.directory != buffer.store.directory
    assert values(buffer, 10) == undisturbed(23)[13:]   # its next epoch, as before
    copy.close()
    buffer.close()


def test_wrong_settings_are_named(tmp_path):
    (tmp_path/'file').touch()
    for wrong in (dict(capacity=0), dict(capacity=float('nan')), dict(batches='8'), dict(batches=8.5),
                  dict(reader=None), dict(num_epochs=0), dict(directory=tmp_path/'file'),
                  dict(directory=''), dict(directory=tmp_path/'file'/'inside')):
        (name, value), = wrong.items()
        with pytest.raises(ValueError, match=re.escape(f'{name}={str(value)!r}' if name == 'directory' else f'{name}={value!r}')):
            BatchBuffer(make_loader(), **wrong)
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
    assert abs(after[0] - files) <= 4 and after[1] == threads and after[2] < memory + 20e6   # batches in use are open
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
    assert found == undisturbed(len(found))
    names = [path.name for path in (tmp_path/'buffer').iterdir()]   # of twelve batches, and at most one draft of each kind
    others = {name.removesuffix('.new') for name in names if not name.endswith('.batch')}
    assert sum(name.endswith('.batch') for name in names) <= 13 and len(others) <= 9, names
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
