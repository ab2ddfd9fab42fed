"The type checker over the package and over users' scripts, and linters over the files for GitHub."
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import timm.data
from synthetic import ROOT

import timmdata

pytestmark = pytest.mark.full


def test_types():
    "`pyrefly check` over the package and tests/support/typed_script.py. Errors about values that may be None are ignored."
    done = subprocess.run([sys.executable, '-m', 'pyrefly', 'check', '--output-format=min-text'], cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if line.startswith('ERROR') and '`NoneType` has no attribute' not in line]
    if errors: pytest.fail('\n'.join(errors), pytrace=False)
    assert 'ERROR' in done.stdout or not done.returncode, done.stderr


SCRIPT = """
import timmdata
from timmdata import ImageDataset, ImageNetInfo, PrefetchLoader, create_loader, get_recipe, get_samples
from timmdata import ImageDatset   # mistake

dataset = ImageDataset('photos', split='val', index_file='cache', extensions=('.png',))
ImageDataset('photos', splitt='val')   # mistake
ImageDataset('labels.csv', target_key=3)   # mistake
image, target = dataset[0]
dataset[0].size   # mistake
loader = create_loader(dataset, 224, 32, is_training=True, seed=0)
create_loader(dataset, 224, 32, is_trainning=True)   # mistake
create_loader(dataset, '224', 32)   # mistake
for images, targets in loader:
    loss = images.float().mean() + targets.sum()
    images.shpe   # mistake
for batch in loader:
    batch.shape   # mistake
state = loader.state_dict()
print(state['epoch'], len(loader), loader.replay(epoch=0, batch=0).batch, ImageNetInfo('imagenet-1k'), timmdata.__version__)
loader.load_state_dict(3)   # mistake
timmdata.nonsense(3)   # mistake
recipe = get_recipe('rsb-a2', num_classes=10)
train = create_loader(dataset, batch_size=32, seed=0, **recipe.train)
ahead = PrefetchLoader(torch_loader := [(image, target)])
"""


def test_a_users_mistakes_are_found(tmp_path):
    "With pyrefly's default settings, as in a user's project; lines without a mistake pass."
    script = tmp_path/'train.py'
    script.write_text(SCRIPT)
    (tmp_path/'pyrefly.toml').write_text(f'search-path = [{str(ROOT)!r}]\npython-interpreter-path = {sys.executable!r}\n')
    done = subprocess.run([sys.executable, '-m', 'pyrefly', 'check', '--output-format=json'], cwd=tmp_path, capture_output=True, text=True)
    found = {error['line'] for error in json.loads(done.stdout)['errors']}
    mistakes = {number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith('# mistake')}
    assert found == mistakes and len(mistakes) == 10, done.stdout


def test_type_checkers_know_what_comes_from_timm():
    text = (ROOT/'timmdata/__init__.py').read_text(encoding='utf-8')
    declared = set(re.findall(r'^    (\w+): Any$', text, re.M))
    assert declared == {name for name in timm.data.__dict__ if name in timmdata.__all__} - set(vars(timmdata._offered))


GITHUB = ROOT/'.github'
WORKFLOWS = sorted((GITHUB/'workflows').glob('*.yml'))
FORMS = [GITHUB/'ISSUE_TEMPLATE/bug.yml', GITHUB/'ISSUE_TEMPLATE/gpu.yml']


def lint(*command) -> str:
    "What a linter finds."
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ''


@pytest.mark.parametrize('schema, paths', [
    ('github-workflows', WORKFLOWS), ('github-issue-forms', FORMS), ('github-issue-config', [GITHUB/'ISSUE_TEMPLATE/config.yml']),
    ('dependabot', [GITHUB/'dependabot.yml'])])
def test_files_for_github_follow_its_schemas(schema, paths):
    assert not lint(sys.executable, '-m', 'check_jsonschema', '--builtin-schema', f'vendor.{schema}', *paths)


def test_workflows_are_safe():
    "Among other things, each action is pinned by its hash."
    assert [path.name for path in WORKFLOWS] == ['release.yml', 'site.yml', 'tests.yml']
    zizmor = Path(sys.executable).with_name('zizmor')
    assert not lint(zizmor, '--offline', '--no-progress', '--quiet', '--config', GITHUB/'zizmor.yml', *WORKFLOWS, GITHUB/'dependabot.yml')


def test_workflows_run_every_python_and_system_of_the_readme():
    text = (ROOT/'.github/workflows/tests.yml').read_text(encoding='utf-8')
    for version in ('3.10', '3.11', '3.12', '3.13', '3.14', '3.14t', '3.15'): assert f"'{version}'" in text, version   # 3.14t is not 3.14
    for system in ('macos-latest', 'windows-latest'): assert f'system: {system}' in text, system
