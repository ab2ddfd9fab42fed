"""The site's search: what can be found, written to a file that `_static/search.js` reads when somebody begins to type.

It finds what people come for (needs.txt), pages and their sections with all sentences, and the names of the package with their
methods and parameters, each with the address of its definition.
"""
import json
import re
from pathlib import Path

import prep
from docutils import nodes
from needs import read_needs

_tables = {'docments', 'methods', 'api'}   # these are found as names


def _text(node: nodes.Node) -> str:
    "The words of a part of a page, without the HTML that is written into it."
    return ' '.join(''.join(o for o in node.findall(nodes.Text) if not isinstance(o.parent, nodes.raw)).split())


def _plain(text: str) -> str:
    "A sentence of a docstring without links and marks."
    return re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text).replace('`', '')


def _texts(node: nodes.Node) -> list[str]:
    "The paragraphs of a part of a page, without code and tables of names."
    if isinstance(node, nodes.table) and _tables & set(node['classes']): return []
    if isinstance(node, (nodes.literal_block, nodes.comment, nodes.raw)): return []
    if isinstance(node, nodes.paragraph):
        return [] if {'page-links', 'bases'} & set(node['classes']) else [_text(node)]
    return [text for child in node.children if not isinstance(child, nodes.section) for text in _texts(child)]


def _sections(node: nodes.Node, trail: tuple[str, ...] = ()):
    "Each section of a page as (anchor, headings from the top, text)."
    for section in (o for o in node.children if isinstance(o, nodes.section)):
        headings = *trail, _text(section[0])
        yield section['ids'][0], headings, '\n'.join(_texts(section))
        yield from _sections(section, headings)


def _names(page: prep.Page) -> list[dict]:
    "The public names of a page's module, with methods and parameters."
    found, package = [], prep.package()
    for name, symbol in package.modules.get(page.module, {}).items():
        if not symbol.public or '.' in name or name.startswith('_'): continue
        where = dict(page=page.title, owner=name, offered=name in package.offered)
        url = f'{page.name}.html#'
        found.append(dict(kind='name', title=name, text=_plain(symbol.summary) or f'A constant of {page.module}.', url=url + name, **where))
        if symbol.kind == 'constant': continue
        found += [dict(kind='parameter', title=p.short, text=_plain(p.details), url=f'{url}{name}-{p.short}', **where)
                  for p in symbol.params if p.details and not p.marker]
        if symbol.kind == 'class':
            found += [dict(kind='method', title=m.name.split('.')[1], text=_plain(m.summary), url=url + m.name, **where)
                      for m in package.methods(name, symbol.module)]
    return found


def _records(app) -> list[dict]:
    "All that can be found."
    pages = {page.name: page for page in prep.find_pages(prep.root/prep.settings()['nbs_path']).values()}
    texts = {f'{name}.html' + f'#{anchor}' * bool(k): text
             for name, parts in app.found.items() for k, (anchor, _, text) in enumerate(parts)}
    found = [dict(kind='need', title=need.sentence, text=texts.get(need.url) or pages[need.page].subtitle, url=need.url, words=need.words,
                  page=pages[need.page].title) for need in read_needs(prep.root/'docs/needs.txt')]
    symbols = prep.package().modules
    for name, parts in app.found.items():
        if name not in pages: continue   # the index of names and the index by need would find everything twice
        page, guide = pages[name], name.startswith('guides/') or name == 'index'
        (_, headings, text), *rest = parts
        found.append(dict(kind='page', title=headings[0], text=text, url=f'{name}.html', page='', guide=guide))
        found += [dict(kind='section', title=headings[-1], text=text, url=f'{name}.html#{anchor}',
                       page=' › '.join(headings[:-1]), guide=guide)
                  for anchor, headings, text in rest if text and anchor not in symbols.get(page.module, {})]
        found += _names(page)
    return found


def _collect(app, doctree, name):
    app.found[name] = list(_sections(doctree))


def _write(app, error):
    if error: return
    text = json.dumps(_records(app), ensure_ascii=False, separators=(',', ':'))
    (Path(app.outdir)/'_static/search-records.js').write_text(f'const searchRecords = {text};\n', encoding='utf-8')


def _without_sphinxs_own(app): app.builder.search = False


def setup(app):
    app.found = {}
    app.connect('builder-inited', _without_sphinxs_own)
    app.connect('doctree-resolved', _collect)
    app.connect('build-finished', _write)
    return {'parallel_read_safe': True}
