"What a run uses of the machine, and loaders that take turns."
import subprocess
import sys

import pytest

from timmdata.measure.machine import cpu_seconds, in_turns


def test_cpu_of_ended_children_is_kept():
    if (before := cpu_seconds()) is None: pytest.skip('no /proc')
    subprocess.run([sys.executable, '-c', 'import time\nwhile time.process_time() < 0.3: pass'], check=True)
    assert 0.25 < cpu_seconds() - before < 2


@pytest.mark.parametrize('slow_from, counted', [(99, [0, 1, 2, 3]), (1, [0, 1])])
def test_rounds_end_within_what_was_announced(capsys, monkeypatch, slow_from, counted):
    clock = [0.]
    monkeypatch.setattr('timmdata.measure.machine.time.perf_counter', lambda: clock[0])
    rounds = []
    for number, name in in_turns(['one', 'two'], '2 loaders in turns', rounds=3, progress=True):
        clock[0] += 40. if number >= slow_from else 5.
        if name == 'one': rounds.append(number)
    said = capsys.readouterr().err
    assert rounds == counted and '2 loaders in turns: 3 rounds, 45 s at most' in said
    assert ('the time is over after 1 of 3 rounds' in said) == (slow_from == 1)


def test_nothing_is_announced_unasked(capsys):
    assert len(list(in_turns(['one'], 'one', rounds=2))) == 3 and capsys.readouterr().err == ''
