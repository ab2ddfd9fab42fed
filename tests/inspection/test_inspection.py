"All planted faults are found, and nothing else; stopped runs resume; file names are shown as plain text."
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tarfile
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from browsers import headless_chromium
from PIL import Image, ImageFilter
from shared_data import shared_data

from timmdata import ImageDataset
from timmdata.cli import main
from timmdata.core.decode import decode_image
from timmdata.core.faults import ImageReadError
from timmdata.datasets.factory import open_splits
from timmdata.inspection import KINDS, inspect, measure_dataset
from timmdata.inspection.similar import group_similar, similar_pairs

pytestmark = pytest.mark.timeout(250)
needs_imagehash = pytest.mark.skipif(find_spec('imagehash') is None, reason='needs imagehash: pip install imagehash')


def draw_photographs(root: Path):
    "Unique pictures: smoothed noise, 320 × 240, four classes in train and val."
    rng = np.random.default_rng(1)
    for name in [f'{split}/{kind}/{k}.jpg' for split, count in (('train', 4), ('val', 1)) for kind in 'abcd' for k in range(count)]:
        (root/name).parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        noise.resize((320, 240), Image.Resampling.BICUBIC).save(root/name, quality=90)


def copy_photographs(root: Path):
    "All of imagenet-200; every tenth image is for validation."
    for k, path in enumerate(sorted(path for path in shared_data('imagenet-200').rglob('*') if path.suffix.lower() in ('.jpg', '.jpeg'))):
        target = root/('val' if k % 10 == 9 else 'train')/path.parent.name/f'{path.stem}.jpg'
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def plant(root: Path) -> dict[str, set[str]]:
    "Plant faults as they occur in practice; return finding → names of all files that it should list."
    folders = [path for path in sorted((root/'train').iterdir()) if path.is_dir()]
    here, other = folders[:2]
    def is_usual(path): return Image.open(path).mode == 'RGB' and min(Image.open(path).size) > 200
    first, second, third, fourth = random.Random(0).sample(sorted(filter(is_usual, (root/'train').rglob('*.jpg'))), 4)
    photograph = Image.open(first).convert('RGB')
    (here/'p-truncated.jpg').write_bytes(second.read_bytes()[:3 * second.stat().st_size // 5])
    (here/'p-empty.jpg').write_bytes(b'')
    (here/'p-text.jpg').write_text('This is no photograph.\n' * 9)
    shutil.copyfile(first, first.with_name('p-copy.jpg'))
    Image.open(second).convert('RGB').resize((200, 160)).save(second.with_name('p-again.jpg'), quality=50)
    shutil.copyfile(third, (other if third.parent != other else here)/'p-label.jpg')
    (root/'val'/fourth.parent.name).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(fourth, root/'val'/fourth.parent.name/'p-seen.jpg')
    Image.new('RGB', (300, 300), (250, 250, 250)).save(here/'p-blank.jpg')
    rng = np.random.default_rng(7)
    def fresh(*shape): return Image.fromarray(rng.integers(0, 256, shape, np.uint8)).filter(ImageFilter.GaussianBlur(1))
    fresh(20, 24, 3).save(here/'p-tiny.png')
    fresh(300, 310, 3).save(here/'p-cmyk.jpg')
    Image.open(here/'p-cmyk.jpg').convert('CMYK').save(here/'p-cmyk.jpg')
    fresh(300, 320).save(here/'p-gray.jpg')
    Image.fromarray(rng.integers(0, 65536, (300, 330), np.uint16)).save(here/'p-sixteen.png')
    fresh(300, 340, 3).save(here/'p-animated.png', save_all=True, append_images=[fresh(300, 340, 3)])
    exif = Image.Exif()
    exif[0x0112] = 6
    fresh(300, 350, 3).save(here/'p-turned.jpg', exif=exif)
    fresh(100, 900, 3).resize((1800, 300)).save(here/'p-wide.jpg')
    fresh(300, 360, 3).save(here/'p-png.jpg', 'png')
    photograph.close()
    name = {path.name: path.relative_to(root).as_posix() for path in root.rglob('p-*')}
    def names(*paths): return {path.relative_to(root).as_posix() for path in paths}
    return {
        'unreadable': {name['p-truncated.jpg'], name['p-empty.jpg'], name['p-text.jpg']}, 'blank': {name['p-blank.jpg']},
        'duplicate': {name['p-copy.jpg'], *names(first)}, 'near_duplicate': {name['p-again.jpg'], *names(second)},
        'conflict': {name['p-label.jpg'], *names(third)}, 'leak': {name['p-seen.jpg'], *names(fourth)},
        'tiny': {name['p-tiny.png']}, 'animated': {name['p-animated.png']}, 'rotated': {name['p-turned.jpg']},
        'mode': {name['p-cmyk.jpg'], name['p-gray.jpg'], name['p-sixteen.png']}, 'cut': {name['p-wide.jpg']},
        'misnamed': {name['p-png.jpg']}}


def named(found, kind: str) -> set[str]: return {name.replace(os.sep, '/') for _, name in found.rows(kind)}


def test_planted_faults_are_found(tmp_path):
    "Without similar pictures, only planted faults are found."
    draw_photographs(tmp_path/'data')
    planted = plant(tmp_path/'data')
    found = inspect(tmp_path/'data', tmp_path/'out', exact=True, progress=False)
    similar = {'near_duplicate', 'near_leak', 'near_conflict'}
    for kind in set(KINDS) - {'upscaled', *similar}: assert named(found, kind) == planted.get(kind, set()), kind
    assert not any(map(found.rows, similar))
    report = json.loads((tmp_path/'out/report.json').read_text(encoding='utf-8'))
    notes = {group['samples'][0]['name'].rpartition('-')[2]: group['note'] for one in report['findings'] for group in one['groups']
             if one['kind'] in ('unreadable', 'mode')}
    for path in (tmp_path/'data/train').glob('*/p-*.jpg'):   # what training would say
        if path.name not in ('p-empty.jpg', 'p-text.jpg', 'p-truncated.jpg'): continue
        with pytest.raises(ImageReadError) as refused: decode_image(path.read_bytes())
        assert notes[path.name[2:]] == str(refused.value)
    assert 'the file is empty' in notes['empty.jpg'] and 'truncated' in notes['truncated.jpg']
    assert notes['text.jpg'].endswith("begins with b'This is no photo'")
    assert notes['cmyk.jpg'] == 'CMYK' and notes['gray.jpg'] == 'L' and notes['sixteen.png'].startswith('I;16')


@pytest.mark.full
@needs_imagehash
def test_planted_faults_among_photographs_are_found(tmp_path):
    "All of them are found, including similar ones; photos with another finding had it before."
    copy_photographs(tmp_path/'data')
    before = inspect(tmp_path/'data', tmp_path/'before', progress=False)
    planted = plant(tmp_path/'data')
    found = inspect(tmp_path/'data', tmp_path/'out', progress=False)
    for kind in set(KINDS) - {'upscaled'}:
        assert named(found, kind) - named(before, kind) == planted.get(kind, set()) - named(before, kind), kind
        assert planted.get(kind, set()) <= named(found, kind), kind
    assert not named(before, 'near_duplicate') | named(before, 'unreadable') | named(before, 'duplicate') | named(before, 'leak')
    kept = ImageDataset(tmp_path/'data', exclude=tmp_path/'out/exclude-train.json')
    assert kept.class_to_idx == ImageDataset(tmp_path/'data').class_to_idx
    assert len(kept) == len(ImageDataset(tmp_path/'data')) - 3 - 1 - 1 - 1 - 2   # unreadable, blank, copy, seen, two labels


@needs_imagehash
def test_similar_pictures_in_two_splits_and_under_two_labels(tmp_path):
    draw_photographs(tmp_path/'data')
    for source, target in (('train/a/0', 'val/a/p0'), ('train/b/0', 'train/c/p0')):
        Image.open(tmp_path/f'data/{source}.jpg').resize((256, 192)).save(tmp_path/f'data/{target}.jpg', quality=60)
    found = inspect(tmp_path/'data', tmp_path/'out', progress=False)
    assert named(found, 'near_leak') == {'train/a/0.jpg', 'val/a/p0.jpg'}
    assert named(found, 'near_conflict') == {'train/b/0.jpg', 'train/c/p0.jpg'}
    assert not found.rows('near_duplicate') and not found.exclude('train') and found.exclude('train', ['near_leak']) == ['train/a/0.jpg']


def test_without_imagehash_all_else_is_looked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'imagehash', None)
    draw_photographs(tmp_path/'data')
    (tmp_path/'data/train/a/bad.jpg').write_text('no photo')
    with pytest.warns(UserWarning, match=r'similar images, which requires imagehash: pip install imagehash'):
        found = inspect(tmp_path/'data', tmp_path/'out', progress=False)
    assert named(found, 'unreadable') == {'train/a/bad.jpg'} and 'not searched for' in (tmp_path/'out/report.html').read_text()
    with pytest.raises(ImportError, match='similar images'): inspect(tmp_path/'data', tmp_path/'out', exact=False, progress=False)


def test_a_changed_file_is_looked_at_again(tmp_path):
    draw_photographs(tmp_path/'data')
    looked = []
    def look(): return measure_dataset(ImageDataset(tmp_path/'data'), tmp_path/'train.npy', lambda gray: looked.append(1) or 1)
    look()
    assert len(looked) == 16
    Image.new('RGB', (50, 40)).save(tmp_path/'data/train/b/1.jpg')
    table = look()
    assert len(looked) == 17 and (table['width'] == 50).sum() == 1
    (tmp_path/'data/train/b/2.jpg').unlink()   # another data set: a new table
    assert len(look()) == 15 and len(looked) == 17 + 15


def test_a_killed_run_goes_on(tmp_path):
    "Rows written before a process was killed are in the table."
    draw_photographs(tmp_path/'data')
    looked = []
    def look_and_die(gray):
        looked.append(1)
        if len(looked) == 6: os.kill(os.getpid(), signal.SIGKILL)
        return 1
    def look(): return measure_dataset(ImageDataset(tmp_path/'data'), tmp_path/'train.npy', look_and_die, num_threads=1)
    process = multiprocessing.get_context('fork').Process(target=look)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL and (np.load(tmp_path/'train.npy')['key'] != 0).sum() == 5
    looked[:] = [1] * 6
    assert look()['key'].all() and len(looked) == 6 + 16 - 5


def test_a_table_that_does_not_fit_is_an_error(tmp_path, monkeypatch):
    draw_photographs(tmp_path/'data')
    def full(*arguments): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, 'posix_fallocate', full)
    for _ in range(2):   # and no half of one is taken for a table later
        with pytest.raises(OSError, match='No space left'): measure_dataset(ImageDataset(tmp_path/'data'), tmp_path/'train.npy')
    monkeypatch.undo()
    assert measure_dataset(ImageDataset(tmp_path/'data'), tmp_path/'train.npy')['key'].all()


