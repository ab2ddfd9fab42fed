"Test that the long stages of an image release Python's lock, so that another thread can run."
import sys
import threading
import time

import pytest
import torch
from grids import quick
from PIL import Image

from timmdata.core.jpeg import Pixels, read_layout
from timmdata.core.regions import decode_region, import_nvimgcodec
from timmdata.pipeline.layout import allocate_rows
from timmdata.pipeline.sample_transform import resize_into

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp('lock')/'photo.jpg'
    Image.effect_noise((1500, 1000), 60).convert('RGB').save(path, quality=90)
    return path.read_bytes()


def wakes(work, times=40) -> int:
    "Count how often this thread gets the lock while another one works; Python does not switch threads by itself."
    interval, count = sys.getswitchinterval(), 0

    def run():
        for _ in range(times): work()

    work()
    other = threading.Thread(target=run)
    sys.setswitchinterval(100)
    try:
        other.start()
        while other.is_alive():
            count += 1
            time.sleep(0.0001)
    finally:
        sys.setswitchinterval(interval)
        other.join()
    return count


def test_a_thread_that_keeps_the_lock_is_noticed():
    numbers = list(range(300_000))
    assert wakes(lambda: sum(numbers), 5) <= 2


@quick(1, 'interpolation', ['bilinear', 'bicubic'])
def test_resizing_lets_go_of_the_lock(data, interpolation):
    pixels, out = torch.from_numpy(Pixels(data).read()).permute(2, 0, 1), allocate_rows(1, 3, (224, 224))[0]
    assert wakes(lambda: resize_into(pixels, out, interpolation)) > 10


def test_decoding_and_the_search_for_damage_let_go_of_the_lock(data):
    assert wakes(lambda: Pixels(data).read(), 20) > 10
    layout = read_layout(data)
    assert len(data) > 200_000
    # one search takes 0.15 ms: on a busy machine the other thread is late for many of them
    assert wakes(lambda: layout.is_intact(data), 1000) > 20


@pytest.mark.skipif(import_nvimgcodec() is None, reason='no nvimgcodec')
def test_decoding_a_region_lets_go_of_the_lock(data):
    assert wakes(lambda: decode_region(data, (100, 100, 700, 1200)), 20) > 10
