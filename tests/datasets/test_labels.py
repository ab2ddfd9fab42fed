"Tables of labels, label maps and VOC: against pandas, pyarrow and torchvision; faults that people make."
import json
import pickle
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision.datasets import VOCDetection
from torchvision.datasets.vision import VisionDataset

from timmdata import ImageDataset, LabelMap, VOCClassification, create_loader, relabel
from timmdata.datasets.relabel import classes_of, targets_of
from timmdata.datasets.wrappers import fingerprint
from timmdata.readers.class_map import ClassMapError, check_class_map
from timmdata.readers.sample_table import LabelLists
from timmdata.readers.table import ReaderTable, TableError

pytestmark = pytest.mark.timeout(60)
CLASSES = ['ant', 'bee', 'cat', 'class 2', 'class 10']


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    "Twenty small files, whose colour says their number."
    folder = tmp_path_factory.mktemp('photos')
    for k in range(20): Image.new('RGB', (16, 12), (10 * k, 0, 0)).save(folder/f'{k}.png')
    return folder


@pytest.fixture
def frame(): return pandas.DataFrame([dict(path=f'{k}.png', target=CLASSES[k % 5], split='val' if k % 4 == 3 else 'train',
                                           weight=k / 4, age=k, note=f'note {k}', box=[k, 1.5]) for k in range(20)])


def number(sample): return sample[0].getpixel((0, 0))[0] // 10


# ---- tables

@pytest.mark.parametrize('kind', ['csv', 'tsv', 'jsonl', 'ndjson', 'parquet', 'pandas', 'polars', 'pyarrow', 'categorical'])
def test_every_kind_of_table_gives_the_same_samples(photos, frame, kind, tmp_path):
    frame = frame.drop(columns='box')
    source = tmp_path/f'labels.{kind}'
    if kind in ('csv', 'tsv'): frame.to_csv(source, index=False, sep='\t' if kind == 'tsv' else ',')
    elif kind in ('jsonl', 'ndjson'): frame.to_json(source, orient='records', lines=True)
    elif kind == 'parquet': frame.to_parquet(source)
    elif kind == 'categorical': source = frame.astype({'target': 'category', 'split': 'category'})
    else: source = dict(pandas=frame, polars=polars.DataFrame(frame.to_dict('records')), pyarrow=pyarrow.table(frame))[kind]
    dataset = ImageDataset(photos, table=source, weight_key='weight', fields=['age', 'note'])
    expected = frame[frame.split == 'train']
    assert dataset.class_to_idx == {name: k for k, name in enumerate(CLASSES)} and len(dataset) == len(expected)
    for sample, row in zip(dataset, expected.itertuples(), strict=True):
        assert sample[1:] == (CLASSES.index(row.target), row.weight, row.age, row.note) and number(sample) == row.age
    assert len(ImageDataset(photos, split='validation', table=source)) == 5
    assert len(ImageDataset(photos, split=None, table=source)) == 20


def test_table_beside_its_photographs(photos, frame, tmp_path):
    "A file's paths are relative to its folder; absolute paths are taken as they are."
    frame.drop(columns='box').to_csv(photos/'labels.csv', index=False)
    assert number(ImageDataset(photos/'labels.csv')[4]) == 5
    frame.assign(path=[str(photos/path) for path in frame.path]).drop(columns='box').to_csv(tmp_path/'away.csv', index=False)
    away = ImageDataset(tmp_path/'away.csv', split='val')
    assert number(away[0]) == 3 and away.filename(0, absolute=True) == str(photos/'3.png')


