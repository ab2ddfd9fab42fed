"Datasets, transforms and programs for the loader tests; importable, so that spawned workers find them."
import atexit
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import indent

import numpy as np
import psutil
import torch
from PIL import Image

from timmdata.readers.folder import ReaderImageFolder


class Coded(torch.utils.data.Dataset):
    "Tiny images whose pixels say their index; targets are the index."
    def __init__(self, num: int): self.num = num
    def __len__(self): return self.num

    def __getitem__(self, index):
        array = np.full((8, 8, 3), index % 256, np.uint8)
        array[:, :, 2] = index // 256
        return Image.fromarray(array), index


class Slow(Coded):
    "Is slow for one index."
    def __init__(self, num, slow_index, seconds):
        super().__init__(num); self.slow_index, self.seconds = slow_index, seconds

    def __getitem__(self, index):
        if index == self.slow_index: time.sleep(self.seconds)
        return super().__getitem__(index)


class SlowTransform:
    "A user's slow transform."
    def __init__(self, seconds: float = 0.003): self.seconds = seconds

    def __call__(self, image):
        time.sleep(self.seconds)
        return torch.zeros(3, 64, 64, dtype=torch.uint8)


class Gated(Coded):
    "Gives one index only once a file is there; all others at once."
    def __init__(self, num, gated_index, gate): super().__init__(num); self.gated_index, self.gate = gated_index, gate

    def __getitem__(self, index):
        while index == self.gated_index and not os.path.exists(self.gate): time.sleep(0.01)
        return super().__getitem__(index)


class Deadly(Coded):
    "Kills its own process at one index, as the kernel does if memory runs out; with a file to remember it by, only once."
    def __init__(self, num, at, once=None): super().__init__(num); self.at, self.once = at, once

    def __getitem__(self, index):
        if index == self.at and not (self.once and os.path.exists(self.once)):
            if self.once: Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Exiting(Coded):
    "Ends its program at one index, as a handler of SIGTERM does."
    def __init__(self, num, at): super().__init__(num); self.at = at

    def __getitem__(self, index):
        if index == self.at: sys.exit(1)
        return super().__getitem__(index)


class DeadlyReader(ReaderImageFolder):
    "The same for files."
    at, once = -1, None

    def __getitem__(self, index):
        if index == self.at and not (self.once and os.path.exists(self.once)):
            if self.once: Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class CountingReader(ReaderImageFolder):
    "Records what is read in this process."
    def __init__(self, *args): super().__init__(*args); self.seen = []

    def __getitem__(self, index):
        self.seen.append(index)
        return super().__getitem__(index)


class Failing(Coded):
    "Raises at one index."
    def __init__(self, num, at): super().__init__(num); self.at = at

    def __getitem__(self, index):
        if index == self.at: raise ZeroDivisionError('one sample is bad')
        return super().__getitem__(index)


class Reporting(Coded):
    "The target is the process that made the sample."
    def __getitem__(self, index): return super().__getitem__(index)[0], os.getpid()


class Fields(Coded):
    "Samples as dicts with further fields."
    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return {'image': image, 'target': target, 'name': f'{index}.jpg', 'box': [0., 0., 1., float(index)]}


class Stream:
    "A reader that can only be read from front to back."
    def __init__(self, num): self.num = num
    def __iter__(self): return (Coded(self.num)[k] for k in range(self.num))
    def __len__(self): return self.num


class SplitStream(Stream):
    "A stream that divides itself among the workers and uses the epoch."
    def __init__(self, num): super().__init__(num); self.num_workers = self.epoch = None
    def set_loader_cfg(self, num_workers=None): self.num_workers = num_workers
    def set_epoch(self, epoch): self.epoch = epoch

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (Coded(self.num)[k] for k in range(first, self.num, step))


class Noise:
    "A transform that draws from all three generators."
    def __call__(self, image):
        values = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return torch.tensor([int(255 * v) for v in values], dtype=torch.uint8).view(3, 1, 1).expand(3, 4, 4)


class Refuse:
    "A transform that raises for one image."
    def __call__(self, image):
        if image.getpixel((0, 0))[0] == 5: raise ValueError('cannot transform this')
        return torch.zeros(3, 4, 4, dtype=torch.uint8)


def plain_collate(samples): return torch.stack([s[0] for s in samples]), torch.tensor([s[1] for s in samples])


def run_rank(rank: int, cases: list, init_file: str, out: str):
    "One of two processes of a distributed run: writes the targets of two epochs, for each (number of samples, is_training)."
    import torch.distributed as dist

    from timmdata.loader import create_loader
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=2)
    seen = []
    for num, is_training in cases:
        loader = create_loader(Coded(num), 8, 4, is_training, distributed=True, num_workers=1 if rank else 0,
                               device='cpu')
        seen.append(dict(epochs=[[targets.tolist() for _, targets in loader] for _ in range(2)], length=len(loader)))
    dist.barrier()
    with open(f'{out}{rank}.json', 'w') as file: json.dump(seen, file)
    dist.destroy_process_group()


# ---- what every test begins and ends with

