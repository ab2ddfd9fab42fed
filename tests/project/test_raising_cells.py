"A cell marked `#| raises` shows its error, and a page fails if the cell raises none or another one."
import subprocess
import sys

import nbformat
import pytest
import readme
import save
from notebooks import read_notebook
from synthetic import ROOT

pytestmark = [pytest.mark.timeout(120), pytest.mark.full]   # each starts kernels
RAISES = "#| raises\nprint('before')\nraise ValueError('no such split')"
RUN = '''import pages, pathlib, sys
passed = pages.test_page(pathlib.Path(sys.argv[1]), skip_flags=['raises'])[0]
sys.exit(not passed)'''   # nbdev_test alone would skip the cell


def write(path, *sources):
    "A notebook of code cells at `path`."
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), path)
    return path


def run_page(path):
    "What tools/pages.py says of this page, empty if it passes."
    done = subprocess.run([sys.executable, '-c', RUN, str(path)], cwd=ROOT/'tools', capture_output=True, text=True)
    assert (done.returncode == 0) == (done.stderr == ''), done.stderr
    return done.stderr


def test_the_error_is_stored_and_compared(tmp_path):
    page = write(tmp_path/'page.ipynb', RAISES, '1 + 1')
    nbformat.write(save.execute(page), page)
    raising, after = read_notebook(page)['cells']
    assert raising['metadata'] == {'tags': ['raises-exception']} and not after['metadata']
    printed, error = raising['outputs']
    assert ''.join(printed['text']) == 'before\n' and error['traceback'] == ['ValueError: no such split']
    assert after['outputs'][0]['data']['text/plain'] == ['2']
    assert readme.render_output(error, 'name', 'alt')[0] == '```text\nValueError: no such split\n```'
    assert run_page(page) == ''
    page.write_text(page.read_text().replace("raise ValueError('no such", "raise ValueError('another"))
    assert 'another split\nRun `python tools/save.py`' in run_page(page)


def test_a_cell_that_raises_nothing_fails(tmp_path):
    page = write(tmp_path/'page.ipynb', '#| raises\n1 + 1')
    with pytest.raises(AssertionError, match='raised no error'): save.execute(page)
    assert 'raised no error' in run_page(page)
