"What `import timmdata` offers: `timmdata.__getattr__` takes it from here when the first name is asked for."
from .core.constants import (
    DEFAULT_CROP_MODE, DEFAULT_CROP_PCT, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, IMAGENET_DPN_MEAN,
    IMAGENET_DPN_STD, IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD,
)
from .readers.extensions import (
    add_img_extensions, del_img_extensions, get_img_extensions, is_img_extension, set_img_extensions,
)
from .core.faults import ImageReadError
from .core.demo_data import get_samples
from .readers.target_fields import MultiLabelTarget
from .readers.factory import create_reader
from .datasets.image_dataset import ImageDataset, IterableImageDataset
from .datasets.relabel import LabelMap, relabel
from .datasets.voc import voc_table
from .datasets.class_info import (
    CustomDatasetInfo, DatasetInfo, DatasetInfoLabelMapper, ImageNetInfo, LabelMappingCoverage,
    infer_imagenet_subset,
)
from .datasets.real_labels import RealLabelsImagenet
from .datasets.factory import create_dataset
from .datasets.packing import pack
from .samplers.batch_schedule import ScheduledBatchSampler, ScheduledTransformDataset
from .samplers.token_plan import calculate_naflex_batch_size
from .transforms.geometry import (
    CenterCropOrPad, MaybePILToTensor, MaybeToTensor, RandomCropOrPad, RandomPad,
    RandomResizedCropAndInterpolation, ResizeKeepRatio, ToNumpy, ToTensor, TrimBorder, center_crop_or_pad,
    crop_or_pad, interp_mode_to_str, str_to_interp_mode, str_to_pil_interp,
)
from .transforms.naflex_transforms import (
    CenterCropToSequence, Patchify, RandomCropToSequence, RandomResizedCropToSequence, ResizeKeepRatioToSequence,
    ResizeToSequence, patchify_image,
)
from .transforms.auto_augment import (
    AutoAugment, RandAugment, auto_augment_policy, auto_augment_transform, rand_augment_ops,
    rand_augment_transform,
)
from .transforms.mixup import Mixup
from .transforms.naflex_mixup import NaFlexMixup, mix_batch_variable_size, pairwise_mixup_target
from .pipeline.collate import FastCollateMixup
from .pipeline.naflex import NaFlex
from .pipeline.patch_formats import as_siglip2, as_varlen, batch_images
from .pipeline.views import View
from .transforms.factory import create_transform
from .transforms.model_config import resolve_data_config, resolve_input_data_config, resolve_model_data_config
from .datasets.augmix import AugMixDataset
from .loaders.prefetch import PrefetchLoader
from .buffer.buffer import BatchBuffer
from .loader import create_loader
from .naflex_dataset import NaFlexMapDatasetWrapper
from .naflex_loader import create_naflex_loader
from .recipes import get_recipe, list_recipes
from .look.pictures import show_batch, show_images, show_replay, show_transform
from .look.preview import preview
from .look.tokens import token_report
from .look.widgets import explore

__all__ = [
    'DEFAULT_CROP_MODE', 'DEFAULT_CROP_PCT', 'IMAGENET_DEFAULT_MEAN', 'IMAGENET_DEFAULT_STD',
    'IMAGENET_DPN_MEAN', 'IMAGENET_DPN_STD', 'IMAGENET_INCEPTION_MEAN', 'IMAGENET_INCEPTION_STD',
    'OPENAI_CLIP_MEAN', 'OPENAI_CLIP_STD',
    'add_img_extensions', 'del_img_extensions', 'get_img_extensions', 'is_img_extension', 'set_img_extensions',
    'ImageReadError',
    'get_samples',
    'MultiLabelTarget',
    'create_reader',
    'ImageDataset', 'IterableImageDataset',
    'LabelMap', 'relabel', 'voc_table',
    'CustomDatasetInfo', 'DatasetInfo', 'DatasetInfoLabelMapper', 'ImageNetInfo', 'LabelMappingCoverage',
    'infer_imagenet_subset',
    'RealLabelsImagenet',
    'create_dataset',
    'pack',
    'ScheduledBatchSampler', 'ScheduledTransformDataset', 'calculate_naflex_batch_size',
    'CenterCropToSequence', 'Patchify', 'RandomCropToSequence', 'RandomResizedCropToSequence',
    'ResizeKeepRatioToSequence', 'ResizeToSequence', 'patchify_image',
    'CenterCropOrPad', 'MaybePILToTensor', 'MaybeToTensor', 'RandomCropOrPad', 'RandomPad',
    'RandomResizedCropAndInterpolation', 'ResizeKeepRatio', 'ToNumpy', 'ToTensor', 'TrimBorder',
    'center_crop_or_pad', 'crop_or_pad', 'interp_mode_to_str', 'str_to_interp_mode', 'str_to_pil_interp',
    'AutoAugment', 'RandAugment', 'auto_augment_policy', 'auto_augment_transform', 'rand_augment_ops',
    'rand_augment_transform',
    'FastCollateMixup', 'Mixup', 'NaFlexMixup', 'mix_batch_variable_size', 'pairwise_mixup_target',
    'NaFlex', 'View', 'as_siglip2', 'as_varlen', 'batch_images',
    'create_transform',
    'resolve_data_config', 'resolve_input_data_config', 'resolve_model_data_config',
    'AugMixDataset',
    'PrefetchLoader',
    'BatchBuffer',
    'create_loader', 'create_naflex_loader', 'NaFlexMapDatasetWrapper',
    'get_recipe', 'list_recipes',
    'show_batch', 'show_images', 'show_replay', 'show_transform',
    'explore', 'preview', 'token_report',
]
