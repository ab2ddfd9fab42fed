"A cache: batches without it as oracle; files that change, ranks that come at once, programs that are killed, memory given back."
import io
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from loader_parts import program
from PIL import Image

from timmdata import ImageDataset, create_loader
from timmdata.core.faults import ImageReadError
from timmdata.datasets.cache import CacheSettings, cached_dataset, remove_unread
from timmdata.datasets.image_dataset import IterableImageDataset

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope='module')
def val(samples) -> ImageDataset: return ImageDataset(samples, split='val')


def batches(dataset, **settings) -> list:
    settings = dict(is_training=True, seed=7, num_workers=0, device='cpu', dct_scaling=None if 'cache' in settings else False) | settings
    with create_loader(dataset, 48, 16, **settings) as loader:
        return [(images.clone(), targets.clone()) for _ in range(2) for images, targets in loader]


def same(one, other) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(one, other))


@pytest.mark.parametrize('settings', [
    {}, dict(is_training=False), dict(backend='pillow'), dict(auto_augment='rand-m9-mstd0.5', re_prob=0.5), dict(num_aug_splits=2),
    dict(num_workers=2, workers='threads'), dict(num_workers=2, workers='processes'), dict(num_workers=2, multiprocessing_context='spawn')],
    ids=str)
def test_batches_are_those_without_it(val, tmp_path, settings):
    if settings.get('is_training') is False: settings = {**settings, 'dct_scaling': None}
    cache = {'where': 'disk', 'directory': tmp_path}
    assert same(batches(val, cache=cache, **settings), batches(val, **settings))


def test_a_second_loader_decodes_nothing(val, tmp_path, monkeypatch):
    cache = {'where': 'disk', 'directory': tmp_path}
    expected = batches(val, cache=cache)
    from timmdata.core import jpeg
    monkeypatch.setattr(jpeg, 'decode_header', lambda *args, **kwargs: pytest.fail('decoded'))
    assert same(batches(val, cache=cache), expected)
    assert len(list(tmp_path.glob('*.lock'))) == 1


def test_a_state_fits_with_and_without(val, tmp_path):
    plain = create_loader(val, 48, 16, is_training=True, seed=7, num_workers=0, device='cpu', dct_scaling=False)
    expected = [images.clone() for images, _ in plain]
    plain.set_epoch(0)
    next(iter(plain))
    cached = create_loader(val, 48, 16, is_training=True, seed=7, num_workers=0, device='cpu', cache={'directory': tmp_path})
    cached.load_state_dict(plain.state_dict())
    assert all(torch.equal(images, other) for (images, _), other in zip(cached, expected[1:], strict=True))


def copied(samples, folder: Path) -> Path:
    for path in sorted((samples/'val').glob('c*/000[0-3].jpg')):
        (folder/path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder/path.parent.name)
    return folder


def test_several_readers_share_it(val, tmp_path):
    settings = CacheSettings(directory=tmp_path)
    first, second = (cached_dataset(val, settings, num_workers=0) for _ in range(2))
    del first
    remove_unread(tmp_path)
    assert second[0][0].tobytes() == val[0][0].tobytes()
    part = ImageDataset.__new__(ImageDataset)   # a copy, as exclude= makes one, keeps it
    part.__dict__ = {**second.__dict__, 'reader': second.reader.select(np.arange(3), None, second.class_to_idx)}
    del second
    remove_unread(tmp_path)
    assert len(part) == 3 and part[2][0].tobytes() == val[2][0].tobytes()
    del part
    assert not list(tmp_path.iterdir())


def test_a_file_that_changes_is_seen(samples, tmp_path):
    root = copied(samples, tmp_path/'photos')
    settings = CacheSettings(where='disk', directory=tmp_path/'cache')
    def read():
        dataset = cached_dataset(ImageDataset(root, split=None), settings, 'pillow', num_workers=0)
        return [image.tobytes() for image, _ in dataset]

    before, path = read(), next(root.glob('*/*.jpg'))
    image = Image.open(path).convert('RGB').rotate(180)
    stat = path.stat()
    image.save(path)   # the same name
    after = read()
    assert sum(one != other for one, other in zip(before, after)) == 1
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert read() == after and len(list((tmp_path/'cache').glob('*.lock'))) == 3


@pytest.mark.parametrize('end', ['ends', 'is killed'])
def test_memory_is_given_back(val, tmp_path, end):
    run = program(f'''
import os
from timmdata import ImageDataset, create_loader
loader = create_loader(ImageDataset({str(val.root)!r}, split='val'), 32, 8, num_workers=2, device='cpu',
                       cache={{'where': 'memory', 'directory': {str(tmp_path)!r}}})
next(iter(loader))
print('reads', flush=True)
if {end == 'is killed'}: os.kill(os.getpid(), 9)
''')
    try:
        run.wait_for('reads')
        run.end()
    finally: run.kill()
    if end == 'is killed':
        assert len(list(tmp_path.iterdir())) == 2
        deadline = time.monotonic() + 20
        while list(tmp_path.iterdir()) and time.monotonic() < deadline:   # until its workers have ended
            remove_unread(tmp_path)
            time.sleep(0.1)
    assert not list(tmp_path.iterdir())


