"""Write the pages that Sphinx builds: the notebooks, and signatures and a reference from the package, which griffe reads."""
import ast
import doctest
import json
import re
import shutil
import sys
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from posixpath import dirname, normpath
from textwrap import wrap

import griffe
import yaml
from jinja2 import Environment, FileSystemLoader

root = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root/'tools'))
from notebooks import default_exp, find_notebooks, join_code_cells, page_name, read_notebook, read_settings, split_cell  # noqa: E402

nbs, settings = root/'nbs', read_settings(root)
package = griffe.load(settings['lib_path'], search_paths=[root], allow_inspection=False, resolve_aliases=True)
OPEN_LINES = 40   # public code of at most this many lines is shown; longer and private code is folded
NEEDS = 'guides/find'   # the page "I want to …"
OPEN_ROWS = 8   # a table of at most this many parameters is shown on the lesson page
_imports, _definitions = (ast.Import, ast.ImportFrom), (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_link = re.compile(r'\]\(([^()\s#:]*)(#[^()\s]*)?\)')


# names: public is what `__all__` lists
def exported(module: griffe.Module) -> list[griffe.Object]:
    "Return the exports of a module, in order; a package may export whole modules."
    found = []
    for name in filter(module.members.get, map(str, module.exports or ())):
        target = module.members[name]
        if target.is_alias and not target.target_path.startswith(f'{package.name}.'): continue
        target = target.final_target if target.is_alias else target
        found += exported(target) if target.is_module else [target]
    return found


def defined(module: griffe.Module | None) -> list[griffe.Object]:
    "Return the public names that a module defines, in source order."
    return [o for o in module.members.values() if not o.is_alias and o.name in (module.exports or ())] if module else []


def methods(o: griffe.Object) -> list[griffe.Object]:
    "Return the public, documented methods and properties of a class, then those inherited from other classes of the package."
    found = {}
    for owner in [o, *o.mro()] if o.is_class else []:
        for name, m in owner.members.items():
            if name[0] != '_' and m.docstring and (m.is_function or 'property' in m.labels):
                found.setdefault(name, m if owner is o else griffe.Alias(name, m, parent=o))
    return list(found.values())


def path_in_module(o: griffe.Object) -> str:
    "Return `ImageDataset.filename` for a method, otherwise the name."
    return o.path.removeprefix(f'{o.parent.module.path}.')


top_level = [o.final_target for o in package['_offered'].members.values() if o.is_alias]
doors = {name: exported(m) for name, m in package.members.items() if not m.is_alias and m.is_module and name[0] != '_'}
offered = {o.path for found in [top_level, *doors.values()] for o in found}


# definitions
@dataclass
class Row:
    "One row of a parameter table; `name` starts with * or ** if it does in the signature."
    name: str
    type: str
    default: str
    details: str = ''
    group: str = ''   # heading of its section in the docstring, if not Args


_section = re.compile(r'\n\n(?=(?:[A-Z*][^\n]*):\n    \S)')
_stars = {griffe.ParameterKind.var_positional: '*', griffe.ParameterKind.var_keyword: '**'}


class Symbol:
    "The documentation of a definition; `text` is its docstring without the sections about parameters and the result."
    def __init__(self, o: griffe.Object):
        self.o, self.name = o, path_in_module(o)
        made = next(filter(None, (o.all_members.get(name) for name in ('__init__', '__new__'))), None) if o.is_class else o
        is_record = made is None and any('NamedTuple' in str(base) for base in o.bases)
        self.is_called = is_record or made is not None and made.is_function
        found = list(made.parameters) if self.is_called and not is_record else []
        if found and (o.is_class or o.parent.is_class) and 'staticmethod' not in made.labels: found.pop(0)
        if 'dataclass' in o.labels:   # griffe takes a cached property for a field
            found = [p for p in found if p.name not in o.members or 'property' not in o.members[p.name].labels]
        code = lambda value: '' if value is None else str(value)   # noqa: E731
        self.rows = [Row(_stars.get(p.kind, '') + p.name, code(p.annotation), '' if p.kind in _stars else code(p.default)) for p in found]
        if is_record:
            fields = [m for m in o.members.values() if m.is_attribute and 'property' not in m.labels and m.annotation is not None]
            self.rows = [Row(m.name, code(m.annotation), code(m.value)) for m in fields]
        self.kinds = [p.kind for p in found] or [None] * len(self.rows)
        returns = code(o.returns if o.is_function else o.annotation if 'property' in o.labels else None)
        self.returns = Row('', returns, '') if returns not in ('', 'None') else None
        self.text = self._read(o.docstring.value if o.docstring else _comment(o) if o.is_attribute else '')

    def _read(self, doc: str) -> str:
        "Store the sections of a docstring about parameters and the result; return the rest."
        text, *sections = _section.split(doc)
        rows = {row.name.lstrip('*'): row for row in self.rows}
        for section in sections:
            heading, _, body = section.partition(':\n')
            lines = [line.split(':', 1) for line in re.split(r'\n    (?! )', '\n' + body)[1:]]
            if heading.startswith('**') and (name := heading.partition(',')[0].lstrip('*')) in rows:
                rows[name].details = heading.partition(', ')[2]
            elif heading == 'Returns' and self.returns: self.returns.details = ' '.join(body.split())
            elif heading == 'Args' or all(len(line) == 2 and line[0].lstrip('*') in rows for line in lines):
                for name, details in lines:
                    row = rows.get(name.lstrip('*'))
                    if row is None:   # a field of a dataclass that the call does not take
                        row = Row(name, str(self.o.members[name].annotation), '')
                        self.rows.append(row)
                    row.details, row.group = ' '.join(details.split()), '' if heading == 'Args' else heading
            else: text += f'\n\n{section}'
        return text

    @property
    def summary(self) -> str:
        "Return the first line of the docstring; for a constant without a comment, its value."
        value = str(self.o.value) if self.o.is_attribute else ''
        return ' '.join(self.text.split('\n\n')[0].split()) or f'`{value}`' * (0 < len(value) <= 60)

    def call(self, width: int = 84) -> str:
        "Return the call as it is typed, in one line if it fits, otherwise wrapped between parameters."
        if not self.is_called: return self.name
        parts, kind = [], griffe.ParameterKind
        for row, this, before in zip(self.rows, self.kinds, [None, *self.kinds], strict=False):
            if before is kind.positional_only and this is not before: parts.append((row.group, '/'))
            if this is kind.keyword_only and before not in (this, kind.var_positional): parts.append((row.group, '*'))
            parts.append((row.group, row.name + f'={row.default}' * bool(row.default)))
        end = ')' + (f' -> {self.returns.type}' if self.returns else '')
        one = f'{self.name}({", ".join(part for _, part in parts)}{end}'
        if len(one) <= width: return one
        lines = []
        for group, some in groupby(parts, key=itemgetter(0)):   # a part is never broken: its spaces are hidden from textwrap
            text = ' '.join(part.replace(' ', '\0') + ',' for _, part in some)
            lines += [f'# {group}'] * bool(group) + wrap(text, width - 4, break_long_words=False, break_on_hyphens=False)
        return '\n'.join([f'{self.name}(', *(f'    {line}' for line in lines), end]).replace('\0', ' ')

    def signature(self) -> list[str]:
        "Return how a definition is called, and the base classes of a class."
        bases = ', '.join(f'`{base}`' for base in getattr(self.o, 'bases', ()) if str(base) != 'object')
        call = 'class ' * self.o.is_class + self.call()
        return [f'{{.signature}}\n```python\n{call}\n```', f'{{.bases}}\nBases: {bases}' if bases else '']

    def doc(self) -> list[str]:
        "Return the docstring: its summary, further prose, and calls with their results."
        summary, _, rest = self.text.partition('\n\n')
        parts = [summary]
        for part in doctest.DocTestParser().parse(rest):
            if isinstance(part, str): parts += [part.strip('\n')] if part.strip() else []; continue
            if parts[-1].startswith('{.call}'): parts[-1] = parts[-1].removesuffix('```') + part.source + '```'
            else: parts.append(f'{{.call}}\n```python\n{part.source}```')
            if part.want: parts.append(f'{{.gives}}\n```text\n{part.want}```')
        return parts

    def parameters(self) -> str:
        "Return a table of the parameters and the result; empty if the signature is enough."
        has_result = self.returns and self.returns.details
        if not any(row.type or row.details for row in self.rows) and not has_result: return ''
        code = lambda text, kind='plain': f'`{text}`{{.{kind}}}' * bool(text)   # noqa: E731
        said = lambda text: re.sub(r'\(((?:not in )?timm\b[^()]*)\)$', r'<span class="timm">\1</span>', text)   # noqa: E731
        rows, group = [['Parameter', 'Type', 'Default', 'Details']], ''
        for row in self.rows:
            if row.group != group: rows.append([f'<span class="group">{row.group}</span>', '', '', ''])
            group, anchor = row.group, f'<span id="{self.name}-{row.name.lstrip("*")}"></span>'
            rows.append([anchor + code(row.name), code(row.type), code(row.default, 'default'), said(row.details)])
        if has_result: rows.append(['**Returns**', code(self.returns.type), '', self.returns.details])
        used = [i for i in range(4) if any(row[i] for row in rows[1:])]
        return table('docments', *([row[i] for i in used] for row in rows))

    def lesson(self, level: int, has_open_code: bool, is_first: bool) -> str:
        "Return what a lesson page shows: shown code needs no signature, and long tables are folded."
        summary, *calls = self.doc()
        parts = [f"{'#' * level} `{self.name}`", summary, *([] if is_first else calls), *([] if has_open_code else self.signature())]
        is_short = not has_open_code and len(self.rows) <= OPEN_ROWS
        parts.append(self.parameters() if is_short else fold('parameters', f'Parameters ({len(self.rows)})', self.parameters()))
        rows = [(m, Symbol(m)) for m in methods(self.o)]
        rows = [[f'<span id="{self.name}.{m.name}"></span>`{s.call(10_000).split(".", 1)[1]}`{{.plain}}', s.summary] for m, s in rows]
        parts.append(fold('parameters', f'Methods ({len(rows)})', table('methods', ['Method', ''], *rows)) if rows else '')
        return '\n\n'.join(filter(None, parts))

    def complete(self, level: int) -> str:
        "Return the complete reference of the definition and of each of its methods."
        parts = [f"{'#' * level} `{self.name}`", *self.doc()]
        if not self.o.is_attribute or 'property' in self.o.labels: parts += [*self.signature(), self.parameters()]
        return '\n\n'.join(filter(None, [*parts, *(Symbol(m).complete(level + 1) for m in methods(self.o))]))


def _comment(o: griffe.Attribute) -> str:
    "Return the comments of a constant: those on the lines above it, then the one next to it."
    lines, above, at = o.module.lines_collection[o.filepath], [], o.lineno - 2
    while at >= 0 and re.match(r'# (?!%%|noqa)', lines[at]): above.insert(0, lines[at][2:].strip()); at -= 1
    beside = re.search(r'   # (?!noqa)(.*)', lines[o.endlineno - 1])
    return ' '.join([*above, *([beside[1]] if beside else [])])


def table(kind: str, *rows: list[str]) -> str:
    "Return a markdown table; the first row is its header."
    lines = ['| ' + ' | '.join(' '.join(cell.split()).replace('|', r'\|') for cell in row) + ' |' for row in rows]
    return '\n'.join([f'{{.{kind}}}', lines[0], '|---' * len(rows[0]) + '|', *lines[1:]])


def fold(kind: str, summary: str, text: str, is_open: bool = False) -> str:
    "Return a part of a page that opens on a click, or when a link points into it."
    return f'<details {"open " * is_open}class="{kind}">\n<summary>{summary}</summary>\n\n{text}\n\n</details>' if text else ''


def repository(path: str) -> str:
    "Return the address of a repository file on its host."
    return f"{settings['git_url']}/{'tree' if (root/path).is_dir() else 'blob'}/{settings['branch']}/{path}"


# notebooks
class Page:
    "One notebook of the site; `name` is its address without .html, such as `guides/train`."
    def __init__(self, path: Path):
        self.path, nb = path.relative_to(nbs).as_posix(), read_notebook(path)
        self.name, self.cells = page_name(self.path).removesuffix('.html'), nb['cells']
        prose = [cell['source'] for cell in self.cells if cell['cell_type'] == 'markdown']
        title = re.match(r'# (.+)(?:\n+> (.+))?', prose[0])
        self.title, self.description = title[1].strip(), (title[2] or '').strip()
        self.subtitle = re.sub('[`*]', '', self.description)
        name, self.folder = default_exp(nb), dirname(self.name)
        self.module = package[name] if name else None
        self.symbols = defined(self.module)
        self.public = [Symbol(o) for o in self.symbols if o.path in offered]
        named = re.findall(r'[A-Za-z_]\w*', ' '.join(re.findall('`[^`\n]+`', '\n'.join(prose[:2]))))
        self.offered = [o for o in self.symbols if not o.is_attribute
                        and (o in top_level or (o.path in offered if self.folder else o.name in named))]
        self.offered = sorted(self.offered, key=lambda o: (o not in top_level, o.name not in named))   # first what users need
        self.first = next((o for o in self.offered if o.docstring and '>>> ' in o.docstring.value), None)   # its call is at the top

    def top(self) -> str:
        "Return title, subtitle and source of the page."
        links = [f"[Notebook]({repository(f'nbs/{self.path}')})"]
        if self.name == 'index':
            links = [f"[GitHub]({settings['git_url']})", f"[Version {settings['version']}]({repository('CHANGELOG.md')})", *links]
        if self.module: links.append(f'[Module]({repository(self.module.filepath.relative_to(root).as_posix())})')
        if self.offered: links.append('[Reference](reference.md)')
        subtitle = f'{{.subtitle}}\n{self.description}\n\n' if self.description else ''
        return f"# {self.title}\n\n{subtitle}{{.page-links}}\n{' '.join(links)}"

    def link(self, m: re.Match) -> str:
        "Return a markdown link to a target on this site or on the repository's host."
        path, anchor = m[1], m[2] or ''
        target = normpath(f'nbs/{self.folder}/{path}')
        if not target.startswith('nbs/') and (root/target).exists(): return f']({repository(target)}{anchor})'
        if anchor: anchor = '#' + slug(anchor[1:].replace('-', ' '))
        return f"]({page_name(path).replace('.html', '.ipynb') if path.endswith('.ipynb') else path}{anchor})"

    def markdown(self, text: str) -> str:
        "Return a markdown cell; a drawing, not a badge, becomes part of the page: links and colors work, phones show `NAME-tall.svg`."
        def drawing(m):
            files = [o for o in (nbs/self.folder/f'{m[1]}.svg', nbs/self.folder/f'{m[1]}-tall.svg') if o.exists()]
            kinds = [' wide', ' tall'] if len(files) > 1 else ['']
            return '\n'.join(f'<div class="drawing{kind}">\n{o.read_text(encoding="utf-8").strip()}\n</div>'
                             for o, kind in zip(files, kinds, strict=True))
        return re.sub(r'(?<!\[)!\[[^\]]*\]\((\S+)\.svg\)', drawing, _link.sub(self.link, text))

    def source(self, code: str) -> str:
        "Return an exported cell: constants in full, definitions folded unless their code is shown, without imports."
        body = [node for node in ast.parse(code).body if not isinstance(node, _imports)]
        if not body: return ''
        names = [node.name for node in body if isinstance(node, _definitions)]
        targets = [t for node in body for t in getattr(node, 'targets', [getattr(node, 'target', None)])]
        anchors = ''.join(f'<span id="{t.id}"></span>' for t in targets if isinstance(t, ast.Name) and t.id[0] != '_')
        text = f'```python\n{code}\n```'
        if names:
            line = self.module.members[names[0]].lineno
            where = f'{repository(self.module.filepath.relative_to(root).as_posix())}#L{line}'
            is_private = all(name[0] == '_' for name in names)
            label = 'Source' + (' of ' + ', '.join(f'<code>{name}</code>' for name in names)) * is_private
            text = fold('source', label, f'{text}\n\n<p class="source-link"><a href="{where}">on GitHub</a></p>', is_open(code))
        return f'{anchors}\n\n{text}'

    def code(self, cell: dict, directives: list[str], text: str) -> dict | None:
        "Return a code cell that is not exported; its directives become tags."
        has_picture = any(mime.startswith('image/') for o in cell['outputs'] for mime in o.get('data', {}))
        is_folded = 'code-fold: true' in directives
        tags = ['remove-input'] * ('echo: false' in directives)
        tags += ['hide-input'] * (is_folded or self.name != 'index' and all(isinstance(node, _imports) for node in ast.parse(text).body))
        tags += ['beside'] * (self.name == 'index' and has_picture)   # code and picture, or picture and table
        summary = next((d.partition(': ')[2] for d in directives if d.startswith('code-summary: ')), 'Drawing code')
        prompts = {'mystnb': dict.fromkeys(['code_prompt_show', 'code_prompt_hide'], summary)} if is_folded else {}
        return {**cell, 'source': text, 'metadata': {'tags': tags, **prompts}, 'execution_count': None}

    def notebook(self) -> dict:
        "Return the page as a notebook: exported cells become the documentation of their definitions, and the code."
        cells, level = [], 1

        def add(text): cells.append(dict(cell_type='markdown', id=f'text-{len(cells)}', metadata={}, source=text))

        for cell in join_code_cells(self.cells) if self.name == 'index' else self.cells:   # as in README
            directives, text = split_cell(cell['source'])
            if cell['cell_type'] == 'markdown':
                headings = re.findall(r'^(#+) ', re.sub(r'^```.*?^```', '', cell['source'], flags=re.M | re.S), re.M)
                level = len(headings[-1]) if headings else level
                text = cell['source'] if cells else self.top() + re.sub(r'^# .*(\n+> .*)?', '', cell['source'])
                add(self.markdown(text))
            elif 'hide' in directives or not text.strip(): continue
            elif {'export', 'exporti'} & {*directives}:
                for o in self.symbols:
                    if o.name in [node.name for node in ast.parse(text).body if isinstance(node, _definitions)]:
                        add(Symbol(o).lesson(level + 1, is_open(text), o is self.first))
                if source := self.source(text.strip('\n')): add(source)
            else: cells.append(self.code(cell, directives, text.strip('\n')))
        if self.offered: self.open(cells, add)
        return dict(cells=cells, metadata=dict(language_info=dict(name='python', pygments_lexer='ipython3')), nbformat=4, nbformat_minor=5)

    def open(self, cells: list[dict], add):
        "Put the line of names below the call that opens the page, otherwise below the first result, otherwise below the first text."
        names = '<span id="reference"></span>\n\n{.names}\n' + ' '.join(f'`{o.name}`' for o in self.offered)
        at = next((k for k, cell in enumerate(cells) if '\n## ' in '\n' + cell['source']), len(cells))
        result = next((k for k, cell in enumerate(cells[:at]) if cell.get('outputs')), 1)
        add('\n\n'.join([*(Symbol(self.first).doc()[1:] if self.first else []), names]))
        cells.insert(1 if self.first else min(result + 1, at), cells.pop())


def is_open(code: str) -> bool:
    "Return whether the code of a cell is shown: public and short code is."
    names = [node.name for node in ast.parse(code).body if isinstance(node, _definitions)]
    return not all(name[0] == '_' for name in names) and len(code.strip('\n').split('\n')) <= OPEN_LINES


pages = {page.name: page for page in map(Page, find_notebooks(root))}
anchors = {o.path: (page.name, path_in_module(o)) for page in pages.values() for symbol in page.symbols for o in (symbol, *methods(symbol))}
headings = {name for page, name in anchors.values()}


def slug(title: str) -> str:
    "Return the anchor of a heading: the name of a symbol, otherwise GitHub's rule."
    if title in headings: return title
    name = re.sub(r'[^\w\- ]', '', title.strip().lower()).replace(' ', '-')
    return f'{name}-section' if name in headings else name   # a heading `Demo` leaves `demo` to the function


_known = {path.removeprefix(f'{package.name}.'): at for path, at in anchors.items()}   # what a sentence calls a definition → its place
for door, found in [*((f'{name}.', found) for name, found in doors.items()), ('', top_level)]:
    _known |= {f'{door}{path_in_module(m)}': anchors[m.path] for o in found if o.path in anchors for m in (o, *methods(o))}


def find(name: str, docname: str) -> tuple[str, str] | None:
    "Return the page and anchor of a name used on a page: one of the page's module, of the top level, or with its module."
    here = [p.module.path for p in pages.values() if p.module and docname in (p.name, f'{p.folder}/reference'.lstrip('/'))]
    names = [f'{module}.{name}' for module in here] + [name]
    return next(filter(None, (_known.get(name.removeprefix(f'{package.name}.')) for name in names)), None)


# the pages without a notebook: docs/_templates/pages
class Group:
    "A part of the sidebar; a package, which has a sentence, is folded and has its own page."
    def __init__(self, caption: str, value: list[str] | str):
        self.caption, self.sentence = caption, value if isinstance(value, str) else ''
        self.heading = f'{caption} · {value}' if self.sentence else caption
        self.reference = f'{caption}/reference' if self.sentence else 'reference'
        self.pages = [page for page in pages.values() if page.folder == caption] if self.sentence else [pages[name] for name in value]
        self.listed = [f'/{page.name}' for page in self.pages]
        self.public = [symbol for page in self.pages for symbol in page.public]
        self.top_level = [Symbol(o) for o in top_level if anchors[o.path][0] in {page.name for page in self.pages}]


def read_toc() -> list[Group]:
    "Return the sidebar from toc.yaml: guides, the loader, then packages in the order in which a sample passes them."
    groups = [Group(*item) for item in yaml.safe_load((root/'docs/toc.yaml').read_text(encoding='utf-8')).items()]
    if lost := pages.keys() - {'index'} - {page.name for group in groups for page in group.pages}:
        raise ValueError(f'toc.yaml does not name {", ".join(sorted(lost))}')
    return groups


def index(symbols: list[Symbol]) -> str:
    "Return a table of names with their first sentences; constants come last."
    ordered = sorted(symbols, key=lambda s: s.o.is_attribute)
    link = '<a class="reference internal" href="{}.html#{}"><code class="docutils literal">{}</code></a>'
    return table('api', ['Name', ''], *([link.format(*anchors[s.o.path], s.name), s.summary] for s in ordered))


_need = re.compile(r'^- \[(.+?)\]\(([^)#]+[.]ipynb)(#[^)]*)?\)(?: *<!-- (.*?) -->)?', re.M)


@dataclass
class Need:
    "A task of the page \"I want to …\": where it is explained, and other search terms, from a comment after the link."
    page: Page
    anchor: str
    words: str


def read_needs() -> dict[str, Need]:
    "Return the tasks by their sentences."
    text = '\n'.join(cell['source'] for cell in pages[NEEDS].cells)
    by_path = {page.path: page for page in pages.values()}
    return {m[1]: Need(by_path[normpath(f'{pages[NEEDS].folder}/{m[2]}')], m[3] or '', m[4] or '') for m in _need.finditer(text)}


def write(out: Path):
    "Write the Sphinx sources of all pages, and llms.txt, to `out`."
    def save(name: str, text: str):
        (out/name).parent.mkdir(parents=True, exist_ok=True)
        (out/name).write_text(text, encoding='utf-8')

    groups, needs = read_toc(), read_needs()
    templates = Environment(loader=FileSystemLoader(root/'docs/_templates/pages'), trim_blocks=True, keep_trailing_newline=True)
    templates.globals.update(groups=groups, needs=needs, index=index, title=settings['title'], about=pages['index'].subtitle)
    for page in pages.values():
        nb = page.notebook()
        if page.name == NEEDS:
            where = lambda m: f'{m[0]} <span class="where">{needs[m[1]].page.title}</span>'   # noqa: E731
            for cell in nb['cells']: cell['source'] = _need.sub(where, cell['source'])
        if page.name == 'index':
            sidebar = templates.get_template('sidebar.md.jinja').render()
            nb['cells'].append(dict(cell_type='markdown', id='sidebar', metadata={}, source=sidebar))
        save(f'{page.name}.ipynb', json.dumps(nb, ensure_ascii=False))
    tasks = [(need.page.name, sentence, need.words) for sentence, need in needs.items()]
    save('search.js', templates.get_template('search.js.jinja').render(tasks=tasks))
    for name in ('api.md', 'llms.txt'): save(name, templates.get_template(f'{name}.jinja').render())
    for group in groups:
        if group.public: save(f'{group.reference}.md', templates.get_template('reference.md.jinja').render(group=group))
        if group.sentence: save(f'{group.caption}/index.md', templates.get_template('package.md.jinja').render(group=group))
    shutil.copytree(nbs/'images', out/'images')
