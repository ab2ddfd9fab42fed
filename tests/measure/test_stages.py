"`timmdata bench`: the stages by the clock, and the whole loader, with tiny settings."
import time

import pytest
import torch

from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.machine import process_tree
from timmdata.measure.stages import BenchResult, bench_loader, measure_stages

TINY = '--input-size 64 --batch-size 16 --images 32 --rounds 1 --device cpu'.split()


@pytest.mark.parametrize('options', [
    '--num-workers 2 --workers threads --color-jitter 0', '--num-workers 1 --workers processes --re-prob 0.5',
    '--num-workers 0 --mode eval --interpolation bicubic --backend pillow'])
def test_bench_writes_json_and_a_plot(samples, tmp_path, capsys, options):
    numbers, plot = tmp_path/'bench.json', tmp_path/'bench.png'
    files = ['--epochs', '1', '--json', str(numbers), '--plot', str(plot)]
    assert main(['bench', str(samples), *TINY, *options.split(), *files]) == 0
    result = BenchResult.from_json(numbers.read_text(encoding='utf-8'))
    assert result.to_json() + '\n' == numbers.read_text(encoding='utf-8')
    names = [stage.name for stage in result.stages]
    assert {'read', 'decode', 'crop, resize', 'collate', 'normalize'} <= set(names)
    assert ('augment' in names) == ('eval' not in options)   # without jitter, flips are left
    assert sum(result.shares().values()) == pytest.approx(1) and result.loader.images_per_s > 0
    assert result.settings['num_workers'] == int(options.split()[1])
    assert plot.read_bytes()[:4] == b'\x89PNG'
    said = capsys.readouterr().out
    assert all(name in said for name in names) and 'images/s' in said and result.machine['torch'] in said


def test_no_process_is_left(samples):
    before = process_tree()
    bench_loader(ImageDataset(samples), 64, 16, num_images=32, epochs=1, rounds=1, num_workers=1, workers='processes',
                 device='cpu')
    if before is not None: assert len(process_tree()) <= len(before) + 1   # multiprocessing keeps a resource tracker


def test_without_proc_numbers_are_missing(samples, monkeypatch, capsys):
    monkeypatch.setattr('timmdata.measure.machine.process_tree', lambda: None)
    assert main(['bench', str(samples), *TINY, '--num-workers', '0', '--epochs', '1']) == 0
    said = capsys.readouterr().out
    assert 'CPU time not known on this system' in said and 'memory not known' in said


SETTINGS = [dict(color_jitter=None), dict(auto_augment='rand-m9-mstd0.5'), dict(backend='pillow'), dict(num_aug_splits=2),
            dict(train_crop_mode='rkrr'), dict(dct_scaling=True)]


@pytest.mark.parametrize('settings', SETTINGS, ids=lambda settings: ','.join(settings))
def test_every_setting_has_its_stages(samples, settings):
    loader = create_loader(ImageDataset(samples), 64, 8, is_training=True, seed=1, num_workers=0, device='cpu', **settings)
    assert [stage.name for stage in measure_stages(loader, 8, 1)][:4] == ['read', 'decode', 'crop, resize', 'collate']


class OwnTransform:
    "A transform that takes its time."
    def __call__(self, image):
        time.sleep(0.003)
        return torch.zeros(3, 64, 64, dtype=torch.uint8)


def test_a_transform_that_waits_takes_wall_time(samples):
    tiny = dict(num_images=32, transform=OwnTransform(), num_workers=1, workers='threads', device='cpu')
    stages = {s.name: s for s in bench_loader(ImageDataset(samples), 64, 16, epochs=1, rounds=1, **tiny).stages}
    assert stages['transform'].wall_ms > 3 > stages['transform'].cpu_ms
    assert list(stages)[:4] == ['read', 'decode', 'dataset', 'transform']
