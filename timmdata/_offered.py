"""The public names of `timmdata`; `timmdata.__getattr__` imports them when the first one is used.

`X as X` tells type checkers that X is public.
"""
from .core.constants import (
    DEFAULT_CROP_MODE as DEFAULT_CROP_MODE, DEFAULT_CROP_PCT as DEFAULT_CROP_PCT,
    IMAGENET_DEFAULT_MEAN as IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD as IMAGENET_DEFAULT_STD,
    IMAGENET_DPN_MEAN as IMAGENET_DPN_MEAN, IMAGENET_DPN_STD as IMAGENET_DPN_STD,
    IMAGENET_INCEPTION_MEAN as IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD as IMAGENET_INCEPTION_STD,
    OPENAI_CLIP_MEAN as OPENAI_CLIP_MEAN, OPENAI_CLIP_STD as OPENAI_CLIP_STD,
)
from .readers.extensions import (
    add_img_extensions as add_img_extensions, del_img_extensions as del_img_extensions,
    get_img_extensions as get_img_extensions, is_img_extension as is_img_extension,
    set_img_extensions as set_img_extensions,
)
from .core.faults import ImageReadError as ImageReadError
from .datasets.demo_data import get_samples as get_samples
from .readers.target_fields import MultiLabelTarget as MultiLabelTarget
from .readers.factory import create_reader as create_reader
from .datasets.image_dataset import ImageDataset as ImageDataset, IterableImageDataset as IterableImageDataset
from .datasets.relabel import LabelMap as LabelMap, relabel as relabel
from .datasets.mixture import Mixture as Mixture
from .datasets.voc import voc_table as voc_table
from .datasets.factory import create_dataset as create_dataset
from .datasets.packing import write_pack as write_pack
from .samplers.batch_schedule import ScheduledBatchSampler as ScheduledBatchSampler
from .samplers.token_plan import calculate_naflex_batch_size as calculate_naflex_batch_size
from .transforms.geometry import (
    CenterCropOrPad as CenterCropOrPad, MaybePILToTensor as MaybePILToTensor, MaybeToTensor as MaybeToTensor,
    RandomCropOrPad as RandomCropOrPad,
    RandomResizedCropAndInterpolation as RandomResizedCropAndInterpolation,
    ResizeKeepRatio as ResizeKeepRatio, TrimBorder as TrimBorder, center_crop_or_pad as center_crop_or_pad,
    crop_or_pad as crop_or_pad, interp_mode_to_str as interp_mode_to_str,
    str_to_interp_mode as str_to_interp_mode, str_to_pil_interp as str_to_pil_interp,
)
from .transforms.naflex_transforms import (
    Patchify as Patchify, RandomResizedCropToSequence as RandomResizedCropToSequence,
    ResizeToSequence as ResizeToSequence, patchify_image as patchify_image,
)
from .transforms.auto_augment import (
    AutoAugment as AutoAugment, RandAugment as RandAugment, auto_augment_policy as auto_augment_policy,
    auto_augment_transform as auto_augment_transform, rand_augment_ops as rand_augment_ops,
    rand_augment_transform as rand_augment_transform,
)
from .transforms.mixup import Mixup as Mixup
from .transforms.naflex_mixup import NaFlexMixup as NaFlexMixup
from .pipeline.collate import FastCollateMixup as FastCollateMixup
from .pipeline.follow import Boxes as Boxes, Mask as Mask, Points as Points
from .pipeline.naflex import NaFlex as NaFlex
from .pipeline.patch_formats import (
    as_siglip2 as as_siglip2, unpad_batch as unpad_batch, unpatchify as unpatchify,
)
from .pipeline.views import View as View
from .transforms.factory import create_transform as create_transform
from .datasets.augmix import AugMixDataset as AugMixDataset
from .loaders.prefetch import PrefetchLoader as PrefetchLoader
from .buffer.buffer import BatchBuffer as BatchBuffer
from .loader import create_loader as create_loader
from .naflex_loader import create_naflex_loader as create_naflex_loader
from .recipes import get_recipe as get_recipe, list_recipes as list_recipes
from .look.pictures import (
    show_batch as show_batch, show_images as show_images, show_replay as show_replay,
    show_transform as show_transform,
)
from .look.preview import preview as preview
from .look.widgets import explore as explore
