"The command line: its commands, what they print, and where paths lead."
import io
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from synthetic import JPEG

from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset

HELP = """
import sys
from contextlib import suppress
from timmdata.cli import main
for words in ['demo'], ['inspect'], ['pack'], ['doctor'], ['buffer'], []:
    with suppress(SystemExit): main([*words, '--help'])
"""


def python(*options: str, code: str, **settings) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stderr
    return done


def test_help_needs_no_torch():
    done = python(code=HELP + 'with suppress(SystemExit): main(["--version"])\nmain([])\nprint("torch" in sys.modules)')
    assert done.stdout.count('usage: timmdata') == 7 and done.stdout.endswith('\nFalse\n')


@pytest.mark.full
def test_commands_run_without_docstrings(samples, tmp_path):
    "Python -OO drops docstrings and assertions, on which nothing may depend."
    small = ['--input-size=16', '--num-workers=0', '--device=cpu', '--images=4', '--rounds=1']
    runs = [['demo', str(samples), '--input-size=16', '--batch-size=64', '--num-workers=0', f'--out={tmp_path}/demo.png'],
            ['inspect', str(samples), '--split=val', '--exact', f'--out={tmp_path}/report'],
            ['pack', str(samples), f'{tmp_path}/packed', '--split=val', '--num-workers=0'], ['pack', f'{tmp_path}/packed', '--check'],
            ['doctor', str(samples), '--stages', *small], ['doctor', str(samples), *small],
            ['buffer', 'status', str(samples)]]
    done = python('-OO', code=f'from timmdata.cli import main\nprint([main(words) for words in {runs}])', cwd=tmp_path)
    assert done.stdout.endswith('\n[0, 0, 0, 0, 0, 0, 2]\n') and 'AttributeError' not in done.stderr   # 2: there is no buffer
    assert (tmp_path/'demo.png').exists() and (tmp_path/'report/report.html').exists()


DOCTOR = ['--images=4', '--rounds=3', '--input-size=16', '--num-workers=0', '--device=cpu']


def test_a_bar_shows_what_is_tried_and_what_time_is_left(samples, monkeypatch):
    "In each part: the stages, the batches that are made beforehand, and the loaders that take turns."
    monkeypatch.setattr(sys, 'stderr', said := io.StringIO())
    assert main(['doctor', str(samples), *DOCTOR]) == 0
    for what in 'stages', 'making batches', 'trying: as it is', 'trying: num_workers=1':
        assert re.search(rf'{what}: .*\d+/\d+ \[\d+:\d+<', said.getvalue()), what


