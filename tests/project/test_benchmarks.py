"What the benchmarks wrote, and that their scripts find what they import."
import importlib
import json

import pytest
from synthetic import ROOT
from timm.data import auto_augment

pytestmark = pytest.mark.full
FOLDER = ROOT/'benchmarks'
SCRIPTS = sorted(path.stem for path in FOLDER.glob('*.py'))
RESULTS = sorted((FOLDER/'results').glob('*.json'))


@pytest.mark.parametrize('name', SCRIPTS)
def test_scripts_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    timms = dict(auto_augment.NAME_TO_OP)
    module = importlib.import_module(name)
    assert auto_augment.NAME_TO_OP == timms   # only a measurement repairs timm, not an import
    assert module.__doc__ and (hasattr(module, 'main') or name in ('results', 'side_by_side'))


def test_every_script_is_named_by_the_readme_or_by_another():
    readers = [FOLDER/'README.md', *FOLDER.glob('*.py')]
    texts = {path.stem: path.read_text(encoding='utf-8') for path in readers}
    assert [name for name in SCRIPTS if not any(name in text for other, text in texts.items() if other != name)] == []


@pytest.mark.parametrize('path', RESULTS, ids=lambda path: path.stem)
def test_results_say_where_they_come_from(path, monkeypatch):
    record = json.loads(path.read_text(encoding='utf-8'))
    assert {'date', 'machine', 'cores', 'python', 'torch'} <= set(record['machine']) and record['settings']
    if path.stem.startswith('gpu-'):   # named by who ran it
        monkeypatch.syspath_prepend(FOLDER)
        parts = {*importlib.import_module('on_a_gpu').PARTS, 'nvjpeg'}   # that one is answered
        assert record['parts'] and set(record['parts']) <= parts


@pytest.mark.parametrize('path', RESULTS, ids=lambda path: path.stem)
def test_results_are_shown(path):
    "By a page, or as a table of the benchmarks' README, which the next test compares."
    pages = ''.join(page.read_text(encoding='utf-8') for page in (ROOT/'nbs').rglob('*.ipynb'))
    shown = f'results/{path.stem}.json' in pages or f"read_record('{path.stem}')" in pages
    assert shown or path.stem.startswith('gpu-') or path.stem in ('views', 'naflex', 'decode_limit')


def test_readme_has_the_tables_of_the_peers(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    results = importlib.import_module('results')
    text = (FOLDER/'README.md').read_text(encoding='utf-8')
    for name in 'peers', 'packed', 'views', 'naflex': assert results.peers_table(results.read_results(name)['results']) in text
    assert results.naflex_table(results.read_results('naflex')['epochs']) in text
    assert results.decode_table(results.read_results('decode_limit')['cores']) in text
    for name, found in results.read_results('recipes')['results'].items():
        [line] = [line for line in text.splitlines() if line.startswith((f'| {name} |', f'| {name}:'))]
        assert line.endswith(f'| {found["speed"]:.2f} | {found["cpu_ms"]:.2f} | {found["timm_cpu_ms"]:.2f} |')
