"timm's train.py and validate.py with `timm.data` replaced by `timmdata` and nothing else, beside the same scripts under timm."
import csv
import math
from collections import Counter
from pathlib import Path

import pytest
from timm_clients import (
    OTHER_PLANS,
    POSTERIZES_TO_0_BITS,
    SCRIPTS,
    STOPS,
    STOPS_IN_TIMM,
    TIMM,
    TORCHRUN,
    TRAIN,
    TRAIN_PHOTOS,
    VALIDATE,
    ScriptRuns,
    copy_replaced,
    make_photos,
    replaced,
    run_ranks,
)

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not TIMM.is_dir(), reason='no scripts of timm beside the checkout'),
              pytest.mark.full]


@pytest.fixture(scope='module')
def scripts(tmp_path_factory) -> Path: return copy_replaced(tmp_path_factory.mktemp('scripts'))


@pytest.fixture(scope='module')
def photos(tmp_path_factory) -> Path: return make_photos(tmp_path_factory.mktemp('photos'))


@pytest.fixture(scope='module')
def runs(scripts, photos, tmp_path_factory) -> tuple[dict, dict]:
    "The runs here and under timm, in two programs side by side."
    folder = tmp_path_factory.mktemp('runs')
    programs = ScriptRuns(scripts, photos, folder/'here', SCRIPTS), ScriptRuns(TIMM, photos, folder/'timm', SCRIPTS)
    return tuple(program.results() for program in programs)


def shapes(run: dict, part: str) -> Counter: return Counter(map(tuple, run[part]))


def test_only_imports_are_replaced(scripts):
    for path in TIMM.rglob('*.py'):
        before, after = path.read_text().splitlines(), (scripts/path.relative_to(TIMM)).read_text().splitlines()
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert all(new == '' or 'import' in new and ('timmdata' in new or 'missing_names' in new) for _, new in changed)
        assert not any('timm.data' in line for line in after if 'import ' in line)
    lines = 'from timm.data import (a,\n    b)\nx = "timm.data"\nfrom timm.data.loader import fast_collate as f\n'
    assert replaced(lines) == ('from timmdata import a, b\n\nx = "timm.data"\n'
                               'from timmdata.loader import fast_collate as f\n')


@pytest.mark.parametrize('name', TRAIN)
def test_train(runs, name):
    here, timms = (run[f'train.py {name}'] for run in runs)
    if name in STOPS:
        assert STOPS[name] in here['error'] and here['error'] == timms['error']
        return
    assert here['error'] is None and math.isfinite(here['result'][0]['train']['loss'])
    if POSTERIZES_TO_0_BITS in (timms['error'] or ''): return
    if name in STOPS_IN_TIMM:
        assert STOPS_IN_TIMM[name] in timms['error']
        return
    assert timms['error'] is None and shapes(here, 'eval') == shapes(timms, 'eval') != {}
    if name in OTHER_PLANS: assert set(shapes(here, 'train')) | set(shapes(timms, 'train')) <= OTHER_PLANS[name]
    else: assert shapes(here, 'train') == shapes(timms, 'train') != {}
    if name not in ('sizes, batch sizes', 'NaFlex, lengths'): assert len(here['train']) == len(timms['train'])
    assert [sorted(epoch) for epoch in here['result']] == [sorted(epoch) for epoch in timms['result']]


def test_growing_sizes_grow(runs):
    here = runs[0]['train.py growing sizes']['train']
    assert [shape[-1] for shape in here] == [24] * 7 + [32] * 7   # the script's set_epoch on loader.batch_sampler


def test_the_number_of_batches_goes_on_without_sizes_and_counts_with_them(runs):
    here = runs[0]
    assert len(here['train.py sizes, number of batches']['train']) == 3
    assert len(here['train.py number of batches']['train']) == TRAIN_PHOTOS // 4   # as in timm: of no effect


def test_views_come_together(runs):
    for name in ('views', 'no prefetcher, views'):
        assert set(shapes(runs[0][f'train.py {name}'], 'train')) == {(12, 3, 32, 32)}


def test_resumed_where_it_was(runs):
    resumed, = [line for line in runs[0]['train.py resume']['log'] if line.startswith('Scheduled epochs')]
    assert resumed.startswith('Scheduled epochs: 2') and [epoch['epoch'] for epoch in runs[0]['train.py resume']['result']] == [1]


def losses(run: dict) -> list[float]:
    "The loss of each batch, which its pixels and its labels decide."
    return [float(line.partition('Loss:')[2].split()[0]) for line in run['log'] if line.startswith('Test:')]


@pytest.mark.parametrize('name', [name for name in VALIDATE if name != 'TensorFlow'])
def test_validate(runs, name):
    here, timms = (run[f'validate.py {name}'] for run in runs)
    if name in STOPS:
        assert STOPS[name] in here['error'] and here['error'] == timms['error']
        return
    assert here['error'] is None and shapes(here, 'eval') == shapes(timms, 'eval') != {}
    assert here['result'] == timms['result']
    assert losses(here) == pytest.approx(losses(timms), rel=0.05) and len(set(losses(here))) == 4
    assert 0 < here['result']['top1'] < 100


def test_validate_refuses_what_is_not_offered(runs):
    assert runs[0]['validate.py TensorFlow']['error'].startswith('NotImplementedError: tf_preprocessing=True is not supported')


def test_results_file(runs, tmp_path_factory):
    files = [next(tmp_path_factory.getbasetemp().glob(f'runs*/{kind}/results.csv')) for kind in ('here', 'timm')]
    here, timms = (list(csv.DictReader(path.open())) for path in files)
    assert here == timms and float(here[0]['top1']) == runs[0]['validate.py results']['result']['top1']


@pytest.mark.parametrize('name', TORCHRUN)
def test_two_ranks(scripts, photos, tmp_path, name):
    first, second = run_ranks(scripts, photos, tmp_path/'ranks', name)
    assert first['error'] is None and second['error'] is None and second['result'] is None   # only one rank prints
    assert all(math.isfinite(first['result'][0][part]['loss']) for part in ('train', 'validation'))
    # with repeats, an epoch has as many samples as without, as in timm; in evaluation, 15 pictures, and one again
    trained, evaluated = {(4, 3, 32, 32): TRAIN_PHOTOS // 2 // 4}, {(4, 3, 32, 32): 2}
    if 'NaFlex' in name: trained, evaluated = {(8, 9, 768): 1, (7, 9, 768): 1}, {(8, 9, 768): 1}
    for rank in (first, second): assert (shapes(rank, 'train'), shapes(rank, 'eval')) == (trained, evaluated)
