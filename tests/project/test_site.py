"""The documentation site, built with every warning an error and looked at in a real browser."""
import ast
import functools
import http.server
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import frameworks  # noqa: F401   (chooses the backend of Keras, where that is installed)
import pytest
from browsers import headless_chromium, missing
from notebooks import read_settings

import timmdata

root = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.timeout(300), pytest.mark.full]


def page_of(notebook: Path) -> str:
    "The page that a notebook becomes: its path without the number."
    return notebook.with_name(re.sub(r'^\d+[a-z]?_', '', notebook.stem)).as_posix() + '.html'


def notebooks() -> list[Path]:
    "Every notebook, below nbs."
    found = [p.relative_to(root/'nbs') for p in sorted((root/'nbs').rglob('*.ipynb'))]
    return [p for p in found if not any(o.startswith(('.', '_')) for o in p.parts)]


def public_names() -> list[str]:
    "What the package offers at top level."
    body = ast.parse((root/'timmdata/_offered.py').read_text(encoding='utf-8')).body
    return [alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]


# the site, and a server for it
@pytest.fixture(scope='session')
def site(tmp_path_factory) -> Path:
    "The folder of the freshly built site; `TIMMDATA_SITE` names one that is there already."
    if built := os.environ.get('TIMMDATA_SITE'): return Path(built).resolve()
    for module in ('sphinx', 'myst_nb', 'furo', 'nbdev', 'latex2mathml'):
        try: __import__(module)
        except ImportError: missing(f"the site needs {module}: pip install -c constraints.txt -e '.[dev]'")
    out = tmp_path_factory.mktemp('site')/'html'
    command = [sys.executable, str(root/'docs/build.py'), '--out', str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, f'docs/build.py failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}'
    return out


class Quiet(http.server.SimpleHTTPRequestHandler):
    "A file server without a log."
    def log_message(self, *args): pass


def serve(folder: Path):
    "Serve `folder` on a free local port; returns the server and its address."
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f'http://127.0.0.1:{server.server_port}/'


# what is looked at on each page, at once
_look = r"""async () => {
  for (const o of document.querySelectorAll('details')) o.open = true;
  const images = [...document.images];
  await Promise.all(images.map(o => { o.loading = 'eager'; return o.decode().catch(() => 0); }));
  const prose = document.body.cloneNode(true);
  prose.querySelectorAll('pre, code, script, style, math').forEach(o => o.remove());
  return {
    headings: [...document.querySelectorAll('h1')].map(o => o.textContent.trim()),
    images: images.map(o => [o.src.slice(0, 200), o.naturalWidth, o.alt || o.closest('figure')?.querySelector('figcaption')?.textContent]),
    // a link in a drawing has no href of its own kind
    links: [...document.querySelectorAll('a[href]')].map(o => new URL(o.getAttribute('href'), document.baseURI).href),
    ids: [...document.querySelectorAll('[id]')].map(o => o.id),
    text: document.body.textContent, prose: prose.textContent,
    sections: [...document.querySelectorAll('article section')].map(o => o.id),
    sidebar: [...document.querySelectorAll('.sidebar-tree a')].map(o => o.href),
    rows: [...document.querySelectorAll('table.api tbody tr')].map(o => [...o.cells].map(o => o.textContent.trim())),
    call: (() => {   // the first part of the page that its call is in
      const call = document.querySelector('article .call');
      return call ? call.closest('section').id : '';
    })(),
    groups: [...document.querySelectorAll('table.docments .group')].map(o => o.textContent),
  };
}"""
_wide = r"""() => {
  for (const o of document.querySelectorAll('details')) o.open = true;
  const width = document.documentElement.clientWidth, found = [];
  const whole = document.documentElement.scrollWidth;
  if (whole > width) found.push(`the page is ${whole} px wide`);
  const main = document.querySelector('article') || document.body;   // what is around it must not scroll either
  const scrolls = o => { for (; o && o !== main; o = o.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(o).overflowX)) return true; return false; };
  for (const o of main.querySelectorAll('*')) {
    const r = o.getBoundingClientRect();
    if (r.width && r.right > width + 1 && !scrolls(o))
      found.push(`<${o.localName} class="${o.className}"> ends at ${Math.round(r.right)} px`);
  }
  return found.slice(0, 5);
}"""

_clipped = r"""() => {
  for (const o of document.querySelectorAll('details')) o.open = true;
  const style = o => getComputedStyle(o), is_lost = o => o.scrollWidth > o.clientWidth + 1 && !/auto|scroll/.test(style(o).overflowX);
  return [...document.querySelectorAll('article pre')].filter(o => is_lost(o) || style(o).whiteSpace !== 'pre')
    .map(o => o.textContent.slice(0, 80)).slice(0, 5);
}"""
_position = r"""() => {
  const here = document.querySelector('.sidebar-tree .current-page > a'), frame = document.querySelector('.sidebar-scroll');
  if (!here) return 'no page is marked';
  const at = here.getBoundingClientRect(), seen = frame.getBoundingClientRect();
  return at.top < seen.top || at.bottom > Math.min(seen.bottom, innerHeight) ? `at ${at.top}` : '';
}"""
_folds = "() => [...document.querySelectorAll('details')].map(o => [o.open, o.innerText, o.className])"
_told_twice = r"""() => [...document.querySelectorAll('details.source[open]')].map(o => o.closest('section')).filter(
  o => o.querySelector(':scope > .signature') || [...o.querySelectorAll(':scope > table.docments')].length).map(o => o.id)"""
_buttons = "() => [document.querySelectorAll('div.cell_input pre').length, document.querySelectorAll('button.copybtn').length]"

_colors = "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"


class Crawl:
    "Every page of a served folder as a browser sees it: `pages` by name, and what went wrong on the way."
    def __init__(self, browser, folder: Path):
        self.browser, self.folder = browser, folder
        self.server, self.base = serve(folder)
        self.pages, self.errors, self.foreign = {}, [], []
        tab = self.tab()
        todo = ['index.html']
        while todo:
            name = todo.pop(0)
            if name in self.pages: continue
            tab.goto(self.base + name, wait_until='load')
            position, folds, buttons = tab.evaluate(_position), tab.evaluate(_folds), tab.evaluate(_buttons)
            told_twice = tab.evaluate(_told_twice)
            self.pages[name] = page = tab.evaluate(_look)
            page.update(position=position, folds=folds, buttons=buttons, told_twice=told_twice, clipped=tab.evaluate(_clipped))
            for scheme in ('dark', 'light'):
                tab.emulate_media(color_scheme=scheme)
                page[scheme] = tab.evaluate(_colors)
            tab.set_viewport_size(dict(width=390, height=844))
            page['wide'] = tab.evaluate(_wide)
            page['clipped'] += tab.evaluate(_clipped)
            tab.set_viewport_size(dict(width=1280, height=844))
            for link in page['links']:
                target = self.local(link)
                if target and target[0].endswith('.html') and (folder/target[0]).exists(): todo.append(target[0])
        tab.context.close()

    def tab(self):
        "A new tab that notes errors, and lets nothing out to another host."
        context = self.browser.new_context(viewport=dict(width=1280, height=844), color_scheme='light')
        tab = context.new_page()

        def route(route, request):
            if request.url.startswith((self.base, 'data:', 'blob:')): return route.continue_()
            self.foreign.append(f'{tab.url}: {request.url}')
            route.abort()

        context.route('**/*', route)
        tab.on('console', lambda o: self.errors.append(f'{tab.url}: {o.text}') if o.type == 'error' else None)
        tab.on('pageerror', lambda o: self.errors.append(f'{tab.url}: {o}'))
        tab.on('requestfailed', lambda o: self.errors.append(f'{tab.url}: {o.url} {o.failure}')
               if 'ERR_ABORTED' not in (o.failure or '') else None)   # aborted: the tab went on to the next page
        tab.on('response', lambda o: self.errors.append(f'{tab.url}: {o.url} gave {o.status}')
               if o.status >= 400 else None)
        return tab

    def local(self, link: str) -> tuple[str, str] | None:
        "(page, anchor) of a link inside the site."
        if not link.startswith(self.base): return None
        parts = urlsplit(link)
        return unquote(parts.path).lstrip('/') or 'index.html', unquote(parts.fragment)

    # each of these returns the problems it finds
    def bad_headings(self):
        "Pages without exactly one title."
        return [f"{n}: {p['headings']}" for n, p in self.pages.items() if len(list(filter(None, p['headings']))) != 1]

    def bad_images(self):
        "Images that are not there, or that have no text."
        return [f'{n}: {i}' for n, p in self.pages.items() for i in p['images'] if not i[1] or not i[2]]

    def bad_links(self):
        "Links to pages, files and anchors that are not there."
        found = []
        for name, page in self.pages.items():
            for path, anchor in filter(None, map(self.local, page['links'])):
                if not (self.folder/path).is_file(): found.append(f'{name}: {path} is not there')
                elif anchor and path in self.pages and anchor not in self.pages[path]['ids']:
                    found.append(f'{name}: {path} has no #{anchor}')
        return found

    def leaks(self):
        "Source of the page builder that a reader sees."
        found = []
        for name, page in self.pages.items():
            found += [f'{name}: {o}' for o in re.findall(r'.*(?:#\||:::|show_doc\(|!\[|AUTOGENERATED).*', page['text'])]
            found += [f'{name}: {o}' for o in re.findall(r'.*(?:\]\(|```|\{\.\w|\$\$|\|---).*', page['prose'])]
        return found

    def wide(self):
        "What makes a page scroll sideways on a phone."
        return [f'{name}: {what}' for name, page in self.pages.items() for what in page['wide']]

    def brightness(self, scheme: str) -> dict[str, tuple[float, float]]:
        "(background, text) of each page, 0 to 255."
        return {name: tuple(sum(map(float, re.findall(r'[\d.]+', color)[:3])) / 3 for color in page[scheme])
                for name, page in self.pages.items()}

    def too_bright(self): return [f'{n}: {b}' for n, b in self.brightness('dark').items() if b[0] > 60 or b[1] < 150]

    def search(self, *queries: str) -> list[list[dict]]:
        "For each query, what the site's own search finds: address, page, anchor, title and the text below it."
        tab, found = self.tab(), []
        tab.goto(f'{self.base}search.html?q={quote(queries[0])}')
        tab.wait_for_selector('.search-count', timeout=20_000)
        for query in queries:
            tab.evaluate('query => show(query)', query)   # what a visit of the page does, without a visit for each
            results = tab.eval_on_selector_all('#search-results li', """all => all.map(o => ({
                url: o.querySelector('a').href, title: o.querySelector('a').textContent, text: o.querySelector('p').textContent,
                marked: [...o.querySelectorAll('mark')].map(o => o.textContent)}))""")
            for result in results: result['page'], result['anchor'] = self.local(result['url'])
            found.append(results)
        tab.context.close()
        return found


@pytest.fixture(scope='module')
def browser():
    with headless_chromium() as chromium: yield chromium


@pytest.fixture(scope='module')
def crawl(browser, site):
    "The site, every page visited once."
    crawl = Crawl(browser, site)
    yield crawl
    crawl.server.shutdown()


def test_builds_without_a_warning(site): assert (site/'_static/search-records.js').exists()


def test_every_notebook_is_reached(crawl):
    files = {p.relative_to(crawl.folder).as_posix() for p in crawl.folder.rglob('*.html')}
    assert {page_of(p) for p in notebooks()} | {'index.html', 'api.html'} <= files
    lines = (root/'docs/moved.txt').read_text(encoding='utf-8').splitlines()
    moved = {f'{line.split(" | ")[0]}.html' for line in lines if line[0] != '#'}
    assert files - crawl.pages.keys() == {'search.html', *moved}, 'not reached by links from the first page'


def test_headings(crawl): assert not crawl.bad_headings()
def test_images(crawl): assert not crawl.bad_images()
def test_links(crawl): assert not crawl.bad_links()
def test_no_leaks(crawl): assert not crawl.leaks()
def test_phone_width(crawl): assert not crawl.wide()


def test_code_is_not_cut_off_and_keeps_its_lines(crawl):
    assert not [f'{name}: {text}' for name, page in crawl.pages.items() for text in page['clipped']]


def test_the_sidebar_shows_where_you_are(crawl):
    left_out = re.search(r'^unlisted: (.+)', (root/'docs/toc.txt').read_text(encoding='utf-8'), re.M)[1].split()
    without = {'index.html', 'search.html', *(f'{name}.html' for name in left_out)}
    assert not {name: page['position'] for name, page in crawl.pages.items() if page['position'] and name not in without}


def test_private_code_and_imports_are_folded(crawl):
    folds = [(name, *fold) for name, page in crawl.pages.items() for fold in page['folds']]
    assert not [name for name, is_open, text, kind in folds if is_open and (text.startswith('Source of _') or 'hide' in kind)]
    assert any(is_open for _, is_open, *_ in folds), 'public code is part of the story'


def test_code_can_be_copied(crawl):
    assert not {name: page['buttons'] for name, page in crawl.pages.items() if page['buttons'][1] < page['buttons'][0]}


def offered_names(package: str) -> list[str]:
    "What a package's front door offers; where that is a module, what the module offers."
    names = importlib.import_module(package).__all__
    modules = {info.name for info in pkgutil.iter_modules(importlib.import_module(package).__path__)}
    return [n for name in names for n in (offered_in(f'{package}.{name}') if name in modules else [name])]


def offered_in(module: str) -> list[str]:
    members = importlib.import_module(module)
    return [name for name in members.__all__ if callable(getattr(members, name))]


def test_api_lists_every_public_name(crawl):
    anchors = {a for p, a in filter(None, map(crawl.local, crawl.pages['api.html']['links'])) if a}
    offered = {n for info in pkgutil.iter_modules(timmdata.__path__) if info.ispkg for n in offered_names(f'timmdata.{info.name}')}
    assert not {n for n in {*public_names(), *offered} if not n.startswith('__')} - anchors


def public_methods() -> dict[str, set[str]]:
    "The public classes of every module, and their public methods and properties, inherited ones too."
    found = {}
    for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'):
        module = importlib.import_module(info.name)
        for name in getattr(module, '__all__', []):
            cls = getattr(module, name, None)   # None: a module
            if not inspect.isclass(cls) or cls.__module__ != module.__name__: continue
            if getattr(cls, '_is_protocol', False): continue
            of_package = [c for c in cls.__mro__ if c.__module__.startswith('timmdata')]
            found[cls.__name__] = {n for c in of_package for n, value in vars(c).items()
                           if not n.startswith('_') and not getattr(value, '__name__', n).startswith('_')   # `_refuse` under three names
                           and (inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod)))}
    return found


