"What the comments beside parameters say in a notebook is in the docstrings of the package, for `help()` and editors."
import doctest
import importlib
import inspect
import os
import pkgutil
import pydoc
import re
import textwrap

import frameworks  # noqa: F401   (chooses the backend of Keras, where that is installed)
import pytest
import timm.data
from docstrings import write_docstrings
from notebooks import default_exp, find_notebooks, read_notebook, split_cell
from symbols import Package, read_module, split_doc
from synthetic import ROOT

import timmdata


def exported(nb: dict) -> str:
    "The exported code of a notebook, comments and all."
    parts = [split_cell(cell['source']) for cell in nb['cells'] if cell['cell_type'] == 'code']
    return '\n\n'.join(code for directives, code in parts if {'export', 'exporti'} & set(directives))


@pytest.fixture(scope='module')
def written(tmp_path_factory) -> dict[str, dict]:
    "The definitions of each module, as the notebooks write them."
    folder, classes, found = tmp_path_factory.mktemp('notebooks'), {}, {}
    notebooks = [read_notebook(path) for path in find_notebooks(ROOT)]
    for _ in range(2):   # twice: a base class may be in a notebook that is read later
        for nb in notebooks:
            if (module := default_exp(nb)) is None: continue
            (folder/'module.py').write_text(exported(nb), encoding='utf-8')
            found[module] = read_module(folder/'module.py', module, classes)
    return found


def is_public(symbol) -> bool:
    "Whether `help()` shows it: `__call__` and the like too; what `__init__` takes is said by its class."
    names = symbol.name.split('.')
    is_shown = not names[-1].startswith('_') or names[-1].endswith('__') and names[-1] not in ('__init__', '__new__')
    return symbol.kind != 'constant' and not names[0].startswith('_') and is_shown and bool(symbol.doc)


def test_docstrings_say_what_the_notebooks_say(written):
    count, missing = 0, []
    for module, symbols in written.items():
        for symbol in filter(is_public, symbols.values()):
            found = importlib.import_module(f'timmdata.{module}')
            for part in symbol.name.split('.'): found = inspect.getattr_static(found, part)
            if isinstance(found, (staticmethod, classmethod)): found = found.__func__
            doc = ' '.join(inspect.getdoc(found).split())
            said = [f'{p.name}: {p.details}' for p in symbol.params if p.details and not (symbol.delegate and p.name.startswith('**'))]
            if symbol.returns and symbol.returns.details: said.append(f'Returns: {symbol.returns.details}')
            missing += [f'{module}.{symbol.name}: {text}' for text in said if ' '.join(text.split()) not in doc]
            count += len(said)
    assert count > 1000 and not missing


def test_each_method_says_what_it_does_or_its_base_class_does():
    missing = []
    for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'):
        module = importlib.import_module(info.name)
        for name, cls in vars(module).items():
            if not inspect.isclass(cls) or cls.__module__ != info.name or name.startswith('_'): continue
            methods = [(key, value) for key, value in vars(cls).items() if not key.startswith('_') and (
                inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod, property)))]
            missing += [f'{info.name}.{name}.{key}' for key, _ in methods if not inspect.getdoc(getattr(cls, key))]
    assert not missing


def test_no_comment_of_a_public_parameter_is_left_in_the_package(written):
    for module in written:
        again = read_module(ROOT/f"timmdata/{module.replace('.', '/')}.py", module)
        assert not [f'{module}.{name}' for name, symbol in again.items() if is_public(symbol)
                    for p in [*symbol.params, *filter(None, [symbol.returns])] if p.lines]


def test_help_of_create_loader_leads_with_what_it_is_a_call_and_groups():
    text = pydoc.plain(pydoc.render_doc(timmdata.create_loader)).partition('Create a loader')[2]
    places = [text.index(word) for word in (
        'normalized batches', ">>> loader = create_loader(ImageDataset('photos', split='train'), 224, 64", 'Data:\n', 'dataset: ',
        'Order:\n', 'seed: ', 'Pixels', 'Augmentation', 'Batches:\n', 'Workers:\n', 'num_workers: ', 'Device:\n', 'device: ', 'Returns:')]
    assert places == sorted(places)
    assert text.count('num_workers: ') == 1


def test_parameters_of_kwargs_are_explained_as_well():
    doc = inspect.getdoc(timmdata.create_transform)
    named = set(re.findall(r'^    \*{0,2}(\w+): ', doc, re.M))
    assert set(inspect.signature(timmdata.create_transform).parameters) == named


