"""A training program that is disturbed. It logs each batch and keeps its state; whatever ends it, it is started again from there.

A fault is a small function with what may follow from it: the program goes on, or ends with an error that names the cause. What it has
logged must be the batches of an undisturbed run, each of them. `mixed_run` draws programs, faults and moments from a seed.
"""
import gc
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch
from loader_parts import is_alive, program, wait_until
from PIL import Image

from timmdata import ImageDataset, IterableImageDataset, create_loader

SETTINGS = dict(input_size=64, batch_size=4, is_training=True, seed=5, re_prob=0.5, re_mode='pixel', device='cpu')
KINDS = {'threads': dict(num_workers=2, worker_type='threads'), 'processes': dict(num_workers=2, worker_type='processes'),
         'stream': dict(num_workers=2, timeout=15),   # without it, PyTorch waits for ever where a worker cannot send
         'buffer': dict(num_workers=0)}
BUFFERS, FILES = ('buffer',), ('threads', 'processes', 'buffer')
WITH_CHILDREN = ('processes', 'stream', 'buffer')


# ---- the program

def write_images(folder: Path, num: int = 36):
    "Photographs of noise in three classes, half of them PNG."
    rng = np.random.default_rng(0)
    for k in range(num):
        path = folder/f'class{k % 3}'/f'{k:02}.{"png" if k % 2 else "jpg"}'
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8))
        coarse.resize((90, 72), Image.Resampling.BICUBIC).save(path, quality=90)


class FileStream:
    "A stream of the files of a folder."
    def __init__(self, folder): self.paths = sorted(folder.glob('*/*'))
    def __iter__(self): return ((path.read_bytes(), int(path.stem)) for path in self.paths)


def make(kind: str, folder: Path):
    "A loader of a kind; 'inline' is the undisturbed one."
    settings = {**SETTINGS, **KINDS.get(kind, dict(num_workers=0))}
    if kind in BUFFERS: settings['buffer'] = dict(batches=6, directory=folder/'buffer')
    if kind == 'stream': return create_loader(IterableImageDataset(reader=FileStream(folder/'data')), **settings)
    return create_loader(ImageDataset(folder/'data'), **settings)


def mark(images: torch.Tensor, targets: torch.Tensor) -> int:
    return zlib.crc32(targets.numpy().tobytes(), zlib.crc32(images.contiguous().numpy().tobytes()))


def use_in_a_copy(loader, batches):
    "A forked copy of the program takes the next batch, or is refused, and ends as programs do."
    pid = os.fork()
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code: raise RuntimeError(f'the copy ended with {code}')
        return
    try: next(batches)
    except RuntimeError as error: refused = 'belong' in str(error) or 'can train from a buffer' in str(error)
    except StopIteration: refused = True   # the batch before it was the last one of the epoch: nothing is left to refuse
    else: refused = False
    del loader, batches
    gc.collect()
    sys.exit(0 if refused else 9)


def train(folder: Path, kind: str, log_name: str):
    "Train until SIGTERM: each batch is a line of the log, then the state is saved. SIGUSR1 asks for a fork."
    asked = set()
    signal.signal(signal.SIGTERM, lambda *_: asked.add('end'))   # a handler that only notes it, as programs have
    signal.signal(signal.SIGUSR1, lambda *_: asked.add('fork'))
    loader, saved, count = make(kind, folder), folder/'state', 0
    if saved.exists(): loader.load_state_dict(json.loads(saved.read_text()))
    print('ready', flush=True)
    with open(folder/log_name, 'a') as log:
        while 'end' not in asked:
            batches = iter(loader)
            for number, (images, targets) in enumerate(batches):
                where = (count, number)   # a stream cannot say where it is, and always begins at the front
                if kind != 'stream':
                    state = loader.state_dict()
                    where = state['epoch'], state['position']
                    (folder/'state.new').write_text(json.dumps(state))
                    os.replace(folder/'state.new', saved)
                log.write(f'{where[0]} {where[1]} {mark(images, targets)}\n')
                log.flush()
                if 'fork' in asked:
                    asked.remove('fork')
                    use_in_a_copy(loader, batches)
                time.sleep(0.003)
                if 'end' in asked: break
            count += 1
            log.write(f'files {len(os.listdir("/proc/self/fd"))}\n')
    loader.close()
    print('end', flush=True)


# ---- an undisturbed run

