"README, its commands and the notebook diff."
import base64
import json
import os
import re
import subprocess
import sys

import pytest
from colab import write_copies
from imports import ordered, used, with_imports
from notebooks import default_exp, join_code_cells, page_name, site_url, split_cell
from readme import describe, render, write_readme
from readme_commands import readme_commands
from synthetic import JPEG, ROOT, code, md, notebook, shown, stream, write_notebook
from test import chosen
from textconv import textconv

SETTINGS = '[DEFAULT]\ndoc_host = https://example.org\ndoc_baseurl = /docs\n'
TITLE = md('# timmdata\n\n> Files to **batches**.')
TWO = """# x

```sh
pip install '.[demo]' && timmdata demo
```

text

```sh
pip install -e '.[dev]' && pytest
```
"""


@pytest.fixture
def repo(tmp_path):
    "A repository with three notebooks and no README."
    (tmp_path/'settings.ini').write_text(SETTINGS)
    write_notebook(tmp_path/'nbs/46_loader.ipynb', notebook(code('#| default_exp loader')))
    write_notebook(tmp_path/'nbs/guides/dataloader.ipynb', notebook(md('# Data loader')))
    write_notebook(tmp_path/'nbs/index.ipynb', notebook(TITLE))
    return tmp_path


def test_readme_links_lead_somewhere_before_and_after_the_site_is_published(repo):
    cell = md('[a](46_loader.ipynb) [b](guides/dataloader.ipynb#a-word) [c](https://x.org) [d](#x) ![e](images/e.png) [f](../LICENSE)')
    text, _ = render(notebook(cell), repo)
    assert '[a](nbs/46_loader.ipynb) [b](nbs/guides/dataloader.ipynb#a-word)' in text and '[f](LICENSE)' in text
    (repo/'settings.ini').write_text(SETTINGS + '\nsite_is_published = True\n')
    text, _ = render(notebook(cell), repo)
    assert '[a](https://example.org/docs/loader.html)' in text
    assert '[b](https://example.org/docs/guides/dataloader.html#a-word)' in text
    assert '[c](https://x.org) [d](#x) ![e](nbs/images/e.png)' in text


def test_readme_leaves_code_blocks_alone(repo):
    block = '```python\nf[0](46_loader.ipynb)\n```'
    assert block in render(notebook(md(f'[a](46_loader.ipynb)\n\n{block}\n\nend')), repo)[0]


def test_readme_refuses_links_to_missing_notebooks(repo):
    with pytest.raises(SystemExit, match='77_nothing.ipynb'): render(notebook(md('[a](77_nothing.ipynb)')), repo)


def test_readme_shows_code_and_textual_outputs(repo):
    text, pictures = render(notebook(
        TITLE, code('#| hide\nsecret = 1'), code('#| echo: false\nprint(2)', stream('two\n')),
        code('x = 3\nx', stream('noise', 'stderr'), shown(text_plain='3')),
        code('t', shown(text_markdown='|a|'))), repo)
    assert 'secret' not in text and 'print(2)' not in text and 'noise' not in text and '#|' not in text
    assert '```text\ntwo\n```' in text and '```python\nx = 3\nx\n```\n\n```text\n3\n```' in text and '\n|a|\n' in text
    assert pictures == {}


def test_cells_without_an_output_between_them_are_one_block():
    cells = [code('import a'), code('a'), code('b', shown(text_plain='1')), code('c'), md('d'), code('e'), code('#| hide\nf'), code('g')]
    found = [cell['source'] for cell in join_code_cells(cells)]
    assert found == ['import a\n\na\n\nb', 'c', 'd', 'e', '#| hide\nf', 'g'] and cells[0]['source'] == 'import a'


