"Cells that need a framework (`#| keras`) run if it is installed, and their outputs equal those stored on the page."
import os
import subprocess
import sys

import pytest
from frameworks import require
from notebooks import find_notebooks, needed, read_notebook
from synthetic import ROOT

pytestmark = pytest.mark.timeout(300)

NEEDED = {path.relative_to(ROOT/'nbs').as_posix(): {name for cell in read_notebook(path)['cells'] for name in needed(cell['source'])}
          for path in find_notebooks()}   # by page, the frameworks


@pytest.fixture(scope='module')
def caches(tmp_path_factory) -> dict[str, str]:
    base = tmp_path_factory.mktemp('pages')
    names = dict(TIMMDATA_CACHE='cache', IPYTHONDIR='ipython', MPLCONFIGDIR='mpl', KERAS_HOME='keras', FASTAI_HOME='fastai')
    return {name: str(base/folder) for name, folder in names.items()}


@pytest.mark.full
@pytest.mark.parametrize('name', [name for name, frameworks in NEEDED.items() if frameworks])
def test_cells_say_what_the_page_shows(name, caches):
    for framework in NEEDED[name]: require(framework)
    command = [sys.executable, 'tools/pages.py', '--path', f'nbs/{name}', '--flags', ' '.join(NEEDED[name])]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **caches}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
