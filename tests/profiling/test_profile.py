"`timmdata bench` and `timmdata doctor` on the sample photographs, and what they measure, with tiny settings."
import html
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
import torch

from timmdata.call import loader_call
from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.diagnosis_page import diagnosis_page
from timmdata.loader import create_loader
from timmdata.profile import (
    BenchResult,
    Diagnosis,
    Trial,
    bench_loader,
    cpu_seconds,
    diagnose,
    find_bottleneck,
    format_diagnosis,
    in_turns,
    leave_out,
    measure_stages,
    memory_bytes,
    process_tree,
    write_verdict,
)
from timmdata.samplers.epoch import SampleKey

TINY = '--input-size 64 --batch-size 16 --images 32 --rounds 1 --device cpu'.split()
pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize('options', [
    '--num-workers 2 --workers threads --color-jitter 0', '--num-workers 1 --workers processes --re-prob 0.5',
    '--num-workers 0 --mode eval --interpolation bicubic --backend pillow'])
def test_bench_writes_json_and_a_plot(samples, tmp_path, capsys, options):
    numbers, plot = tmp_path/'bench.json', tmp_path/'bench.png'
    files = ['--epochs', '1', '--json', str(numbers), '--plot', str(plot)]
    assert main(['bench', str(samples), *TINY, *options.split(), *files]) == 0
    result = BenchResult.from_json(numbers.read_text(encoding='utf-8'))
    assert json.loads(result.to_json()) == json.loads(numbers.read_text(encoding='utf-8'))
    names = [stage.name for stage in result.stages]
    assert {'read', 'decode', 'crop, resize', 'collate', 'normalize'} <= set(names)
    assert ('augment' in names) == ('eval' not in options)   # without jitter, flips are left
    assert ('hand over' in names) == (process_tree() is not None)
    assert sum(result.shares().values()) == pytest.approx(1) and result.loader.images_per_s > 0
    assert result.settings['num_workers'] == int(options.split()[1])
    assert plot.read_bytes()[:4] == b'\x89PNG'
    said = capsys.readouterr().out
    assert all(name in said for name in names) and 'images/s' in said and result.machine['torch'] in said


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
    assert {'read', 'decode', 'crop, resize', 'batch transform'} <= set(record['shares'])
    assert record['noise'] > 0 and record['bottleneck'] in ('', *record['shares'])
    assert any(trial['name'] == "workers='processes'" for trial in record['suggestions'])


