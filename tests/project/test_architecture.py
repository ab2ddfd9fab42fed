"Which modules may import which, what `timmdata` exports, and that the code passes the linter."
import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
from notebooks import read_settings
from synthetic import ROOT

FRAMEWORKS = {'lightning', 'transformers', 'accelerate', 'fastai', 'keras', 'ignite'}   # of `integrations` and of guides

HEAVY = {'matplotlib', 'nbdev', 'execnb', 'skimage', 'scipy', 'timm', 'pandas', 'IPython', 'sphinx', 'pytest',
         'webdataset', 'datasets', 'tensorflow', 'tensorflow_datasets', 'imagehash', 'ipywidgets', 'ray', *FRAMEWORKS}
# not needed to run: found when present
OPTIONAL = {'skimage', 'simplejpeg', 'nvidia', 'torchcodec', 'IPython', 'google', 'pyarrow', 'webdataset', 'datasets', 'tensorflow',
            'tensorflow_datasets', 'imagehash', 'ipywidgets', 'psutil', 'ray', 'timm', *FRAMEWORKS}
DISTRIBUTIONS = {'PIL': 'pillow', 'skimage': 'scikit-image'}


def test_imports_go_one_way():
    "The contracts of pyproject.toml: packages in layers, no cycles, no imports by way of a package that only re-exports a name."
    lint_imports = Path(sys.executable).with_name('lint-imports')
    done = subprocess.run([lint_imports, '--no-cache'], cwd=ROOT, capture_output=True, text=True)
    if done.returncode: pytest.fail(done.stdout + done.stderr, pytrace=False)


PACKAGES = sorted(path.parent for path in (ROOT/'timmdata').glob('*/__init__.py'))


@pytest.mark.parametrize('package', PACKAGES, ids=lambda package: package.name)
def test_packages_have_front_doors(package):
    "A package describes its purpose in one sentence and lists its exports; the one for frameworks imports none of them."
    tree = ast.parse((package/'__init__.py').read_text(encoding='utf-8'))
    assert ast.get_docstring(tree)
    [offered] = [ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == '__all__']
    named = [a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) and n.level < 2 for a in n.names]
    if package.name == 'integrations': assert named == [] and sorted(offered) == sorted(p.stem for p in package.glob('[a-z]*.py'))
    else: assert sorted(offered) == sorted(named)


@cache
def imported() -> set[str]:
    "Return the top-level packages that the package's modules import, without Python's own."
    names = grimp.build_graph('timmdata', include_external_packages=True, cache_dir=None).modules
    return {name.split('.')[0] for name in names} - {*sys.stdlib_module_names, 'timmdata'}


def loaded_by(code: str) -> set[str]:
    "Return the top-level packages that a new interpreter has loaded after `code`."
    code = f'import sys\n{code}\nprint("\\n".join({{m.split(".")[0] for m in list(sys.modules)}}))'
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_is_light():
    loaded = loaded_by('import timmdata, timmdata.integrations')
    assert 'timmdata' in loaded and not HEAVY & loaded
    assert 'fastcore' in imported() or 'fastcore' not in loaded


@pytest.mark.full
def test_the_front_door_opens_with_the_first_name():
    "`import timmdata` takes no time; then all names, modules, star imports and pickles work as if it had imported everything."
    loaded_by('\n'.join([
        'import pickle, timmdata', 'assert not hasattr(timmdata, "__wrapped__") and "torch" not in sys.modules',
        'timmdata.loader.create_loader', 'assert "torch" in sys.modules and not hasattr(timmdata, "no_such_name")',
        'from timmdata import *', 'assert create_loader is timmdata.loader.create_loader',
        'assert {name for name in timmdata.__all__ if getattr(timmdata, name) is vars(timmdata).get(name)} < set(dir(timmdata))',
        'assert pickle.loads(b"ctimmdata\\nImageDataset\\n.") is ImageDataset']))


def test_requirements_are_what_is_imported():
    required = {re.split('[<>=!~]', r)[0] for r in read_settings()['requirements'].split()}
    assert {DISTRIBUTIONS.get(name, name) for name in imported() - OPTIONAL} == required


def test_top_level_is_a_chosen_list():
    import timm.data

    import timmdata
    assert len(timmdata.__all__) == len(set(timmdata.__all__))
    timms = set(vars(timm.data)) & set(timmdata.__all__)
    assert len(set(timmdata.__all__) - timms) <= 25   # what users of this library type; all else is in its package
    for name in timmdata.__all__: assert getattr(timmdata, name) is not None


def test_versions_agree():
    import timmdata
    assert timmdata.__version__ == read_settings()['version']
    assert f'## {timmdata.__version__}' in (ROOT/'CHANGELOG.md').read_text(encoding='utf-8')


def ruff(*args: str, cwd=ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, '-m', 'ruff', 'check', '--no-cache', '--output-format=concise', *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_ruff_is_clean():
    done = ruff('.')
    if done.returncode: pytest.fail(done.stdout + done.stderr, pytrace=False)
