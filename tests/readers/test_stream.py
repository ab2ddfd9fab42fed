"Streams are divided among ranks and workers: timm's lengths, each sample once, the epoch told to living workers."
import pytest
import torch
from grids import quick
from torch.utils.data import DataLoader

import timmdata.readers.stream as stream_reader
from timmdata.datasets.image_dataset import IterableImageDataset
from timmdata.readers.stream import StreamReader

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings('ignore:This DataLoader will create')]


class Numbers(StreamReader):
    "Numbers from 0 on."
    def read_shard(self, shard_index, num_shards, seed): return ((k, k) for k in range(shard_index, self.num_samples, num_shards))


@quick(2, 'world', [1, 2, 3])
@quick(2, 'num_workers', [1, 2, 3])
@quick(3, 'num, batch_size, repeats', [(7, 1, 0), (8, 4, 2), (3, 5, 1), (1, 2, 3)])
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
