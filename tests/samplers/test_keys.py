"Keys of a sample that makes several images, and the views of a sample that comes several times."
from timmdata.samplers.keys import SampleKey, keys_of_images, view_keys


def test_views_of_images():
    keys = [SampleKey(4, 1, 1), SampleKey(2, 1)]
    assert [key.view for key in view_keys(keys, 3)] == [3, 0, 4, 1, 5, 2] and view_keys(keys, 1) == keys
    assert keys_of_images(keys, 6) == view_keys(keys, 3) and len(set(keys_of_images(keys, 5))) == 5
