"""Faults by kind, each against an undisturbed run; with TIMMDATA_SOAK=seconds all of them at random, for so long.

    TIMMDATA_SOAK=3600 pytest -s -q tests/guarantees/test_faults.py -k mixed

prints its seed and its counts as JSON, as in benchmarks/results/faults.json.
"""
import json
import os
import random
import signal

import pytest
from fault_runs import FAULTS, KINDS, Run, fits_here, mixed_run
from grids import few
from loader_parts import nothing_is_left, program

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(not hasattr(os, 'fork'), reason='programs are forked')]
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
SOAK = float(os.environ.get('TIMMDATA_SOAK', 0))


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> Run: return Run(tmp_path_factory.mktemp('faults'), 0)


@pytest.mark.parametrize('name', few([fault.name for fault in FAULTS], 'kill a worker or the producer'))
def test_a_fault(run, name):
    "A program that is disturbed; the next one of its kind goes on from its state."
    fault = next(fault for fault in FAULTS if fault.name == name)
    if not fits_here(fault): pytest.skip('root may read every file')
    rng = random.Random(fault.name)
    kind = rng.choice(fault.kinds)
    run.live(kind, [fault], rng)


@pytest.mark.full
@pytest.mark.parametrize('kind', KINDS)
def test_forks(run, kind):
    "Every kind of loader in a copy of the program: refused there, and undisturbed here."
    fork = next(fault for fault in FAULTS if fault.group == 'forks')
    run.live(kind, [fork, fork], random.Random(kind))


@pytest.mark.skipif(not SOAK, reason='a soak test: set TIMMDATA_SOAK to its seconds')
@pytest.mark.timeout(0)
def test_mixed_faults(tmp_path):
    report = mixed_run(SOAK, tmp_path)
    print(json.dumps(report))
    assert report['batches']


@pytest.mark.full
@pytest.mark.parametrize('settings', [
    "num_workers=0, buffer={'batches': 6, 'directory': folder}", "num_workers=1, worker_type='processes'"])
def test_a_child_that_begins_slowly_may_miss_sigterm_and_does_not_keep_its_program(tmp_path, settings):
    "A copy has the program's handler until it has set its own: Python's SIGTERM at the end is lost, and its join has no limit."
    started = program(f'''
folder = {str(tmp_path/'buffer')!r}
loader = create_loader(Coded(64), 8, 4, device='cpu', {settings})
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGALRM, signal.default_int_handler)   # as Ctrl-C, for this process alone
os.register_at_fork(after_in_child=lambda: time.sleep(2), after_in_parent=lambda: signal.setitimer(signal.ITIMER_REAL, 0.2))
for batch in loader: pass
''')
    try: code, _, errors = started.end(30)
    finally: started.kill()
    assert code in (1, -signal.SIGINT) and 'KeyboardInterrupt' in errors   # later Pythons end by the signal itself
