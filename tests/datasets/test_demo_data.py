"The sample dataset: each build has the same bytes, and is complete or absent."
import io
import os
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from grids import few
from PIL import Image
from synthetic import ROOT

from timmdata.datasets import demo_data as samples

FOLDER = 'samples-v3'   # in the cache

pytestmark = pytest.mark.timeout(300)


def contents(folder: Path) -> dict[str, bytes]:
    "Return the content of each file below `folder`, by relative path."
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


def start(how: str, *args: Path) -> subprocess.Popen:
    "Run `build_samples` in a separate process."
    command = [sys.executable, ROOT/'tests/support/build_samples.py', how, *args]
    return subprocess.Popen(list(map(str, command)), env={**os.environ, 'PYTHONPATH': str(ROOT)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope='module')
def built(cache):
    "The sample dataset of the test session, built once."
    return samples.get_samples(cache)


@pytest.fixture
def few_views(monkeypatch):
    monkeypatch.setattr(samples, 'TRAIN_VIEWS', range(2))
    monkeypatch.setattr(samples, 'VAL_VIEWS', range(32, 33))


def test_tree(built):
    assert {p.name for p in built.iterdir()} == {'train', 'val'}
    for split, count in ('train', 32), ('val', 8):
        found = {p.name: len(list(p.iterdir())) for p in (built/split).iterdir()}
        assert found == dict.fromkeys(samples.PHOTOGRAPHS, count)
    views, shapes = contents(built), Counter()
    assert len(set(views.values())) == len(views) == 400 and not set(samples.TRAIN_VIEWS) & set(samples.VAL_VIEWS)
    for name, data in views.items():
        image = Image.open(io.BytesIO(data))
        assert image.mode == ('L' if name.split('/')[1] in ('brick', 'gravel') else 'RGB') and 5_000 < len(data) < 120_000
        assert min(image.size) == 320 and max(image.size) <= 480
        shapes[image.width > image.height] += 1
    assert min(shapes[True], shapes[False]) > 100


@pytest.mark.parametrize('name', few(samples.PHOTOGRAPHS, num=2))
def test_turned_views_have_no_black_corners(name):
    with Image.open(Path(find_spec('skimage').submodule_search_locations[0], 'data', samples.PHOTOGRAPHS[name])) as photograph:
        scale = 2 * min(1, 640 / min(photograph.size))   # mirrored, it has twice the size
        white = Image.new('L', [round(edge * scale) for edge in photograph.size], 255)
    for view in [*samples.TRAIN_VIEWS, *samples.VAL_VIEWS]:
        with Image.open(io.BytesIO(samples.make_view(name, view, white))) as image:
            low, high = image.getextrema()
        assert high - low <= 1 and low > 100, (name, view)


def test_build_with_one_thread_and_fewer_views_gives_the_same_files(built, few_views, monkeypatch, tmp_path):
    pool = samples.ThreadPoolExecutor
    monkeypatch.setattr(samples, 'ThreadPoolExecutor', lambda *_: pool(1))
    monkeypatch.setattr(samples, 'PHOTOGRAPHS', dict(reversed(samples.PHOTOGRAPHS.items())))
    few, whole = contents(samples.get_samples(tmp_path)), contents(built)
    assert len(few) == 10 * 3
    assert all(whole[name] == data for name, data in few.items())


@pytest.mark.full
def test_two_full_builds_are_identical(built, tmp_path):
    assert contents(samples.get_samples(tmp_path)) == contents(built)


@pytest.mark.full
def test_killed_build_is_not_taken_for_complete(few_views, tmp_path):
    if not hasattr(signal, 'SIGKILL'): pytest.skip('this platform cannot kill -9')
    process = start('kill', tmp_path)
    process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    left, = tmp_path.iterdir()
    assert contents(left)   # it had begun to write
    root = samples.get_samples(tmp_path)
    assert root != left and len(contents(root)) == 10 * 3


def test_a_build_that_fails_leaves_nothing(few_views, monkeypatch, tmp_path):
    make_view = samples.make_view
    def full_later(name, view, *args):
        if view < 32: return make_view(name, view, *args)
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(samples, 'make_view', full_later)
    with pytest.raises(OSError, match='No space left.*Set TIMMDATA_CACHE'): samples.get_samples(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_processes_that_build_at_once_agree(tmp_path):
    (tmp_path/'cache').mkdir()
    processes = [start('wait', tmp_path/'cache', tmp_path) for _ in range(3)]
    results = [p.communicate(timeout=200) for p in processes]
    assert [p.returncode for p in processes] == [0, 0, 0], results
    root, = {Path(out.strip()) for out, _ in results}
    assert list((tmp_path/'cache').iterdir()) == [root]
    assert len(contents(root)) == 10 * 3


def test_an_empty_folder_is_filled_and_a_complete_one_is_used_again(few_views, monkeypatch, tmp_path):
    (tmp_path/FOLDER).mkdir()
    assert (samples.get_samples(tmp_path)/'train/cat/0000.jpg').is_file()
    monkeypatch.setattr(samples, 'make_view', lambda *args: pytest.fail('built again'))
    monkeypatch.setenv('TIMMDATA_CACHE', str(tmp_path))
    assert samples.get_samples() == samples.get_samples(tmp_path) == tmp_path/FOLDER


@pytest.mark.full
def test_making_does_not_import_scikit_image(tmp_path):
    process = start('plain', tmp_path)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0 and out.strip() == str(tmp_path/FOLDER), err
