"""Turn nbdev's processed notebooks into the pages that Sphinx builds: titles, show_doc cells, links, notes, toc."""
import ast
import doctest
import json
import re
import shutil
import sys
from configparser import ConfigParser
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import yaml
from nbdev.processors import FilterDefaults
from needs import llms, needs_page, read_needs

root = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root/'tools'))
from symbols import Package, Symbol, dedent_code, parameter_table, read_package  # noqa: E402

_definitions = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
_pictures = '.png', '.jpg', '.jpeg', '.svg', '.gif', '.webp'

OPEN_LINES = 60   # public code of at most so many lines is shown; longer code, and what is private, is folded


class Filter(FilterDefaults):
    "nbdev's processors without those that execute cells or add links: both are done here, from the source."
    def base_procs(self): return [p for p in super().base_procs() if p.__name__ not in ('exec_show_docs', 'add_links')]


@lru_cache(None)
def settings() -> dict:
    "settings.ini as a dict."
    config = ConfigParser(delimiters=['='])
    config.read(root/'settings.ini', encoding='utf-8')
    return dict(config['DEFAULT'])


def module_path(module: str) -> str:
    "The file of a module, such as `readers.tar`, from the root of the repository."
    return f"{settings()['lib_path']}/{module.replace('.', '/')}.py"


@lru_cache(None)
def package() -> Package:
    "The package's definitions."
    return read_package(root/settings()['lib_path'])


@lru_cache(None)
def _symbol_names() -> frozenset: return frozenset(n for o in package().modules.values() for n in o)


def slug(title: str) -> str:
    "The anchor of a heading: a symbol's own name, else GitHub's rule."
    if title in _symbol_names(): return title
    name = re.sub(r'[^\w\- ]', '', title.strip().lower()).replace(' ', '-')
    return f'{name}-section' if name in _symbol_names() else name   # a heading `Demo` leaves `demo` to the function


@dataclass
class Page:
    "One notebook of the site; `name` is its address without .html, such as `guides/train`."
    path: Path   # below nbs
    name: str
    title: str = ''
    subtitle: str = ''
    module: str | None = None
    named: frozenset[str] = frozenset()   # in the subtitle and in the sentences below it

    @property
    def number(self) -> str: return (re.match(r'(\d+)', self.path.name) or [''])[0]


def source(cell) -> str:
    "A cell's text, whether stored as a string or as lines."
    return ''.join(cell['source'])


def find_pages(nbs: Path) -> dict[str, Page]:
    "Every notebook, in order of folder and number, by its path below `nbs`."
    pages = {}
    for path in sorted(nbs.rglob('*.ipynb')):
        rel = path.relative_to(nbs)
        if any(part.startswith(('.', '_')) for part in rel.parts): continue
        name = rel.with_name(re.sub(r'^\d+[a-z]?_', '', rel.stem)).as_posix()
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        text, prose = ('\n'.join(source(c) for c in some) for some in (cells, [c for c in cells if c['cell_type'] == 'markdown'][:2]))
        module = re.search(r'^#\|\s*default_exp\s+(\S+)', text, re.M)
        title = re.search(r'^# (.+)', text, re.M)
        subtitle = re.search(r'^# .+\n+> (.+)', text, re.M)
        page = Page(rel, name, title[1].strip() if title else name, re.sub(r'[`*]', '', subtitle[1].strip()) if subtitle else '',
                    module[1] if module else None, frozenset(re.findall(r'[A-Za-z_]\w*', ' '.join(re.findall('`[^`\n]+`', prose)))))
        if name in {p.name for p in pages.values()}:
            raise ValueError(f'two notebooks give the page {name}; rename {rel}')
        pages[rel.as_posix()] = page
    return pages


_fence = re.compile(r'^(\s*)(```+|~~~+)')
_inline = re.compile(r'(?P<link>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s+"[^"]*")?\))'
                     r'|(?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))|(?P<html><[A-Za-z/][^>]*>)', re.S)


