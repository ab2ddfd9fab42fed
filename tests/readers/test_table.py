"Tables of labels, against pandas and pyarrow; faults that people make."
import os
import pickle
import re
import subprocess
import sys
import unicodedata
import warnings
from unittest.mock import patch

import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from grids import quick
from pyarrow import csv
from synthetic import BARE, ROOT
from tables import CLASSES, label_frame, rows_of, write_photos

from timmdata import ImageDataset, create_loader
from timmdata.readers.table import ReaderTable, TableError, read_table

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope='module')
def photos(tmp_path_factory): return write_photos(tmp_path_factory.mktemp('photos'))


@pytest.fixture
def frame(): return label_frame()


def number(sample): return sample[0].getpixel((0, 0))[0] // 10


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


@quick(1, 'workers', ['threads', 'processes'])
def test_fields_reach_the_batch(photos, frame, workers):
    dataset = ImageDataset(photos, table=frame, split=None, weight_key='weight', fields=['age', 'note', 'box'])
    loader = create_loader(dataset, 8, 6, num_workers=2, worker_type=workers, device='cpu')
    batches = list(loader)
    assert torch.cat([batch[1] for batch in batches]).tolist() == [k % 5 for k in range(20)]
    assert torch.cat([batch[2] for batch in batches]).tolist() == [k / 4 for k in range(20)]
    assert torch.cat([batch[3] for batch in batches]).tolist() == list(range(20))
    assert batches[0][4] == [f'note {k}' for k in range(6)] and batches[0][5].tolist() == [[k, 1.5] for k in range(6)]
    assert workers in repr(loader)


@pytest.mark.full
def test_tables_travel_to_spawned_workers(photos, frame):
    dataset = ImageDataset(photos, table=frame, fields=['box'])
    loader = create_loader(dataset, 8, 5, num_workers=1, worker_type='processes', multiprocessing_context='spawn', device='cpu')
    assert torch.cat([boxes for *_, boxes in loader])[:, 0].tolist() == [k for k in range(20) if k % 4 != 3]
    assert pickle.loads(pickle.dumps(dataset))[0][1:] == dataset[0][1:]


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
    for part in ('6 of 25 rows', '2 × missing file: row 23 (gone.png), row 24 (away.png)', '1 × repeated path: row 21 (0.png)',
                 "2 × path with several targets: row 2 (1.png), row 22 (1.png)", "row 24 ('frog')", 'no path: row 25', "on_problem='drop'"):
        assert part in text
    assert sorted(caught.value.problems) == [1, 20, 21, 22, 23, 24]
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    with pytest.warns(UserWarning, match='left out'): reader = ReaderTable(bad, photos, None, class_map, on_problem='drop')
    assert reader.samples.path(0) == '0.png' and '1.png' not in reader.filenames() and len(reader) == 19


def test_a_path_in_two_splits_is_found(photos, frame):
    "The photograph would be validated on that was trained on."
    leaking = pandas.concat([frame, frame.iloc[[0]].assign(split='val')], ignore_index=True)
    with pytest.raises(TableError, match='1 × repeated path: row 21'): ReaderTable(leaking, photos)


def test_empty_and_damaged_tables(photos, tmp_path):
    (tmp_path/'only.csv').write_text('path,target\n')
    with pytest.raises(ValueError, match='no usable rows'): ReaderTable(tmp_path/'only.csv', photos)
    for name in ('nothing.csv', 'nothing.parquet', 'nothing.jsonl'):
        (tmp_path/name).write_bytes(b'')
        with pytest.raises(ValueError): ReaderTable(tmp_path/name, photos)
    (tmp_path/'text.parquet').write_bytes(b'this is no table')
    with pytest.raises(ValueError): ReaderTable(tmp_path/'text.parquet', photos)
    with pytest.raises(FileNotFoundError, match='there is no table'): ImageDataset(tmp_path/'missing.csv')


def of_lines(folder, *lines) -> ReaderTable:
    (folder/'labels.jsonl').write_text('\n'.join(lines))
    return ReaderTable(folder/'labels.jsonl', check_files=False)


def test_texts_of_json_lines_stay_texts(tmp_path):
    "pyarrow's reader makes dates of them."
    reader = of_lines(tmp_path, '{"path": "2020-01-01", "target": "2021-05-06"}', '', '{"path": "b.png", "target": "2019-05-06"}')
    assert reader.class_to_idx == {'2019-05-06': 0, '2021-05-06': 1} and reader.filenames() == ['2020-01-01', 'b.png']


