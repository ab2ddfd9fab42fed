"What every step uses: keyed random numbers, the image of a sample, decoding, faults, memory."
from .decode import decode_image
from .faults import BadSample, BadSampleLog, FaultPolicy, ImageReadError
from .jpeg import Pixels, resolve_backend
from .memory_pool import MemoryPool
from .paths import cache_dir
from .rng import KeyedRandom, sample_seed, seed_all, seeded
from .sample import apply_transform, as_pil_image, image_size, sample_image, transform_image, with_image

__all__ = [
    'KeyedRandom', 'sample_seed', 'seed_all', 'seeded',
    'apply_transform', 'as_pil_image', 'image_size', 'sample_image', 'transform_image', 'with_image',
    'BadSample', 'BadSampleLog', 'FaultPolicy', 'ImageReadError',
    'decode_image', 'Pixels', 'resolve_backend', 'MemoryPool',
    'cache_dir',
]
