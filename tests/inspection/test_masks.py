"All planted faults of masks are found, and nothing else; numpy counts the classes."
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from timmdata import ImageDataset, write_pack
from timmdata.cli import main
from timmdata.inspection import KINDS, count_classes, inspect, measure_masks

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def data(tmp_path) -> Path:
    "Two splits of noise images, whose masks have random indexes of a few classes; one fault of each kind."
    rng = np.random.default_rng(0)
    for split, count in dict(train=8, val=2).items():
        for kind in 'images', 'masks': (tmp_path/'data'/kind/split).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(tmp_path/'data'/'images'/split/f'{k}.png')
            Image.fromarray(rng.choice([0, 1, 7, 255], (60, 80)).astype(np.uint8)).save(tmp_path/'data'/'masks'/split/f'{k}.png')
    return tmp_path/'data'


def plant(data: Path) -> dict[str, set[str]]:
    masks = data/'masks'/'train'
    (masks/'0.png').unlink()
    (masks/'1.png').write_bytes((masks/'1.png').read_bytes()[:200])
    Image.new('L', (80, 61)).save(masks/'2.png')
    Image.open(masks/'3.png').save(masks/'3.jpg', quality=95)
    (masks/'3.png').unlink()
    Image.open(masks/'4.png').save(masks/'4.tif')
    for folder, name in (masks, 'unused.png'), (data/'masks'/'val', '9.png'), (data/'masks', 'any.png'):
        Image.new('L', (80, 60), 99).save(folder/name)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(data/'images'/'train'/'5.png').save(data/'images'/'train'/'5.png', exif=exif)
    return {'no_mask': {'train/0.png'}, 'mask_unreadable': {'train/1.png', 'train/4.png'}, 'mask_size': {'train/2.png'},
            'mask_lossy': {'train/3.png'}}


def named(found, kind): return {name for _, name in found.rows(kind)}


def counted(data: Path, names) -> tuple[Counter, Counter]:
    "Count the pixels of each index, and the masks that have it, with numpy."
    pixels, images = Counter(), Counter()
    for name in names:
        values = np.bincount(np.asarray(Image.open(data/'masks'/name)).ravel(), minlength=256)
        pixels.update({k: int(n) for k, n in enumerate(values) if n})
        images.update(np.flatnonzero(values).tolist())
    return pixels, images


def test_faults_of_masks_are_found(data, tmp_path):
    planted = plant(data)
    found = inspect(data/'images', tmp_path/'report', masks=data/'masks', exact=True)
    for kind in (kind for kind in KINDS if 'mask' in kind): assert named(found, kind) == planted[kind], kind
    masks = found.survey.masks
    assert masks.unused == ['any.png', 'train/unused.png', 'val/9.png']
    names = ['train/2.png', 'train/3.jpg', *(f'train/{k}.png' for k in (5, 6, 7)), 'val/0.png', 'val/1.png']
    pixels, images = counted(data, names)
    assert masks.pixels == pixels and masks.images == images
    assert masks.shares == {k: pixels[k] / sum(pixels.values()) for k in sorted(pixels)} and abs(sum(masks.shares.values()) - 1) < 1e-9
    texts = json.loads((tmp_path/'report'/'report.json').read_text())
    notes = {finding['kind']: [group['note'] for group in finding['groups']] for finding in texts['findings']}
    assert notes['mask_size'] == ['mask 80 × 61, image 80 × 60']
    assert 'several masks: train/4.png, train/4.tif' in notes['mask_unreadable'][1]
    assert texts['masks']['unused'] == masks.unused and texts['masks']['classes']['7']['pixels'] == pixels[7]
    assert 'Masks without an image: 3' in str(found) and 'No mask: 1' in str(found)
    page = (tmp_path/'report'/'report.html').read_text()
    assert 'id="masks"' in page and f'<td>7<td>{masks.shares[7]:.3%}<td>{images[7]:,}' in page and 'unused.png' in page


def test_without_these_samples_the_masks_pair(data, tmp_path):
    plant(data)
    found = inspect(data/'images', tmp_path/'report', masks=data/'masks', exact=True)
    clean = ImageDataset(data/'images', masks=data/'masks', exclude=tmp_path/'report'/'exclude-train.json')
    assert clean.filenames() == [f'train/{k}.png' for k in (3, 5, 6, 7)] and all(image.size == mask.size for image, mask in clean)
    again = inspect(clean, tmp_path/'again', exact=True)   # masks of the dataset
    assert {kind for kind in KINDS if 'mask' in kind and named(again, kind)} == {'mask_lossy'} and again.survey.masks.unused == []
    assert found.exclude('train', ['mask_size']) == ['train/2.png']


def test_a_turned_image_needs_a_turned_mask(data, tmp_path):
    plant(data)
    turned = ImageDataset(data/'images', exif_transpose=True)
    found = inspect(turned, tmp_path/'report', masks=data/'masks', exact=True)
    assert named(found, 'mask_size') == {'train/2.png', 'train/5.png'}


def test_masks_of_tables_and_packs_are_checked(data, tmp_path):
    rows = [f'images/train/{k}.png,masks/train/{k}.png' for k in range(8)]
    (data/'t.csv').write_text('\n'.join(['path,mask', *rows]))
    table = ImageDataset(data/'t.csv', target_key=None, mask_key='mask')
    write_pack(table, tmp_path/'pack')
    expected = counted(data, [f'train/{k}.png' for k in range(8)])
    Image.new('L', (9, 9)).save(data/'masks'/'train'/'3.png')
    for dataset, wrong in (table, {'images/train/3.png'}), (ImageDataset(tmp_path/'pack'), set()):
        found = inspect(dataset, tmp_path/f'report{len(wrong)}', exact=True)
        assert named(found, 'mask_size') == wrong
    assert (found.survey.masks.pixels, found.survey.masks.images) == expected
    assert measure_masks({'all': ImageDataset(data/'images')}) is None
    def check(dataset, out): inspect(dataset, out, masks=data/'masks', exact=True)
    with pytest.raises(ValueError, match="have a field 'mask' already"): check(table, tmp_path/'other')
    with pytest.raises(ValueError, match='inside'): check(ImageDataset(data/'images'), data/'masks'/'report')


@pytest.mark.parametrize(('mask', 'counts'), [
    (Image.fromarray(np.array([[0, 300], [300, 65535]], np.uint16)), {0: 1, 300: 2, 65535: 1}),
    (Image.fromarray(np.array([[True, False]])), {0: 1, 1: 1}),
    (Image.fromarray(np.array([[[255, 0, 0], [0, 0, 9]]], np.uint8)), {'#ff0000': 1, '#000009': 1}),
    (Image.fromarray(np.array([[3, 3, 1]], np.uint8)).convert('P'), {3: 2, 1: 1})], ids=['16 bits', 'black and white', 'color', 'palette'])
def test_classes_of_all_kinds_of_masks(mask, counts):
    found = count_classes(mask)
    assert found == counts and not any(isinstance(name, bool) for name in found)


def test_the_command_checks_masks(data, tmp_path, capsys):
    plant(data)
    assert main(['inspect', str(data/'images'), '--masks', str(data/'masks'), '--out', str(tmp_path/'report'), '--exact']) == 0
    shown = capsys.readouterr().out
    for part in ('No mask: train/0.png', 'Wrong mask size: train/2.png', 'Share of pixels in masks: 0: ', 'Masks without an image: 3',
                 f'masks={str(data/"masks")!r}, exclude='): assert part in shown
    assert main(['inspect', str(data/'images'), '--masks', str(data/'none')]) == 2
    assert 'there is no folder of masks' in capsys.readouterr().err
