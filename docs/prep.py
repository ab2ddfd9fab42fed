"""Turn nbdev's processed notebooks into the pages that Sphinx builds: titles, show_doc cells, links, notes, toc."""
import ast
import doctest
import json
import re
import shutil
import sys
from configparser import ConfigParser
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import yaml
from nbdev.processors import FilterDefaults
from needs import llms, needs_page, read_needs

root = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root/'tools'))
from notebooks import join_code_cells  # noqa: E402
from symbols import Package, Symbol, dedent_code, parameter_table, read_package  # noqa: E402

_definitions = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
_pictures = '.png', '.jpg', '.jpeg', '.svg', '.gif', '.webp'

OPEN_LINES = 40   # public code of at most so many lines is shown; longer code, and what is private, is folded
OPEN_ROWS = 8   # a table of at most so many parameters is shown in the story


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
def _symbol_names() -> frozenset:
    "Every name that may be a heading: definitions, and methods, inherited ones too."
    symbols = [symbol for found in package().modules.values() for symbol in found.values()]
    return frozenset(o.name for symbol in symbols for o in (symbol, *Writer.methods(symbol)))


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
    listed: bool = True   # in the sidebar

    @property
    def folder(self) -> str:
        "Its package's part of the address, such as `readers/`."
        return self.name.rpartition('/')[0] + '/' * ('/' in self.name)


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
        self.first = next((o for o in self.offered() if '>>> ' in o.doc), None)   # its call is at the top of the page
        self.level_is_prose = True
        self.open: set[str] = set()   # definitions whose code is shown

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
        "A drawing as a part of the page: its links work, and it takes on the page's colors. Phones show `NAME-tall.svg`."
        file = root/settings()['nbs_path']/self.page.path.parent/url
        tall = file.with_stem(f'{file.stem}-tall')
        kinds = [(file, 'drawing wide'), (tall, 'drawing tall')] if tall.exists() else [(file, 'drawing')]
        return '\n'.join(f'<div class="{kind}">\n{o.read_text(encoding="utf-8").strip()}\n</div>' for o, kind in kinds)

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
        self.level = min(6, max(2, min(len(marks), self.level + 1)))
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
        "What the story says about a definition: open code says its own signature, and long tables are folded."
        symbol = package().find(name, self.page.module)
        if symbol is None:
            raise ValueError(f'{self.page.path}: show_doc({name}), but {settings()["lib_name"]} defines no such name')
        summary, *calls = self.doc(symbol.doc)
        parts = [f"{'#' * self.symbol_level('.' in symbol.name)} `{symbol.name}`", summary]
        if symbol is not self.first: parts += calls
        has_open_code, num_rows = symbol.name in self.open, sum(not p.marker for p in symbol.params)
        if not has_open_code: parts += self.signature(symbol)
        table = parameter_table(symbol, self.inline)
        parts.append(table if not has_open_code and num_rows <= OPEN_ROWS else self.fold('parameters', f'Parameters ({num_rows})', table))
        if methods := self.methods(symbol, shown):
            rows = '\n'.join(['{.methods}', '| Method | |', '|---|---|', *map(self.method, methods)])
            parts.append(self.fold('parameters', f'Methods ({len(methods)})', rows))
        return '\n\n'.join(filter(None, parts))

    def complete(self, symbol: Symbol, level: int) -> str:
        "All that is said about a definition, and about each of its methods: the reference."
        parts = [f"{'#' * level} `{symbol.name}`", *self.doc(symbol.doc), *self.signature(symbol), parameter_table(symbol, self.inline)]
        if symbol.kind == 'constant': parts = parts[:2]
        return '\n\n'.join(filter(None, [*parts, *(self.complete(m, level + 1) for m in self.methods(symbol))]))

    def signature(self, symbol: Symbol) -> list[str]:
        "How a definition is called, and what a class is made from."
        keyword = 'class ' if symbol.kind == 'class' else ''
        bases = ', '.join(self.inline(f'`{b}`') for b in symbol.bases)
        return [f'{{.signature}}\n```python\n{keyword}{symbol.signature()}\n```', f'{{.bases}}\nBases: {bases}' if bases else '']

    @staticmethod
    def methods(symbol: Symbol, but: frozenset[str] | set[str] = frozenset()) -> list[Symbol]:
        "The methods of a class, but for those that have a place of their own."
        if symbol.kind != 'class': return []
        return [m for m in package().methods(symbol.name, symbol.module) if f'{m.module}:{m.name}' not in but]

    @staticmethod
    def fold(kind: str, summary: str, text: str, is_open: bool = False) -> str:
        "A part of a page that opens when it is asked for, or when a link leads into it."
        return f'<details {"open " if is_open else ""}class="{kind}">\n<summary>{summary}</summary>\n\n{text}\n\n</details>' if text else ''

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
        shown = ' open' if is_open(code) else ''
        return [f'{anchors}\n\n<details class="source"{shown}>\n<summary>{label}</summary>', fenced,
                f'<p class="source-link"><a href="{where}">on GitHub</a></p>\n</details>']

    # cells
    def top(self, front: dict) -> str:
        "Title, subtitle and where the page comes from."
        path, s = f"{settings()['nbs_path']}/{self.page.path.as_posix()}", settings()
        links = [f'[Notebook]({self.repository(path)})']
        if self.page.name == 'index':
            links = [f"[GitHub]({s['git_url']})", f"[Version {s['version']}]({self.repository('CHANGELOG.md')})", *links]
        if self.page.module: links.append(f'[Module]({self.repository(module_path(self.page.module))})')
        if self.offered():
            reference = relpath(f'{self.page.folder}reference.md', PurePosixPath(self.page.name).parent.as_posix())
            links.append(f'[Reference]({reference})')
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

    def opening(self, cells: list[dict]) -> tuple[int, str]:
        "Where the line of names goes: below a call that opens the page, else below the first result, else below the first words."
        names = '<span id="reference"></span>\n\n{.names}\n' + ' '.join(self.to_symbol(o, o.name) for o in self.offered())
        if self.first: return 1, '\n\n'.join([*self.doc(self.first.doc)[1:], names])
        at = next((k for k, cell in enumerate(cells) if '\n## ' in '\n' + source(cell)), len(cells))
        result = next((k for k, cell in enumerate(cells[:at]) if cell.get('outputs')), 1)
        return min(result + 1, at), names

    def code(self, cell: dict) -> dict | None:
        "A code cell without directives; what they asked for becomes tags."
        text = source(cell)
        options = dict(re.findall(r'^\s*#\s*\|\s*(echo|output|include|eval|code-fold)\s*:\s*(\w+)', text, re.M))
        lines = [o for o in dedent_code(text).splitlines() if not o.startswith('from nbdev.showdoc import')]
        text = '\n'.join(lines).strip('\n')
        if options.get('include') == 'false' or not text: return None
        parts = dict(echo='remove-input', output='remove-output')
        tags = [tag for key, tag in parts.items() if options.get(key) == 'false']
        has_imports_alone = all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in _statements(text))
        is_folded, metadata = options.get('code-fold') == 'true', {}
        if is_folded or self.page.name != 'index' and has_imports_alone: tags.append('hide-input')
        has_picture = any(mime.startswith('image/') for o in cell.get('outputs', []) for mime in o.get('data', {}))
        if self.page.name == 'index' and has_picture: tags.append('beside')   # code and picture, or picture and table
        if tags: metadata['tags'] = tags
        if is_folded: metadata['mystnb'] = dict.fromkeys(['code_prompt_show', 'code_prompt_hide'], 'Drawing code')
        outputs = [dict(o) for o in cell.get('outputs', [])]
        for o in outputs:
            if o['output_type'] == 'execute_result': o.setdefault('execution_count', None)
        return dict(cell_type='code', id=cell['id'], metadata=metadata, execution_count=None,
                    source=text, outputs=outputs)

    def convert(self, original: dict, processed: dict) -> dict:
        "The page as a notebook: the processed cells, with the exported code of the original put back, folded."
        ids, todo, cells = {c['id'] for c in original['cells']}, list(processed['cells']), []
        self.open = {name for cell in original['cells'] for name in defined_names(cell) if is_open(source(cell))}

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
                md(self.symbol(name), id)
            elif code := self.code(cell):
                cells.append(code)

        for cell in original['cells']:
            wanted = defined_names(cell)
            while todo and todo[0]['id'] not in ids and (not wanted or shown_name(todo[0]) in {None, *wanted}):
                take(todo.pop(0))
            if todo and todo[0]['id'] == cell['id']: take(todo.pop(0))
            elif is_exported(cell):
                for i, text in enumerate(self.exported(source(cell))): md(text, f"{cell['id']}-source-{i}")
        for cell in todo: take(cell)
        if self.offered():
            at, text = self.opening(cells)
            cells.insert(at, dict(cell_type='markdown', id='opening', metadata={}, source=text))
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


