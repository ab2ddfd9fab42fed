"Tables of labels, against pandas and pyarrow; faults that people make."
import os
import pickle
import subprocess
import sys
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
    assert len(reader.class_to_idx) == 1000 and reader.samples.nbytes < 4_000_000 and reader.samples[99_999] == ('n999/99999.jpg', 999)


def deep(levels: int) -> str: return '[' * levels + ']' * levels


DEEP = [f'{{"target": {deep(10**6)}}}', '{"a":' * 10**5 + '1' + '}' * 10**5, '[\n' * 10**5,
        f'{{"a": "{"]" * 10**5}", "target": {deep(10**5)}}}',
        f'{{"path": "x", "target": "}}\n{deep(10**5)}', '{"path": "x", "target": "\\\n' + deep(10**5)]
FLAT = [f'{{"target": "{"[" * 10**5}"}}', f'{{"target": "\\"{"[" * 10**5}"}}', '{"target": [[1, 2], [3]]}\n' * 10**5,
        f'{{"target": {deep(99)}}}']


@pytest.mark.full
def test_deep_json_is_an_error_and_does_not_end_the_program(tmp_path):
    "A parser that recurses overflows the stack; what is a text in JSON is no level. In a program of its own: it would die."
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
    "Followed for a table of one's own, refused where that is asked for: upwards, absolute, by a link."
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
