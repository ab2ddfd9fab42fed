"How a dataset and a batch display themselves in a notebook."
import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from timmdata import ImageDataset, create_loader
from timmdata.pipeline.builder import HostBatch

pytestmark = pytest.mark.timeout(60)


def pictures_in(html: str) -> list[Image.Image]:
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in re.findall(r'base64,([^"]+)', html)]


def test_a_data_set_shows_images_of_several_classes(samples):
    dataset = ImageDataset(samples, split='val', transform=lambda image: 1 / 0)
    html = dataset._repr_html_()
    found = pictures_in(html)
    assert len(found) == 8 and all(image.format == 'JPEG' and max(image.size) <= 128 for image in found)
    assert html.startswith('<pre>ImageDataset\n') and len(html) < 60_000
    assert len(set(re.findall('<figcaption>(.*?)</figcaption>', html)) & set(dataset.classes)) == 8
    small, whole = found[0], Image.open(samples/dataset.filename(4))
    assert np.abs(np.asarray(small, float) - np.asarray(whole.resize(small.size))).mean() < 12   # of 255


def test_what_cannot_be_shown_is_left_out(tmp_path):
    for name in ('<b>', 'fine'): (tmp_path/name).mkdir()
    (tmp_path/'<b>'/'0.jpg').write_bytes(b'no image')
    Image.new('RGB', (4, 4)).save(tmp_path/'fine'/'1.png')
    html = ImageDataset(tmp_path)._repr_html_()
    assert len(pictures_in(html)) == 1 and '<b>' not in html
    Image.new('RGB', (4, 4)).save(tmp_path/'<b>'/'1.png')
    assert '<b>' not in ImageDataset(tmp_path)._repr_html_()
    assert not pictures_in(ImageDataset('', [], split=None)._repr_html_())


@pytest.mark.parametrize('batch', [{'image': [1, 2]}, (torch.zeros(1, 7, 4, 4), 0), (torch.zeros(1, 16), 0), ([], 0)])
def test_what_a_collate_function_made_may_be_no_images(samples, batch):
    loader = create_loader(ImageDataset(samples, split='val'), 32, 4, num_workers=0, device='cpu')
    host = next(iter(loader.loader.host_batches()))
    assert len(pictures_in(host._repr_html_())) == 4 and 'HostBatch of 4 samples' in host._repr_html_()
    shown = HostBatch(batch, host.keys[:1])._repr_html_()
    assert 'HostBatch of 1 samples' in shown and not pictures_in(shown)