def test_damaged_parquet_and_text_that_is_not_utf8_name_the_file(photos, frame, tmp_path):
    "pyarrow raises an OSError for one, and a UnicodeDecodeError for the other when a name or a value is looked at."
    frame.drop(columns='box').to_parquet(tmp_path/'labels.parquet')
    whole = bytearray((tmp_path/'labels.parquet').read_bytes())
    whole[-8:-4] = bytes(4)
    (tmp_path/'labels.parquet').write_bytes(whole)
    (tmp_path/'labels.csv').write_bytes(b'path,target,caf\xe9\na.png,b,c\n')
    for name in 'labels.parquet', 'labels.csv':
        with pytest.raises(ValueError, match=name): ReaderTable(tmp_path/name, photos)


def test_targets_of_other_types_are_refused(photos, frame):
    for value in pandas.Timestamp('2020-01-01'), b'x', {'a': 1}:
        with pytest.raises(ValueError, match="column 'target' of the table: a target has type"):
            ReaderTable(pyarrow.table({'path': ['0.png'], 'target': [value]}), photos)


def test_a_large_table_is_read_without_looking_at_every_file(photos):
    "100,000 rows, files not checked: arrays, not objects."
    table = pyarrow.table({'path': [f'n{k % 1000}/{k}.jpg' for k in range(100_000)], 'target': [k % 1000 for k in range(100_000)]})
    reader = ReaderTable(table, photos, check_files=False)
    assert len(reader.class_to_idx) == 1000 and reader.samples.nbytes < 4_000_000
    assert reader.samples[99_999] == (str(photos/'n999/99999.jpg'), 999)


def deep(levels: int) -> str: return '[' * levels + ']' * levels


DEEP = [f'{{"target": {deep(10**6)}}}', '{"a":' * 10**5 + '1' + '}' * 10**5, '[\n' * 10**5,
        f'{{"a": "{"]" * 10**5}", "target": {deep(10**5)}}}',
        f'{{"path": "x", "target": "}}\n{deep(10**5)}', '{"path": "x", "target": "\\\n' + deep(10**5)]
FLAT = [f'{{"target": "{"[" * 10**5}"}}', f'{{"target": "\\"{"[" * 10**5}"}}', '{"target": [[1, 2], [3]]}\n' * 10**5,
        f'{{"target": {deep(99)}}}']


@pytest.mark.full
def test_deep_json_is_an_error_and_does_not_end_the_program(tmp_path):
    "A recursive parser overflows the stack; brackets in a JSON string are not levels. A separate process, because it could crash."
    for k, text in enumerate(DEEP + FLAT): (tmp_path/f'{k:02}.jsonl').write_text(text)
    code = f"""from pathlib import Path
from timmdata.readers.table import read_table
for path in sorted(Path({str(tmp_path)!r}).glob('*.jsonl')):
    try: print(read_table(path).num_rows, flush=True)
    except ValueError as error: print('refused' if 'cannot be read as jsonl' in str(error) else error, flush=True)"""
    with patch.dict(os.environ, PYTHONPATH=str(ROOT)):
        done = subprocess.run([sys.executable, '-c', BARE + '\n' + code], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.split() == ['refused'] * len(DEEP) + ['1', '1', '100000', '1']


def test_paths_that_leave_the_root(photos, tmp_path):
    "Paths outside the root (upwards, absolute, through a link) are read by default and refused with within_root."
    root = tmp_path/'root'
    root.mkdir()
    own = sorted(path for path in photos.rglob('*') if path.is_file())[0]
    (root/'inside.jpg').write_bytes(own.read_bytes())
    os.symlink(own, root/'link.jpg')
    os.symlink('inside.jpg', root/'near.jpg')
    (tmp_path/'root2.jpg').write_bytes(own.read_bytes())   # begins with the root's letters
    inside = ['inside.jpg', str(root/'inside.jpg'), '../root/inside.jpg', 'near.jpg']
    outside = ['link.jpg', str(own), '../root2.jpg']
    table = pandas.DataFrame(dict(path=inside + outside, target=range(7)))
    dataset = ImageDataset(root, table=table, on_problem='raise')
    assert [dataset[k][1] for k in range(7)] == list(range(7))
    with pytest.raises(TableError, match=r'3 × path outside the root: row 5 \(link.jpg\)') as raised:
        ImageDataset(root, table=table, within_root=True)
    assert sorted(raised.value.problems) == [4, 5, 6]
    assert len(ImageDataset(root, table=table[:4], within_root=True)) == 4


def test_a_zero_byte_in_a_path_is_a_problem_of_its_row(photos):
    for settings in (dict(check_files=False), dict(within_root=True), {}):
        with pytest.raises(TableError, match=r'no path: row 1 \(a\\x00.jpg\)'):
            ReaderTable(pandas.DataFrame(dict(path=['a\0.jpg'], target=['x'])), photos, **settings)


NO_ARROW = {'pyarrow': None, 'pyarrow.parquet': None}


@pytest.mark.parametrize('text', [
    'path,n,x\na.png,1,0.5\nb.png,2,1e-3\n', '\ufeffpath,n\r\n"a, b.png",-7\r\n', 'path,n\na.png,\nb.png,3\n', 'path,n\n"a\nb",1\n\nc,2\n',
    'path,n\n"say ""no""",12345678901\n', 'path,n\nä.png,0\n', 'path,n\n'])
def test_a_csv_is_what_pyarrow_reads_of_it(tmp_path, monkeypatch, text):
    "pyarrow's own CSV reader is the oracle; without pyarrow, the result is the same."
    for suffix, separator in ('csv', ','), ('tsv', '\t'):
        path = tmp_path/f'table.{suffix}'
        path.write_text(text if suffix == 'csv' else text.replace('a, b', 'a b').replace(',', '\t'), newline='')
        expected = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True)).to_pylist()
        assert rows_of(read_table(path)) == expected
        with monkeypatch.context() as patch:
            for name in NO_ARROW: patch.setitem(sys.modules, name, None)
            assert rows_of(read_table(path)) == expected


