"STYLE.md as checks. A rule takes a `Notebook` and returns a list of problems; each rule is shown to catch one."
import ast
import base64
import io
import json
import os
import re
import tokenize
from functools import cache
from pathlib import PurePosixPath

import pytest
from notebooks import DIRECTIVE, default_exp, find_notebooks, needed, read_notebook, split_cell
from synthetic import ROOT, code, md, notebook, shown, stream

SENTENCE = re.compile(r'[^a-z]|u?int\d+|float\d*\b|bool\b')   # its first word
DIRECTIVES = {'export', 'exporti', 'exports', 'hide', 'eval: false', 'echo: false', 'code-fold: true', 'notest'}
EXPORTS = {'export', 'exporti', 'exports'}
MAX_NOTEBOOK_BYTES, MAX_IMAGE_BYTES = 300_000, 60_000
MAX_LINE_CHARACTERS = 120
MAX_WORDS = 120
BANNED = re.compile(r'\b(simply|just|of course|obviously)\b', re.IGNORECASE)
ADDRESS = re.compile(r'\b0x[0-9a-f]{9,}|\bat 0x[0-9a-f]{6,}', re.IGNORECASE)
ABSOLUTE = re.compile(r'(?<![\w.~/-])/(?:home|root|tmp|work|Users)/|\b[A-Z]:\\(?!n\b)', re.MULTILINE)
IMPORTS = (ast.Import, ast.ImportFrom)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Notebook:
    "A notebook as the rules see it."
    def __init__(self, path: str, nb: dict):
        self.path = PurePosixPath(path)   # below nbs/
        self.cells, self.module = nb['cells'], default_exp(nb)
        self.num_bytes = len(json.dumps(nb, ensure_ascii=False).encode())
        self.is_guide = self.path.parts[0] == 'guides' or self.path.name == 'index.ipynb'

    def code_cells(self):
        "Index, directives and code of each code cell."
        for i, cell in enumerate(self.cells):
            if cell['cell_type'] == 'code': yield i, *split_cell(cell['source'])

    @cache   # noqa: B019   (the notebooks stay)
    def trees(self, exported: bool) -> list[tuple[int, ast.Module, str]]:
        "Index, syntax tree and code of the cells that are exported, or of those that are not."
        chosen = [(i, text) for i, directives, text in self.code_cells()
                  if bool(EXPORTS & set(directives)) == exported and 'eval: false' not in directives]
        # magics and shell escapes are no Python
        plain = ['\n'.join('' if re.match(r'\s*[%!]', line) else line for line in text.split('\n')) for _, text in chosen]
        return [(i, ast.parse(code), text) for (i, text), code in zip(chosen, plain)]

    def public_defs(self):
        "Index, node and code of each public top-level function and class that is exported."
        for i, tree, text in self.trees(exported=True):
            for node in tree.body:
                if isinstance(node, DEFS) and not node.name.startswith('_'): yield i, node, text

    def texts(self):
        "Index and text of every source and every textual output."
        for i, cell in enumerate(self.cells):
            yield i, cell['source']
            for output in cell.get('outputs', []):
                yield i, ''.join(output.get('text', ''))
                for mime, data in output.get('data', {}).items():
                    if not mime.startswith('image/') or 'svg' in mime:
                        yield i, ''.join(data) if isinstance(data, (str, list)) else json.dumps(data)


def prose(source: str) -> str:
    "Running prose of a markdown cell: no code, tables, lists, headings, mathematics or pictures."
    text = re.sub(r'```.*?```|\$\$.*?\$\$|<!--.*?-->', '', source, flags=re.DOTALL)
    lines, in_list = [], False
    for line in text.split('\n'):
        if re.match(r'\s*([-*+]|\d+[.)])\s', line): in_list = True
        elif not line.strip() or not line.startswith(' '): in_list = False
        if not in_list and not re.match(r'\s*(#|\||!\[)|    ', line): lines.append(line)
    return re.sub(r'\]\([^)]*\)', ']', '\n'.join(lines))


