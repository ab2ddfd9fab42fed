"""Write what parameters mean into the docstrings of a module, where `help()` and editors look for it.

In a notebook, the meaning of a parameter is the comment beside it. In the module that is exported from it, this text
moves into the docstring: one section for each group of parameters, `Args` where there are no groups.
"""
import ast
import io
import textwrap
import tokenize
from collections.abc import Iterable
from pathlib import Path

from symbols import Package, Symbol

WIDTH = 120   # characters of a line


def _rows(params: list) -> str: return ''.join(f'\n    {p.name}: {p.details}' for p in params if p.details)


def sections(symbol: Symbol, package: Package) -> str:
    "What the parameters and the result of a definition mean, as sections of a docstring."
    groups, delegated = {}, package.delegated(symbol)
    for p in symbol.params:
        if p.details and not (delegated and p.name.startswith('**')): groups.setdefault(p.group or 'Args', []).append(p)
    found = [f'{heading}:{_rows(group)}' for heading, group in groups.items()]
    if delegated: found.append(f'{symbol.params[-1].name}, {symbol.params[-1].details}:{_rows(delegated)}')
    if symbol.returns and symbol.returns.details: found.append(f'Returns:\n    {symbol.returns.details}')
    return '\n\n'.join(found)


def _is_private(name: str) -> bool:
    return any(part.startswith('_') and not part.endswith('__') for part in name.split('.'))


def _documented(symbols: dict[str, Symbol]) -> list[Symbol]:
    "The definitions whose docstrings say what parameters mean; what `__init__` takes is said by its class."
    defined = (symbol for symbol in symbols.values() if not isinstance(symbol.node, (ast.Assign, ast.AnnAssign)))
    return [symbol for symbol in defined if not _is_private(symbol.name) and not symbol.name.endswith(('.__init__', '.__new__'))]


def _literal(text: str, indent: str) -> list[str]:
    "The lines of a docstring with `text`."
    text = text.replace('\\', '\\\\').replace('"""', '\\"\\"\\"')
    lines = []
    for line in f'"""{text}\n"""'.split('\n'):
        inner = ' ' * (len(line) - len(line.lstrip()) + 4)
        is_row = line.startswith('    ') and len(indent + line) > WIDTH
        lines += textwrap.wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent + inner, drop_whitespace=True,
                               break_long_words=False, break_on_hyphens=False) if is_row else [indent + line if line else '']
    return lines


def _without_docstrings(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def write_docstrings(source: str, symbols: dict[str, Symbol], package: Package) -> str:
    "The source of a module with the meaning of public parameters in docstrings, no more in comments."
    columns = {t.start[0]: t.start[1] for t in tokenize.generate_tokens(io.StringIO(source).readline)
               if t.type == tokenize.COMMENT}
    lines, edits = source.split('\n'), []
    for symbol in _documented(symbols):
        text, doc = sections(symbol, package), ast.get_docstring(symbol.node)
        if not text or doc is None: continue
        edits.append((symbol.node.body[0], _literal(f'{doc}\n\n{text}', ' ' * (symbol.node.col_offset + 4))))
        for p in [*symbol.params, *filter(None, [symbol.returns])]:
            for at in p.lines: lines[at - 1] = lines[at - 1][:columns[at]].rstrip()
    for node, new in sorted(edits, key=lambda edit: -edit[0].lineno):
        before = lines[node.lineno - 1].encode()[:node.col_offset].decode()
        lines[node.lineno - 1:node.end_lineno] = [before.rstrip(), *new] if before.strip() else new
    written = '\n'.join(lines)
    if _without_docstrings(ast.parse(source)) != _without_docstrings(ast.parse(written)):
        raise ValueError('docstrings could not be written: a docstring shares its line with other code')
    return written


def unwritten(package: Package) -> list[str]:
    "The modules whose docstrings do not end with what their parameters mean: newly exported ones, and those that show theirs."
    def is_written(symbol: Symbol) -> bool:
        text, doc = sections(symbol, package), ast.get_docstring(symbol.node)
        return not text or doc is None or ' '.join(doc.split()).endswith(' '.join(text.split()))
    return [module for module, symbols in package.modules.items() if not all(map(is_written, _documented(symbols)))]


def write_modules(path: Path, package: Package, modules: Iterable[str]):
    "Write the docstrings of modules of the `package` at `path`, as nbdev has exported them."
    for module in modules:
        file = path/f"{module.replace('.', '/')}.py"
        source = file.read_text(encoding='utf-8')
        file.write_text(write_docstrings(source, package.modules[module], package), encoding='utf-8', newline='\n')
