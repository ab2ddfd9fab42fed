"""Everything that parses, given bytes and values that nobody meant: an error of a documented type that names the thing, or what an
outside oracle makes of it. No other exception, no hang, no memory out of proportion. `TIMMDATA_SOAK=3600` looks on for about so many
seconds."""
import csv
import io
import json
import math
import os
import struct
import tarfile
import warnings
import zlib
from functools import cache
from importlib.util import find_spec
from itertools import islice
from unittest import mock

import numpy as np
import pyarrow
import pytest
import timm.data.auto_augment as timm_auto_augment
import torch
from buffer_parts import loader_of
from fuzzing import ODD_VALUES, SOAK, fuzz, little_memory, mutate_json, mutated
from hypothesis import given
from hypothesis import strategies as st
from loader_parts import Coded
from pictures import encoded, largest, part_costs
from PIL import Image
from pyarrow import parquet

from timmdata.buffer.files import BatchBufferError, PrivateDirectory
from timmdata.buffer.store import BatchStore, DamagedBatch, decode_batch, encode_batch
from timmdata.core import jpeg
from timmdata.core.decode import decode_image
from timmdata.core.faults import ImageReadError, SourceError
from timmdata.core.jpeg import Pixels
from timmdata.core.regions import import_nvimgcodec
from timmdata.pipeline.builder import HostBatch
from timmdata.readers.class_map import load_class_map
from timmdata.readers.file_index import FileIndex, keep_index, stamp
from timmdata.readers.sample_table import SampleTable
from timmdata.readers.table import read_table
from timmdata.readers.tar import list_tar
from timmdata.readers.webdataset import ReaderWds
from timmdata.samplers.batch_schedule import ScheduleSettings
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.auto_augment import create_policy

pytestmark = pytest.mark.timeout(120 + 2 * SOAK)


@pytest.fixture(autouse=True)
def within_little_memory():
    with little_memory(), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return tmp_path_factory.mktemp('fuzz')


# ---- images

def _picture() -> Image.Image:
    rows, columns = np.mgrid[:120, :72]
    waves = [128 + 100 * np.sin(rows / (5 + k)) * np.cos(columns / (9 - k)) for k in range(3)]
    return Image.fromarray(np.stack(waves, -1).astype(np.uint8))


@cache
def images() -> dict[str, bytes]:
    "A file of each kind."
    picture, turned = _picture(), Image.Exif()
    turned[0x112] = 6
    made = {
        'baseline': encoded(picture), 'progressive': encoded(picture, progressive=True), 'EXIF': encoded(picture, exif=turned),
        'restarts': encoded(picture, restart_marker_rows=1), 'restarts in rows': encoded(picture, subsampling=0, restart_marker_blocks=3),
        'CMYK': encoded(picture.convert('CMYK')), 'gray': encoded(picture.convert('L')), 'RGB': encoded(picture, keep_rgb=True),
        '4:4:4': encoded(picture, subsampling=0, optimize=True), 'comment': encoded(picture, comment=b'\xff\xd8\xff\xda'),
        'small': encoded(picture.resize((9, 17))), 'profile': encoded(picture, icc_profile=b'x' * 300),
        **{kind: encoded(picture, kind.lower()) for kind in ('PNG', 'WebP', 'GIF', 'TIFF')},
        '16 bits': encoded(Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64)), 'png')}
    plain = made['baseline']
    return made | {'fill bytes': plain[:2] + b'\xff\xff' + plain[2:], 'unknown segment': plain[:2] + b'\xff\xf0\0\4ab' + plain[2:],
                   'late height': plain[:-2] + b'\xff\xdc\0\4\0\x40' + plain[-2:]}


def _edited(data: bytes, edits: list) -> bytes:
    "Bytes set in the header, which ends before 700, or anywhere."
    data = bytearray(data)
    for in_header, at, value in edits: data[at % min(len(data), 700 if in_header else len(data))] = value
    return bytes(data)


KINDS = st.sampled_from(sorted(images()))
BACKENDS = ['auto', 'torchvision', *['torchcodec'] * (find_spec('torchcodec') is not None),
            *['nvimgcodec'] * (import_nvimgcodec() is not None)]
DAMAGE = st.lists(st.tuples(st.booleans(), st.integers(0, 2**20), st.integers(0, 255)), max_size=3)


