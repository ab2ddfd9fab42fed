"A progress bar is shown on a terminal and in a notebook, but not in a log file."
import io
import sys
import types

import nbformat
import pytest
from nbclient import NotebookClient
from save import kernel_env
from synthetic import JPEG

from timmdata.core.progress import progress_bar
from timmdata.datasets.cache import CacheSettings, cached_dataset
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.datasets.image_sizes import image_sizes
from timmdata.datasets.packing import check_pack, write_pack
from timmdata.inspection import inspect

pytestmark = pytest.mark.timeout(120)


class Terminal(io.StringIO):
    def isatty(self): return True


def drawn(monkeypatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, 'stderr', stream)
    assert list(progress_bar(range(3), 'counting')) == [0, 1, 2]
    bar = progress_bar(title='by hand', total=2)
    bar.update()
    bar.close()
    return stream.getvalue()


@pytest.fixture(autouse=True)
def bars_are_on(monkeypatch): monkeypatch.delenv('TQDM_DISABLE', raising=False)


def test_a_terminal_shows_a_bar_and_a_file_does_not(monkeypatch):
    shown = drawn(monkeypatch, Terminal())
    assert 'counting: 100%' in shown and 'by hand:  50%' in shown and '3/3' in shown and ' images' in shown
    assert drawn(monkeypatch, io.StringIO()) == ''
    monkeypatch.setattr(sys, 'stderr', None)   # pythonw has none
    assert list(progress_bar(range(3))) == [0, 1, 2]


@pytest.mark.parametrize('config, is_seen', [({'IPKernelApp': {}}, True), ({'TerminalIPythonApp': {}}, False), (None, False)])
def test_a_kernel_shows_a_bar(monkeypatch, config, is_seen):
    "A kernel's stderr is not a terminal; IPython on a terminal with stderr sent to a file is not a kernel."
    shell = config and types.SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, 'IPython', types.SimpleNamespace(get_ipython=lambda: shell))
    assert ('counting' in drawn(monkeypatch, io.StringIO())) == is_seen


def test_a_bar_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', stream := Terminal())
    list(progress_bar(range(3), is_shown=False))
    monkeypatch.setenv('TQDM_DISABLE', '1')
    list(progress_bar(range(3)))
    assert stream.getvalue() == ''


@pytest.fixture
def photos(tmp_path):
    for name in ('ant', 'bee'):
        (tmp_path/'photos'/name).mkdir(parents=True)
        for k in range(2): (tmp_path/'photos'/name/f'{k}.jpg').write_bytes(JPEG)
    return tmp_path/'photos'


WORK = {
    'write_pack': lambda dataset, out: write_pack(dataset, out/'pack', format='keep', num_workers=1),
    'check_pack': lambda dataset, out: [
        write_pack(dataset, out/'pack', format='keep', num_workers=1, progress=False), check_pack(out/'pack')],
    'inspect': lambda dataset, out: inspect(dataset, out/'report', exact=True),
    'cache': lambda dataset, out: cached_dataset(dataset, CacheSettings(where='disk', directory=out/'cache')),
    'image_sizes': lambda dataset, out: image_sizes(dataset)}


@pytest.mark.parametrize('name', WORK)
def test_long_work_shows_a_bar_on_a_terminal_and_in_a_kernel_only(photos, tmp_path, monkeypatch, name):
    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(config={'IPKernelApp': {}}))
    clock = iter(range(0, 10**9, 5))   # a bar that waits two seconds is drawn
    monkeypatch.setattr('tqdm.std.time', lambda: float(next(clock)))
    shown = []
    for k, (stream, module) in enumerate([(Terminal(), None), (io.StringIO(), kernel), (io.StringIO(), None)]):
        monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path/f'cache{k}'))
        monkeypatch.setitem(sys.modules, 'IPython', module)
        monkeypatch.setattr(sys, 'stderr', stream)
        (tmp_path/f'out{k}').mkdir()
        WORK[name](ImageDataset(photos), tmp_path/f'out{k}')
        shown.append('100%' in stream.getvalue())
    assert shown == [True, True, False] and stream.getvalue() == ''


CELL = "from timmdata.core.progress import progress_bar\nfor _ in progress_bar(range(3), 'counting'): pass"


@pytest.mark.full
@pytest.mark.parametrize('env, is_shown', [({'TQDM_DISABLE': '0'}, True), ({}, False)])
def test_a_real_kernel_draws_a_widget_unless_pages_are_saved(tmp_path, env, is_shown):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(nb, kernel_name='python3', resources={'metadata': {'path': str(tmp_path)}}).execute(env=kernel_env(env))
    kinds = [kind for output in nb.cells[0].outputs for kind in output.get('data', {})]
    assert ('application/vnd.jupyter.widget-view+json' in kinds) == is_shown and bool(nb.cells[0].outputs) == is_shown