def children() -> list:
    "Live child processes, without those that serve all: Python's resource tracker and fork server, `program`'s, a browser."
    servers = ('import loader_parts', 'chrom', 'playwright')
    return [p for p in psutil.Process().children(recursive=True)
            if is_alive(p) and not is_server(p) and not any(word in command(p) for word in servers)]


def is_server(process: psutil.Process) -> bool:
    "Whether it is Python's resource tracker or fork server; what this forks has the same name."
    name = command(process)
    return 'resource_tracker' in name or ('forkserver' in name and 'forkserver' not in command(process.parent()))


def command(process: psutil.Process) -> str:
    "The command line of a process; nothing if it has ended meanwhile."
    try: return ' '.join(process.cmdline())
    except psutil.NoSuchProcess: return ''


def is_alive(process: psutil.Process) -> bool:
    try: return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return False


def wait_until(condition, message, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message() if callable(message) else message   # a callable says how it is by then
        time.sleep(0.02)


def nothing_is_left():
    "A generator for a fixture: the test ends with the processes and threads that it began with."
    threads = set(threading.enumerate())
    yield
    if children() or not set(threading.enumerate()) <= threads: gc.collect()
    wait_until(lambda: not children(), 'child processes are left')
    wait_until(lambda: set(threading.enumerate()) <= threads, 'threads are left')


# ---- programs of their own

class Program:
    "A program that runs beside the tests: the code, what it printed, how it ended."
    def __init__(self, folder: Path, pid: int): self.folder, self.process = folder, psutil.Process(pid)

    def read(self, name: str) -> str: return (self.folder/name).read_text() if (self.folder/name).exists() else ''

    def wait_for(self, text: str):
        wait_until(lambda: text in self.read('out') or self.read('code'), f'no {text!r} within 30 s', 30)
        assert text in self.read('out'), self.read('err')

    def end(self, seconds: float = 20) -> tuple[int, str, str]:   # exit code (negative: signal), output, errors
        "Wait for the end."
        wait_until(lambda: self.read('code'), lambda: f'the program does not end: {self.read("out")}{self.read("err")}', seconds)
        return int(self.read('code')), self.read('out'), self.read('err')

    def kill(self):
        "Leave nothing of a program that did not end."
        for process in (*self.process.children(recursive=True), self.process) if is_alive(self.process) else ():
            with suppress(psutil.NoSuchProcess): process.kill()   # it may end, with its parent, in this moment


def _serve_programs():
    """Fork a program for each folder named on standard input. Importing torch takes seconds and is done once; a fork ends as
    any program does, with everything that Python does at its exit."""
    import torch
    torch.set_num_threads(1)
    import timmdata.loader  # noqa: F401
    if method := os.environ.get('TIMMDATA_START_METHOD'): multiprocessing.set_start_method(method)
    print('ready', flush=True)
    for line in sys.stdin:
        folder, pid = Path(line.strip()), os.fork()
        if not pid:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell's background job begins with it ignored
            for number, name in ((1, 'out'), (2, 'err')):
                os.dup2(os.open(folder/name, os.O_WRONLY | os.O_CREAT), number)
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            module = sys.modules['__main__'].__dict__
            module.update(__name__='__main__', __file__=str(folder/'program.py'))
            exec(compile((folder/'program.py').read_text(), folder/'program.py', 'exec'), module)
            return
        print(pid, flush=True)
        threading.Thread(target=_note_end, args=(pid, folder), daemon=True).start()


def _note_end(pid: int, folder: Path):
    (folder/'code.new').write_text(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    (folder/'code.new').rename(folder/'code')


@cache
def _server() -> subprocess.Popen:
    support = Path(__file__).resolve().parent
    server = subprocess.Popen([sys.executable, '-c', 'import loader_parts; loader_parts._serve_programs()'], text=True,
                              env={**os.environ, 'PYTHONPATH': f'{support.parent.parent}:{support}'}, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    atexit.register(server.kill)
    assert server.stdout.readline() == 'ready\n'
    return server


def program(code: str, first: str = '') -> Program:
    """Start a program in a session of its own; all names of this module are imported, after what comes first. Processes that import
    it, instead of being forked, do not run the code."""
    server, folder = _server(), Path(tempfile.mkdtemp(prefix='timmdata-program-'))
    atexit.register(shutil.rmtree, folder, True)
    imports = [f'from {module} import *' for module in ('loader_parts', 'timmdata')]
    guarded = f"if __name__ == '__main__':\n{indent(code, '    ')}"
    (folder/'program.py').write_text('\n'.join([first, *imports, guarded]))
    server.stdin.write(f'{folder}\n')
    server.stdin.flush()
    return Program(folder, int(server.stdout.readline()))


def run_two_ranks(module: str, function: str, folder: Path, *args) -> list[dict]:
    "What a function writes on two ranks that run together: it gets its rank, `args`, and the files of the group and of its result."
    words = ', '.join(map(repr, [*args, str(folder/'init'), str(folder/'rank')]))
    runs = [program(f'{function}({rank}, {words})', f'from {module} import {function}') for rank in (0, 1)]
    for run in runs:
        code, _, errors = run.end(80)
        assert code == 0, errors
    return [json.loads((folder/f'rank{rank}.json').read_text()) for rank in (0, 1)]