class Undisturbed:
    "The batches of an undisturbed run, loaded as far as they are needed."
    def __init__(self, folder: Path): self.folder, self.marks, self.epochs = folder, {}, Counter()

    def mark(self, kind: str, epoch: int, position: int) -> int:
        kind = 'stream' if kind == 'stream' else 'inline'
        while self.epochs[kind] <= epoch: self._add(kind)
        return self.marks[kind, epoch, position]

    def _add(self, kind: str):
        epoch = self.epochs[kind]
        loader = make(kind, self.folder)
        loader.set_epoch(epoch)
        for number, (images, targets) in enumerate(loader):
            position = number if kind == 'stream' else loader.state_dict()['position']
            self.marks[kind, epoch, position] = mark(images, targets)
        loader.close()
        self.epochs[kind] += 1


# ---- one life of the program, and its faults

class Life:
    "The program from start to end, and the faults in between."
    def __init__(self, run: 'Run', kind: str, first: str = ''):
        self.run, self.kind, self.folder = run, kind, run.folder(kind)
        self.log, self.faults = self.folder/f'log-{run.num_lives}', []
        run.num_lives += 1
        self.program = program(f'from pathlib import Path\nfrom fault_runs import train\n'
                               f'train(Path({str(self.folder)!r}), {kind!r}, {self.log.name!r})', first)
        self.pid = self.program.process.pid

    @property
    def has_ended(self) -> bool: return bool(self.program.read('code'))

    def lines(self) -> list[str]: return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for_batches(self, num: int):
        "Wait until the program has logged more batches, or has ended."
        goal = len(self.lines()) + num
        wait_until(lambda: len(self.lines()) >= goal or self.has_ended, lambda: f'no batches come: {self.describe()}', 60)

    def child(self, rng: random.Random) -> psutil.Process | None:
        try: children = self.program.process.children(recursive=True)
        except psutil.NoSuchProcess: children = []
        return rng.choice(children) if children else None

    def send(self, number: int):
        if not self.has_ended: os.kill(self.pid, number)

    def describe(self) -> str:
        faults = ', '.join(fault.name for fault in self.faults)
        return f'seed {self.run.seed}, life {self.run.num_lives - 1} of {self.kind}, faults: {faults}\n{self.program.read("err")[-3000:]}'


@dataclass(frozen=True)
class Fault:
    "A disturbance of a program, and its allowed outcomes."
    name: str
    group: str   # signals, forks, disks, files, limits or permissions
    disturb: Callable[[Life, random.Random], None]
    kinds: tuple[str, ...]   # of loaders that it fits
    error: str = ''   # pattern of the errors that it may end the program with; '': the program goes on
    must_end: bool = False   # the program may not go on


def kill_program(life, rng): life.send(signal.SIGKILL)


def interrupt(life, rng):
    if not life.has_ended: os.killpg(life.pid, signal.SIGINT)   # as Ctrl-C in a terminal: all of its processes


def kill_child(life, rng):
    child = life.child(rng)
    if child is not None and is_alive(child): child.kill()


def stop_child(life, rng):
    child = life.child(rng)
    if child is None or not is_alive(child): return
    child.suspend()
    time.sleep(rng.uniform(0, 0.2))
    if is_alive(child): child.resume()


def flip_a_bit(path: Path, rng):
    "At a place where Pillow notices it."
    data = path.read_bytes()
    for _ in range(200):
        at, damaged = rng.randrange(len(data)), bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            with Image.open(path) as image: image.load()
        except Exception: return
    path.write_bytes(data)


def put_a_socket(path: Path):
    with socket.socket(socket.AF_UNIX) as listening: listening.bind(os.path.relpath(path))


IMAGE_FAULTS = {   # what becomes of a file
    'delete an image': lambda path, rng: path.unlink(), 'empty an image': lambda path, rng: path.write_bytes(b''),
    'cut an image short': lambda path, rng: os.truncate(path, rng.randrange(1, path.stat().st_size // 2)),
    'text in place of an image': lambda path, rng: path.write_text('not found' * 99), 'flip a bit of an image': flip_a_bit,
    'a pipe in place of an image': lambda path, rng: (path.unlink(), os.mkfifo(path)),
    'a socket in place of an image': lambda path, rng: (path.unlink(), put_a_socket(path)),
    'a folder in place of an image': lambda path, rng: (path.unlink(), path.mkdir()),
    'take the right to read an image': lambda path, rng: path.chmod(0)}


def image_fault(name: str, group: str = 'files') -> Fault:
    def disturb(life, rng): life.run.change(rng.choice(life.run.images(life.kind)), lambda path: IMAGE_FAULTS[name](path, rng))
    return Fault(name, group, disturb, FILES, error=r'cannot read class\d/\d\d\.(png|jpg) \(index \d+\)')


def _a_batch_file(life, rng, change: Callable[[Path], None]):
    files = sorted((life.folder/'buffer').glob('*.batch'))
    try:
        if files: change(rng.choice(files))
    except FileNotFoundError: pass   # it was used and removed at this moment


def flip_bit_of_batch(life, rng):
    "In place, also while a reader uses the batch."
    def flip(path: Path):
        with path.open('r+b') as file:
            at = rng.randrange(max(1, path.stat().st_size))
            file.seek(at)
            byte = file.read(1) or b' '
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))
    _a_batch_file(life, rng, flip)


