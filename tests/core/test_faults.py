"The bad-sample log: lines are complete if several processes write, if there are many, and after a full disk."
import errno
import os
import pickle
import re
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from timmdata.core import faults
from timmdata.core.faults import BadSample, BadSampleLog, FaultPolicy, ImageReadError

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore::RuntimeWarning')]


def bad(index: int, path: str = 'a.jpg') -> BadSample: return BadSample(index, path, 'cause', None)


def test_half_a_line_that_another_process_writes_is_passed_over():
    log = BadSampleLog()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        log.append(BadSample(3, 'a.jpg', 'cause', None))
        with open(log.path, 'ab') as file: file.write(b'[4, "b.j')
        assert [sample.index for sample in log.records()] == [3]
        with open(log.path, 'ab') as file: file.write(b'pg", "cause", null]\n')
        log.append(BadSample(5, 'c.jpg', 'cause', None))
    assert [sample.index for sample in log.records()] == [3, 4, 5]


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_log_keeps_whole_lines_when_many_write():
    log, processes = BadSampleLog(), []
    for worker in range(4):
        pid = os.fork()
        if not pid:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter('ignore')
                    for k in range(50):
                        log.append(BadSample(worker * 50 + k, os.fsdecode(b'n\xff') * 300, 'cause', None))
            finally: os._exit(0)
        processes.append(pid)
    for pid in processes: os.waitpid(pid, 0)
    assert [s.index for s in log.records()] == list(range(200))
    assert {s.path for s in log.records()} == {os.fsdecode(b'n\xff') * 300}


