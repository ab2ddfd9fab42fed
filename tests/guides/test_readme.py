"The blocks of README, pasted one after the other into an empty program, as a newcomer does."
import re

import pytest
from synthetic import ROOT

import timmdata

BLOCKS = re.findall(r'```python\n(.*?)```', (ROOT/'README.md').read_text(encoding='utf-8'), flags=re.DOTALL)


@pytest.mark.timeout(120)
def test_blocks_run_in_sequence(samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TIMMDATA_CACHE', str(samples.parent))
    alone = [block for block in BLOCKS if 'torchrun' not in block]
    assert len(alone) == len(BLOCKS) - 1 >= 6   # one is for a process of torchrun
    names = {'__name__': '__main__'}
    for block in alone: exec(compile(block, block.splitlines()[0], 'exec'), names)
    assert names['images'].shape == (32, 3, 224, 224) and len(names['labeled']) and names['recipe'].train
    steps = []
    names['train_model'](lambda images, targets: steps.append(targets), num_workers=0)
    assert len(steps) == 2 * (len(timmdata.ImageDataset(samples)) // 32)


def test_the_citation_names_this_version():
    assert f'version: {timmdata.__version__}\n' in (ROOT/'CITATION.cff').read_text(encoding='utf-8')
    assert f'version = {{{timmdata.__version__}}}' in (ROOT/'README.md').read_text(encoding='utf-8')
