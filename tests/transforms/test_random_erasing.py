"What random erasing accepts, and its error messages; tests/guarantees/test_parity.py compares it with timm."
import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.random_erasing import RandomErasing as TimmRandomErasing

from timmdata.transforms import PatchRandomErasing, RandomErasing

FLOATS = torch.float32, torch.float16, torch.bfloat16, torch.float64
OTHERS = torch.uint8, torch.int64, torch.bool, torch.int8


@pytest.mark.parametrize('mode', ['const', 'rand', 'pixel'])
@pytest.mark.parametrize('dtype', [*FLOATS, *OTHERS], ids=str)
def test_noise_needs_floats_and_zeros_do_not(mode, dtype):
    "Inputs that timm erases are erased; if timm fails inside torch, our error says what to do."
    images = torch.ones(4, 3, 16, 16, dtype=dtype)
    if mode != 'const' and dtype in OTHERS:
        with pytest.raises(NotImplementedError): TimmRandomErasing(1., mode=mode, device='cpu')(images.clone())
        for shape in images, images[0]:
            with pytest.raises(TypeError, match=rf"RandomErasing\(mode='{mode}'\).* have dtype {dtype}: normalize them first"):
                RandomErasing(1., mode=mode)(shape)
        with pytest.raises(TypeError, match=f'dtype {dtype}: normalize them first'):
            PatchRandomErasing(1., mode=mode)(images.reshape(4, 16, 16, 3), torch.cartesian_prod(*[torch.arange(4)] * 2).expand(4, 16, 2))
        assert (images == 1).all()
        return
    erased = RandomErasing(1., mode=mode)(images)
    assert erased is images and erased.dtype == dtype and all((image != 1).any() for image in erased)


@pytest.mark.parametrize('shape', [(16, 16), (2, 2, 3, 16, 16), (3,), ()])
def test_other_shapes_are_named(shape):
    with pytest.raises(ValueError, match=r'has shape .*: must be \(N, C, H, W\) or \(C, H, W\)'): RandomErasing(1.)(torch.zeros(shape))


@pytest.mark.parametrize('images', [np.zeros((3, 16, 16), np.float32), Image.new('RGB', (16, 16)), [torch.zeros(3, 16, 16)], None],
                         ids=type)
def test_other_types_are_named(images):
    for mode in 'const', 'pixel':
        with pytest.raises(TypeError, match=rf'RandomErasing has type {type(images).__name__}: pass a float tensor \(N, C, H, W\)'):
            RandomErasing(1., mode=mode)(images)