def test_frames_are_what_pyarrow_makes_of_them(monkeypatch):
    "Gaps, categories, whole numbers with gaps, lists, arrays, dates."
    frame = pandas.DataFrame(dict(path=['a', None], kind=pandas.Categorical(['x', None]), n=pandas.array([1, None], 'Int64'),
                                  x=[0.5, float('nan')],
                                  box=[[1, 2], None], point=[numpy.array([1., 2.]), None], yes=[True, False], k=[1, 2]))
    expected = pyarrow.table(frame).to_pylist()
    for name in NO_ARROW: monkeypatch.setitem(sys.modules, name, None)
    assert rows_of(read_table(frame)) == expected
    assert [type(v) for v in rows_of(read_table(frame))[0].values()] == [type(v) for v in expected[0].values()]
    columns = {name: [row[name] for row in expected] for name in expected[0]}
    assert rows_of(read_table(polars.DataFrame(expected))) == expected == rows_of(read_table(columns))
    with pytest.raises(ValueError, match='columns differ in length: 1, 2'): read_table(dict(path=['a', 'b'], target=[1]))


@pytest.mark.parametrize('names', [('file', 'label'), ('Image', 'class'), ('filename', 'Category')])
def test_usual_names_of_columns_are_found(photos, frame, names):
    renamed = frame.rename(columns=dict(zip(('path', 'target'), names)))
    assert list(ReaderTable(renamed, photos).samples) == list(ReaderTable(frame, photos).samples)
    assert ReaderTable(renamed.drop(columns=names[1]), photos, target_key=None).class_to_idx == {}


@pytest.mark.parametrize('target', [-1, '-1', [0, -1]])
def test_a_label_below_zero_is_told_as_what_it_is(photos, target):
    others = [0, 1] if isinstance(target, int) else ['0', '1'] if isinstance(target, str) else [[0], [1]]
    table = dict(path=['0.png', '1.png', '2.png'], target=[*others, target])
    with pytest.raises(TableError, match=r'1 × class below 0: row 3') as caught: ReaderTable(table, photos)
    assert 'class map' not in str(caught.value)
    with pytest.raises(TableError, match='1 × label that is not in the class map: row 3'):
        ReaderTable(table, photos, class_map={'0': 0, '1': 1})


# ---- several labels

def targets_of(dataset) -> list:
    "The targets as they reach a batch of evaluation."
    loader = create_loader(dataset, 8, 3, num_workers=0, device='cpu')
    return torch.cat([targets for _, targets in loader]).tolist()


def of_labels(photos, labels, **settings):
    return ImageDataset(photos, table=dict(path=[f'{k}.png' for k in range(len(labels))], target=labels), **settings)