def test_home_is_expanded(samples, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('USERPROFILE', str(tmp_path))
    (tmp_path/'photos').symlink_to(samples)
    assert main(['demo', '~/photos', '--num-workers', '0', '--input-size', '32', '--out=~/batch.jpg']) == 0
    assert (tmp_path/'batch.jpg').stat().st_size > 1000 and '320 images in 10 classes' in capsys.readouterr().out
    assert main(['demo', '~/nothing']) == 2
    assert str(tmp_path/'nothing') in capsys.readouterr().err


@pytest.mark.full
def test_an_interrupt_is_one_line():
    code = ('import timmdata.cli as cli\ndef interrupted(*args, **kwargs): raise KeyboardInterrupt\n'
            'cli._output_path = interrupted\nraise SystemExit(cli.main(["demo", "."]))')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr == 'timmdata: interrupted\n'


STRANGE = ['a$b$', r'$\frac{1', 'esc\x1b[31mred\x07', os.fsdecode(b'latin\xe9\xff'), 'two\nlines', '_x^{', 'naïve 犬']


@pytest.fixture(scope='module')
def strange(tmp_path_factory) -> Path:
    "A data set whose classes and files have names that hold anything."
    root = tmp_path_factory.mktemp('strange')
    for name in STRANGE:
        (root/'train'/name).mkdir(parents=True)
        for k in range(2): (root/'train'/name/f'{k}{name}.jpg').write_bytes(JPEG)
    return root


DEMO = ['demo', '--input-size=16', '--batch-size=14', '--num-workers=0']


def test_names_of_any_letters_are_shown_and_drawn(strange, tmp_path, capfd):
    "Formulas that are none, sequences that a terminal obeys, bytes that are not UTF-8."
    assert main([*DEMO, str(strange), f'--out={tmp_path}/out.png']) == 0
    said = ''.join(capfd.readouterr())
    assert (tmp_path/'out.png').exists() and not any(char in said for char in '\x1b\x07')
    assert r'esc\x1b[31mred\x07' in said and r'latin\udce9\udcff' in said and r'two\nlines' in said


@pytest.mark.full
def test_an_output_that_cannot_show_a_letter_does_not_end_the_command(strange, tmp_path):
    code = 'import sys, timmdata.cli as cli\nraise SystemExit(cli.main(sys.argv[1:]))'
    done = subprocess.run([sys.executable, '-c', code, *DEMO, str(strange), f'--out={tmp_path}/out.png'], capture_output=True,
                          text=True, env={**os.environ, 'PYTHONIOENCODING': 'ascii'})
    assert done.returncode == 0 and r'na\xefve \u72ac' in done.stdout, done.stderr


@pytest.mark.filterwarnings('error::UnicodeWarning')
def test_errors_warnings_and_logs_print_names_escaped(strange, tmp_path):
    "In the text; what a program reads (the log's records, the names of files and classes) stays as it is."
    broken = tmp_path/'data'
    shutil.copytree(strange/'train', broken)
    for name in STRANGE: (broken/name/f'0{name}.jpg').write_bytes(b'')
    texts = []
    for index in range(0, 14, 2):
        with pytest.raises(OSError) as raised: ImageDataset(broken, index_file=tmp_path/'index.npz')[index]
        texts.append(str(raised.value))
    skipping = ImageDataset(broken, on_error='skip', index_file=tmp_path/'index.npz')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        assert all(skipping[index] is None for index in range(0, 14, 2))
        for index in range(0, 14, 2): ImageDataset(broken, on_error='skip', index_file=tmp_path/'index.npz')[index]   # one warning each
        ImageDataset(broken, class_map={'a$b$': 0})
    texts += [str(warning.message) for warning in caught] + [repr(ImageDataset(broken))]
    with pytest.raises(ValueError) as raised: ImageDataset(broken, split='elsewhere')
    texts.append(str(raised.value))
    for text in texts: assert all(char.isprintable() or char == '\n' for char in text), text
    assert len(texts) > 15 and {sample.path for sample in skipping.bad_samples} == {f'{name}/0{name}.jpg' for name in STRANGE}
    assert set(skipping.class_to_idx) == set(STRANGE)


def test_a_pack_is_written_and_checked(samples, tmp_path, capsys):
    out = tmp_path/'packed'
    assert main(['pack', str(samples), str(out), '--short-side', '64', '--num-workers', '0']) == 0
    said = capsys.readouterr().out
    assert 'train: 320 samples in 1 shard' in said and 'val: 80 samples' in said and said.endswith(f'ImageDataset({str(out)!r})\n')
    assert main(['pack', str(out), '--check']) == 0 and capsys.readouterr().out == f'{out} is intact\n'
    shard = out/'val-000000.tar'
    data = bytearray(shard.read_bytes())
    data[1500] ^= 1
    shard.write_bytes(data)
    assert main(['pack', str(out), '--check']) == 2
    said = capsys.readouterr()
    assert said.out == 'val-000000.tar has changed since it was written\n' and 'is damaged' in said.err


@pytest.mark.full
def test_to_pack_needs_no_inspection(samples, tmp_path):
    code = f"""
import sys
from timmdata.cli import main
assert main(['pack', {str(samples)!r}, {str(tmp_path/'packed')!r}, '--split=val', '--num-workers=0', '--format=keep']) == 0
late = 'timmdata.inspection', 'timmdata.look', 'timmdata.pipeline', 'timmdata.loaders'
print([name for name in sys.modules if name.startswith(late)])"""
    assert python(code=code).stdout.endswith('\n[]\n')