def test_tables_list_every_public_method(crawl):
    ids = {o for page in crawl.pages.values() for o in page['ids']}
    assert {'state_dict', 'load_state_dict', 'set_epoch', 'replay', 'ack', 'close'} <= public_methods()['PrefetchLoader']
    assert not [f'{name}.{method}' for name, methods in public_methods().items() for method in sorted(methods)
                if f'{name}.{method}' not in ids]


def test_every_page_links_to_its_notebook(crawl):
    for notebook in notebooks():
        links = crawl.pages[page_of(notebook)]['links']
        ends = [o for o in links if o.endswith(f'/nbs/{notebook.as_posix()}')]
        assert [o for o in ends if o.startswith('https://github.com/')], notebook
        in_colab = [o for o in ends if o.startswith('https://colab.research.google.com/')]
        branch = read_settings()['colab_branch']   # empty until the copies that install the library are there
        assert bool(in_colab) == bool(branch) and all(f'/blob/{branch}/' in o for o in in_colab), notebook


def test_dark_mode(crawl):
    assert not crawl.too_bright()
    assert all(b[0] > 200 and b[1] < 100 for b in crawl.brightness('light').values())


def test_theme_button(crawl):
    tab = crawl.tab()
    tab.goto(crawl.base)
    before = tab.get_attribute('body', 'data-theme')
    tab.click('.content-icon-container .theme-toggle, .theme-toggle:visible >> nth=0')
    assert tab.get_attribute('body', 'data-theme') != before
    tab.context.close()


