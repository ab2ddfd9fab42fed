"The sync check, run in a copy of the checkout: passes as committed, names the file that does not agree."
import os
import shutil
import subprocess
import sys

import pytest
from export import GENERATED
from notebooks import find_notebooks
from readme import write_readme
from synthetic import ROOT, code, git, md, notebook, write_notebook

pytestmark = [pytest.mark.timeout(180), pytest.mark.apart('tools/', 'settings.ini', 'tests/project/test_sync.py')]


@pytest.fixture(scope='module')
def snapshot(tmp_path_factory):
    "A git repository with the files of this checkout as they are now."
    if not (ROOT/'.git').exists(): pytest.skip('not a git checkout')
    base = tmp_path_factory.mktemp('snapshot')
    for name in git(ROOT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard').split('\0'):
        if not name or not (ROOT/name).is_file(): continue
        (base/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT/name, base/name)
    git(base, 'init', '-q')
    commit(base)
    return base


@pytest.fixture
def checkout(snapshot, tmp_path):
    "A fresh copy of the snapshot, to spoil."
    return shutil.copytree(snapshot, tmp_path/'checkout')


def commit(base):
    git(base, 'add', '-A')
    git(base, 'commit', '-q', '-m', 'as it is')


def sync(base, *args):
    "Run the sync check in `base`; IN_TEST is what nbdev_test leaves behind."
    env = {**os.environ, 'IN_TEST': '1'}
    return subprocess.run([sys.executable, 'tools/sync.py', *args], cwd=base, env=env, capture_output=True, text=True)


def some_module(base):
    "A generated module of the checkout."
    return next(p for p in sorted((base/'timmdata').glob('*.py')) if GENERATED in p.read_text(encoding='utf-8'))


def test_checkout_is_in_sync(checkout):
    done = sync(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'passed' in done.stdout


def test_hand_edited_module_is_named(checkout):
    module = some_module(checkout)
    module.write_text(module.read_text(encoding='utf-8') + '\nEDITED = 1\n', encoding='utf-8')
    commit(checkout)
    done = sync(checkout)
    assert done.returncode == 1 and f'timmdata/{module.name}' in done.stdout
    assert 'EDITED' not in module.read_text(encoding='utf-8')


def test_module_of_a_removed_notebook_is_named(checkout):
    module = some_module(checkout)
    (checkout/'timmdata/left_behind.py').write_text(module.read_text(encoding='utf-8'), encoding='utf-8')
    commit(checkout)
    done = sync(checkout)
    assert done.returncode == 1 and 'timmdata/left_behind.py' in done.stdout


def test_notebook_that_was_not_exported_is_named(checkout):
    write_notebook(checkout/'nbs/99_added.ipynb', notebook(
        code('#| default_exp added'), md('# Added\n\n> A notebook.'), code('#| export\nANSWER = 42')))
    commit(checkout)
    done = sync(checkout)
    assert done.returncode == 1 and '?? timmdata/added.py' in done.stdout


def test_notebook_that_was_not_cleaned_is_named(checkout):
    path = find_notebooks(checkout)[0]
    path.write_text(path.read_text(encoding='utf-8').replace('"execution_count": null', '"execution_count": 7'),
                    encoding='utf-8')
    commit(checkout)
    done = sync(checkout)
    assert done.returncode == 1 and path.name in done.stdout


def test_notebook_that_is_not_json_fails(checkout):
    path = find_notebooks(checkout)[0]
    path.write_text('<<<<<<< HEAD\n' + path.read_text(encoding='utf-8'), encoding='utf-8')
    commit(checkout)
    assert sync(checkout).returncode not in (0, 2)


def test_hand_edited_readme_is_named(checkout):
    readme = checkout/'README.md'
    readme.write_text(readme.read_text(encoding='utf-8') + '\nOne more line.\n', encoding='utf-8')
    commit(checkout)
    done = sync(checkout)
    assert done.returncode == 1 and 'README.md' in done.stdout


def test_dirty_tree_is_refused_and_left_alone(checkout):
    module = some_module(checkout)
    module.write_text(module.read_text(encoding='utf-8') + '\nEDITED = 1\n', encoding='utf-8')
    (checkout/'scratch.txt').write_text('mine')
    done = sync(checkout)
    assert done.returncode == 2 and f'timmdata/{module.name}' in done.stdout and 'scratch.txt' in done.stdout
    assert 'EDITED' in module.read_text(encoding='utf-8')


def test_write_regenerates_a_dirty_tree(checkout):
    module = some_module(checkout)
    module.write_text(module.read_text(encoding='utf-8') + '\nEDITED = 1\n', encoding='utf-8')
    done = sync(checkout, '--write')
    assert done.returncode == 0 and f'timmdata/{module.name}' in done.stdout
    assert git(checkout, 'status', '--porcelain') == ''


def run(base, *command):
    env = {**os.environ, 'PATH': os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])}
    env.pop('IN_TEST', None)
    return subprocess.run(command, cwd=base, env=env, capture_output=True, text=True)


def test_one_exported_notebook_gives_the_package_that_all_give(checkout):
    notebook, = (checkout/'nbs/transforms').glob('*_settings.ipynb')   # create_transform and others show its fields
    line = next(line for line in notebook.read_text(encoding='utf-8').split('\n') if '    hflip: float' in line)
    text = notebook.read_text(encoding='utf-8').replace(line, line.replace('   # ', '   # In a mirror: '))
    notebook.write_text(text, encoding='utf-8')
    assert run(checkout, sys.executable, 'tools/export.py', 'nbs/transforms/' + notebook.name).returncode == 0
    assert 'hflip: In a mirror: ' in (checkout/'timmdata/transforms/factory.py').read_text(encoding='utf-8')
    git(checkout, 'add', '-A')
    assert run(checkout, sys.executable, 'tools/export.py').returncode == 0
    assert git(checkout, 'diff', '--stat') == ''


def test_a_package_written_by_nbdev_export_is_refused_until_it_is_ours_again(checkout):
    done = run(checkout, 'nbdev_export')
    assert done.returncode == 0, done.stderr
    asked = run(checkout, sys.executable, '-m', 'pytest', '--collect-only', '-q', 'tests/project/test_names.py')
    assert asked.returncode == 4 and 'run `python tools/export.py`' in asked.stderr
    assert run(checkout, sys.executable, 'tools/export.py').returncode == 0
    assert git(checkout, 'status', '--porcelain') == ''


def test_readme_of_this_checkout_is_current(snapshot, checkout):
    write_readme(checkout)
    assert (checkout/'README.md').read_text(encoding='utf-8') == (snapshot/'README.md').read_text(encoding='utf-8')
