"""timm's own scripts and tests with `timm.data` replaced by `timmdata` in their imports, and nothing else.

They lie beside a developer's checkout, as the photographs do: read at run time, written to a temporary folder, never copied into
this repository. `benchmarks/results/timm_scripts.json` lists the runs, what came of them, and timm's tests that fail; the guide `from_timm`
shows it, and the tests repeat it.
"""
import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from synthetic import ROOT

TIMM = ROOT.parent/'shared/timm'   # train.py, validate.py, tests/
MODEL, CLASSES, TRAIN_PHOTOS, VAL_PHOTOS = 'test_resnet', 7, 30, 15
NAFLEX_MODEL = 'naflexvit_base_patch16_gap'   # small by these words:
NAFLEX_SETTINGS = dict(embed_dim=64, depth=2, num_heads=2, enable_patch_interpolator=True)

# name of a run → its flags beside those of `words`; and timm's own tests that fail here, all their cases, by reason, or pass but for the
# words of an error. Every other one passes.
RECORD = json.loads((ROOT/'benchmarks/results/timm_scripts.json').read_text(encoding='utf-8'))['results']
TRAIN, VALIDATE, TORCHRUN = ({row['name']: row['flags'] for row in RECORD[kind]} for kind in ('train', 'validate', 'torchrun'))
SCRIPTS = {'train.py': TRAIN, 'validate.py': VALIDATE}
FAILING_TESTS, OTHER_WORDS = RECORD['tests']['failing'], RECORD['tests']['other_words']
SLOW_TESTS = 'tests/test_multilabel.py::test_distributed_metrics_exclude_padding'   # not run: of timm's metrics, four times two processes

# where timm itself stops on the same words, with these words
STOPS_IN_TIMM = {
    'repeats': 'RepeatAugment not currently supported in non-distributed',
    'no prefetcher, views': "'list' object has no attribute 'to'",
    'gray, policy': 'color must be int or single-element tuple',
}
# where the script itself stops, whatever loads the data
STOPS = dict.fromkeys(['NaFlex, no prefetcher'], "'dict' object has no attribute 'to'")
POSTERIZES_TO_0_BITS = 'bits must be between'   # what a new Pillow says to timm's policies, when one draws that
# as likely as timm's, drawn otherwise: the shapes that a batch may have
SIZES = {(4, 3, 24, 24), (4, 3, 32, 32), (6, 3, 24, 24)}
OTHER_PLANS = {
    'sizes': SIZES, 'sizes, batch sizes': SIZES, 'sizes, number of batches': SIZES,
    'NaFlex, lengths': {(num, length, 768) for num, length in ((16, 4), (14, 4), (6, 4), (8, 9), (6, 9))},
    'NaFlex, patch sizes': {(num, 9, edge, edge, 3) for num in (8, 6) for edge in (12, 16)},
}

# a name that is nowhere here fails in the test that uses it, not in the import that all tests of a file share
MISSING = '''
class Missing:
    def __init__(self, name): self.name = name
    def __getattr__(self, what): raise AttributeError(f'{self.name} is not in timmdata')
    def __call__(self, *args, **kwargs): raise AttributeError(f'{self.name} is not in timmdata')


def __getattr__(name): return Missing(name)
'''


def home(module: str, name: str) -> str:
    "The module that has a name of a module of timm.data here: that of the same path."
    place = module.replace('timm.data', 'timmdata', 1)
    return place if hasattr(importlib.import_module(place), name) else 'missing_names'


def replaced_import(node: ast.stmt) -> list[str] | None:
    "The statements in place of an import of timm.data; None: another statement."
    if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[:2] == ['timm', 'data']:
        if node.module == 'timm.data': return [ast.unparse(node).replace('timm.data', 'timmdata', 1)]
        return [f'from {home(node.module, alias.name)} import {ast.unparse(alias)}' for alias in node.names]
    if isinstance(node, ast.Import) and node.names[0].name.startswith('timm.data.'):
        return [ast.unparse(node).replace('timm.data', 'timmdata', 1)]
    return None


def replaced(source: str) -> str:
    "A script whose imports of timm.data are of timmdata; all other lines are as they were, with their numbers."
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        new = replaced_import(node)
        if new is None: continue
        lines[node.lineno - 1] = ' ' * node.col_offset + '; '.join(new)
        lines[node.lineno:node.end_lineno] = [''] * (node.end_lineno - node.lineno)
    return '\n'.join(lines) + '\n'


def copy_replaced(folder: Path) -> Path:
    "Write timm's scripts and tests into a folder, with the name replaced."
    for path in TIMM.rglob('*.py'):
        target = folder/path.relative_to(TIMM)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(replaced(path.read_text(encoding='utf-8')), encoding='utf-8')
    (folder/'missing_names.py').write_text(MISSING)
    return folder


def make_photos(folder: Path) -> Path:
    "Small pictures in class folders, files about them, and a model."
    rng = np.random.default_rng(0)
    for split, number in (('train', TRAIN_PHOTOS), ('val', VAL_PHOTOS)):
        for k in range(number):
            path = folder/split/f'class{k % CLASSES}'/f'ILSVRC2012_val_{k + 1:08d}.JPEG'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)).resize((48, 40)).save(path)
    (folder/'classes.txt').write_text('\n'.join(f'class{k}' for k in reversed(range(CLASSES))))
    (folder/'real.json').write_text(json.dumps([[k % CLASSES, (k + 2) % CLASSES] if k % 4 else [] for k in range(VAL_PHOTOS)]))
    (folder/'valid.txt').write_text('\n'.join(map(str, range(CLASSES))))
    make_model(folder, MODEL)
    make_model(folder, NAFLEX_MODEL, **NAFLEX_SETTINGS)
    return folder


