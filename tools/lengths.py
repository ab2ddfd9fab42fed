"""Print what a reviewer of the pages looks at: python tools/lengths.py [PAGE ...]

Exported cells of more than 40 lines of code, other cells of more than 8, prose of more than 120 words, lines of more than 100
characters, and pages that show no result before their first definition; then the medians of all pages. Docstrings, comments
and empty lines are not counted as code.
"""
import ast
import statistics
import sys

from notebooks import default_exp, read_notebook, root, split_cell
from save import find_notebooks, find_pages
from size import count_nodes

DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


def code_lines(code: str) -> list[str]:
    "Return the lines of code, without docstrings, comments and empty lines."
    docs = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (*DEFINITIONS, ast.Module)) and ast.get_docstring(node) is not None:
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return [line for at, line in enumerate(code.split('\n'), 1) if line.strip() and not line.strip().startswith('#') and at not in docs]


def is_magic(code: str) -> bool:
    "Return whether a cell holds a magic or a shell command, which is not Python."
    return any(line.lstrip().startswith(('%', '!')) for line in code.split('\n'))


def look_at(cells: list[dict]) -> tuple[list[int], bool, list[str]]:
    "Return the lengths of the exported definitions, whether a result comes before them, and remarks."
    lengths, shows_first, remarks = [], None, []
    for at, cell in enumerate(cells):
        if cell['cell_type'] != 'code':
            words = len(cell['source'].split('```')[0].split())
            if words > 120:
                remarks.append(f'cell {at}: {words} words')
            continue
        directives, code = split_cell(cell['source'])
        if is_magic(code) or not code.strip():
            continue
        lines, is_exported = code_lines(code), {'export', 'exporti'} & set(directives)
        body = ast.parse(code).body
        if all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body):
            continue
        if is_exported:
            lengths.append(len(lines))
            if any(isinstance(node, DEFINITIONS) for node in body) and shows_first is None:
                shows_first = False
        elif cell['outputs'] and shows_first is None:
            shows_first = True
        if len(lines) > (40 if is_exported else 8):
            remarks.append(f'cell {at}: {len(lines)} lines{" exported" if is_exported else ""}')
        long = sum(len(line) > 100 for line in lines) if is_exported else 0
        if long:
            remarks.append(f'cell {at}: {long} lines over 100 characters')
    return lengths, bool(shows_first), remarks


def main():
    pages = find_pages(sys.argv[1:]) if sys.argv[1:] else find_notebooks()
    lengths, first = [], []
    for page in pages:
        nb = read_notebook(page)
        found, shows_first, remarks = look_at(nb['cells'])
        if default_exp(nb):
            lengths += found
            first.append(shows_first)
            if not shows_first:
                remarks.insert(0, 'no result before the first definition')
        if remarks:
            print(page.relative_to(root), *remarks, sep='\n  ')
    if not lengths:
        return
    ninth = sorted(lengths)[int(0.9 * len(lengths))]
    print(f'{len(lengths)} exported cells: median {statistics.median(lengths):g} lines, ninth decile {ninth}, longest {max(lengths)}, '
          f'{sum(n > 80 for n in lengths)} over 80; {sum(first)} of {len(first)} pages show a result first')
    sources = [path.read_text(encoding='utf-8') for path in (root/'timmdata').rglob('*.py') if path.name != '_modidx.py']
    lines = [line for source in sources for line in code_lines(source)]
    print(f'package: {sum(map(count_nodes, sources)) / len(lines):.2f} nodes a line, '
          f'{sum(len(line) > 100 for line in lines) / len(lines):.1%} of the lines over 100 characters')


if __name__ == '__main__':
    main()
