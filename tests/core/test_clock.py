"The clock of the pipeline: each moment belongs to one stage, in the thread that turned it on."
import threading
import time

import pytest

from timmdata.core.clock import clock, stopwatch
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader


def test_the_stage_inside_stops_the_one_around_it():
    with stopwatch() as seconds, clock('outer'):
        with clock('inner'): time.sleep(0.05)
    assert seconds['inner'][1] >= 0.05 > seconds['outer'][1] and seconds['inner'][0] < 0.04   # it waits


def test_a_stage_ends_with_its_error():
    with stopwatch() as seconds:
        with pytest.raises(OSError), clock('read'): raise OSError
        time.sleep(0.03)
        with clock('decode'): pass
    assert seconds['read'][1] < 0.03 > seconds['decode'][1]


def test_the_clock_is_off_elsewhere_and_afterwards():
    with stopwatch() as seconds:
        other = threading.Thread(target=lambda: clock('other').__enter__())
        other.start()
        other.join()
    with clock('after'): pass
    assert not seconds


def test_each_sample_is_read_and_decoded_by_the_clock(samples):
    loader = create_loader(ImageDataset(samples), 32, 8, num_workers=0, device='cpu')
    with stopwatch() as seconds: next(iter(loader))
    assert {'read', 'decode', 'resize'} == set(seconds) and all(wall > 0 for _, wall in seconds.values())
    with stopwatch() as seconds: next(iter(create_loader([ImageDataset(samples)[0]] * 8, 32, 8, num_workers=0, device='cpu')))
    assert set(seconds) == {'dataset', 'read', 'decode', 'resize'}
