"Functions about notebooks for the tools and tests: where they are, their directives, their pages."
import ast
import json
import re
import tempfile
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

root = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r'\s*#\s*\|')


def find_notebooks(base: Path = root) -> list[Path]:
    "Return all notebooks under `base` in reading order, without folders and files whose names begin with `.` or `_`."
    found = (base/'nbs').rglob('*.ipynb')
    return sorted(p for p in found if not any(s.startswith(('.', '_')) for s in p.relative_to(base).parts))


def read_notebook(path: Path) -> dict:
    "Return the notebook at `path` as a dict, with each cell's source as one string."
    nb = json.loads(path.read_text(encoding='utf-8'))
    for cell in nb['cells']: cell['source'] = ''.join(cell['source'])
    return nb


def split_cell(source: str) -> tuple[list[str], str]:
    "Return the leading `#|` directives of a code cell, as `'name args'` strings, and the code below them."
    lines, directives = source.split('\n'), []
    while lines and (not lines[0].strip() or DIRECTIVE.match(lines[0])):
        text = DIRECTIVE.sub('', lines.pop(0)).strip()
        if text: directives.append(text)
    return directives, '\n'.join(lines)


def join_code_cells(cells: list[dict]) -> list[dict]:
    "Join code cells without directives if there is no output between them, for README and the landing page."
    def is_plain(cell): return cell['cell_type'] == 'code' and not split_cell(''.join(cell['source']))[0]

    joined = []
    for cell in cells:
        if joined and is_plain(cell) and is_plain(joined[-1]) and not joined[-1]['outputs']:
            cell = {**cell, 'source': ''.join([*joined.pop()['source'], '\n\n', *cell['source']])}
        joined.append(cell)
    return joined


def needed(source: str) -> list[str]:
    "Return the frameworks that a code cell needs and the development environment does not have: its flags, such as `#| lightning`."
    return [directive for directive in split_cell(source)[0] if directive in FRAMEWORKS]


def keeps_output(source: str) -> bool:
    "Return whether a code cell is not run and keeps its stored output: `#| eval: false`, or a missing framework."
    return 'eval: false' in split_cell(source)[0] or any(find_spec(name) is None for name in needed(source))


def is_raising(source: str) -> bool:
    "Whether a code cell shows an error: `#| raises`. Jupyter runs on below it because of the tag that save.py writes."
    return 'raises' in split_cell(source)[0]


def show_error(output: dict) -> str:
    "The type and message of a stored error, as a user sees it, but without the name of the temporary folder."
    return re.sub(rf'{re.escape(tempfile.gettempdir())}/tmp\w+/', '', f"{output['ename']}: {output['evalue']}")


def default_exp(nb: dict) -> str | None:
    "Return the module that `nb` exports to, such as `'loader'`, or None."
    for cell in nb['cells']:
        if cell['cell_type'] != 'code': continue
        for directive in split_cell(cell['source'])[0]:
            if directive.startswith('default_exp '): return directive.split()[1]
    return None


def page_name(path: str) -> str:
    "Return the page of the notebook at `path`, relative to nbs/: `46_loader.ipynb` becomes `loader.html`."
    folder, _, name = path.rpartition('/')
    page = re.sub(r'^\d+[a-z]?_', '', name).removesuffix('.ipynb') + '.html'
    return f'{folder}/{page}' if folder else page


def read_settings(base: Path = root) -> dict[str, str]:
    "Return the `[DEFAULT]` section of settings.ini."
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read(base/'settings.ini', encoding='utf-8')
    return dict(config['DEFAULT'])


# nbdev_test skips cells with these flags; the flag is the name of the package that the cell imports
FRAMEWORKS = frozenset(read_settings()['tst_flags'].split()) - {'notest', 'raises'}


def site_url(base: Path = root) -> str:
    "Return the address of the documentation site, without a trailing slash."
    settings = read_settings(base)
    return settings['doc_host'].rstrip('/') + '/' + settings['doc_baseurl'].strip('/')


def run_definitions(path: Path, namespace: dict):
    "Run the cells of a notebook that only import or define, in `namespace`."
    for k, cell in enumerate(read_notebook(path)['cells']):
        if cell['cell_type'] != 'code': continue
        tree = ast.parse(split_cell(cell['source'])[1])
        if all(isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)) for node in tree.body):
            exec(compile(tree, f'{path.name}, cell {k}', 'exec'), namespace)
