"The size of a network's input: what is refused, and what the error advises."
import pytest

from timmdata.core.sample import image_size


@pytest.mark.parametrize('size', [0, -1, 224., '224', True, (224,), (3, 224, 224, 3), (3, 0, 224), None])
def test_an_input_size_that_is_none_is_an_error_with_an_example(size):
    with pytest.raises(ValueError, match=r'positive integers, such as \(3, 224, 224\)'):
        image_size(size)
