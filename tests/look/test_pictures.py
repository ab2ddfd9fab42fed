"Pictures of loaders of every kind."
import random

import numpy as np
import pytest
import torch
from grids import few
from matplotlib.backends.backend_agg import FigureCanvasAgg

from timmdata import ImageDataset, create_loader, show_batch, show_images, show_replay

pytestmark = pytest.mark.timeout(60)


def pixels(sheet, k): return torch.as_tensor(sheet.axes[k].images[0].get_array())


def test_a_buffered_batch_is_drawn_as_without_the_buffer(samples, tmp_path):
    settings = dict(is_training=True, seed=1, num_workers=0, device='cpu')
    plain = create_loader(ImageDataset(samples), 64, 16, **settings)
    buffered = create_loader(ImageDataset(samples), 64, 16, buffer=dict(batches=4, directory=tmp_path/'buffer'), **settings)
    sheets = [show_replay(loader, epoch=0, batch=3, num_images=2) for loader in (plain, buffered)]
    for k in range(4): assert torch.equal(pixels(sheets[0], k), pixels(sheets[1], k))
    assert [axes.get_title() for axes in sheets[0].axes] == [axes.get_title() for axes in sheets[1].axes]
    buffered.loader.close()


@pytest.mark.parametrize('settings', [dict(mean=0.5, std=0.25), dict(use_prefetcher=False)], ids=['mean', 'no prefetcher'])
def test_the_normalization_of_the_loader_is_undone(samples, settings):
    common = dict(num_workers=0, backend='pillow', **({'device': 'cpu'} if 'mean' in settings else {}))
    own = create_loader(ImageDataset(samples), 64, 4, **common, **settings)
    plain = create_loader(ImageDataset(samples), 64, 4, mean=0., std=1., num_workers=0, backend='pillow', device='cpu')
    images = (next(iter(plain))[0] * 255).round().byte()
    sheet = show_batch(own)
    for k in range(4): assert torch.equal(pixels(sheet, k), images[k].permute(1, 2, 0))


@pytest.mark.parametrize('seed', few(range(12), 0, 1))
def test_no_title_is_cut_off_or_lies_on_a_picture(seed):
    "Whatever shapes the images have, and however many lines the titles."
    rng = random.Random(seed)
    images = [np.zeros((rng.choice((40, 60, 75, 100)), rng.choice((60, 90, 100)), 3), np.uint8) for _ in range(rng.randint(2, 7))]
    sheet = show_images(images, ['\n'.join(['title'] * rng.randint(1, 3)) for _ in images], ncols=rng.randint(2, 4), size=1.5)
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    pictures = [axes.get_window_extent(canvas.renderer) for axes in sheet.axes]
    for axes in sheet.axes:
        title = axes.title.get_window_extent(canvas.renderer)
        assert title.y1 <= sheet.bbox.y1 and not any(title.overlaps(picture) for picture in pictures)
