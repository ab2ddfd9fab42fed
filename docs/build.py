"""Build the documentation site: python docs/build.py [--out _site]"""
import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main
from write_pages import root, write


def build(out: Path) -> int:
    "Build the site in `out`; any Sphinx warning is an error."
    if out.exists():
        if any(out.iterdir()) and not (out/'_static/site.css').exists():
            raise SystemExit(f'{out} is not empty and not a site; name another folder with --out')
        shutil.rmtree(out)
    with tempfile.TemporaryDirectory() as work:
        write(Path(work, 'pages'))
        code = build_main(['-q', '-W', '--keep-going', '-b', 'html', '-c', str(root/'docs'), '-d', f'{work}/doctrees',
                           f'{work}/pages', str(out)])
        shutil.copy2(Path(work, 'pages/llms.txt'), out)
    for name in ('objects.inv', '.buildinfo'): (out/name).unlink(missing_ok=True)
    return code


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=root/'_site', help='where the site goes, default _site')
    out = parser.parse_args().out.resolve()
    code = build(out)
    if code == 0: print(f'{out}/index.html')
    sys.exit(code)
