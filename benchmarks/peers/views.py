"""What the peers of beside_views.py share: views of one photograph, from the authors' numbers.

A peer is a module as common.py says; `work` is 'dino' (ten views: main_dino.py of arXiv:2104.14294) or 'simclr' (two views: data_util.py
of arXiv:2002.05709, as PyTorch users run it: bilinear, Pillow's blur, ImageNet's mean and std). VIEWS are in the arguments of
`timmdata.View`. An image of the tables is a photograph with all its views.
"""
import torch

BLUR = (0.1, 2.0)   # std, pixels
DINO = dict(interpolation='bicubic', color_jitter=(0.4, 0.4, 0.2, 0.1), color_jitter_prob=0.8, grayscale_prob=0.2,
            gaussian_blur_radius=BLUR)
SIMCLR = {**DINO, 'interpolation': 'bilinear', 'color_jitter': (0.8, 0.8, 0.8, 0.2)}
VIEWS = {
    'dino': [dict(input_size=224, count=1, scale=(0.4, 1.0), gaussian_blur_prob=1.0, solarize_prob=0.0, **DINO),
             dict(input_size=224, count=1, scale=(0.4, 1.0), gaussian_blur_prob=0.1, solarize_prob=0.2, **DINO),
             dict(input_size=96, count=8, scale=(0.05, 0.4), gaussian_blur_prob=0.5, solarize_prob=0.0, **DINO)],
    'simclr': [dict(input_size=224, count=2, scale=(0.08, 1.0), gaussian_blur_prob=0.5, solarize_prob=0.0, **SIMCLR)]}


def each_view(work: str) -> list[dict]:
    "The settings of every view, one after the other: ten or two."
    return [view for view in VIEWS[work] for _ in range(view['count'])]


def pixels(views) -> int:
    "The values in tensors, and in lists of them."
    return views.numel() if isinstance(views, torch.Tensor) else sum(map(pixels, views))


def first(views) -> torch.Tensor:
    "The first tensor in lists of them."
    return views if isinstance(views, torch.Tensor) else first(views[0])


class Photographs:
    "Batches of (first view, targets) of a loader of (views, targets, …): it has as many rows as photographs; no view is missing."

    def __init__(self, loader, work: str, batch_size: int):
        self.loader, self.batch_size = loader, batch_size
        self.expected = sum(3 * view['input_size'] ** 2 for view in each_view(work)) * batch_size

    def __iter__(self):
        for views, targets, *_ in self.loader:
            image = first(views)[:self.batch_size]   # views of one size may come as one tensor
            if pixels(views) != self.expected: raise ValueError(f'{pixels(views)} values in the views of a batch, not {self.expected}')
            if image.dtype != torch.float32: raise ValueError(f'views of {image.dtype}, not float32')
            yield image, targets