# what people type → where it leads: the first result, or one of the first three where the list begins with …
SEARCHES = {
    'num_workers': 'loader.html#create_loader-num_workers', 'seed': 'loader.html#create_loader-seed',
    'shuffle': 'loader.html#create_loader-shuffle', 'cache': 'loader.html#create_loader-cache',
    'batch size': 'loader.html#create_loader-batch_size', 'pin_memory': 'loader.html#create_loader-pin_memory',
    'ImageDataset': 'datasets/image_dataset.html#ImageDataset', 'create_loader': 'loader.html#create_loader',
    'PrefetchLoader': 'loaders/prefetch.html#PrefetchLoader', 'state_dict': 'loaders/prefetch.html#PrefetchLoader.state_dict',
    'mixup': 'loader.html#create_loader-mixup … transforms/mixup.html#Mixup',
    'resume': 'guides/train.html#stop-and-resume … guides/several_gpus.html#resume',
    'Quickstart': 'index.html', 'DataLoader hangs': 'guides/when_something_goes_wrong.html', 'multi label csv': 'guides/labels.html',
    'slow dataloader': 'guides/faster.html', 'grayscale images': 'guides/your_folder.html#grayscale-images',
    'near duplicates': 'inspection/inspection.html',
    'labels': 'guides/labels.html', 'GPU waits': 'guides/faster.html', 'waits': 'guides/faster.html',
    'FileNotFoundError': 'guides/when_something_goes_wrong.html#file-not-found', 'class weights': 'samplers/weighted.html',
    'recipes': 'guides/recipes.html',
    'corrupt': 'guides/your_folder.html#corrupt-and-truncated-files', 'DDP': 'guides/several_gpus.html',
    'multi GPU': 'guides/several_gpus.html', 'multi-gpu': 'guides/several_gpus.html',
    'out of memory': 'guides/when_something_goes_wrong.html#out-of-memory', 'slow': 'guides/faster.html', 'csv': 'guides/labels.html',
    'Docker shm': 'guides/when_something_goes_wrong.html#bus-error-docker-devshm',
    'bus error': 'guides/when_something_goes_wrong.html#bus-error-docker-devshm',
    'worker': 'workers/autotune.html', 'crash': 'guides/when_something_goes_wrong.html#out-of-memory',
    'reproducible': 'guides/when_something_goes_wrong.html#results-differ-between-runs-seed-and-determinism',
    'doctor': 'cli.html#doctor … guides/faster.html', 'sliders': 'look/widgets.html',
    'bucket': 'samplers/batch_schedule.html', 'streaming': 'readers/webdataset.html', 'webdataset': 'readers/webdataset.html',
    'huggingface': 'readers/huggingface.html … integrations/huggingface.html', 'lightning': 'integrations/lightning.html',
    'albumentations': 'guides/own_transforms.html', 'imbalanced classes': 'samplers/weighted.html',
    'how do I load a folder': 'guides/your_folder.html', 'windows': 'guides/when_something_goes_wrong.html#spawn-windows',
    'imagenet': 'guides/recipes.html', 'validation accuracy': 'guides/several_gpus.html#exact-evaluation',
}


