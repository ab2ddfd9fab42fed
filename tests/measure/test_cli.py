"The command line: its commands, what they print, and how they use paths."
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic import JPEG
from torchvision.datasets import ImageFolder

import timmdata.measure
from timmdata.cli import main
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.diagnosis import diagnose

HELP = """
import sys
from contextlib import suppress
from timmdata.cli import main
for words in ['demo'], ['inspect'], ['pack'], ['doctor'], ['buffer'], []:
    with suppress(SystemExit): main([*words, '--help'])
"""


@pytest.fixture(autouse=True)
def quick_doctor(monkeypatch):
    "The doctor measures few images, in one round."
    monkeypatch.setattr('timmdata.measure.diagnosis.diagnose', partial(diagnose, num_images=4, rounds=1, device='cpu'))


def python(*options: str, code: str, **settings) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stderr
    return done


def test_help_needs_no_torch():
    done = python(code=HELP + 'with suppress(SystemExit): main(["--version"])\nmain([])\nprint("torch" in sys.modules)')
    assert done.stdout.count('usage: timmdata') == 7 and done.stdout.endswith('\nFalse\n')


@pytest.mark.full
def test_commands_run_without_docstrings(samples, tmp_path):
    "Python -OO removes docstrings and assertions, so nothing may depend on them."
    for name in 'ab':
        (tmp_path/'two'/name).mkdir(parents=True)
        (tmp_path/'two'/name/'0.jpg').write_bytes(JPEG)
    doctor = ['doctor', str(tmp_path/'two'), '--input-size=16', '--num-workers=0']
    runs = [['demo', str(samples), '--input-size=16', '--batch-size=64', '--num-workers=0', f'--out={tmp_path}/demo.png'],
            ['inspect', str(samples), '--split=val', '--exact', f'--out={tmp_path}/report'],
            ['pack', str(samples), f'{tmp_path}/packed', '--split=val', '--num-workers=0'], ['pack', f'{tmp_path}/packed', '--check'],
            [*doctor, '--stages'], doctor,
            ['buffer', 'status', str(samples)]]
    done = python('-OO', code=f'from timmdata.cli import main\nprint([main(words) for words in {runs}])', cwd=tmp_path)
    assert done.stdout.endswith('\n[0, 0, 0, 0, 0, 0, 2]\n') and 'AttributeError' not in done.stderr   # 2: there is no buffer
    assert (tmp_path/'demo.png').exists() and (tmp_path/'report/report.html').exists()


def test_a_bar_shows_what_is_tried_and_what_time_is_left(photos, monkeypatch):
    "In each part: the stages, the batches loaded in advance, and the loaders that take turns."
    monkeypatch.delenv('TQDM_DISABLE', raising=False)
    monkeypatch.setattr(sys, 'stderr', said := io.StringIO())
    doctor = ['doctor', str(photos), '--size=16', '--num-workers=0']
    assert main(doctor) == 0 and said.getvalue() == ''   # a log file
    said.isatty = lambda: True
    assert main(doctor) == 0
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
            'cli._open = interrupted\nraise SystemExit(cli.main(["demo", "."]))')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr == 'timmdata: interrupted\n'


STRANGE = ['a$b$', r'$\frac{1', 'esc\x1b[31mred\x07', os.fsdecode(b'latin\xe9\xff'), 'two\nlines', '_x^{', 'naïve 犬']


@pytest.fixture(scope='module')
def strange(tmp_path_factory) -> Path:
    "A dataset whose classes and files have names with unusual characters."
    root = tmp_path_factory.mktemp('strange')
    for name in STRANGE:
        (root/'train'/name).mkdir(parents=True)
        for k in range(2): (root/'train'/name/f'{k}{name}.jpg').write_bytes(JPEG)
    return root


DEMO = ['demo', '--input-size=16', '--batch-size=14', '--num-workers=0']


def test_names_of_any_letters_are_shown_and_drawn(strange, tmp_path, capfd):
    "Names that look like formulas, terminal control sequences, bytes that are not UTF-8."
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
    "In messages; what a program reads (the log's records, the names of files and classes) is unchanged."
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


# ---- nothing is written into the data

