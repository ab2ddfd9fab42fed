"Transform one image or a batch: timm's crops, policies, erasing and mixing, and their settings."
from .auto_augment import (
    AugMixAugment, AutoAugment, RandAugment, ThreeAugment, augment_and_mix_transform,
    auto_augment_policy, auto_augment_transform, create_policy, rand_augment_ops, rand_augment_transform,
)
from .factory import create_transform
from .geometry import (
    CenterCropOrPad, MaybePILToTensor, MaybeToTensor, RandomCropOrPad, RandomResizedCropAndInterpolation, ResizeKeepRatio,
    TrimBorder, center_crop_or_pad, crop_or_pad, interp_mode_to_str, str_to_interp_mode, str_to_pil_interp,
)
from .mixup import Mixup, MixParams, mixup_target
from .naflex_mixup import NaFlexMixParams, NaFlexMixup
from .naflex_transforms import (
    Patchify, RandomResizedCropToSequence, ResizeToSequence, count_tokens, get_image_size_for_seq, patchify_image,
)
from .patch_erasing import PatchRandomErasing
from .policy import OPERATIONS, AugmentOp, DrawnOp, Operation, Policy, apply_ops, draw_all
from .random_erasing import ErasingSettings, RandomErasing
from .settings import AugmentSettings
from ..timm_names import names_of as _names_of

__all__ = [
    'AugmentSettings', 'ErasingSettings',
    'create_transform',
    'CenterCropOrPad', 'MaybePILToTensor', 'MaybeToTensor', 'RandomCropOrPad', 'RandomResizedCropAndInterpolation',
    'ResizeKeepRatio', 'TrimBorder', 'center_crop_or_pad', 'crop_or_pad', 'interp_mode_to_str', 'str_to_interp_mode',
    'str_to_pil_interp',
    'Patchify', 'RandomResizedCropToSequence', 'ResizeToSequence', 'count_tokens', 'get_image_size_for_seq',
    'patchify_image',
    'OPERATIONS', 'Operation', 'DrawnOp', 'AugmentOp', 'Policy', 'apply_ops', 'draw_all',
    'RandAugment', 'AutoAugment', 'ThreeAugment', 'AugMixAugment', 'create_policy',
    'rand_augment_ops', 'rand_augment_transform', 'auto_augment_policy', 'auto_augment_transform',
    'augment_and_mix_transform',
    'RandomErasing', 'PatchRandomErasing', 'Mixup', 'MixParams', 'mixup_target',
    'NaFlexMixup', 'NaFlexMixParams',
]

__getattr__ = _names_of('.transforms')   # timm's others
