"`timmdata bench` and `timmdata doctor` on the sample photographs, and what they measure, with tiny settings."
import json
import subprocess
import sys
import time

import pytest
import torch

from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.profile import (
    BenchResult,
    Diagnosis,
    Trial,
    bench_loader,
    cpu_seconds,
    diagnose,
    find_bottleneck,
    leave_out,
    measure_stages,
    memory_bytes,
    process_tree,
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
    numbers = tmp_path/'doctor.json'
    assert main(['doctor', str(samples), *TINY, '--num-workers', '1', '--json', str(numbers)]) == 0
    record = json.loads(numbers.read_text(encoding='utf-8'))
    said = capsys.readouterr().out
    assert said.splitlines()[0] == record['verdict']
    assert {'read', 'decode', 'crop, resize', 'batch transform'} <= set(record['shares'])
    assert record['noise'] > 0 and record['bottleneck'] in ('', *record['shares'])
    assert any(trial['name'] == "workers='processes'" for trial in record['suggestions'])


@pytest.mark.parametrize('command', ['bench', 'doctor'])
@pytest.mark.parametrize('options, message', [
    ('--mode testing', 'allowed are train, eval'), ('--json numbers.txt', 'must end with .json'),
    ('--json no/such/numbers.json', 'there is no folder'), ('--images 0', 'num_images=0'), ('--rounds 0', 'rounds=0'),
    ('--batch-size 0', 'batch_size=0'), ('--batch-size 64 --images 8', 'do not fill one batch'),
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
