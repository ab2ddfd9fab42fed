"Look at what training sees: pictures, the steps of a sample, previews of settings, widgets, the call to paste."
from .paste import loader_call
from .pictures import denormalize, show_batch, show_image, show_images, show_replay, show_transform
from .preview import Preview, preview
from .trace import BatchTrace, Step
from .widgets import explore

__all__ = [
    'loader_call',
    'denormalize', 'show_batch', 'show_image', 'show_images', 'show_replay', 'show_transform',
    'Preview', 'preview',
    'BatchTrace', 'Step',
    'explore',
]
