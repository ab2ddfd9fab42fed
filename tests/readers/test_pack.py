"WebDataset shards by index: the stream of the same shards, and timm's, as oracles; indexes that are kept, damaged, of other shards."
import io
import json
import pickle
import tarfile
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from grids import quick
from PIL import Image
from wds_shards import NUM, timm_wds

from timmdata import ImageDataset, create_loader
from timmdata.datasets.factory import create_dataset
from timmdata.datasets.packing import write_pack
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


def test_classes_of_a_pack_that_look_alike_are_told(tmp_path):
    for k, name in enumerate(('cafe\u0301', 'tea', 'Tea')):
        (tmp_path/'photos'/name).mkdir(parents=True)
        Image.new('RGB', (20, 16), (80 * k, 7, 7)).save(tmp_path/'photos'/name/'1.png')
    if len(list((tmp_path/'photos').iterdir())) < 3: pytest.skip('this file system joins the names')
    with pytest.warns(UserWarning, match="'Tea' and 'tea'"): photos = ImageDataset(tmp_path/'photos')
    write_pack(photos, tmp_path/'pack', progress=False, format='keep')
    with pytest.warns(UserWarning, match="look alike.*'Tea' and 'tea'"): pack = ImageDataset(tmp_path/'pack')
    assert pack.class_to_idx == photos.class_to_idx
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        ImageDataset(tmp_path/'pack', class_map={**photos.class_to_idx, 'tea': photos.class_to_idx['Tea']})
    with pytest.warns(UserWarning, match=r"left out: 1; .*'cafe\\u0301' looks like 'caf\\xe9'"):
        ImageDataset(tmp_path/'pack', class_map={'caf\u00e9': 0, 'tea': 1, 'Tea': 2})
    with pytest.raises(ValueError, match='looks like'): ImageDataset(tmp_path/'pack', class_map={'caf\u00e9': 0})


# ---- names, order, and members that belong to no sample

def shard(path: Path, *members) -> Path:
    "Members: a name, whose content is itself or a class, or (name, content)."
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w') as tar:
        for member in members:
            content = b'%d' % (len(member) % 7) if member[-4:] in ('.cls', '.CLS', '.Cls') else str(member).encode()
            name, data = member if isinstance(member, tuple) else (member, content)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def by_webdataset(path: Path) -> list:
    "What the library itself reads, of samples with an image and a class."
    wds = pytest.importorskip('webdataset')
    return [(sample['jpg'], int(sample['cls'])) for sample in wds.WebDataset(str(path), shardshuffle=False, empty_check=False)
            if 'jpg' in sample and 'cls' in sample]


def read(root, **settings) -> list:
    reader = ImageDataset(root, **settings).reader
    return [(bytes(data), target) for data, target in reader]


@pytest.mark.parametrize('names, left_out, example', [
    (['a', 'b.1', 'c', 'd'], '2 of 8', 'b.1.jpg'), (['a', 'b.1', 'b.2', 'c'], '4 of 8', 'b.1.jpg'),
    (['a', 'a.1', 'b'], '2 of 6', 'a.1.jpg'),
    (['x/a', 'x/v1.0', 'y.z/b'], '2 of 6', 'x/v1.0.jpg'), (['a', 'b', 'c'], None, '')])
