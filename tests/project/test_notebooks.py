"Every notebook runs top to bottom in a process of its own, says what it has stored, and stays as it is."
import os
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue

import nbformat
import pytest
from forked import ForkServer, check
from jpegtran import require_jpegtran
from nbclient.exceptions import CellExecutionError
from notebooks import NOT_TESTED, find_notebooks
from save import execute, join_streams, kernel_env
from synthetic import ROOT, code, notebook, stream, write_notebook

# they run after the others, alone, and never say the same twice
MEASURE_TIME = ('measure/10_stages.ipynb', 'measure/20_diagnosis.ipynb', 'guides/faster.ipynb')
WITH_JPEGTRAN = ('core/52_restarts.ipynb', 'datasets/70_packing.ipynb', 'guides/pack.ipynb')
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]   # those that run alone wait for the others
IDS = [p.relative_to(ROOT/'nbs').as_posix() for p in find_notebooks()]


@pytest.fixture(scope='session')
def caches(tmp_path_factory):
    "Caches shared by all cases, so that the samples are made once and nothing is written into the user's home."
    base = tmp_path_factory.mktemp('notebooks')
    return {'TIMMDATA_CACHE': str(base/'cache'), 'IPYTHONDIR': str(base/'ipython'), 'MPLCONFIGDIR': str(base/'mpl')}


@pytest.fixture(scope='module')   # other tests look for processes that are left
def server(caches, tmp_path_factory):
    "Runs notebooks in forks of a process that has imported torch already."
    server = ForkServer(kernel_env(caches), tmp_path_factory.mktemp('server'))
    yield server
    server.close()


@pytest.fixture(scope='module')
def running(request, server, caches, tmp_path_factory):
    "The notebooks that are tested, two at a time; by name, what will come of it."
    free, servers = SimpleQueue(), [server]
    if 'PYTEST_XDIST_WORKER' not in os.environ: servers.append(ForkServer(kernel_env(caches), tmp_path_factory.mktemp('server')))
    for one in servers: free.put(one)

    def run(name: str):
        path, one = ROOT/'nbs'/name, free.get()
        before = path.read_bytes()
        try: found = check(path, one)
        finally: free.put(one)
        assert path.read_bytes() == before
        return found

    tested = [item.callspec.params['name'] for item in request.session.items if getattr(item, 'function', None) is test_notebook]
    together, alone = ThreadPoolExecutor(len(servers)), ThreadPoolExecutor(1)
    started = {name: together.submit(run, name) for name in tested if name not in MEASURE_TIME}
    alone.submit(wait, list(started.values()))
    yield {**started, **{name: alone.submit(run, name) for name in tested if name in MEASURE_TIME}}
    for pool in (together, alone): pool.shutdown(cancel_futures=True)
    for one in servers[1:]: one.close()


@pytest.mark.parametrize('name', IDS)
def test_notebook(name, running):
    if name in WITH_JPEGTRAN: require_jpegtran()
    found = running[name].result()
    assert name in MEASURE_TIME or not found, f'run `python tools/save.py nbs/{name}`, and look at what has changed'


def written(path, *cells: str):
    write_notebook(path, notebook(*map(code, cells)))
    return path


def test_failing_cell_is_an_error(tmp_path, server):
    path = written(tmp_path/'fails.ipynb', 'x = 1', 'assert x == 2, "x is not two"', 'print("not reached")')
    with pytest.raises(RuntimeError, match='(?s)fails.ipynb: cell 1 failed.*x is not two'): server.run(path)


@pytest.mark.parametrize('source, message', [
    ('def f(:', 'SyntaxError'), ('import nowhere_to_be_found', 'ModuleNotFoundError'), ('raise SystemExit', 'SystemExit'),
    ('import os; os._exit(3)', 'in the middle'), ('import os, signal; os.kill(os.getpid(), signal.SIGKILL)', 'in the middle')])
def test_every_kind_of_failure_is_an_error(tmp_path, server, source, message):
    with pytest.raises(RuntimeError, match=message): server.run(written(tmp_path/'fails.ipynb', source))
    assert server.run(written(tmp_path/'works.ipynb', 'print(1)')) == ['1\n']


