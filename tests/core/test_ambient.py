"`as_in_new_thread` and copies to a device, tested alone."
import threading

import numpy as np
import pytest
import torch

from timmdata.core.ambient import as_in_new_thread, on_device


def seen() -> list:
    return [torch.is_autocast_enabled('cpu'), torch.get_default_device(), torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
            torch.zeros(1).device]


def in_a_thread() -> list:
    found = []
    thread = threading.Thread(target=lambda: found.append(seen()))
    thread.start()
    thread.join()
    return found[0]


AROUND = [lambda: torch.autocast('cpu', torch.bfloat16), lambda: torch.device('meta'), torch.inference_mode, torch.no_grad]


@pytest.mark.parametrize('around', AROUND)
def test_the_settings_are_those_of_a_new_thread(around):
    with around():
        before = seen()
        with as_in_new_thread(): assert seen() == in_a_thread()
        with pytest.raises(ValueError), as_in_new_thread(): raise ValueError
        assert seen() == before != in_a_thread()


def test_all_at_once_and_one_in_the_other():
    with AROUND[0](), AROUND[1](), AROUND[2](), as_in_new_thread():
        assert seen() == in_a_thread()
        with AROUND[0](), as_in_new_thread(): assert seen() == in_a_thread()
    assert seen() == in_a_thread()


@pytest.mark.parametrize('values', [(0.1, 1 / 3), np.array([0.1, 1 / 3]), torch.tensor([0.1, 1 / 3], dtype=torch.float64)], ids=type)
def test_numbers_on_a_device_have_the_dtype_that_is_named(values):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device('meta'): found = on_device(values, torch.device('cpu'), torch.float32)
    finally: torch.set_default_dtype(before)
    assert found.device.type == 'cpu' and torch.equal(found, torch.tensor([0.1, 1 / 3], dtype=torch.float32))
