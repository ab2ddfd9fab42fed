"The library's threads use one core; the setting of all other threads is unchanged."
import copy
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from timmdata import PrefetchLoader
from timmdata.core import cores
from timmdata.core.cores import OneCore, use_one_core
from timmdata.pipeline.batch_transform import BatchTransformSettings, DeviceTransform

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def two_cores(): torch.set_num_threads(2)


def in_a_new_thread(function):
    "Return what a function returns in a thread that has not used torch before."
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def our_threads() -> list: return [thread for thread in threading.enumerate() if thread.name.startswith('timmdata')]


def test_only_the_thread_itself_is_limited():
    def work():
        use_one_core()
        return torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)
    assert in_a_new_thread(work) == (1, 2) and torch.get_num_threads() == 2 == in_a_new_thread(torch.get_num_threads)


def test_threads_that_start_together_restore_the_number():
    start = threading.Barrier(8)
    def work():
        start.wait()
        use_one_core()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert in_a_new_thread(torch.get_num_threads) == 2


class Looking(DeviceTransform):
    "Record, while working, the number of cores of this thread and of a thread that the user starts at that time."
    def apply(self, fields, drawn):
        self.found = torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)
        return fields


def test_a_thread_that_first_uses_torch_during_our_work_keeps_all_cores():
    transform = Looking(BatchTransformSettings(None, None))
    [batch] = PrefetchLoader([(torch.zeros(2, 3, 4, 4), torch.zeros(2))], device='cpu', batch_transform=transform)
    assert len(batch) == 2 and transform.found == (1, 2) and torch.get_num_threads() == 2
    assert not our_threads()   # it ends with the pass


def test_work_on_a_device_is_not_limited():
    transform = Looking(BatchTransformSettings(None, None))
    transform.on_batch((torch.zeros(2, 3, 4, 4, device='meta'), torch.zeros(2)), [])
    assert transform.found == (2, 2)


def test_results_errors_and_ends():
    with OneCore() as on_one_core:
        assert on_one_core(divmod, 7, 2) == (3, 1) and len(our_threads()) == 1
        with pytest.raises(ZeroDivisionError): on_one_core(divmod, 7, 0)
        for other in (copy.deepcopy(on_one_core), pickle.loads(pickle.dumps(on_one_core))):
            assert other(torch.get_num_threads) == 1
            other.close()
    assert not our_threads()
    assert on_one_core(torch.get_num_threads) == 1   # it starts again
    on_one_core.close()
    on_one_core.close()
    assert not our_threads()


def test_a_thread_of_one_core_works_itself():
    torch.set_num_threads(1)
    on_one_core = OneCore()
    assert on_one_core(threading.get_ident) == threading.get_ident() and not our_threads()


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork')
def test_a_forked_process_has_its_own_thread():
    with OneCore() as on_one_core:
        on_one_core(int)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.write(write, str((on_one_core(torch.get_num_threads), torch.get_num_threads())).encode())
                on_one_core.close()
                code = 0
            finally: os._exit(code)
        os.close(write)
        with open(read) as file: assert file.read() == '(1, 2)'
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.full
@pytest.mark.skipif(os.name == 'nt', reason='no SIGINT for a process of its own')
def test_an_interrupt_of_a_torch_operation_does_not_abort_the_program():
    code = """
import os, signal, threading, torch
from timmdata.core.cores import OneCore
torch.set_num_threads(2)
numbers = torch.rand(500, 500)
def work():
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    for _ in range(100): numbers @ numbers
signal.signal(signal.SIGINT, signal.default_int_handler)
OneCore()(work)
"""
    run = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=25)
    assert 'KeyboardInterrupt' in run.stderr and 'terminate' not in run.stderr, run.stderr
    assert run.returncode != -signal.SIGABRT


def test_a_close_in_the_middle_of_a_call_loses_nothing(monkeypatch):
    "As by the collector, which ends a loop that an error has left while the next loop runs."
    on_one_core = OneCore()
    on_one_core(int)

    def close_first():
        on_one_core.close()
        return queue.SimpleQueue()

    monkeypatch.setattr(cores, 'queue', SimpleNamespace(SimpleQueue=close_first, Empty=queue.Empty))
    assert on_one_core(divmod, 7, 2) == (3, 1)      # a thread that ends before the call
    assert on_one_core(divmod, 9, 2) == (4, 1)      # a thread that is closed while it starts
    monkeypatch.undo()
    assert on_one_core(torch.get_num_threads) == 1   # it starts again
    on_one_core.close()
    assert not our_threads()
