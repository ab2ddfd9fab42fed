"WebDataset shards by index: the stream of the same shards, and timm's, as oracles; indexes that are kept, damaged, of other shards."
import json
import pickle
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from grids import quick
from wds_shards import NUM, timm_wds

from timmdata import ImageDataset, create_loader
from timmdata.datasets.factory import create_dataset
from timmdata.readers.pack import ROW, ReaderShards, choose_shards, holds_shards, open_index, save_index
from timmdata.readers.sample_table import LabelLists, SampleTable

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore:This DataLoader will create')]


@pytest.mark.parametrize('split, settings', [
    ('val', {}), ('val', dict(target_key='label')), ('val', dict(target_key='label', class_map={k: 9 - k for k in range(10)})),
    ('val', dict(class_map={k: 1 for k in range(10)})), ('some', {})])
def test_samples_are_those_of_the_stream(shards, split, settings):
    indexed = ImageDataset(shards, split=split, **settings)
    oracle = [(image.tobytes(), target) for image, target in timm_wds(shards, split, **settings)]
    assert [(image.tobytes(), target) for image, target in indexed] == oracle
    assert indexed.class_to_idx == create_dataset('wds/', shards, split, **settings).class_to_idx


@pytest.mark.parametrize('target_key', ['tags', 'x, y'])
def test_several_labels_are_rows(shards, target_key):
    indexed = ImageDataset(shards, split='val', target_key=target_key)
    for (_, row), (_, labels) in zip(indexed, timm_wds(shards, 'val', target_key=target_key)):
        assert np.flatnonzero(row).tolist() == sorted(set(labels))


@quick(1, 'settings', [dict(worker_type='threads'), dict(multiprocessing_context='spawn'), dict(worker_type='processes')])
def test_batches_are_the_same_whoever_reads(shards, settings):
    def batches(**settings):
        loader = create_loader(ImageDataset(shards, split='val'), 32, 8, is_training=True, seed=3, device='cpu', **settings)
        return [(images.sum().item(), targets.tolist()) for images, targets in loader]
    assert batches(num_workers=2, **settings) == batches(num_workers=0)


def test_an_index_is_kept_until_a_shard_changes(shards, tmp_path, monkeypatch):
    path = tmp_path/'sub'/'index.npz'
    first = ReaderShards(shards, 'val', index_file=path)
    written = path.stat().st_mtime_ns
    again = ReaderShards(shards, 'val', index_file=path)
    assert list(again.samples) == list(first.samples) and path.stat().st_mtime_ns == written
    ReaderShards(shards, 'val', target_key='label', index_file=path)   # other settings
    assert path.stat().st_mtime_ns != written
    path.write_bytes(path.read_bytes()[:200])
    assert list(ReaderShards(shards, 'val', index_file=path).samples) == list(first.samples)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    assert list(ReaderShards(shards, 'val', index_file='cache').samples) == list(first.samples)


def test_an_index_that_grows_as_it_is_read_is_made_anew(shards, tmp_path):
    path = tmp_path/'index.npz'
    first = ReaderShards(shards, 'val', index_file=path)
    arrays = dict(np.load(path))
    arrays['names'] = np.zeros(50_000_000, np.uint8)
    np.savez_compressed(path, **arrays)
    tracemalloc.start()
    try: again, peak = ReaderShards(shards, 'val', index_file=path), tracemalloc.get_traced_memory()[1]
    finally: tracemalloc.stop()
    assert list(again.samples) == list(first.samples) and peak < 20_000_000
    assert not any(item.compress_type for item in np.load(path).zip.infolist())


def test_labels_are_kept_in_an_index(tmp_path):
    save_index(SampleTable.from_samples(['a', 'b'], LabelLists.from_lists([[1, 3], []], 5), {'row': np.zeros(2, ROW)}), tmp_path)
    found = open_index(tmp_path)
    assert np.array_equal(found.targets[0], [0, 1, 0, 1, 0]) and list(found)[1][0] == 'b'


def write_shard(path: Path, names):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w') as tar:
        for name in names: tar.addfile(tarfile.TarInfo(name))


@pytest.mark.parametrize('names, is_sharded', [
    (['1.jpg', '1.cls', '2.jpg', '2.cls'], True), (['a/1.jpg', 'a/1.cls'], True), (['dog/1.jpg', 'dog/1.json', 'cat/2.jpg'], False),
    (['dog/1.jpg', 'dog/2.jpg', 'dog/3.jpg', 'x.cls'], False), ([], False)])
def test_shards_are_told_from_tars_of_folders(tmp_path, names, is_sharded):
    write_shard(tmp_path/'a.tar', names)
    assert holds_shards(tmp_path) == holds_shards(tmp_path/'a.tar') == is_sharded


def test_splits_are_found_in_names(tmp_path):
    for name in ('imagenet1k-train-0000.tar', 'imagenet1k-train-0001.tar', 'imagenet1k-validation-00.tar'):
        write_shard(tmp_path/name, ['1.cls'])
    assert choose_shards(tmp_path, 'val') == (['imagenet1k-validation-00.tar'], '')
    assert len(choose_shards(tmp_path, 'training')[0]) == 2 and len(choose_shards(tmp_path, None)[0]) == 3
    with pytest.raises(ValueError, match="there is no split 'test'.*train, validation"): choose_shards(tmp_path, 'test')
    write_shard(tmp_path/'whole'/'0.tar', ['1.cls'])
    assert choose_shards(tmp_path/'whole', 'train') == (['0.tar'], '')


def test_a_copy_reads_the_same(shards):
    reader = ReaderShards(shards, 'val')
    again = pickle.loads(pickle.dumps(reader))
    assert [bytes(data) for data, _ in again] == [bytes(data) for data, _ in reader] and len(reader) == NUM
    info = json.loads((shards/'_info.json').read_text())['splits']['val']
    assert reader.filename(0, absolute=True).startswith(str(shards/info['filenames'][0]))
    assert reader.filename(0, basename=True) == reader.filename(0)


def test_lists_with_a_0_or_1_for_each_class_are_not_read_as_class_indexes(photos, tmp_path):
    "webdataset writes the shard; without a word, [1, 0, 0] would be the classes 1, 0 and 0."
    wds = pytest.importorskip('webdataset')
    rows = [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    with wds.TarWriter(str(tmp_path/'0.tar')) as writer:
        for k, row in enumerate(rows):
            writer.write({'__key__': str(k), 'jpg': photos[k][0], 'json': dict(tags=row, names=['x'] * k, a=row[0], b=1)})
    with pytest.raises(ValueError, match="pass target_format='multihot'"): ImageDataset(tmp_path, target_key='tags')
    dataset = ImageDataset(tmp_path, target_key='tags', target_format='multihot')
    assert [target.tolist() for _, target in dataset] == rows
    indexes = ImageDataset(tmp_path, target_key='tags', target_format='indices')
    assert [target.tolist() for _, target in indexes] == [[1, 1], [1, 0], [1, 1]]
    flags = ImageDataset(tmp_path, target_key=['a', 'b'])
    assert [target.tolist() for _, target in flags] == [[1, 1], [0, 1], [0, 1]]
