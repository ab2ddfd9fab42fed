"timmdata: image files on disk to normalised batches on the device that trains."
__version__ = "0.1.0"

# foundations
from .constants import (
    DEFAULT_CROP_PCT, DEFAULT_CROP_MODE, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD,
    IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD, IMAGENET_DPN_MEAN, IMAGENET_DPN_STD, OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)
from .samples import PHOTOGRAPHS, ODDITIES, TRAIN_VIEWS, VAL_VIEWS, cache_dir, make_view, get_samples, get_imagenette
from .seeding import sample_seed, KeyedRandom, seed_all, seeded
from .show import denormalize, to_uint8_array, show_images, show_image, show_batch, show_transform
from .img_extensions import (
    IMG_EXTENSIONS, get_img_extensions, set_img_extensions, check_extensions,
    add_img_extensions, del_img_extensions, is_img_extension,
)
from .bad_samples import ImageReadError, is_system_error, BadSample, BadSampleLedger
from .decode import decode_image
# one sample
from .class_map import (
    natural_key, build_class_map, load_class_map, ClassMapError, check_class_map,
    class_map_fingerprint,
)
from .sample_table import SampleTable, LabelLists
from .readers import (
    split_group, matching_splits, find_splits, resolve_split, FolderScan, scan_folder,
    keep_scan, scan_with_index, Reader, ReaderFiles, ReaderImageFolder,
)
from .stream_reader import StreamReader
from .target_fields import get_field, TargetFields, MultiLabelTarget
from .hf_reader import resolve_hf_split, load_hf, ReaderHfds, open_hf_stream, ReaderHfids
from .tables import TABLE_TYPES, read_table, number_targets, TableError, find_problems, describe_problems, ReaderTable
from .tar_reader import list_tar, TarIndex, scan_tars, scan_tars_with_index, choose_folders, ReaderImageTar
from .tfds_reader import open_tfds, resolve_tfds_split, ReaderTfds
from .webdataset import ShardSplit, load_info, find_shards, ReaderWds
from .reader_factory import holds_tars, create_reader
from .dataset import ImageDataset, IterableImageDataset
from .any_dataset import (
    sample_image, with_image, apply_transform, as_pil_image, locate, leaves, gives_bytes,
    describe, fingerprint, sample_numbers, TransformedIterableDataset,
)
from .labels import targets_of, classes_of, LabelMap, LabelReport, label_report, RelabelledDataset, relabel
from .voc import VOC_CLASSES, OBJECTS, VOCObject, read_voc_objects, choose_names, ReaderVOC, VOCClassification
from .class_info import (
    DatasetInfo, CustomDatasetInfo, load_class_info, LabelMappingCoverage,
    DatasetInfoLabelMapper, infer_imagenet_subset,
)
from .dataset_factory import torch_split, create_dataset
from .real_labels import RealLabelsImagenet
# one image
from .transforms import (
    str_to_interp_mode, str_to_pil_interp, interp_mode_to_str, check_range,
    RandomResizedCropAndInterpolation, ResizeKeepRatio, crop_or_pad, center_crop_or_pad, CenterCropOrPad,
    RandomCropOrPad, RandomPad, TrimBorder, ToNumpy, ToTensor, MaybeToTensor, MaybePILToTensor,
)
from .pixel_ops import OPERATIONS, Operation
from .random_erasing import RandomErasing, create_erasing
from .image_ops import DrawnOp, apply_ops, AugmentOp, Policy, draw_all, parse_config, policy_hparams
from .augmix import AugMix, AugMixChoices, augmix_ops, AugMixAugment, augment_and_mix_transform, create_augmix
from .auto_augment import (
    rand_augment_ops, RandAugment, rand_augment_transform, auto_augment_policy,
    AutoAugment, ThreeAugment, auto_augment_transform, TrivialAugmentWide, create_policy,
)
from .transform_factory import (
    image_size, check_choice, check_probabilities, color_jitter_factors,
    transforms_imagenet_eval, choose_policy, transforms_imagenet_train, transforms_noaug_train, create_transform,
)
from .augmentation import (
    HostChoices, DeviceChoices, RandomGeometry, CenterGeometry, Augmentation,
    create_augmentation,
)
from .fast_decode import (
    BACKENDS, resolve_backend, JpegHeader, read_header, decode_header, cut_below,
    choose_factor, Pixels,
)
from .host_stage import (
    empty_rows, is_vertical_first, resize_into, apply_color, apply_flips, apply_policy,
    crop_with_pillow, crop_with_torch, HostStage,
)
from .augmix_dataset import AugMixDataset, without_splits
from .data_config import as_settings, resolve_data_config, resolve_model_data_config, resolve_input_data_config
# one batch
from .collate import fast_collate
from .mix_parts import rand_bbox, rand_bbox_minmax, cutmix_bbox_and_lam, check_target, mixup_target
from .mixup import MixChoices, Mixup, MixingSwitch, FastCollateMixup
from .samplers import SampleKey, view_keys, keys_of_images, EpochSampler, Numbering
from .buffers import watch, end_with, BufferPool
from .scheduled_sampler import (
    choice_probabilities, PlannedBatch, ScheduledBatchSampler,
    create_batch_schedule, ScheduledTransformDataset,
)
from .timm_samplers import OrderedDistributedSampler, num_selected, repeated_order, RepeatAugSampler
from .device_stage import HOST, APPEARANCE, ERASING, MIXING, color_matrices, change_batch, DeviceStage
from .batches import HostBatch, Replay, BatchMaker
from .shared_memory import SharedMemory, pack, unpack, Slots, WorkerTraceback, portable_error, raise_first
from .side_stream import SideStream, map_tensors, move_to_device, iterate_ahead
from .device_cache import resize_weights, crop_batch, DeviceCache, CacheWorkers
from .buffer_store import (
    MAX_READERS, BufferError, DamagedBatch, seal, unseal, process_identity, is_running,
    BatchStore, name_bytes, join, leave, positions, check_unused,
)
from .buffer_producer import Plan, socket_path, connect, Producer
from .buffer_settings import parse_size, check_buffer_settings
# a stream
from .workers import Job, InlineWorkers, ThreadWorkers, check_threads
from .processes import ProcessWorkers
from .prefetch import resolve_device, adapt_to_chs, adapt_statistics, PrefetchLoader
from .worker_choice import choose_workers, available_cores, measure_threads, choose_num_workers
from .batch_loader import BatchLoader
from .buffer_source import numbering_of, batches_from, copy_loader, start_producer, waits_for
from .buffer_reader import BufferReader
from .buffer_status import buffer_status, format_status, fill_levels, plot_levels, remove_buffer, drop_reader
from .stream_loader import StreamLoader, CollatePresent, check_ranks, create_stream_loader
from .buffer import remove_stale, BatchBuffer
from .loader_settings import (
    parts_of, check_batching, check_values, check_recipe, num_channels, statistics_of,
    refuse_together, check_together, refuse_later, check_loader,
)
from .loader import create_loader
from .recipes import Recipe, list_recipes, get_recipe
from .replay import source_box, describe_choices, show_replay

