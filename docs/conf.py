"""Sphinx settings of the site; `docs/build.py` runs it."""
import re
import sys
from pathlib import Path
from posixpath import dirname, relpath

from docutils import nodes
from docutils.transforms import Transform
from sphinx.addnodes import pending_xref

sys.path.insert(0, str(Path(__file__).resolve().parent))
import write_pages  # noqa: E402

_settings = write_pages.settings
project = _settings['title']
author = _settings['author']
copyright = _settings['copyright']
version = release = _settings['version']
tasks = [*write_pages.read_needs().values()]
language = 'en'
smartquotes = False   # 'bicubic' in a sentence is a string

extensions = ['myst_nb', 'sphinx_copybutton']
templates_path = [str(write_pages.root/'docs/_templates')]
copybutton_selector = 'div.cell_input pre, details.source pre, div.highlight-sh pre, div.highlight-python:not(.signature *) pre'
nb_code_prompt_show, nb_code_prompt_hide = 'Imports', 'Imports'   # cells with `#| code-fold: true` say 'Drawing code', or `code-summary:`
nb_execution_mode = 'off'
nb_ipywidgets_js = {}   # they would be loaded from a different host
nb_merge_streams = True
nb_render_error_lexer = 'text'   # only the message is stored, not a traceback
suppress_warnings = ['myst.header']   # a heading may be two levels below the one before
nb_render_markdown_format = 'myst'   # with tables
myst_enable_extensions = ['attrs_block', 'attrs_inline']
myst_heading_anchors = 6
myst_heading_slug_func = 'write_pages.slug'

html_theme = 'furo'
html_title = _settings['title']
html_sidebars = {'**': [f'sidebar/{name}.html' for name in ('brand', 'about', 'search', 'scroll-start', 'navigation', 'scroll-end')]}
html_context = {'git_url': _settings['git_url'], 'changes': f"{_settings['git_url']}/blob/{_settings['branch']}/CHANGELOG.md"}
html_static_path = [str(write_pages.root/'docs/_static')]
html_css_files = ['site.css']
html_js_files = ['site.js']
html_favicon = str(write_pages.root/'docs/_static/favicon.svg')
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
pygments_style = 'friendly'
pygments_dark_style = 'github-dark'
_link_colors = ['color-brand-primary', 'color-brand-content', 'color-brand-visited']
html_theme_options = {
    'light_css_variables': dict.fromkeys(_link_colors, '#0b5394'),
    'dark_css_variables': dict.fromkeys(_link_colors, '#8ab4f8') | {'color-code-background': '#1f2329'},
    'navigation_with_keys': True,
}


class NameAnchors(Transform):
    "Use the slug of a heading as its ID, in links and the toc; the slug of a symbol is its exact name."
    default_priority = 265   # after ids are settled (260-262), before anything reads them

    def apply(self):
        for section in self.document.findall(nodes.section):
            if not (name := section.get('slug')): continue
            section['ids'], self.document.ids[name] = [name], section
            line, _, title = self.document.myst_slugs[name]
            self.document.myst_slugs[name] = line, name, title


def finish(app, document):
    "Link the names in backticks, and add alternative text to the pictures that cells show."
    docname = app.env.docname
    for code in list(document.findall(nodes.literal)):
        name = re.fullmatch(r'([A-Za-z_][\w.]*)(\([^()]*\))?', code.astext())
        is_free = 'plain' not in code['classes'] and not isinstance(code.parent, (nodes.title, nodes.reference, nodes.inline, pending_xref))
        if not (is_free and name and (found := write_pages.find(name[1], docname))): continue
        path = '' if found[0] == docname else relpath(f'{found[0]}.html', dirname(docname))
        code.replace_self(nodes.reference('', '', code.deepcopy(), internal=True, refuri=f'{path}#{found[1]}'))
    terms = ', '.join(word for need in tasks if need.page.name == docname for word in need.words.split())
    if terms: document += nodes.meta('', name='keywords', content=terms)   # the search knows them, too
    title = next((o.astext() for o in document.findall(nodes.title)), '')
    for image in document.findall(nodes.image):
        if not image.get('alt'): image['alt'] = f'Picture made by the cell above ({title})'
        image['loading'] = 'lazy'
    if docname == 'loader':   # the search finds the row of each argument
        for p in write_pages.package['loader.create_loader'].parameters:
            app.env.get_domain('std').note_object('confval', p.name, f'create_loader-{p.name}')


def setup(app):
    app.config.html_search_scorer = str(app.srcdir/'search.js')   # written with the pages
    app.connect('doctree-read', finish)
    app.add_transform(NameAnchors)
    return {'parallel_read_safe': True}
