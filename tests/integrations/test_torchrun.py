"Plain PyTorch under torchrun, with DistributedDataParallel: a rank is killed, torchrun ends the other, and a new run resumes."
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from framework_runs import in_a_plain_loop
from synthetic import ROOT

pytestmark = [pytest.mark.timeout(180), pytest.mark.full]
SUPPORT = ROOT/'tests/support'


def torchrun(folder: Path, *kill_after: str) -> subprocess.CompletedProcess:
    "Train with two ranks."
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2',
               str(SUPPORT/'torchrun_training.py'), str(folder), *kill_after]
    env = {**os.environ, 'PYTHONPATH': f'{ROOT}:{SUPPORT}', 'CUDA_VISIBLE_DEVICES': '', 'OMP_NUM_THREADS': '1'}
    return subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def seen(folder: Path, name: str, rank: int) -> list[list[int]]:
    return [json.loads(line) for line in (folder/f'{name}.{rank}.seen').read_text().splitlines()]


def test_a_killed_run_goes_on(tmp_path):
    "Killed after the third of five batches of its second epoch; the newest checkpoint was written after the first of them."
    killed = torchrun(tmp_path, '8')
    assert killed.returncode and 'exitcode  : -9' in killed.stderr, killed.stderr[-4000:]
    done = torchrun(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    for rank, expected in enumerate(in_a_plain_loop(world=2)):
        begun, rest = seen(tmp_path, 'begun', rank), seen(tmp_path, 'resumed', rank)
        assert begun == expected[:len(begun)] and 8 <= len(begun) <= 9   # the other rank may have begun its next step
        assert len(expected) == 10 and rest == expected[6:]
