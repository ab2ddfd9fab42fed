"Photographs that the tests of transforms share."
import pytest
from PIL import Image


@pytest.fixture(scope='module')
def photos(samples):
    "Return a few photographs, square and not; one has gray levels that do not span 0 to 255."
    paths = sorted(samples.glob('val/*/*'))
    images = [Image.open(path).convert('RGB').resize(size)
              for path, size in zip((paths[0], paths[17], paths[50]), ((96, 96), (131, 90), (64, 101)))]
    return images + [Image.blend(images[1], Image.new('RGB', images[1].size, (90, 120, 200)), 0.6)]
