"Sample transforms for a builder, and a batch as a worker makes it."
from timmdata.pipeline.builder import HostBatch
from timmdata.pipeline.params import ParamSampler
from timmdata.pipeline.sample_transform import SampleTransform
from timmdata.transforms.settings import AugmentSettings


def transforms_of(*sizes, **settings) -> list[SampleTransform]:
    return [SampleTransform(ParamSampler(AugmentSettings(size, is_training=True, **settings))) for size in sizes]


def make(builder, keys, memory=None, order=None) -> HostBatch | None:
    layout, samples = builder.layout(keys[0].bucket), [None] * len(keys)
    rows = layout.allocate(len(keys), memory)
    of_samples = layout.divide(rows, len(keys))
    for k in order or range(len(keys)): samples[k] = builder.load(keys[k], of_samples[k])
    return builder.collate(keys, samples, rows)
