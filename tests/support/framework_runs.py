"""The contract of every integration: two epochs, killed in the middle, resumed by the framework's own checkpoint.

A module of a framework, such as `lightning_training`, has a function `train(folder, see, resume, save_every, **options)`. It
trains two epochs with `make_loader(…)` or with its settings, calls `see(targets)` in each step of the model, and lets the
framework save after every `save_every` steps; with `resume=True` it goes on from the newest checkpoint in `folder`.

Every run is a fork of one process that has imported the framework, which takes seconds. So a killed run is killed indeed, and
nothing of it is left for the run that goes on. With `world=2` the forks are two ranks as torchrun starts them.
"""
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

EPOCHS, NUM, BATCH = 2, 43, 4   # one process has 10 batches in an epoch, each of two ranks has 5
SETTINGS = dict(input_size=8, batch_size=BATCH, is_training=True, seed=3, num_workers=2, device='cpu')


def make_dataset():
    "Tiny images whose targets are their indices."
    from loader_parts import Coded
    return Coded(NUM)


def make_loader(**settings: Any):
    "The loader that every framework trains with."
    from timmdata import create_loader
    return create_loader(make_dataset(), **{**SETTINGS, **settings})


def make_model():
    "The tiniest model of 8 × 8 images that learns, with a class for each sample."
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, NUM))


@dataclass
class Run:
    "One training run, in `world` processes."
    folder: str   # of the framework's checkpoints
    name: str = 'whole'   # of the file of what was seen
    save_every: int = 4   # steps
    kill_after: int | None = None   # steps that the model has begun; None: not killed
    resume: bool = False   # from the newest checkpoint in the folder
    world: int = 1   # processes
    options: dict = field(default_factory=dict)   # of the framework's `train`
    function: str = 'train'   # or another one of the module: called with the options, its answer is kept

    def seen(self, rank: int = 0) -> list[list[int]]:
        "The indices of each step that a rank's model saw."
        return [json.loads(line) for line in self.file(rank).read_text().splitlines()]

    def answer(self, rank: int = 0) -> Any:
        "The result of a function other than `train`."
        return json.loads(self.file(rank).read_text())

    def file(self, rank: int) -> Path: return Path(self.folder)/f'{self.name}.{rank}.seen'


class See:
    "Record the indices of each step immediately, and kill the process after a given number."
    def __init__(self, run: Run, rank: int): self.run, self.count, self.out = run, 0, run.file(rank).open('a')

    def __call__(self, targets):
        print(targets.tolist(), file=self.out, flush=True)
        self.count += 1
        if self.count == self.run.kill_after: os.kill(os.getpid(), signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def run_in_child(function, run: Run, rank: int, port: int):
    "Run by a forked process."
    sys.stdout = sys.stderr = (Path(run.folder)/f'{run.name}.{rank}.log').open('w', buffering=1)
    os.dup2(sys.stderr.fileno(), 2)
    if run.world > 1: os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK='0', WORLD_SIZE=str(run.world), LOCAL_WORLD_SIZE=str(run.world),
        MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), TORCHELASTIC_RUN_ID='test')
    code = 1
    try:
        if run.function == 'train': function(Path(run.folder), See(run, rank), run.resume, run.save_every, **run.options)
        else: run.file(rank).write_text(json.dumps(function(**run.options)))
        code = 0
    except BaseException: traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)   # nothing of pytest or of the process that forked


def run_forked(function, run: Run, seconds: float = 120):
    "Fork a process for each rank, and wait for them; a run that is to be killed must be."
    port, children = free_port(), {}
    for rank in range(run.world):
        pid = os.fork()
        if not pid: run_in_child(function, run, rank, port)
        children[pid] = rank
    end, codes = time.monotonic() + seconds, {}
    while len(codes) < run.world:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children: codes[children[pid]] = os.waitstatus_to_exitcode(status)
        # a rank waits for a dead one
        if time.monotonic() > end or pid and codes.get(children.get(pid)):
            for other, rank in children.items():
                if rank not in codes: os.kill(other, signal.SIGKILL)
        time.sleep(0.01)
    was_killed = any(code == -signal.SIGKILL for code in codes.values())
    if time.monotonic() > end or (any(codes.values()) if run.kill_after is None else not was_killed):
        logs = [(Path(run.folder)/f'{run.name}.{rank}.log').read_text()[-6000:] for rank in codes]
        raise SystemExit(f'{run}: exit codes {codes}\n' + '\n'.join(logs))


def run_all(module: str, runs: Sequence[Run]):
    "Run a framework's runs one after the other, in a process that imports it once."
    support = Path(__file__).resolve().parent
    for run in runs: Path(run.folder).mkdir(parents=True, exist_ok=True)
    request = Path(runs[0].folder)/'runs.json'
    request.write_text(json.dumps([asdict(run) for run in runs]))
    root = support.parent.parent
    env = {**os.environ, 'PYTHONPATH': f'{root}:{support}:{root/"tools"}', 'CUDA_VISIBLE_DEVICES': ''}
    done = subprocess.run([sys.executable, str(support/'framework_runs.py'), module, str(request)], env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def in_a_plain_loop(world: int = 1) -> list[list[list[int]]]:
    "What each rank's model would see in a loop without any framework: the oracle."
    from torch import distributed
    seen = []
    for rank in range(world):
        with mock.patch.multiple(distributed, get_world_size=lambda: world, get_rank=lambda rank=rank: rank):
            loader = make_loader(num_workers=0, distributed=True)
        seen.append([targets.tolist() for _ in range(EPOCHS) for _, targets in loader])
    return seen


def check_resume(
    module: str,   # name of a module in tests/support with `train`
    folder: Path,   # an empty one
    save_every: int = 4,   # steps
    kill_after: Sequence[int] = (6, 14),   # steps begun; each is a run that is killed and resumed
    world: int = 1,   # processes
    **options: Any,   # of the framework's `train`
):
    "Check the contract: before and after a kill, the model saw the same samples as in an undisturbed run."
    same = dict(save_every=save_every, world=world, options=options)
    whole = Run(str(folder/'whole'), **same)
    killed = [Run(str(folder/f'killed{k}'), 'killed', kill_after=k, **same) for k in kill_after]
    resumed = [Run(run.folder, 'resumed', resume=True, **same) for run in killed]
    run_all(module, [whole, *[run for pair in zip(killed, resumed) for run in pair]])
    for rank, expected in enumerate(in_a_plain_loop(world)):
        assert len(expected) == EPOCHS * (NUM // world // BATCH) and expected[0] != sorted(expected[0])
        assert whole.seen(rank) == expected
        for first, second in zip(killed, resumed):
            begun = first.seen(rank)
            assert begun == expected[:len(begun)] and abs(len(begun) - first.kill_after) < world
            saved = (first.kill_after - 1) // save_every * save_every
            assert saved and second.seen(rank) == expected[saved:], (first, second.seen(rank), expected)


if __name__ == '__main__':
    import loader_parts  # noqa: F401  imported once, for all forks
    import torch

    import timmdata  # noqa: F401
    torch.set_num_threads(1)
    functions = importlib.import_module(sys.argv[1])
    for run in [Run(**request) for request in json.loads(Path(sys.argv[2]).read_text())]:
        run_forked(getattr(functions, run.function), run)