def test_a_torn_line_costs_itself_and_no_neighbor(monkeypatch):
    log, write = BadSampleLog(), os.write
    log.append(bad(1))
    monkeypatch.setattr(faults.os, 'write', lambda file, line: write(file, line[:len(line) // 2]))   # a full disk
    with pytest.raises(OSError, match='bad-sample log.*index 2') as raised: log.append(bad(2))
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    copy = BadSampleLog(log.path)
    copy.append(bad(3))
    log.append(bad(4))
    assert [sample.index for sample in log.records()] == [sample.index for sample in copy.records()] == [1, 3, 4]
    log.append(bad(2))   # again, now that there is space
    assert [sample.index for sample in copy.records()] == [1, 2, 3, 4]


def test_an_append_costs_the_same_however_long_the_log_is():
    def seconds(num):
        log, start = BadSampleLog(), time.process_time()
        for k in range(num): log.append(bad(k, 'n' * 200))
        assert len(log.records()) == num
        return time.process_time() - start
    assert seconds(4000) < 4 * 3 * seconds(1000)   # it would be 16 times as much if each append read the whole file


@pytest.mark.parametrize('bad', [set(), {3}, {3, 7, 8}, set(range(10))], ids=len)
@pytest.mark.parametrize('on_error', ['raise', 'skip', 'replace'])
def test_an_attempt_ends_with_a_sample_an_error_or_a_line_in_the_log(on_error, bad):
    policy, tried = FaultPolicy(on_error, max_retries=30), []

    def read_one(index):
        tried.append(index)
        if index in bad: raise EOFError('the file ends early')
        return index

    def read(): return policy.attempt(3, read_one, 'dog/{}.jpg'.format, 10)

    if 3 in bad and (on_error == 'raise' or on_error == 'replace' and len(bad) == 10):
        with pytest.raises(ImageReadError, match=re.escape('dog/3.jpg (index 3): EOFError: the file ends early')): read()
        assert len(tried) == (1 if on_error == 'raise' else 31) and not policy.log.records()
        return
    with warnings.catch_warnings(record=True): last = read()
    assert (last is None) == (3 in bad and on_error == 'skip')
    assert last in (None, tried[-1])
    assert [sample[:2] for sample in policy.log.records()] == ([(3, 'dog/3.jpg')] if bad else [])
    assert tried[0] == 3 and all(index in bad for index in tried[:-1])
    if on_error == 'replace' and bad: assert policy.log.records()[0].replaced_by == last and last not in bad


@pytest.mark.parametrize('error', [MemoryError(), OSError(errno.EMFILE, 'too many open files'), ZeroDivisionError()], ids=repr)
def test_a_fault_of_the_machine_or_of_a_program_passes_an_attempt(error):
    def failing(index): raise error

    with pytest.raises(type(error)):
        FaultPolicy('skip').attempt(0, failing, str, 10)


def raised_by(error):
    "Return the error that a policy raises for a read error."
    def failing(index): raise error

    with pytest.raises(ImageReadError) as raised: FaultPolicy().attempt(3, failing, 'dog/{}.jpg'.format, 10)
    return raised.value


def test_an_error_has_its_advice_apart():
    "A command has its own options, so it must be able to print the error without the advice for Python users."
    error = raised_by(EOFError('the file ends early'))
    named = 'cannot read dog/3.jpg (index 3): EOFError: the file ends early'
    assert error.named == named and error.advice.startswith("Use on_error='skip'") and str(error) == f'{named}. {error.advice}'
    copy = pickle.loads(pickle.dumps(error))   # as it comes from a worker
    assert (copy.named, copy.advice, str(copy), copy.cause) == (named, error.advice, str(error), 'EOFError: the file ends early')
    copy.advice = 'Use --skip'
    assert str(copy) == f'{named}. Use --skip' and str(ImageReadError('no advice')) == ImageReadError('no advice').named == 'no advice'


def failure_of(path):
    with pytest.raises(OSError) as raised: open(path, 'rb')
    return raised.value


def test_a_missing_file_is_not_to_be_skipped(tmp_path, monkeypatch):
    "The error names the folder and, depending on what exists, what may be wrong."
    (tmp_path/'cat').mkdir()
    (tmp_path/'cat'/'link.jpg').symlink_to(tmp_path/'gone.jpg')
    monkeypatch.chdir(tmp_path/'cat')
    for path, told in ((tmp_path/'cat'/'3.jpg', f'The folder {tmp_path}/cat does not contain it: it was moved'),
                       (tmp_path/'dog'/'3.jpg', f'There is no folder {tmp_path}/dog: it was moved.* disk is not mounted'),
                       (tmp_path/'cat'/'link.jpg', f'{tmp_path}/cat/link.jpg is a link to {tmp_path}/gone.jpg, which does not exist'),
                       ('data/3.jpg', f'There is no folder {tmp_path}/cat/data: the path is relative, '
                                      f'and the working directory is {tmp_path}/cat'),
                       (b'3.jpg', f'The folder {tmp_path}/cat does not contain it: the path is relative')):
        error = raised_by(failure_of(path))
        assert re.search(told, str(error)) and 'on_error' not in str(error) and 'make the dataset again' in str(error), error
    stored = raised_by(FileNotFoundError('there is no object s3://bucket/cat/3.jpg'))
    assert 'deleted after the dataset was made' in str(stored) and 'on_error' not in str(stored)


def test_a_file_that_may_not_be_read_needs_a_permission():
    error = raised_by(PermissionError(errno.EACCES, 'Permission denied', '/data/cat/3.jpg'))
    assert error.advice == 'Give your user the permission to read /data/cat/3.jpg'


# ---- one warning, and a file that may not be there

def heard(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        function()
    return caught


def test_many_bad_samples_are_one_warning_at_the_line_of_the_user():
    policy = FaultPolicy('skip')
    def failing(index): raise EOFError('the file ends early')

    caught = heard(lambda: [policy.attempt(index, failing, 'dog/{}.jpg'.format, 100) for index in (7, 3, 7, 50)])
    assert [(one.filename, one.category) for one in caught] == [(__file__, RuntimeWarning)]
    assert re.search(r'dog/7.jpg \(index 7\) is skipped: EOFError.*dataset.bad_samples lists all', str(caught[0].message))
    assert [sample.index for sample in policy.log.records()] == [3, 7, 50]
    assert not heard(lambda: pickle.loads(pickle.dumps(policy)).attempt(60, failing, str, 100))   # in another process


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_of_many_processes_one_warns():
    log, processes = BadSampleLog(), []
    for worker in range(6):
        pid = os.fork()
        if not pid: os._exit(len(heard(lambda worker=worker: [log.append(bad(worker * 10 + k)) for k in range(10)])))
        processes.append(pid)
    assert sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes) == 1 and len(log.records()) == 60


def test_a_log_needs_no_folder_until_the_first_bad_sample(monkeypatch, tmp_path):
    "A read-only file system has no folder for temporary files."
    def without(): raise FileNotFoundError(errno.ENOENT, 'No usable temporary directory found')

    monkeypatch.setattr(tempfile, 'gettempdir', without)
    access = os.access
    monkeypatch.setattr(os, 'access', lambda path, mode: access(path, mode) and path != '/dev/shm')
    log = BadSampleLog()
    copy = pickle.loads(pickle.dumps(log))
    assert log.records() == copy.records() == []
    with pytest.raises(OSError, match='no folder for the log of bad samples.*set the environment variable TMPDIR'): log.append(bad(1))
    monkeypatch.setattr(tempfile, 'gettempdir', lambda: str(tmp_path))   # mounted later
    copy.append(bad(2))
    log.append(bad(3))
    assert [sample.index for sample in log.records()] == [sample.index for sample in copy.records()] == [2, 3]
    assert len(list(tmp_path.iterdir())) == 1
    del log
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.access('/dev/shm', os.W_OK), reason='no memory folder')
def test_a_container_without_a_temporary_folder_logs_to_shared_memory(monkeypatch):
    def without(): raise FileNotFoundError(errno.ENOENT, 'No usable temporary directory found')

    monkeypatch.setattr(tempfile, 'gettempdir', without)
    log = BadSampleLog()
    log.append(bad(1))
    assert Path(log.path).parent == Path('/dev/shm') and pickle.loads(pickle.dumps(log)).records() == [bad(1)]
    path = Path(log.path)
    del log
    assert not path.exists()


@pytest.mark.parametrize('what', ['file', 'folder'])
def test_a_cleaner_of_temporary_files_takes_no_samples(monkeypatch, tmp_path, what):
    "Each process writes again what it knows, and the others read it, however often the file is removed."
    (tmp_path/'tmp').mkdir()
    monkeypatch.setattr(tempfile, 'gettempdir', lambda: str(tmp_path/'tmp'))
    log = BadSampleLog()
    copy = BadSampleLog(log.path)
    def clean(): Path(log.path).unlink() if what == 'file' else shutil.rmtree(tmp_path/'tmp')
    def known(one): return [sample.index for sample in one.records()]

    log.append(bad(1, 'x' * 300))
    copy.append(bad(2))
    assert known(log) == known(copy) == [1, 2]
    clean()
    assert known(log) == [1, 2] and known(BadSampleLog(log.path)) == [1, 2]   # written again as soon as it was noticed
    clean()
    copy.append(bad(3))
    assert known(copy) == known(log) == known(BadSampleLog(log.path)) == [1, 2, 3]
    clean()
    newcomer = BadSampleLog(log.path)
    for k in range(4, 40): newcomer.append(bad(k, 'y' * 40))   # longer than the old file
    assert known(log) == known(newcomer) == list(range(1, 40))
    assert known(copy) == list(range(1, 40))
