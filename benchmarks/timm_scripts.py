"""timm's train.py and validate.py, and its own tests, with timm's name replaced: the outcome of each run, here and in timm.

    python benchmarks/timm_scripts.py

Needs timm's scripts next to the checkout (see tests/support/timm_clients.py, which lists the runs). It measures no times. The results go to
results/timm_scripts.json, from which nbs/guides/from_timm.ipynb makes its tables.
"""
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from results import write_results

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/'tests/support'))
from timm_clients import (  # noqa: E402
    FAILING_TESTS,
    OTHER_WORDS,
    SCRIPTS,
    TIMM,
    TORCHRUN,
    ScriptRuns,
    copy_replaced,
    make_photos,
    run_own_tests,
    run_ranks,
)


def outcome(run: dict) -> dict[str, Any]:
    "The recorded part of a run."
    if run['error']: return dict(error=run['error'].splitlines()[0])
    trained, evaluated = (sum(shape[0] for shape in run[part]) for part in ('train', 'eval'))
    if not trained: return dict(evaluated=evaluated, top1=run['result']['top1'])
    return dict(batches=len(run['train']), samples=trained, evaluated=evaluated)


def record(here: dict, timms: dict, ranks: dict, tests: dict):
    "Write the recorded parts of all runs."
    found = {script[:-3]: [dict(name=name, flags=flags, here=outcome(here[f'{script} {name}']), timm=outcome(timms[f'{script} {name}']))
                           for name, flags in table.items()] for script, table in SCRIPTS.items()}
    found['torchrun'] = [dict(name=name, flags=flags, here=outcome(ranks[name])) for name, flags in TORCHRUN.items()]
    found['tests'] = dict(**Counter(result for result, _ in tests['outcomes'].values()), failing=FAILING_TESTS, other_words=OTHER_WORDS)
    versions = {name: version(name) for name in ('timm', 'torch', 'torchvision', 'pillow')}
    write_results('timm_scripts', dict(model='test_resnet', device='cpu', ranks=2), versions=versions, results=found)


def main():
    "Run everything and write the results."
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        photos, scripts = make_photos(folder/'photos'), copy_replaced(folder/'scripts')
        programs = ScriptRuns(scripts, photos, folder/'here', SCRIPTS), ScriptRuns(TIMM, photos, folder/'timm', SCRIPTS)
        here, timms = (program.results() for program in programs)
        ranks = {name: run_ranks(scripts, photos, folder/name, name)[0] for name in TORCHRUN}
        record(here, timms, ranks, run_own_tests(folder/'tests'))


if __name__ == '__main__': main()
