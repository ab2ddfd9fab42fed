"What scripts do with timm's pipelines: look for classes in them, read their numbers, take them apart and copy them."
import pickle
import random

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

import timmdata
from timmdata.core.rng import seed_all
from timmdata.datasets.wrappers import describe

EVALUATION = [
    dict(), dict(crop_mode='squash'), dict(crop_mode='border'), dict(crop_pct=1.), dict(crop_border_pixels=3),
    dict(interpolation='bicubic'), dict(use_prefetcher=True), dict(normalize=False), dict(input_size=(3, 64, 96)),
    dict(input_size=(3, 64, 96), crop_mode='border'), dict(mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)), dict(naflex=True),
    dict(naflex=True, patchify=True), dict(naflex=True, crop_border_pixels=2)]
TRAINING = [
    dict(), dict(no_aug=True), dict(no_aug=True, use_prefetcher=True), dict(train_crop_mode='rkrc'),
    dict(train_crop_mode='rkrr'), dict(interpolation='random'), dict(auto_augment='rand-m9-mstd0.5'),
    dict(auto_augment='rand-m9-mstd0.5-inc1'), dict(auto_augment='rand-m9-mstd0.5-tweights', interpolation='bicubic'),
    dict(auto_augment='augmix-m5-w4-d2'), dict(auto_augment='3a'), dict(auto_augment='original-mstd0.5'), dict(auto_augment='v0'),
    dict(color_jitter=None), dict(color_jitter=(0.1, 0.2, 0.3, 0.1)), dict(color_jitter_prob=0.5), dict(grayscale_prob=0.2),
    dict(gaussian_blur_prob=0.2), dict(re_prob=0.3), dict(re_prob=0.3, re_mode='pixel', re_count=3, re_num_splits=2),
    dict(re_prob=0.3, use_prefetcher=True), dict(normalize=False, re_prob=0.2), dict(hflip=0., vflip=0.5),
    dict(separate=True), dict(separate=True, auto_augment='rand-m9'), dict(separate=True, color_jitter=None),
    dict(separate=True, use_prefetcher=True, re_prob=0.2), dict(separate=True, normalize=False), dict(input_size=(3, 64, 96)),
    dict(input_size=(3, 64, 96), train_crop_mode='rkrc'), dict(naflex=True), dict(naflex=True, patchify=True),
    dict(naflex=True, no_aug=True), dict(separate=True, grayscale_prob=0.2, gaussian_blur_prob=0.3, color_jitter_prob=0.5)]
SETTINGS = [*EVALUATION, *(dict(is_training=True, **one) for one in TRAINING)]
OF_TORCH = set(vars(torch.nn.Module()))


@pytest.fixture
def photo():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8))


def steps(made) -> list:
    "Return all steps of one pipeline, or of three, including those inside RandomApply."
    found = []
    for pipeline in made if isinstance(made, tuple) else (made,):
        found.append(pipeline)
        for step in pipeline.transforms:
            found += [step, *getattr(step, 'transforms', [])]
    return found


def attributes(step) -> dict:
    "Return the settings of a torchvision step as text."
    return {name: str(value) for name, value in vars(step).items() if name not in OF_TORCH | {'transforms'}}


@pytest.mark.parametrize('settings', SETTINGS, ids=str)
def test_the_steps_are_of_timms_classes(settings):
    theirs, ours = (steps(module.create_transform(**settings)) for module in (timm.data, timmdata))
    assert len(ours) == len(theirs)
    for their, our in zip(theirs, ours):
        assert type(their).__name__ in [cls.__name__ for cls in type(our).__mro__]
        for cls in type(their).__mro__:   # isinstance gives the same answer for each class of torch and torchvision
            if cls.__module__.startswith('torch'): assert isinstance(our, cls), (our, cls)
        if type(their).__module__.startswith('torchvision'):
            assert type(our) is type(their) and attributes(our) == attributes(their)
            if not hasattr(their, 'transforms'): assert repr(our) == repr(their)