def test_search_leads_to_what_people_type(crawl):
    wrong = {}
    for query, results in zip(SEARCHES, crawl.search(*SEARCHES)):
        first, *others = SEARCHES[query].split(' … ')
        urls = [result['url'].removeprefix(crawl.base) for result in results]
        if not urls or not urls[0].startswith(first) or not set(others) <= set(urls[:3]): wrong[query] = urls[:4]
    assert not wrong


def test_search_shows_the_words_and_leads_to_what_is_there(crawl):
    for query, results in zip(SEARCHES, crawl.search(*SEARCHES)):
        assert all(result['text'].strip() for result in results)
        assert any(result['marked'] for result in results[:2]), query
        gone = [o['url'] for o in results if o['anchor'] and o['anchor'] not in crawl.pages[o['page']]['ids']]
        assert not gone, query


def test_search_finds_every_public_name_at_its_definition_and_every_setting(crawl):
    names = [name for name in public_names() if not name.startswith('__')]
    assert not [name for name, (first, *_) in zip(names, crawl.search(*names)) if first['anchor'] != name]
    words = list(inspect.signature(timmdata.create_loader).parameters)
    assert not [word for word, (first, *_) in zip(words, crawl.search(*words)) if first['anchor'] != f'create_loader-{word}']


def test_search_shows_words_and_no_html(crawl):
    tab = crawl.tab()
    tab.goto(f'{crawl.base}search.html?q=seed')
    tab.wait_for_selector('.search-count')
    markup = r'/<\/?(a|b|br|code|details|div|em|p|span|summary)[ >]|\]\(/'
    assert not tab.evaluate(f'searchRecords.filter(o => {markup}.test(o.title + o.text)).map(o => o.url)')
    tab.context.close()