def test_readme_writes_pictures_and_removes_old_ones(repo):
    picture = shown(image_jpeg=base64.b64encode(JPEG).decode(), text_plain='<Figure size 1x1>')
    write_notebook(repo/'nbs/index.ipynb', notebook(TITLE, code('show_batch(loader)', picture, picture)))
    write_readme(repo)
    text = (repo/'README.md').read_text(encoding='utf-8')
    assert '![Files to batches.](nbs/images/readme-1.jpg)\n\n![Files to batches.](nbs/images/readme-2.jpg)' in text
    assert '<Figure' not in text
    assert (repo/'nbs/images/readme-2.jpg').read_bytes() == JPEG
    write_notebook(repo/'nbs/index.ipynb', notebook(TITLE, code('show_batch(loader)', picture)))
    write_readme(repo)
    assert [p.name for p in (repo/'nbs/images').iterdir()] == ['readme-1.jpg']


def test_readme_without_index_fails(repo):
    (repo/'nbs/index.ipynb').unlink()
    with pytest.raises(SystemExit, match='index.ipynb'): write_readme(repo)


def test_describe():
    assert describe('First.\n\nA batch, as `show_batch`\nsees [it](x.ipynb):') == 'A batch, as show_batch sees it'


def test_readme_commands_finds_both():
    assert readme_commands(TWO) == ["pip install '.[demo]' && timmdata demo", "pip install -e '.[dev]' && pytest"]


@pytest.mark.parametrize('text, message', [
    ('nothing', 'found 0'),
    (TWO + '\n```sh\npip install more\n```\n', 'found 3'),
    (TWO.replace('&& timmdata demo', '\ntimmdata demo'), 'block 1 has 2 lines'),
    (TWO.replace("pip install '.[demo]' && ", ''), 'command 1 does not install'),
    (TWO.replace('&& pytest', '&& true'), 'does not run the tests'),
])
def test_readme_commands_refuses(text, message):
    with pytest.raises(ValueError, match=message): readme_commands(text)


@pytest.mark.parametrize('number, word', [('1', 'timmdata demo'), ('2', 'pytest')])
def test_readme_of_this_repository_has_both_commands(number, word):
    command = [sys.executable, 'tools/readme_commands.py', number]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('pip install ') and word in done.stdout and done.stdout.count('\n') == 1


def test_readme_pictures_of_this_repository_exist():
    pictures = re.findall(r'!\[[^\]]*\]\(([^)]+)\)', (ROOT/'README.md').read_text(encoding='utf-8'))
    assert pictures and all((ROOT/p).is_file() for p in pictures)


def test_textconv_shows_sources_only():
    nb = notebook(md('# A\n\ntext'), code('x = 1\nx', shown(text_plain='SEEN')))
    assert textconv(json.dumps(nb)) == '%%md\n# A\n\ntext\n\n%%code\nx = 1\nx\n\n'
    assert textconv('<<<<<<< HEAD\n{}') == '<<<<<<< HEAD\n{}'


def test_notebook_facts():
    assert split_cell('#| export\n#|hide\n\nx = 1\n#| late') == (['export', 'hide'], 'x = 1\n#| late')
    assert default_exp(notebook(md('# A'), code('#| default_exp loader'))) == 'loader'
    assert default_exp(notebook(md('#| default_exp loader'))) is None
    pages = {'46_loader.ipynb': 'loader.html', 'guides/01_a_b.ipynb': 'guides/a_b.html', 'index.ipynb': 'index.html'}
    assert {path: page_name(path) for path in pages} == pages
    assert site_url().startswith('https://') and not site_url().endswith('/')


# what is tested after a change
def test_a_changed_notebook_runs_its_page_the_tests_of_its_module_and_the_style():
    tests, later = chosen(['nbs/readers/40_tar.ipynb', 'timmdata/readers/tar.py', 'tests/readers/test_base.py', 'CHANGELOG.md'])
    assert {'tests/readers/test_tar.py', 'tests/project/test_notebooks.py::test_notebook[readers/40_tar.ipynb]',
            'tests/project/test_notebook_style.py', 'tests/readers/test_base.py'} <= set(tests)
    assert len(tests) == len(set(tests)) and not set(tests) & set(later)
    assert all(test.endswith('.py') for test in later) and 'tests/core/test_rng.py' not in later
    assert chosen(['CHANGELOG.md']) == ([], [])


