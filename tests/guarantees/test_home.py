"`~` is the user's home wherever a path comes in."
import ast
import importlib
import inspect
import os
import pkgutil
import shutil
from pathlib import Path

import pytest
from synthetic import JPEG

import timmdata
from timmdata import ImageDataset, create_dataset, create_reader, get_samples, write_pack
from timmdata.buffer import BufferSettings
from timmdata.buffer.status import remove_buffer
from timmdata.buffer.store import BatchStore
from timmdata.core.paths import cache_dir, expand_home
from timmdata.datasets.cache import CacheSettings, cached_dataset
from timmdata.datasets.factory import open_splits
from timmdata.datasets.voc import voc_table
from timmdata.inspection import measure_dataset
from timmdata.readers.class_map import load_class_map
from timmdata.readers.exclude import read_names
from timmdata.readers.pack import ReaderPack
from timmdata.readers.table import ReaderTable
from timmdata.readers.tar import ReaderImageTar

pytestmark = pytest.mark.timeout(60)
PASSED_ON = """BatchStore.create.directory BatchStore.directory ImageDataModule.data ImageDataset.exclude ImageDataset.masks
ImageDataset.root IterableImageDataset.root ReaderFiles.root ReaderHfds.root ReaderHfids.root ReaderImageTar.cache_dir
ReaderImageTar.index_file ReaderPack.cache_dir ReaderSettings.cache_dir ReaderSettings.index_file ReaderShards.cache_dir
ReaderShards.index_file absolute_path.root add_masks.masks
buffer_status.store check_info.root check_inside.root choose_folders.root choose_shards.root choose_split.where
choose_splits.where create_reader.root exclude_samples.names exclusion_calls.out find_problems.root find_problems.within
find_shards.root holds_images.folder holds_shards.root holds_tars.root index_folder.index_file index_folder.root index_path.root
index_tars.index_file index_tars.root inspect.data inspect.masks inspect.out keep_arrays.path keep_index.path label_samples.root
list_folder.folder list_masks.masks list_tar.path load_info.root make_page.out match_masks.masks may_hold_images.folder
measure_masks.masks not_a_table.path not_found.path number_targets.root open_splits.exclude_files open_archives.cache_dir
open_file.path open_index.folder read_file.path read_pack.root remove_buffer.directory replace_file.folder replace_file.path
save_index.folder save_index.unfinished scan_folder.root scan_shards.root scan_tars.root write_shard.folder write_shard.path""".split()


def path_parameters() -> dict[str, bool]:
    "Parameters and fields of public functions and classes that are annotated as a path, and whether they are expanded there."
    found = {}
    for info in pkgutil.walk_packages(timmdata.__path__, 'timmdata.'):
        for node in ast.parse(inspect.getsource(importlib.import_module(info.name))).body:
            if getattr(node, 'name', '_').startswith('_'): continue
            for part in [node] if isinstance(node, ast.FunctionDef) else node.body:
                name = getattr(part, 'name', '')
                if isinstance(part, ast.AnnAssign): names = {part.target.id: part.annotation}
                elif isinstance(part, ast.FunctionDef) and (part is node or name == '__init__' or not name.startswith('_')):
                    names = {arg.arg: arg.annotation for arg in (*part.args.args, *part.args.kwonlyargs) if arg.annotation}
                else: continue
                label = f'{node.name}.{name}' if name not in ('', '__init__', node.name) else node.name
                for key, annotation in names.items():
                    if 'StrPath' not in ast.unparse(annotation): continue
                    found[f'{label}.{key}'] = any(f'expand_home({text})' in ast.unparse(node) for text in (key, f'self.{key}'))
    return found


def test_each_path_is_expanded_or_passed_on():
    "A new function expands its path itself or, listed in `PASSED_ON`, gives it to one that does or gets one that was expanded."
    found = path_parameters()
    assert sum(found.values()) > 25 and {name for name, is_expanded in found.items() if not is_expanded} == set(PASSED_ON)


