"Read the bytes and the target of a sample from a folder, an archive, a table or a stream."
from .base import Reader, ReaderFiles
from .class_map import ClassMapError, build_class_map, check_class_map, load_class_map
from .exclude import exclude_samples
from .factory import create_reader
from .folder import ReaderImageFolder, find_splits, resolve_split
from .huggingface import ReaderHfds, ReaderHfids
from .pack import ReaderPack, ReaderShards
from .sample_table import LabelLists, SampleTable
from .stream import StreamReader
from .table import ReaderTable, TableError
from .tar import ReaderImageTar
from .target_fields import MultiLabelTarget
from .webdataset import ReaderWds
from ..timm_names import names_of as _names_of

__all__ = [
    'Reader', 'ReaderFiles', 'StreamReader', 'create_reader', 'exclude_samples',
    'ReaderImageFolder', 'ReaderImageTar', 'ReaderTable', 'ReaderHfds', 'ReaderHfids', 'ReaderWds',
    'ReaderPack', 'ReaderShards',
    'SampleTable', 'LabelLists', 'MultiLabelTarget', 'TableError', 'find_splits', 'resolve_split',
    'ClassMapError', 'build_class_map', 'check_class_map', 'load_class_map',
]

__getattr__ = _names_of('.readers')   # timm's others
