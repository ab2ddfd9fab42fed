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
- create_loader: batches for training and evaluation, all of timm's settings; Mixup: mixup and CutMix; View: several crops
- create_naflex_loader, NaFlex: images of every shape as sequences of patches, padded or packed
- pack: a data set in a few large files, from which training reads faster
- get_recipe, list_recipes: published settings by name
- explore, preview: what the settings do to an image; show_batch, show_transform, show_replay: pictures
- timmdata.inspection.inspect: what is wrong with a data set; `timmdata --help` in a shell: demo, inspect, doctor, …
- ImageReadError: a file that cannot be read, with its name; get_samples: the sample photographs

timm's names that are not here, such as ImageNetInfo and resolve_data_config, come from timm, if it is installed.
The guides are notebooks: nbs/guides in the repository, from your_folder.ipynb on. README.md lists them.
"""
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from .timm_names import find as _find

__version__ = "0.1.0"

# name of torch, torchvision → name of ours
_MEANT = {'ImageFolder': 'ImageDataset', 'DataLoader': 'create_loader', 'CutMix': 'Mixup', 'MixUp': 'Mixup'}

if TYPE_CHECKING: from ._offered import *   # noqa: F403


def __getattr__(name: str):
    "Import all that is offered when the first name is asked for: `timmdata --help` asks for none, and needs no torch."
    if name.startswith('__') and name != '__all__': raise AttributeError(name)   # Python asks for many
    offered = {name: value for name, value in vars(import_module('._offered', __name__)).items()
               if not name.startswith('_')}
    globals().update(offered, __all__=[*offered])
    if name in globals(): return globals()[name]   # a module, too: everything has been imported
    try: return _find('', name)
    except AttributeError as error:
        near = [_MEANT[name]] if name in _MEANT else get_close_matches(name, offered, 1)
        if not near: raise
        raise AttributeError(f'{error}: did you mean {near[0]}?') from None


def __dir__() -> list[str]: return sorted({*globals(), *__getattr__('__all__')})
