"""Save pages after editing them: python tools/save.py [PAGE ...]

A page is named `nbs/readers/40_tar.ipynb`, `readers/tar` or `tar`; `readers` names all pages of a folder. The notebook runs in a
fresh kernel, its outputs are stored, and it is cleaned. All modules are exported, and README.md is written. Without a page, no
notebook runs.
"""
import os
import sys
import warnings
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbdev.clean import nbdev_clean
from nbdev.doclinks import nbdev_export
from notebooks import find_notebooks, is_raising, keeps_output, page_name, root, show_error
from readme import write_readme


def find_pages(names: list[str]) -> list[Path]:
    "Return the notebooks with these names, in reading order; an unknown name ends the program."
    found = {}
    for path in find_notebooks():
        page = page_name(path.relative_to(root/'nbs').as_posix()).removesuffix('.html')
        folder, _, last = page.rpartition('/')
        for name in {path.relative_to(root).as_posix(), page, last, path.stem, folder}:
            found.setdefault(name, []).append(path)
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SystemExit(f'no notebook named {", ".join(unknown)}; name one as nbs/readers/40_tar.ipynb, readers/tar or tar')
    return sorted({path for name in names for path in found[name]})


def kernel_env(extra: dict[str, str] | None = None) -> dict[str, str]:
    "Return the environment of a kernel, which imports the package of this checkout, with `extra` variables."
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get('PYTHONPATH')])])
    # tqdm.auto warns if ipywidgets is missing and shows a path of this machine; torch.jit.script is called by fastai
    quiet = 'ignore:IProgress not found,ignore:`torch.jit.script` is deprecated'
    # progress bars show times, which would differ in each stored page
    return {**os.environ, 'PYTHONPATH': path, 'PYTHONWARNINGS': quiet, 'TQDM_DISABLE': '1', **(extra or {})}


def join_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    "Join neighboring pieces of one stream, because a busy machine splits them differently."
    found = []
    for output in outputs:
        before = found[-1] if found else {}
        if output.output_type == 'stream' == before.get('output_type') and output.name == before.name:
            before.text += output.text
        else:
            found.append(output)
    return found


def shorten_error(cell: nbformat.NotebookNode):
    "Keep only the type and message of the error that a `#| raises` cell must have: a traceback has paths of this machine."
    error = cell.outputs[-1] if cell.outputs else {}
    if error.get('output_type') != 'error':
        raise AssertionError(f'this cell is marked `#| raises` and raised no error:\n{cell.source}')
    error.traceback = [show_error(error)]
    error.evalue = error.traceback[0].removeprefix(f'{error.ename}: ')


def execute(
    path: Path,   # the notebook
    timeout: int = 300,   # seconds per cell
    env: dict[str, str] | None = None,   # environment variables for the kernel, in addition to the current ones
) -> nbformat.NotebookNode:
    "Run a notebook in a fresh kernel and return it with its outputs; the first failing cell without `#| raises` raises CellExecutionError."
    nb = nbformat.read(path, as_version=4)
    code = [cell for cell in nb.cells if cell.cell_type == 'code']
    for cell in code:
        cell.metadata['tags'] = ['skip-execution'] * keeps_output(cell.source) + ['raises-exception'] * is_raising(cell.source)
    client = NotebookClient(nb, timeout=timeout, kernel_name='python3', resources={'metadata': {'path': str(path.parent)}},
                            skip_cells_with_tag='skip-execution', extra_arguments=['--log-level=ERROR'])
    client.execute(env=kernel_env(env))
    for cell in code:
        cell.metadata = nbformat.from_dict({'tags': ['raises-exception']} if is_raising(cell.source) else {})
        cell.outputs = join_streams(cell.outputs)
        if is_raising(cell.source):
            shorten_error(cell)
    nb.metadata = nbformat.from_dict({'kernelspec': nb.metadata.get('kernelspec', {})})
    return nb


def write_all():
    "Export all modules, clean all notebooks and write README.md; a notebook that cannot be cleaned is an error."
    os.environ.pop('IN_TEST', None)   # nbdev_export does nothing if it is set
    os.chdir(root)   # where nbdev looks for settings.ini
    nbdev_export()
    with warnings.catch_warnings():
        warnings.filterwarnings('error', message='Failed to clean')
        for path in find_notebooks():
            nbdev_clean(str(path))
    write_readme()


if __name__ == '__main__':
    pages = find_pages(sys.argv[1:])
    write_all()   # the kernel imports the exported modules
    for page in pages:
        print(page.relative_to(root), flush=True)
        nbformat.write(execute(page), page)
    if pages:
        write_all()
