"What may import what, what `timmdata` offers, and that the code is lint-free."
import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from imports import PACKAGES, edges, imported, modules
from notebooks import read_settings
from synthetic import ROOT

# packages, and modules beside them: each imports only from those before it
ORDER = ['timm_names', 'core', 'readers', 'datasets', 'transforms', 'samplers', 'pipeline', 'workers', 'loaders', 'buffer', 'formats',
         'loader', 'naflex_loader', 'integrations', 'recipes', 'look', 'inspection', 'measure', 'cli']
FRAMEWORKS = {'lightning', 'transformers', 'accelerate', 'fastai', 'keras', 'ignite'}   # of `integrations` and of guides

HEAVY = {'matplotlib', 'nbdev', 'execnb', 'skimage', 'scipy', 'timm', 'pandas', 'IPython', 'sphinx', 'pytest',
         'webdataset', 'datasets', 'tensorflow', 'tensorflow_datasets', 'imagehash', 'ipywidgets', 'ray', *FRAMEWORKS}
# not needed to run: found when present
OPTIONAL = {'skimage', 'simplejpeg', 'torchcodec', 'IPython', 'google', 'pyarrow', 'webdataset', 'datasets', 'tensorflow',
            'tensorflow_datasets', 'imagehash', 'ipywidgets', 'psutil', 'ray', 'timm', *FRAMEWORKS}
DISTRIBUTIONS = {'PIL': 'pillow', 'skimage': 'scikit-image'}


def rank(name: str) -> int:
    "How far a module is from the start of the way of a sample."
    package = name.split('.')[0]
    return ORDER.index(package) if package in ORDER else -1


def import_problems(sources: dict[str, str]) -> list[str]:
    "Imports that go up, in a circle, that take everything, or that go through a front door."
    problems = [f'{name}: star import from {module}' for name, source in sources.items()
                for module, names in imported(name, source) if '*' in names]
    graph = {}
    for name, target in edges(sources):
        if rank(name) < 0: problems.append(f'{name} is in no package that this test knows')
        elif target not in sources: problems.append(f'{name} imports {target or "timmdata"}, which is no module')
        elif rank(target) > rank(name): problems.append(f'{name} imports {target}, which comes after it')
        elif target in PACKAGES and name not in PACKAGES: problems.append(f'{name} imports from the front door of {target}')
        graph.setdefault(name, set()).add(target)
    try: list(TopologicalSorter(graph).static_order())
    except CycleError as error: problems.append(f'a circle: {" -> ".join(error.args[1])}')
    return problems


def test_imports_go_one_way():
    assert not import_problems(modules())


@pytest.mark.parametrize('line, message', [
    ('from ..workers.high import x', 'core.low imports workers.high, which comes after it'),
    ('from timmdata.workers.high import x', 'which comes after it'),
    ('import timmdata.workers.high', 'which comes after it'),
    ('from ..workers import high', 'which comes after it'),
    ('def f():\n    from ..workers.high import x', 'which comes after it'),
    ('from .other import x', 'a circle'),
    ('from os import *', 'star import from os'),
    ('from timmdata import create_loader', 'timmdata, which is no module'),
])
def test_import_problems_are_found(line, message):
    sources = {'core.low': line, 'core.other': 'from .low import y', 'workers.high': ''}
    problems = import_problems(sources)
    assert len(problems) == 1 and message in problems[0], problems


def front_door_problems(sources: dict[str, str]) -> list[str]:
    "A package says in one sentence what it is for, and lists what it offers."
    problems = []
    for package in PACKAGES:
        tree = ast.parse(sources.get(package, ''))
        if not ast.get_docstring(tree): problems.append(f'{package}/__init__.py has no docstring')
        offered = [ast.literal_eval(n.value) for n in tree.body
                   if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == '__all__']
        named = [a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) and n.level < 2 for a in n.names]
        if not offered: problems.append(f'{package}/__init__.py has no __all__')
        elif package == 'integrations': problems += lazy_door_problems(offered[0], named, sources)
        elif sorted(offered[0]) != sorted(named): problems.append(f'{package}/__init__.py: __all__ is not what it imports')
    return problems


def lazy_door_problems(offered: list[str], named: list[str], sources: dict[str, str]) -> list[str]:
    "The package of the frameworks lists its modules, and imports none of them: each loads its framework."
    problems = [f'integrations/__init__.py imports {name}' for name in named]
    modules = sorted(name.removeprefix('integrations.') for name in sources if name.startswith('integrations.'))
    if sorted(offered) != modules: problems.append(f'integrations/__init__.py: __all__ is not its modules, {modules}')
    return problems


def test_packages_have_front_doors():
    assert not front_door_problems(modules())


def loaded_by(code: str) -> set[str]:
    "The top-level packages that a fresh interpreter has loaded after `code`."
    code = f'import sys\n{code}\nprint("\\n".join({{m.split(".")[0] for m in list(sys.modules)}}))'
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_is_light():
    loaded = loaded_by('import timmdata, timmdata.integrations')
    assert 'timmdata' in loaded and not HEAVY & loaded
    used = {module.split('.')[0] for name, source in modules().items() for module, _ in imported(name, source)}
    assert 'fastcore' in used or 'fastcore' not in loaded


@pytest.mark.full
def test_the_front_door_opens_with_the_first_name():
    "`import timmdata` takes no time; then all names, modules, stars and pickles are as if it had imported everything."
    loaded_by('\n'.join([
        'import pickle, timmdata', 'assert not hasattr(timmdata, "__wrapped__") and "torch" not in sys.modules',
        'timmdata.loader.create_loader', 'assert "torch" in sys.modules and not hasattr(timmdata, "no_such_name")',
        'from timmdata import *', 'assert create_loader is timmdata.loader.create_loader',
        'assert {name for name in timmdata.__all__ if getattr(timmdata, name) is vars(timmdata).get(name)} < set(dir(timmdata))',
        'assert pickle.loads(b"ctimmdata\\nImageDataset\\n.") is ImageDataset']))


def third_party(sources: dict[str, str]) -> set[str]:
    "Distributions that a package imports."
    names = {module.split('.')[0] for name, source in sources.items() for module, _ in imported(name, source)}
    names -= OPTIONAL | sys.stdlib_module_names | {'timmdata'}
    return {DISTRIBUTIONS.get(name, name) for name in names}


def test_requirements_are_what_is_imported():
    required = {re.split('[<>=!~]', r)[0] for r in read_settings()['requirements'].split()}
    assert third_party(modules()) == required


def test_top_level_is_a_chosen_list():
    import timm.data

    import timmdata
    assert len(timmdata.__all__) == len(set(timmdata.__all__))
    timms = set(vars(timm.data)) & set(timmdata.__all__)
    assert len(set(timmdata.__all__) - timms) <= 24   # what users of this library type; all else is in its package
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
