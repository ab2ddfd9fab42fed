"What the modules of the package import, read from their source."
import ast
from functools import cache
from pathlib import Path

from notebooks import root

PACKAGES = sorted(path.parent.name for path in (root/'timmdata').glob('*/__init__.py'))


@cache
def modules(base: Path = root/'timmdata') -> dict[str, str]:
    "The modules of the package: dotted name -> source; a package's own file has the package's name."
    found = {}
    for path in sorted(base.rglob('*.py')):
        parts = path.relative_to(base).with_suffix('').parts
        if parts[-1] == '__init__': parts = parts[:-1]
        if parts and not parts[-1].startswith('_'): found['.'.join(parts)] = path.read_text(encoding='utf-8')
    return found


def imported(name: str, source: str, packages=PACKAGES) -> list[tuple[str, list[str]]]:
    "All imports of a module, wherever they stand: absolute dotted module and the names."
    found, here = [], ['timmdata', *name.split('.')]
    if name not in packages: here.pop()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import): found += [(a.name, []) for a in node.names]
        if isinstance(node, ast.ImportFrom):
            base = here[:len(here) - node.level + 1] if node.level else []
            found.append(('.'.join([*base, *filter(None, [node.module])]), [a.name for a in node.names]))
    return found


def edges(sources: dict[str, str]) -> list[tuple[str, str]]:
    "Which module of the package imports which."
    found = []
    for name, source in sources.items():
        for module, names in imported(name, source):
            if module.split('.')[0] != 'timmdata': continue
            inner = module.removeprefix('timmdata').lstrip('.')
            submodules = [n for n in names if f'{inner}.{n}'.lstrip('.') in sources]
            found += [(name, f'{inner}.{n}'.lstrip('.')) for n in submodules]
            if set(names) - {*submodules, '__version__'} or not names: found.append((name, inner))
    return found