@pytest.fixture
def photos(tmp_path) -> Path:
    "Class folders in two splits."
    for name in ('train/ant', 'train/bee', 'val/ant', 'val/bee'):
        (tmp_path/'photos'/name).mkdir(parents=True)
        for k in range(2):
            noise = np.random.default_rng([k, len(name), name.endswith('bee')]).integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(noise).save(tmp_path/'photos'/name/f'{k}.jpg')
    return tmp_path/'photos'


def names(root: Path) -> list[str]: return sorted(os.path.join(folder, name) for folder, _, files in os.walk(root) for name in [*files, ''])


SMALL = ['--input-size=8', '--num-workers=0']
COMMANDS = {   # the command for some data, and what it writes beside photos
    'demo': (lambda data: ['demo', data, *SMALL, '--batch-size=4'], 'photos-batch.png'),
    'inspect': (lambda data: ['inspect', data, '--exact'], 'photos-inspection'),
    'doctor': (lambda data: ['doctor', data, *SMALL, '--stages'], None)}


@pytest.mark.parametrize('here, data', [
    ('photos', '.'), ('photos/train/ant', '../..'), ('link', '.'), ('photos/train', '.'), ('photos', 'train')])
@pytest.mark.parametrize('name', COMMANDS)
def test_a_command_in_the_data_leaves_it_as_it_was(photos, tmp_path, monkeypatch, capsys, name, here, data):
    "torchvision lists the classes."
    (tmp_path/'link').symlink_to(photos)
    monkeypatch.chdir(tmp_path/here)
    words, written = COMMANDS[name]
    before, classes = names(photos), [ImageFolder(photos/split).class_to_idx for split in ('train', 'val')]
    assert main(words(data)) == 0
    said = capsys.readouterr().out
    if data == 'train':   # next to the data is the current directory
        assert name == 'doctor' or f'{written}'.removeprefix('photos-') in said
        return
    assert names(photos) == before and [ImageFolder(photos/split).class_to_idx for split in ('train', 'val')] == classes
    assert ImageDataset(photos).class_to_idx == classes[0]
    if written: assert (tmp_path/written).exists() and written in said


def test_a_flat_folder_gets_no_sample(photos, tmp_path, monkeypatch):
    "Not even in a class folder: next to it are the other classes, and timm would treat the folder of pictures as a class."
    monkeypatch.chdir(photos/'val/bee')
    before = names(photos)
    assert main(['demo', '.', *SMALL]) == 0 and names(photos) == before and len(ImageDataset('.')) == 2
    assert (tmp_path/'photos-batch.png').is_file()


@pytest.mark.parametrize('words', [
    ['demo', 'photos', *SMALL, '--out=photos/batch.png'], ['inspect', 'photos', '--exact', '--out=photos/val/report'],
    ['pack', '--num-workers=1', 'photos', 'photos/packed']])
