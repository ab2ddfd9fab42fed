"What limits a loader, and what would help: `timmdata doctor` with tiny settings, and its page."
import html
import json
import re

import pytest
import torch
from browsers import headless_chromium
from loader_parts import SlowTransform

from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.look.paste import loader_call
from timmdata.measure.diagnosis import WORKERS, Diagnosis, diagnose, find_bottleneck, format_diagnosis
from timmdata.measure.machine import Trial
from timmdata.measure.page import diagnosis_page
from timmdata.measure.stages import StageTime

TINY = '--input-size 64 --batch-size 16 --images 32 --rounds 1 --device cpu'.split()
pytestmark = pytest.mark.timeout(60)


def test_doctor_writes_json(samples, tmp_path, capsys):
    numbers, page = tmp_path/'doctor.json', tmp_path/'doctor.html'
    files = ['--json', str(numbers), '--html', str(page)]
    assert main(['doctor', str(samples), *TINY, '--num-workers', '1', *files]) == 0
    record = json.loads(numbers.read_text(encoding='utf-8'))
    said, announced = capsys.readouterr()
    assert said.splitlines()[0] == record['verdict'] and 'loaders in turns: 1 round, ' in announced
    assert {trial['name'] for trial in record['suggestions']} == set(record['remedies'])
    written = page.read_text(encoding='utf-8')
    assert html.escape(record['verdict']) in written and str(samples) in written and '://' not in written
    assert {'read', 'decode', 'resize', 'batch transform'} <= set(record['shares'])
    assert record['noise'] > 0 and record['bottleneck'] in ('', *record['shares'])
    assert any(trial['name'] == "workers='processes'" for trial in record['suggestions'])


@pytest.mark.parametrize('command', ['bench', 'doctor'])
@pytest.mark.parametrize('options, message', [
    ('--mode testing', 'allowed are train, eval'), ('--json numbers.txt', 'must end with .json'),
    ('--json no/such/numbers.json', 'there is no folder'), ('--images 0', '--images 0: give 1 or more'), ('--rounds 0', 'rounds=0'),
    ('--batch-size 0', 'batch_size=0'),
    ('--workers fibres', 'allowed are threads, processes, ray, auto'), ('--num-workers -1', 'num_workers=-1'),
    ('--backend none', 'backend='), ('--split nothing', 'there is no split'), ('--device moon', 'moon')])
def test_wrong_settings_are_one_line(samples, capsys, command, options, message):
    assert main([command, str(samples), *TINY, *options.split()]) == 2
    said = capsys.readouterr()
    assert said.err.startswith('timmdata: error: ') and said.err.count('\n') == 1 and message in said.err
    assert not said.out


@pytest.mark.parametrize('command', ['bench', 'doctor'])
def test_wrong_folders_are_one_line(tmp_path, capsys, command):
    for folder in (tmp_path/'absent', tmp_path):
        assert main([command, str(folder), *TINY]) == 2
        said = capsys.readouterr().err
        assert said.startswith('timmdata: error: ') and said.count('\n') == 1 and str(folder) in said


def agrees_with_itself(found):
    "The numbers of a verdict stand in the line of the table that it names."
    numbers = set(re.findall(r'\d+%|[\d.]+(?= times)', found.verdict))
    line = next(line for line in format_diagnosis(found).splitlines() if line.startswith(f'{found.bottleneck}  '))
    assert numbers and numbers <= set(line.split()), (found.verdict, line)


def test_a_slow_transform_is_found(samples):
    tiny = dict(num_images=32, transform=SlowTransform(), num_workers=1, workers='threads', device='cpu')
    found = diagnose(ImageDataset(samples), 64, 16, rounds=1, **tiny)
    assert isinstance(found, Diagnosis) and found.bottleneck == 'transform'
    assert {'read', 'decode', 'transform'} <= set(found.shares)
    agrees_with_itself(found)


def stage(name: str, wall_ms: float) -> StageTime: return StageTime(name, wall_ms, wall_ms, wall_ms, wall_ms)


@pytest.mark.parametrize('low, noise, limit', [(1.8, 0.1, 'decode'), (0.9, 0.1, ''), (1.8, 2., '')])
def test_a_limit_is_above_the_noise_in_every_round(low, noise, limit):
    trials = [Trial(WORKERS, 2., low, 2.2, 100.), Trial('batch transform', 0.5, 0.4, 0.6, 100.)]
    stages = [stage('read', 1.), stage('decode', 3.), stage('collate', 9.), stage('augment', 9.)]
    shares = {'read': 0.125, 'decode': 0.375, 'batch transform': 0.}
    assert find_bottleneck(trials, stages, noise) == (limit, shares)


def test_what_goes_with_a_part_is_the_share_of_that_part():
    trials = [Trial(WORKERS, 1.25, 1.2, 1.3, 100.), Trial('step', 4., 3.9, 4.1, 100.)]
    bottleneck, shares = find_bottleneck(trials, [stage('transform', 1.)], 0.05)
    assert bottleneck == 'step' and shares == pytest.approx({'transform': 0.2, 'step': 0.75})


