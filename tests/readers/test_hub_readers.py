"WebDataset shards and Hugging Face data sets, made by their own libraries; timm's readers as oracle; no network."
import json
import pickle
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from timmdata import LabelMap, create_loader, relabel
from timmdata.core.faults import ImageReadError
from timmdata.datasets.factory import create_dataset
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.readers.stream import StreamReader

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore:This DataLoader will create')]
NUM, SHARDS = 40, 4


@pytest.fixture(scope='module')
def photos(samples) -> list[tuple[bytes, int, str]]:
    "Bytes, class index and class name; four photographs a class."
    paths = [path for folder in sorted((samples/'val').iterdir()) for path in sorted(folder.iterdir())[:4]]
    names = sorted({path.parent.name for path in paths})
    return [(path.read_bytes(), names.index(path.parent.name), path.parent.name) for path in paths]


def collected(loader) -> list[int]: return [int(target) for _, targets in loader for target in torch.as_tensor(targets).view(-1)]


# ---- the share of a worker

class Numbers(StreamReader):
    "Numbers from 0 on."
    def read_shard(self, shard_index, num_shards, seed): return ((k, k) for k in range(shard_index, self.num_samples, num_shards))


@pytest.mark.parametrize('world', [1, 2, 3])
@pytest.mark.parametrize('num_workers', [1, 2, 3])
@pytest.mark.parametrize('num, batch_size, repeats', [(7, 1, 0), (8, 4, 2), (3, 5, 1), (1, 2, 3)])
def test_epochs_have_timms_length(monkeypatch, world, num_workers, num, batch_size, repeats):
    hfids = pytest.importorskip('timm.data.readers.reader_hfids')
    timms = object.__new__(hfids.ReaderHfids)
    vars(timms).update(num_samples=num, repeats=repeats, dist_num_replicas=world, num_workers=num_workers, batch_size=batch_size,
                       global_num_workers=world * num_workers, is_training=True)
    ours = Numbers(num, True, batch_size, repeats)
    ours.world = (0, world)
    ours.set_loader_cfg(num_workers)
    assert len(ours) == len(timms) and ours.samples_per_worker() == timms._num_samples_per_worker()