def test_an_output_in_the_data_is_refused_with_a_path_that_works(photos, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    before = names(tmp_path)
    assert main(words) == 2 and names(tmp_path) == before
    refused = capsys.readouterr().err
    advised = refused.strip().rpartition('such as ')[2]
    option, equals, _ = words[-1].rpartition('=')
    assert refused.count('\n') == 1 and main([*words[:-1], f'{option}{equals}{advised}']) == 0
    assert Path(advised).exists() and names(photos) == [name for name in before if name.startswith(f'{photos}/')]


def test_what_cannot_be_written_is_said_before_an_image_is_read(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for split in ('train', 'val'): (photos/split/'ant/0.jpg').write_text('no image')
    (tmp_path/'batch.png').mkdir()
    (tmp_path/'inspection').write_text('')
    for line in 'demo photos', 'inspect photos', 'pack photos inspection':
        words = line.split()
        assert main(words) == 2
        said = capsys.readouterr().err
        assert re.search('it is a (file|folder): pass the name of a', said) and 'cannot read' not in said, words


# ---- unreadable files

@pytest.fixture
def broken(photos, tmp_path, monkeypatch) -> Path:
    "The first file of each split is not an image, and each class has at least one intact file."
    monkeypatch.chdir(tmp_path)
    for split in ('train', 'val'): (photos/split/'ant/0.jpg').write_text('no image')
    return photos


READ = [['demo', 'photos', *SMALL], ['doctor', 'photos', *SMALL, '--stages'],
        ['pack', 'photos', 'packed', '--num-workers=1']]


@pytest.mark.parametrize('words', READ, ids=lambda words: words[0])
def test_an_unreadable_file_is_an_error_that_names_the_options(broken, capsys, words):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith('timmdata: error: cannot read train/ant/0.jpg (index 0): ') and said.count('\n') == 1
    assert 'Use --skip to skip such files' in said and '`timmdata inspect photos`' in said and '--exclude' in said
    assert 'on_error' not in said and 'ImageDataset' not in said


@pytest.mark.parametrize('words', READ, ids=lambda words: words[0])
def test_skipped_files_are_listed(broken, capsys, words):
    assert main([*words, '--skip']) == 0
    said = capsys.readouterr()
    assert 'train/ant/0.jpg' in said.out and 'on_error' not in said.err
    assert words[0] != 'demo' or 'skipped 1 unreadable files: train/ant/0.jpg\n' in said.out
    if words[0] == 'pack': assert [len(ImageDataset('packed', split=split)) for split in ('train', 'val')] == [3, 3]


def test_the_lists_of_inspect_are_taken_by_all_commands(broken, capsys):
    "A list is for the split in its name; `inspect --skip` is allowed, since it reports unreadable files anyway."
    assert main(['inspect', 'photos', '--exact', '--skip']) == 0
    lists = [f'--exclude=inspection/exclude-{split}.json' for split in ('train', 'val')]
    said = capsys.readouterr().out
    assert 'Unreadable: train/ant/0.jpg, val/ant/0.jpg' in said and '--exclude' in said
    for words in READ[1:]: assert main([*words, *lists[:1 if words[0] == 'doctor' else 2]]) == 0
    assert main(['demo', 'photos', '--split=val', *SMALL, lists[1]]) == 0
    assert '3 images in 2 classes' in capsys.readouterr().out
    packed = {split: ImageDataset('packed', split=split) for split in ('train', 'val')}
    for split, pack in packed.items():
        assert sorted(pack.filenames()) == sorted(str(path.relative_to(broken)) for path in (broken/split).glob('*/*.jpg')
                                                  if path.read_bytes().startswith(b'\xff\xd8'))
        assert pack.class_to_idx == ImageFolder(broken/split).class_to_idx
    assert main(['inspect', 'photos', '--exact', '--out=again', *lists]) == 0 and 'Unreadable' not in capsys.readouterr().out


@pytest.mark.parametrize('option, message', [
    ('--exclude=nothing.json', "--exclude 'nothing.json': there is no such file"),
    ('--exclude=photos', "--exclude 'photos': there is no such"),
    ('--exclude=photos/val/bee/0.jpg', 'photos/val/bee/0.jpg does not list names'),
    ('--exclude=half.json', 'half.json does not list names'),
    ('--exclude=other.json', '--exclude: 1 of 1 names match no sample')])
def test_a_list_that_is_none_is_one_line(broken, capsys, option, message):
    Path('half.json').write_text('["a", ')
    Path('other.json').write_text('["a.jpg"]')
    for words in (*READ, ['inspect', 'photos']):
        assert main([*words, option]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count('\n') == 1 and 'exclude=' not in said


def test_nothing_but_unreadable_files_is_an_error(broken, capsys):
    for path in broken.glob('train/*/*.jpg'): path.write_text('no image')
    for words in READ:
        assert main([*words, '--skip', '--split=train']) == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith('timmdata: error: '), words


@pytest.mark.full
def test_demo_looks_at_some_images_of_all_classes(tmp_path, capsys):
    "100 of each of 22 classes are 2,200 images; of the last class, whose files are no images, 91 are loaded."
    (tmp_path/'whole.jpg').write_bytes(JPEG)
    (tmp_path/'broken.jpg').write_text('no image')
    for number in range(22):
        (tmp_path/f'data/{number:02}').mkdir(parents=True)
        for k in range(100): os.link(tmp_path/('broken.jpg' if number == 21 else 'whole.jpg'), tmp_path/f'data/{number:02}/{k}.jpg')
    assert main(['demo', str(tmp_path/'data'), *SMALL, '--batch-size=200', '--skip', f'--out={tmp_path}/batch.png']) == 0
    said = capsys.readouterr().out
    assert 'demo loads 2,000 of 2,200 images, spread over the dataset\n' in said and '2,200 images in 22 classes' in said
    assert re.search('skipped 9[01] unreadable files', said)


# ---- errors

BAD = ['demo nothing', 'demo photos/train/ant/1.jpg', 'demo empty', 'demo photos --split test', 'demo photos --out nodir/x.png',
       'demo photos --num-workers -1', 'demo photos --batch-size 0', 'demo photos --input-size 0', 'demo hf:', 'demo hf:///',
       'demo hf:no/such', 'inspect hf:', 'inspect empty', 'inspect nothing', 'inspect photos --near 99',
       'inspect photos --exact --num-threads 0', 'inspect photos --crop-pct 0', 'inspect bad.csv', 'inspect bad.jsonl',
       'inspect bad.tar', 'pack hf: x', 'pack hf:. x', 'pack photos', 'pack nothing x', 'pack photos .', 'pack photos bad.csv',
       'pack photos x --format gif', 'pack photos x --format jpeg', 'pack photos x --quality 900', 'pack photos --check',
       'pack nothing --check', 'doctor hf:',
       'doctor empty', 'doctor nothing', 'doctor photos --num-workers many', 'doctor photos --num-workers -1',
       'doctor photos --batch-size 0', 'doctor photos --size 0', 'doctor photos --split nothing']


@pytest.mark.parametrize('line', BAD)
def test_a_wrong_command_is_one_line(photos, tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    (tmp_path/'empty').mkdir()
    (tmp_path/'bad.csv').write_text('a,b\n1,2\n')
    (tmp_path/'bad.jsonl').write_text('{')
    (tmp_path/'bad.tar').write_text('no tar')
    before = names(photos)
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith('timmdata: error: ') and said.count('\n') == 1 and 'Traceback' not in said and names(photos) == before
    assert 'split=None' not in said and 'download=True' not in said


@pytest.mark.parametrize('option', ['--images=8', '--rounds=1', '--seconds=9', '--step-ms=20', '--json=x.json', '--mode=eval',
                                    '--worker-type=threads', '--color-jitter=0', '--re-prob=0.5', '--interpolation=bicubic',
                                    '--backend=pillow', '--device=cpu'])
def test_a_setting_of_the_doctor_that_is_no_option_names_the_function_that_takes_it(photos, capsys, option):
    with pytest.raises(SystemExit) as ended: main(['doctor', str(photos), option])
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out
    assert f'unrecognized arguments: {option}. For other settings, call timmdata.measure.diagnose(dataset, ...) in Python' in said.err
    name = option[2:].partition('=')[0].replace('-', '_')
    settings = {*inspect.signature(timmdata.measure.diagnose).parameters, *inspect.signature(create_loader).parameters}
    assert {'images': 'num_images', 'mode': 'is_training'}.get(name, name) in settings or name == 'json'   # Diagnosis.to_json()


@pytest.mark.parametrize('command', ['demo photos', 'inspect photos', 'pack photos', 'buffer status photos'])
def test_other_commands_do_not_name_it(capsys, command):
    with pytest.raises(SystemExit): main([*command.split(), '--seconds=9'])
    assert capsys.readouterr().err.endswith('error: unrecognized arguments: --seconds=9\n')


@pytest.mark.parametrize('size', ['--size', '--input-size'])
def test_the_options_of_the_doctor_are_settings_of_its_loader(photos, capsys, size):
    assert main(['doctor', str(photos), '--stages', size, '16', '--batch-size', '2', '--num-workers', '1']) == 0
    settings = next(line for line in capsys.readouterr().out.splitlines() if line.startswith('samples='))
    assert {'input_size=16', 'batch_size=2', 'num_workers=1', 'is_training=True'} <= set(settings.split(', '))


def test_a_warning_is_one_line(photos, tmp_path, monkeypatch, capsys):
    def warn(*args): warnings.warn("two\nlines, with on_error='skip'", stacklevel=2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('timmdata.datasets.packing.check_pack', lambda root: warn() or [])
    assert main(['pack', 'photos', '--check']) == 0
    assert 'timmdata: warning: two lines, with --skip\n' in capsys.readouterr().err