@fuzz(500)
@given(data=st.one_of(mutated(KINDS.map(lambda kind: images()[kind])), st.builds(_edited, KINDS.map(lambda kind: images()[kind]), DAMAGE)),
       settings=st.sampled_from([{}, {}, dict(exif_transpose=True), dict(mode='L'), dict(mode=None), dict(background=(9, 8, 7))]),
       backend=st.sampled_from([*BACKENDS, 'pillow']))
def test_an_image_is_pillows_or_an_error(data, settings, backend):
    try: expected = np.asarray(decode_image(data, **{'mode': 'RGB', **settings}))
    except ImageReadError:
        with pytest.raises(ImageReadError): Pixels(data, backend=backend, **settings).read()
    else:
        pixels = Pixels(data, backend=backend, **settings)
        assert (pixels.height, pixels.width) == expected.shape[:2] and largest(pixels.read(), expected) <= 1


CUTTABLE = ['baseline', 'restarts', 'restarts in rows', 'gray', '4:4:4', 'EXIF', 'comment', 'profile', 'progressive']


@fuzz(800)
@given(kind=st.sampled_from(CUTTABLE), edits=DAMAGE, backend=st.sampled_from(['auto', *BACKENDS]),
       factor=st.sampled_from([1, 2, 4]), bottom=st.sampled_from([10, 40, 64, 100]), top=st.sampled_from([0, 0, 9, 30]),
       left=st.sampled_from([0, 0, 20, 41]))
def test_no_crop_has_pixels_that_are_neither_pillows_nor_the_files(kind, edits, backend, factor, bottom, top, left):
    "Where Pillow refuses the file, we do, or the pixels that are needed are those of the undamaged one."
    data = _edited(images()[kind], edits)
    try: expected = np.asarray(decode_image(data))
    except ImageReadError: expected = None
    try:
        with mock.patch.object(jpeg, 'PART_COSTS', part_costs()):   # these files are small
            pixels = Pixels(data, backend=backend)
            top, left = min(top, pixels.height - 1, bottom - 1), min(left, pixels.width - 1)
            crop = top, left, min(bottom, pixels.height) - top, pixels.width - left
            part = pixels.read_crop(crop, factor)
    except ImageReadError:
        assert expected is None
        return
    if expected is None: assert np.array_equal(part, Pixels(images()[kind], backend=backend).read_crop(crop, factor))
    elif factor == 1: assert largest(part, expected[top:bottom, left:]) <= 1


# ---- archives

def _tar(form: int, headers: dict | None = None, nested: bool = True) -> bytes:
    "An archive of images, a link, a long name, an archive, and a member with headers of its own."
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w', format=form) as tar:
        def add(name, data, **what):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in what.items(): setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
        add('a/1.jpg', b'x' * 700)
        add('b/2.cls', b'2')
        add('b/2.jpg', b'y' * 10)
        add('link.jpg', b'', type=tarfile.SYMTYPE, linkname='a/1.jpg')
        if form != tarfile.USTAR_FORMAT: add(f'c/{"l" * 120}.jpg', b'z' * 20)
        if headers: add('p.jpg', b'pp', pax_headers=headers)
        if nested: add('n.tar', _tar(form, nested=False))
        add('d/3.jpg', b'w' * 30)
    return file.getvalue()


TARS = [_tar(tarfile.USTAR_FORMAT), _tar(tarfile.GNU_FORMAT), _tar(tarfile.PAX_FORMAT), _tar(tarfile.PAX_FORMAT, {'size': '1',
    'comment': 'ü'}),
        _tar(tarfile.PAX_FORMAT, {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'q.jpg',
            'GNU.sparse.realsize': '5'}),
        _tar(tarfile.PAX_FORMAT, {'GNU.sparse.map': '0,1,3,2', 'GNU.sparse.size': '9'})]
FIELDS = {'name': (0, 100), 'size': (124, 12), 'type': (156, 1), 'magic': (257, 8), 'prefix': (345, 155)}
SIZES = [b'\xff' * 10 + b'\xfe\0', b'\x80' + b'\x7f' * 11, b'\x80' + bytes(6) + b'\x10' + bytes(4), b'-0000000100\0', bytes(12),
    b'77777777777\0']


