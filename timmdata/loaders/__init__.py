"What a training loop iterates over: batches in order, states to resume from, and the transfer to the device."
from .base import FromParts, ForeignLoader, HostLoader, Loader
from .batch_loader import BatchLoader, BatchSettings, EpochBatchSampler
from .checkpoint import check_state, describe_settings, differences, make_state
from .consumer import Consumer
from .device_cache import CachedPool, DeviceCache
from .prefetch import PrefetchLoader, SideStream, iterate_ahead, map_tensors, move_to_device, resolve_device
from .stats import LoaderStats, Meter, count_bad_samples
from .stream_loader import StreamLoader

__all__ = [
    'FromParts', 'BatchLoader', 'BatchSettings', 'CachedPool', 'Consumer', 'DeviceCache', 'EpochBatchSampler', 'ForeignLoader',
    'HostLoader', 'Loader', 'LoaderStats', 'Meter', 'PrefetchLoader',
    'SideStream', 'StreamLoader', 'check_state', 'count_bad_samples', 'describe_settings', 'differences', 'iterate_ahead', 'make_state',
    'map_tensors', 'move_to_device', 'resolve_device',
]
