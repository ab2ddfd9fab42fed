"Test the guarantees of a sample loader: the key seeds the draws of the user's dataset, and an index is an integer."
import pytest
import torch
from builder_parts import make, transforms_of
from PIL import Image
from torch.utils.data import Dataset, Subset

from timmdata import create_loader
from timmdata.pipeline.builder import BatchBuilder
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.samplers.keys import SampleKey

pytestmark = pytest.mark.timeout(120)


class Drawing(Dataset):
    "Draw from torch's global generator, as a user's dataset may, and remember the numbers."
    def __init__(self): self.drawn = []
    def __len__(self): return 4

    def __getitem__(self, index):
        self.drawn.append(torch.rand(1).item())
        return Image.new('RGB', (40, 40)), index


def test_repeats_of_a_sample_draw_other_numbers_and_its_views_share_theirs():
    dataset = Drawing()
    builder = BatchBuilder(SampleLoader(dataset, transforms_of(32, num_aug_splits=2)))
    made = make(builder, [SampleKey(1, 0, view=repeat) for repeat in range(3)])
    drawn, dataset.drawn = dataset.drawn, []
    assert len(drawn) == len(set(drawn)) == 3
    builder.replay(made)
    assert dataset.drawn == drawn * 2   # once for each view
    dataset.drawn = []
    for key in made.keys: builder.sample_loader.image(key)
    assert dataset.drawn == drawn * 2


@pytest.mark.parametrize('indices', [[0., 1.7], [True, False], ['1', '0']])
def test_what_is_no_index_of_a_subset_is_an_error(indices):
    "It used to be cut to an integer; torch passes it to the dataset."
    samples = Subset([(Image.new('RGB', (8, 8)), k) for k in range(3)], indices)
    with pytest.raises(TypeError, match='a Subset has .*, as an index: must be an integer'):
        next(iter(create_loader(samples, 8, 2, num_workers=0, device='cpu')))