@pytest.mark.parametrize('workers', ['threads', 'processes'])
def test_fields_reach_the_batch(photos, frame, workers):
    dataset = ImageDataset(photos, table=frame, split=None, weight_key='weight', fields=['age', 'note', 'box'])
    loader = create_loader(dataset, 8, 6, num_workers=2, workers=workers, device='cpu')
    batches = list(loader)
    assert torch.cat([batch[1] for batch in batches]).tolist() == [k % 5 for k in range(20)]
    assert torch.cat([batch[2] for batch in batches]).tolist() == [k / 4 for k in range(20)]
    assert torch.cat([batch[3] for batch in batches]).tolist() == list(range(20))
    assert batches[0][4] == [f'note {k}' for k in range(6)] and batches[0][5].tolist() == [[k, 1.5] for k in range(6)]
    assert workers in repr(loader)


def test_tables_travel_to_spawned_workers(photos, frame):
    dataset = ImageDataset(photos, table=frame, fields=['box'])
    loader = create_loader(dataset, 8, 5, num_workers=1, workers='processes', multiprocessing_context='spawn', device='cpu')
    assert torch.cat([boxes for *_, boxes in loader])[:, 0].tolist() == [k for k in range(20) if k % 4 != 3]
    assert pickle.loads(pickle.dumps(dataset))[0][1:] == dataset[0][1:]


def test_targets_of_all_kinds(photos, frame):
    def of(**columns): return ImageDataset(photos, split=None, table=frame.assign(**columns))
    assert [t for _, t in of(target=range(20))] == list(range(20))
    numbers = of(target=[k / 2 for k in range(20)])
    assert [t for _, t in numbers] == [k / 2 for k in range(20)] and numbers.class_to_idx == {}
    assert next(iter(create_loader(numbers, 8, 4, device='cpu')))[1].dtype == torch.float32
    several = of(target=[['bee', 'ant'] if k % 2 else [] for k in range(20)])
    images, targets = next(iter(create_loader(several, 8, 4, device='cpu')))
    assert targets.tolist() == [[0, 0], [1, 1]] * 2 and targets.dtype == torch.float32
    unlabelled = ImageDataset(photos, split=None, table=frame[['path']], target_key=None)
    assert {t for _, t in unlabelled} == {-1} and unlabelled.class_to_idx == {}


@pytest.mark.parametrize('texts, expected', [
    (['007', '7'], {'007': 0, '7': 1}), (['1e', '2'], {'1e': 0, '2': 1}), (['nan', '1'], {'1': 0, 'nan': 1}),
    (['NA', 'null'], {'NA': 0, 'null': 1}), (['3', '5'], {'3': 3, '5': 5}), (['-1', '0'], {'0': 0}),
    (['True', 'False'], {'False': 0, 'True': 1}),
    (['0.5', '1'], {}), (['"a, b"', 'c'], {'a, b': 0, 'c': 1})])
def test_names_in_a_csv_stay_names(photos, texts, expected, tmp_path):
    "pandas reads 007 as 7 and NA as nothing; a class name is text unless all of them are numbers in plain form."
    (tmp_path/'labels.csv').write_text('path,target\n' + ''.join(f'{k}.png,{text}\n' for k, text in enumerate(texts)))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        assert ReaderTable(tmp_path/'labels.csv', photos, on_problem='drop').class_to_idx == expected


def test_all_faults_are_told_together(photos, frame):
    "One error with the count and the first examples of each kind; all rows in `problems`."
    bad = pandas.concat([frame, frame.iloc[[0]], frame.iloc[[1]].assign(target='cat'), frame.iloc[[2]].assign(path='gone.png'),
                         frame.iloc[[2]].assign(path='away.png', target='frog'), frame.iloc[[2]].assign(path=None)], ignore_index=True)
    class_map = {name: k for k, name in enumerate(CLASSES)}
    with pytest.raises(TableError) as caught: ReaderTable(bad, photos, class_map=class_map)
    text = str(caught.value)
    for part in ('6 of 25 rows', '2 × missing file: row 23 (gone.png), row 24 (away.png)', '1 × path that was there before: row 21 (0.png)',
                 "2 × path with several targets: row 2 (1.png), row 22 (1.png)", "row 24 ('frog')", 'no path: row 25', "on_problem='drop'"):
        assert part in text
    assert sorted(caught.value.problems) == [1, 20, 21, 22, 23, 24]
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    with pytest.warns(UserWarning, match='left out'): reader = ReaderTable(bad, photos, None, class_map, on_problem='drop')
    assert reader.samples.path(0) == '0.png' and '1.png' not in reader.filenames() and len(reader) == 19


