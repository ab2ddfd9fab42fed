"WebDataset shards, made by its own library; timm's reader as oracle."
import io
import json
import tarfile
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
