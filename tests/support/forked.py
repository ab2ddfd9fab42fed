"""Run notebooks without waiting for imports: a process that has imported what they need is forked for each of them.

A kernel takes some five seconds to start and to import torch, torchvision and timm; a fork takes none. What runs the
cells is IPython, as in a kernel; the package itself is imported afresh. `tools/save.py` stores outputs with real kernels.
"""
import atexit
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]/'tools'))
from notebooks import NOT_TESTED, is_skipped, read_notebook, root  # noqa: E402

PRELOADED = ('IPython.core.interactiveshell', 'matplotlib_inline.backend_inline', 'matplotlib.pyplot', 'torch', 'torchvision',
             'torch.utils.data', 'torchvision.transforms.v2', 'timm.data', 'fastcore.test')


# what differs from run to run: addresses, temporary paths, times and rates
VOLATILE = re.compile(r'0x[0-9a-f]+|/tmp/\S+|\d[\d.,]*(?= ?(?:s|ms|µs|us|seconds?|(?:images|samples|img)/s|[KMG]B/s)\b)')


def stored(cell: dict) -> str:
    "What a code cell has printed and returned, as its notebook has it."
    texts = [output['text'] if output['output_type'] == 'stream' else output['data'].get('text/plain', '') for output in cell['outputs']
             if output['output_type'] == 'execute_result' or output.get('name') == 'stdout']
    return ''.join(map(''.join, texts))


def check(path: Path, server) -> list[str]:
    "Run a notebook without its cells marked `#| notest`: each cell that no longer says what is stored, with both texts."
    cells = [(k, cell) for k, cell in enumerate(read_notebook(path)['cells'])
             if cell['cell_type'] == 'code' and not is_skipped(cell['source'], NOT_TESTED)]
    said = server.run(path, skip=NOT_TESTED)
    pairs = [(k, *(VOLATILE.sub('…', text).strip() for text in (stored(cell), new))) for (k, cell), new in zip(cells, said, strict=True)]
    return [f'cell {k} said\n{old}\nand says now\n{new}' for k, old, new in pairs if old != new]


class ForkServer:
    "A process that has imported much, and runs notebooks in forks of itself."

    def __init__(self, env: dict[str, str], folder: Path):
        command = [sys.executable, __file__, str(folder/'answer.json')]
        env = {'OMP_NUM_THREADS': '1'} | env   # two servers run side by side: threads of torch would wait for each other's cores
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=root)

    def run(self,
        path: Path,   # the notebook
        skip: tuple[str, ...] = (),   # directives of the cells that are not run
        timeout: float = 240,   # seconds, for the whole notebook
    ) -> list[str]:   # what each cell that ran has printed and returned
        "Run a notebook from top to bottom; raises RuntimeError with the failing cell, its source and the traceback."
        request = {'path': str(path), 'skip': skip, 'timeout': timeout}
        self.process.stdin.write(json.dumps(request) + '\n')
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the process that runs notebooks has ended"}')
        if 'error' in answer: raise RuntimeError(f'{path.name}: {answer["error"]}')
        return answer['printed']

    def close(self):
        "End the process."
        self.process.stdin.close()
        self.process.wait(10)


def run_cells(path: str, skip: list[str]) -> dict:
    "Run the cells of a notebook in this process, as a kernel would."
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    HistoryManager.enabled = False   # its thread would write a file, and into the output that it failed
    shell, printed = InteractiveShell.instance(), []
    shell.enable_gui = lambda gui=None: None
    shell.displayhook.write_output_prompt = lambda: None   # the value of a cell is text, as what it prints
    shell.displayhook.write_format_data = lambda formats, metadata=None: print(formats.get('text/plain', ''))
    shell.enable_matplotlib('inline')
    for k, cell in enumerate(read_notebook(Path(path))['cells']):
        if cell['cell_type'] != 'code' or is_skipped(cell['source'], skip): continue
        with capture_output() as captured: result = shell.run_cell(cell['source'], store_history=True)
        printed.append(captured.stdout)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            trace = ''.join(traceback.format_exception(error))
            return {'error': f'cell {k} failed\n{cell["source"]}\n{captured.stdout}{captured.stderr}\n{trace}'}
    return {'printed': printed}


def run_in_child(path: str, skip: list[str], answer: Path):
    "What the fork does. It does all that is registered for the interpreter's exit, but takes no million objects apart."
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell that starts something with & ignores it
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)   # the answers of this process go to another file
    os.chdir(Path(path).parent)
    try: result = run_cells(path, skip)
    except BaseException: result = {'error': traceback.format_exc()}
    answer.write_text(json.dumps(result), encoding='utf-8')
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(0)


def run_forked(path: str, skip: list[str], timeout: float, answer: Path) -> dict:
    "Run a notebook in a fork; what it leaves behind ends with it."
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0: run_in_child(path, skip, answer)
    end, status = time.monotonic() + timeout, (0, 0)
    while not status[0] and time.monotonic() < end:
        time.sleep(0.01)
        status = os.waitpid(child, os.WNOHANG)
    try: os.killpg(child, signal.SIGKILL)
    except ProcessLookupError: pass
    if not status[0]:
        os.waitpid(child, 0)
        return {'error': f'not finished after {timeout} seconds'}
    if not answer.exists(): return {'error': f'ended with status {status[1]} in the middle'}
    return json.loads(answer.read_text(encoding='utf-8'))


def serve(answer: Path):
    "Run what is asked for, one line of JSON for each notebook."
    for module in PRELOADED: importlib.import_module(module)
    gc.freeze()   # collections in the forks leave what is here alone
    for line in sys.stdin: print(json.dumps(run_forked(**json.loads(line), answer=answer)), flush=True)


if __name__ == '__main__': serve(Path(sys.argv[1]))
