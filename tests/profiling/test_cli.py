"The command line: what its options are made of, and where paths lead."
import subprocess
import sys

import pytest

from timmdata.cli import main
from timmdata.profile import installed_version


@pytest.mark.parametrize('words', [['--help'], ['bench', '--help'], ['doctor', '--help'], ['buffer', 'status', '--help']])
def test_help_has_the_comments_of_the_parameters(capsys, words):
    with pytest.raises(SystemExit) as ended: main(words)
    said = ' '.join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    if words[0] in ('bench', 'doctor'):
        for text in ('--num-workers NUM_WORKERS how many, 0 for none (default: auto)', "--mode MODE 'train' or 'eval' (default: train)",
                     '--workers WORKERS', '--step-ms' if words[0] == 'doctor' else '--epochs'): assert text in said


def test_version(capsys):
    with pytest.raises(SystemExit) as ended: main(['--version'])
    assert ended.value.code == 0 and capsys.readouterr().out == f'timmdata {installed_version("timmdata")}\n'


@pytest.mark.parametrize('words, message', [
    ([], 'COMMAND'), (['buffer'], 'COMMAND'), (['sow'], "invalid choice: 'sow'"), (['show'], 'data'),
    (['demo', '--workers', '2'], '--workers'), (['demo', '--batch-size', 'many'], 'many')])
def test_what_is_no_command_is_refused(capsys, words, message):
    with pytest.raises(SystemExit) as ended: main(words)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_home_is_expanded(samples, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('USERPROFILE', str(tmp_path))
    (tmp_path/'photos').symlink_to(samples)
    assert main(['show', '~/photos', '--number', '2', '--out=~/two.png']) == 0
    assert (tmp_path/'two.png').stat().st_size > 1000
    assert main(['demo', '--data=~/photos', '--num-workers', '0', '--input-size', '32', '--out=~/batch.jpg']) == 0
    assert (tmp_path/'batch.jpg').exists() and '320 photographs in 10 classes' in capsys.readouterr().out
    assert main(['show', '~/nothing']) == 2
    assert str(tmp_path/'nothing') in capsys.readouterr().err


@pytest.mark.parametrize('workers', ['many', '1.5'])
def test_a_number_of_workers_is_a_number(samples, capsys, workers):
    assert main(['bench', str(samples), '--num-workers', workers]) == 2
    assert capsys.readouterr().err == f"timmdata: error: --num-workers {workers}: give a whole number or 'auto'\n"


def test_an_interrupt_is_one_line():
    code = ('import timmdata.cli as cli\ndef interrupted(*args, **kwargs): raise KeyboardInterrupt\n'
            'cli.ImageDataset = interrupted\nraise SystemExit(cli.main(["show", "."]))')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr == 'timmdata: interrupted\n'