def test_weights_that_are_no_numbers_are_told(photos, frame):
    wrong = frame.assign(w=['x', *['1'] * (len(frame) - 1)])
    with pytest.raises(TableError, match='20 × weight that is no number of 0 or more: row 1 .x.'):
        ReaderTable(wrong, photos, weight_key='w')


def test_a_path_in_two_splits_is_found(photos, frame):
    "The photograph would be validated on that was trained on."
    leaking = pandas.concat([frame, frame.iloc[[0]].assign(split='val')], ignore_index=True)
    with pytest.raises(TableError, match='1 × path that was there before: row 21'): ReaderTable(leaking, photos)


@pytest.mark.parametrize('wrong, message', [
    (dict(input_key='file'), "no column 'file'.*input_key="), (dict(target_key='label'), "no column 'label'.*target_key="),
    (dict(split_key='fold'), "no column 'fold'.*split_key="), (dict(fields=['colour']), "no column 'colour'.*fields="),
    (dict(weight_key='w'), "no column 'w'.*weight_key="), (dict(split='test'), "no split 'test' in .*; there is: train, val"),
    (dict(on_problem='skip'), 'allowed are raise, drop'), (dict(class_map={}), 'at least one class name')])
def test_wrong_settings(photos, frame, wrong, message):
    with pytest.raises(ValueError, match=message): ReaderTable(frame, photos, **wrong)


def test_empty_and_damaged_tables(photos, tmp_path):
    (tmp_path/'only.csv').write_text('path,target\n')
    with pytest.raises(ValueError, match='no row that can be used'): ReaderTable(tmp_path/'only.csv', photos)
    for name in ('nothing.csv', 'nothing.parquet', 'nothing.jsonl'):
        (tmp_path/name).write_bytes(b'')
        with pytest.raises(ValueError): ReaderTable(tmp_path/name, photos)
    (tmp_path/'text.parquet').write_bytes(b'this is no table')
    with pytest.raises(ValueError): ReaderTable(tmp_path/'text.parquet', photos)
    with pytest.raises(FileNotFoundError, match='there is no table'): ImageDataset(tmp_path/'missing.csv')


class Plain(torch.utils.data.Dataset):
    "A data set that says its classes and targets, as torchvision's do."
    def __init__(self, targets, classes=('cat', 'dog', 'truck'), target_transform=None):
        self.targets, self.classes, self.target_transform = targets, classes, target_transform
    def __len__(self): return len(self.targets)
    def __getitem__(self, index): return None, self.targets[index]


def test_samples_without_a_label_are_dropped():
    "As in torchvision's STL10('train+unlabeled')."
    made = relabel(Plain(np.array([0, 1, 2, -1, -1])), {'cat': 'cat', 'truck': 'lorry'})
    assert [made[k][1] for k in range(len(made))] == [0, 1] and made.label_report.num_kept == len(made) == 2
    assert ('(no label)', None, 2) in made.label_report.rows


def test_targets_that_have_several_columns():
    several = np.array([[1, 0, 1], [0, 1, 0]])
    for targets in (several, several.astype(bool), torch.tensor(several)):
        made = relabel(Plain(targets), {'cat': 'cat', 'dog': 'dog', 'truck': 'lorry'})
        assert [made[k][1].tolist() for k in range(2)] == [[1, 0, 1], [0, 1, 0]]
    details = torch.tensor([[2, 70, 5], [0, 71, 9]])   # as torchvision's QMNIST, whose target_transform takes the first
    assert targets_of(Plain(details, target_transform=lambda target: int(target[0]))).tolist() == [2, 0]
    with pytest.raises(ValueError, match='give class indexes'): targets_of(Plain(details))
    with pytest.raises(ValueError, match='no class has the index 3 of 1 samples'): relabel(Plain([0, 3]), {'cat': 'cat'})