MULTIHOT = [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize('kind', ['lists', 'floats', 'bools', 'tuples', 'arrays', 'matrix', 'pandas', 'polars', 'pyarrow', 'jsonl', 'text'])
def test_lists_with_a_0_or_1_for_each_class(photos, kind, tmp_path):
    "Each position is a class, also one that no row has; the loss of torch takes the batch."
    cells = dict(floats=[list(map(float, row)) for row in MULTIHOT], bools=[list(map(bool, row)) for row in MULTIHOT],
                 tuples=list(map(tuple, MULTIHOT)), arrays=[numpy.array(row, numpy.float32) for row in MULTIHOT],
                 matrix=numpy.array(MULTIHOT), text=[' '.join(map(str, row)) for row in MULTIHOT]).get(kind, MULTIHOT)
    table = dict(path=[f'{k}.png' for k in range(4)], target=cells)
    if kind == 'jsonl':
        pandas.DataFrame(table).to_json(tmp_path/'t.jsonl', orient='records', lines=True)
        table = tmp_path/'t.jsonl'
    elif kind in ('pandas', 'polars', 'pyarrow'):
        table = dict(pandas=pandas.DataFrame, polars=polars.DataFrame, pyarrow=pyarrow.table)[kind](table)
    dataset = ImageDataset(photos, table=table, **({'target_separator': ' '} if kind == 'text' else {}))
    assert targets_of(dataset) == MULTIHOT and len(dataset.classes) == len(dataset.class_to_idx) == 5
    logits = torch.zeros(4, len(dataset.classes))
    assert torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(targets_of(dataset))) > 0


@pytest.mark.parametrize('labels', [[[0, 1], [1, 0], [0, 1]], [[0., 1.], [1., 0.]], ['0|1', '1|0'], [[0, 1], None]])
def test_lists_of_two_that_have_two_readings_need_target_format(photos, labels):
    settings = dict(target_separator='|') if isinstance(labels[0], str) else dict(on_problem='drop')
    with pytest.raises(ValueError, match=r"class indexes, or a 0 or 1 .*target_format='indices'.*target_format='multihot'"):
        of_labels(photos, labels, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # None is a row without a label
        indexes = targets_of(of_labels(photos, labels, target_format='indices', **settings))
        multihot = targets_of(of_labels(photos, labels, target_format='multihot', **settings))
    assert indexes == [[1, 1]] * len(indexes) and multihot == [[0, 1], [1, 0], [0, 1]][:len(multihot)]


@pytest.mark.parametrize('labels, expected', [
    ([[0, 1], [1, 2]], [[1, 1, 0], [0, 1, 1]]), ([[0], [1]], [[1, 0], [0, 1]]), ([[1, 0], [1], []], [[1, 1], [0, 1], [0, 0]]),
    ([[2., 0.], [1.]], [[1, 0, 1], [0, 1, 0]]), ([['a', ''], ['b', 'a']], [[1, 0], [1, 1]])])
def test_other_lists_are_class_indexes_or_names(photos, labels, expected):
    assert targets_of(of_labels(photos, labels)) == expected


@pytest.mark.parametrize('labels, settings, message', [
    ([[0, 1], [0, 2]], dict(target_format='multihot'), r"column 'target' of the table: row 2 has \[0, 2\]"),
    ([[0, 1], [0, 1, 1]], dict(target_format='multihot'), r'row 2 has \[0, 1, 1\].*a list of one length'),
    ([0.5, 1], dict(target_type='float', class_map={'1': 0}), 'omit class_map'),
    ([0, 1], dict(target_format='multihot'), 'row 1 has 0'), ([[0.3, 0.7], [1., 0.]], {}, 'To read soft labels'),
    ([['cat'], 'dog'], {}, 'write a list in every row'), (['', ''], dict(target_separator='|'), 'no row has a label'),
    ([0, 1], dict(target_format='dense'), 'one of indices, multihot'), ([0, 1], dict(target_type='int'), "must be 'float'"),
    ([[1], [2]], dict(target_type='float'), 'must be one number'), (['cat', '1'], dict(target_type='float'), "'cat' is not a number")])
def test_labels_without_a_meaning_are_refused(photos, labels, settings, message):
    with pytest.raises(ValueError, match=message): of_labels(photos, labels, **settings)


@pytest.mark.parametrize('separator, cells', [
    ('|', ['cat|', 'dog', 'cat||dog', '']), (' ', ['cat  dog', ' dog', '', 'cat ']), ('; ', ['cat; dog', 'dog; ', '', 'cat']),
    ('|', ['cat', None, 'dog', ' '])])
@quick(1, 'is_training', [True, False])
def test_an_empty_piece_is_no_label(photos, separator, cells, is_training, tmp_path):
    "pandas' get_dummies is the oracle; a cell without labels is a sample without them, in training and in evaluation."
    expected = pandas.Series(cells).fillna('').str.get_dummies(separator)
    expected = expected.T.groupby(expected.columns.str.strip()).max().T.drop(columns='', errors='ignore')
    frame = pandas.DataFrame(dict(path=[f'{k}.png' for k in range(4)], target=cells))
    frame.to_csv(tmp_path/'t.csv', index=False)
    for table in (frame, tmp_path/'t.csv'):
        dataset = ImageDataset(photos, table=table, target_separator=separator)
        assert list(dataset.class_to_idx) == list(expected.columns)
        loader = create_loader(dataset, 8, 4, is_training, shuffle=False, num_workers=0, device='cpu')
        assert next(iter(loader))[1].tolist() == expected.values.tolist()


def test_integers_with_a_trailing_separator_stay_integers(photos):
    dataset = of_labels(photos, ['3|1|', '1', ''], target_separator='|', class_map={1: 0, 3: 1})
    assert targets_of(dataset) == [[1, 1], [1, 0], [0, 0]]


def flag_frame(kind=int) -> pandas.DataFrame:
    flags = numpy.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]]).astype(kind)
    return pandas.DataFrame(flags, columns=['dog', 'cat', 'ant']).assign(path=[f'{k}.png' for k in range(4)], split='train')


