"""The import paths of timm 1.0.31: what code imports from `timm.data.X`, it can import from `timmdata.X`.

A name in `HERE` is ours; any other is timm's own and needs timm. Nothing is imported before a name is asked for.
Remove a name from `HERE`, and it is timm's.
"""
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HERE = {   # module of timmdata → timm's names that it has
    'core.constants': """DEFAULT_CROP_MODE DEFAULT_CROP_PCT IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD IMAGENET_DPN_MEAN
        IMAGENET_DPN_STD IMAGENET_INCEPTION_MEAN IMAGENET_INCEPTION_STD OPENAI_CLIP_MEAN OPENAI_CLIP_STD""",
    'readers.extensions': """IMG_EXTENSIONS add_img_extensions del_img_extensions get_img_extensions is_img_extension
        set_img_extensions""",
    'readers.base': 'Reader',
    'readers.class_map': 'load_class_map',
    'readers.factory': 'create_reader',
    'readers.folder': 'ReaderImageFolder',
    'readers.huggingface': 'ReaderHfds ReaderHfids',
    'readers.tar': 'ReaderImageTar',
    'readers.target_fields': 'MultiLabelTarget get_field',
    'readers.webdataset': 'ReaderWds',
    'datasets.image_dataset': 'ImageDataset IterableImageDataset',
    'datasets.augmix': 'AugMixDataset',
    'datasets.class_info': """CustomDatasetInfo DatasetInfo DatasetInfoLabelMapper ImageNetInfo LabelMappingCoverage
        infer_imagenet_subset""",
    'datasets.factory': 'create_dataset',
    'datasets.real_labels': 'RealLabelsImagenet',
    'transforms.auto_augment': """AugMixAugment AutoAugment RandAugment augment_and_mix_transform augmix_ops
        auto_augment_policy auto_augment_transform rand_augment_ops rand_augment_transform""",
    'transforms.factory': 'create_transform transforms_imagenet_eval transforms_imagenet_train transforms_noaug_train',
    'transforms.geometry': """CenterCropOrPad MaybePILToTensor MaybeToTensor RandomCropOrPad RandomPad
        RandomResizedCropAndInterpolation ResizeKeepRatio ToNumpy ToTensor TrimBorder center_crop_or_pad crop_or_pad
        interp_mode_to_str str_to_interp_mode str_to_pil_interp""",
    'transforms.mixup': 'Mixup cutmix_bbox_and_lam mixup_target rand_bbox rand_bbox_minmax',
    'transforms.model_config': 'resolve_data_config resolve_input_data_config resolve_model_data_config',
    'transforms.naflex_mixup': 'NaFlexMixup mix_batch_variable_size pairwise_mixup_target',
    'transforms.naflex_transforms': """CenterCropToSequence Patchify RandomCropToSequence RandomResizedCropToSequence
        ResizeKeepRatioToSequence ResizeToSequence get_image_size_for_seq patchify_image""",
    'transforms.patch_erasing': 'PatchRandomErasing',
    'transforms.policy': 'AugmentOp',
    'transforms.random_erasing': 'RandomErasing',
    'samplers.batch_schedule': 'ScheduledBatchSampler ScheduledTransformDataset',
    'samplers.distributed': 'OrderedDistributedSampler RepeatAugSampler',
    'samplers.token_plan': 'calculate_naflex_batch_size',
    'pipeline.collate': 'FastCollateMixup fast_collate',
    'loaders.prefetch': 'PrefetchLoader adapt_to_chs',
    'loader': 'create_loader',
    'naflex_dataset': 'NaFlexCollator NaFlexMapDatasetWrapper',
    'naflex_loader': 'NaFlexPrefetchLoader create_naflex_loader',
}