@pytest.mark.parametrize('world, num_workers', [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_evaluation_gives_each_sample_once_over_all_ranks(monkeypatch, world, num_workers):
    import timmdata.readers.stream as stream_reader
    seen = []
    for rank in range(world):
        reader = Numbers(17)
        reader.world = (rank, world)
        for worker in range(num_workers):
            info = None if num_workers == 1 else torch.utils.data._utils.worker.WorkerInfo(
                id=worker, num_workers=num_workers, seed=0, dataset=None)
            monkeypatch.setattr(stream_reader, 'get_worker_info', lambda info=info: info)
            seen += [k for k, _ in reader]
    assert sorted(seen) == list(range(17))


def test_the_epoch_reaches_living_workers():
    class Epochs(StreamReader):
        "The epoch."
        def read_shard(self, shard_index, num_shards, seed): return ((int(self._epoch), 0) for _ in range(3))
    reader = Epochs(4, is_training=True)
    loader = DataLoader(IterableImageDataset(reader=reader, load_bytes=True), 2, num_workers=2, persistent_workers=True)
    for epoch in (3, 5):
        reader.set_epoch(epoch)
        assert {int(k) for images, _ in loader for k in images} == {epoch}


# ---- WebDataset

@pytest.fixture(scope='module')
def shards(photos, tmp_path_factory) -> Path:
    wds = pytest.importorskip('webdataset')
    root = tmp_path_factory.mktemp('shards')
    names = [f'imgs-val-{k:02}.tar' for k in range(SHARDS)]
    for k, name in enumerate(names):
        with wds.TarWriter(str(root/name)) as writer:
            for n in range(k, NUM, SHARDS):
                data, target, word = photos[n]
                writer.write({'__key__': f'{n:04}', 'jpg': data, 'cls': target,
                              'json': {'label': target, 'word': word, 'tags': [target, 1], 'x': n % 2, 'y': 1,
                                       'some': target if n % 2 else -1}})
    split = dict(name='val', filenames=names, shard_lengths=[NUM // SHARDS] * SHARDS, num_samples=NUM)
    (root/'_info.json').write_text(json.dumps({'splits': {'val': split, 'some': {**split, 'alt_label': 'some', 'name': 'some'}}}))
    return root


def timm_wds(root, split, **settings):
    module = pytest.importorskip('timm.data.readers.reader_wds')
    try: return module.ReaderWds(str(root), split=split, **settings)
    except Exception as error: pytest.skip(f'timm cannot read shards with this webdataset: {error}')


@pytest.mark.parametrize('split, settings', [
    ('val', {}), ('val', dict(target_key='label')), ('val', dict(target_key='tags')), ('val', dict(target_key='x, y')),
    ('val', dict(target_key='label', class_map={k: 9 - k for k in range(10)})), ('val', dict(class_map={k: 1 for k in range(10)})),
    ('some', {}), ('imgs-val-{00..02}.tar', {}), ('imgs-val-{01..02}.tar|20', {}), ('imgs-val-03.tar|7', {})])
def test_shards_are_read_as_by_timm(shards, split, settings):
    timms, ours = timm_wds(shards, split, **settings), create_dataset('wds/x', shards, split, **settings)
    oracle = [(image.tobytes(), target) for image, target in timms]
    assert [(image.tobytes(), target) for image, target in ours] == oracle and ours.class_to_idx == timms.class_to_idx
    # timm takes the length of a pattern from the info file if the split's name is its last part but one
    assert len(ours) == (len(timms) or 30)


@pytest.mark.parametrize('num_workers', [0, 3, 6])
def test_shards_in_workers_give_each_sample_once(shards, photos, num_workers):
    dataset = create_dataset('WDS/', shards, 'validation')
    loader = create_loader(dataset, 16, 7, num_workers=num_workers, persistent_workers=False, device='cpu')
    assert Counter(collected(loader)) == Counter(target for _, target, _ in photos) and len(dataset) == NUM


@pytest.mark.parametrize('num_workers', [0, 5])
def test_training_gives_whole_batches(shards, num_workers):
    dataset = create_dataset('wds/', shards, 'val', is_training=True, batch_size=8, seed=1)
    loader = create_loader(dataset, 16, 8, is_training=True, num_workers=num_workers, persistent_workers=False, device='cpu')
    sizes = [len(targets) for _, targets in loader]
    assert sizes == [8] * len(sizes) and sum(sizes) == len(dataset) >= NUM


def test_more_workers_than_shards_shorten_timms_epoch_not_ours(shards):
    timms = timm_wds(shards, 'imgs-val-00.tar|10', is_training=True)
    timms._lazy_init()
    timms.global_num_workers, timms.global_worker_id = 2, 1
    assert not list(timms)
    ours = create_dataset('wds/', shards, 'imgs-val-00.tar', is_training=True)
    assert len([target for _, target in DataLoader(ours, None, num_workers=2)]) == len(ours) == NUM // SHARDS


def test_order_of_training_is_a_function_of_seed_and_epoch(shards):
    def order(seed, epoch, num_workers=0):
        dataset = create_dataset('wds/', shards, 'val', is_training=True, seed=seed)
        dataset.set_epoch(epoch)
        return [int(k) for _, k in DataLoader(dataset, None, num_workers=num_workers)]
    first = order(1, 0)
    assert first == order(1, 0) and first != order(1, 1) and first != order(2, 0)
    assert order(1, 0, 2) == order(1, 0, 2) and sorted(order(1, 0)) == sorted(k % 10 for k in range(NUM))


@pytest.mark.parametrize('split, message', [
    ('train', "no split 'train' in .*; there is: val, some"), ('', 'read by split')])
def test_split_of_shards(shards, split, message):
    with pytest.raises(ValueError, match=message): create_dataset('wds/', shards, split)
    assert len(create_dataset('wds/', shards, 'imgs-val-00.tar', is_training=True)) == NUM // SHARDS   # from the info file


def test_faulty_shards_are_errors(shards, tmp_path):
    whole = (shards/'imgs-val-00.tar').read_bytes()
    (tmp_path/'a.tar').write_bytes(whole[:len(whole) // 2])
    with pytest.raises(ImageReadError, match=r'a\.tar'): list(create_dataset('wds/', tmp_path, 'a.tar|9'))
    with pytest.raises(ImageReadError, match=r'no\.tar'): list(create_dataset('wds/', tmp_path, 'no.tar|9'))
    with pytest.raises(ValueError, match='give num_samples'): create_dataset('wds/', tmp_path, 'a.tar', is_training=True)
    (tmp_path/'_info.json').write_text('{')
    with pytest.raises(ValueError, match='is no JSON'): create_dataset('wds/', tmp_path, 'val')
    with pytest.raises(ValueError, match='made for WebDataset'): create_dataset('', shards, None)


# ---- Hugging Face

@pytest.fixture(scope='module')
def hf(photos, tmp_path_factory):
    "A folder as on the hub, the table it is made of, and a folder for the package's own files."
    datasets = pytest.importorskip('datasets')
    datasets.disable_progress_bars()
    root = tmp_path_factory.mktemp('hf')
    names = sorted({name for *_, name in photos})
    rows = {'image': [{'bytes': data, 'path': f'{k}.jpg'} for k, (data, *_) in enumerate(photos)],
            'label': [target for _, target, _ in photos], 'word': [word for *_, word in photos],
            'tags': [[target, 0] for _, target, _ in photos], 'x': [k % 2 for k in range(NUM)], 'y': [1] * NUM}
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=names), word=datasets.Value('string'),
                                 tags=datasets.Sequence(datasets.ClassLabel(names=names)), x=datasets.Value('int64'),
                                 y=datasets.Value('int64'))
    table = datasets.Dataset.from_dict(rows, features)
    for k in range(SHARDS): table.shard(SHARDS, k).to_parquet(root/f'Set/data/validation-0000{k}-of-0000{SHARDS}.parquet')
    table.select(range(0, NUM, 2)).to_parquet(root/'Set/data/train-00000-of-00001.parquet')
    return str(root/'Set'), table, root/'kept'


@pytest.mark.parametrize('settings', [
    {}, dict(target_key='tags'), dict(target_key='x,y'), dict(class_map={'cat': 1, 'rocket': 0, **dict.fromkeys(
        ('astronaut', 'brick', 'coffee', 'galaxies', 'gravel', 'motorcycle', 'retina', 'tissue'), 2)}),
    dict(class_map={k: 9 - k for k in range(10)}), dict(target_key='tags', class_map={k: 9 - k for k in range(10)})])
def test_tables_are_read_as_by_timm(hf, settings):
    from timm.data import create_dataset as timm_create_dataset
    name, _, kept = hf
    ours = create_dataset(f'hfds/{name}', kept, 'validation', **settings)
    timms = timm_create_dataset(f'hfds/{name}', str(kept), 'validation', **settings)
    assert len(ours) == len(timms) == NUM and ours.class_to_idx == timms.reader.class_to_idx
    for k in range(0, NUM, 7):
        assert ours[k][1] == timms[k][1] and ours[k][0].tobytes() == timms[k][0].tobytes()
        assert ours.filename(k) == timms.filename(k)
    assert ours.filenames() == timms.filenames()


def test_additional_features_come_after_the_target(hf):
    from timm.data import ImageDataset as TimmImageDataset
    name, _, kept = hf
    for extra in ('word', ['word', 'x']):
        ours, timms = (kind(str(kept), f'hfds/{name}', 'validation', additional_features=extra)
                       for kind in (ImageDataset, TimmImageDataset))
        assert ours[5][1:] == timms[5][1:] and len(ours[5]) == (3 if extra == 'word' else 4)


@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_tables_take_the_fast_way(hf, photos, workers):
    name, _, kept = hf
    dataset = create_dataset(f'hfds/{name}', kept, 'val')
    assert isinstance(dataset.reader[0][0], bytes) and dataset.reader.is_thread_safe
    loader = create_loader(dataset, 16, 8, num_workers=2, workers=workers, use_prefetcher=False)
    assert sorted(collected(loader)) == sorted(target for _, target, _ in photos)


def test_tables_in_threads_and_copies(hf):
    reader = create_dataset(f'hfds/{hf[0]}', hf[2], 'val').reader
    wanted, wrong = [reader[k] for k in range(NUM)], []
    def read(seed):
        for k in np.random.default_rng(seed).permutation(NUM):
            if reader[k] != wanted[k]: wrong.append(k)
    threads = [threading.Thread(target=read, args=[seed]) for seed in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    copied = pickle.loads(pickle.dumps(reader))
    assert not wrong and [copied[k] for k in range(NUM)] == wanted


def test_tables_can_be_relabelled(hf):
    dataset = create_dataset(f'hfds/{hf[0]}', hf[2], 'val')
    assert dataset.reader.targets.tolist() == [dataset[k][1] for k in range(NUM)]
    some = relabel(dataset, LabelMap({'cat': 'pet', 'rocket': 'vehicle'}))
    assert len(some) == 8 and {some[k][1] for k in range(8)} == {0, 1}


@pytest.mark.parametrize('split, num', [('train', NUM // 2), ('training', NUM // 2), ('val', NUM), ('val[:25%]', NUM // 4),
                                        ('train+validation', NUM + NUM // 2), ('train[:5]+val[:5]', 10)])
def test_splits_of_tables(hf, split, num):
    assert len(create_dataset(f'hfds/{hf[0]}', hf[2], split)) == num


@pytest.mark.parametrize('kind', ['hfds', 'hfids'])
def test_wrong_words_for_tables_are_errors(hf, kind):
    name, _, kept = hf
    def create(split='val', **settings): return create_dataset(f'{kind}/{name}', kept, split, num_samples=NUM, **settings)
    if kind == 'hfds': create = lambda split='val', **settings: create_dataset(f'hfds/{name}', kept, split, **settings)  # noqa: E731
    for split in ('test', 'vall', 'test[:3]'):
        with pytest.raises(ValueError, match='no split'): create(split)
    for settings, message in ((dict(input_key='img'), "no column 'img'"), (dict(target_key='klass'), "no field 'klass'"),
                              (dict(trust_remote_code=True), 'leave it out')):
        with pytest.raises(ValueError, match=message): create(**settings)
    with pytest.raises(ValueError, match="'x' has no images"): create(input_key='x')
    with pytest.raises(OSError, match='astronaut'): next(iter(create(input_key='word')))   # taken for paths


def test_nothing_is_downloaded_unasked(tmp_path):
    datasets = pytest.importorskip('datasets')
    before = datasets.config.HF_HUB_OFFLINE
    with pytest.raises(FileNotFoundError, match='download=True fetches it'): create_dataset('hfds/Somebody/Nothing', tmp_path, 'val')
    assert before == datasets.config.HF_HUB_OFFLINE


@pytest.mark.parametrize('num_workers, download', [(0, False), (0, True), (3, False), (2, True)])
def test_stream_gives_each_sample_once(hf, photos, num_workers, download):
    name, _, kept = hf
    dataset = create_dataset(f'hfids/{name}', kept, 'val', num_samples=NUM, download=download)
    loader = create_loader(dataset, 16, 7, num_workers=num_workers, persistent_workers=False, device='cpu')
    assert Counter(collected(loader)) == Counter(target for _, target, _ in photos) and len(dataset) == NUM


def test_stream_is_timms(hf):
    from timm.data import create_dataset as timm_create_dataset
    name, _, kept = hf
    for settings in ({}, dict(target_key='tags'), dict(class_map={k: 9 - k for k in range(10)})):
        ours, timms = (create(f'hfids/{name}', str(kept), 'validation', num_samples=NUM, **settings)
                       for create in (create_dataset, timm_create_dataset))
        assert [(image.tobytes(), target) for image, target in ours] == [(image.tobytes(), target) for image, target in timms]
        assert ours.class_to_idx == timms.reader.class_to_idx and len(ours) == len(timms)


def test_training_with_a_stream(hf):
    name, _, kept = hf
    def create(**settings): return create_dataset(f'hfids/{name}', kept, 'val', is_training=True, num_samples=NUM, batch_size=8, **settings)
    for num_workers in (0, 2):
        loader = create_loader(create(), 16, 8, is_training=True, num_workers=num_workers, persistent_workers=False, device='cpu')
        sizes = [len(targets) for _, targets in loader]
        assert sizes == [8] * len(sizes) and sum(sizes) >= NUM
    first, second = create(), create()
    assert [k for _, k in first] == [k for _, k in second]
    second.set_epoch(1)
    assert [k for _, k in first] != [k for _, k in second]
    with pytest.raises(ValueError, match='4 files for 5 workers'):
        list(create_loader(create(), 16, 8, is_training=True, num_workers=5, persistent_workers=False, device='cpu'))
