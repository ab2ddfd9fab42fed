"tools/pages.py runs notebooks as nbdev_test does, and finds each cell that fails or no longer says what its page shows."
import os
import subprocess
import sys

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from notebooks import FRAMEWORKS, find_notebooks, needed, read_notebook
from save import execute, join_streams
from synthetic import ROOT, code, notebook, stream, write_notebook

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]
NBDEV_TEST = os.path.join(os.path.dirname(sys.executable), 'nbdev_test')
VALUE = {'output_type': 'execute_result', 'execution_count': 1, 'metadata': {}}
LONG = {'data': {'text/plain': f"[{'a' * 60!r},\n {'b' * 60!r}]"}}
FAILING = {   # by name: a notebook, and what is said about it by `nbdev_test` and by our tool
    'fails': (notebook(code('x = 1'), code('assert x == 2, "x is not two"'), code('print("not reached")')), 'x is not two'),
    'syntax': (notebook(code('def f(:')), 'SyntaxError'),
    'missing': (notebook(code('import nowhere_to_be_found')), 'ModuleNotFoundError'),
    'exits': (notebook(code('raise SystemExit')), 'SystemExit')}
STALE = {   # by name: a notebook, and what our tool says about it; `nbdev_test` has no objection
    'text': (notebook(code('print(1 + 1)', stream('3\n'))), 'the page shows\n3\nand the cell says now\n2\n'),
    'value': (notebook(code('[2]', {**VALUE, 'data': {'text/plain': '[1]'}})), 'the page shows\n[1]\nand the cell says now\n[2]\n'),
    'silent': (notebook(code('x = 1', stream('1\n'))), 'the page shows\n1\nand the cell says now\n\n')}
FRESH = {
    'text': notebook(code('print("as stored")', stream('as stored\n')), code('["a" * 60, "b" * 60]', {**VALUE, **LONG})),
    'volatile': notebook(code('print(object(), "/tmp/xyz", "took 1.25 s")', stream('<object object at 0x7f> /tmp/abc took 3 s\n'))),
    'marked': notebook(code('#| eval: false\nraise ValueError', stream('2\n')), code('#| notest\nraise ValueError'),
                       code('#| hide\nran = True'), code('assert ran')),
    'framework': notebook(code('#| lightning\nimport nowhere_to_be_found', stream('recorded elsewhere\n'))),
    'package': notebook(code('import timmdata'), code(f'assert timmdata.__file__.startswith({str(ROOT)!r})'))}


@pytest.fixture(scope='module')
def caches(tmp_path_factory) -> dict[str, str]:
    "Folders that pages write to, in place of the user's."
    base = tmp_path_factory.mktemp('caches')
    return {'TIMMDATA_CACHE': str(base/'cache'), 'IPYTHONDIR': str(base/'ipython'), 'MPLCONFIGDIR': str(base/'mpl')}


def run(folder, caches, *options: str, program=('tools/pages.py',)) -> subprocess.CompletedProcess:
    command = [sys.executable, *program, '--path', str(folder), *options]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **caches}, capture_output=True, text=True)


def failed(done) -> set[str]:
    "The names of the notebooks that failed, as nbdev lists them at its end."
    return {line.strip().removesuffix('.ipynb') for line in done.stderr.split('='*50)[-1].split('\n') if line.strip()}


def write(folder, notebooks: dict):
    for name, nb in notebooks.items(): write_notebook(folder/f'{name}.ipynb', nb)
    return folder


@pytest.mark.parametrize('num_workers', ['0', '1', '2'])
def test_pages_that_are_fresh_pass(tmp_path, caches, num_workers):
    done = run(write(tmp_path, FRESH), caches, '--n_workers', num_workers)
    assert done.returncode == 0 and done.stdout.endswith('Success.\n'), done.stderr


@pytest.mark.parametrize('num_workers', ['0', '2'])
def test_a_cell_that_fails_and_one_that_says_something_else_are_named(tmp_path, caches, num_workers):
    wrong = {**FAILING, **{f'stale_{name}': case for name, case in STALE.items()}}
    write(tmp_path, {**FRESH, **{name: nb for name, (nb, _) in wrong.items()}})
    done = run(tmp_path, caches, '--n_workers', num_workers)
    assert done.returncode == 1 and failed(done) == set(wrong)
    assert all(message in done.stderr for _, message in wrong.values()), done.stderr
    assert 'not reached' not in done.stdout + done.stderr


def test_plain_nbdev_test_finds_cells_that_fail(tmp_path, caches):
    write(tmp_path, {**FRESH, **{name: nb for name, (nb, _) in [*FAILING.items(), *((f'stale_{name}', s) for name, s in STALE.items())]}})
    done = run(tmp_path, caches, '--n_workers', '2', program=(NBDEV_TEST,))
    assert done.returncode == 1 and failed(done) == set(FAILING)


def test_a_cell_that_needs_a_framework_runs_with_its_flag(tmp_path, caches):
    write(tmp_path, {'framework': FRESH['framework']})
    done = run(tmp_path, caches, '--flags', 'keras lightning')
    assert done.returncode == 1 and 'nowhere_to_be_found' in done.stderr


@pytest.mark.parametrize('source', ['import os; os._exit(3)', 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'])
def test_a_page_that_ends_its_process_is_a_failure(tmp_path, caches, source):
    done = run(write(tmp_path, {'ends': notebook(code(source)), **FRESH}), caches, '--n_workers', '1')
    assert done.returncode != 0 and 'Success' not in done.stdout


def test_a_cell_that_does_not_end_is_a_failure(tmp_path, caches):
    write(tmp_path, {'waits': notebook(code('import time'), code('time.sleep(60)'))})
    (tmp_path/'impatient.py').write_text(f'import sys; sys.path.insert(0, {str(ROOT/"tools")!r})\n'
        'import pages, nbdev.test; pages.TIMEOUT, nbdev.test.test_nb = 1, pages.test_page; nbdev.test.nbdev_test()\n')
    done = run(tmp_path, caches, program=(str(tmp_path/'impatient.py'),))
    assert done.returncode == 1 and 'TimeoutError' in done.stderr


def test_each_framework_has_a_cell_and_its_cells_run_where_all_are_installed():
    found = {name for path in find_notebooks() for cell in read_notebook(path)['cells'] for name in needed(cell['source'])}
    assert found == FRAMEWORKS


def test_a_kernel_runs_them_too(tmp_path, caches):
    path = tmp_path/'kernel.ipynb'
    write_notebook(path, notebook(code('#| eval: false\nraise ValueError'), code('import os; print(os.environ["TIMMDATA_CACHE"])'),
                                  code('#| lightning\nprint("ran")', stream('recorded elsewhere\n'))))
    _, printed, framework = execute(path, env=caches).cells
    assert printed.outputs[0].text.strip() == caches['TIMMDATA_CACHE']
    assert framework.outputs[0].text in ('recorded elsewhere\n', 'ran\n')   # where lightning is installed
    write_notebook(path, notebook(code('assert 0, "not two"')))
    with pytest.raises(CellExecutionError, match='not two'): execute(path)


def test_pieces_of_a_stream_are_stored_as_one():
    pieces = [nbformat.from_dict({**stream(''), 'name': name, 'text': text}) for name, text in (
        ('stdout', 'a\n'), ('stdout', 'b\n'), ('stderr', 'c\n'), ('stdout', 'd\n'))]
    assert [(o.name, o.text) for o in join_streams(pieces)] == [('stdout', 'a\nb\n'), ('stderr', 'c\n'), ('stdout', 'd\n')]
