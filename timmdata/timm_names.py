"""The import paths of timm: what code imports from `timm.data.X`, it can import from `timmdata.X`.

A name in `HERE` is ours. Any other name is looked up in timm itself, so this file does not follow timm's releases: it may be
private, or one that timm's module only imports. Names that timm has dropped lead to their successors (`DROPPED`).
Nothing is imported before a name is asked for. Remove a name from `HERE`, and it is timm's.
Modules are named from the package on, with a dot: '.loader'.
"""
import dis
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

HERE = {   # module of timmdata → timm's names that it has
    '.core.constants': """DEFAULT_CROP_MODE DEFAULT_CROP_PCT IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD IMAGENET_DPN_MEAN
        IMAGENET_DPN_STD IMAGENET_INCEPTION_MEAN IMAGENET_INCEPTION_STD OPENAI_CLIP_MEAN OPENAI_CLIP_STD""",
    '.readers.extensions': """IMG_EXTENSIONS add_img_extensions del_img_extensions get_img_extensions is_img_extension
        set_img_extensions""",
    '.readers.base': 'Reader',
    '.readers.class_map': 'load_class_map',
    '.readers.factory': 'create_reader',
    '.readers.folder': 'ReaderImageFolder',
    '.readers.huggingface': 'ReaderHfds ReaderHfids',
    '.readers.tar': 'ReaderImageTar',
    '.readers.target_fields': 'MultiLabelTarget get_field',
    '.readers.webdataset': 'ReaderWds',
    '.datasets.image_dataset': 'ImageDataset IterableImageDataset',
    '.datasets.augmix': 'AugMixDataset',
    '.datasets.factory': 'create_dataset',
    '.transforms.auto_augment': """AugMixAugment AutoAugment RandAugment augment_and_mix_transform augmix_ops
        auto_augment_policy auto_augment_transform rand_augment_ops rand_augment_transform""",
    '.transforms.factory': 'create_transform',
    '.transforms.geometry': """CenterCropOrPad MaybePILToTensor MaybeToTensor RandomCropOrPad
        RandomResizedCropAndInterpolation ResizeKeepRatio TrimBorder center_crop_or_pad crop_or_pad interp_mode_to_str
        str_to_interp_mode str_to_pil_interp""",
    '.transforms.mixup': 'Mixup cutmix_bbox_and_lam mixup_target rand_bbox rand_bbox_minmax',
    '.transforms.naflex_mixup': 'NaFlexMixup',
    '.transforms.naflex_transforms': """Patchify RandomResizedCropToSequence ResizeToSequence get_image_size_for_seq
        patchify_image""",
    '.transforms.patch_erasing': 'PatchRandomErasing',
    '.transforms.policy': 'AugmentOp',
    '.transforms.random_erasing': 'RandomErasing',
    '.samplers.batch_schedule': 'ScheduledBatchSampler',
    '.samplers.distributed': 'OrderedDistributedSampler RepeatAugSampler',
    '.samplers.token_plan': 'calculate_naflex_batch_size',
    '.pipeline.collate': 'FastCollateMixup fast_collate',
    '.loaders.prefetch': 'PrefetchLoader adapt_to_chs',
    '.loader': 'create_loader',
    '.naflex_loader': 'create_naflex_loader',
}

# Modules of timm.data 1.0.31, known without timm; what a later timm adds is found there
MODULES = """.auto_augment .config .constants .dataset .dataset_factory .dataset_info .distributed_sampler .imagenet_info
    .loader .mixup .model_config .naflex_dataset .naflex_loader .naflex_mixup .naflex_random_erasing .naflex_transforms
    .random_erasing .readers .readers._hfds .readers.class_map .readers.img_extensions .readers.reader
    .readers.reader_factory .readers.reader_hfds .readers.reader_hfids .readers.reader_image_folder
    .readers.reader_image_in_tar .readers.reader_image_tar .readers.reader_tfds .readers.reader_wds
    .readers.shared_count .readers.targets .real_labels .scheduled_sampler .target_transforms .tf_preprocessing
    .transforms .transforms_factory""".split()

DROPPED = {   # name of an older timm → its name today; parsers are called readers since timm 0.8
    'Dataset': 'ImageDataset', 'DatasetTar': 'ImageDataset', 'create_parser': 'create_reader', 'Parser': 'Reader',
    'ParserImageFolder': 'ReaderImageFolder', 'ParserImageInTar': 'ReaderImageInTar', 'ParserImageTar': 'ReaderImageTar',
    'ParserTfds': 'ReaderTfds', 'ParserHfds': 'ReaderHfds', 'ParserWds': 'ReaderWds',
    '_pil_interp': 'str_to_pil_interp', 'expand_to_chs': 'adapt_to_chs'}