RANK = '''
from timmdata import ImageDataset, create_loader
loader = create_loader(ImageDataset({root!r}, split='val'), 32, 8, num_workers=0, device='cpu', cache={{'directory': {out!r}}})
print(sum(int(targets.sum()) for _, targets in loader), flush=True)
'''


def test_ranks_make_it_once(val, tmp_path):
    runs = [program(RANK.format(root=str(val.root), out=str(tmp_path))) for _ in range(3)]
    try: assert [run.end(60)[:2] for run in runs] == [(0, f'{sum(val.targets)}\n')] * 3
    finally:
        for run in runs: run.kill()
    assert not list(tmp_path.iterdir())


def test_a_cache_that_was_killed_goes_on(val, tmp_path, monkeypatch):
    from timmdata.datasets import packing
    monkeypatch.setattr(packing, '_SHARD_BYTES', 4_000_000)
    code = RANK.format(root=str(val.root), out=str(tmp_path))
    run = program(code.replace('from timmdata import', '''from timmdata.datasets import packing
packing._SHARD_BYTES = 4_000_000
import os
save, done = packing._save_json, []
def killing(path, value, folder):
    save(path, value, folder)
    done.append(path)
    if len(done) == 4: os.kill(os.getpid(), 9)
packing._save_json = killing
from timmdata import'''))
    try: assert run.end(60)[0] == -9
    finally: run.kill()
    [root] = [path for path in tmp_path.iterdir() if path.is_dir()]
    there = {path.name: path.stat().st_mtime_ns for path in root.glob('*.tar')}
    assert there
    settings = CacheSettings(where='disk', directory=tmp_path)
    cached = cached_dataset(val, settings, num_workers=0)
    assert there.items() <= {path.name: path.stat().st_mtime_ns for path in root.glob('*.tar')}.items() and len(cached) == len(val)


def test_bad_files_and_bad_settings(samples, val, tmp_path):
    root = copied(samples, tmp_path/'photos')
    path = next(root.glob('*/*.jpg'))
    path.write_bytes(path.read_bytes()[:3000])
    cache = {'directory': tmp_path/'cache'}
    with pytest.raises(ImageReadError, match=path.name): create_loader(ImageDataset(root, split=None), 32, 4, cache=cache)
    assert not list((tmp_path/'cache').iterdir())
    with pytest.warns(RuntimeWarning, match='skipped'):
        skipping = create_loader(ImageDataset(root, split=None, on_error='skip'), 32, 4, cache=cache, device='cpu')
    assert len(skipping.dataset) == len(list(root.glob('*/*.jpg'))) - 1
    def refused(message, dataset=val, kind=ValueError, **settings):
        with pytest.raises(kind, match=message): create_loader(dataset, 32, 4, **settings)
    refused('0.02 are allowed', cache={**cache, 'limit': '20MB'})
    refused('allowed are device, memory, disk', cache='ram')
    refused('cloud', cache={'where': 'cloud'})
    refused('unexpected', cache={'wher': 'disk'}, kind=TypeError)
    refused('cache and dct_scaling cannot be used together', cache='memory', dct_scaling=True, is_training=True)
    refused('this is a Subset', torch.utils.data.Subset(val, [0, 1]), TypeError, cache=cache)
    refused('cannot see whether the data of a list', ImageDataset('', [(b'', 0)]), cache=cache)
    refused('a stream and cache', IterableImageDataset(reader=[]), cache='memory')
    refused('has a transform', ImageDataset(samples, split='val', transform=lambda image: image), cache=cache)


def test_a_folder_of_another_user_is_refused(val, tmp_path, monkeypatch):
    monkeypatch.setattr(os, 'getuid', lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ValueError, match='belongs to another user'): cached_dataset(val, CacheSettings(directory=tmp_path), num_workers=0)


def test_it_may_be_smaller(val, tmp_path):
    settings = CacheSettings(directory=tmp_path, short_side=100)
    small = cached_dataset(val, settings, 'pillow', num_workers=0)
    image = val[3][0]
    scale = 100 / min(image.size)
    size = tuple(max(100, int(edge * scale)) for edge in image.size)
    assert small[3][0].tobytes() == image.resize(size, Image.Resampling.BICUBIC).tobytes()
    file = io.BytesIO(bytes(small.reader[3][0]))
    assert Image.open(file).format == 'PPM' and small.filenames() == val.filenames()
