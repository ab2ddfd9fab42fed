"""However Python starts processes: 'fork' (Linux up to Python 3.13), 'forkserver' (Linux from 3.14) and 'spawn' (macOS, Windows). The other
guarantees run with each of them, too: TIMMDATA_START_METHOD=spawn pytest tests/guarantees."""
import multiprocessing
import subprocess
import sys
import sysconfig

import psutil
import pytest
import torch
from grids import quick
from loader_parts import children, command, is_server, nothing_is_left

from timmdata import ImageDataset, create_loader

pytestmark = pytest.mark.timeout(180)
clean = pytest.fixture(autouse=True)(nothing_is_left)
METHODS = [method for method in ('forkserver', 'spawn') if method in multiprocessing.get_all_start_methods()]
COMMON = dict(input_size=64, batch_size=8, is_training=True, seed=0, device='cpu')


def run_with_kill(samples, method: str, kill) -> list[torch.Tensor]:
    "An epoch whose workers are killed while the consumer holds batches in shared memory; all targets and pixels."
    loader = create_loader(ImageDataset(samples), num_workers=2, worker_type='processes', multiprocessing_context=method, **COMMON)
    held, found = [], []
    for number, (images, targets) in enumerate(loader):
        held = [*held[-1:], (images, targets)]
        found += [images.clone(), targets.clone()]
        if number == 15: kill()
    return found


def kill_worker(): children()[0].kill()


def kill_fork_server():
    for process in psutil.Process().children():
        if is_server(process) and 'forkserver' in command(process): process.kill()


KILLS = [(method, kill_worker) for method in METHODS] + [('forkserver', kill_fork_server)] * ('forkserver' in METHODS)


@quick(0, 'method, kill', KILLS)
def test_killed_worker_is_replaced_and_nothing_differs(samples, method, kill):
    expected = [part.clone() for batch in create_loader(ImageDataset(samples), num_workers=0, **COMMON) for part in batch]
    with pytest.warns(RuntimeWarning, match='another process replaces it'): found = run_with_kill(samples, method, kill)
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)


SCRIPT = '''
import multiprocessing, sys
from timmdata import BatchBuffer, ImageDataset, create_loader
def main():
    loader = create_loader(ImageDataset(sys.argv[1]), 32, 8, num_workers=1, worker_type=sys.argv[3], seed=0, use_prefetcher=False)
    if sys.argv[3] == 'threads': loader = BatchBuffer(loader, batches=8, directory=sys.argv[4])
    for images, targets in loader: break
    print('fine')
multiprocessing.set_start_method(sys.argv[2], force=True)
'''


@quick(0, 'method, kind', [(method, kind) for method in METHODS for kind in ('processes', 'threads')])
def test_script_without_a_guard_is_a_clear_error(samples, tmp_path, method, kind):
    "Of workers, and of the producer of a buffer; the same script with the guard works."
    script = tmp_path/'script.py'
    for guard, is_right in (('', False), ("if __name__ == '__main__': ", True)):
        script.write_text(f'{SCRIPT}{guard}main()\n')
        command = [sys.executable, script, samples, method, kind, tmp_path/'buffer']
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert (done.returncode == 0, done.stdout.endswith('fine\n')) == (is_right, is_right), done.stderr
        if not is_right: assert "under if __name__ == '__main__'" in done.stderr, done.stderr   # Python's own advice has other words


@pytest.mark.skipif(not sysconfig.get_config_var('Py_GIL_DISABLED'), reason='not a free-threaded Python')
def test_no_import_of_ours_switches_the_lock_on():
    "torchvision imports torch's compiler, and this Triton, which does: it is hidden here, as in torch for CPUs."
    code = '''
import sys; sys.modules['triton'] = None
import torch, torchvision
assert not sys._is_gil_enabled(), 'torch'
import importlib, pkgutil, timmdata
names = [module.name for module in pkgutil.walk_packages(timmdata.__path__, 'timmdata.') if '.integrations' not in module.name]
for name in names: importlib.import_module(name)
from timmdata import *
assert len(names) > 100 and not sys._is_gil_enabled(), 'timmdata'
'''
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