def num_words(text: str) -> int:
    "Words, counting what stands between spaces and has a letter or digit."
    return sum(bool(re.search(r'\w', word)) for word in text.split())


def title_cell(nb: Notebook) -> list[str]:
    "`#| default_exp` first, where there is one; then a cell with only `# Title` and `> subtitle`."
    problems, cells = [], nb.cells
    first_exports = bool(cells) and cells[0]['cell_type'] == 'code' and default_exp({'cells': cells[:1]}) is not None
    if nb.module and not first_exports: problems.append('the first cell is not `#| default_exp`')
    if not nb.module and not nb.is_guide: problems.append('no `#| default_exp`')
    at = 1 if first_exports else 0
    title = cells[at] if len(cells) > at else {'cell_type': None, 'source': ''}
    if title['cell_type'] != 'markdown' or not re.fullmatch(r'# \S[^\n]*\n\s*\n> \S[^\n]*\n*', title['source']):
        problems.append(f'cell {at} is not a title cell: `# Title`, an empty line, `> subtitle`, nothing else')
    return problems


def known_directives(nb: Notebook) -> list[str]:
    "Only known directives, spelt as `#| name`, above the code: nbdev ignores all others without a word."
    problems = []
    for i, directives, text in nb.code_cells():
        for directive in directives:
            if directive not in DIRECTIVES and not re.fullmatch(r'default_exp [\w.]+|needs: \w+', directive):
                problems.append(f'cell {i}: unknown directive `#| {directive}`')
        for line in nb.cells[i]['source'].split('\n'):
            if DIRECTIVE.match(line) and not line.startswith('#| '):
                problems.append(f'cell {i}: write a directive as `#| name`, not `{line.strip()}`')
        for line in text.split('\n'):
            if DIRECTIVE.match(line): problems.append(f'cell {i}: directive below code: `{line.strip()}`')
            if re.fullmatch(r'#\s*(default_exp.*|exports?|exporti|hide|notest)\s*', line):
                problems.append(f'cell {i}: `{line.strip()}` lacks the bar of `#| …`')
    for i, cell in enumerate(nb.cells):
        if cell['cell_type'] == 'markdown' and re.match(r'#\|', cell['source']):
            problems.append(f'cell {i}: directive in a markdown cell')
    return problems


def no_stored_errors(nb: Notebook) -> list[str]:
    "No stored tracebacks and nothing on stderr: a warning on a page is a defect or belongs in the text."
    problems = []
    for i, cell in enumerate(nb.cells):
        for output in cell.get('outputs', []):
            if output['output_type'] == 'error': problems.append(f'cell {i}: stored error {output["ename"]}')
            if output.get('name') == 'stderr':
                problems.append(f'cell {i}: stored stderr output: {"".join(output["text"])[:80]!r}')
    return problems


def no_addresses(nb: Notebook) -> list[str]:
    "No memory addresses: they change at each run. A number in the code may be written as 0x…"
    return [f'cell {i}: memory address {m[0]}' for i, text in nb.texts() for m in ADDRESS.finditer(text)
            if text is not nb.cells[i]['source'] or m[0].startswith('at ')]


def no_absolute_paths(nb: Notebook) -> list[str]:
    "No paths of one machine, in sources or outputs."
    return [f'cell {i}: absolute path {text[m.start():m.start() + 40]!r}' for i, text in nb.texts()
            for m in ABSOLUTE.finditer(text)]


def imports_alone(nb: Notebook) -> list[str]:
    """Import cells hold only imports: nbdev executes every cell that contains one, wherever it stands in the cell. A cell that needs
    a framework is the exception: it is a script by itself."""
    problems = []
    for exported in (True, False):
        for i, tree, _ in nb.trees(exported):
            if needed(nb.cells[i]['source']): continue
            found = tree.body if exported else ast.walk(tree)   # exported functions may import lazily
            if any(isinstance(n, IMPORTS) for n in found) and not all(isinstance(n, IMPORTS) for n in tree.body):
                problems.append(f'cell {i}: imports and other code in one cell')
    return problems