def made_up(**changed) -> Diagnosis:
    "A diagnosis whose bottleneck is decoding, behind a reading that takes time as well."
    stages = [stage('read', 1.), stage('decode', 3.)]
    left_out = [Trial('as it is', 1., 1., 1., 200.), Trial(WORKERS, 3.39, 3.3, 3.5, 678.), Trial('step', 1.1, 1., 1.2, 220.)]
    suggested = [Trial('num_workers=3', 1.3, 1.2, 1.4, 260.), Trial('num_workers=4', 1.9, 1.8, 2., 380.),
                 Trial("workers='processes'", 0.6, 0.5, 0.7, 120.), Trial("backend='a'", 1.01, 1.005, 1.1, 202.)]
    remedies = {trial.name: f'create_loader(dataset, 224, 64, {trial.name})' for trial in suggested}
    return Diagnosis(**{**dict(stages=stages, left_out=left_out, suggestions=suggested, remedies=remedies, busy=1.5, notes=[],
                               machine={'cores': '4'}, settings={}), **changed})


def test_the_verdict_and_the_table_have_the_same_numbers():
    found = made_up()
    assert found.verdict.startswith('the bottleneck is decode: 53% of the time of an image goes to it; 1.5 of 4 cores')
    agrees_with_itself(found)
    trials = [Trial(WORKERS, 1., 0.9, 1.1, 200.), Trial('step', 2.5, 2.4, 2.6, 500.)]
    waits = made_up(left_out=trials, busy=None)
    assert waits.verdict == 'the bottleneck is step: 60% of the time of an image goes to it; without it the loader is 2.50 times as fast'
    agrees_with_itself(waits)
    assert made_up(left_out=[Trial('the same again', 1.2, 0.9, 1.3, 200.)]).verdict.startswith(
        'no bottleneck: no stage makes a difference above the noise of 30%')


def test_what_helps_is_written_to_be_pasted_the_fastest_first():
    pasted = [line.strip() for line in format_diagnosis(made_up()).splitlines() if 'create_loader' in line]
    assert pasted == [f'create_loader(dataset, 224, 64, num_workers={number})' for number in (4, 3)]
    nothing = made_up(suggestions=[Trial("backend='a'", 1.01, 1.005, 1.1, 202.)])
    assert 'nothing that was tried is faster' in format_diagnosis(nothing)


def test_a_call_that_is_pasted_has_the_settings(samples):
    settings = dict(is_training=True, num_workers=2, seed=3, hflip=0.5, mean=(0.5, 0.5, 0.5), img_dtype=torch.float16, device='cpu')
    call = loader_call((3, 64, 64), 16, settings)
    assert 'hflip' not in call and loader_call(64, 16, dict(transform=SlowTransform())).endswith('64, 16, transform=transform)')
    loader = eval(call, dict(create_loader=create_loader, dataset=ImageDataset(samples), torch=torch))
    expected = create_loader(ImageDataset(samples), 64, 16, **settings)
    assert torch.equal(next(iter(loader))[0], next(iter(expected))[0])
    for one in (loader, expected): one.close()


def test_names_on_the_page_are_escaped():
    page = diagnosis_page(made_up(notes=['<script>alert(1)</script>'], settings={'<i>': '"'}), '<b>photos\n</b>')
    assert '<script' not in page and '<b>' not in page and '&lt;b&gt;photos\\n' in page and 'prefers-color-scheme: dark' in page


def test_what_leaves_batches_as_they_are_comes_first():
    suggested = [Trial('dct_scaling=True', 9., 8., 10., 1.),
                 Trial("workers='processes'", 1.3, 1.2, 1.4, 1.), Trial('num_workers=4', 1.9, 1.8, 2., 1.)]
    found = made_up(suggestions=suggested, remedies={trial.name: f'call({trial.name})' for trial in suggested})
    assert [trial.name for trial in found.helpful()] == ['num_workers=4', "workers='processes'", 'dct_scaling=True']
    page = diagnosis_page(found)
    assert [html.unescape(call) for call in re.findall('<pre>(.*?)</pre>', page)] == [f'call({trial.name})' for trial in found.helpful()]
    assert page.index('Do this first') < page.index('call(') < page.index('What else helps') and found.advice in html.unescape(page)
    assert 'Nothing that was tried is faster' in diagnosis_page(made_up(suggestions=[]))


@pytest.mark.apart('nbs/measure/', 'nbs/core/63_html.ipynb', 'tests/measure/test_diagnosis.py')
def test_the_page_of_a_diagnosis_fits(tmp_path):
    "In a browser, on a desk and on a phone: no row is a tower of letters, and nothing is wider than the page."
    (tmp_path/'page.html').write_text(diagnosis_page(made_up(), 'doctor: ' + 60 * 'a/b'), encoding='utf-8')
    with headless_chromium() as chromium:
        for width in (1280, 390):
            page = chromium.new_page(viewport=dict(width=width, height=800))
            page.goto((tmp_path/'page.html').as_uri())
            assert page.evaluate('document.documentElement.scrollWidth') <= width
            tables = page.evaluate("[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth])")
            heights = page.evaluate("[...document.querySelectorAll('tr')].map(row => row.getBoundingClientRect().height)")
            assert all(inner <= outer for inner, outer in tables) and max(heights) < 120, (width, tables, heights)


def test_small_photographs_are_loaded_as_others_are(samples):
    "Half of a wrapped data set, made smaller in memory: the same names of suggestions, and no file is written."
    half = torch.utils.data.Subset(ImageDataset(samples), range(0, 320, 2))
    found = diagnose(half, 16, 4, num_images=8, rounds=1, num_workers=0, device='cpu')
    assert [trial.name for trial in found.suggestions][-2:] == ['pack, short_side=18', "pack, short_side=18, format='raw'"]
    assert found.remedies['pack, short_side=18'].startswith('pack(dataset, out, short_side=18)   # ')
