"See what training sees: pictures, the steps of a sample, previews of settings, widgets, a call to paste."
from .paste import loader_call
from .pictures import denormalize, show_batch, show_image, show_images, show_replay, show_transform
from .preview import Preview, preview
from .thumbnails import show_thumbnails
from .trace import BatchTrace, Step
from .widgets import explore

__all__ = [
    'loader_call',
    'denormalize', 'show_batch', 'show_image', 'show_images', 'show_replay', 'show_transform',
    'show_thumbnails',
    'Preview', 'preview',
    'BatchTrace', 'Step',
    'explore',
]