def is_open(code: str) -> bool:
    "Is the code of a cell a part of the story: public and short?"
    names = [n.name for n in ast.parse(code).body if isinstance(n, _definitions)]
    return not all(n.startswith('_') for n in names) and len(dedent_code(code).split('\n')) <= OPEN_LINES


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
def read_toc(path: Path) -> tuple[dict[str, list[str]], set[str], dict[str, str]]:
    "The order of the guides and of the loader's tools, pages that the sidebar leaves out, and the packages' sentences: toc.txt."
    lines = [o for o in path.read_text(encoding='utf-8').splitlines() if o.strip() and not o.startswith('#')]
    toc = {k.strip(): v.strip() for k, v in (o.split(':', 1) for o in lines)}
    unlisted = set(toc.pop('unlisted', '').split())
    return {'guides': toc.pop('guides', '').split(), '.': toc.pop('tools', '').split()}, unlisted, toc


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

    @property
    def listed(self) -> list[str]:
        "The pages that the sidebar shows."
        return [page.name for page in self.pages if page.listed]

    @property
    def offered(self) -> list[tuple[Page, list[Symbol]]]:
        "Each page with the names that its module offers, where it offers some."
        found = [(page, [o for name, o in package().modules.get(page.module, {}).items() if name in package().offered and '.' not in name])
                 for page in self.pages]
        return [(page, symbols) for page, symbols in found if symbols]