def _with_fields(data: bytes, edits: list, repaired: bool) -> bytes:
    "Fields of headers overwritten; the checksums are made right again, so that the damage is believed."
    data = bytearray(data)
    for block, field, values in edits:
        at, size = FIELDS[field]
        at += block % max(1, len(data) // 512) * 512
        data[at:at + size] = values[:size].ljust(size, b'\0')
    for at in range(0, len(data) - 511, 512) if repaired else ():
        if data[at + 257:at + 262] == b'ustar':
            data[at + 148:at + 156] = b'%06o\0 ' % (sum(data[at:at + 148]) + 256 + sum(data[at + 156:at + 512]))
    return bytes(data)


FIELD_EDITS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(sorted(FIELDS)), st.one_of(
    st.sampled_from(SIZES), st.sampled_from(b'0123567LKxgSD').map(lambda letter: bytes([letter])), st.binary(max_size=12))), max_size=3)
BROKEN_TARS = st.builds(_with_fields, mutated(st.sampled_from(TARS), 2), FIELD_EDITS, st.sampled_from([True, True, True, False]))


def _tarfiles_files(data: bytes, inside: str = '') -> dict[str, bytes]:
    "What Python's module finds: name → content, of the files that have bytes of their own."
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode='r:') as tar:
        for member in tar:
            name = os.path.join(inside, os.path.normpath(member.name).lstrip('/'))
            if not member.isreg() or member.issparse(): found.pop(name, None)
            elif name.lower().endswith('.tar'): found.update(_tarfiles_files(tar.extractfile(member).read(), name))
            else: found[name] = tar.extractfile(member).read()
    return found


@fuzz(500)
@given(data=BROKEN_TARS)
def test_a_tar_is_tarfiles_or_an_error(folder, data):
    path = folder/'a.tar'
    path.write_bytes(data)
    try: found = list_tar(path)
    except ValueError as error: assert str(path) in str(error)
    else: assert {name: data[at:at + size] for name, at, size in found if at >= 0} == _tarfiles_files(data)


@fuzz(80)
@given(data=mutated(st.sampled_from(TARS), 2))
def test_a_shard_is_tarfiles_or_an_error(folder, data):
    pytest.importorskip('webdataset')
    (folder/'s.tar').write_bytes(data)
    reader = ReaderWds(folder, split='s.tar|9')
    try: found = list(islice(reader.read_shard(0, 1, 0), 100))
    except (ImageReadError, SourceError, ValueError) as error: assert str(folder) in str(error) or 'sample ' in str(error)
    else: assert all(isinstance(content, bytes) and isinstance(target, int) for content, target in found)


INFO = {'splits': {'val': {'filenames': ['s.tar'], 'shard_lengths': [3], 'num_samples': 3, 'alt_label': 'label'}}}


@fuzz(150)
@given(info=mutate_json(INFO))
def test_a_description_of_shards_is_used_or_an_error(folder, info):
    pytest.importorskip('webdataset')
    root = folder/'described'
    root.mkdir(exist_ok=True)
    (root/'_info.json').write_text(json.dumps(info))
    try: reader = ReaderWds(root, split='val')
    except ValueError as error: assert str(root) in str(error)
    else:
        split = info['splits']['val']
        assert list(reader.split_info.filenames) == split['filenames'] and reader.num_samples == (split.get('num_samples') or None)


# ---- tables and class maps

ROWS = [('a.png', 'ant', '1'), ('b/c.png', 'be, e', '2'), ('d "e".png', '007', '3'), ('ü.png', 'x\ny', '4')]


def _separated(separator: str) -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows([('path', 'target', 'weight'), *ROWS])
    return file.getvalue().encode()


def _parquet() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(zip(('path', 'target', 'weight'), map(list, zip(*ROWS))))), file, write_page_checksum=True)
    return file.getvalue()


LINES = ''.join(json.dumps(dict(zip(('path', 'target', 'weight'), row))) + '\n' for row in ROWS).encode()
OBJECTS = b"""{"path": "a.png", "target": ["x", "y"], "n": 1}
{"path": "b.png", "target": []}

{"path": "2020-01-01", "n": 2.5, "o": {"p": [[]]}}
"""
TABLES = {'csv': [_separated(',')], 'tsv': [_separated('\t')], 'jsonl': [LINES, OBJECTS], 'parquet': [_parquet()]}


