"Labels of any dataset: found without decoding, renamed, merged and dropped."

import numpy as np
import pytest
import torch
from PIL import Image
from tables import CLASSES, label_frame, write_photos
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision.datasets.vision import VisionDataset

from timmdata import ImageDataset, LabelMap, create_loader, relabel
from timmdata.datasets.relabel import classes_of, targets_of
from timmdata.datasets.wrappers import fingerprint

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope='module')
def photos(tmp_path_factory): return write_photos(tmp_path_factory.mktemp('photos'))


@pytest.fixture
def frame(): return label_frame()


class Listed(VisionDataset):
    "A dataset like torchvision's: images in memory, `targets`, `classes`."
    def __init__(self, targets, classes, name='targets'):
        super().__init__('.')
        setattr(self, name, targets)
        self.classes, self.read = classes, 0

    def __len__(self): return 6

    def __getitem__(self, index):
        self.read += 1
        return Image.new('RGB', (8, 8), (index, 0, 0)), [0, 1, 2, 0, 1, 2][index]


@pytest.mark.parametrize('targets, name', [([0, 1, 2, 0, 1, 2], 'targets'), (torch.tensor([0, 1, 2, 0, 1, 2]), 'targets'),
                                           (np.array([0, 1, 2, 0, 1, 2]), 'labels'), ([0, 1, 2, 0, 1, 2], '_labels')])
def test_torchvisions_data_sets(targets, name):
    source = Listed(targets, ['aeroplane', 'car', 'train'], name)
    made = relabel(source, {'aeroplane': 'airplane', 'car': 'automobile', 'frog': 'frog'}, {'automobile': 1, 'airplane': 0, 'frog': 6})
    assert not source.read and made.label_report.unused == ['frog'] and made.label_report.num_kept == 4
    seen = [(image.getpixel((0, 0))[0], target) for image, target in (made[k] for k in range(len(made)))]
    assert seen == [(0, 0), (1, 1), (3, 0), (4, 1)]
    assert torch.cat([targets for _, targets in create_loader(made, 8, 2, device='cpu')]).tolist() == [0, 1, 0, 1]
    assert [target for _, target in DataLoader(made, None)] == [0, 1, 0, 1]


def test_relabeling_composes(photos, frame):
    "Relabeling twice, or a subset, or a concatenation, gives the same result as by hand."
    dataset = ImageDataset(photos, split=None, table=frame, fields=['age'])
    once = relabel(dataset, LabelMap({'ant': 'insect', 'bee': 'insect'}, other='keep'))
    twice = relabel(Subset(once, range(2, 20)), {'insect': 'animal', 'cat': 'animal'})
    joined = relabel(ConcatDataset([once, Subset(once, [0, 2])]), {'insect': 'i', 'class 10': None, 'cat': 'c'})
    assert [age for _, _, age in twice] == [k for k in range(2, 20) if k % 5 < 3] and set(targets_of(twice)) == {0}
    assert type(twice) is ImageDataset and dataset.class_to_idx == {name: k for k, name in enumerate(CLASSES)}
    assert [joined[k][2] for k in range(len(joined))] == [k for k in range(20) if k % 5 < 3] + [0, 2]
    assert classes_of(joined) == {'c': 0, 'i': 1} and len({fingerprint(d) for d in (dataset, once, twice, joined)}) == 4


def test_the_map_is_part_of_a_checkpoint(photos, frame):
    "Loading the state of a loader with different classes is an error."
    def loader(label_map):
        return create_loader(relabel(ImageDataset(photos, split=None, table=frame), label_map), 8, 4, seed=0, device='cpu')
    state = loader({'ant': 'insect', 'cat': 'pet'}).state_dict()
    loader({'ant': 'insect', 'cat': 'pet'}).load_state_dict(state)
    with pytest.raises(ValueError, match='dataset was'): loader({'ant': 'insect', 'cat': 'animal'}).load_state_dict(state)


class Plain(torch.utils.data.Dataset):
    "A dataset with classes and targets, like torchvision's."
    def __init__(self, targets, classes=('cat', 'dog', 'truck'), target_transform=None):
        self.targets, self.classes, self.target_transform = targets, classes, target_transform
    def __len__(self): return len(self.targets)
    def __getitem__(self, index): return None, self.targets[index]


def test_targets_that_have_several_columns():
    several = np.array([[1, 0, 1], [0, 1, 0]])
    for targets in (several, several.astype(bool), torch.tensor(several)):
        made = relabel(Plain(targets), {'cat': 'cat', 'dog': 'dog', 'truck': 'lorry'})
        assert [made[k][1].tolist() for k in range(2)] == [[1, 0, 1], [0, 1, 0]]
    details = torch.tensor([[2, 70, 5], [0, 71, 9]])   # as torchvision's QMNIST, whose target_transform takes the first
    assert targets_of(Plain(details, target_transform=lambda target: int(target[0]))).tolist() == [2, 0]
    with pytest.raises(ValueError, match='must be class indexes'): targets_of(Plain(details))
    with pytest.raises(ValueError, match='no class has index 3'): relabel(Plain([0, 3]), {'cat': 'cat'})


def test_the_classes_of_a_relabeled_dataset_are_as_many_as_a_model_needs(photos, frame):
    "A user's dataset is wrapped; its classes are listed like those of an ImageDataset."
    dataset = ImageDataset(photos, table=frame, split=None)
    class Own(torch.utils.data.Dataset):
        class_to_idx, targets = dataset.class_to_idx, dataset.targets
        def __len__(self): return len(dataset)
        def __getitem__(self, index): return dataset[index]
    for class_map in (None, {'x': 3}):
        made = [relabel(one, {'ant': 'x', 'cat': 'x'}, class_map) for one in (dataset, Own())]
        assert made[0].classes == made[1].classes == (['x'] if class_map is None else ['0', '1', '2', 'x'])