def test_what_tests_share_is_tested_by_those_that_import_it():
    tests, later = chosen(['tests/support/synthetic.py', 'tools/sync.py'])
    assert 'tests/project/test_sync.py' in tests and 'tests/project/test_spelling.py' in later


def test_imports_are_followed_through_front_doors():
    assert used('from timmdata import create_loader') == {'loader'}
    assert used('from timmdata.core.rng import seed\nimport os') == used('from timmdata.core import rng') == {'core.rng'}
    assert used('import timmdata') > used('import timmdata.readers') > {'readers.tar', 'readers.base'}
    assert {'loader', 'core.rng'} < with_imports({'loader'}) and with_imports({'core.rng'}) == {'core.rng'}


# the copies for Colab
def run_in_ipython(source: str, cwd, on_colab: bool) -> list[str]:
    "Run a cell; what it printed, and where it ended. pip only says what it was told."
    support = [str(ROOT/'tests/support/on_colab')] if on_colab else []
    code = ("import sys\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
            "shell.register_magic_function(lambda line: print('pip', line), 'line', 'pip')\n"
            "shell.run_cell(sys.stdin.read()).raise_error()\nimport os\nprint(os.getcwd())")
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(support), 'IPYTHONDIR': str(cwd/'.ipython')}
    done = subprocess.run([sys.executable, '-c', code], input=source, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split('\n')[:-1]


@pytest.fixture
def published(repo, tmp_path_factory):
    "The repository under version control, and the copies of its notebooks."
    (repo/'settings.ini').write_text(SETTINGS + f'lib_name = some_library\ngit_url = {repo.as_uri()}\n')
    author = ['-c', 'user.name=a', '-c', 'user.email=a@example.org']
    for command in (['init', '-q'], ['add', '-A'], [*author, 'commit', '-qm', 'all']):
        subprocess.run(['git', *command], cwd=repo, check=True)
    out = tmp_path_factory.mktemp('copies')
    write_copies(out, base=repo)
    return out


def test_copies_for_colab_have_one_more_cell(repo, published):
    for path in (repo/'nbs').rglob('*.ipynb'):
        first, *others = json.loads((published/path.relative_to(repo)).read_text())['cells']
        assert others == json.loads(path.read_text())['cells'] and first['cell_type'] == 'code'
    assert len(list(published.rglob('*.ipynb'))) == 3


@pytest.mark.parametrize('name, folder', [('guides/dataloader', 'nbs/guides'), ('index', 'nbs')])
def test_the_first_cell_installs_on_colab_and_does_nothing_elsewhere(repo, published, tmp_path_factory, name, folder):
    source = ''.join(json.loads((published/f'nbs/{name}.ipynb').read_text())['cells'][0]['source'])
    there, here = tmp_path_factory.mktemp('there'), tmp_path_factory.mktemp('here')
    assert run_in_ipython(source, here, on_colab=False) == [str(here)]
    said, ended = run_in_ipython(source, there, on_colab=True)
    assert said == "pip install -q './some_library-source[notebooks]'" and ended == str(there/'some_library-source'/folder)
    assert (there/'some_library-source'/folder/f'{name.split("/")[-1]}.ipynb').is_file()


def test_imports_of_the_package_are_relative_and_other_packages_come_first():
    source = 'import os\n\nfrom timmdata.core.rng import (\n    seed,\n)\nfrom .base import B\nfrom ..pipeline.fetch import F\n\nx = 1\n'
    assert ordered(source, 'loaders.loop') == (
        'import os\n\nfrom ..core.rng import (\n    seed,\n)\nfrom ..pipeline.fetch import F\nfrom .base import B\n\nx = 1\n')
    assert ordered('from timmdata.loaders.base import (\n    a,\n)', 'loaders.loop') == 'from .base import (\n    a,\n)'
    assert ordered('from timmdata.look.trace import (\n    a,\n)', 'cli') == 'from .look.trace import (\n    a,\n)'


def test_no_module_imports_the_package_by_its_absolute_name():
    found = {path.name for path in (ROOT/'timmdata').rglob('*.py')
             if re.search(r'^from timmdata\b', path.read_text(encoding='utf-8'), re.M)}
    assert not found