def damage_a_record(life, rng):
    try: (life.folder/'buffer'/rng.choice(['cursor', 'identity'])).write_bytes(b'00000000 {}')
    except FileNotFoundError: pass
    life.run.discard.add(life.kind)


def _limit(life, rng, what: int, number: int):
    "For a moment, in the program and its children."
    try: processes = [life.program.process, *life.program.process.children(recursive=True)]
    except psutil.NoSuchProcess: return
    for process in processes:
        try: process.rlimit(what, (number, resource.getrlimit(what)[1]))
        except psutil.NoSuchProcess: pass
    life.wait_for_batches(8)
    for process in processes:
        try: process.rlimit(what, resource.getrlimit(what))
        except psutil.NoSuchProcess: pass


_KILLED = (r'worker process \d died .*(for the second time|repeatedly)|a DataLoader worker process died|DataLoader worker '
           r'\(pid.*\) (is killed|exited)|the producer process died \d+ times|a worker process could not be replaced')
FAULTS = [
    Fault('kill the program', 'signals', kill_program, tuple(KINDS), must_end=True),
    Fault('SIGTERM, and a handler that notes it', 'signals', lambda life, rng: life.send(signal.SIGTERM), tuple(KINDS), must_end=True),
    Fault('Ctrl-C', 'signals', interrupt, tuple(KINDS), error='KeyboardInterrupt', must_end=True),
    Fault('kill a worker or the producer', 'signals', kill_child, WITH_CHILDREN, error=_KILLED),
    Fault('stop a worker or the producer for a while', 'signals', stop_child, WITH_CHILDREN),
    Fault('fork, and use the loader in the copy', 'forks', lambda life, rng: life.send(signal.SIGUSR1), tuple(KINDS)),
    *map(image_fault, list(IMAGE_FAULTS)[:-1]), image_fault('take the right to read an image', 'permissions'),
    Fault('flip a bit of a batch in a buffer', 'disks', flip_bit_of_batch, BUFFERS),
    Fault('cut a batch in a buffer short', 'disks',
          lambda life, rng: _a_batch_file(life, rng, lambda path: os.truncate(path, rng.choice([0, 7, 4096]))), BUFFERS),
    Fault('delete a batch in a buffer', 'disks', lambda life, rng: _a_batch_file(life, rng, Path.unlink), BUFFERS),
    Fault('damage a record of a buffer', 'disks', damage_a_record, BUFFERS, error='is damaged|was removed|there is no buffer'),
    # a batch has 49 kB; a log and a state have less
    Fault('a full disk', 'disks', lambda life, rng: _limit(life, rng, resource.RLIMIT_FSIZE, 30_000), BUFFERS, error='File too large'),
    Fault('too few open files', 'limits', lambda life, rng: _limit(life, rng, resource.RLIMIT_NOFILE, 5), tuple(KINDS),
          error='Too many open files|timed out after 15 seconds'),
]


def fits_here(fault: Fault) -> bool: return fault.group != 'permissions' or os.getuid() != 0   # root may read everything


# ---- the run

def _left_behind(pid: int) -> dict[str, int]:
    "Count what a program left: processes of its session, shared memory, temporary files."
    processes = 0
    for process in psutil.process_iter():
        try: processes += os.getsid(process.pid) == pid and is_alive(process)
        except (ProcessLookupError, PermissionError): pass
    return dict(processes=processes, shared_memory=len(glob.glob(f'/dev/shm/torch_{pid}_*')),
                temporary_files=len(glob.glob(f'{tempfile.gettempdir()}/timmdata-bad-samples-{pid}-*')))


