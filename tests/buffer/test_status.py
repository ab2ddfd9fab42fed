"What `timmdata buffer` prints and removes, while programs run and after they were killed."
import json

import pytest
from buffer_parts import buffered, flip, reading, values
from grids import full
from loader_parts import nothing_is_left, program, wait_until

from timmdata.buffer import buffer_status
from timmdata.cli import main

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


def said(capsys, *arguments):
    "Return what a command prints, its errors, and its exit status."
    status = main(['buffer', *map(str, arguments)])
    return *capsys.readouterr(), status


@full
def test_commands_while_programs_run(tmp_path, capsys):
    "A buffer in use shows its status and cannot be removed; after a kill, it can."
    directory = tmp_path/'buffer'
    run = program(reading(tmp_path, 10**6, 0.01))
    run.wait_for('ready')
    wait_until(lambda: buffer_status(directory)['used'] > 0, 'no batch is used')
    out, errors, status = said(capsys, 'status', directory)
    assert status == 0 and errors == '' and 'of 8 batches waiting' in out and 'training: epoch' in out
    assert 'not running' not in out and 'no producer' not in out
    found = json.loads(said(capsys, 'status', directory, '--json')[0])
    assert found['training'].startswith(f'process {run.process.pid} on ')
    assert found['producer'].startswith(f'process {run.process.children()[0].pid} on ')
    assert found['capacity'] == 8 and 0 <= found['waiting'] <= 8
    out, errors, status = said(capsys, 'remove', directory)
    assert (out, status) == ('', 2) and f'is in use by process {run.process.pid} on' in errors and errors.count('\n') == 1
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    wait_until(lambda: buffer_status(directory)['producer'] is None, 'its producer lives')
    out = said(capsys, 'status', directory)[0]
    assert 'no producer is running' in out and 'not running, last seen' in out
    (directory/'mine').touch()   # a file of somebody else's stays
    assert said(capsys, 'remove', directory)[2] == 0 and [path.name for path in directory.iterdir()] == ['mine']
    directory.chmod(0o755)   # as any folder is; to change that would not make it a buffer
    out, errors, status = said(capsys, 'status', directory)
    assert status == 2 and 'there is no buffer in' in errors


@pytest.mark.parametrize('harm', ['identity', 'cursor'])
def test_damaged_buffers_are_told_and_removed(tmp_path, capsys, harm):
    buffer, directory = buffered(tmp_path), tmp_path/'buffer'
    values(buffer, 3)
    buffer.close()
    if harm == 'identity': (directory/'identity').write_text('{"store": 3}')
    else: flip(directory/'cursor', 20)
    out, errors, status = said(capsys, 'status', directory)
    assert (out, status) == ('', 2) and errors.startswith('timmdata: error: ') and errors.count('\n') == 1
    assert said(capsys, 'remove', directory)[2] == 0 and not directory.exists()
