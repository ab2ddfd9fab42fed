"The blocks of README, pasted one after the other into an empty program, as a newcomer does."
import json
import random
import re
import signal
import time

import pytest
import torch
import yaml
from loader_parts import program, wait_until
from notebooks import page_name
from synthetic import ROOT

import timmdata

README = (ROOT/'README.md').read_text(encoding='utf-8')
BLOCKS = re.findall(r'```python\n(.*?)```', README, flags=re.DOTALL)


def test_the_two_commands_that_ci_runs_are_here():
    assert [len(re.findall(rf'^pip install .*{word}$', README, re.MULTILINE)) for word in ('timmdata demo', 'pytest')] == [1, 1]


def test_pictures_exist():
    pictures = re.findall(r'!\[[^\]]*\]\(([^)]+)\)', README)
    assert pictures and all((ROOT/picture).is_file() for picture in pictures)


def test_guides_are_in_the_groups_of_the_sidebar():
    groups = yaml.safe_load((ROOT/'docs/toc.yaml').read_text(encoding='utf-8'))
    for group in ('Learn', 'Use', 'Solve', 'Look up'):
        line, = re.findall(rf'^- \*\*{group}\*\*: (.*)$', README, re.MULTILINE)
        pages = [page_name(path).removesuffix('.html') for path in re.findall(r'\(nbs/([^)#]*)', line)]
        assert pages[:len(groups[group])] == groups[group], group   # after them, any other page


@pytest.mark.timeout(120)
def test_blocks_run_in_sequence(samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TIMMDATA_CACHE', str(samples.parent))
    assert len(BLOCKS) == 2
    names = {'__name__': '__main__'}
    for block in BLOCKS: exec(compile(block, block.splitlines()[0], 'exec'), names)
    assert names['images'].shape == (32, 3, 64, 64) and torch.equal(names['replay'].batch[0], names['images'])
    recipe, loader = re.findall(r'`(recipe = get_recipe[^`]+|create_loader[^`]+recipe\.train\))`', README)   # in a line of a list
    exec(f'dataset = ImageDataset(root)\nfrom timmdata import get_recipe\n{recipe}\nloader = {loader}', names)
    assert next(iter(names['loader']))[1].shape == (32, 1000)   # the recipe mixes images
    assert f'version: {timmdata.__version__}\n' in (ROOT/'CITATION.cff').read_text(encoding='utf-8')


def resume_recipe() -> str:
    "The loop of the guide `your_trainer` to which README leads."
    assert 'your_trainer.ipynb#a-plain-loop' in README
    page = json.loads((ROOT/'nbs/guides/your_trainer.ipynb').read_text(encoding='utf-8'))
    texts = [''.join(cell['source']) for cell in page['cells']]
    recipe, = (text for text in texts[texts.index(next(o for o in texts if '## A plain loop' in o)):] if text.startswith('def train('))
    return recipe


TRAINING = """
import os, zlib
os.chdir({folder!r})
{stub}
def new_loader(): return create_loader(ImageDataset({root!r}), 64, 32, is_training=True, seed=0)
class Step:
    def __call__(self, images, targets): print(zlib.crc32(images.numpy().tobytes()), file=log, flush=True)
    def state_dict(self): return {{}}
    def load(self, checkpoint): return checkpoint['loader']
with open('log', 'a') as log:
    print('began', file=log, flush=True)
    train('checkpoint.pt', Step(), {epochs})
    print('end', file=log, flush=True)
"""

STOP_IN_THE_MIDDLE = """
import io, signal
torch_save, num_saved = torch.save, 0
def save_half(state, path):
    global num_saved
    torch_save(state, whole := io.BytesIO())
    Path(path).write_bytes(whole.getvalue()[:len(whole.getvalue()) // 2])
    num_saved += 1
    if num_saved == 4: os.kill(os.getpid(), signal.SIGKILL)
    torch_save(state, path)
torch.save = save_half
"""


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_kill_loses_no_batch(samples, tmp_path):
    "The loop that README leads to, killed once in the middle of a save and ten times at any moment: the batches of an undisturbed run."
    recipe, epochs = resume_recipe(), 6
    first = 'import os\nfrom pathlib import Path\nimport torch\nfrom timmdata import ImageDataset, create_loader\n'

    def start(folder, stub=''):
        folder.mkdir(exist_ok=True)
        return program(recipe + TRAINING.format(folder=str(folder), root=str(samples), stub=stub, epochs=epochs), first)

    code, _, errors = start(tmp_path/'undisturbed').end(120)
    assert (code, errors) == (0, '')
    _, *undisturbed, _ = (tmp_path/'undisturbed/log').read_text().splitlines()
    assert len(set(undisturbed)) == len(undisturbed) == 10 * epochs
    folder, rng = tmp_path/'killed', random.Random(0)
    log = folder/'log'
    def num_seen(): return log.read_text().count('\n') if log.exists() else 0
    for kill in range(11):
        before = num_seen()
        run = start(folder, '' if kill else STOP_IN_THE_MIDDLE)
        if kill:
            wanted = before + rng.randint(0, 3)
            wait_until(lambda num=wanted, run=run: num_seen() > num or run.read('code'), 'no batch is seen', 60)
            time.sleep(rng.uniform(0, 0.02))
            run.process.kill()
        assert run.end(60)[::2] == (-signal.SIGKILL, ''), 'it ended by itself'
    assert start(folder).end(120)[::2] == (0, '')
    seen = []
    for run in log.read_text().split('began\n')[1:]:
        lines = run.split()
        if seen and lines and lines[0] == seen[-1]: seen.pop()   # it was killed between the step and the save
        seen += lines
    assert seen == [*undisturbed, 'end']


def test_no_page_saves_over_the_only_checkpoint():
    "Who copies a line with torch.save copies the line that puts the file in its place."
    pages = {path: json.loads(path.read_text(encoding='utf-8')) for path in sorted((ROOT/'nbs').rglob('*.ipynb'))}
    cells = [(path.stem, ''.join(cell['source'])) for path, page in pages.items() for cell in page['cells'] if cell['cell_type'] == 'code']
    saving = [(name, text) for name, text in cells if 'torch.save(' in text]
    assert len(saving) >= 3
    in_place = {name for name, text in saving if 'os.replace(' not in text and 'io.BytesIO()' not in text}
    assert in_place == {'00_files'}   # the page that shows what a kill in the middle leaves
