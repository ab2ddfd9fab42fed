"timm's operations and ours, compared in the tests of policies."
import platform
import random

import numpy as np
from PIL import Image
from timm.data import auto_augment as timm_aa

from timmdata.transforms.policy import OPERATIONS, DrawnOp

FILL = (124, 116, 104)
HPARAMS = dict(translate_const=57, img_mean=FILL, interpolation=Image.Resampling.BICUBIC)
NAMES = sorted(timm_aa.NAME_TO_OP)
# elsewhere a compiler may have fused multiplications and additions of Pillow's: then a level may differ by 1
MAX_DIFFERENCE = 0 if platform.machine() in ('x86_64', 'AMD64') else 1


def assert_same(ours, theirs, what=None):
    assert (ours.size, ours.mode) == (theirs.size, theirs.mode)
    if ours.tobytes() == theirs.tobytes(): return
    difference = np.abs(np.asarray(ours, np.int16) - np.asarray(theirs, np.int16)).max()
    assert difference <= MAX_DIFFERENCE, (what, difference)


def timm_args(name, magnitude, hparams):
    level_fn = timm_aa.LEVEL_TO_ARG[name]
    return level_fn(magnitude, hparams) if level_fn else ()


def timm_apply(name, image, args, **how):
    "timm's function; it keeps 0 bits at some magnitudes, which Pillow 13 refuses: here they become 1."
    function = timm_aa.NAME_TO_OP[name]
    if function is timm_aa.posterize: args = [max(1, args[0])]
    if function is timm_aa.gaussian_blur_rand: function = timm_aa.gaussian_blur   # the radius is drawn before
    how = dict(resample=how.get('interpolation', Image.Resampling.BICUBIC), fillcolor=how.get('fill', FILL))
    return function(image, *args, **how)


class Recorder:
    "timm's operations made to note their arguments in place of changing an image."

    def __init__(self): self.drawn = []

    def watch(self, op):
        name = op.name
        def note(image, *args, **how):
            if name == 'GaussianBlurRand': args = [random.uniform(0.1, 2. * args[0])]
            if OPERATIONS[name].moves_pixels:
                how['interpolation'] = timm_aa._interpolation(dict(resample=how['resample']))
            else: how = {}
            moving = (how['interpolation'].name.lower(), how['fillcolor']) if how else ()
            value = args[0] if args else None
            if 'Posterize' in name: value = min(8, max(1, value))
            self.drawn.append(DrawnOp(name, value, *moving))
            return image
        op.aug_fn = note
        return op
