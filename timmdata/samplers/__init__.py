"The order of the samples, which depends on the seed and the epoch, and the schedule of batch sizes."
from .batch_schedule import PlannedBatch, ScheduledBatchSampler, create_batch_schedule
from .distributed import OrderedDistributedSampler, RepeatAugSampler, gather_valid
from .epoch import EpochSampler
from .keys import SampleKey, keys_of_images, view_keys
from .mixture import MixtureSampler
from .weighted import BalancedSampler, WeightedSampler, sample_weights

__all__ = [
    'BalancedSampler', 'EpochSampler', 'MixtureSampler', 'OrderedDistributedSampler', 'PlannedBatch', 'RepeatAugSampler', 'SampleKey',
    'ScheduledBatchSampler', 'WeightedSampler', 'create_batch_schedule', 'gather_valid',
    'keys_of_images', 'sample_weights', 'view_keys',
]