def test_a_voc_set_without_objects_is_an_error(tmp_path):
    voc = tmp_path/'VOCdevkit/VOC2012'
    for part in ('Annotations', 'JPEGImages', 'ImageSets/Main'): (voc/part).mkdir(parents=True)
    (voc/'ImageSets/Main/train.txt').write_text('a\n')
    (voc/'Annotations/a.xml').write_text('<annotation/>')
    with pytest.raises(ValueError, match='no image of VOC2012 train is left'): VOCClassification(tmp_path, '2012', 'train')


def test_a_large_table_is_read_without_looking_at_every_file(photos):
    "100,000 rows, files not checked: arrays, not objects."
    table = pyarrow.table({'path': [f'n{k % 1000}/{k}.jpg' for k in range(100_000)], 'target': [k % 1000 for k in range(100_000)]})
    reader = ReaderTable(table, photos, check_files=False)
    assert len(reader.class_to_idx) == 1000 and reader.samples.nbytes < 4_000_000 and reader.samples[99_999] == ('n999/99999.jpg', 999)


# ---- label maps

class Listed(VisionDataset):
    "As torchvision's data sets are: images in memory, `targets`, `classes`."
    def __init__(self, targets, classes, name='targets'):
        super().__init__('.')
        setattr(self, name, targets)
        self.classes, self.read = classes, 0

    def __len__(self): return 6

    def __getitem__(self, index):
        self.read += 1
        return Image.new('RGB', (8, 8), (index, 0, 0)), [0, 1, 2, 0, 1, 2][index]


@pytest.mark.parametrize('targets, name', [([0, 1, 2, 0, 1, 2], 'targets'), (torch.tensor([0, 1, 2, 0, 1, 2]), 'targets'),
                                           (np.array([0, 1, 2, 0, 1, 2]), 'labels'), ([0, 1, 2, 0, 1, 2], '_labels')])
def test_torchvisions_data_sets(targets, name):
    source = Listed(targets, ['aeroplane', 'car', 'train'], name)
    made = relabel(source, {'aeroplane': 'airplane', 'car': 'automobile', 'frog': 'frog'}, {'automobile': 1, 'airplane': 0, 'frog': 6})
    assert not source.read and made.label_report.unused == ['frog'] and made.label_report.num_kept == 4
    seen = [(image.getpixel((0, 0))[0], target) for image, target in (made[k] for k in range(len(made)))]
    assert seen == [(0, 0), (1, 1), (3, 0), (4, 1)]
    assert torch.cat([targets for _, targets in create_loader(made, 8, 2, device='cpu')]).tolist() == [0, 1, 0, 1]
    assert [target for _, target in DataLoader(made, None)] == [0, 1, 0, 1]


def test_relabelling_composes(photos, frame):
    "Twice, of a subset, of a concatenation: as by hand."
    dataset = ImageDataset(photos, split=None, table=frame, fields=['age'])
    once = relabel(dataset, LabelMap({'ant': 'insect', 'bee': 'insect'}, other='keep'))
    twice = relabel(Subset(once, range(2, 20)), {'insect': 'animal', 'cat': 'animal'})
    joined = relabel(ConcatDataset([once, Subset(once, [0, 2])]), {'insect': 'i', 'class 10': None, 'cat': 'c'})
    assert [age for _, _, age in twice] == [k for k in range(2, 20) if k % 5 < 3] and set(targets_of(twice)) == {0}
    assert type(twice) is ImageDataset and dataset.class_to_idx == {name: k for k, name in enumerate(CLASSES)}
    assert [joined[k][2] for k in range(len(joined))] == [k for k in range(20) if k % 5 < 3] + [0, 2]
    assert classes_of(joined) == {'c': 0, 'i': 1} and len({fingerprint(d) for d in (dataset, once, twice, joined)}) == 4