def sections(pages: dict[str, Page], toc: Path) -> list[Group]:
    "The sidebar: guides first, then the loader, then the packages in the order in which a sample passes them."
    orders, unlisted, packages = read_toc(toc)
    for page in pages.values(): page.listed = page.name not in unlisted
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
    trees = [toctree(['find'] * (group.caption == 'Guides') + group.listed, group.caption)
             for group in groups if not group.sentence]
    packages = [f'{group.heading} <{group.caption}/index>' for group in groups if group.sentence]
    return '\n\n'.join([*trees, toctree(packages, 'Packages, in the order of a sample'), toctree(['api', 'reference'], 'Reference')])


def package_page(group: Group) -> str:
    "The page of a package: what it is for, and its modules with a sentence each."
    rows = [f'| [{page.title}]({page.name.rpartition("/")[2]}.ipynb) | {page.subtitle} |' for page in group.pages]
    rows.append('| [Reference](reference.md) | All that the package offers, with every parameter and method. |')
    below = [name.rpartition('/')[2] for name in group.listed] + ['reference']
    return '\n'.join([f'# {group.caption}', '', '{.subtitle}', f'{group.sentence[0].upper()}{group.sentence[1:]}.', '',
                      '{.api}', '| Page | |', '|---|---|', *rows, '', toctree(below), ''])


def reference_page(group: Group, pages: dict[str, Page]) -> str:
    "All that the modules of a group offer, with every parameter and method."
    name = f'{group.caption}/reference' if group.sentence else 'reference'
    parts = [f'# {"Reference" if group.sentence else group.caption}',
             f'{{.subtitle}}\n{group.heading}: every name, parameter and method. The pages of the modules say how they are built.']
    for page, symbols in group.offered:
        writer = Writer(replace(page, name=name), pages)
        parts += [f'## {page.title}', f'[{page.subtitle or page.title}]({writer.to_page(page)})']
        parts += [writer.complete(symbol, 3) for symbol in symbols]
    return '\n\n'.join(parts) + '\n'


def read_names(path: Path) -> dict[str, list[str]]:
    "The groups of the API index: title -> names."
    lines = [line.partition(': ') for line in path.read_text(encoding='utf-8').splitlines() if line and line[0] != '#']
    return {title: names.split() for title, _, names in lines}


