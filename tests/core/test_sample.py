"The input size of a network: what raises an error, and its advice."
import pytest

from timmdata.core.sample import image_size


@pytest.mark.parametrize('size', [0, -1, 224., '224', True, (224,), (3, 224, 224, 3), (3, 0, 224), None])
def test_an_input_size_that_is_none_is_an_error_with_an_example(size):
    with pytest.raises(ValueError, match=r'positive integers, such as \(3, 224, 224\)'):
        image_size(size)


def test_a_batch_of_one_is_the_size_of_its_image_as_in_timm():
    import timm.data
    from PIL import Image

    import timmdata
    assert image_size((1, 3, 24, 32)) == image_size([3, 24, 32]) == (24, 32)
    image = Image.linear_gradient('L').convert('RGB')
    ours, timms = (module.create_transform((1, 3, 24, 32))(image) for module in (timmdata, timm.data))
    assert ours.shape == timms.shape and abs(ours - timms).max() < 1e-5
    loader = timmdata.create_loader([(image, 0)] * 2, (1, 3, 24, 32), 2, num_workers=0, device='cpu')
    assert abs(next(iter(loader))[0][0] - timms).max() < 1e-5
    with pytest.raises(ValueError, match='positive integers'): image_size((2, 3, 24, 32))
