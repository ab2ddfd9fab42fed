"The guide `faster`: it has a section for each finding that `diagnose` can give, and nothing else is given."
import re

import pytest
from notebooks import read_notebook
from synthetic import ROOT

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.measure.diagnosis import BOTTLENECKS, CHANGES, GUIDE, NO_PSUTIL, NO_SIMPLEJPEG, diagnose, format_diagnosis

GUIDES = ROOT/'nbs/guides'
CELLS = [''.join(cell['source']) for cell in read_notebook(GUIDES/'faster.ipynb')['cells']]
HEADINGS = [line for cell in CELLS for line in cell.split('\n') if line.startswith('### ')]


@pytest.mark.parametrize('finding', [name for name in BOTTLENECKS if name] + list(CHANGES))
def test_each_finding_has_its_section(finding):
    own = [line for line in HEADINGS if re.search(f'`{re.escape(finding)}(=[^`]*)?`', line)]
    assert len(own) == 1, (finding, HEADINGS)
    at = next(k for k, cell in enumerate(CELLS) if own[0] in cell)
    assert '**Symptom**' in CELLS[at]
    code = CELLS[at + 1]
    assert re.search(r'diagnose\(|create_loader\(|as_jpeg', code), 'a cell in which it happens'


def test_what_is_no_stage_has_its_section():
    text = '\n'.join(CELLS)
    assert '### No bottleneck' in HEADINGS and '**Cores busy**' in text
    assert 'NO_SIMPLEJPEG' in text and 'simplejpeg' in NO_SIMPLEJPEG and 'psutil' in text and 'psutil' in NO_PSUTIL
    title = re.search('"(.+)"', GUIDE).group(1)
    assert CELLS[0].startswith(f'# {title}\n')


@pytest.mark.parametrize('settings', [
    dict(is_training=True, re_prob=0.5, num_workers=1, worker_type='threads'), dict(backend='pillow', num_workers=0),
    dict(is_training=True, transform=lambda image: image.resize((64, 64)), num_workers=1, worker_type='processes', step_ms=1),
    pytest.param(dict(is_training=True, num_workers=64, worker_type='threads', scaled_decode=False), marks=pytest.mark.full)],
    ids=['training', 'pillow', 'own', 'crowd'])
def test_each_finding_is_explained(samples, settings):
    found = diagnose(ImageDataset(samples, split='val'), 64, 4, num_images=8, rounds=1, device='cpu', **settings)
    assert set(found.shares) <= set(BOTTLENECKS) and BOTTLENECKS[found.bottleneck] in format_diagnosis(found)
    assert {trial.name.partition('=')[0] for trial in found.changed} <= set(CHANGES)
    assert set(found.calls) == {trial.name for trial in found.changed}


def test_each_guide_that_names_doctor_leads_here():
    for name in ('when_something_goes_wrong', '../index', '../measure/20_diagnosis'):
        assert 'faster.ipynb' in (GUIDES/f'{name}.ipynb').read_text(encoding='utf-8')