def test_the_map_is_part_of_a_checkpoint(photos, frame):
    "A state of a loader with other classes is refused."
    def loader(label_map):
        return create_loader(relabel(ImageDataset(photos, split=None, table=frame), label_map), 8, 4, seed=0, device='cpu')
    state = loader({'ant': 'insect', 'cat': 'pet'}).state_dict()
    loader({'ant': 'insect', 'cat': 'pet'}).load_state_dict(state)
    with pytest.raises(ValueError, match='dataset was'): loader({'ant': 'insect', 'cat': 'animal'}).load_state_dict(state)


def test_evaluation_with_other_classes_is_refused(photos, frame):
    train = ImageDataset(photos, table=frame)
    val = ImageDataset(photos, split='val', table=frame[frame.target != 'bee'])   # numbered without bee
    with pytest.raises(ClassMapError, match=r'3 another index \(cat: 1, was 2, .*; 1 missing \(bee\)'):
        create_loader(val, 8, 4, class_to_idx=train.class_to_idx)
    right = ImageDataset(photos, split='val', table=frame[frame.target != 'bee'], class_map=train.class_to_idx)
    assert len(create_loader(right, 8, 4, class_to_idx=train.class_to_idx)) == 1
    with pytest.raises(ClassMapError): classes_of(ConcatDataset([train, val]))
    check_class_map(right.class_to_idx, json.loads(json.dumps(train.class_to_idx)))


def test_nothing_is_decoded(photos, frame):
    with patch.object(Image, 'open', side_effect=AssertionError('an image is opened')):
        dataset = ImageDataset(photos, split=None, table=frame)
        assert len(relabel(Subset(dataset, range(15)), {'ant': 'x'})) == 3


def test_label_lists_behave_like_a_list():
    lists = LabelLists.from_lists([[1], [], [0, 2]], 3)
    assert len(lists) == 3 and lists[-1].tolist() == [1, 0, 1] and lists[1].tolist() == [0, 0, 0]
    with pytest.raises(IndexError): lists[3]
    assert pickle.loads(pickle.dumps(lists))[0].tolist() == [0, 1, 0]


# ---- VOC

NAMES = ['aeroplane', 'car', 'bird', 'cat', 'dog', 'person', 'bottle']
TO_CIFAR10 = {'aeroplane': 'airplane', 'car': 'automobile', 'bird': 'bird', 'cat': 'cat', 'dog': 'dog', 'frog': 'frog'}


@pytest.fixture(scope='module')
def voc(tmp_path_factory):
    "A tree in VOC's layout: forty scenes of one to four objects."
    root, rng = tmp_path_factory.mktemp('voc'), np.random.default_rng(0)
    folder = root/'VOCdevkit'/'VOC2007'
    for part in ('JPEGImages', 'Annotations', 'ImageSets/Main'): (folder/part).mkdir(parents=True)
    names = [f'{k:06}' for k in range(40)]
    for k, name in enumerate(names):
        Image.new('RGB', (60, 50), (5 * k, 0, 0)).save(folder/'JPEGImages'/f'{name}.jpg')
        objects = ''
        for _ in range(rng.choice([1, 1, 2, 4])):
            x, y, w, h = rng.integers(1, 25, 4)
            objects += (f'<object><name>{rng.choice(NAMES)}</name><difficult>{rng.integers(2)}</difficult>'
                        f'<bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox>'
                        '<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>'
                        '</object>')
        (folder/'Annotations'/f'{name}.xml').write_text(f'<annotation>{objects}</annotation>')
    for image_set, part in (('train', names[:15]), ('val', names[15:]), ('trainval', names)):
        (folder/'ImageSets/Main'/f'{image_set}.txt').write_text('\n'.join(part) + '\n')
    return root