@pytest.mark.parametrize('kind', [int, float, bool])
@pytest.mark.parametrize('as_csv', [False, True])
def test_columns_of_classes(photos, kind, as_csv, tmp_path):
    "The classes are in the order of the list; the frame's own values are the oracle."
    frame, table = flag_frame(kind), flag_frame(kind)
    if as_csv:
        table = tmp_path/'t.csv'
        frame.to_csv(table, index=False)
    for keys in (['dog', 'cat', 'ant'], ['ant', 'dog'], ['cat'], 'ant, dog'):
        names = keys if isinstance(keys, list) else ['ant', 'dog']
        dataset = ImageDataset(photos, table=table, target_key=keys)
        assert targets_of(dataset) == frame[names].astype(int).values.tolist()
        assert dataset.class_to_idx == {name: k for k, name in enumerate(names)} and dataset.classes == names
    mapped = ImageDataset(photos, table=table, target_key=['dog', 'cat'], class_map={'cat': 0, 'dog': 2})
    assert targets_of(mapped) == [[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize('cell', [2, -1, 0.5, 'x', '', None, [1]])
def test_columns_of_classes_with_other_values_name_the_row(photos, cell):
    frame = flag_frame(object)
    frame.at[2, 'cat'] = cell
    with pytest.raises(TableError, match=r"1 × value that is not 0 or 1: row 3 \('cat: ") as caught:
        ImageDataset(photos, table=frame, target_key=['dog', 'cat'])
    assert list(caught.value.problems) == [2]
    with pytest.warns(UserWarning, match='left out'):
        dataset = ImageDataset(photos, table=frame, target_key=['dog', 'cat'], on_problem='drop')
    assert targets_of(dataset) == [[1, 0], [0, 1], [1, 1]]


def test_columns_of_classes_are_pointed_out(photos):
    frame = flag_frame()
    with pytest.raises(ValueError, match=re.escape("target_key=['dog', 'cat', 'ant'], if each is a class")):
        ImageDataset(photos, table=frame)
    with pytest.warns(UserWarning, match=re.escape("dog, ant also have only 0 and 1")) as caught:
        ImageDataset(photos, table=frame, target_key='cat')
    assert len(caught) == 1 and "target_key=['cat', 'dog']" in str(caught[0].message) and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        ImageDataset(photos, table=frame, target_key='cat', fields=['dog'], weight_key='ant')
        ImageDataset(photos, table=frame.assign(kind='x'), target_key='kind')
    with pytest.raises(ValueError, match='no column .*bird'): ImageDataset(photos, table=frame, target_key=['cat', 'bird'])
    with pytest.raises(ValueError, match='no index for the columns dog'):
        ImageDataset(photos, table=frame, target_key=['cat', 'dog'], class_map={'cat': 0})
    with pytest.raises(ValueError, match='each once'): ImageDataset(photos, table=frame, target_key=['cat', 'cat'])
    with pytest.raises(ValueError, match='omit target_separator'):
        ImageDataset(photos, table=frame, target_key=['cat', 'dog'], target_separator='|')


# ---- what separates columns, and the header

@pytest.mark.parametrize('suffix', ['csv', 'tsv'])
@pytest.mark.parametrize('separator', [',', ';', '\t', '|'])
@pytest.mark.parametrize('quotes', [0, 1])
def test_the_header_decides_what_separates_columns(tmp_path, suffix, separator, quotes):
    "pandas with this separator is the oracle."
    frame = pandas.DataFrame({'path': ['a.png', 'b.png'], 'my label': ['cat', 'dog'], 'n': [1, 20]})
    path = tmp_path/f'table.{suffix}'
    path.write_text(frame.to_csv(index=False, sep=separator, quoting=quotes))
    assert rows_of(read_table(path)) == pandas.read_csv(path, sep=separator).to_dict('records')


def test_a_separator_in_a_quoted_name_or_in_a_row_does_not_count(tmp_path):
    (tmp_path/'t.csv').write_text('"path;file","label"\na.png;1,"x;y"\n')
    assert rows_of(read_table(tmp_path/'t.csv')) == [{'path;file': 'a.png;1', 'label': 'x;y'}]
    (tmp_path/'t.csv').write_text('path\na,b\n'.replace('a,b', 'a;b'))
    assert rows_of(read_table(tmp_path/'t.csv')) == [{'path': 'a;b'}]


@pytest.mark.parametrize('settings', [{}, dict(input_key='0.png', target_key='cat'), dict(input_key='19', target_key='cat')])
def test_a_table_without_a_header_is_not_read_without_its_first_image(photos, tmp_path, settings):
    (photos/'19').write_bytes((photos/'19.png').read_bytes())   # a file without an extension
    first = settings.get('input_key', '0.png')
    (tmp_path/'t.csv').write_text(f'{first},cat\n1.png,dog\n')
    for table in (tmp_path/'t.csv', pandas.read_csv(tmp_path/'t.csv')):
        with pytest.raises(ValueError, match='its first line looks like data: add a line path,label'):
            ImageDataset(photos, table=table, **settings)
    (photos/'19').unlink()


def test_blanks_around_names_of_columns_and_numbers_do_not_count(photos, tmp_path):
    "As in pandas, whose numbers are the oracle; names are kept as they are."
    (tmp_path/'t.csv').write_text('path, label\n0.png, 5\n1.png, 0\n2.png,3\n')
    dataset = ImageDataset(photos, table=tmp_path/'t.csv')
    assert targets_of(dataset) == pandas.read_csv(tmp_path/'t.csv')[' label'].tolist()
    with pytest.warns(UserWarning, match="'cat' and ' cat'|' cat' and 'cat'"): twins = of_labels(photos, ['cat', ' cat', 'dog'])
    assert twins.class_to_idx == {' cat': 0, 'cat': 1, 'dog': 2}


@pytest.mark.parametrize('labels', [['0,5', '1,25'], ['1', '0,5'], ['1,2', '2,3']])
def test_a_decimal_comma_is_no_name(photos, labels):
    with pytest.raises(ValueError, match="write the numbers with a point, or pass target_separator=','"): of_labels(photos, labels)
    assert of_labels(photos, labels, class_map={label: k for k, label in enumerate(labels)})[1][1] == 1


@pytest.mark.parametrize('name', ['labels.txt', 'labels.xlsx', 'labels.json', 'labels.csv.gz', 'labels'])
def test_a_file_of_another_type_is_told_what_is_read(photos, tmp_path, name):
    (tmp_path/name).write_bytes(b'0.png cat')
    with pytest.raises(ValueError, match='timmdata reads .csv, .tsv, .jsonl, .ndjson, .parquet. .*table='):
        ImageDataset(photos, table=tmp_path/name)
    with pytest.raises(NotADirectoryError, match='is a file: pass the folder .*timmdata reads .csv'): ImageDataset(tmp_path/name)


# ---- numbers

def test_labels_from_1_are_warned_of_once(photos):
    "The number of classes is right for torch's loss, and the class_map in the warning works."
    with pytest.warns(UserWarning) as caught: dataset = of_labels(photos, [1, 2, 4])
    assert len(caught) == 1 and caught[0].filename == __file__
    message = str(caught[0].message)
    assert 'class indexes 1 to 4, so no sample has index 0' in message and dataset.classes == ['0', '1', '2', '3', '4']
    assert 'classes: 5' in repr(dataset)
    torch.nn.functional.cross_entropy(torch.zeros(3, len(dataset.classes)), torch.tensor(targets_of(dataset)))
    advised = eval(message.partition('class_map=')[2], {'str': str, 'range': range})
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        moved = of_labels(photos, [1, 2, 4], class_map=advised)
        assert targets_of(moved) == [0, 1, 3] and len(moved.classes) == 4
        for labels in ([0, 1, 3], ['0', '2'], ['a', 'b'], [1.5, 2], [[0], [2]]): of_labels(photos, labels)
        of_labels(photos, [1, 2], target_type='float')
    with pytest.warns(UserWarning, match='no sample has index 0'): of_labels(photos, [[1], [2, 3]])


@pytest.mark.parametrize('kind', ['csv', 'pandas', 'polars', 'parquet', 'jsonl', 'lists'])
def test_whole_numbers_with_a_fraction_of_zero_are_class_indexes(photos, kind, tmp_path):
    "pandas' Int64 is the oracle; one gap in a column of integers makes floats of them."
    frame = pandas.DataFrame(dict(path=[f'{k}.png' for k in range(5)], target=[0, 2, None, 2, 1]))
    assert frame.target.dtype == float
    table = tmp_path/f't.{kind}'
    if kind == 'csv': frame.to_csv(table, index=False)
    elif kind == 'parquet': frame.to_parquet(table)
    elif kind == 'jsonl': frame.to_json(table, orient='records', lines=True)
    else: table = dict(pandas=frame, polars=polars.from_pandas(frame), lists=frame.to_dict('list'))[kind]
    with pytest.raises(TableError, match=r'1 × no target: row 3'): ImageDataset(photos, table=table)
    with pytest.warns(UserWarning, match='left out'): dataset = ImageDataset(photos, table=table, on_problem='drop')
    assert targets_of(dataset) == frame.target.dropna().astype('Int64').tolist() and dataset.class_to_idx == {'0': 0, '1': 1, '2': 2}
    with pytest.warns(UserWarning): scored = ImageDataset(photos, table=table, on_problem='drop', target_type='float')
    assert targets_of(scored) == frame.target.dropna().tolist() and scored.class_to_idx == {}
    assert torch.tensor(targets_of(scored)).is_floating_point()


@pytest.mark.parametrize('labels', [['0', '', '1'], ['cat', '', 'dog'], ['cat', ' ', 'dog']])
def test_an_empty_label_is_no_class(photos, labels):
    with pytest.warns(UserWarning, match=r'1 × no target: row 2'): dataset = of_labels(photos, labels, on_problem='drop')
    assert targets_of(dataset) == [0, 1] and len(dataset.classes) == 2


def test_a_class_map_may_have_numbers_and_cuts_nothing_off(photos):
    for labels in ([7, 9], ['7', '9'], [7., 9.], ['7.0', '9.0']):
        for class_map in ({7: 1, 9: 0}, {'7': 1, '9': 0}): assert targets_of(of_labels(photos, labels, class_map=class_map)) == [1, 0]
    with pytest.raises(TableError, match=r'1 × label that is not in the class map: row 2 \(0.5\)'):
        of_labels(photos, [0, 0.5], class_map={'0': 0})
    with pytest.raises(ValueError, match='two indexes for class 7'): of_labels(photos, [7], class_map={7: 1, '7': 0})
    with pytest.raises(TableError, match="'Cat' looks like 'cat'"): of_labels(photos, ['Cat', 'dog'], class_map={'cat': 0, 'dog': 1})
    with pytest.raises(TableError, match="pass target_type='float'"): of_labels(photos, [0, -1])


@pytest.mark.parametrize('kind', ['pandas', 'series', 'pyarrow', 'parquet', 'polars', 'numbers', 'intervals'])
def test_ordered_categories_keep_their_order(photos, kind, tmp_path):
    "pandas' codes are the oracle, also for a category without a row; without an order, names are sorted as elsewhere."
    order = [10, 2, 30] if kind == 'numbers' else ['low', 'middle', 'high']
    column = pandas.Categorical([order[0], order[2], order[0]], order, ordered=True)
    if kind == 'intervals': column = pandas.cut([5, 25, 5], [0, 10, 20, 30])
    frame = pandas.DataFrame(dict(path=['0.png', '1.png', '2.png'], target=column))
    table = frame
    if kind == 'series': table = dict(path=frame.path, target=frame.target)
    if kind == 'pyarrow': table = pyarrow.table(frame)
    if kind == 'polars':
        table = polars.DataFrame(dict(path=frame.path.tolist(), target=polars.Series(list(column), dtype=polars.Enum(order))))
    if kind == 'parquet': frame.to_parquet(table := tmp_path/'t.parquet')
    dataset = ImageDataset(photos, table=table)
    assert targets_of(dataset) == frame.target.cat.codes.tolist() and dataset.classes == list(map(str, column.categories))
    names = {name: k for k, name in enumerate(reversed(dataset.classes))}
    assert targets_of(ImageDataset(photos, table=table, class_map=names)) == [2, 0, 2]
    unordered = ImageDataset(photos, table=frame.assign(target=pandas.Categorical(['b', 'a', 'b'], ['b', 'c', 'a'])))
    assert unordered.class_to_idx == {'a': 0, 'b': 1}


def test_ordered_categories_of_several_chunks_are_joined(photos):
    "Each chunk may have a different dictionary, as when shards of a table are concatenated; pyarrow's own union is the oracle."
    chunks = [pyarrow.DictionaryArray.from_arrays(rows, names, ordered=True) for rows, names in (([1, 0], ['low', 'high']), ([0], ['top']))]
    column = pyarrow.chunked_array(chunks)
    table = pyarrow.table({'path': ['0.png', '1.png', '2.png'], 'target': column})
    dataset = ImageDataset(photos, table=table)
    union = column.unify_dictionaries().chunk(0).dictionary.to_pylist()
    assert dataset.classes == union == ['low', 'high', 'top']
    assert [dataset.classes[k] for k in targets_of(dataset)] == column.to_pylist()


# ---- files that are there under another name

@pytest.mark.parametrize('there, listed', [
    ('caf\u00e9.png', 'cafe\u0301.png'), ('A.PNG', 'a.png'), ('a.png', ' a.png'), ('in/a.png', 'In\\a.png'),
    ('caf\u00e9/a b.png', unicodedata.normalize('NFD', 'caf\u00e9') + '/a\u00a0b.png')])
def test_a_file_under_a_name_that_looks_the_same_is_named(tmp_path, there, listed):
    (tmp_path/there).parent.mkdir(exist_ok=True)
    (tmp_path/there).write_bytes(b'x')
    for path in (listed, str(tmp_path/listed)):
        with pytest.raises(TableError) as caught: ReaderTable(dict(path=[path, 'none.png'], target=['x', 'y']), tmp_path)
        assert f'1 of the missing files are there under a name that looks the same: {ascii(path)} is there as ' in str(caught.value)
        assert ascii(there) in str(caught.value).replace(str(tmp_path) + '/', '') and '2 × missing file' in str(caught.value)
    (tmp_path/'Labels.csv').write_text('path,target\n')
    with pytest.raises(FileNotFoundError, match="Labels.csv' is there"): ImageDataset(tmp_path/'labels.csv')


# ---- objects of a store

@pytest.mark.parametrize('num', [2, 40])
def test_names_with_a_dot_are_found_in_a_store_however_many_there_are(num):
    disk = pytest.importorskip('fsspec').filesystem('memory')
    names = [f'.thumbs/cat/.{k}.jpg' for k in range(num)]
    for name in names: disk.pipe(f'/dots/{name}', name.encode())
    reader = ReaderTable(dict(path=names, label=['cat'] * num), 'memory://dots', split=None)
    assert [bytes(data) for data, _ in reader] == [name.encode() for name in names]


def test_a_store_is_listed_once(monkeypatch):
    pytest.importorskip('fsspec')
    from fsspec.implementations.memory import MemoryFileSystem
    found, find = [], MemoryFileSystem.find
    def note(self, *args, **settings): return found.append(args) or find(self, *args, **settings)
    monkeypatch.setattr(MemoryFileSystem, 'find', note)
    for k in range(40): MemoryFileSystem().pipe(f'/once/{k}.jpg', b'x')
    names = [f'{k}.jpg' for k in range(41)]
    with pytest.raises(TableError, match=r'1 × missing file: row 41 \(40.jpg\)'):
        ReaderTable(dict(path=names, label=['cat'] * 41), 'memory://once', split=None)
    assert len(found) == 1
    assert len(ReaderTable(dict(path=names[:40], label=['cat'] * 40), 'memory://once', split=None)) == 40 and len(found) == 2
    assert len(ReaderTable(dict(path=names[:40], label=['cat'] * 40), 'memory://once', split=None, check_files=False)) == 40
    with pytest.raises(FileNotFoundError, match='there is no object memory://once/40.jpg'):
        ReaderTable(dict(path=names, label=['cat'] * 41), 'memory://once', split=None, check_files=False)


@pytest.mark.parametrize('settings', [{}, dict(target_separator='|'), dict(target_type='float')])
def test_a_missing_column_of_labels_is_asked_for_by_its_argument(photos, settings):
    with pytest.raises(ValueError, match="has no column 'kind'; available: image, label. Pass the one to use as target_key=$"):
        ImageDataset(photos, table={'image': ['a.jpg'], 'label': ['cat']}, target_key='kind', **settings)
