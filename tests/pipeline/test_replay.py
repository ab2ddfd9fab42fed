"Test that a replay returns the parameters that were drawn for a batch."
import pytest
import torch
from builder_parts import make, transforms_of
from loader_parts import Coded

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.pipeline.builder import BatchBuilder
from timmdata.pipeline.sample_loader import SampleLoader
from timmdata.samplers.keys import SampleKey

pytestmark = pytest.mark.timeout(120)


def test_a_replay_says_what_was_drawn(samples):
    builder = BatchBuilder(SampleLoader(ImageDataset(samples), transforms_of(32, 48)))
    made = make(builder, [SampleKey(k, 2, bucket=1) for k in range(4)])
    replayed = builder.replay(made)
    assert replayed.batch is made.batch and replayed.mix_params is None
    assert [params.size for params in replayed.sample_params] == [(48, 48)] * 4 and len(replayed.appearance_params) == 4
    own = BatchBuilder(SampleLoader(Coded(4), transform=lambda image: torch.zeros(3, 8, 8)))
    assert own.replay(make(own, [SampleKey(0, 0)])).sample_params is None
