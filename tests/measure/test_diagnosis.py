"What limits a loader, and which settings help: `diagnose` with tiny settings."
import json
import re
import time
from dataclasses import replace
from itertools import count

import pytest
import torch
from loader_parts import SlowTransform
from PIL import Image

from timmdata.core.cores import available_cores
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.look.preview import loader_call
from timmdata.measure.diagnosis import WORKERS, Diagnosis, diagnose, find_bottleneck, format_diagnosis
from timmdata.measure.machine import Trial
from timmdata.measure.stages import StageTime

TINY = dict(input_size=64, batch_size=16, num_images=32, rounds=1, device='cpu')
pytestmark = pytest.mark.timeout(60)


def test_a_diagnosis_is_json(samples):
    found = diagnose(ImageDataset(samples), **TINY, num_workers=1, is_training=True)
    record = json.loads(found.to_json())
    assert format_diagnosis(found).splitlines()[0] == record['verdict'] == found.verdict
    assert {trial['name'] for trial in record['changed']} == set(record['calls'])
    assert {'read', 'decode', 'resize', 'batch transform'} <= set(record['shares'])
    assert record['noise'] > 0 and record['bottleneck'] in ('', *record['shares'])
    assert any(trial['name'] == "worker_type='processes'" for trial in record['changed'])


@pytest.mark.parametrize('settings', [
    dict(seconds=-1), dict(step_ms=-1), dict(num_images=0), dict(rounds=0), dict(batch_size=0), dict(worker_type='fibres'),
    dict(num_workers='many'), dict(backend='none'), dict(device='moon'), dict(input_size=0)], ids=str)
def test_wrong_settings_are_errors_of_one_line(samples, settings):
    with pytest.raises((ValueError, RuntimeError)) as found: diagnose(ImageDataset(samples), **{**TINY, **settings})
    assert str([*settings.values()][0]) in str(found.value) and '\n' not in str(found.value)


def agrees_with_itself(found):
    "The numbers of a verdict are those in the table row that it names."
    numbers = set(re.findall(r'\d+%|[\d.]+(?= times)', found.verdict))
    line = next(line for line in format_diagnosis(found).splitlines() if line.startswith(f'{found.bottleneck}  '))
    assert numbers and numbers <= set(line.split()), (found.verdict, line)


def test_a_slow_transform_is_found(samples):
    tiny = dict(num_images=32, transform=SlowTransform(), num_workers=1, worker_type='threads', device='cpu')
    found = diagnose(ImageDataset(samples), 64, 16, rounds=2, **tiny)   # one round next to other programs gives no advice
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


def made_up(**changed) -> Diagnosis:
    "A diagnosis whose bottleneck is decoding, while reading takes time, too."
    stages = [stage('read', 1.), stage('decode', 3.)]
    left_out = [Trial('as it is', 1., 1., 1., 200., busy=1.5), Trial(WORKERS, 3.39, 3.3, 3.5, 678.), Trial('step', 1.1, 1., 1.2, 220.)]
    suggested = [Trial('num_workers=3', 1.3, 1.2, 1.4, 260.), Trial('num_workers=4', 1.9, 1.8, 2., 380.),
                 Trial("worker_type='processes'", 0.6, 0.5, 0.7, 120.), Trial("backend='a'", 1.01, 1.005, 1.1, 202.)]
    calls = {trial.name: f'create_loader(dataset, 224, 64, {trial.name})' for trial in suggested}
    return Diagnosis(**{**dict(stages=stages, left_out=left_out, changed=suggested, calls=calls, notes=[],
                               machine={'cores': '4'}, settings={}), **changed})


def test_the_verdict_and_the_table_have_the_same_numbers():
    found = made_up()
    assert found.verdict.startswith('the bottleneck is decode: it takes 53% of the time per image; 1.5 of 4 cores')
    agrees_with_itself(found)
    waits = made_up(left_out=[Trial(WORKERS, 1., 0.9, 1.1, 200.), Trial('step', 2.5, 2.4, 2.6, 500.)])
    assert waits.verdict == 'the bottleneck is step: it takes 60% of the time per image; without it the loader is 2.50 times as fast'
    agrees_with_itself(waits)
    assert made_up(left_out=[Trial('the same again', 1.2, 0.9, 1.3, 200.)]).verdict.startswith(
        'no bottleneck: no stage makes a difference above the noise (30%)')


def test_what_helps_is_written_to_be_pasted_the_fastest_first():
    pasted = [line.strip() for line in format_diagnosis(made_up()).splitlines() if 'create_loader' in line]
    assert pasted == [f'create_loader(dataset, 224, 64, num_workers={number})' for number in (4, 3)]
    nothing = made_up(changed=[Trial("backend='a'", 1.01, 1.005, 1.1, 202.)])
    assert 'none of the changes is faster' in format_diagnosis(nothing)


def test_a_call_that_is_pasted_has_the_settings(samples):
    settings = dict(is_training=True, num_workers=2, seed=3, hflip=0.5, mean=(0.5, 0.5, 0.5), img_dtype=torch.float16, device='cpu')
    call = loader_call((3, 64, 64), 16, settings)
    assert 'hflip' not in call and loader_call(64, 16, dict(transform=SlowTransform())).endswith('64, 16, transform=transform)')
    loader = eval(call, dict(create_loader=create_loader, dataset=ImageDataset(samples), torch=torch))
    expected = create_loader(ImageDataset(samples), 64, 16, **settings)
    assert torch.equal(next(iter(loader))[0], next(iter(expected))[0])
    for one in (loader, expected): one.close()


