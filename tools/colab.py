"""Write copies of the notebooks whose first cell, on Colab, installs the library: python tools/colab.py FOLDER

The links "Open in Colab" lead to such copies, in the branch that `colab_branch` of settings.ini names; while it is empty
there are no links. The notebooks of the source stay as they are."""
import argparse
import json
from pathlib import Path

from notebooks import find_notebooks, read_settings, root

# Some notebooks read files of the repository, so the cell fetches all of it and goes to the notebook's folder in it.
FIRST_CELL = """\
# On Colab: fetch the library with the files that this notebook reads, and install it. Elsewhere nothing happens.
import importlib.util
import sys
if 'google.colab' in sys.modules and importlib.util.find_spec('{lib_name}') is None:
    !git clone -q --depth 1 {url} {lib_name}-source
    %pip install -q './{lib_name}-source[notebooks]'
    %cd -q {lib_name}-source/{folder}"""


def first_cell(
    folder: str,   # of the notebook, from the root of the repository
    url: str | None = None,   # of the repository; None: the one of settings.ini
    base: Path = root,   # the repository
) -> str:
    "The code that installs the library on Colab."
    settings = read_settings(base)
    return FIRST_CELL.format(lib_name=settings['lib_name'], url=url or settings['git_url'], folder=folder)


def write_copies(
    out: Path,   # folder; the copies have the paths of the notebooks in it
    url: str | None = None,   # as in `first_cell`
    base: Path = root,   # the repository
) -> list[Path]:   # the copies
    "Copy every notebook, with one more cell at its beginning."
    copies = []
    for path in find_notebooks(base):
        copy, nb = out/path.relative_to(base), json.loads(path.read_text(encoding='utf-8'))
        source = first_cell(path.parent.relative_to(base).as_posix(), url, base).splitlines(keepends=True)
        cell = dict(cell_type='code', id='on-colab', metadata={}, execution_count=None, outputs=[], source=source)
        nb['cells'].insert(0, cell)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(json.dumps(nb, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
        copies.append(copy)
    return copies


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path, help='folder to write them to')
    parser.add_argument('--url', help='of the repository to install from; default: git_url of settings.ini')
    args = parser.parse_args()
    print(f'{len(write_copies(args.out, args.url))} notebooks in {args.out}')
