"Resources that a run uses, and loaders that take turns."
import io
import platform
import subprocess
import sys
import time

import pytest
import torch

from timmdata.core.cores import available_cores
from timmdata.measure import machine
from timmdata.measure.machine import (
    Pass,
    compare_speeds,
    cpu_seconds,
    describe_machine,
    format_machine,
    in_turns,
    machine_seconds,
    processor_name,
    run_pass,
)


@pytest.mark.parametrize('family, model, name, expected', [
    (25, 1, 'AMD EPYC 7763 64-Core Processor', 'AMD EPYC 7763 64-Core Processor'),
    (25, 17, 'AMD EPYC', 'AMD EPYC'),   # as virtual machines report it
    (23, 49, 'AMD EPYC Processor (with IBPB)', 'AMD EPYC Processor'),
    (6, 106, 'Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz', 'Intel Xeon Platinum 8375C CPU @ 2.90GHz')])
def test_a_processor_is_named_with_its_numbers(tmp_path, family, model, name, expected):
    one = f'cpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\nflags\t\t: fpu hypervisor\npower management:\n'
    path = tmp_path/'cpuinfo'
    path.write_text(f'processor\t: 0\n{one}\nprocessor\t: 1\n{one}', encoding='utf-8')
    assert processor_name(str(path)) == f'{expected}, family {family}, model {model}'


@pytest.mark.parametrize('text', [None, '', 'processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n'])
def test_a_processor_without_a_name_is_named_by_python(tmp_path, text):
    "No such file (macOS, Windows), or one without names (ARM)."
    path = tmp_path/'cpuinfo'
    if text is not None: path.write_text(text, encoding='utf-8')
    assert processor_name(str(path)) == (platform.processor() or platform.machine()) != ''


def test_the_description_of_a_machine_names_its_processor():
    machine = describe_machine()
    assert machine['cpu'] == processor_name() and f', {machine["cpu"]}, {machine["cores"]} cores' in format_machine(machine)


def test_cpu_of_ended_children_is_kept():
    before = cpu_seconds()
    subprocess.run([sys.executable, '-c', 'import time\nwhile time.process_time() < 0.3: pass'], check=True)
    assert 0.25 < cpu_seconds() - before < 2


@pytest.mark.parametrize('slow_from, counted', [(99, [0, 1, 2, 3]), (2, [0, 1, 2]), (0, [0, 1])])
def test_rounds_end_in_time(monkeypatch, slow_from, counted):
    "Rounds of 10 s or 80 s with a limit of 90 s; one round after the warm-up always counts."
    clock = [0.]
    monkeypatch.setattr('timmdata.measure.machine.time.perf_counter', lambda: clock[0])
    rounds = []
    for number, name in in_turns(['one', 'two'], rounds=3, seconds=90.):
        clock[0] += 40. if number >= slow_from else 5.
        if name == 'one': rounds.append(number)
    assert rounds == counted


def test_no_bar_is_shown_unasked(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', said := io.StringIO())
    said.isatty = lambda: True
    assert len(list(in_turns(['one'], rounds=2))) == 3 and said.getvalue() == ''


# ---- what other programs use

def spin(seconds: float, number: int = 1) -> list[subprocess.Popen]:
    "Programs that keep one core each busy; they are child processes, but are measured as other programs."
    code = f'import time\nend = time.time() + {seconds}\nwhile time.time() < end: pass'
    return [subprocess.Popen([sys.executable, '-c', code]) for _ in range(number)]


def test_without_psutil_nothing_is_known(monkeypatch):
    monkeypatch.setattr(machine, 'psutil', None)
    assert cpu_seconds() is None and machine_seconds() is None
    done = run_pass([(torch.zeros(4, 3, 2, 2), torch.zeros(4))])
    assert done.cpu_seconds is done.other_seconds is None
    trial, = compare_speeds({'one': lambda: done}, rounds=1)
    assert trial.busy is trial.others is None and trial.rounds == 1


@pytest.mark.parametrize('spare, others', [(0, 1.5), (1, 0.5), (62, 0.)])
def test_a_trial_says_what_others_used_of_the_cores_of_a_container(monkeypatch, spare, others):
    "Two rounds of 1 s, in which other programs used 1 and 2 s; cores beyond the quota are left to them."
    monkeypatch.setattr(machine, '_my_cores', lambda: set(range(available_cores() + spare)))
    passes = iter([Pass(8, 1., 0.5, 9.), Pass(8, 1., 0.5, 1.), Pass(8, 1., 0.5, 2.)])   # the first is the warm-up
    trial, = compare_speeds({'one': lambda: next(passes)}, rounds=2)
    assert trial.others == others and trial.busy == 0.5 and trial.rounds == 2


@pytest.mark.full
def test_a_busy_program_is_seen(monkeypatch):
    "One program per core counts as other programs: the test excludes child processes from the own time."
    class Waits:
        def __iter__(self):
            time.sleep(0.7)
            yield torch.zeros(4, 3, 2, 2), torch.zeros(4)

    children = spin(20, available_cores())
    monkeypatch.setattr(machine, 'cpu_seconds', time.process_time)
    try: trial, = compare_speeds({'one': lambda: run_pass(Waits())}, rounds=1)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert trial.others > 0.7 * available_cores() and trial.busy < 0.3