def packed(at):
    shutil.rmtree('home/made', ignore_errors=True)
    return write_pack(ImageDataset(at('photos')), at('made'), num_workers=0)


ENTRANCES = {   # what is made of a path at home
    'folder': lambda at: ImageDataset(at('photos')).filename(0),
    'table': lambda at: ImageDataset(at(), table=at('labels.csv')).filename(1),
    'map': lambda at: create_dataset('', at('photos'), split='train', class_map=at('map.txt')).class_to_idx,
    'index': lambda at: ImageDataset(at('photos'), index_file=at('index.npz')).reader and Path('home/index.npz').exists(),
    'exclude': lambda at: len(ImageDataset(at('photos'), exclude=at('leave.txt'))), 'splits': lambda at: sorted(open_splits(at('photos'))),
    'pack': lambda at: packed(at) and len(ReaderPack(at('made'))),
    'buffer': lambda at: os.fspath(BufferSettings(batches=4, directory=at('buffer')).directory),
    'cache': lambda at: len(cached_dataset(ImageDataset(at('photos')), CacheSettings(where='disk', directory=at('made')), num_workers=0)),
    'measure': lambda at: len(measure_dataset(ImageDataset(at('photos')), at('table.npy'))) and Path('home/table.npy').exists()}


@pytest.mark.parametrize('name', ENTRANCES)
def test_a_path_at_home_is_found(name, tmp_path, monkeypatch):
    (tmp_path/'home').mkdir()
    monkeypatch.chdir(tmp_path)
    for variable in ('HOME', 'USERPROFILE'): monkeypatch.setenv(variable, str(tmp_path/'home'))
    for file in ('train/a/0.jpg', 'train/b/1.jpg'):
        (tmp_path/'home/photos'/file).parent.mkdir(parents=True)
        (tmp_path/'home/photos'/file).write_bytes(JPEG)
    for file, text in {'labels.csv': 'path,label\nphotos/train/a/0.jpg,x\nphotos/train/b/1.jpg,y\n', 'map.txt': 'b\na\n',
                       'leave.txt': 'train/a/0.jpg\n'}.items(): (tmp_path/'home'/file).write_text(text)
    found = ENTRANCES[name](lambda file='': f'~/{file}')
    assert found == ENTRANCES[name](lambda file='': Path('~')/file) == ENTRANCES[name](lambda file='': str(tmp_path/'home'/file))
    assert found and os.listdir(tmp_path) == ['home']   # nothing is made in a folder called ~


def test_the_cache_of_the_environment_is_at_home(monkeypatch):
    monkeypatch.setenv('TIMMDATA_CACHE', '~/here')
    assert cache_dir() == Path.home()/'here'
    monkeypatch.delenv('TIMMDATA_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', 'xdg')
    for platform, folder in (('linux', Path('xdg')), ('darwin', Path.home()/'Library/Caches')):
        monkeypatch.setattr('sys.platform', platform)
        assert cache_dir() == folder/'timmdata'


@pytest.mark.parametrize('way', [
    ImageDataset, lambda path: create_dataset('', path), lambda path: create_reader('', path), read_names, load_class_map, ReaderImageTar,
    BatchStore, remove_buffer, voc_table, get_samples, open_splits, lambda path: ReaderTable('labels.csv', path)])
def test_bytes_are_refused_by_name(way):
    with pytest.raises(TypeError, match="the path b'photos' is bytes: pass a str"): way(b'photos')


@pytest.mark.parametrize('name', ['~', '~/x', '~no-such-user-here/x'])
def test_expanding_twice_changes_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path/'~'))   # a home may be called so
    once = expand_home(name)
    assert expand_home(once) is once and os.path.isabs(once) and expand_home(Path(once)) == Path(once)
    for path in (None, 'photos', Path('photos'), '/data/~', 'a~', 'https://x.org/~me', ''): assert expand_home(path) is path
