"timm 1.0.31 as the oracle of sequences of patches: the same batches of evaluation, crops and sizes of batches."
import pytest
import timm.data
import torch
from grids import quick
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import shared_data
from timm.data.naflex_dataset import NaFlexCollator as TimmCollator
from timm.data.naflex_loader import NaFlexPrefetchLoader as TimmPrefetchLoader
from torch.utils.data import Subset
from torchvision.transforms import functional as F

from timmdata import ImageDataset, calculate_naflex_batch_size, create_naflex_loader

pytestmark = pytest.mark.timeout(120)
CPU, FIELDS = torch.device('cpu'), ('patches', 'patch_coord', 'patch_valid')


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)   # tiny tensors; more threads wait for each other on a busy machine


class Some(Subset):
    "Some photographs of timm's data set, whose loader assigns its transform."
    @property
    def transform(self): return self.dataset.transform

    @transform.setter
    def transform(self, value): self.dataset.transform = value


def assert_same(ours, timms):
    "Batches of patches and targets are equal to the last bit."
    for (batch, targets), (expected, labels) in zip(ours, timms, strict=True):
        assert torch.equal(targets, labels) and batch['seq_len'] == expected['seq_len']
        for name in FIELDS:
            assert batch[name].dtype == expected[name].dtype and torch.equal(batch[name], expected[name]), name


def evaluate(root, step=1, mode='RGB', **words) -> tuple:
    "The loaders of both."
    theirs = timm.data.create_dataset('', str(root), split='train', input_img_mode=mode)
    ours, words = ImageDataset(root, split=None, input_img_mode=mode), dict(batch_size=4, num_workers=0, device=CPU, **words)
    indexes = range(0, len(ours), step)
    return (create_naflex_loader(Subset(ours, indexes), backend='pillow', **words),
            timm.data.create_naflex_loader(Some(theirs, indexes), pin_memory=False, **words))


@quick(1, 'channels_last', [True, False])
@pytest.mark.parametrize('max_seq_len', [64, 256])
@pytest.mark.parametrize('patch_size', [14, 16, (14, 16)], ids=str)
def test_batches_of_evaluation(patch_size, max_seq_len, channels_last):
    step, interpolation = (29, 'bicubic') if max_seq_len == 64 else (37, 'bilinear')
    assert_same(*evaluate(shared_data('imagenet-200'), step, patch_size=patch_size, max_seq_len=max_seq_len,
                          patchify_channels_last=channels_last, interpolation=interpolation))


def test_choices_of_patch_sizes_are_for_training(samples):
    assert_same(*evaluate(samples/'val', 9, max_seq_len=16, patch_size_choices=[8, 12]))


@pytest.mark.parametrize('channels_last', [True, False])
@pytest.mark.parametrize('use_prefetcher', [True, False])
def test_gray_batches_of_evaluation(samples, channels_last, use_prefetcher):
    ours, timms = evaluate(samples/'val', 9, 'L', channels=1, mean=(0.5,), std=(0.25,), max_seq_len=36, patch_size=16,
                           patchify_channels_last=channels_last, use_prefetcher=use_prefetcher)
    if not use_prefetcher:   # timm normalizes 0..1 there, before it pads with 0; ours are those of the device
        for (batch, _), (expected, _) in zip(ours, timms, strict=True):
            valid = expected['patch_valid']
            assert torch.equal(batch['patch_valid'], valid) and torch.equal(batch['patch_coord'], expected['patch_coord'])
            assert torch.allclose(batch['patches'][valid], expected['patches'][valid], atol=1e-5)
    else: assert_same(ours, timms)


@pytest.mark.parametrize('patch_size, choices', [(16, None), ((14, 16), None), (None, [8, 16])], ids=str)
@quick(1, 'interpolation', ['bilinear', 'bicubic'])
def test_training_pixels_are_those_of_the_crop_that_was_drawn(samples, patch_size, choices, interpolation):
    dataset = ImageDataset(samples/'train')
    loader = create_naflex_loader(
        dataset, patch_size=patch_size, patch_size_choices=choices, train_seq_lens=(16, 49), batch_size=8, is_training=True,
        hflip=0., color_jitter=None, interpolation=interpolation, num_workers=0, device=CPU, backend='pillow', seed=5)
    for number in range(3):
        drawn = loader.replay(epoch=0, batch=number)
        batch, targets = drawn.batch
        samples_of_timm = []
        for key, params in zip(drawn.keys, drawn.sample_params, strict=True):
            image, target = dataset[key.index]
            image = F.resized_crop(image, *params.crop, params.size, F.InterpolationMode(interpolation), antialias=True)
            flat = choices is None
            edges = patch_size if flat else batch['patches'].shape[2:4]
            patches = timm.data.Patchify(edges, flatten_patches=flat)(F.pil_to_tensor(image))
            samples_of_timm.append((patches, target))
        expected = TimmCollator(batch['seq_len'])(samples_of_timm)
        timms, = TimmPrefetchLoader([expected], device=CPU)
        ours = batch['patches'].flatten(2) * batch['patch_valid'][..., None]   # padding: any number
        assert torch.equal(ours, timms[0]['patches'].flatten(2) * timms[0]['patch_valid'][..., None])
        assert torch.equal(targets, timms[1]) and torch.equal(batch['patch_valid'], timms[0]['patch_valid'])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 100_000), st.integers(1, 4096), st.none() | st.integers(1, 64), st.integers(1, 16),
       st.sampled_from(['floor', 'ceil', 'round']))
def test_sizes_of_batches(tokens, seq_len, max_size, divisor, rounding):
    words = tokens, seq_len, max_size, divisor, rounding
    assert calculate_naflex_batch_size(*words) == timm.data.calculate_naflex_batch_size(*words)
