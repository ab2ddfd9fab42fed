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
