"Forked processes that do not start are replaced."
import pytest
from grids import few
from loader_parts import program

pytestmark = pytest.mark.timeout(120)

STUCK = '''
import os
from contextlib import suppress
from timmdata.core import processes
processes._SECONDS_TO_BEGIN = 0.5

def wait_as_if_for_a_lock():
    with suppress(FileExistsError):
        if {times} == 1: open({mark!r}, 'x').close()
        time.sleep(600)

os.register_at_fork(after_in_child=wait_as_if_for_a_lock)
warnings.simplefilter('always')
loader = create_loader(Coded(16), 8, 4, num_workers=2, worker_type='processes', multiprocessing_context='fork', device='cpu',
                       buffer={buffer})
try: print(sum(len(targets) for _, targets in loader), 'samples')
finally: loader.close()
'''


@pytest.mark.parametrize('buffer', few([None, dict(batches=4)], None))
def test_a_forked_process_that_does_not_begin_is_replaced(tmp_path, buffer):
    code = STUCK.format(times=1, mark=str(tmp_path/'mark'), buffer=buffer and {**buffer, 'directory': str(tmp_path/'buffer')})
    exit_code, out, errors = program(code, 'import time, warnings').end(60)
    assert (exit_code, out) == (0, '16 samples\n'), errors
    assert 'a forked process did not start' in errors and 'another process replaces it' in errors


@pytest.mark.full
def test_a_program_whose_forks_never_begin_is_told_what_to_give(tmp_path):
    exit_code, _, errors = program(STUCK.format(times=100, mark='', buffer=None), 'import time, warnings').end(60)
    assert exit_code == 1 and 'did not start within 0.5 s each' in errors and "pass multiprocessing_context='spawn'" in errors
