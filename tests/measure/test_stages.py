"`timmdata doctor --stages`: the stages by the clock, with tiny settings."
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from grids import few
from loader_parts import SlowTransform, children

from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.diagnosis import diagnose
from timmdata.measure.stages import measure_stages

TINY = '--input-size 64 --batch-size 16 --images 32 --rounds 1 --device cpu'.split()


@pytest.mark.parametrize('options', few([
    '--num-workers 2 --worker-type threads --color-jitter 0', '--num-workers 1 --worker-type processes --re-prob 0.5',
    '--num-workers 0 --mode eval --interpolation bicubic --backend pillow'], num=1))
def test_doctor_says_where_the_time_goes(samples, tmp_path, capsys, options):
    numbers = tmp_path/'doctor.json'
    assert main(['doctor', str(samples), '--stages', *TINY, *options.split(), '--json', str(numbers)]) == 0
    record = json.loads(numbers.read_text(encoding='utf-8'))
    names = [stage['name'] for stage in record['stages']]
    assert {'read', 'decode', 'resize', 'Python', 'collate', 'normalize'} <= set(names)
    assert ('augment' in names) == ('eval' not in options)   # without jitter, flips are left
    assert record['settings']['num_workers'] == int(options.split()[1]) and not record['changed']
    said = capsys.readouterr().out
    assert all(name in said for name in names) and 'images/s' in said and record['machine']['torch'] in said
    assert 'changed' not in said and 'paste' not in said


@pytest.mark.full
def test_no_process_is_left(samples):
    diagnose(ImageDataset(samples), 64, 16, num_images=32, rounds=1, num_workers=1, worker_type='processes', device='cpu',
             with_changes=False)
    assert not children()


class CountsCores:
    "A dataset that notes how many cores torch uses in its own thread, and in a thread that begins meanwhile."
    def __init__(self, images): self.images, self.found = images, set()

    def __len__(self): return len(self.images)

    def __getitem__(self, index):
        with ThreadPoolExecutor(1) as pool: self.found.add((torch.get_num_threads(), pool.submit(torch.get_num_threads).result()))
        return self.images[index]


def test_only_the_thread_that_measures_is_limited_to_one_core(samples):
    torch.set_num_threads(2)
    dataset = CountsCores(ImageDataset(samples))
    measure_stages(create_loader(dataset, 64, 16, num_workers=0, device='cpu'), 16, 1)
    assert dataset.found == {(1, 2)} and torch.get_num_threads() == 2


SETTINGS = [dict(color_jitter=None), dict(auto_augment='rand-m9-mstd0.5'), dict(backend='pillow'), dict(num_aug_splits=2),
            dict(train_crop_mode='rkrr'), dict(scaled_decode=True)]


@pytest.mark.parametrize('settings', few(SETTINGS, num=2))
def test_every_setting_has_its_stages(samples, settings):
    loader = create_loader(ImageDataset(samples), 64, 8, is_training=True, seed=1, num_workers=0, device='cpu', **settings)
    names = ['read', 'decode', 'resize', *['policy'] * ('auto_augment' in settings), 'Python', 'collate']
    assert [stage.name for stage in measure_stages(loader, 8, 1)][:len(names)] == names


def test_a_transform_that_waits_takes_wall_time(samples):
    loader = create_loader(ImageDataset(samples), 64, 16, transform=SlowTransform(), num_workers=0, device='cpu')
    stages = {stage.name: stage for stage in measure_stages(loader, 32, rounds=1)}
    assert stages['transform'].wall_ms > 3 > stages['transform'].cpu_ms
    assert list(stages)[:4] == ['read', 'decode', 'dataset', 'transform']
