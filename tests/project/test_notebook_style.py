"Checks that protect readers of a notebook. Lengths and wording are reviewed by people."
import ast
import base64
import os
import re
from pathlib import PurePosixPath

import pytest
from notebooks import DIRECTIVE, FRAMEWORKS, default_exp, find_notebooks, is_raising, needed, read_notebook, split_cell
from synthetic import ROOT

DIRECTIVES = re.compile(
    r'export|exporti|exports|hide|raises|eval: false|echo: false|code-fold: true|code-summary: [\w ]+|notest|default_exp [\w.]+')
MAX_IMAGE_BYTES = 60_000
ADDRESS = re.compile(r'\bat 0x[0-9a-f]{6,}', re.IGNORECASE)
ABSOLUTE = re.compile(r'(?<![\w.~/-])/(?:home|root|tmp|work|Users)/|\b[A-Z]:\\(?!n\b)', re.MULTILINE)
IMPORTS = ast.Import, ast.ImportFrom
NOTEBOOKS = {p.relative_to(ROOT/'nbs').as_posix(): read_notebook(p) for p in find_notebooks()}


def source_problems(source: str, directives: list[str], text: str):
    "Directives that nbdev would ignore, and imports that share a cell with other code: nbdev executes every cell that contains one."
    for directive in directives:
        if not DIRECTIVES.fullmatch(directive) and directive not in FRAMEWORKS: yield f'unknown directive `#| {directive}`'
    for line in source.split('\n'):
        if DIRECTIVE.match(line) and not line.startswith('#| '): yield f'write a directive as `#| name`, not `{line}`'
    if any(map(DIRECTIVE.match, text.split('\n'))): yield 'directive below code'
    plain = '\n'.join('' if re.match(r'\s*[%!]', line) else line for line in text.split('\n'))   # without magics
    if 'eval: false' in directives or needed(source): return
    tree = ast.parse(plain)
    found = tree.body if 'export' in directives else ast.walk(tree)   # exported functions may import late
    if any(isinstance(n, IMPORTS) for n in found) and not all(isinstance(n, IMPORTS) for n in tree.body):
        yield 'imports and other code in one cell'


def output_problems(output: dict):
    "Stored warnings, and pictures that are too large."
    if output.get('name') == 'stderr': yield f'stored stderr output {"".join(output["text"])[:80]!r}'
    for mime, data in output.get('data', {}).items():
        if mime.startswith('image/') and 'svg' not in mime and len(base64.b64decode(''.join(data))) > MAX_IMAGE_BYTES:
            yield f'{mime} of more than {MAX_IMAGE_BYTES:,} bytes'


def error_problems(cell: dict):
    "Stored errors of a cell that must not fail, or none of one that must: `#| raises`, of which the type and the message are stored."
    errors = [output for output in cell['outputs'] if output['output_type'] == 'error']
    if not is_raising(cell['source']):
        if errors: yield f'stored error {errors[0]["ename"]}'
        if cell['metadata']: yield f'metadata {cell["metadata"]}'
        return
    if cell['metadata'] != {'tags': ['raises-exception']}: yield 'Jupyter stops at this cell: run `python tools/save.py`'
    if len(errors) != 1 or errors[0]['traceback'] != [f'{errors[0]["ename"]}: {errors[0]["evalue"]}']:
        yield 'the cell must show the type and the message of its error: run `python tools/save.py`'


def problems(name: str, nb: dict) -> list[str]:
    "Return all problems of a notebook whose path below nbs/ is `name`."
    found, module = [], default_exp(nb)
    folder, _, stem = (module or '').rpartition('.')
    if module and not re.fullmatch(rf'{folder}/?\d\d_{stem}\.ipynb', name):
        found.append(f'exports `{module}`: the notebook must be {folder}/NN_{stem}.ipynb')
    for i, cell in enumerate(nb['cells']):
        source, outputs = cell['source'], cell.get('outputs', [])
        said = [''.join(str(data) for mime, data in o.get('data', {}).items() if mime[:6] != 'image/')
                + ''.join(o.get('text', '')) + o.get('evalue', '') for o in outputs]
        more = [*(f'memory address {text!r}' for text in [source, *said] for text in ADDRESS.findall(text)),
                *(f'absolute path in {text[:200]!r}' for text in [source, *said] if ABSOLUTE.search(text)),
                *(problem for output in outputs for problem in output_problems(output))]
        if cell['cell_type'] == 'code': more += [*source_problems(source, *split_cell(source)), *error_problems(cell)]
        else:
            more += [f'link to {target}, which does not exist' for target in re.findall(r'\]\(([^)#:\s]+\.ipynb)', source)
                     if os.path.normpath(PurePosixPath(name).parent/target) not in NOTEBOOKS]
        found += [f'nbs/{name}, cell {i}: {problem}' for problem in more]
    return found


def test_notebooks():
    found = [problem for name, nb in NOTEBOOKS.items() for problem in problems(name, nb)]
    if found: pytest.fail('\n'.join(found), pytrace=False)
    modules = list(filter(None, map(default_exp, NOTEBOOKS.values())))
    assert len(modules) == len(set(modules)) > 100


def test_each_framework_has_a_cell():
    "If it is installed, tests/integrations runs the cell."
    assert {name for nb in NOTEBOOKS.values() for cell in nb['cells'] for name in needed(cell['source'])} == FRAMEWORKS
