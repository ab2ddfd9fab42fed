"WebDataset shards, made by its own library; timm's reader as oracle."
import io
import json
import tarfile
import time
import warnings
from collections import Counter

import pytest
from grids import quick
from loader_targets import collect_targets
from torch.utils.data import DataLoader
from wds_shards import NUM, SHARDS, timm_wds

from timmdata import create_loader
from timmdata.core.faults import SourceError
from timmdata.datasets.factory import create_dataset

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore:This DataLoader will create')]


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


@quick(1, 'num_workers', [0, 3, 6])
def test_shards_in_workers_give_each_sample_once(shards, photos, num_workers):
    dataset = create_dataset('WDS/', shards, 'validation')
    loader = create_loader(dataset, 16, 7, num_workers=num_workers, persistent_workers=False, device='cpu')
    assert Counter(collect_targets(loader)) == Counter(target for _, target, _ in photos) and len(dataset) == NUM


@quick(1, 'num_workers', [0, 5])
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


@pytest.mark.full
def test_order_of_training_is_a_function_of_seed_and_epoch(shards):
    def order(seed, epoch, num_workers=0):
        dataset = create_dataset('wds/', shards, 'val', is_training=True, seed=seed)
        dataset.set_epoch(epoch)
        return [int(k) for _, k in DataLoader(dataset, None, num_workers=num_workers)]
    first = order(1, 0)
    assert first == order(1, 0) and first != order(1, 1) and first != order(2, 0)
    assert order(1, 0, 2) == order(1, 0, 2) and sorted(order(1, 0)) == sorted(k % 10 for k in range(NUM))