@dataclass
class Run:
    "Disturbed programs, one after the other, and their outcomes."
    base: Path
    seed: int
    num_lives: int = 0
    counts: Counter = field(default_factory=Counter)   # of faults
    outcomes: Counter = field(default_factory=Counter)
    batches: int = 0
    discard: set[str] = field(default_factory=set)   # kinds whose buffer is to be thrown away

    def __post_init__(self):
        write_images(self.base/'pristine'/'data')
        self.undisturbed = Undisturbed(self.base/'pristine')
        self.changed: set[Path] = set()

    def folder(self, kind: str) -> Path:
        folder = self.base/kind
        if not folder.exists(): shutil.copytree(self.base/'pristine', folder)
        return folder

    def images(self, kind: str) -> list[Path]: return sorted(set((self.folder(kind)/'data').glob('*/*')) - self.changed)

    def change(self, path: Path, how: Callable[[Path], None]):
        self.changed.add(path)
        draft = path.with_name(f'.{path.name}')
        shutil.copyfile(path, draft)
        how(draft)   # appears at once, as a whole: it is the change that is tested, not the moment in its middle
        if draft.is_dir(): path.unlink()
        if draft.exists(): os.rename(draft, path)
        else: path.unlink()

    def restore(self):
        for path in self.changed:
            if path.is_dir(): path.rmdir()
            whole = path.with_name(f'.{path.name}.whole')
            shutil.copyfile(self.base/'pristine'/path.relative_to(path.parents[2]), whole)
            os.rename(whole, path)
        self.changed.clear()

    def live(self, kind: str, faults: list[Fault], rng: random.Random):
        "Start the program, disturb it, end it, and judge what it did."
        life = Life(self, kind)
        try:
            wait_until(lambda: 'ready' in life.program.read('out') or life.has_ended, lambda: f'it does not start: {life.describe()}', 60)
            life.wait_for_batches(rng.randint(0, 6))
            for fault in faults:
                if life.has_ended: break
                life.faults.append(fault)
                self.counts[fault.name] += 1
                fault.disturb(life, rng)
                if fault.must_end: break
                life.wait_for_batches(rng.randint(0, 20))
            if not any(fault.must_end for fault in life.faults): life.wait_for_batches(12)   # more than an epoch
            if not life.has_ended and not any(fault.must_end for fault in life.faults): life.send(signal.SIGTERM)
            wait_until(lambda: life.has_ended, lambda: f'it does not end: {life.describe()}', 60)
            self.judge(life)
        finally:
            life.program.kill()
            self.restore()
            for name in self.discard: shutil.rmtree(self.folder(name)/'buffer', ignore_errors=True)
            self.discard.clear()
            shutil.rmtree(life.program.folder, ignore_errors=True)
            life.log.unlink(missing_ok=True)

    def judge(self, life: Life):
        "Compare every batch, look at how it ended, and count what it left."
        rows = [line.split() for line in life.lines()]
        for epoch, position, found in (map(int, row) for row in rows if row[0] != 'files' and len(row) == 3):
            assert found == self.undisturbed.mark(life.kind, epoch, position), f'batch {epoch} {position} differs: {life.describe()}'
            self.batches += 1
        files = [int(row[1]) for row in rows if row[0] == 'files' and len(row) == 2]
        assert not files or max(files) <= files[0] + 12, f'open files {files}: {life.describe()}'
        code, errors = int(life.program.read('code')), life.program.read('err')
        patterns = [fault.error for fault in life.faults if fault.error]
        if code == -signal.SIGKILL: outcome = 'killed' if any(f.disturb is kill_program for f in life.faults) else ''
        elif code == 0: outcome = 'went on to its end'
        else: outcome = 'an error with the cause' if any(re.search(p, errors) for p in patterns) else ''
        assert outcome, f'it ended with {code}: {life.describe()}'
        self.outcomes[outcome] += 1
        wait_until(lambda: not any(_left_behind(life.pid).values()), lambda: f'something is left: {life.describe()}', 20)

    def report(self) -> dict:
        return dict(seed=self.seed, programs=self.num_lives, batches=self.batches, faults=dict(sorted(self.counts.items())),
                    outcomes=dict(sorted(self.outcomes.items())))


def mixed_run(seconds: float, folder: Path, seed: int | None = None) -> dict:
    "Disturb programs for a given time, by all kinds of faults in random order; a failure names its seed."
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    run, rng, end = Run(folder, seed), random.Random(seed), time.monotonic() + seconds
    print(f'seed {seed}', flush=True)
    while time.monotonic() < end:
        kind = rng.choice(list(KINDS))
        faults = [fault for fault in FAULTS if kind in fault.kinds and fits_here(fault)]
        run.live(kind, rng.sample(faults, rng.randint(1, 4)), rng)
    return run.report()
