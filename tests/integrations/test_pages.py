"Cells that need a framework (`#| needs: keras`) run where it is installed, and print what is stored on their page."
import re

import pytest
from execute import kernel_env
from forked import ForkServer
from frameworks import require
from notebooks import find_notebooks, is_skipped, needed, read_notebook
from synthetic import ROOT, code, notebook, stream, write_notebook

NOT_RUN = ('eval: false', 'notest')
pytestmark = pytest.mark.timeout(300)


def code_cells(path) -> list[dict]: return [cell for cell in read_notebook(path)['cells'] if cell['cell_type'] == 'code']


PAGES = {path.relative_to(ROOT/'nbs').as_posix(): path for path in find_notebooks()
         if any(needed(cell['source']) for cell in code_cells(path))}


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    "Runs notebooks in forks of a process that has imported torch already."
    base = tmp_path_factory.mktemp('pages')
    caches = dict(TIMMDATA_CACHE='cache', IPYTHONDIR='ipython', MPLCONFIGDIR='mpl', KERAS_HOME='keras', FASTAI_HOME='fastai')
    server = ForkServer(kernel_env({name: str(base/folder) for name, folder in caches.items()}), base)
    yield server
    server.close()


def printed_and_stored(path, server) -> list[tuple[str, str]]:
    "What each cell that needs a framework prints, and what it printed when the page was made."
    cells = [cell for cell in code_cells(path) if not is_skipped(cell['source'], NOT_RUN)]
    stored = [''.join(text for o in cell['outputs'] if o.get('name') == 'stdout' for text in o['text']) for cell in cells]
    printed = [re.split(r'Out\[\d+\]: ', text)[0] for text in server.run(path, skip=NOT_RUN)]   # without a cell's value
    assert len(printed) == len(cells)
    return [pair for cell, *pair in zip(cells, printed, stored) if needed(cell['source'])]


@pytest.mark.parametrize('name', PAGES)
def test_cells_print_what_the_page_shows(name, server):
    for framework in {name for cell in code_cells(PAGES[name]) for name in needed(cell['source'])}: require(framework)
    for printed, stored in printed_and_stored(PAGES[name], server): assert printed == stored


def test_another_output_is_found(tmp_path, server):
    cells = [code('x = 5'), code('#| needs: torch\nprint(x)', stream('5\n')), code('#| needs: torch\nprint(x + 1)', stream('5\n')),
             code('#| needs: torch\nx')]
    write_notebook(tmp_path/'page.ipynb', notebook(*cells))
    assert printed_and_stored(tmp_path/'page.ipynb', server) == [['5\n', '5\n'], ['6\n', '5\n'], ['', '']]


def test_a_framework_that_is_missing_is_a_failure_where_it_is_required(monkeypatch):
    monkeypatch.setenv('TIMMDATA_INTEGRATIONS_REQUIRED', '1')
    with pytest.raises(ModuleNotFoundError): require('nowhere_to_be_found')
    monkeypatch.delenv('TIMMDATA_INTEGRATIONS_REQUIRED')
    with pytest.raises(pytest.skip.Exception): require('nowhere_to_be_found')
