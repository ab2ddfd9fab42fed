"Caches: compared with batches without one; changed files, ranks that start together, killed programs, and freed memory."
import copy
import gc
import io
import os
import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from grids import few, full, quick
from loader_parts import program
from PIL import Image
from PIL.JpegImagePlugin import get_sampling

from timmdata import ImageDataset, create_loader
from timmdata.core.faults import ImageReadError
from timmdata.datasets.cache import CacheSettings, cached_dataset, remove_unread
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.datasets.image_sizes import image_sizes
from timmdata.datasets.relabel import relabel
from timmdata.datasets.wrappers import fingerprint

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope='module')
def val(samples) -> ImageDataset: return ImageDataset(samples, split='val')


def batches(dataset, **settings) -> list:
    settings = dict(is_training=True, seed=7, num_workers=0, device='cpu', scaled_decode=None if 'cache' in settings else False) | settings
    with create_loader(dataset, 48, 16, **settings) as loader:
        return [(images.clone(), targets.clone()) for _ in range(2) for images, targets in loader]


def same(one, other) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(one, other))


@quick(1, 'settings', [
    {}, dict(is_training=False), dict(backend='pillow'), dict(auto_augment='rand-m9-mstd0.5', re_prob=0.5), dict(num_aug_splits=2),
    dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes'),
    dict(num_workers=2, multiprocessing_context='spawn')],
    ids=str)
def test_batches_are_those_without_it(val, tmp_path, settings):
    if settings.get('is_training') is False: settings = {**settings, 'scaled_decode': None}
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
    plain = create_loader(val, 48, 16, is_training=True, seed=7, num_workers=0, device='cpu', scaled_decode=False)
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


COPIES = {
    'relabel': lambda cached: relabel(cached, {name: name for name in cached.class_to_idx}),
    'Subset': lambda cached: torch.utils.data.Subset(cached, range(len(cached))),
    'copy': copy.copy, 'deepcopy': copy.deepcopy,
    'copy of a copy': lambda cached: copy.copy(copy.copy(cached))}


@quick(1, 'kind', COPIES)
def test_copies_hold_it(val, tmp_path, kind):
    "The loader and its dataset are deleted: the copy still reads, and the cache is removed with the last copy."
    cache = {'directory': tmp_path}
    folder = CacheSettings(**cache).folder
    loader = create_loader(val, 48, 16, num_workers=0, device='cpu', cache=cache)
    kept = COPIES[kind](loader.dataset)
    expected = val[len(val) - 1][0].tobytes()
    del loader
    gc.collect()
    remove_unread(folder)
    assert kept[len(val) - 1][0].tobytes() == expected and len(list(folder.iterdir())) == 2
    sent = pickle.loads(pickle.dumps(kept))   # as a worker has it: it reads, and holds nothing
    assert sent[len(val) - 1][0].tobytes() == expected
    del kept
    gc.collect()
    assert not list(folder.iterdir())


@quick(1, 'workers', [dict(worker_type='threads'), dict(worker_type='processes'), dict(multiprocessing_context='spawn')], ids=str)
def test_workers_read_a_copy(val, tmp_path, workers):
    "A cache stays when a worker ends."
    cache = {'directory': tmp_path}
    folder = CacheSettings(**cache).folder
    first = create_loader(val, 48, 16, num_workers=0, device='cpu', cache=cache)
    names = {name: name for name in first.dataset.class_to_idx}
    loader = create_loader(relabel(first.dataset, names), 48, 16, num_workers=2, device='cpu', **workers)
    del first
    gc.collect()
    for _ in range(2): assert sum(len(targets) for _, targets in loader) == len(val)
    loader.close()
    assert len(list(folder.iterdir())) == 2
    del loader
    gc.collect()
    assert not list(folder.iterdir())


