"Every notebook runs top to bottom in a fresh kernel; what it has stored stays as it is."
import pytest
from execute import execute
from nbclient.exceptions import CellExecutionError
from notebooks import find_notebooks
from synthetic import ROOT, code, notebook, write_notebook

NOT_RUN = ('eval: false', 'notest')
IDS = [p.relative_to(ROOT/'nbs').as_posix() for p in find_notebooks()]


@pytest.fixture(scope='session')
def kernel_env(tmp_path_factory):
    "Caches shared by all cases, so that the samples are made once and nothing is written into the user's home."
    base = tmp_path_factory.mktemp('notebooks')
    return {'TIMMDATA_CACHE': str(base/'cache'), 'IPYTHONDIR': str(base/'ipython'), 'MPLCONFIGDIR': str(base/'mpl')}


@pytest.mark.timeout(300)
@pytest.mark.parametrize('name', IDS)
def test_notebook(name, kernel_env):
    path = ROOT/'nbs'/name
    before = path.read_bytes()
    try: execute(path, timeout=240, skip=NOT_RUN, env=kernel_env)
    except CellExecutionError as error: pytest.fail(f'{name}: {error}', pytrace=False)
    assert path.read_bytes() == before


def test_failing_cell_is_an_error(tmp_path, kernel_env):
    path = tmp_path/'fails.ipynb'
    write_notebook(path, notebook(code('x = 1'), code('assert x == 2, "x is not two"')))
    with pytest.raises(CellExecutionError, match='x is not two'): execute(path, skip=NOT_RUN, env=kernel_env)


def test_marked_cells_are_not_run_and_others_are(tmp_path, kernel_env):
    path = tmp_path/'marked.ipynb'
    write_notebook(path, notebook(
        code('#| eval: false\nraise ValueError'), code('#| notest\nraise ValueError'), code('#| hide\nprint("ran")'),
        code('import timmdata; print(timmdata.__file__)')))
    nb = execute(path, skip=NOT_RUN, env=kernel_env)
    assert nb.cells[2].outputs[0].text == 'ran\n'
    assert nb.cells[3].outputs[0].text.strip() == str(ROOT/'timmdata/__init__.py')


def test_kernels_share_the_cache_of_the_session(tmp_path, kernel_env):
    path = tmp_path/'cache.ipynb'
    write_notebook(path, notebook(code('import os; print(os.environ["TIMMDATA_CACHE"])')))
    assert execute(path, env=kernel_env).cells[0].outputs[0].text.strip() == kernel_env['TIMMDATA_CACHE']
