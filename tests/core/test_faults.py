"The bad-sample log: whole lines, whoever writes at the same time, however many there are, and whatever a full disk leaves."
import errno
import os
import re
import time
import warnings

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
    assert seconds(4000) < 4 * 3 * seconds(1000)   # 16 times as much, where each append reads all


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
