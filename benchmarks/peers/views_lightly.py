"""lightly's DINOTransform and SimCLRTransform on PIL images of a LightlyDataset, in torch's DataLoader, as its examples have them.

Its DINOTransform has six local views by default; the authors have eight, and so has this."""
from importlib.metadata import version

from lightly.data import LightlyDataset
from lightly.transforms import DINOTransform, SimCLRTransform
from torch.utils.data import DataLoader
from views import Photographs

NAME, VERSION = 'lightly', version('lightly')


def make(data_dir, work, workers, batch_size, scratch, options):
    transform = DINOTransform(n_local_views=8) if work == 'dino' else SimCLRTransform()
    loader = DataLoader(LightlyDataset(data_dir, transform=transform), batch_size, shuffle=True, num_workers=workers,
                        persistent_workers=True, drop_last=True)
    return Photographs(loader, work, batch_size)