def sizes(nb: Notebook) -> list[str]:
    "A notebook and each of its pictures within their budgets."
    problems = []
    if nb.num_bytes > MAX_NOTEBOOK_BYTES:
        problems.append(f'notebook of {nb.num_bytes:,} bytes, {MAX_NOTEBOOK_BYTES:,} at most')
    for i, cell in enumerate(nb.cells):
        for output in cell.get('outputs', []):
            for mime, data in output.get('data', {}).items():
                if not mime.startswith('image/'): continue
                data = ''.join(data)
                num_bytes = len(data.encode()) if 'svg' in mime else len(base64.b64decode(data))
                if num_bytes > MAX_IMAGE_BYTES:
                    problems.append(f'cell {i}: {mime} of {num_bytes:,} bytes, {MAX_IMAGE_BYTES:,} at most')
    return problems


def comment_lines(text: str) -> set[int]:
    "Numbers of the lines that hold a comment."
    return {t.start[0] for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT}


def line_length(nb: Notebook) -> list[str]:
    "Lines of code that fit on a page."
    return [f'cell {i}: line {at} has {len(line)} characters, {MAX_LINE_CHARACTERS} at most'
            for i, cell in enumerate(nb.cells) if cell['cell_type'] == 'code'
            for at, line in enumerate(cell['source'].split('\n'), 1) if len(line) > MAX_LINE_CHARACTERS]


def prose_length(nb: Notebook) -> list[str]:
    "Short cells of prose."
    counts = {i: num_words(prose(c['source'])) for i, c in enumerate(nb.cells) if c['cell_type'] == 'markdown'}
    return [f'cell {i}: {n} words of prose, {MAX_WORDS} at most' for i, n in counts.items() if n > MAX_WORDS]


def banned_words(nb: Notebook) -> list[str]:
    "No words that tell the reader that it is easy."
    found = [(i, re.sub(r'```.*?```|`[^`]*`', '', c['source'], flags=re.DOTALL)) for i, c in enumerate(nb.cells)
             if c['cell_type'] == 'markdown']
    return [f'cell {i}: "{m[0]}"' for i, text in found for m in BANNED.finditer(text)]


def docstrings(nb: Notebook) -> list[str]:
    "Each public function, class and method has a docstring; a method may have that of a base class (`test_docstrings` looks)."
    problems = []
    for i, node, _ in nb.public_defs():
        named = [(node.name, node)]
        if isinstance(node, ast.ClassDef) and not node.bases:
            named += [(f'{node.name}.{n.name}', n) for n in node.body if isinstance(n, DEFS) and n.name[0] != '_']
        problems += [f'cell {i}: {name} has no docstring' for name, item in named if not ast.get_docstring(item)]
    return problems


def docments(nb: Notebook) -> list[str]:
    "Each parameter of a public function or method, and each field of a record, has a line of its own with a comment."
    problems = []
    for i, node, text in nb.public_defs():
        comments = comment_lines(text)
        functions = [(node.name, node)]
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, DEFS[:2]) and (ast.get_docstring(n) or not node.bases)
                       and (n.name in ('__init__', '__call__') or not n.name.startswith('_'))]
            functions = [(f'{node.name}.{n.name}', n) for n in methods
                         if not any('.setter' in ast.unparse(d) for d in n.decorator_list)]
            problems += [f'cell {i}: {node.name}: no comment beside `{n.target.id}`' for n in node.body
                         if isinstance(n, ast.AnnAssign) and not n.target.id.startswith('_') and 'FromParts(' not in ast.unparse(n)
                         and not {n.lineno, n.end_lineno} & comments]
        for name, function in functions:
            args = function.args
            params = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
            params = [p for p in params if p and p.arg not in ('self', 'cls')]
            lines = [p.lineno for p in params]
            if len(set(lines)) < len(lines): problems.append(f'cell {i}: {name}: one parameter a line')
            problems += [f'cell {i}: {name}: no comment beside `{p.arg}`' for p in params
                         if not {p.lineno, p.end_lineno} & comments]
    return problems