def test_what_is_not_a_cache_stays(val, tmp_path):
    "Locks and folders of other programs are not touched; a cache on disk has no reader and stays."
    (tmp_path/'poetry').mkdir()
    for name in ('poetry.lock', 'poetry/venv'): (tmp_path/name).touch()
    tmp_path.chmod(0o755)   # an ordinary folder: what is in memory has a private one in it
    settings, key = CacheSettings(directory=tmp_path), '0123456789abcdef' * 2
    cached_dataset(val, CacheSettings(where='disk', directory=tmp_path), num_workers=0)
    settings.folder.mkdir(mode=0o700)
    for name in ('b.lock', f'{key}.lock'): (settings.folder/name).mkdir()   # folders
    (settings.folder/'b').mkdir()
    before = sorted(tmp_path.rglob('*'))
    cached = cached_dataset(val, settings, num_workers=0)
    assert cached[3][0].tobytes() == val[3][0].tobytes() and settings.folder.stat().st_mode & 0o777 == 0o700
    del cached
    assert sorted(tmp_path.rglob('*')) == before


def test_leftovers_go_with_all_that_is_in_them(val, tmp_path):
    "What a program leaves if it is killed before it packs, while it packs, and while it removes; links are not followed."
    settings, mine = CacheSettings(directory=tmp_path/'made'/'here'), tmp_path/'mine'
    settings.folder.mkdir(mode=0o700, parents=True)
    mine.mkdir()
    (mine/'file').touch()
    for digit in '0123': (settings.folder/f'{digit * 32}.lock').touch()
    for digit in '12': (settings.folder/(digit * 32)/'.packing-cache').mkdir(parents=True)
    (settings.folder/('2' * 32)/'.packing-cache'/'0.json').touch()
    (settings.folder/('3' * 32)).symlink_to(mine)
    remove_unread(settings.folder)
    assert sorted(path.name[:1] for path in settings.folder.iterdir()) == ['3', '3'] and list(mine.iterdir()) == [mine/'file']


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


@full
@pytest.mark.parametrize('end', ['ends', 'is killed'])
def test_memory_is_given_back(val, tmp_path, end):
    folder = CacheSettings(directory=tmp_path).folder
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
        assert len(list(folder.iterdir())) == 2
        deadline = time.monotonic() + 20
        while list(folder.iterdir()) and time.monotonic() < deadline:   # until its workers have ended
            remove_unread(folder)
            time.sleep(0.1)
    assert not list(folder.iterdir())


RANK = '''
from timmdata import ImageDataset, create_loader
loader = create_loader(ImageDataset({root!r}, split='val'), 32, 8, num_workers=0, device='cpu', cache={{'directory': {out!r}}})
print(sum(int(targets.sum()) for _, targets in loader), flush=True)
'''


@full
def test_ranks_make_it_once(val, tmp_path):
    runs = [program(RANK.format(root=str(val.root), out=str(tmp_path))) for _ in range(3)]
    try: assert [run.end(60)[:2] for run in runs] == [(0, f'{sum(val.targets)}\n')] * 3
    finally:
        for run in runs: run.kill()
    assert not list(CacheSettings(directory=tmp_path).folder.iterdir())


@full
def test_a_cache_that_was_killed_goes_on(val, tmp_path, monkeypatch):
    from timmdata.datasets import packing
    monkeypatch.setattr(packing, '_SHARD_BYTES', 4_000_000)
    code = RANK.format(root=str(val.root), out=str(tmp_path)).replace("cache={", "cache={'where': 'disk', ")
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
    assert not list(CacheSettings(**cache).folder.iterdir())
    skipping = create_loader(ImageDataset(root, split=None, on_error='skip'), 32, 4, cache=cache, device='cpu')
    assert len(skipping.dataset) == len(list(root.glob('*/*.jpg')))   # a row for each
    with pytest.warns(RuntimeWarning, match='skipped'): assert sum(len(targets) for _, targets in skipping) == len(skipping.dataset) - 1
    def refused(message, dataset=val, kind=ValueError, **settings):
        with pytest.raises(kind, match=message): create_loader(dataset, 32, 4, **settings)
    refused('only 20 MB are allowed', cache={**cache, 'limit': '20MB'})
    refused("must be 'device', 'memory', 'disk' or a dict", cache='ram')
    refused('cloud', cache={'where': 'cloud'})
    refused("format='jpeg' added restart markers.*use format='keep', which encodes smaller JPEGs", cache={**cache, 'format': 'jpeg'})
    refused("no argument 'wher': did you mean where", cache={'wher': 'disk'}, kind=TypeError)
    refused('cache and scaled_decode cannot be used together', cache='memory', scaled_decode=True, is_training=True)
    refused('dataset has type Subset', torch.utils.data.Subset(val, [0, 1]), TypeError, cache=cache)
    refused('cannot detect whether the data of list', ImageDataset('', [(b'', 0)]), cache=cache)
    refused('a stream and cache', IterableImageDataset(reader=[]), cache='memory')
    refused('has a transform', ImageDataset(samples, split='val', transform=lambda image: image), cache=cache)