def test_differences_from_timm_are_said(written):
    "timm's own signature decides which words it has, and which defaults differ."
    theirs = inspect.signature(timm.data.create_loader).parameters
    ours = inspect.signature(timmdata.create_loader).parameters
    assert list(ours)[:4] == list(theirs)[:4] and set(theirs) <= set(ours)
    plain = lambda value: tuple(value) if isinstance(value, (list, tuple)) else value   # noqa: E731
    for p in written['loader']['create_loader'].params:
        if p.marker: continue
        assert p.group and p.details.endswith('(not in timm).') == (p.name not in theirs), p.name
        if p.name in theirs and plain(theirs[p.name].default) != plain(ours[p.name].default): assert '(timm: ' in p.details, p.name
    assert 'cuda' in str(theirs['device'].default) and theirs['pin_memory'].default is False   # as said beside them


def calls() -> list[doctest.DocTest]:
    "The docstrings that show a call."
    modules = [timmdata, *(importlib.import_module(info.name) for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'))]
    return [test for module in modules for test in doctest.DocTestFinder().find(module, globs={}) if test.examples]


@pytest.mark.parametrize('test', calls(), ids=lambda test: test.name)
def test_calls_in_docstrings_give_what_they_say(test, samples, tmp_path, monkeypatch):
    os.symlink(samples, tmp_path/'photos')
    monkeypatch.chdir(tmp_path)
    problems = []
    doctest.DocTestRunner(verbose=False).run(test, out=problems.append)
    assert not problems, ''.join(problems)


def test_what_people_use_first_shows_a_call():
    shown = {test.name.rpartition('.')[2] for test in calls()}
    assert {'create_loader', 'ImageDataset', 'create_dataset', 'create_transform', 'PrefetchLoader', 'BatchBuffer', 'Mixup', 'get_recipe',
            'relabel', 'show_batch', 'inspect', 'rand_augment_transform', 'ReaderTable'} <= shown


def test_help_of_the_package_begins_with_the_way_to_use_it():
    begin = timmdata.__doc__
    for name in ('ImageDataset', 'create_loader', 'Mixup', 'get_recipe', 'explore'): assert name in begin and name in timmdata.__all__
    assert any(test.name == 'timmdata' for test in calls()) and (ROOT/'nbs/guides/your_folder.ipynb').exists() and 'nbs/guides' in begin


SOURCE = '''
def f(
    # Data
    first: int,   # one number, of which a long text says what it means, "quoted", and goes on until a line is full, and on
    # Order
    second: str = '#',   # a \\\\ in a comment
    *,
    third=None,   # last
) -> int:   # a sum
    "Add \\\\ it."
    return first   # the rest stays


class A:
    "Be one."
    def __init__(
        self,
        size: int,   # pixels
    ):
        self.size = size   # kept


class _B:
    "Be private."
    def g(
        self,
        size: int,   # pixels
    ): "Stay."
'''


def rewritten(source: str, path) -> str:
    path.write_text(source, encoding='utf-8')
    symbols = read_module(path, 'm')
    return write_docstrings(source, symbols, Package({'m': symbols}, [], set()))


def test_a_module_is_rewritten_and_read_again(tmp_path):
    text = rewritten(SOURCE, tmp_path/'m.py')
    namespace = {}
    exec(text, namespace)
    assert inspect.getdoc(namespace['f']).startswith('Add \\ it.\n\nData:\n    first: one number')
    assert inspect.getdoc(namespace['A']) == 'Be one.\n\nArgs:\n    size: pixels'
    assert '# pixels\n    ): "Stay."' in text and '# kept' in text and '# the rest stays' in text and '# last' not in text
    assert max(map(len, text.split('\n'))) <= 120
    before = read_module(tmp_path/'m.py', 'm')
    (tmp_path/'m.py').write_text(text, encoding='utf-8')
    after = read_module(tmp_path/'m.py', 'm')
    for name in ('f', 'A'):
        assert before[name].doc == after[name].doc
        assert [(p.name, p.group, p.details) for p in before[name].params] == [(p.name, p.group, p.details) for p in after[name].params]
    assert [p.group for p in after['f'].params if not p.marker] == ['Data', 'Order', 'Order']
    assert after['f'].returns.details == 'a sum'


def test_sections_of_an_author_stay():
    doc = textwrap.dedent('''\
        Do it.

        An example:

            f(1)

        Raises:
            ValueError: for a wrong size

        Args:
            size: pixels''')
    text, found = split_doc(doc, ['size'])
    assert found == {'size': 'pixels'} and 'f(1)' in text and 'ValueError' in text and 'pixels' not in text


def test_code_on_the_line_of_a_docstring_is_refused(tmp_path):
    with pytest.raises(ValueError, match='shares its line'):
        rewritten('def f(\n    x,   # pixels\n): "Do."; return x\n', tmp_path/'m.py')
