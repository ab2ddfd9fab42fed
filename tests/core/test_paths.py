"Files are written completely: with several writers at once, links in place of files, and power failures."
import errno
import os
import stat
import threading
from contextlib import nullcontext

import pytest

from timmdata.core.paths import replace_file

pytestmark = pytest.mark.timeout(60)


def test_writers_at_once_do_not_mix(tmp_path):
    "Threads share one process ID, and two containers that share a folder may have the same one."
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
    def synced(fd):
        found = os.fstat(fd)
        steps.append('folder' if stat.S_ISDIR(found.st_mode) else found.st_size)
        fsync(fd)
    monkeypatch.setattr(os, 'fsync', synced)
    monkeypatch.setattr(os, 'replace', lambda *args: (steps.append('renamed'), replace(*args)))
    with replace_file(tmp_path/'copy', sync=True) as file: file.write(b'12345')   # still in Python's buffer
    with replace_file(tmp_path/'note') as file: file.write(b'12345')
    assert steps == [5, 'renamed', 'folder', 'renamed']   # and so has the folder


@pytest.mark.parametrize('code, is_error', [(errno.EINVAL, False), (errno.EOPNOTSUPP, False), (errno.EIO, True), (errno.ENOSPC, True)])
def test_a_folder_that_cannot_be_synced_is_an_error_only_if_the_disk_is_at_fault(tmp_path, monkeypatch, code, is_error):
    def synced(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode): raise OSError(code, 'no')
    monkeypatch.setattr(os, 'fsync', synced)
    with pytest.raises(OSError) if is_error else nullcontext(), replace_file(tmp_path/'copy', sync=True) as file: file.write(b'12345')
    assert (tmp_path/'copy').read_bytes() == b'12345'
