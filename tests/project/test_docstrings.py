"Docstrings: examples return what they show, and `help()` explains every parameter."
import doctest
import importlib
import inspect
import os
import pkgutil
import re

import frameworks  # noqa: F401   (chooses the backend of Keras, where that is installed)
import pytest
import timm.data

import timmdata

MODULES = [timmdata, *(importlib.import_module(info.name) for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'))]


def defined(module) -> list:
    "Return the public functions and classes that a module defines, and their public methods."
    own = [o for name, o in vars(module).items()
           if name[0] != '_' and getattr(o, '__module__', '') == module.__name__ and (inspect.isfunction(o) or inspect.isclass(o))]
    return own + [o for cls in own if inspect.isclass(cls) for name, o in vars(cls).items() if name[0] != '_' and inspect.isfunction(o)]


def explained(what) -> set[str]:
    "Return the parameters that a docstring explains."
    return set(re.findall(r'^    \*{0,2}(\w+): ', inspect.getdoc(what) or '', re.MULTILINE))


def test_every_definition_has_a_docstring():
    "Either its own or that of a base class. If it explains one parameter, it explains all of them (ruff's D417)."
    found = [o for module in MODULES for o in defined(module)]
    assert len(found) > 500
    assert [o.__qualname__ for o in found if not inspect.getdoc(o)] == []


def test_parameters_of_kwargs_are_explained_as_well():
    assert explained(timmdata.create_transform) == set(inspect.signature(timmdata.create_transform).parameters)


def test_differences_from_timm_are_said():
    "timm's own signature determines which arguments exist and which defaults differ."
    theirs, ours = (inspect.signature(o.create_loader).parameters for o in (timm.data, timmdata))
    assert list(ours)[:4] == list(theirs)[:4] and set(theirs) <= set(ours)
    plain = lambda value: tuple(value) if isinstance(value, (list, tuple)) else value   # noqa: E731
    rows = re.split(r'\n    (?=\w+: )|\n\n', inspect.getdoc(timmdata.create_loader))
    details = {name: text for name, _, text in (row.partition(': ') for row in rows)}
    for name, p in ours.items():
        assert details[name].rstrip().endswith('(not in timm).') == (name not in theirs), name
        if name in theirs and plain(theirs[name].default) != plain(p.default): assert '(timm: ' in ' '.join(details[name].split()), name


CALLS = [test for module in MODULES for test in doctest.DocTestFinder().find(module, globs={}) if test.examples]


@pytest.mark.parametrize('test', CALLS, ids=lambda test: test.name)
def test_calls_in_docstrings_give_what_they_say(test, samples, tmp_path, monkeypatch):
    os.symlink(samples, tmp_path/'photos')
    monkeypatch.chdir(tmp_path)
    problems = []
    doctest.DocTestRunner(verbose=False).run(test, out=problems.append)
    assert not problems, ''.join(problems)


def test_what_people_use_first_shows_a_call():
    shown = {test.name.rpartition('.')[2] for test in CALLS}
    assert {'create_loader', 'ImageDataset', 'create_dataset', 'create_transform', 'PrefetchLoader', 'BatchBuffer', 'Mixup', 'get_recipe',
            'relabel', 'show_batch', 'inspect', 'rand_augment_transform', 'ReaderTable', 'timmdata'} <= shown
