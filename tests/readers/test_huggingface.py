"Hugging Face data sets, made by their own library; timm's readers as oracle; no network."
import pickle
import threading
from collections import Counter

import numpy as np
import pytest
from grids import quick
from loader_targets import collect_targets
from PIL import Image

from timmdata import LabelMap, create_loader, relabel
from timmdata.core.faults import ImageReadError
from timmdata.datasets.factory import create_dataset
from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.readers.class_map import build_class_map
from timmdata.readers.huggingface import ReaderHfds, ReaderHfids

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore:This DataLoader will create')]
NUM, SHARDS = 40, 4


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
@pytest.mark.full
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


@quick(1, 'workers', ['threads', 'processes'])
def test_tables_take_the_fast_way(hf, photos, workers):
    name, _, kept = hf
    dataset = create_dataset(f'hfds/{name}', kept, 'val')
    assert isinstance(dataset.reader[0][0], bytes) and dataset.reader.is_thread_safe
    loader = create_loader(dataset, 16, 8, num_workers=2, worker_type=workers, use_prefetcher=False)
    assert sorted(collect_targets(loader)) == sorted(target for _, target, _ in photos)


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


def test_tables_can_be_relabeled(hf):
    dataset = create_dataset(f'hfds/{hf[0]}', hf[2], 'val')
    assert dataset.reader.targets.tolist() == [dataset[k][1] for k in range(NUM)]
    some = relabel(dataset, LabelMap({'cat': 'pet', 'rocket': 'vehicle'}))
    assert len(some) == 8 and {some[k][1] for k in range(8)} == {0, 1}


