"What a run uses of the machine, and loaders that take turns."
import subprocess
import sys

import pytest

from timmdata.measure.machine import cpu_seconds, in_turns


def test_cpu_of_ended_children_is_kept():
    before = cpu_seconds()
    subprocess.run([sys.executable, '-c', 'import time\nwhile time.process_time() < 0.3: pass'], check=True)
    assert 0.25 < cpu_seconds() - before < 2


@pytest.mark.parametrize('slow_from, counted', [(99, [0, 1, 2, 3]), (2, [0, 1, 2]), (0, [0, 1])])
def test_rounds_end_in_time(monkeypatch, slow_from, counted):
    "A round of 10 s, or of 80 s, in 90 s; one that follows the first is always counted."
    clock = [0.]
    monkeypatch.setattr('timmdata.measure.machine.time.perf_counter', lambda: clock[0])
    rounds = []
    for number, name in in_turns(['one', 'two'], rounds=3, seconds=90.):
        clock[0] += 40. if number >= slow_from else 5.
        if name == 'one': rounds.append(number)
    assert rounds == counted


def test_no_bar_is_shown_unasked(capsys):
    assert len(list(in_turns(['one'], rounds=2))) == 3 and capsys.readouterr().err == ''