@pytest.mark.parametrize('ending', ['cls', 'CLS', 'json'])
def test_samples_whose_names_have_dots_are_told(tmp_path, names, left_out, example, ending):
    content = {'json': b'{"label": 3}'}.get(ending, b'3')
    path = shard(tmp_path/'a.tar', *(member for name in names for member in (f'{name}.jpg', (f'{name}.{ending}', content))))
    settings = dict(target_key='label') if ending == 'json' else {}
    for index_file in (None, tmp_path/'index.npz', tmp_path/'index.npz'):   # the last one is read from its file
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            found = read(path, index_file=index_file, **settings)
        assert len(found) == len(names) - (int(left_out[0]) // 2 if left_out else 0) and {target for _, target in found} == {3}
        told = [str(warning.message) for warning in caught if 'members' in str(warning.message)]
        assert len(told) == bool(left_out)
        if left_out:
            assert f'{left_out} members belong to no sample' in told[0]
            assert f'such as {example}: WebDataset ends the key of a sample at the first dot' in told[0]
    if ending != 'json': assert found == by_webdataset(path)


@pytest.mark.parametrize('names', [['22.05', '22.06', '23.05'], ['img_v1.0_0'], ['x/1.5', 'x/1.6']])
@pytest.mark.parametrize('ending', ['cls', 'CLS'])
def test_an_index_without_samples_is_an_error(tmp_path, names, ending):
    path = shard(tmp_path/'a.tar', *(member for name in names for member in (f'{name}.jpg', f'{name}.{ending}')))
    num = 2 * len(names)
    told = rf'has no samples.*{num} of {num} members.*{names[0]}\.jpg: WebDataset ends the key of a sample at the first dot'
    with pytest.raises(ValueError, match=told):
        ImageDataset(path)
    for path, match in ((shard(tmp_path/'b.tar', 'a.txt'), 'has no samples'), (shard(tmp_path/'c.tar'), 'has no samples'),
                        (shard(tmp_path/'d.tar', 'a.jpg', ('a.json', b'{"label": -1}')), 'class -1, which means no class: 1')):
        with pytest.raises(ValueError, match=match): ReaderShards(path, target_key='label')


@pytest.mark.parametrize('order', [
    ['a.cls', 'b.cls', 'c.cls', 'a.jpg', 'b.jpg', 'c.jpg'], ['a.jpg', 'c.cls', 'b.cls', 'c.jpg', 'a.cls', 'b.jpg'],
    ['a.jpg', 'b.jpg', 'c.jpg', 'a.cls', 'b.cls', 'c.cls'], ['a.JPG', 'b.jpg', 'c.jpg', 'a.CLS', 'b.cls', 'c.Cls']])
def test_members_of_a_sample_need_not_be_next_to_each_other(tmp_path, order):
    classes = dict(a=b'4', b=b'1', c=b'2')
    def member(name): return (name, classes[name[0]]) if name.lower().endswith('cls') else name
    path = shard(tmp_path/'a.tar', *map(member, order))
    in_order = shard(tmp_path/'b.tar', *map(member, sorted(order, key=lambda name: (name[0], name))))
    found, oracle = read(path), by_webdataset(in_order)
    assert sorted(found) == sorted(oracle) and len(found) == 3 and sorted(target for _, target in found) == [1, 2, 4]


def test_what_looks_like_an_image_or_a_label_is_told_only_if_it_belongs_to_no_sample(tmp_path):
    rest = 'a.mask.png', 'a.png', 'a.txt', 'a.json', '._a.jpg', '.a.cls', '__meta__/x.jpg', 'README', 'note.txt'
    path = shard(tmp_path/'a.tar', 'a.jpg', 'a.cls', *rest)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        found = read(path)
    assert found == by_webdataset(path) and len(found) == 1
    with pytest.warns(UserWarning, match='1 of 5 members belong to no sample and are left out, such as b.heif.bmp: WebDataset ends'):
        read(shard(tmp_path/'b.tar', 'a.jpg', 'a.cls', 'c.jpg', 'c.cls', 'b.heif.bmp'))
    with pytest.warns(UserWarning, match=r'1 of 3 members .* such as b\.bmp: it has no \.cls'):
        read(shard(tmp_path/'c.tar', 'a.jpg', 'a.cls', 'b.bmp'))
    two = shard(tmp_path/'d.tar', 'a.jpg', 'a.cls', 'a.JPG')
    with pytest.raises(ValueError, match=r'two files a\.jpg that differ only in letter case'): ImageDataset(two)
    with pytest.raises(ValueError, match='duplicate'): by_webdataset(two)


def test_a_link_or_a_sparse_file_is_told_and_the_others_are_read(tmp_path):
    path = shard(tmp_path/'a.tar', 'a.jpg', 'a.cls', 'b.cls')
    with tarfile.open(path, 'a') as tar:
        for name, kind in (('b.jpg', tarfile.LNKTYPE), ('c.jpg', tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, 'a.jpg'
            tar.addfile(info)
        tar.addfile(tarfile.TarInfo('c.cls'))
    with pytest.warns(UserWarning, match=r'4 of 6 members .*b\.cls: it is a link or a sparse file'): found = read(path)
    assert found == by_webdataset(path) and len(found) == 1


def test_several_images_of_a_sample_are_chosen_by_input_key(tmp_path):
    path = shard(tmp_path/'a.tar', *(f'{key}.{part}' for key in 'ab' for part in ('left.jpg', 'right.jpg', 'cls')))
    with pytest.raises(ValueError, match=r"available: left\.jpg, right\.jpg, cls.*input_key=, such as 'left\.jpg'"): ImageDataset(path)
    assert read(path, input_key='right.jpg') == [(f'{key}.right.jpg'.encode(), 5) for key in 'ab']


def test_a_sample_without_a_class_says_what_can_be_passed(tmp_path):
    def refused(message, *members, **settings):
        with pytest.raises(ValueError, match=message) as found: ImageDataset(shard(tmp_path/'a.tar', *members), **settings)
        assert 'In a stream' not in str(found.value)
    labeled = 'a.jpg', 'a.cls'
    refused(r'sample b has no \.cls; available: jpg, json\. Pass the field of its \.json', *labeled, 'b.jpg', 'b.json')
    refused(r'sample b has no \.cls; available: jpg, txt\. A class is read from', *labeled, 'b.jpg', 'b.txt')
    refused(r'sample a has no \.json; available: jpg, cls\. Omit target_key=', *labeled, target_key='label')
    refused(r'sample b has no \.cls; available: jpg, 1\.cls\. WebDataset ends', *labeled, 'b.jpg', 'b.1.cls')
    refused(r'sample a has no \.json; available: jpg, txt', 'a.jpg', 'a.txt', target_key='label')
    refused(r'sample b\\x1b has no \.cls; available: jpg, \\x1b', *labeled, 'b\x1b.jpg', 'b\x1b.\x1b')


@pytest.mark.parametrize('names, is_sharded', [
    (['1.JPG', '1.CLS'], True), (['1.left.jpg', '1.right.jpg', '1.cls'], True), (['22.05.jpg', '22.05.cls'], True),
    (['1.jpg', '1.txt'], False), (['cat/1.jpg', 'cat/1.txt'], False), (['1.jpg', '1.cls2'], False)])
def test_shards_are_told_by_their_keys(tmp_path, names, is_sharded):
    assert holds_shards(shard(tmp_path/'a.tar', *names)) == is_sharded


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