DROPPED_MODULES = {'.parsers.constants': '.readers.img_extensions'}   # others: parser → reader

_HOME = {name: home for home, names in HERE.items() for name in names.split()}


class _NoTimm(ImportError):
    "timm is not installed."


def _module_today(module: str) -> str:
    "Give the name that a module of an older timm has today."
    is_dropped = module == '.parsers' or module.startswith('.parsers.')
    return DROPPED_MODULES.get(module) or (module.replace('parser', 'reader') if is_dropped else module)


@cache
def has_module(
    module: str,
) -> bool:
    """Return whether timm.data has a module; does not import timm.

    Args:
        module: Module of timm.data, such as '.readers.reader_factory'.
    """
    if module in MODULES: return True
    spec = find_spec('timm')
    for part in ('data', *module.split('.')[1:]):
        if spec is None or not spec.submodule_search_locations: return False
        spec = PathFinder.find_spec(f'{spec.name}.{part}', spec.submodule_search_locations)
    return spec is not None


def _of_timm(module: str) -> ModuleType:
    "Import a module of timm.data; raise ImportError without timm."
    try: return import_module(f'timm.data{module}')
    except ModuleNotFoundError as error:
        if str(error.name).split('.')[0] != 'timm': raise
        raise _NoTimm(f'the names of timm.data{module} come from timm, which is not installed: pip install timm') from error


def _is_imported() -> bool:
    "Return whether the caller outside of this package's lookups is at `from module import name`."
    frame = sys._getframe(1)
    while frame and (frame.f_code.co_filename == __file__ or frame.f_code.co_name == '__getattr__'):
        frame = frame.f_back
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] == 'IMPORT_FROM'


def not_there(
    message: str,
) -> Exception:
    """Make the error of a name that a module does not have: Python hides the message of an AttributeError in an import.

    Args:
        message: What to say.

    Returns:
        an ImportError for `from module import name`, else an AttributeError, so that `hasattr` works
    """
    return (ImportError if _is_imported() else AttributeError)(message)


def find(
    module: str,
    name: str,
    advice: str = '',
) -> Any:
    """Give an object by its name in timm: ours if there is one, else timm's.

    Args:
        module: Module of timm.data, such as '.readers.reader_factory'.
        name: One of its names, or of its modules.
        advice: What to add to the message if there is no such name.
    """
    if name.startswith('__'): raise AttributeError(name)   # Python looks up many
    if is_module(f'{module}.{name}'): return import_module(f'timmdata{module}.{name}')
    today, home = _module_today(module), _HOME.get(name)
    if home and home != today: return getattr(import_module(f'timmdata{home}'), name)
    try: theirs = _of_timm(today)
    except _NoTimm as error: theirs, advice = None, advice or f'; {error}'
    if hasattr(theirs, name): return getattr(theirs, name)
    if name in DROPPED: return find(today, DROPPED[name])
    raise not_there(f'timmdata{module} has no {name!r}{advice}')


def is_module(
    module: str,
) -> bool:
    """Return whether timm.data has, or had, a module.

    Args:
        module: Module, such as '.parsers.parser_factory'.
    """
    return has_module(_module_today(module))


def names_of(
    module: str,
) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module: it finds timm's names that the module itself does not have.

    Args:
        module: Module of timm.data.
    """
    return partial(find, module)


def public_names(
    module: str,
) -> list[str]:
    """List the public names of a module of timm.data; imports timm, or raises ImportError.

    Args:
        module: Module of timm.data; '': timm.data itself.
    """
    found = vars(_of_timm(_module_today(module)))
    return [name for name in found.get('__all__', found)
            if not name.startswith('_') and not isinstance(found[name], ModuleType)]


class _TimmModules:
    "Finds `timmdata.X` if only timm has a module X: an empty one, whose names `find` gives."

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith('timmdata.'): return None
        module = fullname.removeprefix('timmdata')
        is_package = module == '.parsers'
        return ModuleSpec(fullname, self, is_package=is_package) if is_module(module) else None

    def create_module(self, spec: ModuleSpec): return None   # an ordinary one

    def exec_module(self, module: ModuleType):
        name = module.__name__.removeprefix('timmdata')

        def get(wanted: str) -> Any:
            return public_names(name) if wanted == '__all__' else find(name, wanted)

        def names() -> list[str]:
            try: return public_names(name)
            except ImportError: return []   # of timm, or of what the module imports

        vars(module).update(__doc__=f'The names of `timm.data{name}`; see `timmdata.timm_names`.',
                            __getattr__=get, __dir__=names)


sys.meta_path.append(_TimmModules())   # at the end: it is asked for what is no file