@pytest.mark.parametrize('settings', [dict(), dict(is_training=True), dict(is_training=True, no_aug=True)], ids=str)
def test_the_usual_loop_finds_the_numbers_of_normalization(settings, photo):
    "Mean and std are tensors, for a picture of the network's input; a pipeline without them is not normalized twice."
    theirs, ours = (module.create_transform(64, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3), **settings) for module in (timm.data, timmdata))
    (expected,), (found,) = ([t for t in made.transforms if isinstance(t, transforms.Normalize)] for made in (theirs, ours))
    assert torch.equal(found.mean, expected.mean) and torch.equal(found.std, expected.std)
    assert found.mean.dtype == expected.mean.dtype and found.mean.view(3, 1, 1).shape == (3, 1, 1)
    raw = []
    for made in (theirs, ours):
        rest = transforms.Compose([t for t in made.transforms if not isinstance(t, transforms.Normalize)])
        seed_all(3)
        raw.append(rest(photo))
    assert torch.equal(*raw) and raw[1].min() >= 0 and raw[1].max() <= 1
    assert isinstance(ours, transforms.Compose) and any(isinstance(t, transforms.ToTensor) for t in ours.transforms)


@pytest.mark.parametrize('state', ['float64', 'meta'])
def test_the_ambient_state_of_torch_does_not_reach_the_numbers(state, photo):
    expected = timmdata.create_transform(64)
    if state == 'float64': torch.set_default_dtype(torch.float64)
    else: torch.set_default_device('meta')
    try: made = timmdata.create_transform(64)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    found = made.transforms[-1].mean
    assert found.dtype == torch.float32 and found.device.type == 'cpu' and torch.equal(made(photo), expected(photo))


@pytest.mark.parametrize('settings', SETTINGS[::2], ids=str)
def test_pipelines_are_pickled(settings, photo):
    made = timmdata.create_transform(**{'input_size': 64, 'max_seq_len': 16, **settings})
    results = []
    for pipelines in (made, pickle.loads(pickle.dumps(made))):
        image = photo
        seed_all(1)
        for pipeline in pipelines if isinstance(pipelines, tuple) else (pipelines,): image = pipeline(image)
        results.append(image)
    assert repr(results[0]) == repr(results[1])


@pytest.mark.parametrize('make', [
    lambda module: [module.RandomCrop(64, padding=4, padding_mode='reflect')],
    lambda module: [module.RandomSolarize(128, 0.5)]], ids=['rc', 'solarize'])
def test_what_timm_has_not_is_as_in_v2(make, photo):
    "The crop 'rc' and solarizing, which timm does not offer, give the same pixels in both versions of torchvision."
    ours, = make(transforms)
    theirs, = make(v2)
    for seed in range(10):
        results = []
        for one in (ours, theirs):
            seed_all(seed)
            results.append(one(photo).tobytes())
        assert results[0] == results[1]
    words = dict(train_crop_mode='rc', rc_padding=4, solarize_prob=0.5)
    kinds = {type(step) for step in timmdata.create_transform(64, is_training=True, **words).transforms}
    assert {type(ours)} <= kinds


def test_means_that_print_alike_are_described_apart():
    "A saved state and a cache identify a pipeline by its description; `repr` shows only four digits of a tensor."
    made = [timmdata.create_transform(64, mean=(value, 0.45, 0.4)) for value in (0.48145466, 0.48145466, 0.4815)]
    assert repr(made[0]) == repr(made[2]) and describe(made[0]) == describe(made[1]) != describe(made[2])
    applied = [transforms.RandomApply([one]) for one in made]
    assert describe(applied[0]) == describe(applied[1]) != describe(applied[2])


# ---- subclasses of the parts, as scripts write them

def crop_that_remembers(module):
    class Remembers(module.RandomResizedCropAndInterpolation):
        "Call get_params, so that a mask can follow."
        def __call__(self, img):
            top, left, height, width = self.box = self.get_params(img, self.scale, self.ratio)
            mode = random.choice(self.interpolation) if isinstance(self.interpolation, (tuple, list)) else self.interpolation
            return transforms.functional.resized_crop(img, top, left, height, width, self.size, mode)
    return Remembers(32, interpolation='random')