__all__ = [
    # foundations
    'DEFAULT_CROP_PCT', 'DEFAULT_CROP_MODE', 'IMAGENET_DEFAULT_MEAN', 'IMAGENET_DEFAULT_STD',
    'IMAGENET_INCEPTION_MEAN', 'IMAGENET_INCEPTION_STD', 'IMAGENET_DPN_MEAN', 'IMAGENET_DPN_STD', 'OPENAI_CLIP_MEAN',
    'OPENAI_CLIP_STD',
    'PHOTOGRAPHS', 'ODDITIES', 'TRAIN_VIEWS', 'VAL_VIEWS', 'cache_dir', 'make_view', 'get_samples', 'get_imagenette',
    'sample_seed', 'KeyedRandom', 'seed_all', 'seeded',
    'denormalize', 'to_uint8_array', 'show_images', 'show_image', 'show_batch', 'show_transform',
    'IMG_EXTENSIONS', 'get_img_extensions', 'set_img_extensions', 'check_extensions', 'add_img_extensions',
    'del_img_extensions', 'is_img_extension',
    'ImageReadError', 'is_system_error', 'BadSample', 'BadSampleLedger',
    'decode_image',
    # one sample
    'natural_key', 'build_class_map', 'load_class_map', 'ClassMapError', 'check_class_map', 'class_map_fingerprint',
    'SampleTable', 'LabelLists',
    'split_group', 'matching_splits', 'find_splits', 'resolve_split', 'FolderScan', 'scan_folder', 'keep_scan',
    'scan_with_index', 'Reader', 'ReaderFiles', 'ReaderImageFolder',
    'StreamReader',
    'get_field', 'TargetFields', 'MultiLabelTarget',
    'resolve_hf_split', 'load_hf', 'ReaderHfds', 'open_hf_stream', 'ReaderHfids',
    'TABLE_TYPES', 'read_table', 'number_targets', 'TableError', 'find_problems', 'describe_problems', 'ReaderTable',
    'list_tar', 'TarIndex', 'scan_tars', 'scan_tars_with_index', 'choose_folders', 'ReaderImageTar',
    'open_tfds', 'resolve_tfds_split', 'ReaderTfds',
    'ShardSplit', 'load_info', 'find_shards', 'ReaderWds',
    'holds_tars', 'create_reader',
    'ImageDataset', 'IterableImageDataset',
    'sample_image', 'with_image', 'apply_transform', 'as_pil_image', 'locate', 'leaves', 'gives_bytes', 'describe',
    'fingerprint', 'sample_numbers', 'TransformedIterableDataset',
    'targets_of', 'classes_of', 'LabelMap', 'LabelReport', 'label_report', 'RelabelledDataset', 'relabel',
    'VOC_CLASSES', 'OBJECTS', 'VOCObject', 'read_voc_objects', 'choose_names', 'ReaderVOC', 'VOCClassification',
    'DatasetInfo', 'CustomDatasetInfo', 'load_class_info', 'LabelMappingCoverage', 'DatasetInfoLabelMapper',
    'infer_imagenet_subset',
    'torch_split', 'create_dataset',
    'RealLabelsImagenet',
    # one image
    'str_to_interp_mode', 'str_to_pil_interp', 'interp_mode_to_str', 'check_range',
    'RandomResizedCropAndInterpolation', 'ResizeKeepRatio', 'crop_or_pad', 'center_crop_or_pad', 'CenterCropOrPad',
    'RandomCropOrPad', 'RandomPad', 'TrimBorder', 'ToNumpy', 'ToTensor', 'MaybeToTensor', 'MaybePILToTensor',
    'OPERATIONS', 'Operation',
    'RandomErasing', 'create_erasing',
    'DrawnOp', 'apply_ops', 'AugmentOp', 'Policy', 'draw_all', 'parse_config', 'policy_hparams',
    'AugMix', 'AugMixChoices', 'augmix_ops', 'AugMixAugment', 'augment_and_mix_transform', 'create_augmix',
    'rand_augment_ops', 'RandAugment', 'rand_augment_transform', 'auto_augment_policy', 'AutoAugment',
    'ThreeAugment', 'auto_augment_transform', 'TrivialAugmentWide', 'create_policy',
    'image_size', 'check_choice', 'check_probabilities', 'color_jitter_factors', 'transforms_imagenet_eval',
    'choose_policy', 'transforms_imagenet_train', 'transforms_noaug_train', 'create_transform',
    'HostChoices', 'DeviceChoices', 'RandomGeometry', 'CenterGeometry', 'Augmentation', 'create_augmentation',
    'BACKENDS', 'resolve_backend', 'JpegHeader', 'read_header', 'decode_header', 'cut_below', 'choose_factor',
    'Pixels',
    'empty_rows', 'is_vertical_first', 'resize_into', 'apply_color', 'apply_flips', 'apply_policy',
    'crop_with_pillow', 'crop_with_torch', 'HostStage',
    'AugMixDataset', 'without_splits',
    'as_settings', 'resolve_data_config', 'resolve_model_data_config', 'resolve_input_data_config',
    # one batch
    'fast_collate',
    'rand_bbox', 'rand_bbox_minmax', 'cutmix_bbox_and_lam', 'check_target', 'mixup_target',
    'MixChoices', 'Mixup', 'MixingSwitch', 'FastCollateMixup',
    'SampleKey', 'view_keys', 'keys_of_images', 'EpochSampler', 'Numbering',
    'watch', 'end_with', 'BufferPool',
    'choice_probabilities', 'PlannedBatch', 'ScheduledBatchSampler', 'create_batch_schedule',
    'ScheduledTransformDataset',
    'OrderedDistributedSampler', 'num_selected', 'repeated_order', 'RepeatAugSampler',
    'HOST', 'APPEARANCE', 'ERASING', 'MIXING', 'color_matrices', 'change_batch', 'DeviceStage',
    'HostBatch', 'Replay', 'BatchMaker',
    'SharedMemory', 'pack', 'unpack', 'Slots', 'WorkerTraceback', 'portable_error', 'raise_first',
    'SideStream', 'map_tensors', 'move_to_device', 'iterate_ahead',
    'resize_weights', 'crop_batch', 'DeviceCache', 'CacheWorkers',
    'MAX_READERS', 'BufferError', 'DamagedBatch', 'seal', 'unseal', 'process_identity', 'is_running', 'BatchStore',
    'name_bytes', 'join', 'leave', 'positions', 'check_unused',
    'Plan', 'socket_path', 'connect', 'Producer',
    'parse_size', 'check_buffer_settings',
    # a stream
    'Job', 'InlineWorkers', 'ThreadWorkers', 'check_threads',
    'ProcessWorkers',
    'resolve_device', 'adapt_to_chs', 'adapt_statistics', 'PrefetchLoader',
    'choose_workers', 'available_cores', 'measure_threads', 'choose_num_workers',
    'BatchLoader',
    'numbering_of', 'batches_from', 'copy_loader', 'start_producer', 'waits_for',
    'BufferReader',
    'buffer_status', 'format_status', 'fill_levels', 'plot_levels', 'remove_buffer', 'drop_reader',
    'StreamLoader', 'CollatePresent', 'check_ranks', 'create_stream_loader',
    'remove_stale', 'BatchBuffer',
    'parts_of', 'check_batching', 'check_values', 'check_recipe', 'num_channels', 'statistics_of', 'refuse_together',
    'check_together', 'refuse_later', 'check_loader',
    'create_loader',
    'Recipe', 'list_recipes', 'get_recipe',
    'source_box', 'describe_choices', 'show_replay',
]