def test_what_leaves_batches_as_they_are_comes_first():
    suggested = [Trial('scaled_decode=True', 9., 8., 10., 1.),
                 Trial("worker_type='processes'", 1.3, 1.2, 1.4, 1.), Trial('num_workers=4', 1.9, 1.8, 2., 1.)]
    found = made_up(changed=suggested, calls={trial.name: f'call({trial.name})' for trial in suggested})
    names = ['num_workers=4', "worker_type='processes'", 'scaled_decode=True']
    assert [trial.name for trial in found.helpful()] == names
    assert re.findall(r'^    call\((.*)\)$', format_diagnosis(found), re.MULTILINE) == names


@pytest.mark.full
def test_slow_images_are_fewer_and_end_in_time(samples):
    "An image takes 50 ms: 256 of them, for two rounds of eight loaders, would take a worker 200 s."
    slow = dict(transform=SlowTransform(0.05), is_training=True, num_workers=1, worker_type='threads', device='cpu')
    start = time.perf_counter()
    found = diagnose(ImageDataset(samples), 64, 64, seconds=4., **slow)
    assert time.perf_counter() - start < 12
    assert max(found.shares, key=found.shares.get) == 'transform'
    assert found.settings['batch_size'] == 2 and 'instead of 256' in found.notes[2]
    assert found.calls['num_workers=2'].startswith('create_loader(dataset, 64, 64, ')


def test_training_that_waits_is_told_how_many_cores_it_takes(samples):
    found = diagnose(ImageDataset(samples), 32, 8, 16, rounds=1, step_ms=0.8, with_changes=False, device='cpu', num_workers=0)
    cpu_ms, cores = map(float, re.search(r'at ([\d.]+) ms of CPU time .*; training needs 10,000 \(cores: (\d+)\)', found.notes[1]).groups())
    assert abs(cores - 10 * cpu_ms) <= 1.1


def test_the_share_of_the_decode_limit_is_that_of_its_own_numbers(samples):
    found = diagnose(ImageDataset(samples), 32, 8, 16, rounds=1, with_changes=False, device='cpu', num_workers=0)
    share, limit = re.search(r'the loader reaches (\d+)% of the decode limit, ([\d,]+) images/s', found.notes[-1]).groups()
    decode, = (stage.wall_ms for stage in found.stages if stage.name == 'decode')
    assert abs(int(limit.replace(',', '')) - available_cores() * 1000 / decode) <= 1
    assert abs(int(share) / 100 - found.left_out[0].images_per_s * decode / 1000 / available_cores()) <= 0.006
    own = diagnose([(Image.new('RGB', (8, 8)), 0)] * 8, 8, 4, 8, rounds=1, with_changes=False, device='cpu', num_workers=0)
    assert not [note for note in own.notes if 'decode limit' in note]   # nothing is decoded


# ---- other programs

def beside(others: float | None, rounds: int) -> Diagnosis:
    "The made-up diagnosis, on 4 cores, some of them used by other programs."
    quiet = made_up()
    left_out, changed = ([replace(trial, others=others, rounds=rounds) for trial in trials] for trials in (quiet.left_out, quiet.changed))
    return made_up(left_out=left_out, changed=changed)


@pytest.mark.parametrize('others, rounds', [(2.5, 5), (2.5, 2), (0.7, 3)])
def test_busy_cores_are_said_in_the_verdict(others, rounds):
    found = beside(others, rounds)
    assert found.verdict.startswith('the bottleneck is decode: it takes 53% of the time per image; 1.5 of 4 cores are busy; ')
    assert f'; other programs keep {others} of 4 cores busy: measure again when they have ended' in found.verdict
    assert [trial.name for trial in found.helpful()] == [trial.name for trial in made_up().helpful()]
    assert json.loads(found.to_json())['others'] == pytest.approx(others)


@pytest.mark.parametrize('others, rounds', [(None, 1), (0.2, 1), (None, 5), (0.2, 5)])
def test_a_quiet_machine_is_not_mentioned(others, rounds):
    found = beside(others, rounds)
    assert found.verdict == made_up().verdict and format_diagnosis(found) == format_diagnosis(made_up())


def test_one_round_beside_other_programs_gives_no_advice():
    found = beside(2.5, 1)
    assert found.verdict == 'no verdict: other programs keep 2.5 of 4 cores busy, and there was only one round'
    assert found.bottleneck == '' and found.helpful() == []
    text = format_diagnosis(found)
    assert text.splitlines()[:2] == [found.verdict, 'measure again when they have ended, or with more time and rounds']
    for advice in ('create_loader(', 'times as fast', 'try more workers', 'none of the changes', 'is the limit', 'no difference'):
        assert advice not in text, advice
    assert '3.39' in text   # the numbers are there
    assert json.loads(found.to_json())['bottleneck'] == ''


@pytest.mark.parametrize('rounds', [1, 2])
def test_a_diagnosis_counts_what_other_programs_use(samples, monkeypatch, rounds):
    "Each reading adds half a second of other programs' CPU time per core, however short a pass is."
    clock = count(0., 0.5 * available_cores())
    monkeypatch.setattr('timmdata.measure.machine.machine_seconds', lambda: next(clock) + time.perf_counter())
    small = dict(input_size=16, num_images=4, num_workers=0, device='cpu', with_changes=False, is_training=True)
    said = format_diagnosis(diagnose(ImageDataset(samples), rounds=rounds, **small))
    assert said.startswith('no verdict: other programs keep ') == (rounds == 1) and f'of {available_cores()} cores busy' in said
