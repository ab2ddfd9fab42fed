"Images with their targets: `ImageDataset`, changed labels, datasets of other libraries, sample photos."
from .augmix import AugMixDataset
from .demo_data import get_samples
from .factory import create_dataset, open_splits
from .image_dataset import ImageDataset, IterableImageDataset
from .mixture import Mixture
from .packing import PackReport, check_pack, write_pack
from .relabel import LabelMap, LabelReport, classes_of, relabel, targets_of
from .voc import voc_table
from .wrappers import base_datasets, describe, fingerprint, unwrap

__all__ = [
    'ImageDataset', 'IterableImageDataset', 'create_dataset', 'open_splits',
    'Mixture', 'LabelMap', 'LabelReport', 'classes_of', 'relabel', 'targets_of', 'voc_table',
    'AugMixDataset', 'write_pack', 'check_pack', 'PackReport',
    'get_samples', 'base_datasets', 'describe', 'fingerprint', 'unwrap',
]