def test_a_folder_of_another_user_is_refused(val, tmp_path, monkeypatch):
    monkeypatch.setattr(os, 'getuid', lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ValueError, match='belongs to another user'): cached_dataset(val, CacheSettings(directory=tmp_path), num_workers=0)


@pytest.mark.parametrize('link', [False, True])
def test_a_folder_that_others_have_planted_is_refused(val, tmp_path, link):
    "The folder may be a link or open to other users, as is possible in /dev/shm."
    settings, planted = CacheSettings(directory=tmp_path), tmp_path/'planted'
    planted.mkdir(mode=0o700)
    if link: settings.folder.symlink_to(planted)
    else:
        settings.folder.mkdir()
        settings.folder.chmod(0o777)
    with pytest.raises(ValueError, match='it is a link' if link else 'others may open it'): cached_dataset(val, settings, num_workers=0)
    assert not list(planted.iterdir())


@quick(1, 'where', ['memory', 'disk'])
def test_a_folder_that_cannot_be_written_is_named(val, tmp_path, where):
    "A directory that cannot be written, and a full disk, imitated by a limit on file size."
    resource = pytest.importorskip('resource')
    (tmp_path/'file').touch()
    with pytest.raises(OSError, match=r'cannot write a cache to .*/file/below.*Not a directory.*pass a writable directory'):
        cached_dataset(val, CacheSettings(where=where, directory=tmp_path/'file'/'below'), num_workers=0)
    settings, limits = CacheSettings(where=where, directory=tmp_path/'full'), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r'cannot write a cache to .*/full.*File too large.*has room'):
            cached_dataset(val, settings, num_workers=0)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if where == 'memory': assert not list(settings.folder.iterdir())
    assert cached_dataset(val, settings, num_workers=0)[3][0].tobytes() == val[3][0].tobytes()   # once there is room


def test_it_may_be_smaller(val, tmp_path):
    settings = CacheSettings(directory=tmp_path, short_side=100)
    small = cached_dataset(val, settings, 'pillow', num_workers=0)
    image = val[3][0]
    scale = 100 / min(image.size)
    size = tuple(max(100, int(edge * scale)) for edge in image.size)
    assert small[3][0].tobytes() == image.resize(size, Image.Resampling.BICUBIC).tobytes()
    file = io.BytesIO(bytes(small.reader[3][0]))
    assert Image.open(file).format == 'PPM' and small.filenames() == val.filenames()
    kept = cached_dataset(val, CacheSettings(directory=tmp_path, short_side=100, format='keep'), 'pillow', num_workers=0)
    encoded, subsampling = io.BytesIO(), get_sampling(Image.open(io.BytesIO(val.reader[3][0])))
    image.resize(size, Image.Resampling.BICUBIC).save(encoded, 'JPEG', quality=90, subsampling=subsampling)
    assert bytes(kept.reader[3][0]) == encoded.getvalue()


# ---- unreadable files: the cache has a row for each sample, so that samplers find those that they chose

