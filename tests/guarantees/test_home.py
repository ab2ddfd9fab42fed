"`~` is the user's home wherever a path comes in: a table of all entrances, each beside the same call with the whole path."
import importlib
import inspect
import io
import json
import os
import pkgutil
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import frameworks  # noqa: F401   (chooses the backend of Keras, where that is installed)
import numpy as np
import pytest
from synthetic import JPEG

import timmdata
from timmdata import create_dataset, create_loader, create_reader, get_samples, write_pack
from timmdata.buffer.files import PrivateDirectory, open_private
from timmdata.buffer.status import buffer_status, remove_buffer
from timmdata.buffer.store import BatchStore, open_directory
from timmdata.cli import main
from timmdata.core.demo_data import cache_dir
from timmdata.core.paths import expand_home
from timmdata.datasets.cache import CacheSettings, cached_dataset
from timmdata.datasets.factory import open_splits
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.datasets.packing import check_pack
from timmdata.datasets.relabel import LabelMap, number_classes, relabel
from timmdata.datasets.voc import read_voc_objects, voc_table
from timmdata.inspection import inspect as inspect_data
from timmdata.inspection import measure_dataset
from timmdata.readers import folder, tar, webdataset
from timmdata.readers.class_map import load_class_map
from timmdata.readers.exclude import exclude_samples, read_names
from timmdata.readers.file_index import label_samples
from timmdata.readers.huggingface import ReaderHfds, ReaderHfids, load_hf, open_hf_stream
from timmdata.readers.pack import ReaderPack, ReaderShards
from timmdata.readers.shard_cache import ShardCache
from timmdata.readers.table import ReaderTable, number_targets, read_table
from timmdata.readers.target_fields import TargetFields

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings('ignore')]
NAMES = [f'photos/{split}/{name}/{k}.jpg' for split in ('train', 'val') for name in 'ab' for k in range(2)]
VOC = '<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object></annotation>'


