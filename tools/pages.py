"""Run nbdev_test, and check that each cell still gives its stored output: python tools/pages.py [OPTION OF nbdev_test ...]

nbdev_test finds cells that fail. A cell also fails here if what it prints or returns is not what its page shows, if it takes more than
five minutes, or if it is marked `#| raises` and raises no error (nbdev_test alone skips these). Cells that need a framework
(`#| lightning`) run if their flags are given: `--flags 'lightning keras'`.
"""
import re

import nbdev.test
from execnb.shell import CaptureShell
from notebooks import show_error

TIMEOUT = 300   # seconds, for one cell
MEASURE_TIME = ('measure/10_stages.ipynb', 'measure/20_diagnosis.ipynb', 'guides/faster.ipynb')   # their output differs in each run
# what differs from run to run: addresses, temporary paths, times and rates
VOLATILE = re.compile(r'0x[0-9a-f]+|/tmp/\S+|\d[\d.,]*(?= ?(?:s|ms|µs|us|seconds?|(?:images|samples|img)/s|[KMG]B/s)\b)')
run_page = nbdev.test.test_nb


class StaleOutput(Exception):
    "The output of a cell differs from the stored one."


def read_text(outputs: list) -> str:
    "Return what a cell printed and returned, or its error, without parts that differ from run to run."
    texts = []
    for output in outputs:
        if output['output_type'] == 'error':
            texts.append(show_error(output))
        elif output['output_type'] == 'execute_result':
            texts.append(output['data'].get('text/plain', ''))
        elif output.get('name') == 'stdout':
            texts.append(output['text'])
    return VOLATILE.sub('…', ''.join(map(''.join, texts))).strip()


class PageShell(CaptureShell):
    "The shell in which nbdev_test runs a page; a cell fails if its output differs from the stored one."

    def __init__(self, path):
        super().__init__(path, timeout=TIMEOUT)
        self.is_compared = not path.as_posix().endswith(MEASURE_TIME)

    def showtraceback(self, *args, **kwargs):
        "Leave the error to `prettytb`: what IPython prints would be output of the cell."

    def cell(self, cell, **options):
        if cell.cell_type != 'code':
            return
        before, cell.outputs = read_text(cell.outputs), []
        super().cell(cell, **options)
        after = read_text(cell.outputs)
        if 'raises' in cell.directives_:
            self.exc = None if self.exc else StaleOutput('this cell is marked `#| raises` and raised no error')
        if self.exc is None and self.is_compared and before != after:
            self.exc = StaleOutput(f'the page shows\n{before}\nand the cell says now\n{after}\n'
                                   'Run `python tools/save.py` with the name of the page, and look at what has changed.')


def test_page(*args, force_flags=(), **options):
    "Run a page like nbdev_test, with the cells that raise errors, in a shell that compares outputs."
    nbdev.test.CaptureShell = PageShell
    return run_page(*args, force_flags=[*force_flags, 'raises'], **options)


if __name__ == '__main__':
    # each page is a `__main__` of its own, in which worker processes would look for `test_page`
    import pages
    nbdev.test.test_nb = pages.test_page
    nbdev.test.nbdev_test()
