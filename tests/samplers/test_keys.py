"Test keys of a sample with several images, views of a sample that occurs several times, and pickled keys."
import copy
import pickle

from timmdata.pipeline.builder import HostBatch
from timmdata.samplers.keys import SampleKey, keys_of_images, view_keys
from timmdata.workers.base import Task


def test_views_of_images():
    keys = [SampleKey(4, 1, 1), SampleKey(2, 1)]
    assert [key.view for key in view_keys(keys, 3)] == [3, 0, 4, 1, 5, 2] and view_keys(keys, 1) == keys
    assert keys_of_images(keys, 6) == view_keys(keys, 3) and len(set(keys_of_images(keys, 5))) == 5


def test_the_keys_of_a_batch_are_pickled_as_columns():
    "Test the keys of a task, which go to a worker process, and of a batch, which return; they stay a list of keys."
    keys = [SampleKey(7 * index, 3, index % 2, 1, index % 3 > 0, -2**63) for index in range(512)]
    for travels in Task(keys).keys, view_keys(keys, 1), HostBatch(None, view_keys(keys, 2)).keys:
        data = pickle.dumps(travels)
        found = pickle.loads(data)
        assert found == list(travels) and isinstance(found, list) and {*map(type, found)} == {SampleKey}
        assert data.count(b'SampleKey') <= 1 and len(pickle.dumps(list(travels))) - len(data) > 3 * len(travels)
        assert copy.deepcopy(travels) == travels == copy.copy(travels)
    assert pickle.loads(pickle.dumps(view_keys([], 1))) == []
