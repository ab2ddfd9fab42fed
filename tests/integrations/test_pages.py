"Cells that need a framework (`#| needs: keras`) run where it is installed, and say what is stored on their page."
import pytest
from forked import ForkServer, check
from frameworks import require
from notebooks import find_notebooks, needed, read_notebook
from save import kernel_env
from synthetic import ROOT

pytestmark = pytest.mark.timeout(300)

NEEDED = {path.relative_to(ROOT/'nbs').as_posix(): {name for cell in read_notebook(path)['cells'] for name in needed(cell['source'])}
          for path in find_notebooks()}   # by page, the frameworks


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    "Runs notebooks in forks of a process that has imported torch already."
    base = tmp_path_factory.mktemp('pages')
    caches = dict(TIMMDATA_CACHE='cache', IPYTHONDIR='ipython', MPLCONFIGDIR='mpl', KERAS_HOME='keras', FASTAI_HOME='fastai')
    server = ForkServer(kernel_env({name: str(base/folder) for name, folder in caches.items()}), base)
    yield server
    server.close()


@pytest.mark.full
@pytest.mark.parametrize('name', [name for name, frameworks in NEEDED.items() if frameworks])
def test_cells_say_what_the_page_shows(name, server):
    for framework in NEEDED[name]: require(framework)
    assert check(ROOT/'nbs'/name, server) == []


def test_a_framework_that_is_missing_is_a_failure_where_it_is_required(monkeypatch):
    monkeypatch.setenv('TIMMDATA_INTEGRATIONS_REQUIRED', '1')
    with pytest.raises(ModuleNotFoundError): require('nowhere_to_be_found')
    monkeypatch.delenv('TIMMDATA_INTEGRATIONS_REQUIRED')
    with pytest.raises(pytest.skip.Exception): require('nowhere_to_be_found')
