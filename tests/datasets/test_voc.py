"VOC scenes as a classification dataset, compared with torchvision's annotations."
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import VOCDetection

from timmdata import ImageDataset, create_loader, relabel, voc_table
from timmdata.datasets.relabel import targets_of
from timmdata.datasets.voc import VOC_CLASSES

pytestmark = pytest.mark.timeout(60)

NAMES = ['aeroplane', 'car', 'bird', 'cat', 'dog', 'person', 'bottle']
TO_CIFAR10 = {'aeroplane': 'airplane', 'car': 'automobile', 'bird': 'bird', 'cat': 'cat', 'dog': 'dog', 'frog': 'frog'}
CIFAR10 = sorted(set(TO_CIFAR10.values()))


@pytest.fixture(scope='module')
def voc(tmp_path_factory):
    "A tree in VOC's layout: forty scenes of one to four objects."
    root, rng = tmp_path_factory.mktemp('voc'), np.random.default_rng(0)
    folder = root/'VOCdevkit'/'VOC2007'
    for part in ('JPEGImages', 'Annotations', 'ImageSets/Main'): (folder/part).mkdir(parents=True)
    names = [f'{k:06}' for k in range(40)]
    for k, name in enumerate(names):
        Image.new('RGB', (60, 50), (5 * k, 0, 0)).save(folder/'JPEGImages'/f'{name}.jpg')
        objects = ''
        for _ in range(rng.choice([1, 1, 2, 4])):
            x, y, w, h = rng.integers(1, 25, 4)
            objects += (f'<object><name>{rng.choice(NAMES)}</name><difficult>{rng.integers(2)}</difficult>'
                        f'<bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox>'
                        '<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>'
                        '</object>')
        (folder/'Annotations'/f'{name}.xml').write_text(f'<annotation>{objects}</annotation>')
    for image_set, part in (('train', names[:15]), ('val', names[15:]), ('trainval', names)):
        (folder/'ImageSets/Main'/f'{image_set}.txt').write_text('\n'.join(part) + '\n')
    return root


def dataset_of(voc, *args, **kwargs): return ImageDataset(voc, table=voc_table(voc, *args, **kwargs), class_map=VOC_CLASSES)


def annotated(voc, image_set='trainval'):
    "torchvision's view: image number and objects."
    for k, (_, target) in enumerate(VOCDetection(voc, '2007', image_set)):
        objects = target['annotation']['object']
        yield k, [(o['name'], *(int(o['bndbox'][e]) for e in ('xmin', 'ymin', 'xmax', 'ymax')), o['difficult'] == '1') for o in objects]


def test_single_objects_as_the_tutorial_filters_them(voc):
    expected = [(k, TO_CIFAR10[objects[0][0]]) for k, objects in annotated(voc) if len(objects) == 1 and objects[0][0] in TO_CIFAR10]
    with patch.object(Image, 'open', side_effect=AssertionError('an image is opened')):
        dataset = relabel(dataset_of(voc, '2007', 'trainval'), TO_CIFAR10, class_map={name: k for k, name in enumerate(CIFAR10)})
    names = list(dataset.class_to_idx)
    assert names == CIFAR10 and len(dataset) == len(expected) > 5
    assert [(int(Path(dataset.filename(k)).stem), names[dataset[k][1]]) for k in range(len(dataset))] == expected
    with_one = sum(len(objects) == 1 for _, objects in annotated(voc))
    assert dataset.label_report.unused == ['frog'] and dataset.label_report.num_samples == with_one > len(dataset)


def test_largest_object_and_difficult_ones(voc):
    def largest(objects): return max(objects, key=lambda o: (o[3] - o[1]) * (o[4] - o[2]))[0]
    for use_difficult in (True, False):
        scenes = [(k, [o for o in objects if use_difficult or not o[5]]) for k, objects in annotated(voc)]
        expected = [(k, TO_CIFAR10[largest(o)]) for k, o in scenes if o and largest(o) in TO_CIFAR10]
        dataset = relabel(dataset_of(voc, '2007', 'trainval', 'largest', use_difficult), TO_CIFAR10)
        names = list(dataset.class_to_idx)
        assert [(int(Path(dataset.filename(k)).stem), names[t]) for k, t in enumerate(targets_of(dataset))] == expected


def test_all_objects_as_several_labels(voc):
    dataset = dataset_of(voc, '2007', 'val', objects='any')
    for (_, objects), (_, target) in zip(annotated(voc, 'val'), dataset, strict=True):
        assert {name for name, idx in dataset.class_to_idx.items() if target[idx]} == {o[0] for o in objects}
    images, targets = next(iter(create_loader(dataset, 16, 8, device='cpu', num_workers=2)))
    assert targets.shape == (8, 20) and targets.dtype == torch.float32 and set(targets.unique().tolist()) == {0, 1}
    pets = relabel(dataset, {'cat': 'pet', 'dog': 'pet'})
    assert len(pets) == sum({'cat', 'dog'} & {o[0] for o in objects} != set() for _, objects in annotated(voc, 'val'))


def test_where_voc_may_lie(voc, tmp_path):
    for root in (voc, voc/'VOCdevkit', voc/'VOCdevkit'/'VOC2007'): assert len(dataset_of(root, 2007, 'trainval')) > 5
    with pytest.raises(FileNotFoundError, match='download=True'): voc_table(tmp_path, '2007', 'val')
    with pytest.raises(FileNotFoundError, match='download=True'): voc_table(voc, '2012', 'val')
    with pytest.raises(ValueError, match="no image set 'test'; available: train, trainval, val"): voc_table(voc, '2007', 'test')


def test_a_voc_set_without_objects_is_an_error(tmp_path):
    voc = tmp_path/'VOCdevkit/VOC2012'
    for part in ('Annotations', 'JPEGImages', 'ImageSets/Main'): (voc/part).mkdir(parents=True)
    (voc/'ImageSets/Main/train.txt').write_text('a\n')
    (voc/'Annotations/a.xml').write_text('<annotation/>')
    with pytest.raises(ValueError, match="no image of VOC2012 train .*objects='"): voc_table(tmp_path, '2012', 'train')