def make_model(photos: Path, name: str, **settings):
    "Write a model that was not trained, and still answers differently to different pictures."
    import timm
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=CLASSES, **settings).eval()
    pixels = [np.asarray(Image.open(path).resize((32, 32)), np.float32).transpose(2, 0, 1) / 64 - 2 for path in photos.rglob('*.JPEG')]
    head = model.get_classifier()
    with torch.no_grad():
        features = model.forward_features(torch.tensor(np.stack(pixels)))
        if isinstance(features, dict): features = features['patches']
        features = model.forward_head(features, pre_logits=True)
        spread = features.std(0)
        head.weight.normal_().div_(spread.clamp_min(spread.mean()))
        head.bias.copy_(-(head.weight @ features.mean(0)))
    torch.save(model.state_dict(), photos/f'{name}.pth')


def words(script: str, photos: Path, folder: Path, flags: str) -> list[str]:
    "The command line of a short run on a CPU."
    model, settings = (NAFLEX_MODEL, NAFLEX_SETTINGS) if '--naflex-loader' in flags else (MODEL, {})
    common = ['--data-dir', str(photos), '--model', model, '--num-classes', str(CLASSES), '--img-size', '32', '--batch-size', '4',
              '--device', 'cpu', '--workers', '0', '--naflex-max-seq-len', '9',
              '--model-kwargs', *(f'{name}={value}' for name, value in settings.items())]
    training = ['--epochs', '1', '--warmup-epochs', '0', '--lr', '0.01', '--log-interval', '1', '--output', str(folder)]
    evaluation = ['--checkpoint', str(photos/f'{model}.pth'), '--log-freq', '1']
    own = flags.format(photos=photos, folder=folder).split()
    return [*common, *(training if script == 'train.py' else evaluation), *own]


def environment(folder: Path) -> dict[str, str]:
    "The variables of a program that sees this checkout and a folder, with one thread for torch."
    path = os.pathsep.join(map(str, [ROOT, folder, *filter(None, [os.environ.get('PYTHONPATH')])]))
    return {**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': '1', 'PYTHONDONTWRITEBYTECODE': '1'}


class ScriptRuns:
    "Runs of both scripts in one program, started now, or on two ranks of torchrun; `results` waits for it."

    def __init__(self, scripts: Path, photos: Path, folder: Path, tables: dict[str, dict[str, str]], on_ranks: bool = False):
        folder.mkdir()
        self.out, runs = folder/'out', []
        for script, table in tables.items():
            for name, flags in table.items():
                named = ['--experiment', name] if script == 'train.py' else []
                runs.append([f'{script} {name}', str(scripts/script), [*words(script, photos, folder, flags), *named]])
        (folder/'runs.json').write_text(json.dumps(runs))
        launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '2'] if on_ranks else []
        command = [sys.executable, *launcher, str(ROOT/'tests/support/run_timm_clients.py'), str(folder/'runs.json'), str(self.out)]
        self.errors = (folder/'errors.txt').open('w+')
        self.program = subprocess.Popen(command, cwd=folder, env=environment(scripts), stdout=subprocess.DEVNULL, stderr=self.errors)

    def results(self, rank: int = 0, timeout: float = 500) -> dict[str, dict]:
        "What came of each run on a rank, by script and name."
        try: code = self.program.wait(timeout)
        except subprocess.TimeoutExpired:
            self.program.terminate()   # torchrun ends its ranks
            raise
        self.errors.seek(0)
        if code: raise RuntimeError(self.errors.read()[-3000:])
        return json.loads(Path(f'{self.out}{rank}.json').read_text())


def run_ranks(scripts: Path, photos: Path, folder: Path, name: str) -> list[dict]:
    "A run of `TORCHRUN` on both ranks; one a program, since its process group ends with it."
    program = ScriptRuns(scripts, photos, folder, {'train.py': {name: TORCHRUN[name]}}, on_ranks=True)
    return [program.results(rank)[f'train.py {name}'] for rank in range(2)]


def run_own_tests(folder: Path, timeout: float = 500) -> dict:
    "timm's own tests, from a copy with the name replaced: outcome and reason of each, and which raise other words."
    copy_replaced(folder)
    out = folder/'outcomes.json'
    env = {**environment(folder), 'OUTCOMES': str(out)}
    env['PYTHONPATH'] += os.pathsep + str(ROOT/'tests/support')
    command = [sys.executable, '-m', 'pytest', '-q', 'tests', '-p', 'no:cacheprovider', '-p', 'timm_outcomes', '--tb=line',
               f'--deselect={SLOW_TESTS}']
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)
    if done.returncode not in (0, 1): raise RuntimeError(done.stdout[-3000:] + done.stderr[-1000:])
    return json.loads(out.read_text())


def expand(names: list[str], found: list[str]) -> set[str]:
    "All cases of tests."
    return {case for case in found if case in names or case.partition('[')[0] in names}