class Writer:
    "Turns one processed notebook into a page."
    def __init__(self, page: Page, pages: dict[str, Page]):
        self.page, self.pages = page, pages
        self.by_name = {p.name: p for p in pages.values()}
        self.by_module = {p.module: p for p in pages.values() if p.module}
        self.level = self.base = 1   # of the last heading; of the last heading that the author wrote
        self.depth = 1 if self.offered() else 0   # levels that the lesson is below where its author wrote it
        self.first = next((o for o in self.offered() if '>>> ' in o.doc), None)   # its call is at the top of the page
        self.level_is_prose = True

    # links
    def to_page(self, target: Page, fragment: str = '') -> str:
        "The address of `target`, as the file that Sphinx reads."
        if target is self.page and fragment: return f'#{fragment}'
        path = relpath(f'{target.name}.ipynb', PurePosixPath(self.page.name).parent.as_posix())
        return f'{path}#{fragment}' if fragment else path

    def to_symbol(self, symbol: Symbol, text: str) -> str:
        "A link to where `symbol` is documented; plain code where no page shows it."
        target = self.by_module.get(symbol.module)
        if target is None: return f'`{text}`'
        if symbol.kind in ('class', 'function') or f'{symbol.module}:{symbol.name}' in shown:
            return f'[`{text}`]({self.to_page(target, symbol.name)})'
        return self.raw_link(target, symbol.name, f'<code class="docutils literal notranslate">{text}</code>')

    def raw_link(self, target: Page, fragment: str, html: str) -> str:
        "A link to an anchor that is not a heading, which MyST would not find."
        path = relpath(f'{target.name}.html', PurePosixPath(self.page.name).parent.as_posix())
        href = f'#{fragment}' if target is self.page else f'{path}#{fragment}'
        return f'<a class="reference internal" href="{href}">{html}</a>'

    def link(self, text: str, url: str, title: str) -> str:
        "A markdown link with its target made relative to this site, or to the repository's host."
        site = (settings()['doc_host'] + settings()['doc_baseurl']).rstrip('/') + '/'
        here = PurePosixPath(self.page.path.as_posix()).parent
        if url.startswith(site): url, here = url[len(site):], PurePosixPath('.')
        elif re.match(r'[a-z]+:', url): return f'[{text}]({url}{title})'
        path, _, fragment = url.partition('#')
        rel = normpath((here/path).as_posix()) if path else self.page.path.as_posix()
        target = self.pages.get(rel) or self.by_name.get(rel.removesuffix('.html') if rel != '.' else 'index')
        if target is None:
            if rel.endswith(('.ipynb', '.html')): return f'[{text}]({path}{title})'   # Sphinx reports it
            file = (root/settings()['nbs_path']/rel).resolve()
            if file.is_relative_to(root) and file.exists() and not file.is_relative_to(root/settings()['nbs_path']):
                return f'[{text}]({self.repository(file.relative_to(root).as_posix(), file.is_dir())}{title})'
            return f'[{text}]({url}{title})'
        if not fragment: return f'[{text}]({self.to_page(target)}{title})'
        names = {n.lower(): n for n in package().modules.get(target.module, {})}
        name = names.get(fragment.lower())
        symbol = package().modules[target.module][name] if name else None
        if symbol and symbol.kind not in ('class', 'function') and f'{symbol.module}:{name}' not in shown:
            return self.raw_link(target, name, re.sub('`([^`]+)`', r'<code>\1</code>', text))
        return f'[{text}]({self.to_page(target, name or slug(fragment.replace("-", " ")))}{title})'

    def repository(self, path: str, is_dir: bool = False) -> str:
        "The address of a file of the repository on its host."
        return f"{settings()['git_url']}/{'tree' if is_dir else 'blob'}/{settings()['branch']}/{path}"

    def inline(self, text: str) -> str:
        "Link the names in backticks and rewrite link targets in a piece of prose."
        def one(m):
            if m['html']: return m[0]
            if m['link']:
                label, url, title = re.fullmatch(r'(!?\[.*\])\((\S*?)(\s+"[^"]*")?\)', m['link'], re.S).groups()
                if label.startswith('!'): return self.drawing(url) if url.endswith('.svg') else m[0]
                return self.link(label[1:-1], url, title or '')
            name = re.fullmatch(r'`([A-Za-z_][\w.]*)(\([^()]*\))?`', m['code'])
            symbol = package().linked(name[1], self.page.module) if name else None
            return self.to_symbol(symbol, m['code'].strip('`')) if symbol else m[0]
        return _inline.sub(one, text)

    def drawing(self, url: str) -> str:
        "A drawing as a part of the page, so that what is in it can be followed, and takes on the page's colors."
        file = root/settings()['nbs_path']/self.page.path.parent/url
        return f'<div class="drawing">\n{file.read_text(encoding="utf-8").strip()}\n</div>'

    # markdown
    def markdown(self, text: str) -> str:
        "A markdown cell: headings in steps of one, notes as admonitions, links inside the site."
        out, prose, fence, is_prose = [], [], None, True   # inside a directive such as {note} the text is prose too

        def flush():
            if prose: out.append(self.inline('\n'.join(prose))); prose.clear()

        for line in self.notes(text).splitlines():
            m = _fence.match(line)
            if fence and m and set(line.strip()) == {fence[0]} and len(line.strip()) >= len(fence):
                flush(); out.append(line); fence = None
            elif fence and not is_prose: out.append(line)
            elif m and not fence:
                flush(); out.append(line); fence, is_prose = m[2], '{' in line
            elif re.match(r'#{1,6} ', line):
                flush(); out.append(self.heading(line))
            elif re.match(r'    |\s*<|\s*:\w+:', line): flush(); out.append(line)
            else: prose.append(line)
        flush()
        return '\n'.join(out)

    def heading(self, line: str) -> str:
        "A heading at most one level below the one before; names in it stay unlinked."
        marks, text = line.split(' ', 1)
        self.level = min(6, max(2 + self.depth, min(len(marks) + self.depth, self.level + 1)))
        return f"{'#' * self.level} {text}"

    @staticmethod
    def notes(text: str) -> str:
        "`> **Note:** text` as an admonition."
        def one(m):
            body = re.sub(r'^> ?', '', m['body'], flags=re.M).strip()
            return f"\n```{{{m['kind'].lower()}}}\n{body}\n```\n"
        kinds = r'^> \*\*(?P<kind>Note|Warning|Tip|Important|Caution):?\*\*:? *'
        return re.sub(kinds + r'(?P<body>.*(?:\n>.*)*)', one, text, flags=re.M)

    # symbols
    def symbol(self, name: str) -> str:
        "What the page says about a definition: heading, docstring, signature, parameters, methods."
        symbol = package().find(name, self.page.module)
        if symbol is None:
            raise ValueError(f'{self.page.path}: show_doc({name}), but {settings()["lib_name"]} defines no such name')
        level = 3 if self.is_offered(symbol) else self.symbol_level('.' in symbol.name)
        parts = [f"{'#' * level} `{symbol.name}`"]
        summary, *calls = self.doc(symbol.doc)
        parts += [summary] if symbol is self.first else [summary, *calls]
        keyword = 'class ' if symbol.kind == 'class' else ''
        parts.append(f'{{.signature}}\n```python\n{keyword}{symbol.signature()}\n```')
        if symbol.bases: parts.append('{.bases}\nBases: ' + ', '.join(self.inline(f'`{b}`') for b in symbol.bases))
        parts.append(parameter_table(symbol, self.inline))
        methods = [m for m in package().methods(symbol.name, symbol.module) if f'{m.module}:{m.name}' not in shown]
        if symbol.kind == 'class' and methods:
            parts.append('\n'.join(['{.methods}', '| Method | |', '|---|---|', *map(self.method, methods)]))
        return '\n\n'.join(p for p in parts if p)

    def symbol_level(self, is_method: bool) -> int:
        "The level of the heading of a definition in the lesson."
        if not is_method: self.base = self.level if self.level_is_prose else self.base
        self.level, self.level_is_prose = min(self.base + (2 if is_method else 1), self.level + 1, 6), False
        return self.level

    def doc(self, text: str) -> list[str]:
        "A docstring: its summary, and further prose, calls and what they give."
        summary, _, rest = text.partition('\n\n')
        parts = [self.inline(summary)]
        for part in doctest.DocTestParser().parse(rest):
            if not isinstance(part, doctest.Example): parts += [self.inline(part.strip('\n'))] if part.strip() else []; continue
            if parts[-1].startswith('{.call}'): parts[-1] = parts[-1].removesuffix('```') + part.source + '```'
            else: parts.append(f'{{.call}}\n```python\n{part.source}```')
            if part.want: parts.append(f'{{.gives}}\n```text\n{part.want}```')
        return parts

    def method(self, symbol: Symbol) -> str:
        "One row of a class's table of methods."
        call = symbol.signature(10_000).split('.', 1)[1].replace('|', r'\|')
        summary = self.inline(symbol.summary).replace('|', r'\|')
        return f'| <span id="{symbol.name}"></span>`{call}` | {summary} |'

    def exported(self, code: str) -> list[str]:
        "An exported cell: constants in full, definitions folded, imports not at all."
        tree = ast.parse(code)
        body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
        if not body: return []
        names = [n.name for n in body if isinstance(n, _definitions)]
        fenced = f'```python\n{dedent_code(code)}\n```'
        targets = [t for n in body for t in getattr(n, 'targets', [getattr(n, 'target', None)])]
        constants = [t.id for t in targets if isinstance(t, ast.Name)]
        anchors = ''.join(f'<span id="{c}"></span>' for c in constants if not c.startswith('_'))
        if not names: return [f'{anchors}\n\n{fenced}' if anchors else fenced]
        line = package().find(names[0], self.page.module)
        where = self.repository(module_path(self.page.module)) + (f'#L{line.line}' if line else '')
        is_private = all(n.startswith('_') for n in names)
        label = 'Source of ' + ', '.join(f'<code>{n}</code>' for n in names) if is_private else 'Source'
        shown = '' if is_private or len(fenced.split('\n')) > OPEN_LINES else ' open'
        return [f'{anchors}\n\n<details class="source"{shown}>\n<summary>{label}</summary>', fenced,
                f'<p class="source-link"><a href="{where}">on GitHub</a></p>\n</details>']

    # cells
    def top(self, front: dict) -> str:
        "Title, subtitle and where the page comes from."
        path, s = f"{settings()['nbs_path']}/{self.page.path.as_posix()}", settings()
        name, links = s['git_url'].split('github.com/')[-1], [f'[Notebook]({self.repository(path)})']
        if s['colab_branch']:   # copies that install the library: tools/colab.py
            links.insert(0, f"[Open in Colab](https://colab.research.google.com/github/{name}/blob/{s['colab_branch']}/{path})")
        if self.page.module: links.append(f'[Module]({self.repository(module_path(self.page.module))})')
        subtitle = '{.subtitle}\n' + self.inline(front['description']) + '\n\n' if front.get('description') else ''
        return f"# {front.get('title') or self.page.title}\n\n{subtitle}{{.page-links}}\n" + ' '.join(links)

    def is_offered(self, symbol: Symbol) -> bool:
        "Is this a function or class that users need: of a front door, or, where there is none, named at the top of the page?"
        has_door, name = '.' in symbol.module, symbol.name
        is_needed = name in package().exported or name in (package().offered if has_door else self.page.named)
        return '.' not in name and symbol.public and symbol.kind != 'constant' and is_needed

    def offered(self) -> list[Symbol]:
        "What the page's module offers to users: names of the top level first, then those that the top of the page names."
        found = [o for o in package().modules.get(self.page.module, {}).values() if self.is_offered(o)]
        return sorted(found, key=lambda o: (o.name not in package().exported, o.name not in self.page.named))

    def reference(self, parts: dict[str, str]) -> str:
        "A call; then what the module offers to users: a table of several names, then each with its parameters."
        rows = [f'| {self.to_symbol(o, o.name)} | {self.inline(o.summary)} |'.replace('\n', ' ') for o in self.offered()]
        table = ['\n'.join(['{.api}', '| Name | |', '|---|---|', *rows])] if len(rows) > 2 else []
        call = self.doc(self.first.doc)[1:] if self.first else []
        return '\n\n'.join([*call, '## Reference', *table, *(parts[o.name] for o in self.offered()), '## How it is built'])

    def code(self, cell: dict) -> dict | None:
        "A code cell without directives; what they asked for becomes tags."
        text = source(cell)
        options = dict(re.findall(r'^\s*#\s*\|\s*(echo|output|include|eval)\s*:\s*(\w+)', text, re.M))
        lines = [o for o in dedent_code(text).splitlines() if not o.startswith('from nbdev.showdoc import')]
        text = '\n'.join(lines).strip('\n')
        if options.get('include') == 'false' or not text: return None
        parts = dict(echo='remove-input', output='remove-output')
        tags = [tag for key, tag in parts.items() if options.get(key) == 'false']
        if all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in _statements(text)): tags.append('hide-input')
        outputs = [dict(o) for o in cell.get('outputs', [])]
        for o in outputs:
            if o['output_type'] == 'execute_result': o.setdefault('execution_count', None)
        return dict(cell_type='code', id=cell['id'], metadata={'tags': tags} if tags else {}, execution_count=None,
                    source=text, outputs=outputs)

    def convert(self, original: dict, processed: dict) -> dict:
        "The page as a notebook: the processed cells, with the exported code of the original put back, folded."
        ids, todo, cells = {c['id'] for c in original['cells']}, list(processed['cells']), []
        definitions = {}

        def md(text, id):
            if text.strip(): cells.append(dict(cell_type='markdown', id=id[:60], metadata={}, source=text))

        def take(cell):
            text, kind, id = source(cell), cell['cell_type'], cell['id']
            if kind == 'raw':
                if text.startswith('---'):
                    md(self.top(yaml.safe_load(text.strip().strip('-')) or {}), id)
            elif kind == 'markdown':
                text = re.sub(r'<!-- WARNING: THIS FILE WAS AUTOGENERATED.*?-->', '', text)
                if re.search(r'^#{2,} ', text, re.M): self.level_is_prose = True
                md(self.markdown(text), id)
            elif name := shown_name(cell):
                symbol = package().find(name, self.page.module)
                if symbol and self.is_offered(symbol): definitions[name] = self.symbol(name)
                else: md(self.symbol(name), id)
            elif code := self.code(cell): cells.append(code)

        for cell in original['cells']:
            wanted = defined_names(cell)
            while todo and todo[0]['id'] not in ids and (not wanted or shown_name(todo[0]) in {None, *wanted}):
                take(todo.pop(0))
            if todo and todo[0]['id'] == cell['id']: take(todo.pop(0))
            elif is_exported(cell):
                for i, text in enumerate(self.exported(source(cell))): md(text, f"{cell['id']}-source-{i}")
        for cell in todo: take(cell)
        if self.depth:   # after the title and what it is for
            at = 2 if not cells[1]['source'].startswith('#') else 1
            text = self.reference(definitions)
            cells.insert(at, dict(cell_type='markdown', id='reference', metadata={}, source=text))
        meta = dict(kernelspec=dict(display_name='Python 3', language='python', name='python3'),
                    language_info=dict(name='python', pygments_lexer='ipython3'))
        return dict(cells=cells, metadata=meta, nbformat=4, nbformat_minor=5)


