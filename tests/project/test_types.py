"The type checker over the package and over users' scripts, and linters over the files for GitHub."
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import ROOT

pytestmark = pytest.mark.full


def test_types():
    "`pyrefly check` over the package and tests/support/typed_script.py. Errors about values that may be None are ignored."
    done = subprocess.run([sys.executable, '-m', 'pyrefly', 'check', '--output-format=min-text'], cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if line.startswith('ERROR') and '`NoneType` has no attribute' not in line]
    if errors: pytest.fail('\n'.join(errors), pytrace=False)
    assert 'ERROR' in done.stdout or not done.returncode, done.stderr


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