@pytest.mark.parametrize('split, num', [('train', NUM // 2), ('training', NUM // 2), ('val', NUM), ('val[:25%]', NUM // 4),
                                        ('train+validation', NUM + NUM // 2), ('train[:5]+val[:5]', 10)])
def test_splits_of_tables(hf, split, num):
    assert len(create_dataset(f'hfds/{hf[0]}', hf[2], split)) == num


@quick(2, 'num_workers, download', [(0, False), (0, True), (3, False), (2, True)])
def test_stream_gives_each_sample_once(hf, photos, num_workers, download):
    name, _, kept = hf
    dataset = create_dataset(f'hfids/{name}', kept, 'val', num_samples=NUM, download=download)
    loader = create_loader(dataset, 16, 7, num_workers=num_workers, persistent_workers=False, device='cpu')
    assert Counter(collect_targets(loader)) == Counter(target for _, target, _ in photos) and len(dataset) == NUM


@quick(1, 'num_workers', [2, 1])
def test_each_worker_of_each_rank_has_files_of_its_own(hf, num_workers):
    "Also where `shuffle` of the package reports fewer shards than files (datasets#8669)."
    targets = []
    for rank in range(2):
        reader = ReaderHfids(hf[1].to_iterable_dataset(num_shards=SHARDS), is_training=True, batch_size=5, num_samples=NUM)
        reader.world = rank, 2
        loader = create_loader(IterableImageDataset(None, reader=reader), 16, 5, is_training=True, num_workers=num_workers, device='cpu')
        targets.append(collect_targets(loader))
    assert [len(share) for share in targets] == [NUM // 2] * 2
    assert Counter(targets[0] + targets[1]) == Counter(hf[1]['label'])


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
    with pytest.raises(ValueError, match=r'files \(4\) than workers \(5\)'):
        list(create_loader(create(), 16, 8, is_training=True, num_workers=5, persistent_workers=False, device='cpu'))


# ---- what people bring

def of_images(images, labels, feature, image='image', label='label'):
    datasets = pytest.importorskip('datasets')
    features = datasets.Features({image: datasets.Image(), label: feature})
    return datasets.Dataset.from_dict({image: images, label: labels}, features=features)


@pytest.fixture
def two(hf):
    import datasets
    return of_images([Image.new('RGB', (9, 7), (k, 0, 0)) for k in range(3)], [1, 0, 1], datasets.ClassLabel(names=['b', 'a']))


@pytest.mark.parametrize('place', ['root', 'reader', 'splits'])
def test_a_dataset_of_the_package_is_read_as_by_its_reader(two, place):
    import datasets
    splits = datasets.DatasetDict(train=two.select([0]), validation=two)
    given = dict(root=(two,), reader=(None, two), splits=(splits, None, 'val'))[place]
    dataset = ImageDataset(*given)
    assert [target for _, target in dataset] == [1, 0, 1] == dataset.targets and dataset.classes == ['b', 'a']
    assert [image.getpixel((0, 0))[0] for image, _ in dataset] == [0, 1, 2] and 'classes: 2' in repr(dataset)
    assert pickle.loads(pickle.dumps(dataset))[1][1] == 0
    if place == 'splits': assert len(ImageDataset(splits)) == 1
    if place == 'root': assert ImageDataset(two, class_map={'a': 0, 'b': 1}).targets == [0, 1, 0]
    with pytest.raises(TypeError, match='is a stream: read it with IterableImageDataset'): ImageDataset(two.to_iterable_dataset())


@pytest.mark.parametrize('on_error', ['raise', 'skip', 'replace'])
def test_a_null_image_is_a_bad_sample(two, on_error):
    photos = [row['image'] for row in two]
    dataset = ImageDataset(of_images([photos[0], None, photos[2]], [0, 1, 0], two.features['label']), on_error=on_error)
    assert dataset.filenames() == ['0', '1', '2']
    if on_error == 'raise':
        with pytest.raises(ImageReadError, match=r'cannot read 1 \(index 1\): .*it is null'): dataset[1]
        return
    with pytest.warns(RuntimeWarning, match='index 1'):
        loader = create_loader(dataset, 16, 2, is_training=True, shuffle=False, drop_last=False, num_workers=0, device='cpu')
        targets = collect_targets(loader)
    assert targets == [0, 0, 0][:2 + (on_error == 'replace')] and [bad.index for bad in dataset.bad_samples] == [1]


def test_a_null_image_in_a_stream_is_a_bad_sample(two):
    photos = [row['image'] for row in two]
    stream = of_images([photos[0], None, photos[2]], [0, 1, 0], two.features['label']).to_iterable_dataset()
    with pytest.raises(ImageReadError, match='sample 1.*it is null'): list(IterableImageDataset(reader=ReaderHfids(stream)))
    with pytest.warns(RuntimeWarning, match='sample 1'):
        assert [target for _, target in IterableImageDataset(reader=ReaderHfids(stream), on_error='skip')] == [0, 0]


def test_labels_that_are_strings_need_a_class_map(two):
    "Each split would number its own names; the class map of the message works."
    import datasets
    strings = of_images([row['image'] for row in two], ['dog', 'cat', 'dog'], datasets.Value('string'), label='kind')
    for kind, given in ((ReaderHfds, strings), (ReaderHfids, strings.to_iterable_dataset())):
        with pytest.raises(ValueError, match=r"the labels in 'kind' are strings: pass class_map=.*dataset.unique\('kind'\)"):
            kind(given, target_key='kind')
    class_map = build_class_map(strings.unique('kind'))
    dataset = ImageDataset(strings, target_key='kind', class_map=class_map)
    assert dataset.targets == [1, 0, 1] == [target for _, target in dataset]
    text = ImageDataset(strings, target_key=None, additional_features='kind')
    assert text[1][1:] == (-1, 'cat') and text.targets == [-1] * 3 and 'none, so every target' in repr(text)


def test_a_dataset_by_name_may_have_no_labels(hf):
    "target_key=None was dropped, and the labels were read; scripts pass None to create_dataset for the default, as in timm."
    name, _, kept = hf
    for dataset in (ImageDataset(kept, f'hfds/{name}', 'validation', target_key=None),
                    create_dataset(f'hfds/{name}', kept, 'validation', target_key='')):
        assert dataset.targets == [-1] * NUM and dataset.class_to_idx == {} and not dataset.is_labeled
    from timm.data import create_dataset as timm_create_dataset
    ours, timms = (create(f'hfds/{name}', str(kept), 'validation', target_key=None) for create in (create_dataset, timm_create_dataset))
    assert ours.targets == [timms[k][1] for k in range(NUM)]


@pytest.mark.parametrize('num_workers', [0, 1])
def test_a_sample_without_an_image_is_named(two, num_workers):
    "A null in a dataset that was passed to the loader as it is."
    import datasets
    nulls = of_images([two[0]['image'], None, two[1]['image']], [0, 1, 0], datasets.ClassLabel(names=['a', 'b']))
    with create_loader(nulls, 8, 3, num_workers=num_workers, device='cpu') as loader, \
            pytest.raises(TypeError, match=r'a sample of the dataset has None instead of an image: .* filter\(\)'): list(loader)
    with create_loader(ImageDataset(nulls, on_error='skip'), 8, 3, num_workers=num_workers, device='cpu') as loader:
        assert sum(len(targets) for _, targets in loader) == 2   # as advised


def test_other_names_of_columns_are_advised(two):
    import datasets
    feature = datasets.ClassLabel(names=['b', 'a'])
    renamed = two.rename_columns({'image': 'img', 'label': 'fine_label'})
    with pytest.raises(ValueError, match="no column 'image'; available: img, fine_label: pass input_key='img'$"): ImageDataset(renamed)
    with pytest.raises(ValueError, match="no field 'label'; available: img, fine_label: pass target_key='fine_label'$"):
        ImageDataset(renamed, input_key='img')
    both = renamed.add_column('coarse_label', [0, 0, 1]).cast_column('coarse_label', feature)
    with pytest.raises(ValueError, match="pass target_key='fine_label' or target_key='coarse_label'$"): ImageDataset(both, input_key='img')
    assert ImageDataset(both, input_key='img', target_key='coarse_label').targets == [0, 0, 1]


def test_several_fields_may_be_a_list(hf):
    dataset = ImageDataset(hf[1], target_key=['x', 'y'])
    assert dataset[1][1] == [0, 1] == ImageDataset(hf[1], target_key='x,y')[1][1] and dataset.class_to_idx == {'x': 0, 'y': 1}
    assert ImageDataset(hf[1], target_key=['y'])[0][1] == [0]
