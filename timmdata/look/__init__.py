"See what training sees: pictures, the steps of a sample, previews of settings, widgets, a call to paste."
from .pictures import denormalize, show_batch, show_image, show_images, show_replay, show_thumbnails, show_transform
from .preview import Preview, loader_call, preview
from .trace import BatchTrace, Step
from .widgets import explore

__all__ = [
    'denormalize', 'show_batch', 'show_image', 'show_images', 'show_replay', 'show_thumbnails', 'show_transform',
    'Preview', 'loader_call', 'preview',
    'BatchTrace', 'Step',
    'explore',
]