TIMM = {   # module of timm.data → its public names
    'auto_augment': """AugMixAugment AugmentOp AutoAugment LEVEL_TO_ARG NAME_TO_OP RandAugment augment_and_mix_transform
        augmix_ops auto_augment_policy auto_augment_policy_3a auto_augment_policy_original auto_augment_policy_originalr
        auto_augment_policy_v0 auto_augment_policy_v0r auto_augment_transform auto_contrast brightness color contrast
        desaturate equalize gaussian_blur gaussian_blur_rand invert posterize rand_augment_choices rand_augment_ops
        rand_augment_transform rotate sharpness shear_x shear_y solarize solarize_add translate_x_abs translate_x_rel
        translate_y_abs translate_y_rel""",
    'config': f"{HERE['core.constants']} resolve_data_config resolve_model_data_config",
    'constants': HERE['core.constants'],
    'dataset': 'AugMixDataset ImageDataset IterableImageDataset',
    'dataset_factory': 'create_dataset has_imagenet has_inaturalist has_places365 has_qmnist',
    'dataset_info': 'CustomDatasetInfo DatasetInfo DatasetInfoLabelMapper LabelMappingCoverage LabelNames',
    'distributed_sampler': 'OrderedDistributedSampler RepeatAugSampler',
    'imagenet_info': 'ImageNetInfo infer_imagenet_subset',
    'loader': """IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD MultiEpochsDataLoader PrefetchLoader adapt_to_chs
        create_loader fast_collate""",
    'mixup': """FastCollateMixup Mixup cutmix_bbox_and_lam mixup_target one_hot rand_bbox rand_bbox_minmax""",
    'model_config': 'IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD resolve_input_data_config',
    'naflex_dataset': 'NaFlexCollator NaFlexMapDatasetWrapper calculate_naflex_batch_size',
    'naflex_loader': 'IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD NaFlexPrefetchLoader create_naflex_loader',
    'naflex_mixup': 'NaFlexMixup mix_batch_variable_size pairwise_mixup_target',
    'naflex_random_erasing': 'PatchRandomErasing',
    'naflex_transforms': """CenterCropToSequence Patchify RandomCropToSequence RandomResizedCropToSequence
        ResizeKeepRatioToSequence ResizeToSequence get_image_size_for_seq patchify_image""",
    'random_erasing': 'RandomErasing',
    'readers': """add_img_extensions create_reader del_img_extensions get_img_extensions is_img_extension
        set_img_extensions""",
    'readers._hfds': 'get_class_labels remote_code_kwargs',
    'readers.class_map': 'load_class_map remap_dense_target remap_labels remap_target',
    'readers.img_extensions': HERE['readers.extensions'],
    'readers.reader': 'Reader',
    'readers.reader_factory': 'create_reader',
    'readers.reader_hfds': 'ReaderHfds',
    'readers.reader_hfids': 'ReaderHfids SHUFFLE_SIZE',
    'readers.reader_image_folder': 'ReaderImageFolder find_images_and_targets',
    'readers.reader_image_in_tar': 'CACHE_FILENAME_SUFFIX ReaderImageInTar TarState extract_tarinfos',
    'readers.reader_image_tar': 'ReaderImageTar extract_tarinfo',
    'readers.reader_tfds': """MAX_TP_SIZE PREFETCH_SIZE ReaderTfds SHUFFLE_SIZE decode_example even_split_indices
        has_buggy_even_splits""",
    'readers.reader_wds': """ReaderWds ResampledShards2 SAMPLE_INITIAL_SIZE SAMPLE_SHUFFLE_SIZE SplitInfo
        WdsTargetKeyError detshuffle2 log_and_continue pytorch_worker_seed""",
    'readers.shared_count': 'SharedCount',
    'readers.targets': """TARGET_FORMATS check_target_format get_field has_field multi_field_class_to_idx
        multi_field_target parse_target_keys""",
    'real_labels': 'RealLabelsImagenet',
    'scheduled_sampler': 'ScheduledBatchSampler ScheduledTransformDataset',
    'target_transforms': 'MultiLabelTarget',
    'tf_preprocessing': """CROP_PADDING IMAGE_SIZE TfPreprocessTransform distorted_bounding_box_crop preprocess_for_eval
        preprocess_for_train preprocess_image""",
    'transforms': """CenterCropOrPad MaybePILToTensor MaybeToTensor RandomCropOrPad RandomPad
        RandomResizedCropAndInterpolation ResizeKeepRatio ToNumpy ToTensor TrimBorder center_crop_or_pad crop_or_pad
        has_interpolation_mode interp_mode_to_str str_to_interp_mode str_to_pil_interp""",
    'transforms_factory': """DEFAULT_CROP_PCT IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD create_transform
        transforms_imagenet_eval transforms_imagenet_train transforms_noaug_train""",
}

_HOME = {name: home for home, names in HERE.items() for name in names.split()}


def find(
    module: str,
    name: str,
) -> Any:
    """Give an object by its name in timm: ours if there is one, else timm's.

    Args:
        module: Module of timm.data, such as 'readers.reader_factory'.
        name: One of its public names, or of its modules.
    """
    home = _HOME.get(name)
    if f'{module}.{name}' in TIMM: return import_module(f'timmdata.{module}.{name}')
    if name not in TIMM[module].split() or home == module: raise AttributeError(f'timmdata.{module} has no {name!r}')
    if home: return getattr(import_module(f'timmdata.{home}'), name)
    try: return getattr(import_module(f'timm.data.{module}'), name)
    except ModuleNotFoundError as error:
        if str(error.name).split('.')[0] != 'timm': raise
        raise ImportError(f"{name} of timm.data.{module} is not in timmdata, and timm is not installed: "
                          "pip install timm") from error


def names_of(
    module: str,
) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module: it finds timm's names that the module itself does not have.

    Args:
        module: Module of timm.data.
    """
    return partial(find, module)


class _TimmModules:
    "Finds `timmdata.X` if only timm has a module X: an empty one, whose names `find` gives."

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, module = fullname.partition('.')
        return ModuleSpec(fullname, self) if package == 'timmdata' and module in TIMM else None

    def create_module(self, spec: ModuleSpec): return None   # an ordinary one

    def exec_module(self, module: ModuleType):
        name = module.__name__.partition('.')[2]
        names = TIMM[name].split()
        vars(module).update(__doc__=f'The names of `timm.data.{name}`; see `timmdata.timm_names`.', __all__=names,
                            __getattr__=names_of(name), __dir__=lambda: names)


sys.meta_path.append(_TimmModules())   # at the end: it is asked for what is no file
