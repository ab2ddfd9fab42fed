"Pictures of loaders of every kind."
import io
import itertools
import random
import warnings

import matplotlib
import numpy as np
import pytest
import torch
from grids import few
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from timmdata import ImageDataset, create_loader, preview, show_batch, show_images, show_replay
from timmdata.look.pictures import show_image

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
    "With images of any shape, and titles of any number of lines."
    rng = random.Random(seed)
    images = [np.zeros((rng.choice((40, 60, 75, 100)), rng.choice((60, 90, 100)), 3), np.uint8) for _ in range(rng.randint(2, 7))]
    sheet = show_images(images, ['\n'.join(['title'] * rng.randint(1, 3)) for _ in images], ncols=rng.randint(2, 4), size=1.5)
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    pictures = [axes.get_window_extent(canvas.renderer) for axes in sheet.axes]
    for axes in sheet.axes:
        title = axes.title.get_window_extent(canvas.renderer)
        assert title.y1 <= sheet.bbox.y1 and not any(title.overlaps(picture) for picture in pictures)


# ---- names in any script; matplotlib itself warns of each character that it draws as a box

SCRIPTS = ['猫', '犬と散歩する人', '고양이와 강아지', 'قطة', 'แมว', 'кошка', 'बिल्ली', '🐱 cat', '𓃠',
           'É\u0301le\u0300ve', '我的\u3000猫', '$猫_{1}$', 'a\x1b猫\n']


def drawn_titles(sheet) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        sheet.savefig(io.BytesIO())
    return [axes.get_title() for axes in sheet.axes]


@pytest.fixture
def own_fonts(monkeypatch):
    "Only the fonts that come with matplotlib, which are the same on every machine."
    own = [entry for entry in font_manager.fontManager.ttflist if 'mpl-data' in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, 'ttflist', own)
    return own


def test_a_name_in_any_script_is_drawn_without_boxes(tmp_path):
    "With any fonts that this machine has."
    for name in SCRIPTS[:6]:
        (tmp_path/name).mkdir()
        Image.new('RGB', (16, 16)).save(tmp_path/name/'a.png')
    dataset = ImageDataset(tmp_path)
    settings = dict(num_workers=0, device='cpu')
    assert len(drawn_titles(show_batch(create_loader(dataset, 16, 6, **settings)))) == 6
    images = torch.zeros(len(SCRIPTS), 3, 16, 16)
    drawn_titles(show_batch((images, torch.arange(len(SCRIPTS))), n=20, class_names=SCRIPTS))
    drawn_titles(show_batch((images, SCRIPTS), n=20))
    drawn_titles(show_images(images, SCRIPTS))
    drawn_titles(show_image(images[0], '猫', ax=Figure().add_subplot()).figure)
    drawn_titles(preview(dataset, 16, 2).figure())


def test_what_no_font_has_is_written_as_code_points(own_fonts):
    images = torch.zeros(4, 3, 16, 16)
    assert drawn_titles(show_images(images, ['猫', 'cat 猫', 'кошка', '𓃠'])) == [r'\u732b', r'cat \u732b', 'кошка', r'\U000130e0']


def test_another_font_that_has_the_characters_is_used(own_fonts):
    "Computer Modern has no Cyrillic letters; DejaVu and STIX have them."
    with matplotlib.rc_context({'font.family': ['cmr10'], 'axes.formatter.use_mathtext': True}):
        sheet = show_images(torch.zeros(2, 3, 16, 16), ['кошка', 'cat 猫'])
        assert drawn_titles(sheet) == ['кошка', r'cat \u732b']
    fonts = sheet.axes[0].title.get_fontfamily()
    codes = [font_manager.get_font(font_manager.findfont(font_manager.FontProperties(family=[name]))).get_charmap() for name in fonts]
    assert fonts[0] == 'cmr10' and {*map(ord, 'кошка')} <= {*codes[1]} and not {*map(ord, 'кошка')} & {*codes[0]}
    assert sheet.axes[1].title.get_fontfamily() == ['cmr10']


def test_no_font_is_opened_for_names_that_the_usual_font_has(monkeypatch):
    usual, opened = font_manager.findfont('DejaVu Sans'), []
    get_font = font_manager.get_font
    monkeypatch.setattr(font_manager, 'get_font', lambda path, *rest: opened.append(path) or get_font(path, *rest))
    show_images(torch.zeros(2, 3, 16, 16), ['cat', 'dog']), show_images(torch.zeros(2, 3, 16, 16), ['кошка', '3 × 4'])
    assert {*opened} <= {usual}


@pytest.mark.parametrize('name', ['猫' * 30, 'golden_retriever_' * 6, 'a cat and a dog and a horse and a cow'])
def test_a_long_title_covers_no_other(name):
    sheet = show_batch((torch.zeros(3, 3, 16, 16), torch.arange(3)), class_names=[name] * 3)
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    titles = [axes.title.get_window_extent(canvas.renderer) for axes in sheet.axes]
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(titles)) and titles[0].y1 <= sheet.bbox.y1
    assert sheet.axes[0].get_title().replace('\n', '').replace(' ', '') in (name.replace(' ', ''), name.encode('unicode-escape').decode())
