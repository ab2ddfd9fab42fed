"How many cores a process may use: with fake control groups, and as one of several ranks."
import os

import pytest

from timmdata.core import cores
from timmdata.core.cores import available_cores, cpu_quota


def version_1(folder, quota, period='100000\n') -> str:
    (folder/'cpu').mkdir()
    (folder/'cpu/cpu.cfs_quota_us').write_text(quota)
    (folder/'cpu/cpu.cfs_period_us').write_text(period)
    return str(folder)


def version_2(folder, text) -> str:
    (folder/'cpu.max').write_text(text)
    return str(folder)


@pytest.mark.parametrize('make, text, expected', [
    (version_1, '200000\n', 2), (version_1, '50000\n', 0.5), (version_1, '-1\n', None), (version_1, '', None), (version_1, 'junk', None),
    (version_2, '200000 100000\n', 2), (version_2, '150000 50000\n', 3), (version_2, 'max 100000\n', None), (version_2, '7', None),
    (version_2, '1 0', None)])
def test_the_quota_of_a_container(make, text, expected, tmp_path): assert cpu_quota(make(tmp_path, text)) == expected


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(str(tmp_path)) is None
    version_1(tmp_path, '200000', '')
    assert cpu_quota(str(tmp_path)) is None   # an incomplete tree


@pytest.mark.parametrize('own, parent, quota, ranks, expected', [
    (64, 64, None, None, 64), (64, 64, None, '1', 64), (64, 64, None, '8', 8), (64, 64, None, '7', 9), (4, 4, None, '8', 1),
    (64, 64, 2, None, 2), (64, 64, 2, '8', 1), (64, 64, 16, '8', 2), (64, 64, 0.2, None, 1), (64, 64, 1.6, None, 2), (4, 4, 16, None, 4),
    (8, 64, None, '8', 8),     # the launcher has bound each rank to its own cores
    (32, 64, None, '8', 8),    # or to half of the machine
    (16, 16, None, '2', 8),    # a container with fewer cores, which its ranks share
    (8, 64, 16, '8', 2),
    (64, 64, None, 'many', 64), (64, 64, None, '0', 64), (64, 64, None, '', 64)])
def test_ranks_of_a_machine_share_its_cores(own, parent, quota, ranks, expected, monkeypatch):
    of_process = {0: own, os.getppid(): parent}
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(of_process[pid])), raising=False)
    monkeypatch.setattr(cores, 'cpu_quota', lambda: quota)
    monkeypatch.delenv('LOCAL_WORLD_SIZE', raising=False)
    if ranks is not None: monkeypatch.setenv('LOCAL_WORLD_SIZE', ranks)
    assert available_cores() == expected


def test_a_parent_that_cannot_be_asked_changes_nothing(monkeypatch):
    def affinity(pid):
        if pid: raise ProcessLookupError
        return {*range(8)}
    monkeypatch.setattr(os, 'sched_getaffinity', affinity, raising=False)
    monkeypatch.setattr(cores, 'cpu_quota', lambda: None)
    monkeypatch.setenv('LOCAL_WORLD_SIZE', '2')
    assert available_cores() == 4


def test_a_system_without_affinity_has_the_cores_of_the_machine(monkeypatch):
    "Such as macOS and Windows."
    monkeypatch.delattr(os, 'sched_getaffinity', raising=False)
    monkeypatch.setattr(os, 'cpu_count', lambda: 12)
    monkeypatch.setattr(cores, 'cpu_quota', lambda: None)
    monkeypatch.setenv('LOCAL_WORLD_SIZE', '4')
    assert available_cores() == 3
