"""Run notebooks top to bottom in a fresh kernel and store their outputs: python tools/execute.py [NAME ...]

With --check nothing is stored: it names the cells whose text is not the stored one, and fails if there are any.
"""
import os
import re
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from forked import ForkServer
from nbclient import NotebookClient
from notebooks import NOT_TESTED, find_notebooks, is_skipped, page_name, read_notebook, root

# what differs from run to run: addresses, temporary paths, times and rates
VOLATILE = re.compile(r'0x[0-9a-f]+|/tmp/\S+|\d[\d.,]*(?= ?(?:s|ms|µs|us|seconds?|(?:images|samples|img)/s|[KMG]B/s)\b)')


def notebooks(names: list[str] = ()) -> list[Path]:
    "All notebooks in reading order, or those that one of `names` says: `readers/tar`, `tar` or `40_tar`."
    found = find_notebooks()
    if not names: return found
    pages = {path: page_name(path.relative_to(root/'nbs').as_posix()).removesuffix('.html') for path in found}
    chosen = {n: [p for p in found if n in (p.stem, pages[p], pages[p].rpartition('/')[2])] for n in names}
    unknown = [n for n in names if not chosen[n]]
    if unknown:
        raise SystemExit(f'no notebook named {", ".join(unknown)}; there are {", ".join(pages.values())}')
    return [p for p in found if any(p in paths for paths in chosen.values())]


def kernel_env(extra: dict[str, str] | None = None) -> dict[str, str]:
    "The environment of the kernel: this one, the checkout's package first, and `extra`."
    env = {**os.environ, **(extra or {})}
    # the kernel must see the checkout's package, whatever is installed
    env['PYTHONPATH'] = os.pathsep.join([str(root), *filter(None, [env.get('PYTHONPATH')])])
    # tqdm.auto warns where ipywidgets is not installed, and names a path of this machine
    quiet = ['ignore:IProgress not found', 'ignore:`torch.jit.script` is deprecated']   # the second one is fastai's
    env['PYTHONWARNINGS'] = ','.join(filter(None, [env.get('PYTHONWARNINGS'), *quiet]))
    return env


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    "`outputs` with neighboring pieces of one stream as one: where a kernel cuts them depends on how busy the machine is."
    found = []
    for output in outputs:
        before = found[-1] if found else {}
        if output.output_type == 'stream' == before.get('output_type') and output.name == before.name: before.text += output.text
        else: found.append(output)
    return found


def stored(cell: dict) -> str:
    "What a code cell has printed and returned, as its notebook has it."
    texts = [output['text'] if output['output_type'] == 'stream' else output['data'].get('text/plain', '') for output in cell['outputs']
             if output['output_type'] == 'execute_result' or output.get('name') == 'stdout']
    return ''.join(map(''.join, texts))


def check(path: Path, server: ForkServer) -> list[str]:
    """Run the notebook at `path`, without the cells marked `#| notest`, and store nothing.

    For each cell that no longer says what is stored: its number, the stored text and the new one."""
    cells = [(k, cell) for k, cell in enumerate(read_notebook(path)['cells'])
             if cell['cell_type'] == 'code' and not is_skipped(cell['source'], NOT_TESTED)]
    said = server.run(path, skip=NOT_TESTED)
    pairs = [(k, *(VOLATILE.sub('…', text).strip() for text in (stored(cell), new))) for (k, cell), new in zip(cells, said, strict=True)]
    return [f'cell {k} said\n{old}\nand says now\n{new}' for k, old, new in pairs if old != new]


def execute(
    path: Path,   # the notebook
    timeout: int = 300,   # seconds that one cell may take
    env: dict[str, str] | None = None,   # environment variables for the kernel, beside the current ones
) -> nbformat.NotebookNode:
    "Run the notebook at `path` in a fresh kernel; raises nbclient's CellExecutionError at the first failing cell."
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == 'code' and is_skipped(cell.source, ['eval: false']):
            cell.metadata['tags'] = ['skip-execution']   # it keeps its stored output
    for attempt in range(2):
        client = NotebookClient(
            nb, timeout=timeout, kernel_name='python3', resources={'metadata': {'path': str(path.parent)}},
            skip_cells_with_tag='skip-execution', extra_arguments=['--log-level=ERROR'])
        try: client.execute(env=kernel_env(env)); break
        except RuntimeError as error:   # a kernel that never answered, since its port was taken meanwhile, is started again
            if attempt or type(error) is not RuntimeError: raise
    for cell in nb.cells:
        cell.metadata.pop('tags', None)
        cell.metadata.pop('execution', None)
        if cell.cell_type == 'code': cell.outputs = joined(cell.outputs)
    nb.metadata = nbformat.from_dict({'kernelspec': nb.metadata.get('kernelspec', {})})
    return nb


def check_all(paths: list[Path]):
    "Print what `check` finds in each notebook; ends with an error if there is something."
    stale = 0
    with TemporaryDirectory() as folder, closing(ForkServer(kernel_env(), Path(folder))) as server:
        for path in paths:
            try: found = check(path, server)
            except RuntimeError as error: found = [str(error)]   # the failing cell
            stale += bool(found)
            print(path.relative_to(root), *found, sep='\n', flush=True)
    if stale: sys.exit(f'{stale} notebooks no longer say what they have stored')


if __name__ == '__main__':
    from nbdev.clean import nbdev_clean
    chosen = notebooks([name for name in sys.argv[1:] if name != '--check'])
    if '--check' in sys.argv: sys.exit(check_all(chosen))
    for path in chosen:
        print(path.relative_to(root), flush=True)
        nbformat.write(execute(path), path)
        nbdev_clean(str(path))