def annotated(voc, image_set='trainval'):
    "torchvision's view: image number and objects."
    for k, (_, target) in enumerate(VOCDetection(voc, '2007', image_set)):
        objects = target['annotation']['object']
        yield k, [(o['name'], *(int(o['bndbox'][e]) for e in ('xmin', 'ymin', 'xmax', 'ymax')), o['difficult'] == '1') for o in objects]


def test_single_objects_as_the_tutorial_filters_them(voc):
    expected = [(k, TO_CIFAR10[objects[0][0]]) for k, objects in annotated(voc) if len(objects) == 1 and objects[0][0] in TO_CIFAR10]
    with patch.object(Image, 'open', side_effect=AssertionError('an image is opened')):
        dataset = VOCClassification(voc, '2007', 'trainval', TO_CIFAR10)
    names = list(dataset.class_to_idx)
    assert names == sorted(set(TO_CIFAR10.values())) and len(dataset) == len(expected) > 5
    assert [(int(Path(dataset.filename(k)).stem), names[dataset[k][1]]) for k in range(len(dataset))] == expected
    assert 'frog' in dataset.label_report.unused and dataset.label_report.num_samples == 40


def test_largest_object_and_difficult_ones(voc):
    def largest(objects): return max(objects, key=lambda o: (o[3] - o[1]) * (o[4] - o[2]))[0]
    for use_difficult in (True, False):
        scenes = [(k, [o for o in objects if use_difficult or not o[5]]) for k, objects in annotated(voc)]
        expected = [(k, TO_CIFAR10[largest(o)]) for k, o in scenes if o and largest(o) in TO_CIFAR10]
        dataset = VOCClassification(voc, '2007', 'trainval', TO_CIFAR10, objects='largest', use_difficult=use_difficult)
        names = list(dataset.class_to_idx)
        assert [(int(Path(dataset.filename(k)).stem), names[t]) for k, t in enumerate(targets_of(dataset))] == expected


def test_all_objects_as_several_labels(voc):
    dataset = VOCClassification(voc, '2007', 'val', objects='any')
    for (_, objects), (_, target) in zip(annotated(voc, 'val'), dataset, strict=True):
        assert {name for name, idx in dataset.class_to_idx.items() if target[idx]} == {o[0] for o in objects}
    images, targets = next(iter(create_loader(dataset, 16, 8, device='cpu', num_workers=2)))
    assert targets.shape == (8, 20) and targets.dtype == torch.float32 and set(targets.unique().tolist()) == {0, 1}
    pets = relabel(dataset, {'cat': 'pet', 'dog': 'pet'})
    assert len(pets) == sum({'cat', 'dog'} & {o[0] for o in objects} != set() for _, objects in annotated(voc, 'val'))


def test_where_voc_may_lie(voc, tmp_path):
    for root in (voc, voc/'VOCdevkit', voc/'VOCdevkit'/'VOC2007'): assert len(VOCClassification(root, 2007, 'trainval', TO_CIFAR10)) > 5
    with pytest.raises(FileNotFoundError, match='download=True'): VOCClassification(tmp_path, '2007', 'val')
    with pytest.raises(FileNotFoundError, match='download=True'): VOCClassification(voc, '2012', 'val')
    with pytest.raises(ValueError, match="no image set 'test'; there is: train, trainval, val"): VOCClassification(voc, '2007', 'test')


def test_damaged_annotation_names_its_file(voc, tmp_path):
    folder = tmp_path/'VOC2007'
    for part in ('Annotations', 'ImageSets/Main'): (folder/part).mkdir(parents=True)
    (folder/'ImageSets/Main/val.txt').write_text('1\n')
    (folder/'Annotations/1.xml').write_text('<annotation><object>')
    with pytest.raises(ValueError, match='1.xml is no annotation of VOC'): VOCClassification(tmp_path, '2007', 'val')
    (folder/'Annotations/1.xml').unlink()
    with pytest.raises(FileNotFoundError, match='1.xml'): VOCClassification(tmp_path, '2007', 'val')