def _statements(code: str) -> list[ast.stmt]:
    "The statements of a cell; one that holds a shell command or a magic counts as an expression."
    try: return ast.parse(code).body
    except SyntaxError: return [ast.Expr(ast.Constant(0))]


shown: set[str] = set()   # module:Class.method of every method that has a show_doc cell, and so a heading


def is_exported(cell) -> bool:
    "Does this cell go into the package, and may a reader see it?"
    found = set(re.findall(r'^#\|\s*(export|exporti|hide)\s*$', source(cell), re.M))
    return cell['cell_type'] == 'code' and bool(found) and 'hide' not in found


def defined_names(cell) -> list[str]:
    "The functions and classes that an exported cell defines."
    if not is_exported(cell): return []
    return [n.name for n in ast.parse(source(cell)).body if isinstance(n, _definitions)]


def shown_name(cell) -> str | None:
    "X of a cell `show_doc(X)`."
    if cell['cell_type'] != 'code': return None
    m = re.search(r'^show_doc\(\s*([\w.]+)', source(cell), re.M)
    return m[1] if m else None


# the pages that no notebook gives
def read_toc(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    "The order of the guides and of the loader's tools, and the sentences of the packages, from toc.txt."
    lines = [o for o in path.read_text(encoding='utf-8').splitlines() if o.strip() and not o.startswith('#')]
    toc = {k.strip(): v.strip() for k, v in (o.split(':', 1) for o in lines)}
    return {'guides': toc.pop('guides', '').split(), '.': toc.pop('tools', '').split()}, toc


@dataclass
class Group:
    "A part of the sidebar; a package is folded, and has a page of its own."
    caption: str
    pages: list[Page]
    sentence: str = ''   # of a package

    @property
    def heading(self) -> str:
        "Caption and sentence."
        return f'{self.caption} · {self.sentence}' if self.sentence else self.caption


def sections(pages: dict[str, Page], toc: Path) -> list[Group]:
    "The sidebar: guides first, then the loader, then the packages in the order in which a sample passes them."
    orders, packages = read_toc(toc)
    by_folder = {}
    for page in pages.values():
        if page.name != 'index': by_folder.setdefault(page.path.parent.as_posix(), []).append(page)
    for folder, order in orders.items():
        places = {name: place for place, name in enumerate(order)}
        by_folder.get(folder, []).sort(key=lambda page, places=places: (
            places.get(page.name.rpartition('/')[2], len(places)), page.path.name))
    guides = by_folder.pop('guides', [])
    unknown = by_folder.keys() - packages.keys() - {'.'}
    if unknown: raise ValueError(f'{toc.name} has no line for {", ".join(sorted(unknown))}')
    found = [Group('Guides', guides), Group('The loader and its tools', by_folder.get('.', [])),
             *(Group(name, by_folder.get(name, []), packages[name]) for name in packages)]
    return [group for group in found if group.pages]


def toctree(names: list[str], caption: str = '') -> str:
    "A hidden list of pages for the sidebar."
    return '\n'.join(['```{toctree}', ':hidden:', *([f':caption: {caption}'] if caption else []), '', *names, '```'])


def toctrees(groups: list[Group]) -> str:
    "The lists that make the sidebar; the pages of a package are below the package's own."
    trees = [toctree(['find'] * (group.caption == 'Guides') + [page.name for page in group.pages], group.caption)
             for group in groups if not group.sentence]
    packages = [f'{group.heading} <{group.caption}/index>' for group in groups if group.sentence]
    return '\n\n'.join([*trees, toctree(packages, 'Packages, in the order of a sample'), toctree(['api'], 'Reference')])


def package_page(group: Group) -> str:
    "The page of a package: what it is for, and its modules with a sentence each."
    rows = [f'| [{page.title}]({page.name.rpartition("/")[2]}.ipynb) | {page.subtitle} |' for page in group.pages]
    return '\n'.join([f'# {group.caption}', '', '{.subtitle}', f'{group.sentence[0].upper()}{group.sentence[1:]}.', '',
                      '{.api}', '| Page | |', '|---|---|', *rows, '', toctree([page.name.rpartition('/')[2] for page in group.pages]), ''])


def api(pages: dict[str, Page], groups: list[Group]) -> str:
    "The API index: the names of the top level and those that packages offer, by package and module."
    writer = Writer(Page(Path('api.ipynb'), 'api'), pages)
    parts = ['# API index', '{.subtitle}\nWhat the top level and each package offer, by package.']
    missing = package().offered - {'__version__'}
    for group in groups:
        rows = []
        for page in group.pages:
            names = [s for n, s in package().modules.get(page.module, {}).items()
                     if n in package().offered and '.' not in n]
            missing -= {s.name for s in names}
            if names: rows.append((page, names))
        if not rows: continue
        parts.append(f'## {group.heading}')
        for page, names in rows:
            lines = [f'### [{page.title}]({page.name}.ipynb)', '', '{.api}', '| Name | |', '|---|---|']
            for s in names:
                summary = writer.inline(s.summary).replace('|', r'\|')
                lines.append(f'| {writer.to_symbol(s, s.name)} | {summary} |')
            parts.append('\n'.join(lines))
    if missing: raise ValueError(f'exported, but defined in no module that has a page: {", ".join(sorted(missing))}')
    return '\n\n'.join(parts) + '\n'


def prepare(processed: Path, pages_dir: Path):
    "Write the Sphinx sources for every processed notebook to `pages_dir`."
    nbs = root/settings()['nbs_path']
    pages, read = find_pages(nbs), lambda p: json.loads(p.read_text(encoding='utf-8'))   # noqa: E731
    if pages_dir.exists(): shutil.rmtree(pages_dir)
    groups = sections(pages, root/'docs/toc.txt')
    notebooks = {path: (read(nbs/path), read(processed/path)) for path in pages}
    for path, (_, nb) in notebooks.items():
        for name in filter(None, map(shown_name, nb['cells'])):
            symbol = package().find(name, pages[path].module)
            if symbol and '.' in symbol.name: shown.add(f'{symbol.module}:{symbol.name}')
    for path, page in pages.items():
        nb = Writer(page, pages).convert(*notebooks[path])
        if page.name == 'index':
            nb['cells'].append(dict(cell_type='markdown', id='toctrees', metadata={}, source=toctrees(groups)))
        target = pages_dir/f'{page.name}.ipynb'
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(nb, indent=1, ensure_ascii=False), encoding='utf-8')
    if 'index.ipynb' not in pages:   # a first page, until nbs has one
        text = f"# {settings()['title']}\n\n{settings()['description']}\n\n{toctrees(groups)}\n"
        (pages_dir/'index.md').write_text(text, encoding='utf-8')
    (pages_dir/'api.md').write_text(api(pages, groups), encoding='utf-8')
    for group in groups:
        if group.sentence: (pages_dir/group.caption/'index.md').write_text(package_page(group), encoding='utf-8')
    needs, titles = read_needs(root/'docs/needs.txt'), {page.name: page.title for page in pages.values()}
    (pages_dir/'find.md').write_text(needs_page(needs, titles), encoding='utf-8')
    about = pages['index.ipynb'].subtitle if 'index.ipynb' in pages else settings()['description']
    (pages_dir/'llms.txt').write_text(llms(settings()['title'], about, groups, needs), encoding='utf-8')
    for file in nbs.rglob('*'):   # pictures that a notebook shows with ![](...)
        rel = file.relative_to(nbs)
        if file.suffix in _pictures and not any(o.startswith('.') for o in rel.parts):
            (pages_dir/rel).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, pages_dir/rel)
