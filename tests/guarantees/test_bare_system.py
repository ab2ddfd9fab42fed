"""Where there is no Linux: everything runs, or is refused by name, in a Python without Unix (support/bare_system).

It stands in for Windows and macOS, and is neither of them: paths, file locks and process handles are still Linux's."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import ROOT

BARE_SYSTEM = ROOT/'tests/support/bare_system'

LOADERS = """
import torch
from timmdata import ImageDataset, create_loader

def first_of(data, **settings):
    loader = create_loader(ImageDataset(data), 64, 8, is_training=True, seed=1, device='cpu', timeout=60, **settings)
    images, targets = next(iter(loader))
    images = images.clone()
    loader.close()
    return images

if __name__ == '__main__':
    data = DATA
    expected = first_of(data, num_workers=0)
    for settings in (dict(num_workers=2, worker_type='threads'), dict(num_workers=1, worker_type='processes'), dict(num_workers='auto')):
        assert torch.equal(first_of(data, **settings), expected), settings
    print('same')
"""

STAND_IN = """
import multiprocessing, os, signal, socket
for name in ('fork', 'memfd_create', 'getuid', 'O_NOFOLLOW', 'sched_getaffinity', 'sysconf', 'pread', 'register_at_fork'):
    assert not hasattr(os, name), name
assert not hasattr(socket, 'AF_UNIX') and not hasattr(signal, 'pthread_sigmask')
assert not os.path.exists('/proc/self') and not os.path.isdir('/dev/shm')
assert multiprocessing.get_all_start_methods() == ['spawn'] == [multiprocessing.get_start_method()]
for name in ('fcntl', 'resource', 'pwd'):
    try: __import__(name)
    except ImportError: continue
    raise AssertionError(name)
"""

REFUSED = """
from timmdata import ImageDataset, create_loader
from timmdata.buffer import BatchBufferError, BatchStore, remove_stale

data, folder = DATA, FOLDER
def refused(call):
    try: call()
    except (BatchBufferError, ValueError) as error: print(error)
refused(lambda: create_loader(ImageDataset(data), 64, 8, buffer=8, device='cpu'))
refused(lambda: create_loader(ImageDataset(data), 64, 8, buffer=dict(batches=8, directory=folder), device='cpu'))
refused(lambda: BatchStore.create(folder, 8, 1000))
refused(remove_stale)
refused(lambda: create_loader(ImageDataset(data), 64, 8, multiprocessing_context='fork', device='cpu'))
"""

COMMANDS = """
from pathlib import Path
from timmdata import ImageDataset
from timmdata.cli import main
from timmdata.measure import diagnose
assert main(['demo', DATA, '--input-size', '32', '--out', 'batch.png']) == 0
assert main(['doctor', DATA, '--stages', '--input-size', '32', '--batch-size', '8', '--num-workers', '1']) == 0
found = diagnose(ImageDataset(DATA), 32, 8, 16, rounds=1, num_workers=1, worker_type='threads', with_changes=False)
Path('doctor.json').write_text(found.to_json(), encoding='utf-8')
"""


@pytest.fixture
def run_bare(tmp_path):
    "Run a program, in which DATA and FOLDER are paths, without Unix."
    def run(program: str, *arguments: str, **paths: Path) -> subprocess.CompletedProcess:
        for name, path in paths.items(): program = program.replace(name, repr(str(path)))
        (tmp_path/'program.py').write_text(program, encoding='utf-8')
        path = os.pathsep.join(map(str, [BARE_SYSTEM, ROOT]))
        return subprocess.run([sys.executable, tmp_path/'program.py', *arguments], cwd=tmp_path, timeout=200, capture_output=True,
                              text=True, env={**os.environ, 'PYTHONPATH': path})
    return run


@pytest.mark.full
def test_batches_are_the_same(run_bare, samples):
    "In the consumer's thread, in threads, in spawned processes; no descriptor is sent, no signal but those that Windows has."
    done = run_bare(LOADERS, DATA=samples)
    assert done.returncode == 0 and done.stdout == 'same\n', done.stderr


@pytest.mark.full
def test_what_cannot_be_had_is_refused_by_name(run_bare, samples, tmp_path):
    "And the stand-in lacks what it says, else nothing here could fail."
    done = run_bare(STAND_IN + REFUSED, DATA=samples, FOLDER=tmp_path/'buffer')
    *buffers, fork = done.stdout.splitlines()
    assert done.returncode == 0 and len(buffers) == 4, done.stderr
    missing = '(missing: os.O_CLOEXEC, os.O_DIRECTORY, os.O_NOFOLLOW, os.getuid, fcntl.flock, dir_fd): omit buffer='
    assert all(missing in line for line in buffers) and not (tmp_path/'buffer').exists()
    assert fork == "multiprocessing_context='fork': must be one of spawn"


@pytest.mark.full
def test_the_command_line_measures_what_can_be_known(run_bare, samples, tmp_path):
    done = run_bare(COMMANDS, DATA=samples)
    assert done.returncode == 0 and 'images/s' in done.stdout, done.stderr
    assert (tmp_path/'batch.png').exists() and json.loads((tmp_path/'doctor.json').read_text(encoding='utf-8'))
