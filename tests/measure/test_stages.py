"Times of the stages, with tiny settings."
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from grids import few
from loader_parts import SlowTransform, children

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.diagnosis import diagnose, format_diagnosis
from timmdata.measure.stages import measure_stages


@pytest.mark.parametrize('settings', few([
    dict(num_workers=2, worker_type='threads', color_jitter=0., is_training=True),
    dict(num_workers=1, worker_type='processes', re_prob=0.5, is_training=True),
    dict(num_workers=0, interpolation='bicubic', backend='pillow')], num=1), ids=str)
def test_a_diagnosis_says_where_the_time_goes(samples, settings):
    found = diagnose(ImageDataset(samples), 64, 16, num_images=32, rounds=1, device='cpu', with_changes=False, **settings)
    record = json.loads(found.to_json())
    names = [stage['name'] for stage in record['stages']]
    assert {'read', 'decode', 'resize', 'Python', 'collate', 'normalize'} <= set(names)
    assert ('augment' in names) == ('is_training' in settings)   # flips remain without jitter
    assert record['settings'].items() >= settings.items() and not record['changed']
    said = format_diagnosis(found)
    assert all(name in said for name in names) and 'images/s' in said and record['machine']['torch'] in said
    assert 'changed' not in said and 'paste' not in said


@pytest.mark.full
def test_no_process_is_left(samples):
    diagnose(ImageDataset(samples), 64, 16, num_images=32, rounds=1, num_workers=1, worker_type='processes', device='cpu',
             with_changes=False)
    assert not children()


class CountsCores:
    "A dataset that records how many cores torch uses in its thread, and in a thread that starts at that time."
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