def test_results_come_while_somebody_types(crawl):
    tab = crawl.tab()
    tab.goto(f'{crawl.base}search.html')
    tab.type('.search-form input', 'num_workers')
    tab.wait_for_selector('#search-results li:nth-child(1) a[href$="loader.html#create_loader-num_workers"]')
    tab.goto(f'{crawl.base}readers/tar.html')   # a page below: addresses are from the root
    tab.type('.sidebar-search', 'resume')
    tab.wait_for_selector('.search-suggestions')
    assert not tab.is_visible('.sidebar-tree')
    tab.click('.search-suggestions a >> nth=0')
    assert crawl.local(tab.url) == ('guides/train.html', 'stop-and-resume')
    tab.type('.sidebar-search', 'q')
    tab.fill('.sidebar-search', '')
    tab.wait_for_selector('.sidebar-tree', state='visible')
    assert not tab.query_selector('.search-suggestions')
    tab.context.close()


def test_search_without_a_result_says_where_else_to_look(crawl):
    tab = crawl.tab()
    tab.goto(f'{crawl.base}search.html?q=zzqqxxnothing%3Cb%3E')
    assert 'did not match' in tab.text_content('#search-results')
    assert tab.eval_on_selector_all('#search-results a', 'all => all.map(o => o.getAttribute("href"))') == ['find.html', 'api.html']
    tab.fill('form.search-form input', 'num_workers')
    tab.press('form.search-form input', 'Enter')
    tab.wait_for_selector('#search-results li')
    tab.context.close()