def crop_that_sets_itself_up(module):
    class OwnInit(module.RandomResizedCropAndInterpolation):
        "Have a constructor that does not call the base class."
        def __init__(self, size):
            self.size = size, size
            self.scale, self.ratio = (0.2, 0.6), (0.5, 2.)
            self.interpolation = transforms.InterpolationMode.BICUBIC
    return OwnInit(32)


def crop_of_the_left_half(module):
    class LeftHalf(module.RandomResizedCropAndInterpolation):
        "Replace get_params only."
        @staticmethod
        def get_params(img, scale, ratio):
            return 0, 0, img.size[1], img.size[0] // 2
    return LeftHalf(32)


def crop_near_the_center(module):
    class Near(module.RandomCropOrPad):
        @staticmethod
        def get_params(img, size):
            top, left = module.RandomCropOrPad.get_params(img, size)
            return top // 2, left // 2
    return Near(64)


def crop_that_counts(module):
    class Counts(module.CenterCropOrPad):
        "A torch module, which does its work in forward."
        def forward(self, img):
            self.count = getattr(self, 'count', 0) + 1
            return super().forward(img)
    return torch.nn.Sequential(Counts(150, padding_mode='reflect'))


def resize_that_repeats(module):
    class Repeats(module.ResizeKeepRatio):
        def __call__(self, img):
            size = self.get_params(img, self.size, self.longest, self.random_scale_prob, self.random_scale_range,
                                   self.random_scale_area, self.random_aspect_prob, self.random_aspect_range)
            assert isinstance(size, list)
            return transforms.functional.resize(img, size, self.interpolation)
    return Repeats(48, longest=0.5, interpolation='bicubic', random_scale_prob=0.7, random_aspect_prob=0.7)


def sequence_that_remembers(module):
    class Remembers(module.RandomResizedCropToSequence):
        def forward(self, img):
            self.found = self.get_params(img, self.scale, self.ratio, patch_h=self.patch_h, patch_w=self.patch_w, max_seq_len=20)
            return super().forward(img)
    return Remembers(16, max_seq_len=24, final_scale_range=(0.5, 1.))


OWN = [crop_that_remembers, crop_that_sets_itself_up, crop_of_the_left_half, crop_near_the_center, crop_that_counts,
       resize_that_repeats, sequence_that_remembers]


@pytest.mark.parametrize('own', OWN)
def test_subclasses_give_what_they_give_with_timm(own, photo):
    theirs, ours = own(timm.data), own(timmdata)
    for seed in range(20):
        results = []
        for one in (theirs, ours):
            seed_all(seed)
            results.append(one(photo))
        assert results[0].size == results[1].size and results[0].tobytes() == results[1].tobytes()
    for name in ('box', 'found', 'count'):
        assert getattr(ours, name, None) == getattr(theirs, name, None)


@pytest.mark.parametrize('scale, ratio', [((0.08, 1.), (3 / 4, 4 / 3)), ((0.9, 1.), (5., 6.)), ((0.2, 0.3), (0.1, 0.2))])
@pytest.mark.parametrize('as_tensor', [False, True])
def test_get_params_draws_timms_numbers(scale, ratio, as_tensor, photo):
    "Also if ten attempts fail; for tensors, too."
    image = transforms.functional.pil_to_tensor(photo) if as_tensor else photo
    for seed in range(50):
        results = []
        for module in (timm.data, timmdata):
            random.seed(seed)
            results.append(module.RandomResizedCropAndInterpolation.get_params(image, scale, ratio))
        assert results[0] == results[1]


@pytest.mark.parametrize('name', ['RandomResizedCropAndInterpolation', 'ResizeKeepRatio', 'CenterCropOrPad', 'RandomCropOrPad'])
def test_tensors_are_accepted_as_in_timm(name, photo):
    tensor, results = transforms.functional.pil_to_tensor(photo), []
    for module in (timm.data, timmdata):
        random.seed(2)
        results.append(getattr(module, name)(40)(tensor))
    assert torch.equal(*results)