def test_a_notebook_that_does_not_end_is_an_error(tmp_path, server):
    path = written(tmp_path/'waits.ipynb', 'import time; time.sleep(60)')
    with pytest.raises(RuntimeError, match='not finished after 0.5 seconds'): server.run(path, timeout=0.5)


def test_marked_cells_are_not_run_and_others_are(tmp_path, server):
    path = written(tmp_path/'marked.ipynb', '#| eval: false\nraise ValueError', '#| notest\nraise ValueError',
                   '#| hide\nprint("ran")', 'import timmdata; print(timmdata.__file__)')
    assert server.run(path, skip=NOT_TESTED) == ['ran\n', f'{ROOT/"timmdata/__init__.py"}\n']


def test_a_cell_that_needs_a_package_runs_where_it_is_and_keeps_its_output_elsewhere(tmp_path, server, caches):
    there, missing = '#| needs: json\nprint("ran")', '#| needs: unheard_of\nimport unheard_of'
    assert server.run(written(tmp_path/'needs.ipynb', there, missing)) == ['ran\n']
    path = tmp_path/'stored.ipynb'
    write_notebook(path, notebook(code(there), code(missing, stream('recorded elsewhere\n'))))
    outputs = [cell.outputs[0].text for cell in execute(path, env=caches).cells]
    assert outputs == ['ran\n', 'recorded elsewhere\n']


def test_notebooks_know_nothing_of_each_other(tmp_path, server, caches):
    server.run(written(tmp_path/'first.ipynb', 'import timmdata, os; timmdata.left = 1; os.environ["LEFT"] = "1"; left = 1'))
    seen = server.run(written(tmp_path/'second.ipynb', 'import os, sys, timmdata',
                              'print([hasattr(timmdata, "left"), "LEFT" in os.environ, "left" in globals()])',
                              'print(os.environ["TIMMDATA_CACHE"], os.getcwd(), __name__)'))
    assert seen == ['', '[False, False, False]\n', f'{caches["TIMMDATA_CACHE"]} {tmp_path} __main__\n']


def test_nothing_of_the_package_is_imported_before(tmp_path, server):
    path = written(tmp_path/'fresh.ipynb', 'import sys; print([n for n in sys.modules if n.startswith("timmdata")])')
    assert server.run(path) == ['[]\n']


def test_a_kernel_runs_them_too(tmp_path, caches):
    path = written(tmp_path/'kernel.ipynb', '#| eval: false\nraise ValueError', 'import os; print(os.environ["TIMMDATA_CACHE"])')
    assert execute(path, env=caches).cells[1].outputs[0].text.strip() == caches['TIMMDATA_CACHE']
    with pytest.raises(CellExecutionError, match='not two'): execute(written(tmp_path/'fails.ipynb', 'assert 0, "not two"'))


def test_a_stored_text_that_a_run_does_not_give_is_found(tmp_path, server):
    path, value = tmp_path/'page.ipynb', {'output_type': 'execute_result', 'execution_count': 1, 'metadata': {}}
    write_notebook(path, notebook(
        code('print(1 + 1)', stream('3\n')), code('print("as stored")', stream('as stored\n')),
        code('print(object(), "/tmp/xyz", "took 1.25 s")', stream('<object object at 0x7f> /tmp/abc took 3 s\n')),
        code('#| notest\nprint(1)', stream('2\n')), code('#| eval: false\nprint(1)', stream('2\n')),
        code('["a" * 60, "b" * 60]', {**value, 'data': {'text/plain': f"[{'a' * 60!r},\n {'b' * 60!r}]"}}),
        code('[2]', {**value, 'data': {'text/plain': '[1]'}})))
    assert check(path, server) == ['cell 0 said\n3\nand says now\n2', 'cell 6 said\n[1]\nand says now\n[2]']


def test_pieces_of_a_stream_are_stored_as_one():
    pieces = [nbformat.from_dict({**stream(''), 'name': name, 'text': text}) for name, text in (
        ('stdout', 'a\n'), ('stdout', 'b\n'), ('stderr', 'c\n'), ('stdout', 'd\n'))]
    assert [(o.name, o.text) for o in join_streams(pieces)] == [('stdout', 'a\nb\n'), ('stderr', 'c\n'), ('stdout', 'd\n')]
