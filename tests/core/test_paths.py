"Files that are written whole: several writers at once, links in the way, and power that may fail."
import os
import threading

import pytest

from timmdata.core.paths import replace_file

pytestmark = pytest.mark.timeout(60)


def test_writers_at_once_do_not_mix(tmp_path):
    "Threads have one process number, and so may two containers that share a folder."
    path, barrier, errors = tmp_path/'index', threading.Barrier(4), []

    def write(value: int):
        try:
            with replace_file(path) as file:
                for _ in range(3):
                    barrier.wait(20)
                    file.write(bytes([value]) * 5000)
                    file.flush()
        except Exception as error: errors.append(error)

    threads = [threading.Thread(target=write, args=(value,)) for value in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    content = path.read_bytes()
    assert not errors and len(content) == 15_000 and len(set(content)) == 1
    assert os.listdir(tmp_path) == ['index']


def test_a_file_is_new_and_has_the_usual_mode(tmp_path):
    old = os.umask(0o022)
    try:
        with replace_file(tmp_path/'report') as file: file.write(b'x')
    finally: os.umask(old)
    if os.name == 'posix': assert (tmp_path/'report').stat().st_mode & 0o777 == 0o644


def test_the_disk_has_it_before_it_gets_its_name(tmp_path, monkeypatch):
    steps, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, 'fsync', lambda fd: (steps.append(os.fstat(fd).st_size), fsync(fd)))
    monkeypatch.setattr(os, 'replace', lambda *args: (steps.append('renamed'), replace(*args)))
    with replace_file(tmp_path/'copy', sync=True) as file: file.write(b'12345')   # still in Python's buffer
    with replace_file(tmp_path/'note') as file: file.write(b'12345')
    assert steps == [5, 'renamed', 'renamed']
