"""timmdata: image files on disk to normalized batches on the device that trains.

Five lines, with sample photographs; your folder has a folder for each class, perhaps below train/ and val/:

>>> from timmdata import ImageDataset, create_loader, get_samples
>>> train = create_loader(ImageDataset(get_samples()), 224, 32, is_training=True)
>>> val = create_loader(ImageDataset(get_samples(), split='val'), 224, 32)
>>> images, targets = next(iter(train))   # normalized, on the best device there is
>>> images.shape, targets.shape
(torch.Size([32, 3, 224, 224]), torch.Size([32]))

What most people need; help(create_loader) and the like say more:

- ImageDataset: a folder, a tar or a table ('labels.csv'); relabel: other classes; create_dataset: data sets by name
- create_loader: batches for training and evaluation, all of timm's settings; Mixup: mixup and CutMix
- get_recipe, list_recipes: published settings by name; resolve_data_config: those of a timm model
- explore, preview: what the settings do to an image; show_batch, show_transform, show_replay: pictures
- timmdata.inspection.inspect: what is wrong with a data set; `timmdata --help` in a shell: inspect, doctor, bench, …
- ImageReadError: a file that cannot be read, with its name; get_samples: the sample photographs

The guides are notebooks: nbs/guides in the repository, from your_folder.ipynb on. README.md lists them.
"""
__version__ = "0.1.0"

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
from .datasets.voc import VOCClassification
from .datasets.class_info import (
    CustomDatasetInfo, DatasetInfo, DatasetInfoLabelMapper, LabelMappingCoverage, infer_imagenet_subset,
    load_class_info,
)
from .datasets.real_labels import RealLabelsImagenet
from .datasets.factory import create_dataset
from .samplers.batch_schedule import ScheduledBatchSampler, ScheduledTransformDataset
from .transforms.geometry import (
    CenterCropOrPad, MaybePILToTensor, MaybeToTensor, RandomCropOrPad, RandomPad,
    RandomResizedCropAndInterpolation, ResizeKeepRatio, ToNumpy, ToTensor, TrimBorder, center_crop_or_pad,
    crop_or_pad, interp_mode_to_str, str_to_interp_mode, str_to_pil_interp,
)
from .transforms.auto_augment import (
    AutoAugment, RandAugment, auto_augment_policy, auto_augment_transform, rand_augment_ops,
    rand_augment_transform,
)
from .transforms.mixup import Mixup
from .pipeline.collate import FastCollateMixup
from .transforms.factory import create_transform
from .transforms.model_config import resolve_data_config, resolve_input_data_config, resolve_model_data_config
from .datasets.augmix import AugMixDataset
from .loaders.prefetch import PrefetchLoader
from .buffer.buffer import BatchBuffer
from .loader import create_loader
from .not_offered import (
    CenterCropToSequence, ImageNetInfo, NaFlexMapDatasetWrapper, NaFlexMixup, Patchify, RandomCropToSequence,
    RandomResizedCropToSequence, ResizeKeepRatioToSequence, ResizeToSequence, calculate_naflex_batch_size,
    create_naflex_loader, mix_batch_variable_size, pairwise_mixup_target, patchify_image,
)
from .recipes import get_recipe, list_recipes
from .visualize import show_batch, show_images, show_replay, show_transform
from .explore import explore, preview

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
    'LabelMap', 'relabel',
    'VOCClassification',
    'CustomDatasetInfo', 'DatasetInfo', 'DatasetInfoLabelMapper', 'LabelMappingCoverage',
    'infer_imagenet_subset', 'load_class_info',
    'RealLabelsImagenet',
    'create_dataset',
    'ScheduledBatchSampler', 'ScheduledTransformDataset',
    'CenterCropOrPad', 'MaybePILToTensor', 'MaybeToTensor', 'RandomCropOrPad', 'RandomPad',
    'RandomResizedCropAndInterpolation', 'ResizeKeepRatio', 'ToNumpy', 'ToTensor', 'TrimBorder',
    'center_crop_or_pad', 'crop_or_pad', 'interp_mode_to_str', 'str_to_interp_mode', 'str_to_pil_interp',
    'AutoAugment', 'RandAugment', 'auto_augment_policy', 'auto_augment_transform', 'rand_augment_ops',
    'rand_augment_transform',
    'FastCollateMixup', 'Mixup',
    'create_transform',
    'resolve_data_config', 'resolve_input_data_config', 'resolve_model_data_config',
    'AugMixDataset',
    'PrefetchLoader',
    'BatchBuffer',
    'create_loader',
    'CenterCropToSequence', 'ImageNetInfo', 'NaFlexMapDatasetWrapper', 'NaFlexMixup', 'Patchify',
    'RandomCropToSequence', 'RandomResizedCropToSequence', 'ResizeKeepRatioToSequence', 'ResizeToSequence',
    'calculate_naflex_batch_size', 'create_naflex_loader', 'mix_batch_variable_size', 'pairwise_mixup_target',
    'patchify_image',
    'get_recipe', 'list_recipes',
    'show_batch', 'show_images', 'show_replay', 'show_transform',
    'explore', 'preview',
]
