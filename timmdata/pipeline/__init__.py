"From a sample key to its row of the batch: draw parameters, decode, crop, transform and collate."
from .batch_transform import BatchTransform, BatchTransformSettings
from .builder import BatchBuilder, HostBatch
from .collate import FastCollateMixup, fast_collate
from .params import AppearanceParams, ParamSampler, SampleParams
from .patch_formats import as_siglip2, unpad_batch, unpatchify
from .replay import Replay
from .sample_loader import SampleLoader
from .sample_transform import DecodeSettings, SampleTransform, allocate_rows
from .views import View, ViewsBatchTransform, ViewsTransform

__all__ = [
    'AppearanceParams', 'BatchBuilder', 'BatchTransform', 'BatchTransformSettings', 'DecodeSettings',
    'FastCollateMixup', 'HostBatch', 'ParamSampler', 'Replay', 'SampleLoader', 'SampleParams', 'SampleTransform', 'View',
    'ViewsBatchTransform', 'ViewsTransform', 'allocate_rows', 'as_siglip2', 'unpad_batch', 'unpatchify', 'fast_collate',
]
