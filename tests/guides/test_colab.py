"The guides that open in Colab: their links, and the cell that installs timmdata there and nothing elsewhere."
from types import SimpleNamespace

import pytest
from notebooks import read_notebook
from synthetic import ROOT

PAGES = ['dataloader', 'build_a_loader', 'train', 'cifar10', 'read_it']


def run(source, shell_name: str) -> list:
    "The calls of the cell in a shell with this name."
    calls = []
    shell = type('Shell', (SimpleNamespace,), dict(__str__=lambda self: shell_name))(
        system=calls.append, run_line_magic=lambda *words: calls.append(words))
    exec(source, {'get_ipython': lambda: shell})
    return calls


@pytest.mark.parametrize('name', PAGES)
def test_badge_and_first_cell(name):
    title, badge, install = read_notebook(ROOT/f'nbs/guides/{name}.ipynb')['cells'][:3]
    address = f'https://colab.research.google.com/github/timmdata/timmdata/blob/main/nbs/guides/{name}.ipynb'
    assert title['source'].startswith('# ') and badge['source'] == f'[![Open in Colab](../images/colab-badge.svg)]({address})'
    assert run(install['source'], '<ipykernel.zmqshell.ZMQInteractiveShell object>') == []
    clone, pip, cd = run(install['source'], '<google.colab._shell.Shell object>')
    assert clone.endswith('https://github.com/timmdata/timmdata') and pip == ('pip', "install -q './timmdata[demo]'")
    assert cd == ('cd', 'timmdata/nbs/guides')
