"What the modules of the package, its notebooks and its tests import from the package, read from their source."
import ast
from functools import cache
from pathlib import Path

from notebooks import read_notebook, root, split_cell

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


def ordered(source: str, name: str) -> str:
    """The source of the module `name`, such as `readers.tar`, with the package's own imports relative, other packages' first.

    nbdev leaves imports of several lines absolute, and others where their absolute names come in the alphabet.
    """
    own, lines = name.split('.')[:-1], source.split('\n')
    runs = [[]]   # of imports of the package, one below the other
    for node in ast.parse(source).body:
        is_ours = isinstance(node, ast.ImportFrom) and (node.level or (node.module or '').startswith('timmdata.'))
        if runs[-1] and not (is_ours and node.lineno == runs[-1][-1].end_lineno + 1): runs.append([])
        if is_ours: runs[-1].append(node)

    def relative(node) -> tuple[int, str]:
        text = '\n'.join(lines[node.lineno - 1:node.end_lineno])
        if node.level: return node.level, text
        inner = node.module.removeprefix('timmdata.')
        level = 1 if inner.split('.')[:-1] == own else len(own) + 1
        if level == 1: inner = inner.split('.')[-1] if own else inner
        return level, text.replace(f'from {node.module} import', f'from {"." * level}{inner} import', 1)

    for run in filter(None, reversed(runs)):
        texts = sorted(map(relative, run), key=lambda found: -found[0])
        lines[run[0].lineno - 1:run[-1].end_lineno] = [text for _, text in texts]
    return '\n'.join(lines)


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


@cache
def doors(base: Path = root/'timmdata') -> dict[str, dict[str, str]]:
    "What the front doors offer, '' being the top level: name -> the module that has it."
    found = {}
    for path in [*base.rglob('__init__.py'), base/'_offered.py']:
        folder = path.parent.relative_to(base).parts
        body = ast.parse(path.read_text(encoding='utf-8')).body
        imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.level == 1]
        found['.'.join(folder)] = {alias.asname or alias.name: '.'.join([*folder, node.module or alias.name])
                                   for node in imports for alias in node.names}
    return found


def used(source: str) -> set[str]:
    "The modules of the package that a program imports by name, through front doors too; all of a package that it takes whole."
    found, known = set(), modules()
    for module, names in imported('', source):
        if module.split('.')[0] != 'timmdata': continue
        inner = module.removeprefix('timmdata').lstrip('.')
        if inner not in doors(): found.add(inner); continue
        inside = {name for name in known if name.startswith(f'{inner}.' if inner else '') and name not in doors()}
        for name in names or ['*']:
            below = f'{inner}.{name}'.lstrip('.')
            if name in doors()[inner]: found.add(doors()[inner][name])
            elif below in known and below not in doors(): found.add(below)
            else: found |= inside
    return found & set(known)


@cache
def graph() -> dict[str, set[str]]:
    "Module -> the modules of the package that it imports."
    found = {}
    for name, target in edges(modules()): found.setdefault(name, set()).add(target)
    return found


def with_imports(names: set[str]) -> set[str]:
    "Modules, and all that they import, and so on."
    found, new = set(), set(names)
    while new:
        found |= new
        new = {target for name in new for target in graph().get(name, ())} - found
    return found


def code_of(path: Path) -> str:
    "The code of a notebook as one program, without magics."
    cells = [split_cell(cell['source'])[1] for cell in read_notebook(path)['cells'] if cell['cell_type'] == 'code']
    return '\n'.join(line for cell in cells for line in cell.split('\n') if not line.lstrip().startswith(('%', '!')))
