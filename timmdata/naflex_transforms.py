"""timm's path to the transforms of patch sequences, `timm.data.naflex_transforms`; they are in `transforms`."""
from .transforms.naflex_transforms import (
    CenterCropToSequence, Patchify, RandomCropToSequence, RandomResizedCropToSequence, ResizeKeepRatioToSequence,
    ResizeToSequence, get_image_size_for_seq, patchify_image,
)

__all__ = [
    'CenterCropToSequence', 'Patchify', 'RandomCropToSequence', 'RandomResizedCropToSequence',
    'ResizeKeepRatioToSequence', 'ResizeToSequence', 'get_image_size_for_seq', 'patchify_image',
]
