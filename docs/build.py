"""Build the documentation site: python docs/build.py [--out _site]"""
import argparse
import os
import shutil
import sys
from pathlib import Path

docs = Path(__file__).resolve().parent
root = docs.parent


def process() -> Path:
    "Run nbdev's processors over all notebooks, without Quarto and without executing a cell."
    os.environ.pop('IN_TEST', None)
    import nbdev.serve
    import prep
    nbdev.serve.FilterDefaults = prep.Filter
    return Path(nbdev.serve.proc_nbs(force=True, n_workers=0))


def write_redirects(out: Path):
    "Lead from the address that a page had before to the one that it has now, the anchor as well."
    for line in (docs/'moved.txt').read_text(encoding='utf-8').splitlines():
        if line.startswith('#'): continue
        old, new = (part.strip() for part in line.split('|'))
        if not (out/f'{new}.html').exists(): raise SystemExit(f'docs/moved.txt: there is no page {new}')
        page, url = out/f'{old}.html', '../' * old.count('/') + f'{new}.html'
        if page.exists(): raise SystemExit(f'docs/moved.txt: there is a page {old}')
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"""<!doctype html><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="1; url={url}">
<script>location.replace("{url}" + location.hash)</script><a href="{url}">This page has moved.</a>
""", encoding='utf-8')


def build(out: Path, work: Path) -> int:
    "Make the site in `out`; any Sphinx warning is an error. `work` is the folder that nbdev fills."
    import prep
    from sphinx.cmd.build import build_main
    if out.exists():
        if any(out.iterdir()) and not (out/'_static/site.css').exists():
            raise SystemExit(f'{out} is not empty and not a site; name another folder with --out')
        shutil.rmtree(out)
    pages, cache = work/'.pages', work/'.doctrees'
    prep.prepare(work, pages)
    code = build_main(['-q', '-W', '--keep-going', '-E', '-b', 'html', '-c', str(docs), '-d', str(cache),
                       str(pages), str(out)])
    shutil.rmtree(cache, ignore_errors=True)
    for name in ('objects.inv', '.buildinfo'): (out/name).unlink(missing_ok=True)
    shutil.copy2(pages/'llms.txt', out)
    if code == 0: write_redirects(out)
    return code


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=root/'_site', help='where the site goes, default _site')
    args = parser.parse_args()
    out = args.out.resolve()
    os.chdir(root)
    sys.path.insert(0, str(docs))
    code = build(out, process())
    if code == 0: print(f'{out}/index.html')
    sys.exit(code)