@pytest.mark.parametrize('command', ['bench', 'doctor'])
@pytest.mark.parametrize('options, message', [
    ('--mode testing', 'allowed are train, eval'), ('--json numbers.txt', 'must end with .json'),
    ('--json no/such/numbers.json', 'there is no folder'), ('--images 0', '--images 0: give 1 or more'), ('--rounds 0', 'rounds=0'),
    ('--batch-size 0', 'batch_size=0'),
    ('--workers fibres', 'allowed are threads, processes, auto'), ('--num-workers -1', 'num_workers=-1'),
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


def test_no_process_is_left(samples):
    before = process_tree()
    bench_loader(ImageDataset(samples), 64, 16, num_images=32, epochs=1, rounds=1, num_workers=1, workers='processes',
                 device='cpu')
    if before is not None: assert len(process_tree()) <= len(before) + 1   # multiprocessing keeps a resource tracker


def test_cpu_of_ended_children_is_kept():
    if (before := cpu_seconds()) is None: pytest.skip('no /proc')
    subprocess.run([sys.executable, '-c', 'import time\nwhile time.process_time() < 0.3: pass'], check=True)
    assert 0.25 < cpu_seconds() - before < 2
    assert 10e6 < memory_bytes() < 100e9


def test_without_proc_numbers_are_missing(samples, monkeypatch, capsys):
    monkeypatch.setattr('timmdata.profile.process_tree', lambda: None)
    assert main(['bench', str(samples), *TINY, '--num-workers', '0', '--epochs', '1']) == 0
    said = capsys.readouterr().out
    assert 'CPU time not known on this system' in said and 'memory not known' in said and 'hand over' not in said


def agrees_with_itself(found):
    "The numbers of a verdict stand in the line of the table that it names."
    share, without, speed = re.search(r'(\d+%) of the time .* without (.+) the loader is ([\d.]+) times', found.verdict).groups()
    line, = [line for line in format_diagnosis(found).splitlines() if line.startswith(f'{without}  ')]
    assert {share, speed} < set(line.split())


class OwnTransform:
    "A transform that takes its time."
    def __call__(self, image):
        time.sleep(0.003)
        return torch.zeros(3, 64, 64, dtype=torch.uint8)


def test_a_slow_transform_is_found(samples):
    tiny = dict(num_images=32, transform=OwnTransform(), num_workers=1, workers='threads', device='cpu')
    stages = {s.name: s for s in bench_loader(ImageDataset(samples), 64, 16, epochs=1, rounds=1, **tiny).stages}
    assert stages['transform'].wall_ms > 3 > stages['transform'].cpu_ms
    found = diagnose(ImageDataset(samples), 64, 16, rounds=1, **tiny)
    assert isinstance(found, Diagnosis) and found.bottleneck == 'transform'
    assert list(found.shares)[:2] == ['dataset', 'transform']
    agrees_with_itself(found)


SETTINGS = [dict(color_jitter=None), dict(auto_augment='rand-m9-mstd0.5'), dict(backend='pillow'), dict(num_aug_splits=2),
            dict(train_crop_mode='rkrr'), dict(dct_scaling=True)]


@pytest.mark.parametrize('settings', SETTINGS, ids=lambda settings: ','.join(settings))
def test_what_is_left_out_does_not_change_pixels(samples, settings):
    loader = create_loader(ImageDataset(samples), 64, 8, is_training=True, seed=1, num_workers=0, device='cpu', **settings)
    builder, key = loader.loader.builder, SampleKey(7, 0)
    expected = builder.allocate(1)
    builder.load(key, expected)
    for until in ('read', 'decode'):
        row = builder.allocate(1).zero_()
        builder_without = leave_out(builder, until, [key])
        for _ in range(2): builder_without.load(key, row)
        assert torch.equal(row, expected)
    assert [stage.name for stage in measure_stages(loader, 8, 1)][:4] == ['read', 'decode', 'crop, resize', 'collate']


@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_workers_take_what_is_left_out(samples, workers):
    loader = create_loader(ImageDataset(samples), 64, 8, seed=1, num_workers=2, workers=workers, device='cpu').loader
    expected = [host.batch[0].clone() for host in loader.host_batches()]
    loader.close()
    loader.builder = leave_out(loader.builder, 'decode', list(loader.sampler.keys(0)))
    loader.set_epoch(0)
    assert all(torch.equal(a, host.batch[0]) for a, host in zip(expected, loader.host_batches(), strict=True))
    loader.close()


@pytest.mark.parametrize('low, noise, limit', [(1.8, 0.1, 'x'), (0.9, 0.1, ''), (1.8, 2., '')])
def test_a_limit_is_above_the_noise_in_every_round(low, noise, limit):
    trials = {'x': Trial('x', 2., low, 2.2, 100.), 'y': Trial('y', 0.5, 0.4, 0.6, 100.)}
    assert find_bottleneck(trials, {'x': '', 'y': 'x'}, noise) == (limit, {'x': 0.5, 'y': 0.})


def made_up(**changed) -> Diagnosis:
    "A diagnosis whose bottleneck is decoding, behind a reading that takes time as well."
    left_out = [Trial('as it is', 1., 1., 1., 200.), Trial('read', 1.21, 1.2, 1.3, 242.), Trial('decode', 3.39, 3.3, 3.5, 678.)]
    suggested = [Trial('num_workers=3', 1.3, 1.2, 1.4, 260.), Trial('num_workers=4', 1.9, 1.8, 2., 380.),
                 Trial("workers='processes'", 0.6, 0.5, 0.7, 120.), Trial("backend='a'", 1.01, 1.005, 1.1, 202.)]
    remedies = {trial.name: f'create_loader(dataset, 224, 64, {trial.name})' for trial in suggested}
    trials = {trial.name: trial for trial in left_out}
    bottleneck, shares = find_bottleneck({name: trials[name] for name in ('read', 'decode')}, {'read': '', 'decode': 'read'}, 0.02)
    values = dict(bottleneck=bottleneck, shares=shares, noise=0.02, left_out=left_out, suggestions=suggested, remedies=remedies,
                  notes=[], machine={'cores': '4'}, settings={}, verdict=write_verdict(bottleneck, shares, trials, 0.02, 1.5))
    return Diagnosis(**{**values, **changed})


def test_the_verdict_and_the_table_have_the_same_numbers():
    found = made_up()
    assert 'without read + decode the loader is 3.39 times as fast' in found.verdict
    agrees_with_itself(found)


def test_what_helps_is_written_to_be_pasted_the_fastest_first():
    pasted = [line.strip() for line in format_diagnosis(made_up()).splitlines() if 'create_loader' in line]
    assert pasted == [f'create_loader(dataset, 224, 64, num_workers={number})' for number in (4, 3)]
    assert 'nothing that was tried is faster' in format_diagnosis(made_up(suggestions=[]))


def test_a_call_that_is_pasted_has_the_settings(samples):
    settings = dict(is_training=True, num_workers=2, seed=3, hflip=0.5, mean=(0.5, 0.5, 0.5), img_dtype=torch.float16, device='cpu')
    call = loader_call((3, 64, 64), 16, settings)
    assert 'hflip' not in call and loader_call(64, 16, dict(transform=OwnTransform())).endswith('64, 16, transform=transform)')
    loader = eval(call, dict(create_loader=create_loader, dataset=ImageDataset(samples), torch=torch))
    expected = create_loader(ImageDataset(samples), 64, 16, **settings)
    assert torch.equal(next(iter(loader))[0], next(iter(expected))[0])
    for one in (loader, expected): one.close()


@pytest.mark.parametrize('slow_from, counted', [(99, [0, 1, 2, 3]), (1, [0, 1])])
def test_rounds_end_within_what_was_announced(capsys, monkeypatch, slow_from, counted):
    clock = [0.]
    monkeypatch.setattr('timmdata.profile.time.perf_counter', lambda: clock[0])
    rounds = []
    for number, name in in_turns(['one', 'two'], rounds=3, progress=True):
        clock[0] += 40. if number >= slow_from else 5.
        if name == 'one': rounds.append(number)
    said = capsys.readouterr().err
    assert rounds == counted and '2 loaders in turns: 3 rounds, 45 s at most' in said
    assert ('the time is over after 1 of 3 rounds' in said) == (slow_from == 1)


def test_nothing_is_announced_unasked(capsys):
    assert len(list(in_turns(['one'], rounds=2))) == 3 and capsys.readouterr().err == ''


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


def test_the_page_of_a_diagnosis_fits(tmp_path):
    "In a browser, on a desk and on a phone: no row is a tower of letters, and nothing is wider than the page."
    sync_api = pytest.importorskip('playwright.sync_api')
    names = list(filter(None, [os.environ.get('CHROMIUM'), 'chromium', 'chromium-browser', 'google-chrome']))
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None: pytest.skip(f'no browser: {" or ".join(names)}')
    (tmp_path/'page.html').write_text(diagnosis_page(made_up(), 'doctor: ' + 60 * 'a/b'), encoding='utf-8')
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=['--no-sandbox'])
        for width in (1280, 390):
            page = chromium.new_page(viewport=dict(width=width, height=800))
            page.goto((tmp_path/'page.html').as_uri())
            assert page.evaluate('document.documentElement.scrollWidth') <= width
            tables = page.evaluate("[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth])")
            heights = page.evaluate("[...document.querySelectorAll('tr')].map(row => row.getBoundingClientRect().height)")
            assert all(inner <= outer for inner, outer in tables) and max(heights) < 120, (width, tables, heights)
        chromium.close()