@pytest.fixture
def damaged(tmp_path) -> Path:
    "Two classes of eight images; each image has one color, which identifies it in a batch; three cannot be read."
    for k in range(16):
        path = tmp_path/'data'/'ab'[k // 8]/f'{k:02}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (40, 40), (k * 10, 0, 0)).save(path)
    for name in 'a/00.png', 'a/05.png', 'b/11.png': (tmp_path/'data'/name).write_bytes(b'damaged')
    return tmp_path/'data'


def run(root, cache, on_error, exclude=None, **settings):
    "Return the batches of two epochs, the log, and the length that the sampler got."
    dataset = ImageDataset(root, split=None, on_error=on_error, exclude=exclude)
    settings = dict(is_training=True, seed=3, num_workers=0, device='cpu', no_aug=True, scaled_decode=False, cache=cache) | settings
    with create_loader(dataset, 40, 4, **settings) as loader:
        found = [(images.clone(), targets.clone()) for _ in range(2) for images, targets in loader]
        return found, dataset.bad_samples, len(loader.dataset), len(loader)


def skipping(root, cache):
    dataset = ImageDataset(root, split=None, on_error='skip')
    return create_loader(dataset, 40, 4, is_training=True, seed=3, num_workers=0, device='cpu', scaled_decode=False, cache=cache)


SETTINGS = [
    {}, dict(is_training=False), dict(drop_last=False), dict(weights=[1.] * 8 + [0.] * 8), dict(weights=[0.] * 8 + [1.] * 8),
    dict(weights='balanced'), dict(exclude=['a/01.png', 'b/11.png']),
    dict(num_workers=2, worker_type='threads'), dict(num_workers=3, worker_type='processes'),
    dict(num_workers=2, multiprocessing_context='spawn')]


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
@pytest.mark.parametrize('on_error', ['skip', 'replace'])
@pytest.mark.parametrize('settings', few(SETTINGS, {}, dict(weights='balanced'), dict(num_workers=3, worker_type='processes')))
def test_with_damaged_files_batches_and_log_are_those_without_it(damaged, tmp_path, settings, on_error):
    "The cache is written and then found, on disk and in memory."
    if on_error == 'replace' and settings.get('is_training') is False: pytest.skip('evaluation replaces nothing')
    expected = run(damaged, None, on_error, **settings)
    assert on_error == 'replace' or 0 < len(expected[1]) < 4
    for where in 'disk', 'disk', 'memory':
        found = run(damaged, dict(where=where, directory=tmp_path/'cache'), on_error, **settings)
        assert same(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
@pytest.mark.parametrize('on_error', ['skip', 'replace'])
def test_on_the_device_damaged_files_are_left_out_as_without_it(damaged, on_error):
    for weights in None, [1.] * 8 + [0.] * 8:
        settings = dict(weights=weights, train_crop_mode='rc', no_aug=False, hflip=0)
        found, expected = (run(damaged, cache, on_error, **settings) for cache in ('device', None))
        assert same(found[0], expected[0])


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
def test_a_state_fits_with_damaged_files_too(damaged, tmp_path):
    "A state saved without a cache is resumed with one, and vice versa."
    cache = dict(where='disk', directory=tmp_path/'cache')
    def make(cache): return skipping(damaged, cache)

    expected = [(images.clone(), targets) for images, targets in make(None)]
    for saves, resumes in (None, cache), (cache, None):
        first = make(saves)
        batches = iter(first)
        next(batches), next(batches)
        second = make(resumes)
        second.load_state_dict(first.state_dict())
        assert same([(images.clone(), targets) for images, targets in second], expected[2:])


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
def test_a_replay_shows_the_samples_of_the_cache(damaged, tmp_path):
    plain, cached = (skipping(damaged, cache) for cache in (None, dict(where='disk', directory=tmp_path/'cache')))
    for index in 1, 7, 12:
        one, other = (loader.replay(1, index=index) for loader in (plain, cached))
        assert one.keys == other.keys and same([one.batch[:2]], [other.batch[:2]])
    for batch in range(3):
        one, other = (loader.replay(0, batch) for loader in (plain, cached))
        assert one.keys == other.keys and same([one.batch[:2]], [other.batch[:2]])


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
def test_sizes_and_relabeled_samples_keep_their_place(damaged, tmp_path):
    Image.new('RGB', (90, 60), (70, 0, 0)).save(damaged/'a'/'07.png')
    dataset = ImageDataset(damaged, split=None, on_error='skip')
    cached = cached_dataset(dataset, CacheSettings(where='disk', directory=tmp_path/'cache'), num_workers=0)
    assert np.array_equal(image_sizes(cached), image_sizes(dataset)) and image_sizes(cached)[[0, 7]].tolist() == [[40, 40], [60, 90]]
    assert fingerprint(cached) == fingerprint(dataset) and cached.filenames() == dataset.filenames()
    swapped = relabel(cached, {'b': 'b'})   # the samples of class b alone
    assert [swapped.filename(k) for k in range(8) if swapped[k] is None] == ['b/11.png']
    sent = pickle.loads(pickle.dumps(swapped))
    assert [sent.filename(k) for k in range(8) if sent[k] is None] == ['b/11.png']


def test_the_error_of_an_empty_row_is_that_of_the_file(damaged, tmp_path):
    "A dataset that raises can use the cache of a dataset that skips; a repaired file is read."
    settings = CacheSettings(where='disk', directory=tmp_path/'cache')
    cached_dataset(ImageDataset(damaged, split=None, on_error='skip'), settings, num_workers=0)
    raising = cached_dataset(ImageDataset(damaged, split=None), settings, num_workers=0)
    with pytest.raises(ImageReadError) as found: raising[0]
    with pytest.raises(ImageReadError) as expected: ImageDataset(damaged, split=None)[0]
    assert str(found.value) == str(expected.value) and 'a/00.png (index 0)' in str(found.value)
    assert raising[1][0].tobytes() == ImageDataset(damaged, split=None)[1][0].tobytes()
    Image.new('RGB', (40, 40), (1, 2, 3)).save(damaged/'a'/'00.png')
    assert raising[0][0].getpixel((0, 0)) == (1, 2, 3)


def test_a_file_that_is_gone_is_an_error_of_its_sample(damaged, tmp_path):
    dataset, skipping = (ImageDataset(damaged, split=None, on_error=rule) for rule in ('raise', 'skip'))
    (damaged/'a'/'00.png').unlink()
    settings = CacheSettings(where='disk', directory=tmp_path/'cache')
    with pytest.raises(ImageReadError, match=r'a/00.png \(index 0\).*The folder .* does not contain it'):
        cached_dataset(dataset, settings, num_workers=0)
    cached = cached_dataset(skipping, settings, num_workers=0)
    with pytest.warns(RuntimeWarning, match='FileNotFoundError'): assert cached[0] is None and cached[1] is not None


@pytest.mark.parametrize('given, message', [
    (100, "cache=100: must be 'device', 'memory', 'disk' or a dict .*a limit is in bytes"), ('20GB', "cache='20GB': .*limit='20GB'"),
    (True, "cache=True: must be 'device'"), (dict(limit=100), "but only 100 bytes are allowed: .* such as '20GB'"),
    (dict(size=100), "CacheSettings has no argument 'size': allowed: where, limit")])
def test_a_limit_is_bytes_and_an_error_says_how_to_give_it(val, given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        create_loader(val, 32, 8, device='cpu', num_workers=0, cache=given)


def test_a_cache_keeps_masks_and_values(tmp_path):
    "Fields of samples that could not be read at first are kept, too; a changed value or mask makes a new cache."
    for kind in 'images', 'masks': (tmp_path/kind).mkdir()
    for k in range(4):
        Image.new('RGB', (40, 30), (10 * k, 0, 0)).save(tmp_path/'images'/f'{k}.png')
        Image.new('L', (40, 30), k).save(tmp_path/'masks'/f'{k}.png')
    rows = [f'images/{k}.png,{k}.5,masks/{k}.png' for k in range(4)]
    (tmp_path/'t.csv').write_text('\n'.join(['path,weight,mask', *rows]))
    def made(): return ImageDataset(tmp_path/'t.csv', target_key=None, weight_key='weight', mask_key='mask', on_error='skip')
    settings = CacheSettings(where='disk', directory=tmp_path/'cache', short_side=16)
    whole = (tmp_path/'images'/'2.png').read_bytes()
    (tmp_path/'images'/'2.png').write_bytes(b'damaged')
    cached = cached_dataset(made(), settings)
    assert cached.field_names == ['image', 'weight', 'mask'] and made()[1][1] == 1.5
    with pytest.warns(RuntimeWarning): assert cached[2] is None
    (tmp_path/'images'/'2.png').write_bytes(whole)
    for k in (0, 1, 3, 2):
        image, weight, mask = cached[k]
        assert weight == k + 0.5 and image.size == mask.size == (21, 16) and mask.getextrema() == (k, k)
    (tmp_path/'t.csv').write_text((tmp_path/'t.csv').read_text().replace('1.5', '7'))
    assert cached_dataset(made(), settings)[1][1] == 7
    Image.new('L', (40, 30), 99).save(tmp_path/'masks'/'1.png')
    assert cached_dataset(made(), settings)[1][2].getextrema() == (99, 99)