def whole_lines(nb: Notebook) -> list[str]:
    "What is said of a parameter can be read alone, in an editor: it begins with a capital, a literal or a dtype, and ends."
    problems = []
    for i, node, text in nb.public_defs():
        lines = text.split('\n')
        fields = [n for n in ast.walk(node) if isinstance(n, ast.arg) and n.arg not in ('self', 'cls') and n.annotation]
        if isinstance(node, ast.ClassDef): fields += [n for n in node.body if isinstance(n, ast.AnnAssign)]
        for field in fields:
            said = lines[field.end_lineno - 1].partition('   # ')[2] or lines[field.end_lineno - 1].partition('  # ')[2]
            if said and not (SENTENCE.match(said) and said[-1] in '.!?'): problems.append(f'cell {i}: {said!r} is no whole sentence')
    return problems


def used_later(nb: Notebook) -> list[str]:
    "Each public function and class is used in a later cell that is not exported."
    uses = [(i, {getattr(n, 'id', getattr(n, 'attr', None)) for n in ast.walk(tree)})
            for i, tree, _ in nb.trees(exported=False)]
    return [f'cell {i}: {node.name} is used in no later cell' for i, node, _ in nb.public_defs()
            if not any(at > i and node.name in names for at, names in uses)]


def links_exist(nb: Notebook) -> list[str]:
    "A link to a notebook leads to one."
    problems = []
    for i, cell in enumerate(nb.cells):
        if cell['cell_type'] != 'markdown': continue
        for target in re.findall(r'\]\(([^)#:\s]+\.ipynb)', cell['source']):
            path = os.path.normpath(nb.path.parent/target)
            if path not in NOTEBOOKS: problems.append(f'cell {i}: link to {target}, which does not exist')
    return problems


def file_name(nb: Notebook) -> list[str]:
    "An exporting notebook is called as its module, with a number: `readers/40_tar.ipynb` exports `readers.tar`."
    if nb.module is None: return []
    folder, _, name = nb.module.rpartition('.')
    ok = nb.path.parent.as_posix() == (folder.replace('.', '/') or '.') and re.fullmatch(rf'\d\d_{name}\.ipynb', nb.path.name)
    return [] if ok else [f'exports `{nb.module}`: the notebook must be nbs/{folder + "/" if folder else ""}NN_{name}.ipynb']


def has_tests(nb: Notebook) -> list[str]:
    "A module has a test file of its name, or its page names the file that tests it."
    if nb.module is None: return []
    named = [ROOT/name for cell in nb.cells for name in re.findall(r'`(tests/[\w/]+\.py)`', cell['source'])]
    own = list(ROOT.glob(f'tests/*/test_{nb.module.split(".")[-1]}.py'))
    if not own and not named: return [f'no test file has the name of `{nb.module}`, and the page names none']
    return [f'names {path.relative_to(ROOT)}, which does not exist' for path in named if not path.exists()]


NOTEBOOKS = {p.relative_to(ROOT/'nbs').as_posix(): read_notebook(p) for p in find_notebooks()}
RULES = [title_cell, file_name, known_directives, no_stored_errors, no_addresses, no_absolute_paths, imports_alone,
         sizes, line_length, prose_length, banned_words, links_exist, docstrings, docments, whole_lines, used_later, has_tests]


@cache
def parsed(name: str) -> Notebook: return Notebook(name, NOTEBOOKS[name])


@pytest.mark.parametrize('rule', RULES, ids=lambda rule: rule.__name__)
def test_notebooks(rule):
    problems = [f'nbs/{name}, {problem}' for name in NOTEBOOKS for problem in rule(parsed(name))]
    if problems: pytest.fail('\n'.join([rule.__doc__, *problems]), pytrace=False)


