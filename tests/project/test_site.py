"""A smoke test of the documentation site: it builds without a warning, and a real browser finds nothing wrong on any page."""
import functools
import http.server
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browsers import headless_chromium, missing
from notebooks import find_notebooks, page_name

import timmdata

root = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.timeout(1200), pytest.mark.full]   # the first waits for the build and the visit of all pages
PAGES = [page_name(path.relative_to(root/'nbs').as_posix()) for path in find_notebooks()]


@pytest.fixture(scope='session')
def site(tmp_path_factory) -> Path:
    "The folder of the freshly built site; `TIMMDATA_SITE` names one that already exists."
    if built := os.environ.get('TIMMDATA_SITE'): return Path(built).resolve()
    for module in ('sphinx', 'myst_nb', 'furo', 'griffe'):
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
  };
}"""
_folds = "() => [...document.querySelectorAll('details[open]')].map(o => [o.innerText, o.className])"
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
  const keepsLines = o => style(o).whiteSpace === (o.closest('.traceback') ? 'pre-wrap' : 'pre');   // an error message is prose
  return [...document.querySelectorAll('article pre')].filter(o => is_lost(o) || !keepsLines(o))
    .map(o => o.textContent.slice(0, 80)).slice(0, 5);
}"""
# of the background and of the text, 0 to 255
_brightness = r"""() => ['backgroundColor', 'color'].map(name =>
  getComputedStyle(document.body)[name].match(/[\d.]+/g).slice(0, 3).reduce((sum, o) => sum + Number(o), 0) / 3)"""


class Crawl:
    "Every page of a served folder as a browser sees it: `pages` by name, and the errors on the way."
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
            folds = tab.evaluate(_folds)
            self.pages[name] = page = tab.evaluate(_look)
            page.update(folds=folds, clipped=tab.evaluate(_clipped), brightness=tab.evaluate(_brightness))
            tab.set_viewport_size(dict(width=390, height=844))
            page['wide'] = tab.evaluate(_wide)
            page['clipped'] += tab.evaluate(_clipped)
            tab.set_viewport_size(dict(width=1280, height=844))
            for link in page['links']:
                target = self.local(link)
                if target and target[0].endswith('.html') and (folder/target[0]).exists(): todo.append(target[0])
        tab.context.close()

    def tab(self):
        "A new tab, in the dark, that records errors and blocks requests to other hosts."
        context = self.browser.new_context(viewport=dict(width=1280, height=844), color_scheme='dark')
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
        "Images that do not exist, or that have no alternative text."
        return [f'{n}: {i}' for n, p in self.pages.items() for i in p['images'] if not i[1] or not i[2]]

    def bad_links(self):
        "Links to pages, files and anchors that do not exist."
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
        "Elements that make a page scroll sideways on a phone."
        return [f'{name}: {what}' for name, page in self.pages.items() for what in page['wide']]

    def too_bright(self):
        "Pages whose background is not dark, or whose text is not bright."
        return [f"{n}: {p['brightness']}" for n, p in self.pages.items() if p['brightness'][0] > 60 or p['brightness'][1] < 150]

    def clipped(self): return [f'{name}: {text}' for name, page in self.pages.items() for text in page['clipped']]


@pytest.fixture(scope='module')
def browser():
    with headless_chromium() as chromium: yield chromium


@pytest.fixture(scope='module')
def crawl(browser, site):
    "The site, every page visited once."
    crawl = Crawl(browser, site)
    yield crawl
    crawl.server.shutdown()


def test_every_notebook_is_reached(crawl):
    files = {p.relative_to(crawl.folder).as_posix() for p in crawl.folder.rglob('*.html')}
    assert {*PAGES, 'index.html', 'api.html', 'guides/find.html'} <= crawl.pages.keys()
    assert files - crawl.pages.keys() == {'search.html'}, 'not reached by links from the first page'


@pytest.mark.parametrize('look', [Crawl.bad_headings, Crawl.bad_images, Crawl.bad_links, Crawl.leaks, Crawl.wide, Crawl.clipped,
                                  Crawl.too_bright], ids=lambda look: look.__name__)
def test_pages(crawl, look): assert look(crawl) == []


def test_private_code_and_imports_are_folded(crawl):
    folds = [(name, *fold) for name, page in crawl.pages.items() for fold in page['folds']]
    assert not [name for name, text, kind in folds if text.startswith('Source of _') or 'hide' in kind]
    assert folds, 'short public code is part of the story'


def explained(what) -> set[str]:
    "The parameters that the docstring of a function or class explains."
    if not callable(what) or inspect.isclass(what) and issubclass(what, (BaseException, dict)): return set()   # a TypedDict is a dict
    return set(re.findall(r'^ {4}(\w+): ', (inspect.getdoc(what) or '').split('\n**')[0], re.M)) & set(inspect.signature(what).parameters)