def _csv_rows(data: bytes, separator: str) -> list[dict] | None:
    "What Python's module reads; None where it is not strict about what people leave open: quotes within, lines of other lengths."
    text = data.decode('utf-8-sig')
    if separator + ' "' in text or '\r' in text.replace('\r\n', '') or '\0' in text: return None
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=''), delimiter=separator) if row]
    names_once = len(set(header)) == len(header)
    quotes = '"' in ''.join(header) or any('"' in cell for row in rows for cell in row)
    return [dict(zip(header, row)) for row in rows] if names_once and not quotes and all(len(row) == len(header) for row in rows) else None


@fuzz(200)
@given(data=st.data(), kind=st.sampled_from(sorted(TABLES)))
def test_a_table_is_the_oracles_or_an_error(folder, data, kind):
    content, path = data.draw(mutated(st.sampled_from(TABLES[kind]), 3)), folder/f'table.{kind}'
    path.write_bytes(content)
    try: found = read_table(path)
    except ValueError as error:
        assert str(path) in str(error)
        return
    rows = [dict(zip(found.names, row)) for row in zip(*map(found.values, range(len(found.names))))]
    if kind == 'parquet': assert content == TABLES[kind][0] or rows == parquet.read_table(io.BytesIO(content)).to_pylist()
    elif kind == 'jsonl':
        expected = [json.loads(line) for line in content.decode('utf-8-sig').split('\n') if line.strip()]
        def same(a, b): return a == b or isinstance(b, float) and math.isclose(a, b) or isinstance(b, dict) and all(same(a.get(k),
            b[k]) for k in b)
        assert len(rows) == len(expected) and all(same(row.get(key), value) for row, line in zip(rows, expected) for key,
            value in line.items())
    elif (expected := _csv_rows(content, ',' if kind == 'csv' else '\t')) is not None:
        assert rows == expected


CLASSES = {'ant': 0, 'bee': 1, 'x y': 2, 'ü': 5}
MAPS = {'txt': '\n'.join(CLASSES).encode(), 'csv': b'name,index\n' + b''.join(f'{k},{v}\n'.encode() for k, v in CLASSES.items()),
        'json': json.dumps(CLASSES).encode(), 'pkl': b'\x80\x02}q\0(X\x03\0\0\0antq\1K\0X\x03\0\0\0beeq\2K\1u.'}


@fuzz(300)
@given(data=st.data(), kind=st.sampled_from(sorted(MAPS)))
def test_a_class_map_is_a_dict_of_indexes_or_an_error(folder, data, kind):
    content, path = data.draw(mutated(st.just(MAPS[kind]), 3)), folder/f'map.{kind}'
    path.write_bytes(content)
    try: found = load_class_map(path)
    except ValueError as error:
        assert str(path) in str(error)
        return
    assert all(isinstance(name, (str, int)) and 0 <= index < 2**31 for name, index in found.items())
    if kind == 'txt':
        with open(path, encoding='utf-8-sig') as file: names = [line.strip() for line in file.read().rstrip().split('\n')]
        assert list(found.items()) == [(name, k) for k, name in enumerate(names)]
    if kind == 'json':
        expected = json.loads(content.decode('utf-8-sig'))
        assert found == expected if isinstance(expected, dict) else list(found) == expected


# ---- indexes of scans

@cache
def _index() -> bytes:
    file = io.BytesIO()
    stamps = np.array([[4096, 7]])
    np.savez(file, key=np.array('key'), paths=np.frombuffer(b'a/1.jpgb/2.jpg', np.uint8), ends=np.array([7, 14]), targets=np.array([0,
        1], np.int32),
             folders=np.array(['a', 'b']), sources=np.array(['']), stamps=stamps, types=np.array(['.txt']), counts=np.array([3]),
             span=np.array([[0, 512, 9], [0, 1024, 9]]))
    return file.getvalue()


def _kept(folder, content: bytes) -> FileIndex:
    "The index that comes of a file with this content; its listing would give one without samples."
    root, path = folder/'root', folder/'index.npz'
    root.mkdir(exist_ok=True)
    path.write_bytes(content)
    size, time = stamp(str(root), '')
    empty = FileIndex(SampleTable.from_samples([], []), (), (), np.zeros((0, 2), np.int64), {})
    return keep_index(path, str(root), [], lambda: empty)


ARRAYS = ['paths', 'ends', 'targets', 'folders', 'sources', 'types', 'counts', 'span', 'stamps']
CHANGES = [lambda a: a[:-1], lambda a: a.astype(float), lambda a: a.astype(str), lambda a: a[::-1], lambda a: a.reshape(-1, 1),
    lambda a: a[:0],
           lambda a: np.concatenate([a, a]), lambda a: a + a if a.dtype.kind == 'U' else a + 1,
           lambda a: a if a.dtype.kind == 'U' else a - 9,
           lambda a: a if a.dtype.kind == 'U' else a * 2**40, lambda a: np.array(a[0])]