HEAD = [code('#| default_exp thing'), md('# Thing\n\n> What it is.'),
        code('#| export\nimport os\nfrom pathlib import Path')]
GOOD = """#| export
def double(
    x: float,   # Length in pixels.
    *, times: int = 1,   # How often.
) -> float:
    "Double `x`."
    import matplotlib
    return x * 2 ** times * 0x9E3779B97F4A7C15"""
CLASS = """#| export
class Box:
    "A box."
    def __init__(
        self,
        size: int = 1,   # Edge in pixels.
    ): self.size = size
    def area(self):
        "Its area."
        return self.size ** 2
    def _inner(self): pass"""
SCRIPT = code('#| needs: keras\nimport keras\nprint(keras.__name__)')
USE = code('print(double(2), Box(3).area(), __file__)', stream('4 9 nbs/thing, ratio 0x10, see https://a.org/tmp/x\n'))


def exporting(*cells, name='50_thing.ipynb'):
    "A notebook that exports the module `thing`: the usual head, then `cells`."
    return Notebook(name, notebook(*HEAD, *cells))


@pytest.mark.parametrize('rule', RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_a_good_notebook(rule):
    text = 'A short text with `just` in code.\n\nIts tests: `tests/conftest.py`.\n\n```python\nx = 1   # simply\n```\n\n'
    text += '- many words in a list\n' * 30
    picture = shown(image_jpeg=base64.b64encode(bytes(50_000)).decode(), text_plain='<Figure>')
    cells = [md(text), code(GOOD), code(CLASS), code('import math'), USE, SCRIPT, code('double(1)', picture)]
    assert rule(exporting(*cells)) == []
    guide = notebook(md('# Start\n\n> Here.'), md('word ' * 100), code('#| hide\nx = 1'))
    assert rule(Notebook('guides/start.ipynb', guide)) == []


def png(num_bytes):
    "A picture of `num_bytes` bytes."
    return shown(image_png=base64.b64encode(bytes(num_bytes)).decode())


@pytest.mark.parametrize('rule, nb, message', [
    (title_cell, Notebook('50_thing.ipynb', notebook(*HEAD[1:], HEAD[0])), 'first cell is not'),
    (title_cell, Notebook('50_thing.ipynb', notebook(HEAD[1])), 'no `#| default_exp`'),
    (title_cell, Notebook('50_thing.ipynb', notebook(HEAD[0], md('# Thing\n\n> What.\n\nMore.'))), 'not a title'),
    (title_cell, Notebook('50_thing.ipynb', notebook(HEAD[0], md('# Thing'))), 'not a title'),
    (title_cell, Notebook('guides/start.ipynb', notebook(code('x = 1'), md('# Start\n\n> Here.'))), 'cell 0 is not'),
    (title_cell, Notebook('index.ipynb', notebook()), 'cell 0 is not'),
    (file_name, exporting(name='50_other.ipynb'), 'NN_thing'),
    (file_name, exporting(name='guides/50_thing.ipynb'), 'NN_thing'),
    (known_directives, exporting(code('#| exprt\nx = 1')), 'unknown directive `#| exprt`'),
    (known_directives, exporting(code('#| eval: true\nx = 1')), 'eval: true'),
    (known_directives, exporting(code('#| needs lightning\nx = 1')), 'needs lightning'),
    (known_directives, exporting(code('#|export\nx = 1')), 'write a directive as'),
    (known_directives, exporting(code('x = 1\n#| export')), 'below code'),
    (known_directives, exporting(code('# export\nx = 1')), 'lacks the bar'),
    (known_directives, exporting(md('#| hide')), 'markdown'),
    (no_stored_errors, exporting(code('x', dict(output_type='error', ename='NameError'))), 'NameError'),
    (no_stored_errors, exporting(code('x', stream('UserWarning: no', 'stderr'))), 'stderr'),
    (no_addresses, exporting(code('x', stream('<Thing at 0x7fed096f9410>'))), '0x7fed096f9410'),
    (no_addresses, exporting(code('x', shown(text_html='<b>0x7FED096F9410</b>'))), '0x7FED'),
    (no_addresses, exporting(md('prints `<Thing at 0x7fed09>`')), '0x7fed09'),
    (no_absolute_paths, exporting(code("root = '/home/ann/data'")), '/home/ann'),
    (no_absolute_paths, exporting(code('root', shown(text_plain="Path('/tmp/x')"))), '/tmp/x'),
    (no_absolute_paths, exporting(code('root', stream('C:\\Users'))), 'C:'),
    (no_absolute_paths, exporting(md('see /home/someone/data')), '/home/someone'),
    (imports_alone, exporting(code('import os\nx = 1')), 'cell 3'),
    (imports_alone, exporting(code('def f():\n    import os')), 'cell 3'),
    (imports_alone, exporting(code('#| export\nimport os\nX = 1')), 'cell 3'),
    (sizes, exporting(code('x', png(61_000))), 'image/png of 61,000'),
    (sizes, exporting(*[code('x', png(55_000))] * 5), 'notebook of'),
    (line_length, exporting(code('x = 1\n' + 'y' * 121)), 'line 2 has 121'),
    (prose_length, exporting(md('word ' * 121)), '121 words'),
    (prose_length, exporting(md('# H\n\n- item\n\n' + 'word ' * 121)), '121 words'),
    (prose_length, Notebook('index.ipynb', notebook(md('word ' * 121))), '121 words'),
    (banned_words, exporting(md('It is\nJust so.')), '"Just"'),
    (banned_words, exporting(md('| of course |')), 'of course'),
    (docstrings, exporting(code('#| export\ndef f(): pass')), 'f has no docstring'),
    (docstrings, exporting(code('#| export\nclass A:\n    "An a."\n    def f(self): pass')), 'A.f has no docstring'),
    (docments, exporting(code('#| export\ndef f(\n    x: int,\n): "F."')), 'no comment beside `x`'),
    (whole_lines, exporting(code('#| export\ndef f(\n    x: int,   # of it\n): "F."')), "'of it' is no whole sentence"),
    (has_tests, exporting(code('#| export\nx = 1')), 'no test file has the name'),
    (docments, exporting(code('#| export\ndef f(x, y):   # both\n    "F."')), 'one parameter a line'),
    (docments, exporting(code('#| export\nclass A:\n    "An a."\n    def __init__(self, x): pass')), 'beside `x`'),
    (docments, exporting(code('#| export\nclass A:\n    "An a."\n    def f(self, x): "F."')), 'A.f: no comment beside `x`'),
    (docments, exporting(code('#| export\nclass A(NamedTuple):\n    "An a."\n    x: int')), 'A: no comment beside `x`'),
    (docments, exporting(code('#| export\ndef f(\n    *args,\n    **kwargs,   # more\n): "F."')), 'beside `args`'),
    (used_later, exporting(code('double(1)'), code(GOOD)), 'double is used in no later'),
    (used_later, exporting(code(CLASS), code("'Box'"), code('#| export\nx = Box()')), 'Box is used in no later'),
    (links_exist, exporting(md('see [it](77_nothing.ipynb#x)')), '77_nothing'),
    (links_exist, Notebook('guides/a.ipynb', notebook(md('see [it](00_constants.ipynb)'))), '00_constants'),
])
def test_rule_catches(rule, nb, message):
    problems = rule(nb)
    assert len(problems) == 1 and message in problems[0], problems


def test_each_rule_is_shown_to_catch_a_violation():
    shown_to_catch = {case[0] for case in test_rule_catches.pytestmark[0].args[1]}
    assert shown_to_catch == set(RULES)


def test_module_names_are_unique():
    modules = [default_exp(nb) for nb in NOTEBOOKS.values() if default_exp(nb)]
    assert len(modules) == len(set(modules)), modules