# what is found without a search
def test_the_index_by_need_is_first_and_its_links_live(crawl):
    needs = [line.split('|') for line in (root/'docs/needs.txt').read_text(encoding='utf-8').splitlines()
             if '|' in line and not line.startswith('#')]
    links = {crawl.local(link) for link in crawl.pages['find.html']['links']}
    assert len(needs) > 40
    for sentence, target, _ in needs:
        page, _, anchor = target.strip().partition('#')
        assert (f'{page}.html', anchor) in links, sentence
        assert not anchor or anchor in crawl.pages[f'{page}.html']['ids'], sentence
    order = [crawl.local(link)[0] for link in crawl.pages['index.html']['sidebar']]
    assert order[0] == 'find.html' and order[1].startswith('guides/')
    guides, loader, core = (order.index(name) for name in ('guides/from_timm.html', 'loader.html', 'core/index.html'))
    assert guides < loader < core


def test_packages_have_a_page_with_a_sentence_for_each_module(crawl):
    for folder in {path.parent for path in notebooks()} - {Path('.'), Path('guides')}:
        page = crawl.pages[f'{folder}/index.html']
        links = {crawl.local(link)[0] for link in page['links'] if crawl.local(link)}
        assert {page_of(path) for path in notebooks() if path.parent == folder} <= links
        assert page['rows'] and all(len(row[1]) > 10 for row in page['rows']), folder


def test_llms_txt(crawl):
    "The form of https://llmstxt.org: a title, a summary, then sections of links with a sentence each."
    text = (crawl.folder/'llms.txt').read_text(encoding='utf-8')
    assert re.match(r'# timmdata\n\n> .+\n\n', text)
    rows = re.findall(r'^- \[(.+?)\]\((.+?)\)(?:: (.+))?$', text, re.M)
    listed = {url for _, url, _ in rows}
    assert {page_of(path) for path in notebooks()} - {'index.html'} <= listed
    sections = re.findall(r'^## (.+)', text, re.M)
    assert sections[:2] == ['Guides', 'The loader and its tools'] and 'readers: read samples from files, archives and streams' in sections
    assert sections[-1] == 'Optional'
    said = {url for _, url, sentence in rows if len(sentence) > 10}
    assert all(page_of(path) in said for path in notebooks() if path.name != 'index.ipynb')
    for url in listed:
        page, _, anchor = url.partition('#')
        assert page in crawl.pages and (not anchor or anchor in crawl.pages[page]['ids']), url


def test_the_sidebar_names_each_page_once_and_leaves_out_what_nobody_looks_for(crawl):
    tab = crawl.tab()
    tab.goto(crawl.base)
    names = tab.eval_on_selector_all('.sidebar-tree a', 'all => all.map(o => o.textContent.trim())')
    assert not {name for name in names if names.count(name) > 1} - {'Reference'}   # each package has one
    assert 'Recipes' in names and not {'Call', 'Not offered'} & set(names)
    tab.context.close()