@fuzz(250)
@given(flips=st.booleans(), data=st.data())
def test_an_index_is_believed_only_if_it_fits(folder, flips, data):
    root = folder/'root'
    root.mkdir(exist_ok=True)
    with np.load(io.BytesIO(_index())) as arrays: arrays = dict(arrays)
    arrays['key'], arrays['stamps'] = np.array(repr((str(root),))), np.array([stamp(str(root), '')])
    arrays['span'][:, 1:] = [[0, 1], [1, 2]]
    for name, change in data.draw(st.lists(st.tuples(st.sampled_from(ARRAYS), st.sampled_from(CHANGES)), max_size=2)):
        try: arrays[name] = change(arrays[name])
        except (TypeError, ValueError, IndexError, OverflowError): pass
    file = io.BytesIO()
    np.savez(file, **arrays)
    found = _kept(folder, data.draw(mutated(st.just(file.getvalue()), 2)) if flips else file.getvalue())
    size = arrays['stamps'].ravel()[:1]
    for row, (path, target) in enumerate(found.table):
        assert not path.startswith('/') and '..' not in path.split('/') and found.folders[target] is not None
        archive, at, length = found.table.columns['span'][row].tolist()
        assert 0 <= archive < len(found.sources) and 0 <= at <= at + length <= size
    assert found.table.ends[-1:].tolist() in ([], [len(found.table.paths)])


# ---- states

@cache
def _state() -> dict:
    loader = loader_of(Coded(50), 7, True)
    assert len(list(islice(loader, 3))) == 3
    return json.loads(json.dumps(loader.state_dict()))


@fuzz(150)
@given(state=mutate_json(_state()), position=st.none() | st.integers(0, 60), epoch=st.none() | st.integers(0, 3))
def test_a_state_is_refused_or_leads_to_its_position(state, position, epoch):
    if isinstance(state, dict) and position is not None: state['position'] = position
    if isinstance(state, dict) and epoch is not None: state['epoch'] = epoch
    loader = loader_of(Coded(50), 7, True)
    try: loader.load_state_dict(state)
    except (ValueError, TypeError) as error:
        assert 'state' in str(error)
        assert loader.state_dict()['position'] == 0   # nothing of it was taken over
        return
    assert loader.state_dict() == {**state, 'settings': _state()['settings']}
    rest = [target for _, targets in loader for target in targets.tolist()] if state['position'] > 30 else next(iter(loader))[1].tolist()
    order = [key.index for key in loader_of(Coded(50), 7, True).sampler.keys(state['epoch'])]
    assert rest == order[state['position']:][:len(rest)] and (rest or state['position'] >= 50)


# ---- buffers

HOST = HostBatch(({'image': torch.arange(96, dtype=torch.uint8).view(2, 3, 4, 4)}, torch.tensor([3, 5]), ['a', 'ü']), [SampleKey(3, 0),
    SampleKey(5, 0)], 2)
WHOLE = b''.join(bytes(part) for part in encode_batch('7', HOST))
HEADER = struct.Struct('<8sIIQ')


def _same(a, b) -> bool: return repr(a) == repr(b)


@fuzz(400)
@given(data=mutated(st.just(WHOLE)))
def test_bytes_are_the_batch_or_damaged(data):
    try: found = decode_batch('7', torch.tensor(list(data), dtype=torch.uint8))
    except DamagedBatch as error: assert 'batch 7 is damaged' in str(error)
    else: assert data == WHOLE and _same(found, HOST)


@fuzz(300)
@given(said=mutate_json(json.loads(WHOLE[HEADER.size:HEADER.size + HEADER.unpack_from(WHOLE)[2]])))
def test_a_checksum_that_is_right_does_not_make_a_batch(said):
    "What a program of the same user could write: another description, with its checksum."
    magic, _, size, _ = HEADER.unpack_from(WHOLE)
    text = json.dumps(said).encode()
    body = text + WHOLE[HEADER.size + size:]
    check = zlib.crc32(body, zlib.crc32(f'7 {len(text)}'.encode()))
    data = HEADER.pack(magic, check, len(text), HEADER.size + len(body)) + body
    try: found = decode_batch('7', torch.tensor(list(data), dtype=torch.uint8))
    except DamagedBatch as error: assert 'batch 7 is damaged' in str(error)
    else: assert isinstance(found, HostBatch)