def test_definitions_are_documented_where_they_are_made(crawl):
    for page in PAGES:
        name = 'timmdata.' + page.removesuffix('.html').replace('/', '.')
        if name.split('.')[1] == 'guides' or page in ('index.html', 'in_one_page.html'): continue   # no module
        module = importlib.import_module(name)
        made = {name: o for name in module.__all__ if callable(o := getattr(module, name)) and o.__module__ == module.__name__}
        assert {*made, *(f'{name}-{p}' for name, o in made.items() for p in explained(o))} <= set(crawl.pages[page]['ids']), page


def test_the_reference_is_complete(crawl):
    anchors = {anchor for _, anchor in filter(None, map(crawl.local, crawl.pages['api.html']['links']))}
    assert {name for name in vars(timmdata._offered) if not name.startswith('_')} <= anchors
    for info in pkgutil.iter_modules(timmdata.__path__):
        if not info.ispkg: continue
        door = importlib.import_module(f'timmdata.{info.name}')
        offered = [o for name in door.__all__ if inspect.isclass(o := getattr(door, name, None))]
        methods = {f'{o.__name__}.{name}' for o in offered for name, f in vars(o).items()
                   if name[0] != '_' and inspect.isfunction(f) and f.__doc__ and f.__name__ == name}
        assert {*(o.__name__ for o in offered), *methods} <= set(crawl.pages[f'{info.name}/reference.html']['ids']), info.name


def test_the_first_page_begins_with_a_batch_and_its_picture(crawl):
    tab = crawl.tab()
    tab.goto(crawl.base)
    code, picture = (tab.query_selector(f'div.cell.tag_beside {part}') for part in ('div.cell_input', 'div.cell_output img'))
    left, right = code.bounding_box(), picture.bounding_box()
    assert 'create_loader(' in code.text_content() and left['x'] + left['width'] <= right['x'], 'beside each other'
    assert max(box['y'] + box['height'] for box in (left, right)) < 844, 'on the first screen'
    tab.context.close()


def test_links_of_llms_txt_lead_somewhere(crawl):
    urls = re.findall(r'^- \[.+?\]\((.+?)\)', (crawl.folder/'llms.txt').read_text(encoding='utf-8'), re.M)
    assert {*PAGES} - {'index.html'} <= set(urls)
    pages = [url.partition('#') for url in urls]
    assert [page for page, _, anchor in pages if page not in crawl.pages or anchor and anchor not in crawl.pages[page]['ids']] == []


SEARCHES = {   # what people type → the page that must come first
    'slow data loading': 'guides/faster.html', 'resume training': 'guides/train.html',
    'DataLoader worker killed': 'guides/when_something_goes_wrong.html', 'csv labels': 'guides/labels.html',
    'multi label': 'guides/labels.html', '16 bit': 'guides/your_folder.html',
    'class weights': 'samplers/weighted.html', 'gpu utilization low': 'guides/when_something_goes_wrong.html',
    'imbalanced': 'samplers/weighted.html', 'mixup': 'transforms/mixup.html',
    'segmentation masks': 'guides/masks_and_boxes.html', 'num_workers': 'loader.html',
    'resume': 'guides/train.html', 'webdataset': 'readers/webdataset.html',
    'bus error': 'guides/when_something_goes_wrong.html', 'ImageDataset': 'datasets/image_dataset.html',
    'migrate': 'guides/from_timm.html', 'out of memory': 'guides/when_something_goes_wrong.html',
    'bounding boxes': 'guides/masks_and_boxes.html', 'multi gpu': 'guides/several_gpus.html'}


def search(tab, base: str, query: str) -> list[str]:
    "Search in the sidebar of a page below the first one: addresses are from the root."
    tab.goto(f'{base}readers/tar.html')
    tab.fill('.sidebar-search', query)
    tab.press('.sidebar-search', 'Enter')
    tab.wait_for_selector('#search-results p.search-summary:has-text("found")', timeout=20_000)
    return tab.eval_on_selector_all('#search-results li > a', 'all => all.map(o => o.href)')


def test_searches_find_the_right_page_first(crawl):
    tab = crawl.tab()
    found = {query: [crawl.local(link) for link in search(tab, crawl.base, query)] for query in SEARCHES}
    assert {query: links[0][0] for query, links in found.items() if links} == SEARCHES
    assert found['num_workers'][0][1] == 'create_loader-num_workers'   # its row
    tab.context.close()


def test_a_link_into_a_fold_opens_it(crawl):
    tab = crawl.tab()
    for address in ('loader.html#create_loader-num_workers', 'loaders/prefetch.html#PrefetchLoader.state_dict'):
        tab.goto(crawl.base + address)
        target = f'[id="{address.partition("#")[2]}"]'
        assert tab.eval_on_selector(target, 'o => o.closest("details").open')
        tab.wait_for_function(f"document.querySelector('{target}').closest('tr').getBoundingClientRect().top < innerHeight")
    tab.context.close()


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
    found = [crawl.bad_headings(), crawl.bad_images(), crawl.leaks(), crawl.wide(), crawl.clipped(), crawl.too_bright(), crawl.foreign]
    assert [len(o) > 0 for o in found] == [True] * len(found)
    assert len(crawl.bad_links()) == 2
    assert any('undefined_name' in o for o in crawl.errors) and any('gone.png' in o for o in crawl.errors)
    crawl.server.shutdown()