def api(pages: dict[str, Page], groups: list[Group], named: dict[str, list[str]]) -> str:
    "The API index: the names of the top level in groups, then those of each package, folded; constants come last."
    writer = Writer(Page(Path('api.ipynb'), 'api'), pages)
    offered = {group.caption: [o for _, symbols in group.offered for o in symbols] for group in groups}
    symbols = {o.name: o for name in package().exported if (o := package().find(name))}
    missing = package().offered - {'__version__'} - symbols.keys() - {o.name for found in offered.values() for o in found}
    if missing: raise ValueError(f'exported, but defined in no module that has a page: {", ".join(sorted(missing))}')
    named = {**named, 'Constants': [name for name, o in symbols.items() if o.kind == 'constant']}
    if sorted(name for names in named.values() for name in names) != sorted(symbols):
        raise ValueError(f'docs/names.txt must name each of these once: {", ".join(sorted(symbols))}')

    def table(found: list[Symbol], *last: str) -> str:
        found = sorted(found, key=lambda o: o.kind == 'constant')
        rows = [f'| {writer.to_symbol(o, o.name)} | {writer.inline(o.summary)} |'.replace('\n', ' ') for o in found]
        return '\n'.join(['{.api}', '| Name | |', '|---|---|', *rows, *last])

    parts = ['# API index', '{.subtitle}\nEvery public name of `timmdata`, then those of each package.', '## `import timmdata`']
    for number, (title, names) in enumerate(named.items()):
        text = table([symbols[name] for name in names])
        parts.append(writer.fold('package', f'{title} ({len(names)})', text, is_open=number == 0))
    parts.append('## By package')
    for group in groups:
        if not (found := offered[group.caption]): continue
        where = f'{group.caption}/reference.md' if group.sentence else 'reference.md'
        text = table(found, f'| [Reference]({where}) | With every parameter and method. |')
        parts.append(writer.fold('package', f'{group.heading} ({len(found)})', text))
    return '\n\n'.join(parts) + '\n'


def prepare(processed: Path, pages_dir: Path):
    "Write the Sphinx sources for every processed notebook to `pages_dir`."
    nbs = root/settings()['nbs_path']
    pages, read = find_pages(nbs), lambda p: json.loads(p.read_text(encoding='utf-8'))   # noqa: E731
    if pages_dir.exists(): shutil.rmtree(pages_dir)
    groups, needs = sections(pages, root/'docs/toc.txt'), read_needs(root/'docs/needs.txt')
    notebooks = {path: (read(nbs/path), read(processed/path)) for path in pages}
    for notebook in notebooks['index.ipynb']: notebook['cells'] = join_code_cells(notebook['cells'])   # as in README
    for path, (_, nb) in notebooks.items():
        for name in filter(None, map(shown_name, nb['cells'])):
            symbol = package().find(name, pages[path].module)
            if symbol and '.' in symbol.name: shown.add(f'{symbol.module}:{symbol.name}')
    for path, page in pages.items():
        nb = Writer(page, pages).convert(*notebooks[path])
        terms = ' '.join(need.words for need in needs if need.page == page.name)   # Sphinx searches them, too
        nb['metadata']['myst'] = {'html_meta': {'keywords': terms}} if terms else {}
        if page.name == 'index':
            nb['cells'].append(dict(cell_type='markdown', id='toctrees', metadata={}, source=toctrees(groups)))
        if not page.listed: nb['metadata']['orphan'] = True
        target = pages_dir/f'{page.name}.ipynb'
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(nb, indent=1, ensure_ascii=False), encoding='utf-8')
    if 'index.ipynb' not in pages:   # a first page, until nbs has one
        text = f"# {settings()['title']}\n\n{settings()['description']}\n\n{toctrees(groups)}\n"
        (pages_dir/'index.md').write_text(text, encoding='utf-8')
    (pages_dir/'api.md').write_text(api(pages, groups, read_names(root/'docs/names.txt')), encoding='utf-8')
    for group in groups:
        folder = pages_dir/group.caption if group.sentence else pages_dir
        if group.sentence: (folder/'index.md').write_text(package_page(group), encoding='utf-8')
        if group.caption != 'Guides': (folder/'reference.md').write_text(reference_page(group, pages), encoding='utf-8')
    titles = {page.name: page.title for page in pages.values()}
    (pages_dir/'find.md').write_text(needs_page(needs, titles), encoding='utf-8')
    about = pages['index.ipynb'].subtitle if 'index.ipynb' in pages else settings()['description']
    (pages_dir/'llms.txt').write_text(llms(settings()['title'], about, groups, needs), encoding='utf-8')
    for file in nbs.rglob('*'):   # pictures that a notebook shows with ![](...)
        rel = file.relative_to(nbs)
        if file.suffix in _pictures and not any(o.startswith('.') for o in rel.parts):
            (pages_dir/rel).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, pages_dir/rel)
