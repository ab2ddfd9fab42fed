"timmdata: image files on disk to normalised batches on the device that trains."
__version__ = "0.1.0"

# foundations
from .constants import (
    DEFAULT_CROP_PCT, DEFAULT_CROP_MODE, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD,
    IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD, IMAGENET_DPN_MEAN, IMAGENET_DPN_STD, OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)
from .samples import PHOTOGRAPHS, ODDITIES, TRAIN_VIEWS, VAL_VIEWS, cache_dir, make_view, get_samples, get_imagenette
from .seeding import sample_seed, seed_all, seeded
from .show import denormalize, to_uint8_array, show_images, show_image, show_batch, show_transform
from .img_extensions import (
    IMG_EXTENSIONS, get_img_extensions, set_img_extensions, check_extensions,
    add_img_extensions, del_img_extensions, is_img_extension,
)
# one sample
from .class_map import natural_key, build_class_map, load_class_map
from .sample_table import SampleTable
from .readers import (
    find_splits, resolve_split, FolderScan, scan_folder, scan_with_index, Reader,
    ReaderImageFolder, create_reader,
)
from .bad_samples import ImageReadError, is_system_error, BadSample, BadSampleLedger
from .decode import decode_image
from .dataset import ImageDataset, IterableImageDataset
# one image
from .transforms import (
    str_to_interp_mode, str_to_pil_interp, interp_mode_to_str, check_range,
    RandomResizedCropAndInterpolation, ResizeKeepRatio, crop_or_pad, center_crop_or_pad, CenterCropOrPad,
    RandomCropOrPad, RandomPad, TrimBorder, ToNumpy, ToTensor, MaybeToTensor, MaybePILToTensor,
)
from .random_erasing import RandomErasing
from .transform_factory import (
    image_size, transforms_imagenet_eval, transforms_imagenet_train,
    transforms_noaug_train, create_transform,
)
# one batch
from .collate import fast_collate
from .samplers import SampleKey, EpochSampler, TransformedDataset, TransformedIterableDataset
# a stream
from .prefetch import (
    resolve_device, adapt_to_chs, adapt_statistics, SideStream, move_to_device,
    iterate_ahead, PrefetchLoader,
)
from .loader import as_pil_image, BatchLoader, CollatePresent, create_loader

__all__ = [
    # foundations
    'DEFAULT_CROP_PCT', 'DEFAULT_CROP_MODE', 'IMAGENET_DEFAULT_MEAN', 'IMAGENET_DEFAULT_STD',
    'IMAGENET_INCEPTION_MEAN', 'IMAGENET_INCEPTION_STD', 'IMAGENET_DPN_MEAN', 'IMAGENET_DPN_STD', 'OPENAI_CLIP_MEAN',
    'OPENAI_CLIP_STD',
    'PHOTOGRAPHS', 'ODDITIES', 'TRAIN_VIEWS', 'VAL_VIEWS', 'cache_dir', 'make_view', 'get_samples', 'get_imagenette',
    'sample_seed', 'seed_all', 'seeded',
    'denormalize', 'to_uint8_array', 'show_images', 'show_image', 'show_batch', 'show_transform',
    'IMG_EXTENSIONS', 'get_img_extensions', 'set_img_extensions', 'check_extensions', 'add_img_extensions',
    'del_img_extensions', 'is_img_extension',
    # one sample
    'natural_key', 'build_class_map', 'load_class_map',
    'SampleTable',
    'find_splits', 'resolve_split', 'FolderScan', 'scan_folder', 'scan_with_index', 'Reader', 'ReaderImageFolder',
    'create_reader',
    'ImageReadError', 'is_system_error', 'BadSample', 'BadSampleLedger',
    'decode_image',
    'ImageDataset', 'IterableImageDataset',
    # one image
    'str_to_interp_mode', 'str_to_pil_interp', 'interp_mode_to_str', 'check_range',
    'RandomResizedCropAndInterpolation', 'ResizeKeepRatio', 'crop_or_pad', 'center_crop_or_pad', 'CenterCropOrPad',
    'RandomCropOrPad', 'RandomPad', 'TrimBorder', 'ToNumpy', 'ToTensor', 'MaybeToTensor', 'MaybePILToTensor',
    'RandomErasing',
    'image_size', 'transforms_imagenet_eval', 'transforms_imagenet_train', 'transforms_noaug_train',
    'create_transform',
    # one batch
    'fast_collate',
    'SampleKey', 'EpochSampler', 'TransformedDataset', 'TransformedIterableDataset',
    # a stream
    'resolve_device', 'adapt_to_chs', 'adapt_statistics', 'SideStream', 'move_to_device', 'iterate_ahead',
    'PrefetchLoader',
    'as_pil_image', 'BatchLoader', 'CollatePresent', 'create_loader',
]
