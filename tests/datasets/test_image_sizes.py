"The sizes of images that cannot be read."
import numpy as np
import pytest
from PIL import Image

from timmdata import ImageDataset, NaFlex, create_loader
from timmdata.datasets.image_sizes import image_sizes


@pytest.mark.parametrize('transform', [None, lambda image: image.resize((32, 48))], ids=['none', 'own'])
def test_a_damaged_file_that_is_skipped_has_the_usual_size(tmp_path, transform):
    for number in range(4):
        path = tmp_path/'a'/f'{number}.png'
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((48, 32, 3), number, np.uint8)).save(path)
    (tmp_path/'a/2.png').write_bytes(b'torn')
    dataset = ImageDataset(tmp_path, transform=transform, on_error='skip')
    assert image_sizes(dataset).tolist() == [[48, 32]] * 4
    loader = create_loader(dataset, batch_size=4, naflex=NaFlex(mode='native'), num_workers=0, device='cpu')
    assert sum(len(targets) for _, targets in loader) == 3
