"""timmdata: load image files as normalized batches on the training device.

Five lines with sample photos; your own folder needs one subfolder per class, with or without train/ and val/ above them:

>>> from timmdata import ImageDataset, create_loader, get_samples
>>> train = create_loader(ImageDataset(get_samples()), 224, 32, is_training=True)
>>> val = create_loader(ImageDataset(get_samples(), split='val'), 224, 32)
>>> images, targets = next(iter(train))   # normalized, on the best device available
>>> images.shape, targets.shape
(torch.Size([32, 3, 224, 224]), torch.Size([32]))

Main names; see their help, such as help(create_loader), for details:

- ImageDataset: read a folder, a tar or a table ('labels.csv'); relabel: change the classes; create_dataset: open a dataset by name
- Mixture: use several datasets in fixed proportions; their classes are joined by name
- create_loader: load training and evaluation batches, with all of timm's settings; Mixup: mixup and CutMix; View: several crops per image
- Mask, Boxes, Points: what follows an image, as in create_loader(…, follow={'mask': Mask()})
- create_naflex_loader, NaFlex: load images of every shape as sequences of patches, padded or packed
- write_pack: copy a dataset into a few large files, from which training reads faster
- get_recipe, list_recipes: use published settings by name
- explore, preview: see what the settings do to an image; show_batch, show_transform, show_replay: draw images
- timmdata.inspection.inspect: find problems in a dataset; `timmdata --help` in a shell: demo, inspect, doctor, …
- ImageReadError: raised for a file that cannot be read, with its name; get_samples: unpack the sample photos

Other names of timm, such as ImageNetInfo and resolve_data_config, come from timm if it is installed.
The guides are notebooks in nbs/guides of the repository; README.md lists them.
"""
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from .timm_names import find as _find, public_names as _public_names

__version__ = "0.1.0"

# name of torch, torchvision → name of ours
_MEANT = {'ImageFolder': 'ImageDataset', 'DataLoader': 'create_loader', 'CutMix': 'Mixup', 'MixUp': 'Mixup'}
# name that an earlier version had → what to do
_REMOVED = {'compare_naflex_modes': 'nbs/guides/naflex.ipynb compares the modes of NaFlex in one cell'}

if TYPE_CHECKING:   # the names that type checkers know; any other name is a mistake
    from typing import Any

    from ._offered import *   # noqa: F403

    # timm's, if it is installed
    CenterCropToSequence: Any
    CustomDatasetInfo: Any
    DatasetInfo: Any
    DatasetInfoLabelMapper: Any
    ImageNetInfo: Any
    LabelMappingCoverage: Any
    NaFlexMapDatasetWrapper: Any
    RandomCropToSequence: Any
    RandomPad: Any
    RealLabelsImagenet: Any
    ResizeKeepRatioToSequence: Any
    ScheduledTransformDataset: Any
    ToNumpy: Any
    ToTensor: Any
    infer_imagenet_subset: Any
    mix_batch_variable_size: Any
    pairwise_mixup_target: Any
    resolve_data_config: Any
    resolve_input_data_config: Any
    resolve_model_data_config: Any
else:
    def __getattr__(name: str):
        "Import all public names when the first one is used; other names are timm's."
        if name == '__all__': return list(dict.fromkeys([*_public(), *_own_of_timm()]))
        if name.startswith('__'): raise AttributeError(name)   # Python looks up many
        offered = _public()
        globals().update(offered)
        if name in globals(): return globals()[name]   # a module, too: everything has been imported
        near = [_MEANT[name]] if name in _MEANT else get_close_matches(name, offered, 1)
        hint = _REMOVED.get(name) or (f'did you mean {near[0]}?' if near else '')
        return _find('', name, f': {hint}' if hint else '')


def _public() -> dict:
    "Import all public names, which `timmdata --help` does not use, so it does not import torch."
    return {name: value for name, value in vars(import_module('._offered', __name__)).items() if not name.startswith('_')}


def _own_of_timm() -> list[str]:
    "List what `from timm.data import *` gives, if timm is installed."
    try: return _public_names('')
    except ImportError: return []


def __dir__() -> list[str]: return sorted({*globals(), *_public()})