def test_faulty_shards_are_errors(shards, tmp_path):
    whole = (shards/'imgs-val-00.tar').read_bytes()
    (tmp_path/'a.tar').write_bytes(whole[:len(whole) // 2])
    with pytest.raises(SourceError, match=r'a\.tar'): list(create_dataset('wds/', tmp_path, 'a.tar|9'))
    with pytest.raises(SourceError, match=r'no\.tar'): list(create_dataset('wds/', tmp_path, 'no.tar|9'))
    with pytest.raises(ValueError, match='pass num_samples'): create_dataset('wds/', tmp_path, 'a.tar', is_training=True)
    (tmp_path/'_info.json').write_text('{')
    with pytest.raises(ValueError, match='_info.json does not describe splits'): create_dataset('wds/', tmp_path, 'val')
    assert type(create_dataset('', shards, None).reader).__name__ == 'ReaderShards'   # by index


@pytest.mark.parametrize('damage', ['cut', 'gone'])
def test_a_shard_at_fault_is_no_bad_sample(shards, tmp_path, damage):
    for path in shards.iterdir(): (tmp_path/path.name).write_bytes(path.read_bytes())
    shard = tmp_path/'imgs-val-01.tar'
    dataset = create_dataset('wds/', tmp_path, 'val', on_error='skip')
    if damage == 'gone': shard.unlink()
    else: shard.write_bytes(shard.read_bytes()[:9000])
    with pytest.raises(SourceError, match=r'imgs-val-01\.tar'): list(dataset)
    assert not dataset.bad_samples


@pytest.mark.parametrize('name', ['../private.tar', 'ABSOLUTE', 'link.tar'])
def test_names_in_a_description_stay_inside(shards, tmp_path, name):
    (tmp_path/'private.tar').write_bytes((shards/'imgs-val-00.tar').read_bytes())
    (tmp_path/'in').mkdir()
    (tmp_path/'in'/'link.tar').symlink_to(tmp_path/'private.tar')
    names = [name.replace('ABSOLUTE', str(tmp_path/'private.tar'))]
    (tmp_path/'in'/'_info.json').write_text(json.dumps({'splits': {'val': {'filenames': names, 'num_samples': 10}}}))
    with pytest.raises(ValueError, match='names must be relative'): create_dataset('wds/', tmp_path/'in', 'val')


def test_a_name_in_a_description_is_no_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path/'_info.json').write_text(json.dumps({'splits': {'val': {'filenames': ['pipe:touch made'], 'num_samples': 1}}}))
    with pytest.raises(SourceError): list(create_dataset('wds/', '.', 'val'))
    assert not (tmp_path/'made').exists()


def test_a_class_that_is_no_number_names_its_sample(tmp_path):
    with tarfile.open(tmp_path/'a.tar', 'w') as tar:
        for name, content in ('s/7.jpg', b'x'), ('s/7.cls', b'cat'):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    reader = create_dataset('wds/', tmp_path, 'a.tar|1').reader
    with pytest.raises(ValueError, match=r'the \.cls of sample .*s/7 has no valid class'): list(reader.read_shard(0, 1, 0))
    with pytest.raises(ValueError, match='after . must be the number of samples'): create_dataset('wds/', tmp_path, 'a.tar|many')


def write(path, members) -> None:
    with tarfile.open(path, 'w') as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize('members, message', [
    (['a.cls', 'b.cls', 'a.jpg', 'b.jpg'], r'sample a has no image .*available: cls\..*In a stream, .* must be next to each other'),
    (['a.jpg', 'b.jpg', 'a.cls', 'b.cls'], r'sample a has no \.cls; available: jpg\..*In a stream, .* must be next to each other'),
    (['b.1.jpg', 'b.1.cls'], r'sample b has no \.cls; available: 1\.jpg, 1\.cls\. WebDataset ends the key of a sample at the first dot'),
    (['22.05.jpg', '22.05.cls', '22.06.jpg', '22.06.cls'], r'sample 22 has no \.cls; .*at the first dot'),
    (['a.left.jpg', 'a.right.jpg', 'a.cls'], r"sample a has no image .*input_key=, such as 'left\.jpg': WebDataset ends"),
    (['a.jpg', 'a.json'], r'sample a has no \.cls; available: jpg, json\. Pass the field'),
    (['a.jpg', 'a.txt'], r'sample a has no \.cls; available: jpg, txt\. A class is read from a \.cls')])
def test_a_stream_says_why_a_sample_lacks_something(tmp_path, members, message):
    write(tmp_path/'a.tar', [(name, b'1') for name in members])
    with pytest.raises(ValueError, match=message): list(create_dataset('wds/', tmp_path, 'a.tar|2').reader.read_shard(0, 1, 0))


def test_a_stream_reads_other_letter_case_and_tells_of_hidden_samples_once(tmp_path):
    write(tmp_path/'a.tar', [(name, b'1') for key in 'AB' for name in (f'{key}.JPG', f'{key}.CLS', f'{key}.05.jpg', f'{key}.05.cls')])
    reader = create_dataset('wds/', tmp_path, 'a.tar|2').reader
    with pytest.warns(UserWarning, match=r'such as 05\.jpg, 05\.cls of sample A: WebDataset ends') as told:
        found = list(reader.read_shard(0, 1, 0))
    assert found == [(b'1', 1)] * 2 and sum('sample' in str(warning.message) for warning in told) == 1
    write(tmp_path/'b.tar', [(name, b'1') for name in ('a.jpg', 'a.cls', 'a.mask.png', 'a.left.jpg')])
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert len(list(create_dataset('wds/', tmp_path, 'b.tar|1').reader.read_shard(0, 1, 0))) == 1


def test_no_name_of_a_member_reaches_an_error_of_a_stream_raw(tmp_path):
    for members in (['\x1b[1m.jpg', '\x1b[1m.JPG'], ['\x1b.jpg', '\x1b.\x1b'], ['\x1b.cls']):
        write(tmp_path/'a.tar', [(name, b'1') for name in members])
        with pytest.raises((SourceError, ValueError)) as found: list(create_dataset('wds/', tmp_path, 'a.tar|1').reader.read_shard(0, 1, 0))
        assert str(found.value).isprintable() and '\\x1b' in str(found.value)


@pytest.mark.parametrize('change', [
    dict(filenames='a.tar' * 100_000), dict(filenames={'a.tar': 1}), dict(filenames=[1]), dict(filenames=None),
    dict(filenames=['a/' * 500_000]),
    dict(shard_lengths='1' * 500_000), dict(shard_lengths={'a': 1}), dict(shard_lengths=[True]), dict(shard_lengths=[1.0]),
    dict(num_samples='9' * 500_000), dict(num_samples=[1]), dict(num_samples=-1), dict(num_samples=float('nan')), dict(alt_label=['x'])])
def test_fields_of_a_description_have_their_types(tmp_path, change):
    split = dict(filenames=['a.tar'], num_samples=1)
    write(tmp_path/'a.tar', [('a.jpg', b'1'), ('a.cls', b'1')])
    (tmp_path/'_info.json').write_text(json.dumps({'splits': {'val': {**split, **change}}}))
    before = time.process_time()
    for name in ('wds/', ''):
        with pytest.raises(ValueError, match='_info.json does not describe splits'): create_dataset(name, tmp_path, 'val')
    assert time.process_time() - before < 2
    for splits in ([split], 'val', {'val': [split]}, {'val': 'a.tar'}):
        (tmp_path/'_info.json').write_text(json.dumps({'splits': splits}))
        with pytest.raises(ValueError, match='_info.json does not describe splits'): create_dataset('', tmp_path, 'val')
