"The type checker over the package and over a user's script, and linters over the workflows."
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import ROOT

SCRIPT = '''
from typing import assert_type

import torch

from timmdata import ImageDataset, create_loader, relabel
from timmdata.loaders import Loader

dataset = ImageDataset('photos')
train = create_loader(dataset, (3, 224, 224), 32, is_training=True, auto_augment='rand-m9-mstd0.5', seed=0)
assert_type(train, Loader)
for epoch in range(2):
    train.set_epoch(epoch)
    for images, targets in train:
        loss = images.mean() + targets.sum()
state = train.state_dict()
train.load_state_dict(state)
batch = train.replay(0, 3).batch
train.close()
'''

pytestmark = pytest.mark.full


def check(*paths: Path | str, cwd: Path = ROOT, errors: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    "Run the type checker with the settings of pyproject.toml, and with further kinds of errors."
    command = [sys.executable, '-m', 'pyrefly', 'check', '--output-format=min-text', '--config', str(ROOT/'pyproject.toml')]
    command += [part for kind in errors for part in ('--error', kind)]
    return subprocess.run([*command, *map(str, paths)], cwd=cwd, capture_output=True, text=True)


def test_the_package_has_no_attribute_that_a_class_does_not_define():
    "What may be None is passed over: the code knows when it is there."
    done = check('timmdata')
    errors = [line for line in done.stdout.splitlines() if line.startswith('ERROR') and '`NoneType` has no attribute' not in line]
    if errors: pytest.fail('\n'.join(errors), pytrace=False)
    assert 'ERROR' in done.stdout or not done.returncode, done.stderr


def test_a_users_script_has_the_types_that_it_says(tmp_path):
    (tmp_path/'script.py').write_text(SCRIPT)
    done = check(tmp_path/'script.py', errors=('bad-argument-type',))
    if done.returncode: pytest.fail(done.stdout + done.stderr, pytrace=False)


@pytest.mark.parametrize('line, message', [
    ('train.sate_dict()', 'sate_dict'),
    ("create_loader(dataset, 224, 32, is_trainin=True)", 'is_trainin'),
    ("create_loader(dataset, 224, 32, use_prefetcher=False, is_trainin=True)", 'is_trainin'),
    ("create_loader(dataset, 224, 32, num_workers=None)", 'num_workers'),
    ('assert_type(train, int)', 'assert_type'),
])
def test_mistakes_in_a_script_are_found(tmp_path, line, message):
    (tmp_path/'script.py').write_text(f'{SCRIPT}{line}\n')
    done = check(tmp_path/'script.py', errors=('bad-argument-type',))
    assert done.returncode and message in done.stdout, done.stdout + done.stderr


def test_an_attribute_that_only_a_subclass_defines_is_found(tmp_path):
    (tmp_path/'half.py').write_text('class Half:\n    def f(self): return self.x\n\n\nclass Whole(Half):\n'
                                    '    def __init__(self): self.x = 1\n')
    done = check(tmp_path/'half.py')
    assert done.returncode and 'no attribute `x`' in done.stdout, done.stdout + done.stderr


WORKFLOWS = sorted((ROOT/'.github/workflows').glob('*.yml'))


def lint(*paths: Path) -> list[str]:
    "What the linters of workflows find."
    schema = [sys.executable, '-m', 'check_jsonschema', '--builtin-schema', 'vendor.github-workflows', *map(str, paths)]
    audit = [str(Path(sys.executable).with_name('zizmor')), '--offline', '--no-progress', '--quiet',
             '--config', str(ROOT/'.github/zizmor.yml'), *map(str, paths)]
    runs = [subprocess.run(command, capture_output=True, text=True) for command in (schema, audit)]
    return [done.stdout + done.stderr for done in runs if done.returncode]


def test_workflows_are_valid():
    assert [path.name for path in WORKFLOWS] == ['release.yml', 'site.yml', 'tests.yml']
    assert not lint(*WORKFLOWS)


def test_workflows_run_every_python_and_system_of_the_readme():
    text = (ROOT/'.github/workflows/tests.yml').read_text(encoding='utf-8')
    for version in ('3.10', '3.11', '3.12', '3.13', '3.14', '3.14t'): assert f"'{version}'" in text, version   # 3.14t is not 3.14
    for system in ('macos-latest', 'windows-latest'): assert f'system: {system}' in text, system


def test_a_wrong_workflow_is_found(tmp_path):
    text = WORKFLOWS[-1].read_text(encoding='utf-8')
    (tmp_path/'wrong.yml').write_text(text.replace('runs-on', 'run-on'))
    (tmp_path/'unsafe.yml').write_text(text.replace('permissions: {}\n', '').replace('bash .ci/run', 'echo ${{ github.head_ref }}'))
    for name in ('wrong.yml', 'unsafe.yml'): assert lint(tmp_path/name), name