# the first page
def test_the_first_page_begins_with_a_batch_and_its_picture(crawl):
    tab = crawl.tab()
    tab.goto(crawl.base)
    code, picture = (tab.query_selector(f'div.cell.tag_beside {part}') for part in ('div.cell_input', 'div.cell_output img'))
    lines = [line for line in code.query_selector('pre').text_content().splitlines() if line.strip()]
    assert len(lines) <= 9 and 'from timmdata import' in lines[0] and 'create_loader(' in code.text_content()
    left, right = code.bounding_box(), picture.bounding_box()
    assert left['x'] + left['width'] <= right['x'], 'beside each other'
    assert max(box['y'] + box['height'] for box in (left, right)) < 844, 'on the first screen'
    assert tab.eval_on_selector('div.cell.tag_beside pre', 'o => o.scrollWidth <= o.clientWidth + 1'), 'no line is too long'
    parts = tab.eval_on_selector_all('article h2', 'all => all.map(o => o.closest("section").id)')
    assert parts[:2] == ['install', 'why']
    chart, table = (tab.query_selector(f'#why div.cell.tag_beside {part}').bounding_box() for part in ('img', 'table'))
    assert chart['x'] + chart['width'] <= table['x']
    links = tab.eval_on_selector_all('article .page-links a', 'all => all.map(o => [o.textContent, o.href])')
    assert ['GitHub', read_settings()['git_url']] in links and f"Version {read_settings()['version']}" in dict(links)
    assert tab.is_visible('.sidebar-about a >> nth=0')   # on every page
    tab.context.close()


def test_the_outline_of_a_page_is_beside_its_text(crawl):
    tab = crawl.tab()
    tab.goto(f'{crawl.base}guides/your_folder.html')
    outline, text = tab.query_selector('.toc-drawer').bounding_box(), tab.query_selector('article').bounding_box()
    assert text['x'] + text['width'] <= outline['x'] and outline['x'] + outline['width'] <= 1280
    tab.context.close()


def test_the_first_page_can_be_read_on_a_phone(crawl):
    tab = crawl.tab()
    tab.set_viewport_size(dict(width=390, height=844))
    tab.goto(crawl.base)
    assert [o.is_visible() for o in tab.query_selector_all('.drawing')] == [False, True]
    box = tab.query_selector('.drawing.tall svg').bounding_box()
    assert box['x'] >= 0 and box['x'] + box['width'] <= 390
    letters = tab.eval_on_selector_all(
        '.drawing.tall text', 'all => all.map(o => o.getBoundingClientRect()).map(o => [o.left, o.right, o.height])')
    assert all(left >= box['x'] and right <= box['x'] + box['width'] and height >= 12 for left, right, height in letters)
    chart = tab.eval_on_selector('#why img', 'o => o.loading = "eager" && o.decode().then(() => o.clientWidth / o.naturalWidth)')
    assert chart > 0.75   # letters of 10 pt at 100 dpi have 10 pixels at least
    tab.context.close()


# pages are lessons; what is complete is on the reference page of a package
def test_pages_open_with_a_call_and_a_line_of_names(crawl):
    for name in ('loader.html', 'look/pictures.html', 'recipes.html', 'datasets/image_dataset.html',
                  'datasets/relabel.html', 'readers/table.html',
                 'transforms/factory.html', 'transforms/mixup.html', 'samplers/epoch.html', 'loaders/prefetch.html', 'buffer/buffer.html',
                 'inspection/inspection.html'):
        page = crawl.pages[name]
        assert page['call'] == page['sections'][0], name   # before the first part
    tab = crawl.tab()
    for name in ('loader.html', 'transforms/policy.html'):
        tab.goto(crawl.base + name)
        names = tab.eval_on_selector_all('article section > p.names a', 'all => all.map(o => o.hash.slice(1))')
        assert names and set(names) <= set(crawl.pages[name]['sections'])
        assert tab.query_selector('p.names').bounding_box()['y'] < 844, 'on the first screen'
    tab.context.close()


def test_definitions_are_documented_where_they_are_made(crawl):
    for notebook in notebooks():
        page, module = crawl.pages[page_of(notebook)], module_of(notebook)
        if module is None: continue
        found = {name: getattr(importlib.import_module(module), name) for name in offered_in(module)}
        made = [name for name, o in found.items() if (o.__module__, getattr(o, '__name__', '')) == (module, name)]   # no aliases
        assert set(made) <= set(page['sections']), notebook
        parameters = {f'{name}-{word}' for name in made for word in documented(found[name])}
        assert parameters <= set(page['ids']), notebook
    assert crawl.pages['loader.html']['groups'][:2] == ['Data', 'Order'] and 'Workers' in crawl.pages['loader.html']['groups']


def test_nothing_is_told_twice_where_code_is_open(crawl):
    assert not {name: page['told_twice'] for name, page in crawl.pages.items() if page['told_twice']}