def write_data(base: Path):
    "A small data set of each kind, all below one folder."
    def write(name, content):
        (base/name).parent.mkdir(parents=True, exist_ok=True)
        (base/name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name in NAMES: write(name, JPEG)
    write('labels.csv', 'path,label\nphotos/train/a/0.jpg,x\nphotos/train/b/0.jpg,y\n')
    write('map.json', json.dumps({'a': 1, 'b': 0, 'x': 1, 'y': 0}))
    write('leave.txt', 'train/a/0.jpg\n')
    write('names.txt', 'a\tan a\nb\ta b\n')
    write('real.json', '[[1], [2]]')
    for k in range(2): write(f'voc/VOCdevkit/VOC2012/Annotations/{k}.xml', VOC)
    for k in range(2): write(f'voc/VOCdevkit/VOC2012/JPEGImages/{k}.jpg', JPEG)
    write('voc/VOCdevkit/VOC2012/ImageSets/Main/train.txt', '0\n1\n')
    with tarfile.open(base/'photos.tar', 'w') as file: file.add(base/'photos', 'photos')
    (base/'shards').mkdir()
    with tarfile.open(base/'shards/0.tar', 'w') as file:
        for name, data in (('0.jpg', JPEG), ('0.cls', b'1')):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    write('shards/_info.json', json.dumps({'splits': {'train': {'filenames': ['0.tar'], 'shard_lengths': [1], 'num_samples': 1}}}))
    (base/'buffer').mkdir(mode=0o700)
    BatchStore.create(base/'buffer', 4, 4096, {'settings': {}, 'numbering': [8, 2, 1, False]})


class Place(NamedTuple):
    "Where data lie, and how a path into it is written."
    base: Path
    write: callable

    def __call__(self, name=''): return self.write(name)

    def was_made(self, name):
        "Whether a file or folder is there now and was not at first."
        return (self.base/name).exists()


def paths_of(dataset): return [dataset.filename(k) for k in range(len(dataset))], len(dataset[0])
def rows(reader): return [target for _, target in reader]


def with_cache(at):
    "The folder that an environment variable names."
    before = os.environ.get('TIMMDATA_CACHE')
    os.environ['TIMMDATA_CACHE'] = os.fspath(at('cache'))
    try: return cache_dir() == at.base/'cache'
    finally:
        os.environ.pop('TIMMDATA_CACHE')
        if before is not None: os.environ['TIMMDATA_CACHE'] = before


def samples_in(at):
    "A folder that is complete already: nothing is drawn."
    made = get_samples().name
    for split in ('train', 'val'): (at.base/made/split).mkdir(parents=True, exist_ok=True)
    return get_samples(at()) == at.base/made


def buffered(at):
    "A buffer in a directory of its own."
    settings = dict(batches=4, directory=at('made'), num_epochs=1)
    loader = create_loader(ImageDataset(at.base/'photos'), 8, 2, is_training=True, seed=0, device='cpu', num_workers=0, buffer=settings)
    with closing(loader.loader): return len(list(loader)), at.was_made('made/identity')


def packed(at):
    "A pack of the photographs."
    write_pack(ImageDataset(at.base/'photos'), at.base/'packed', num_workers=0)
    return at('packed')


def cached(at):
    "A cache in a directory of its own."
    settings = CacheSettings(where='disk', directory=at('made'))
    return len(cached_dataset(ImageDataset(at.base/'photos'), settings, num_workers=0)), at.was_made('made')


def labeled(at):
    "The samples of an index with the classes of a map."
    index = folder.scan_folder(at.base/'photos')
    return label_samples(index, np.ones(len(index.folders), bool), at('map.json'), at.base, 'photos', None)[1]


def hf(at): return pytest.importorskip('datasets') and os.fspath(at('photos'))
def wds(call): return pytest.importorskip('webdataset') and call()


def removed(at):
    remove_buffer(at('buffer'))
    return at.was_made('buffer/identity')


def closed(fd): return os.close(fd)
def measured(at): return len(measure_dataset(ImageDataset(at.base/'photos'), at('table.npy'))), at.was_made('table.npy')


def inspected(at):
    found = inspect_data(at('photos'), at('report'), exact=True, progress=False)
    return len(found.findings), at.was_made('report/report.html')




def drawn_by(word, *options):
    "A command that reads a folder and writes files."
    def run(at):
        files = [option.replace('HERE', os.fspath(at())) for option in options]
        return main([word, os.fspath(at('photos')), *files]), [at.was_made(name) for name in ('out.png', 'out.json', 'out.html', 'found')]
    return run


TINY = '--input-size=8 --batch-size=2 --images=4 --rounds=1 --device=cpu --num-workers=0'.split()
ENTRANCES = {   # callable and parameter → what is done with a path, and what comes of it
    'ImageDataset.root': lambda at: paths_of(ImageDataset(at('photos'))),
    'ImageDataset.root, a tar': lambda at: paths_of(ImageDataset(at('photos.tar'))),
    'ImageDataset.root, a table': lambda at: paths_of(ImageDataset(at('labels.csv'))),
    'ImageDataset.table': lambda at: paths_of(ImageDataset(at(), table=at('labels.csv'))),
    'ImageDataset.class_map': lambda at: ImageDataset(at.base/'photos', class_map=at('map.json')).class_to_idx,
    'ImageDataset.exclude': lambda at: len(ImageDataset(at.base/'photos', exclude=at('leave.txt'))),
    'ImageDataset.index_file': lambda at: (len(ImageDataset(at.base/'photos', index_file=at('i.npz'))), at.was_made('i.npz')),
    'IterableImageDataset.root': lambda at: wds(lambda: len(list(IterableImageDataset(at('shards'), 'wds/')))),
    'ShardCache.folder': lambda at: (ShardCache(at('copies')).limit, at.was_made('copies')),
    'create_reader.root': lambda at: rows(create_reader('', at('photos'))),
    'create_reader.table': lambda at: rows(create_reader('', at(), table=at('labels.csv'))),
    'create_dataset.root': lambda at: paths_of(create_dataset('', at('photos'))),
    'create_dataset.root, torchvision': lambda at: create_dataset('torch/image_folder', at('photos')).samples[0][1],
    'create_dataset.class_map': lambda at: create_dataset('', at.base/'photos', class_map=at('map.json')).class_to_idx,
    'find_splits.root': lambda at: folder.find_splits(at('photos')),
    'resolve_split.root': lambda at: folder.resolve_split(at('photos'), 'train'),
    'ReaderImageFolder.root': lambda at: rows(folder.ReaderImageFolder(at('photos'), 'train')),
    'ReaderImageFolder.class_map': lambda at: folder.ReaderImageFolder(at.base/'photos', class_map=at('map.json')).class_to_idx,
    'ReaderImageFolder.index_file': lambda at: (folder.ReaderImageFolder(at('photos'), index_file=at('r.npz')) and at.was_made('r.npz')),
    'ReaderImageTar.root': lambda at: rows(tar.ReaderImageTar(at('photos.tar'))),
    'ReaderImageTar.class_map': lambda at: tar.ReaderImageTar(at.base/'photos.tar', class_map=at('map.json')).class_to_idx,
    'ReaderImageTar.index_file': lambda at: tar.ReaderImageTar(at('photos.tar'), index_file=at('u.npz')) and at.was_made('u.npz'),
    'load_class_map.class_map': lambda at: load_class_map(at('map.json')),
    'load_class_map.root': lambda at: load_class_map('map.json', at()),
    'TargetFields.class_map': lambda at: TargetFields('label', ['a', 'b'], at('map.json')).class_to_idx,
    'relabel.class_map': lambda at: relabel(ImageDataset(at.base/'photos'), {'a': 'b', 'b': 'a'}, at('map.json')).class_to_idx,
    'number_classes.class_map': lambda at: number_classes(LabelMap({'a': 'b', 'b': 'a'}), ['a', 'b'], at('map.json')),
    'label_samples.class_map': labeled,
    'ReaderPack.class_map': lambda at: ReaderPack(packed(at), class_map=at('map.json')).class_to_idx,
    'ReaderWds.class_map': lambda at: wds(
        lambda: webdataset.ReaderWds(at.base/'shards', split='train', class_map=at('map.json')).class_to_idx),
    'ReaderHfds.class_map': lambda at: ReaderHfds(hf(at), at.base/'hf', class_map=at('map.json')).class_to_idx,
    'ReaderHfids.class_map': lambda at: ReaderHfids(hf(at), at.base/'hf', class_map=at('map.json')).class_to_idx,
    'read_names.names': lambda at: sorted(read_names(at('leave.txt'))),
    'exclude_samples.names': lambda at: len(exclude_samples(folder.ReaderImageFolder(at.base/'photos'), at('leave.txt'))),
    'read_table.table': lambda at: read_table(at('labels.csv')).names,
    'ReaderTable.table': lambda at: rows(ReaderTable(at('labels.csv'))),
    'ReaderTable.root': lambda at: rows(ReaderTable(at.base/'labels.csv', at())),
    'ReaderTable.root, stay within it': lambda at: rows(ReaderTable(at('labels.csv'), within_root=True)),
    'ReaderTable.class_map': lambda at: ReaderTable(at('labels.csv'), class_map=at('map.json')).class_to_idx,
    'number_targets.class_map': lambda at: number_targets(['x'], at('map.json')),
    'number_targets.root': lambda at: number_targets(['x'], 'map.json', at()),
    'ReaderWds.root': lambda at: wds(lambda: rows(webdataset.ReaderWds(at('shards'), split='train'))),
    'load_hf.name': lambda at: len(load_hf(hf(at), at.base/'hf')),
    'load_hf.root': lambda at: (len(load_hf(str(hf(at) and at.base/'photos'), at('hf'))), at.was_made('hf')),
    'ReaderHfds.root': lambda at: (len(ReaderHfds(str(hf(at) and at.base/'photos'), at('hf'))), at.was_made('hf')),
    'open_hf_stream.root': lambda at: (open_hf_stream(hf(at), at('hf'))[1], at.was_made('hf')),
    'ReaderHfids.root': lambda at: len(list(ReaderHfids(hf(at), at('hf')))),
    'read_voc_objects.path': lambda at: len(read_voc_objects(at('voc/VOCdevkit/VOC2012/Annotations/0.xml'))),
    'voc_table.root': lambda at: rows(ImageDataset(at('voc'), table=voc_table(at('voc')))),
    'get_samples.root': samples_in,
    'TIMMDATA_CACHE': with_cache,
    'BufferSettings.directory': buffered,
    'BatchStore.directory': lambda at: BatchStore(at('buffer')).capacity,
    'BatchStore.create.directory': lambda at: (BatchStore.create(at('new'), 4, 4096, {}).capacity, at.was_made('new/identity')),
    'PrivateDirectory.path': lambda at: sorted(PrivateDirectory(at('buffer')).names()),
    'open_private.path': lambda at: closed(open_private(at('buffer'))),
    'open_directory.directory': lambda at: sorted(open_directory(at('buffer')).names()),
    'buffer_status.store': lambda at: buffer_status(at('buffer'))['capacity'],
    'remove_buffer.directory': removed,
    'open_splits.data': lambda at: sorted(open_splits(at('photos'))),
    'open_splits.data, hf:': lambda at: sorted(open_splits(f'hf:{hf(at)}', 'train')),
    'inspect.data': inspected,
    'inspect.out': inspected,
    'measure_dataset.path': measured,
    'timmdata doctor': drawn_by('doctor', *TINY, '--json=HERE/out.json'),
    'timmdata inspect': drawn_by('inspect', '--exact', '--out=HERE/found'),
    'timmdata demo': lambda at: (main(['demo', os.fspath(at('photos')), '--input-size=8', '--batch-size=2', '--num-workers=0',
                                       f'--out={os.fspath(at("out.png"))}']), at.was_made('out.png')),
    'timmdata buffer status': lambda at: main(['buffer', 'status', os.fspath(at('buffer'))]),
    'write_pack.out': lambda at: (
        write_pack(ImageDataset(at.base/'photos'), at('made'), num_workers=0).num_samples, at.was_made('made/_info.json')),
    'check_pack.root': lambda at: check_pack(packed(at)),
    'ReaderPack.root': lambda at: rows(ReaderPack(packed(at))),
    'ReaderShards.root': lambda at: rows(ReaderShards(at('shards'))),
    'ReaderShards.index_file': lambda at: (rows(ReaderShards(at.base/'shards', index_file=at('made.npz'))), at.was_made('made.npz')),
    'CacheSettings.directory': cached,
}
WAYS = {'a text': lambda name: f'~/{name}', 'a Path': lambda name: Path('~')/name, 'a folder called ~': lambda name: f'./~/{name}'}


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    "Made once, copied for each run."
    base = tmp_path_factory.mktemp('data')
    write_data(base)
    return base


@pytest.fixture
def place(data, tmp_path, monkeypatch):
    "Makes places: a copy of the data each time, and a home."
    def make(way) -> Place:
        base = tmp_path/way.replace(' ', '-')/('~' if way == 'a folder called ~' else 'home')
        shutil.copytree(data, base)
        home = base if way in ('a text', 'a Path') else tmp_path/'elsewhere'
        for variable in ('HOME', 'USERPROFILE'): monkeypatch.setenv(variable, str(home))
        monkeypatch.chdir(base.parent)
        return Place(base, WAYS.get(way, lambda name: str(base/name)))
    return make


ONCE = {name for name in ENTRANCES if name.startswith(('timmdata ', 'ReaderHf', 'load_hf', 'open_hf'))}   # they take their time


@pytest.mark.parametrize('entrance', ENTRANCES)
def test_each_entrance_finds_the_home(entrance, place, samples, monkeypatch):
    monkeypatch.setenv('TIMMDATA_CACHE', str(samples.parent))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    expected = ENTRANCES[entrance](place('the whole path'))
    for way in list(WAYS)[:1 if entrance in ONCE else None]:
        at = place(way)
        before = set(at.base.parent.iterdir())
        assert ENTRANCES[entrance](at) == expected, way
        assert set(at.base.parent.iterdir()) == before, 'nothing is made in a folder called ~'


NO_ENTRANCES = {   # where the path is only named in a message, a part of an object, a text by design, or comes from an entrance
    'holds_tars.root', 'list_folder.folder', 'scan_folder.root', 'index_folder.root', 'index_folder.index_file',
    'keep_index.path', 'keep_arrays.path', 'index_path.root', 'index_path.index_file',
    'list_tar.path', 'scan_tars.root', 'index_tars.root', 'index_tars.index_file', 'ReaderFiles.root', 'find_problems.root',
    'find_problems.within', 'find_shards.root', 'load_info.root', 'absolute_path.root',
    'check_info.root', 'check_inside.root', 'load_array.path', 'replace_file.path', 'replace_file.folder',
    'open_archives.cache_dir', 'ReaderPack.cache_dir', 'ReaderShards.cache_dir', 'ReaderImageTar.cache_dir',   # to ShardCache
    'choose_split.where', 'choose_splits.where', 'choose_folders.root', 'Inspection.out', 'open_file.path', 'read_file.path',
    'open_table.path', 'label_samples.root', 'exclusion_calls.out', 'make_page.out',
    'CacheHold.root', 'ReaderCache.root', 'choose_shards.root', 'holds_shards.root', 'open_index.folder', 'save_index.folder',
    'read_pack.root', 'remove_unread.folder', 'scan_shards.root', 'write_split.root', 'plan_pack.root', 'PackPlan.root',
    'write_shard.path', 'write_shard.folder'}
OTHERS = {   # frameworks have tests of their own; here their functions are looked at in the source
    'ImageDataModule.data'}


def entrances_of_the_library() -> set[str]:
    "Parameters of public callables that are annotated as a path."
    found = set()
    for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.startswith('_') or getattr(value, '__module__', None) != info.name or not callable(value): continue
            methods = vars(value) if inspect.isclass(value) else {}
            own = {name: value, **{f'{name}.{key}': getattr(value, key) for key, made in methods.items()
                                   if not key.startswith('_') and isinstance(made, classmethod)}}
            for label, function in own.items():
                try: parameters = inspect.signature(function).parameters
                except (ValueError, TypeError): continue
                found |= {f'{label}.{key}' for key, one in parameters.items() if 'Path' in str(one.annotation)}
    return found


@pytest.mark.full
def test_the_table_has_all_entrances():
    found = entrances_of_the_library()
    tested = {name.partition(',')[0] for name in ENTRANCES}
    assert len(found) > 40 and found - NO_ENTRANCES - OTHERS <= tested, sorted(found - NO_ENTRANCES - OTHERS - tested)
    assert NO_ENTRANCES <= found and OTHERS <= found   # nothing is excused that is gone


@pytest.mark.parametrize('way', [
    ImageDataset, lambda path: create_dataset('', path), lambda path: create_reader('', path),
    read_names, load_class_map, tar.ReaderImageTar,
    BatchStore, remove_buffer, voc_table, get_samples, open_splits, lambda path: ReaderTable('labels.csv', path)])
def test_bytes_are_refused_by_name(way):
    with pytest.raises(TypeError, match="the path b'photos' is bytes: pass a str"): way(b'photos')


def test_what_is_no_path_stays_as_it_is():
    frame = np.zeros(2)
    assert expand_home(frame) is frame and expand_home(None) is None
    for path in ('photos', Path('photos'), '/data/~', 'a~', 'https://x.org/~me', ''): assert expand_home(path) is path


@pytest.mark.parametrize('name', ['~', '~/x', '~no-such-user-here/x'])
def test_expanding_twice_changes_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path/'~'))   # a home may be called so
    once = expand_home(name)
    assert expand_home(once) is once and os.path.isabs(once)
    assert expand_home(Path(once)) == Path(once)
