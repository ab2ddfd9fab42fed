"""Run notebooks in the environment that runs this script, as a user's kernel would: python tools/as_user.py NOTEBOOK [...]

It needs no more than what the extra `notebooks` installs, and stores nothing."""
import argparse
import os
import re
import sys
import time
from pathlib import Path
from queue import Empty

from jupyter_client.manager import start_new_kernel
from notebooks import is_skipped, read_notebook

_COLORS = re.compile(r'\x1b\[[0-9;]*m')


def failure(path: Path, timeout: float) -> str | None:
    "Run the notebook's code cells in a fresh kernel; what the first failing cell said, or None."
    cells = [c['source'] for c in read_notebook(path)['cells'] if c['cell_type'] == 'code']
    manager, client = start_new_kernel(kernel_name='python3', cwd=str(path.parent), env={**os.environ, 'MPLBACKEND': 'agg'})
    try:
        for k, source in enumerate(cells):
            if is_skipped(source, {'eval: false'}): continue
            try: reply = client.execute_interactive(source, timeout=timeout, allow_stdin=False, output_hook=lambda message: None)
            except (Empty, TimeoutError): return f'code cell {k}: not done after {timeout:g} s'
            content = reply['content']
            if content['status'] != 'ok':
                return f'code cell {k}:\n' + _COLORS.sub('', '\n'.join(content.get('traceback') or [str(content)]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('notebook', nargs='+', type=Path)
    parser.add_argument('--timeout', type=float, default=120, help='seconds that one cell may take')
    args = parser.parse_args()
    failed = 0
    for path in args.notebook:
        start = time.perf_counter()
        said = failure(path.resolve(), args.timeout)
        print(f'{path}: {"FAILED, " + said if said else "ran"} ({time.perf_counter() - start:.0f} s)', flush=True)
        failed += said is not None
    sys.exit(failed > 0)


if __name__ == '__main__': main()
