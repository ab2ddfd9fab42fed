"""Run scripts of timm one after the other in one process, since starting one takes seconds: run_timm_clients.py RUNS.json OUT.

RUNS.json has [name, script, words] for each; every run executes its file from the start. OUT0.json (of rank 0) says for each what the
model was given (shapes in training and in evaluation), what the script printed and logged, and the error that ended it.
"""
import io
import json
import logging
import os
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path

import torch
from timm.models.naflexvit import NaFlexVit
from timm.models.resnet import ResNet
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel


class Messages(logging.Handler):
    "Keeps what is logged."

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record): self.lines.append(record.getMessage())


def run(script: str, words: list[str]) -> dict:
    "Execute a script with words on its command line."
    shapes, printed, messages, error = {'train': [], 'eval': []}, io.StringIO(), Messages(), None

    def look(module, inputs):
        if not isinstance(module, (ResNet, NaFlexVit)): return
        given = inputs[0]['patches'] if isinstance(inputs[0], dict) else inputs[0]
        shapes['train' if module.training else 'eval'].append(list(given.shape))

    hook = register_module_forward_pre_hook(look)
    logging.getLogger().addHandler(messages)
    sys.argv = [script, *words]
    try:
        with redirect_stdout(printed): runpy.run_path(script, run_name='__main__')
    except (Exception, SystemExit) as raised:
        error = f'{type(raised).__name__}: {raised}'
        traceback.print_exc()
    hook.remove()
    logging.getLogger().removeHandler(messages)
    result = printed.getvalue().partition('--result\n')[2]
    return dict(**shapes, result=json.loads(result) if result else None, log=messages.lines, error=error)


class OnCpu(DistributedDataParallel):
    "timm 1.0.31 names a device where torch wants none: a model on the CPU, whatever loads the data."

    def __init__(self, module, device_ids, **settings): super().__init__(module, **settings)


if __name__ == '__main__':
    runs, out = sys.argv[1:]
    if 'RANK' in os.environ: torch.nn.parallel.DistributedDataParallel = OnCpu
    done = {name: run(script, words) for name, script, words in json.loads(Path(runs).read_text())}
    Path(f'{out}{os.environ.get("RANK", 0)}.json').write_text(json.dumps(done))
