"""Sphinx settings of the site; `docs/build.py` runs it."""
import sys
from pathlib import Path

from docutils import nodes
from docutils.transforms import Transform

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prep  # noqa: E402

_settings = prep.settings()
project = _settings['title']
author = _settings['author']
copyright = _settings['copyright']
version = release = _settings['version']
language = 'en'
smartquotes = False   # 'bicubic' in a sentence is a string

extensions = ['myst_nb', 'sphinx_copybutton']
templates_path = [str(prep.root/'docs/_templates')]
copybutton_selector = 'div.cell_input pre, details.source pre, div.highlight-sh pre, div.highlight-python:not(.signature *) pre'
nb_code_prompt_show, nb_code_prompt_hide = 'Imports', 'Imports'   # cells with `#| code-fold: true` say 'Drawing code'
nb_execution_mode = 'off'
nb_ipywidgets_js = {}   # they would come from another host
nb_merge_streams = True
nb_render_markdown_format = 'myst'   # with tables
myst_enable_extensions = ['dollarmath', 'attrs_block', 'attrs_inline']
myst_dmath_double_inline = True
myst_dmath_allow_space = False   # two prices in a sentence are no formula
myst_dmath_allow_digits = False
myst_heading_anchors = 6
myst_heading_slug_func = 'prep.slug'
html_math_renderer = 'mathml'

html_theme = 'furo'
html_title = _settings['title']
html_sidebars = {'**': [f'sidebar/{name}.html' for name in ('brand', 'about', 'search', 'scroll-start', 'navigation', 'scroll-end')]}
html_context = {'git_url': _settings['git_url'], 'changes': f"{_settings['git_url']}/blob/{_settings['branch']}/CHANGELOG.md"}
html_static_path = [str(prep.root/'docs/_static')]
html_css_files = ['site.css']
html_js_files = ['site.js']
html_favicon = str(prep.root/'docs/_static/favicon.svg')
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
    "Make the slug of a heading, which for a symbol is its exact name, its first id: the one in links and the toc."
    default_priority = 265   # after ids are settled (260-262), before anything reads them

    def apply(self):
        slugs = getattr(self.document, 'myst_slugs', {})
        for section in self.document.findall(nodes.section):
            name = section.get('slug')
            if not name: continue
            other = self.document.ids.get(name, section)   # such as the title `Explore` on the page of `explore`
            if other is not section and other.get('slug') in (None, name): continue
            if other is not section: other['ids'].remove(name)
            section['ids'] = [name, *(o for o in section['ids'] if o != name)]
            self.document.ids[name] = section
            if name in slugs: slugs[name] = (slugs[name][0], name, slugs[name][2])


class ImageTexts(Transform):
    "Give the pictures that cells show a text for those who cannot see them, and let the browser load them late."
    default_priority = 870

    def apply(self):
        title = next((o.astext() for o in self.document.findall(nodes.title)), '')
        for image in self.document.findall(nodes.image):
            if not image.get('alt'): image['alt'] = f'Picture made by the cell above ({title})'
            image['loading'] = 'lazy'


def _mathml(display):
    def visit(self, node):
        from latex2mathml.converter import convert
        tag = 'div' if display == 'block' else 'span'
        self.body.append(f'<{tag} class="math">{convert(node.astext(), display=display)}</{tag}>')
        raise nodes.SkipNode
    return visit


def name_arguments(app, _):
    "Let the search lead from each argument of `create_loader` to its row."
    if app.env.docname != 'loader': return
    for p in prep.package().find('create_loader', 'loader').params:
        if not p.marker: app.env.get_domain('std').note_object('confval', p.short, f'create_loader-{p.short}')


def setup(app):
    app.connect('doctree-read', name_arguments)
    app.add_transform(NameAnchors)
    app.add_transform(ImageTexts)
    app.add_html_math_renderer('mathml', (_mathml('inline'), None), (_mathml('block'), None))
    return {'parallel_read_safe': True}