def module_of(notebook: Path) -> str | None:
    "The module that a notebook exports."
    name = 'timmdata.' + page_of(notebook).removesuffix('.html').replace('/', '.')
    return name if importlib.util.find_spec(name.rpartition('.')[0]) and importlib.util.find_spec(name) else None


def documented(definition) -> set[str]:
    "The parameters that the docstring of a function or class explains, but for those that it takes for another function."
    if inspect.isclass(definition) and issubclass(definition, BaseException): return set()   # has no signature
    text = (inspect.getdoc(definition) or '').split('\n**')[0]
    return set(re.findall(r'^ {4}\*{0,2}(\w+): ', text, re.M)) & set(inspect.signature(definition).parameters)


def test_each_package_has_a_complete_reference(crawl):
    methods = public_methods()
    for info in pkgutil.iter_modules(timmdata.__path__):
        if not info.ispkg: continue
        ids = set(crawl.pages[f'{info.name}/reference.html']['ids'])
        names = offered_names(f'timmdata.{info.name}')
        assert set(names) <= ids
        assert {f'{name}.{method}' for name in names for method in methods.get(name, ())} <= ids
    ids = set(crawl.pages['reference.html']['ids'])
    assert {f'create_loader-{word}' for word in inspect.signature(timmdata.create_loader).parameters} <= ids


def test_the_api_index_is_in_groups(crawl):
    tab = crawl.tab()
    tab.goto(f'{crawl.base}api.html')
    groups = tab.eval_on_selector_all(
        '#import-timmdata > details',
        'all => all.map(o => [...o.querySelectorAll("tr")].map(o => [...o.cells].map(o => o.textContent.trim())))')
    names = [row[0] for rows in groups for row in rows if row[0] != 'Name']
    assert names[0] == 'create_loader' and sorted(names) == sorted(name for name in public_names() if not name.startswith('__'))
    assert all(name.isupper() for name in names[-10:]) and not any(name.isupper() for name in names[:-10])
    assert all(row[1] for rows in groups for row in rows if row[0] != 'Name'), 'a line of meaning each'
    tab.context.close()


def test_the_api_index_is_short_on_a_phone(crawl):
    tab = crawl.tab()
    tab.set_viewport_size(dict(width=390, height=844))
    tab.goto(f'{crawl.base}api.html')
    assert tab.evaluate('document.documentElement.scrollHeight') <= 4 * 844
    tab.context.close()


def test_a_link_into_a_fold_opens_it(crawl):
    tab = crawl.tab()
    for address in ('loader.html#create_loader-num_workers', 'loaders/prefetch.html#PrefetchLoader.state_dict'):
        tab.goto(crawl.base + address)
        target = f'[id="{address.partition("#")[2]}"]'
        assert tab.eval_on_selector(target, 'o => o.closest("details").open')
        tab.wait_for_function(f"document.querySelector('{target}').closest('tr').getBoundingClientRect().top < innerHeight")
    tab.context.close()


def test_an_old_address_leads_to_the_page_of_today(site, browser):
    page = browser.new_page()
    page.goto(f'{(site/"profile.html").as_uri()}#doctor')
    page.wait_for_url('**/measure/diagnosis.html#doctor')
    page.close()


def test_no_errors(crawl): assert not crawl.errors   # these two come last: they hold for all that happened above
def test_no_other_host(crawl): assert not crawl.foreign


def test_the_checks_can_fail(browser, tmp_path):
    (tmp_path/'index.html').write_text("""<!doctype html><title>x</title><link rel="icon" href="data:,">
        <p>#| export</p><p>{.note} ```</p><img src="gone.png" alt="x"><a href="#gone">a</a><a href="gone.html">b</a>
        <main style="overflow-x: auto"><article><div style="width: 900px">wide</div>
        <pre style="width: 90px; overflow: hidden">a long line of code that is cut off</pre></article></main>
        <script src="http://elsewhere.invalid/x.js"></script>
        <script>undefined_name()</script>""")
    crawl = Crawl(browser, tmp_path)
    found = [crawl.bad_headings(), crawl.bad_images(), crawl.leaks(), crawl.wide(), crawl.too_bright(), crawl.foreign]
    assert [len(o) > 0 for o in found] == [True] * len(found)
    assert len(crawl.bad_links()) == 2
    page = crawl.pages['index.html']
    assert page['position'] == 'no page is marked' and page['clipped']
    assert any('undefined_name' in o for o in crawl.errors) and any('gone.png' in o for o in crawl.errors)
    crawl.server.shutdown()
