"What `timmdata buffer` says and removes, while programs run and after they were killed."
import json

import pytest
from buffer_parts import buffered, flip, reading, values
from loader_parts import nothing_is_left, program, wait_until

from timmdata.buffer import buffer_status
from timmdata.cli import main

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


def said(capsys, *arguments):
    "What a command prints, its errors, and its exit status."
    status = main(['buffer', *map(str, arguments)])
    return *capsys.readouterr(), status


def test_commands_while_programs_run(tmp_path, capsys):
    "Status of a buffer in use, and what is refused; after a kill, a reader is dropped, and the buffer removed."
    directory = tmp_path/'buffer'
    run = program(reading(tmp_path, 'main', 10**6, 0.01))
    run.wait_for('ready')
    wait_until(lambda: buffer_status(directory)['used_per_s'] > 0, 'no batch is used')
    out, errors, status = said(capsys, 'status', directory)
    assert status == 0 and errors == '' and 'of 8 batches wait' in out and 'lasts' in out and 'not running' not in out
    found = json.loads(said(capsys, 'status', directory, '--json')[0])
    reader = found['readers']['main']
    assert found['producer_is_alive'] and reader['is_alive'] and reader['process'] == run.process.pid
    assert found['capacity'] == 8 and 0 <= found['waiting'] <= 8 and found['produced_per_s'] > 0
    for arguments, message in (['drop', directory], "is used by reader 'main' (process"), (
            ['drop', directory, '--reader', 'main'], 'which is alive: end it first'):
        out, errors, status = said(capsys, *arguments)
        assert (out, status) == ('', 2) and message in errors and errors.count('\n') == 1
    run.kill()
    wait_until(lambda: run.read('code'), 'it is killed')
    wait_until(lambda: not buffer_status(directory)['producer_is_alive'], 'its producer lives')
    out = said(capsys, 'status', directory)[0]
    assert '(no producer runs)' in out and 'not running, last seen' in out
    assert said(capsys, 'drop', directory, '--reader', 'other')[1:] == (
        "timmdata: error: the buffer has no reader 'other'\n", 2)
    assert said(capsys, 'drop', directory, '--reader', 'main') == ("reader 'main' was dropped\n", '', 0)
    (directory/'mine').touch()   # a file of somebody else's stays
    assert said(capsys, 'drop', directory)[2] == 0 and [path.name for path in directory.iterdir()] == ['mine']
    directory.chmod(0o755)   # as any folder is; to change that would not make it a buffer
    out, errors, status = said(capsys, 'status', directory)
    assert status == 2 and 'there is no buffer in' in errors


@pytest.mark.parametrize('harm', ['identity', 'readers'])
def test_damaged_buffers_are_told_and_removed(tmp_path, capsys, harm):
    buffer, directory = buffered(tmp_path), tmp_path/'buffer'
    values(buffer, 3)
    buffer.close()
    if harm == 'identity': (directory/'identity').write_text('{"store": 3}')
    else: flip(directory/'main.reader', 20)
    out, errors, status = said(capsys, 'status', directory)
    assert (out, status) == ('', 2) and errors.startswith('timmdata: error: ') and errors.count('\n') == 1
    assert said(capsys, 'drop', directory)[2] == 0 and not directory.exists()
