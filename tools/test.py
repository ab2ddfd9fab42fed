"""Run the tests of what changed: python tools/test.py [--base REF] [--list] [options of pytest]

What differs from `--base` (where this branch left origin/main; HEAD without one), with what is not committed: the tests of each
changed module, the run and the style of its page, changed tests, the tests of a changed tool. Tests of modules that import a
changed one follow, the quickest first, as long as they take less than a minute together. It ends with what was left out.
"""
import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from imports import graph
from notebooks import default_exp, find_notebooks, read_notebook, root

LIMIT, UNKNOWN = 60, 15   # seconds for the tests of modules that import a changed one; of a file that was not timed yet
STYLE = ['tests/project/test_notebook_style.py', 'tests/project/test_spelling.py', 'tests/project/test_size.py']
NAMED = re.compile(r'tests/[\w/]+\.py')
# what is neither a module nor a notebook nor a test -> its tests
OTHERS = {
    'docs/': ['test_site.py'],
    'tools/': ['test_tools.py', 'test_sync.py', 'test_docstrings.py'],
    '.github/': ['test_tools.py'],
    '.ci/': ['test_tools.py'],
    'benchmarks/': ['test_benchmarks.py'],
    'timmdata/': ['test_architecture.py', 'test_names.py'],   # files written by hand
    'settings.ini': ['test_packaging.py', 'test_architecture.py'],
    'setup.py': ['test_packaging.py'],
    'constraints.txt': ['test_packaging.py'],
    'pyproject.toml': ['test_architecture.py'],
}


def git(*args: str) -> list[str]:
    "The lines that a git command prints; none where it fails."
    return subprocess.run(['git', *args], cwd=root, capture_output=True, text=True).stdout.splitlines()


def changed(base: str | None = None) -> list[str]:
    "The files that differ from commit `base`, new ones too."
    if base is None: base = next(iter(git('merge-base', 'HEAD', 'origin/main')), 'HEAD')
    return sorted({*git('diff', '--name-only', base), *git('ls-files', '--others', '--exclude-standard')})


def pages() -> dict[str, Path]:
    "Module -> its notebook."
    found = {path: default_exp(read_notebook(path)) for path in find_notebooks()}
    return {module: path for path, module in found.items() if module}


def tests_of(module: str, page: Path) -> list[str]:
    "The test file of a module's name, and those that its page names."
    folder, _, name = module.rpartition('.')
    own = [f'tests/{folder}/test_{name}.py'] if folder else [p.relative_to(root).as_posix() for p in root.glob(f'tests/*/test_{name}.py')]
    named = NAMED.findall('\n'.join(cell['source'] for cell in read_notebook(page)['cells']))
    return [path for path in dict.fromkeys([*own, *named]) if (root/path).is_file()]


def chosen(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    "What pytest is given for changed files, and the test files of modules that import a changed one."
    modules, tests, later = pages(), [], []
    for path in paths:
        if path.startswith('nbs/') and path.endswith('.ipynb') and (root/path).exists():
            tests += [*STYLE, f"tests/project/test_notebooks.py::test_notebook[{path.removeprefix('nbs/')}]"]
            module = default_exp(read_notebook(root/path))
        else: module = '.'.join(Path(path).with_suffix('').parts[1:]) if path.startswith('timmdata/') else None
        if module in modules:
            tests += tests_of(module, modules[module])
            for other in (name for name, targets in graph().items() if module in targets and name in modules):
                later += tests_of(other, modules[other])
        elif re.fullmatch(r'tests/.*/test_\w+\.py', path) and (root/path).exists(): tests.append(path)
        elif path.startswith('tests/'):   # shared by those that import it, or of the whole folder
            word = re.compile(rf'^\s*(?:from|import) {Path(path).stem}\b', re.MULTILINE)
            later += [test.relative_to(root).as_posix() for test in root.glob('tests/*/test_*.py')
                      if word.search(test.read_text(encoding='utf-8'))]
        else: tests += [f'tests/project/{name}' for start, names in OTHERS.items() if path.startswith(start) for name in names]
    tests = list(dict.fromkeys(tests))
    return tests, [test for test in dict.fromkeys(later) if test not in tests]


def seconds() -> dict[str, float]:
    "What each test file took when it last ran in this checkout."
    path = root/'.pytest_cache/v/timmdata/seconds'
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--base', help='a commit: what differs from it is tested')
    parser.add_argument('--list', action='store_true', help='say what would run')
    args, options = parser.parse_known_args(argv)
    tests, later = chosen(changed(args.base))
    known, left, total = seconds(), [], 0.
    for test in sorted(later, key=lambda test: known.get(test, UNKNOWN)):
        total += known.get(test, UNKNOWN)
        if total < LIMIT: tests.append(test)
        else: left.append(test)
    print('\n  '.join(['tests of what changed:', *tests] if tests else ['nothing that has tests has changed']), flush=True)
    command, code = [sys.executable, '-m', 'pytest', '-q', *options, *tests], 0
    if tests and not args.list: code = subprocess.run(command, cwd=root).returncode
    if left: print('\n  '.join(['left out, of modules that import a changed one (`pytest` runs all):', *left]))
    return code


if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