@fuzz(150)
@given(data=mutated(st.just(WHOLE)), cut=st.booleans())
def test_a_file_of_a_buffer_is_the_batch_or_damaged(folder, data, cut):
    "A file that is shorter than its header says must not be read behind its end."
    store = _store(folder)
    store.write(3, HOST)
    path = store.directory/f'{3:012}.batch'
    whole = path.read_bytes()
    content = data if data != WHOLE else whole[:len(whole) // 2] if cut else whole
    path.write_bytes(content)
    try: found = store.read(3)
    except DamagedBatch as error: assert 'damaged' in str(error)
    else: assert content == whole and _same(found, HOST)


@cache
def _store(folder) -> BatchStore: return BatchStore.create(folder/'store', 8, 4096, {'numbering': [50, 4, 1, False]})


@fuzz(200)
@given(data=st.data())
def test_a_record_of_a_buffer_is_what_was_written_or_an_error(folder, data):
    files = PrivateDirectory(folder/'records', create=True)
    files.save('record', {'used': 3, 'name': 'ü'})
    whole = (files.path/'record').read_bytes()
    (files.path/'record').write_bytes(content := data.draw(mutated(st.just(whole))))
    try: found = files.load('record')
    except BatchBufferError as error: assert str(files.path/'record') in str(error)
    else: assert content == whole and found == {'used': 3, 'name': 'ü'}


# ---- settings

PARTS = st.tuples(st.sampled_from(['m', 'n', 'p', 'mstd', 'mmax', 'inc', 't', 'w', 'd', 'a', 'b', 'x', '']),
                  st.sampled_from(['', '0', '1', '2', '5', '9', '0.5', '1.5', '101', 'weights', '3a', 'x', '-1', 'nan', '²', '1e9', '٣',
                      ' 1']))


def _settings_of(policy) -> list:
    ops = [op for part in getattr(policy, 'policy', [getattr(policy, 'ops', [])]) for op in part]
    return [(op.name, op.prob, op.magnitude, op.magnitude_std, op.magnitude_max) for op in ops]


@fuzz(300)
@given(name=st.sampled_from(['rand', 'original', 'v0r', '3a', 'augmix', 'Rand', '']), parts=st.lists(PARTS, max_size=3))
def test_a_policy_string_is_timms_or_an_error(name, parts):
    config = '-'.join([name, *(key + value for key, value in parts)])
    try: ours = create_policy(config)
    except ValueError as error:
        assert str(error)
        return
    make = dict(rand=timm_auto_augment.rand_augment_transform, augmix=timm_auto_augment.augment_and_mix_transform).get(
        name, timm_auto_augment.auto_augment_transform)
    try: timms = make(config, dict(translate_const=100))
    except (AssertionError, ValueError, KeyError): return   # we take numbers with a point where timm wants whole ones
    if any(value.strip() != value or not value.isascii() for _, value in parts): return
    assert _settings_of(ours) == _settings_of(timms)


SCHEDULE = {'batch_sizes': [4, 2], 'choice_weights': [1.0, 2.0], 'seed': 3, 'drop_last': True, 'shuffle_schedule': True, 'num_batches': 9,
            'choice_schedule': 'progressive', 'schedule_epochs': 4, 'schedule_spread': 0.5, 'schedule_random_mix': 0.1,
            'input_sizes': [[8, 8], [9, 9]]}


@fuzz(300)
@given(settings=mutate_json(SCHEDULE), name=st.sampled_from(sorted(SCHEDULE)), value=ODD_VALUES)
def test_schedule_settings_are_refused_or_give_probabilities(settings, name, value):
    if not isinstance(settings, dict): return
    settings = {**SCHEDULE, **settings, name: value}
    try: made = ScheduleSettings(**{key: value for key, value in settings.items() if key in SCHEDULE})
    except (ValueError, TypeError) as error:
        assert any(name in str(error) for name in SCHEDULE), error
        return
    for epoch in 0, 1, 9:
        shares = made.probabilities(epoch)
        assert len(shares) == len(made.batch_sizes) and abs(sum(shares) - 1) < 1e-9 and min(shares) >= 0
