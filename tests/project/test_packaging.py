"The source distribution and the wheel: their contents, requirements and Python versions."
import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser

import pytest
from notebooks import find_notebooks, needed, read_notebook, read_settings, split_cell
from synthetic import ROOT

pytestmark = [pytest.mark.timeout(180), pytest.mark.full]
SOURCES = ['timmdata', 'tools', 'tests', 'docs', 'benchmarks', 'nbs', 'setup.py', 'settings.ini', 'MANIFEST.in',
           'pyproject.toml', 'README.md', 'LICENSE', 'CHANGELOG.md',
           'SECURITY.md']


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "Return the folder with the built sdist and the wheel made from it; the checkout is not changed."
    base = tmp_path_factory.mktemp('build')
    for name in SOURCES:
        source = ROOT/name
        if source.is_dir(): shutil.copytree(source, base/name, ignore=shutil.ignore_patterns('__pycache__'))
        elif source.exists(): shutil.copy2(source, base/name)
    command = [sys.executable, '-m', 'build', '--no-isolation', '--outdir', str(base/'dist')]
    done = subprocess.run(command, cwd=base, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return base/'dist'


@pytest.fixture(scope='module')
def wheel(built):
    "The wheel, open."
    path, = built.glob('*.whl')
    with zipfile.ZipFile(path) as archive: yield archive


@pytest.fixture(scope='module')
def metadata(wheel):
    "The wheel's METADATA."
    name, = [n for n in wheel.namelist() if n.endswith('.dist-info/METADATA')]
    return Parser().parsestr(wheel.read(name).decode())


def normalize(requirement: str) -> str:
    return re.sub(r'\s', '', requirement)


def test_wheel_holds_the_modules_and_nothing_else(wheel):
    version = read_settings()['version']
    assert wheel.filename.endswith(f'timmdata-{version}-py3-none-any.whl')
    held = {n for n in wheel.namelist() if not n.startswith(f'timmdata-{version}.dist-info/')}
    sources = [*(ROOT/'timmdata').rglob('*.py'), ROOT/'timmdata/py.typed']
    assert held == {p.relative_to(ROOT).as_posix() for p in sources}


def test_wheel_is_small(built):
    path, = built.glob('*.whl')
    assert path.stat().st_size < 700_000


def test_wheel_holds_the_license_and_the_command(wheel):
    texts = {n.split('/', 1)[1]: wheel.read(n).decode() for n in wheel.namelist() if '.dist-info/' in n}
    license, = [text for name, text in texts.items() if name.endswith('LICENSE')]
    assert license == (ROOT/'LICENSE').read_text(encoding='utf-8')
    assert texts['entry_points.txt'].split() == ['[console_scripts]', 'timmdata', '=', 'timmdata.cli:main']


def test_metadata_says_what_an_index_shows(metadata):
    classifiers = metadata.get_all('Classifier')
    readme = (ROOT/'README.md').read_text(encoding='utf-8')
    for minor in range(10, 15): assert f'Programming Language :: Python :: 3.{minor}' in classifiers
    assert 'Typing :: Typed' in classifiers and (ROOT/'timmdata/py.typed').exists()
    # a system that has not been run is not claimed
    assert 'Windows and macOS have not been run yet' in readme
    assert [c for c in classifiers if c.startswith('Operating System')] == ['Operating System :: POSIX :: Linux']
    urls = dict(line.split(', ') for line in metadata.get_all('Project-URL'))
    assert {'Source', 'Issues', 'Changelog', 'Documentation'} <= set(urls)
    start = f"{read_settings()['git_url']}/blob/{read_settings()['branch']}/"
    for url in urls.values():
        if url.startswith(start): assert (ROOT/url.removeprefix(start).partition('#')[0]).exists(), url


def test_metadata_requires_only_what_runs(metadata):
    settings = read_settings()
    assert metadata['Requires-Python'] == f">={settings['min_python']}"
    required = [normalize(r) for r in metadata.get_all('Requires-Dist')]
    assert {r for r in required if ';' not in r} == set(settings['requirements'].split())
    extras = {name.removesuffix('_requirements') for name in settings if name.endswith('_requirements')}
    for extra in extras:
        found = {r.split(';')[0] for r in required if re.search(rf'extra==.{extra}.$', r)}
        assert found == set(settings[f'{extra}_requirements'].split())
    assert set(metadata.get_all('Provides-Extra')) == extras >= {'demo', 'fast', 'inspect', 'notebooks', 'dev'}


def test_messages_name_packages_that_an_index_has():
    "Messages name the packages of an extra, because no index has `timmdata[extra]` before a release."
    paths = [*(ROOT/'timmdata').rglob('*.py'), *(ROOT/'nbs').rglob('*.ipynb'), ROOT/'README.md']
    texts = {path.name: path.read_text(encoding='utf-8') for path in paths}
    # with ./ before it, it is a clone: that is how Colab installs
    assert [name for name, text in texts.items() if re.search(r'(?<!\./)timmdata\[', text)] == []
    named = {name for text in texts.values() for line in re.findall(r'pip install (?:--upgrade )?([\w -]+)', text)
             for name in line.split() if '-' not in name[:1]}
    named |= {name for text in texts.values() for name in re.findall(r"optional\('(\w+)", text)}   # it writes the message
    assert {'simplejpeg', 'pyarrow', 'webdataset', 'datasets', 'imagehash', 'ray', 'ipywidgets', 'tensorflow', 'obstore'} <= named


def imports(source: str) -> set[str]:
    "Return the packages that a code cell imports, without Python's and this one."
    names = set()
    for node in ast.walk(ast.parse(split_cell(source)[1])):
        if isinstance(node, ast.Import): names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level: names.add(node.module)
    return {name.partition('.')[0] for name in names} - {*sys.stdlib_module_names, 'timmdata'}


def requirements(*extras: str) -> set[str]:
    "Return the names of the distributions that are installed with these extras."
    settings = read_settings()
    lines = [settings['requirements'], *(settings[f'{extra}_requirements'] for extra in extras)]
    return {re.split(r'[<>=]', requirement)[0] for requirement in ' '.join(lines).split()}


def test_the_extra_notebooks_has_all_that_they_import():
    distributions = {'PIL': 'pillow', 'skimage': 'scikit-image', 'nvidia': 'nvidia-nvimgcodec-cu12',
                     'IPython': 'ipykernel'}   # which requires ipython
    stand_in = {'tensorflow', 'tensorflow_datasets'}   # imported by the library when asked; the page has a stand-in
    found = {}
    for path in find_notebooks():
        for cell in read_notebook(path)['cells']:
            if cell['cell_type'] != 'code' or needed(cell['source']): continue   # a cell that says what it needs is not run without
            for name in imports(cell['source']) - stand_in: found.setdefault(distributions.get(name, name), set()).add(path.name)
    assert {'torch', 'timm', 'pandas'} <= set(found)
    assert {name: pages for name, pages in found.items() if name not in requirements('notebooks')} == {}


def test_the_extra_notebooks_is_part_of_what_is_tested():
    assert requirements('notebooks') <= requirements('dev')
    assert requirements('demo', 'explore') <= requirements('notebooks')   # .ci/run makes its environment from that of the demo


def test_an_installation_for_development_without_the_constraints_has_the_same_nbdev():
    pinned = {line.split(';')[0].strip() for line in (ROOT/'constraints.txt').read_text(encoding='utf-8').split('\n') if '==' in line}
    required = {r for r in read_settings()['dev_requirements'].split() if '==' in r}
    assert {r.split('==')[0] for r in required} >= {'nbdev', 'execnb', 'fastcore', 'ghapi', 'fastgit'} and required <= pinned


def test_description_shows_its_pictures_anywhere(metadata):
    text = metadata.get_payload()
    assert text.count('![') == (ROOT/'README.md').read_text(encoding='utf-8').count('![')
    assert all(url.startswith('https://') for url in re.findall(r'!\[[^\]]*\]\(([^)]+)\)', text))


def test_sdist_holds_what_the_build_needs(built):
    path, = built.glob('*.tar.gz')
    with tarfile.open(path) as archive: held = {n.partition('/')[2] for n in archive.getnames()}
    assert {'setup.py', 'settings.ini', 'pyproject.toml', 'README.md', 'LICENSE', 'CHANGELOG.md', 'SECURITY.md'} <= held
    assert not [n for n in held if n.split('/')[0] in ('nbs', 'tests', 'tools', 'docs', 'benchmarks')]


def test_wheel_imports_on_its_own(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = 'import sys; sys.path.insert(0, "."); import timmdata; print(timmdata.__file__, timmdata.__version__)'
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path/'timmdata/__init__.py'), read_settings()['version']], done.stderr