def test_the_command_names_files_and_gives_the_lines_to_paste(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw_photographs(tmp_path/'mine')
    for k in range(6): (tmp_path/f'mine/train/a/broken\x1b{k}.jpg').write_bytes(b'')
    shutil.copyfile('mine/val/a/0.jpg', 'mine/val/b/same.jpg')
    assert main(['inspect', 'mine', '--exact', '--out', 'found/here']) == 0
    lines = capsys.readouterr().out.splitlines()
    unreadable = ', '.join(f'train/a/broken\\x1b{k}.jpg' for k in range(5))
    assert f'Unreadable: {unreadable}, …' in lines and 'Two labels: val/a/0.jpg, val/b/same.jpg' in lines
    calls = [line.strip() for line in lines if 'ImageDataset(\'' in line]
    assert [call.partition('   #')[0] for call in calls] == [
        "ImageDataset('mine', exclude='found/here/exclude-train.json')",
        "ImageDataset('mine', split='val', exclude='found/here/exclude-val.json')"]
    assert [len(eval(call)) for call in calls] == [16, 3]


@pytest.mark.full
def test_the_page_fits_and_runs_nothing(tmp_path):
    "In a browser, on a desktop and on a phone: pictures are shown, and the page sends no request."
    draw_photographs(tmp_path/'data')
    plant(tmp_path/'data')
    (tmp_path/'data/train/a').rename(tmp_path/'data/train'/HOSTILE.replace('/', '').replace('alert(1)', "document.title='run'"))
    inspect(tmp_path/'data', tmp_path/'out', exact=True, progress=False)
    with headless_chromium() as chromium:
        for width in (1280, 390):
            page, requests = chromium.new_page(viewport=dict(width=width, height=800)), []
            page.on('request', lambda request, requests=requests: requests.append(request.url))
            page.goto((tmp_path/'out/report.html').as_uri())
            assert page.evaluate('document.documentElement.scrollWidth') <= width and page.title().startswith('Inspection of ')
            page.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
            page.wait_for_function('[...document.images].every(image => image.complete && image.naturalWidth)')
            assert not [url for url in requests if not url.startswith(('data:', 'file:'))] and page.locator('img').count() > 20


HOSTILE = '<img src=x onerror=alert(1)>"\'&\u202egpj\n'


class Tags(HTMLParser):
    "Return what a browser renders."
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = set(), [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
    def handle_data(self, data): self.text.append(data)


def test_hostile_names_are_text(tmp_path):
    draw_photographs(tmp_path/'data')
    for split in ('train', 'val'): (tmp_path/f'data/{split}/a').rename(tmp_path/f'data/{split}'/HOSTILE.replace('/', ''))
    hostile = tmp_path/'data/train'/HOSTILE.replace('/', '')
    (hostile/os.fsdecode(b'<b>\xff.jpg')).write_bytes(b'<script>alert(1)</script>')
    shutil.copyfile(hostile/'0.jpg', hostile/'<i>.jpg')
    found = inspect(tmp_path/'data', tmp_path/'<u>', exact=True, progress=False)
    page = Tags()
    page.feed((tmp_path/'<u>/report.html').read_text(encoding='utf-8'))
    assert not page.tags & {'script', 'b>', 'i>', 'u'} and 'onerror' not in page.attributes
    text = ''.join(page.text)
    assert '<img src=x onerror=alert(1)>' in text and '\\u202egpj\\n' in text and '\\udcff' in text and '\u202e' not in text
    names = found.exclude('train')
    assert len(names) == 2 and len(ImageDataset(tmp_path/'data', exclude=names)) == 16
    assert len(ImageDataset(tmp_path/'data', exclude=tmp_path/'<u>/exclude-train.json')) == 16   # the same by the file


def test_the_command_line_reads_folders_tars_and_tables(tmp_path, capsys):
    draw_photographs(tmp_path/'data')
    (tmp_path/'data/train/a/0.jpg').write_bytes(b'')
    names = sorted(path.relative_to(tmp_path/'data').as_posix() for path in (tmp_path/'data').rglob('*.jpg'))
    rows = [f'{name},{name.split("/")[1]},{name.split("/")[0]}' for name in names]
    (tmp_path/'data/labels.csv').write_text('\n'.join(['path,target,split', *rows]))
    with tarfile.open(tmp_path/'data.tar', 'w') as tar:
        for split in ('train', 'val'): tar.add(tmp_path/'data'/split, split)
    for source in ('data', 'data/labels.csv', 'data.tar'):
        out = tmp_path/f'out-{Path(source).name}'
        assert main(['inspect', str(tmp_path/source), '--exact', '--out', str(out)]) == 0
        said = capsys.readouterr().out
        assert '20 samples (train: 16, val: 4)' in said and 'Unreadable: 1' in said, source
        listed = json.loads((out/'exclude-train.json').read_text(encoding='utf-8'))
        assert len(ImageDataset(tmp_path/source, exclude=list(listed))) == 15 and not json.loads((out/'exclude-val.json').read_text())
    assert main(['inspect', str(tmp_path/'nowhere'), '--exact']) == 2
    assert main(['inspect', str(tmp_path/'data'), '--split', 'test', '--exact']) == 2
    assert "there is no split 'test'" in capsys.readouterr().err


def test_a_data_set_of_hugging_face_is_opened_by_name(tmp_path):
    datasets = pytest.importorskip('datasets')
    images = [Image.fromarray(np.random.default_rng(k).integers(0, 256, (40, 50, 3), np.uint8)) for k in range(6)]
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=['ant', 'bee']))
    def table(low): return datasets.Dataset.from_dict(dict(image=images[low:low + 3], label=[0, 1, 1]), features)
    datasets.DatasetDict(train=table(0), test=table(2)).save_to_disk(tmp_path/'saved')
    found = inspect(open_splits(f'hf:{tmp_path/"saved"}'), tmp_path/'out', exact=True, progress=False)
    assert len(found.survey) == 6 and {split for split, _ in found.rows('leak')} == {'train', 'test'}
    assert len(ImageDataset(None, f'hfds/{tmp_path/"saved"}', exclude=tmp_path/'out/exclude-train.json')) == 2


@pytest.mark.full
def test_half_a_million_hashes_are_not_compared_all_with_all():
    "Random hashes with planted neighbors; comparing all pairs would take 10¹¹ comparisons."
    rng = np.random.default_rng(0)
    hashes = np.unique(rng.integers(0, 2**64, 500_000, np.uint64, endpoint=False))
    near = hashes[:1000] ^ (np.uint64(0b1011) << np.uint64(20)) ^ (np.uint64(1) << np.uint64(60))
    pairs = similar_pairs(np.concatenate([hashes, near]), 4)
    wanted = {(k, len(hashes) + k) for k in range(1000)}
    assert wanted <= set(map(tuple, pairs.tolist())) and len(pairs) < 1100
    assert max(map(len, group_similar(np.repeat(hashes[:50], 2000), 4))) == 2000   # copies cost nothing
