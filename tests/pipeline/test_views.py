"Compare several views of one photograph with crops that are read alone, Pillow, NumPy, and loaders of one view."
import io
import math
import random

import numpy as np
import pytest
import torch
from appearance import Fixed, change_at_once
from grids import full, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import DistributedSampler
from torchvision.transforms import ColorJitter, RandomResizedCrop
from torchvision.transforms import functional as F

from timmdata import ImageDataset, View, create_loader, get_recipe, show_batch, show_replay
from timmdata.core.jpeg import Pixels
from timmdata.datasets.packing import write_pack
from timmdata.pipeline.batch_transform import BatchTransform, BatchTransformSettings
from timmdata.pipeline.params import AppearanceParams, ParamSampler
from timmdata.pipeline.views import SharedRegion
from timmdata.pipeline.whole_batch import gaussian_blur, gaussian_weights
from timmdata.samplers.keys import MAX_VIEWS, SampleKey, keys_of_views

pytestmark = pytest.mark.timeout(180)
COLORS = dict(color_jitter=(0.4, 0.4, 0.2, 0.1), color_jitter_prob=0.8, grayscale_prob=0.2)
DINO = [View(64, scale=(0.4, 1.), gaussian_blur_prob=1., interpolation='bicubic', **COLORS),
        View(64, scale=(0.4, 1.), gaussian_blur_prob=0.1, solarize_prob=0.2, interpolation='bicubic', **COLORS),
        View(32, count=6, scale=(0.05, 0.4), gaussian_blur_prob=0.5, interpolation='bicubic', **COLORS)]
PLAIN = dict(hflip=0., color_jitter=None)


def loader_of(data, views=DINO, **given):
    words = dict(batch_size=16, is_training=True, seed=3, device='cpu', num_workers=0)
    if not given.get('use_prefetcher', True): del words['device']
    return create_loader(ImageDataset(data) if isinstance(data, (str, type(data))) and hasattr(data, 'joinpath') else data,
                         views=views, **{**words, **given})


def kept(loader) -> list: return [([tensor.clone() for tensor in images], targets.clone()) for images, targets in loader]


def equal(some, others) -> bool:
    return len(some) == len(others) and all(
        torch.equal(targets, other_targets) and all(map(torch.equal, images, other_images))
        for (images, targets), (other_images, other_targets) in zip(some, others, strict=True))


@pytest.fixture(scope='module')
def photos(samples): return samples/'val'   # five batches


@pytest.fixture(scope='module')
def reference(photos): return kept(loader_of(photos))


@quick(1, 'given', [
    dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes'), dict(use_prefetcher=False),
    dict(num_workers=1, worker_type='processes', use_prefetcher=False), dict(buffer=dict(capacity='1GB', reuse=1))],
    ids=['threads', 'processes', 'no prefetcher', 'processes, no prefetcher', 'buffer'])
def test_batches_do_not_depend_on_who_makes_them(photos, reference, given, tmp_path):
    if 'buffer' in given: given = dict(buffer=dict(batches=4, directory=tmp_path/'buffer'))
    loader = loader_of(photos, **given)
    assert equal(kept(loader), reference)
    loader.close()
    images, targets = reference[0]
    assert [tuple(tensor.shape) for tensor in images] == [(16, 3, 64, 64), (16, 3, 64, 64), (96, 3, 32, 32)]
    assert targets.shape == (16,)


@full
def test_a_pack_gives_the_same_batches(photos, reference, tmp_path):
    write_pack(ImageDataset(photos), tmp_path/'pack', format='keep')
    assert equal(kept(loader_of(tmp_path/'pack')), reference)


def test_a_run_goes_on_in_the_middle_of_an_epoch(photos, reference):
    loader = loader_of(photos, num_workers=2, worker_type='processes')
    passed = iter(loader)
    for _ in range(3): next(passed)
    state = loader.state_dict()
    passed.close()
    loader.close()
    again = loader_of(photos, num_workers=1, worker_type='threads')
    again.load_state_dict(state)
    assert equal(kept(again), reference[3:])
    with pytest.raises(ValueError, match='views was'): loader_of(photos, DINO[:2]).load_state_dict(state)


def test_a_batch_is_made_again_with_what_was_drawn(photos, reference):
    replay = loader_of(photos, re_prob=0.).replay(0, 2)
    assert equal([replay.batch], [reference[2]])
    assert [len(one) for one in replay.sample_params] == [len(one) for one in replay.appearance_params] == [16, 16, 96]
    assert {one.size for one in replay.sample_params[2]} == {(32, 32)} and all(one.blur for one in replay.appearance_params[0])
    erased = loader_of(photos, re_prob=1.).replay(0, 2)
    assert [len(boxes) for boxes in erased.erase_boxes] == [16, 16, 96] and not equal([erased.batch], [reference[2]])


@full
def test_what_is_drawn_for_a_view_depends_on_no_other(photos):
    all_views, drawn = kept(loader_of(photos, scaled_decode=False)), loader_of(photos).replay(0, 3).sample_params
    for views in (DINO[:1], DINO[:2], [*DINO[:2], View(48, count=3)]):
        for (images, _), (expected, _) in zip(loader_of(photos, views, scaled_decode=False), all_views, strict=True):
            assert all(map(torch.equal, images[:2], expected[:2]))
        assert loader_of(photos, views).replay(0, 3).sample_params[:2] == drawn[:len(views)][:2]
    key = SampleKey(5, 1, view=2)
    first = 2 * MAX_VIEWS   # of its repeat
    assert [[one.view for one in part] for part in keys_of_views([key], [2, 1])] == [[first, first + 1], [first + 2]]


@full
def test_ranks_have_the_crops_of_one_process(photos):
    "A sample's crops depend on its index, not on the rank that makes them or on the order."
    def crops_by_index(**words) -> dict:
        loader, found = loader_of(photos, **words), {}
        for number in range(len(loader)):
            replay = loader.replay(0, number)
            num = len(replay.keys)
            for k, key in enumerate(replay.keys): found[key.index] = torch.cat([one[k::num].flatten() for one in replay.batch[0]])
        return found
    every, indexes = crops_by_index(), range(len(ImageDataset(photos)))
    ranks = [crops_by_index(sampler=DistributedSampler(indexes, 2, rank, seed=7), drop_last=False) for rank in (0, 1)]
    assert not set(ranks[0]) & set(ranks[1]) and set(ranks[0]) | set(ranks[1]) == set(indexes)
    for of_rank in ranks: assert all(torch.equal(crops, every[index]) for index, crops in of_rank.items() if index in every)


@quick(1, 'words', [dict(), dict(color_jitter_mode='exact'), dict(backend='pillow'), dict(re_prob=0.5)], ids=str)
def test_one_view_is_the_loader_of_one_view(photos, words):
    plain = dict(scale=(0.3, 1.), solarize_prob=0.3, grayscale_prob=0.3)
    one = create_loader(ImageDataset(photos), 64, 16, is_training=True, seed=3, device='cpu', num_workers=0, **plain, **words)
    for (images, targets), (alone, of_alone) in zip(loader_of(photos, [View(64, **plain)], **words), one, strict=True):
        assert torch.equal(images[0], alone) and torch.equal(targets, of_alone)


def test_pixels_are_pillows(photos):
    "With Pillow's decoder and without colors, compare with Pillow's crop and resize of the boxes in the replay."
    views = [View(64, scale=(0.4, 1.), interpolation='bicubic', **PLAIN), View(32, count=2, scale=(0.05, 0.4), **PLAIN)]
    loader = loader_of(photos, views, backend='pillow', scaled_decode=False)
    replay = loader.replay(0, 0)
    mean, std = (torch.tensor(values)[:, None, None] for values in (loader.mean, loader.std))
    for images, drawn, view in zip(replay.batch[0], replay.sample_params, views):
        for row, (image, params) in enumerate(zip(images, drawn, strict=True)):
            top, left, height, width = params.crop
            photograph = loader.loader.builder.sample_loader.image(replay.keys[row % 16])
            expected = photograph.resize((view.input_size,) * 2, Image.BICUBIC if view is views[0] else Image.BILINEAR, (
                left, top, left + width, top + height))
            crop = photograph.crop((left, top, left + width, top + height)).resize(expected.size, (
                Image.BICUBIC if view is views[0] else Image.BILINEAR))
            assert torch.equal((image * std + mean).mul(255).round().byte(), F.pil_to_tensor(crop))


def test_smaller_decoding_makes_no_crop_worse(tmp_path):
    "With other views, a crop differs from the full decode by at most one gray level more, on average, than alone."
    rng = np.random.default_rng(0)
    (tmp_path/'one').mkdir()
    for k in range(4): Image.fromarray(rng.integers(0, 255, (30, 45, 3), dtype=np.uint8)).resize((1800, 1200), Image.BICUBIC).save(
        tmp_path/f'one/{k}.jpg', quality=90)

    def small(views, **words):
        images, _ = next(iter(loader_of(tmp_path, views, batch_size=4, mean=0., std=1., **words)))
        return images[-1] * 255
    views = [View(400, scale=(0.5, 1.), **PLAIN), View(64, count=4, scale=(0.2, 0.6), **PLAIN)]
    best, with_large = small(views, scaled_decode=False), small(views)
    of_small = [view for view in loader_of(tmp_path, views, batch_size=4).replay(0, 0).sample_params[1]]
    assert all(min(params.crop[2:]) > 4 * 64 for params in of_small)   # alone, they are decoded smaller than with the large view
    alone = small([View(64, scale=(0.5, 1.), **PLAIN), views[1]])
    assert not torch.equal(alone, with_large)
    errors = [(one - best).abs().mean().item() for one in (with_large, alone)]
    assert errors[0] <= errors[1] + 1 and errors[0] < 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_region_gives_each_crop_as_the_photograph_does(data):
    height, width = data.draw(st.integers(8, 300)), data.draw(st.integers(8, 300))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    photograph, file = Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)), io.BytesIO()
    photograph.save(file, 'JPEG', quality=80, subsampling=data.draw(st.sampled_from([0, 1, 2])),
                    restart_marker_blocks=data.draw(st.sampled_from([0, 2, 7])))
    content = data.draw(st.sampled_from([file.getvalue(), photograph]))   # a PIL image is not decoded smaller
    pixels, factor = Pixels(content), data.draw(st.sampled_from([1, 2, 4, 8]))

    def crop():
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        return top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    crops = [crop() for _ in range(data.draw(st.integers(1, 5)))]
    region = SharedRegion(pixels, crops, factor)
    for one in crops: assert np.array_equal(region.read_crop(one), pixels.read_crop(one, factor))


def numpy_blur(image: np.ndarray, sigma: float) -> np.ndarray:
    "Blur (C, H, W) with a sampled Gaussian of three standard deviations, in float64, edges repeated."
    reach = max(1, math.ceil(3 * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    for axis in (1, 2):
        padded = np.pad(image.astype(np.float64), [(reach, reach) if k == axis else (0, 0) for k in range(3)], mode='edge')
        image = np.apply_along_axis(lambda line: np.convolve(line, taps / taps.sum(), 'valid'), axis, padded)
    return image


def test_a_blur_is_a_gaussian():
    images = torch.rand(5, 3, 17, 40).mul(255)
    radii = [0.1, 0.5, 1., 1.7, 5.]
    def blur(images, radii): return gaussian_blur(images, torch.from_numpy(gaussian_weights(radii)).float())
    blurred = blur(images, radii)
    for image, result, radius in zip(images, blurred, radii):
        assert np.abs(result.numpy() - numpy_blur(image.numpy(), radius)).max() < 1e-3
    assert torch.equal(blur(images[2:3], radii[2:3])[0], blur(images[2:3].clone(), radii[2:3])[0])
    inside = F.gaussian_blur(images[3:4], [13, 13], [1.7, 1.7])[0, :, 8:-8, 8:-8]   # torchvision reflects at edges
    assert (blurred[3, :, 8:-8, 8:-8] - inside).abs().max() < 0.5


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_both_ways_blur_and_solarize_alike(dtype):
    rng, mean, std = random.Random(0), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    images = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    params = [AppearanceParams(rng.random() < 0.5, False, (('contrast', 1.3),) * (k % 2), rng.uniform(0.1, 2.) * (k % 3 > 0), k % 4 > 1)
              for k in range(12)]
    by_image = BatchTransform(BatchTransformSettings(mean, std, dtype), Fixed(params))(images, [SampleKey(k, 0) for k in range(12)])
    by_batch = change_at_once(images, params, mean, std)
    apart = (by_image.float() - by_batch).abs() * torch.tensor(std)[:, None, None] * 255
    assert (apart > 1.3).float().mean() < 1e-3   # where 127.5 is on this side or that, they are a level apart
    for k in range(12):   # what neither blurs nor colors is Pillow's solarizing, exactly
        if not params[k].solarize or params[k].blur or params[k].color: continue
        flipped = images[k].flip(2) if params[k].hflip else images[k]
        expected = F.pil_to_tensor(ImageOps.solarize(F.to_pil_image(flipped), 128))
        found = (by_batch[k] * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]).mul(255).round().byte()
        assert torch.equal(found, expected)


def test_exact_blur_is_pillows(photos):
    views = [View(64, hflip=0., color_jitter=None, gaussian_blur_prob=1., solarize_prob=0.5, interpolation='bilinear')]
    words = dict(backend='pillow', color_jitter_mode='exact', scaled_decode=False)
    replay, plain = loader_of(photos, views, **words).replay(0, 0), loader_of(photos, [View(64, **PLAIN)], **words).replay(0, 0)
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for image, crop, look in zip(replay.batch[0][0], plain.batch[0][0], replay.appearance_params[0]):
        expected = F.to_pil_image((crop * std + mean).mul(255).round().byte()).filter(ImageFilter.GaussianBlur(look.blur))
        if look.solarize: expected = ImageOps.solarize(expected, 128)
        assert torch.equal((image * std + mean).mul(255).round().byte(), F.pil_to_tensor(expected))


@pytest.mark.full
def test_skipped_and_padded_samples(samples):
    odd = ImageDataset(samples/'oddities', on_error='skip')
    with pytest.warns(UserWarning):
        loader = create_loader(odd, views=DINO, batch_size=64, is_training=True, seed=3, device='cpu', num_workers=0, drop_last=False)
        [(images, targets)] = list(loader)
    assert 0 < len(targets) < len(odd) and [len(one) for one in images] == [len(targets), len(targets), 6 * len(targets)]
    padded = create_loader(ImageDataset(samples/'val'), views=DINO, batch_size=48, is_training=True, seed=3, device='cpu',
                           num_workers=0, pad_last=True, valid_mask=True)
    *_, (images, targets, valid) = padded
    assert len(images[2]) == 6 * 48 and len(targets) == len(valid) == 48 and 0 < valid.sum() < 48


@pytest.mark.full
def test_names_and_samples_that_are_dicts(photos, reference):
    class Dicts(ImageDataset):
        def __getitem__(self, index):
            image, target = super().__getitem__(index)
            return {'image': image, 'target': target}
    named = dict(zip(('large', 'other', 'small'), DINO))
    for batch, (images, _) in zip(loader_of(photos, named), reference):
        assert list(batch[0]) == list(named) and all(map(torch.equal, batch[0].values(), images))
    batch = next(iter(loader_of(Dicts(photos))))
    assert [tuple(one.shape) for one in batch['image']] == [(16, 3, 64, 64), (16, 3, 64, 64), (96, 3, 32, 32)]
    assert len(batch['target']) == 16


@pytest.mark.parametrize('words, message', [
    (dict(views=DINO[0]), 'must be a list'), (dict(views=[]), r'views=\[\]: .*non-empty list'),
    (dict(views=[64]), r'views\[0\] has type int'),
    (dict(input_size=64), 'views and input_size'), (dict(scale=(0.2, 1.)), 'views and scale'), (dict(hflip=0.1), 'views and hflip'),
    (dict(is_training=False), 'is_training=False and views'), (dict(collate_fn=list), 'views and collate_fn'),
    (dict(num_aug_splits=2), 'views and num_aug_splits'), (dict(cache='device'), "cache='device' and views"),
    (dict(batch_size=None), 'needs batch_size'), (dict(views=None), 'needs input_size')], ids=str)
def test_what_cannot_be_had_is_refused(photos, words, message):
    with pytest.raises((TypeError, ValueError), match=message): loader_of(photos, **{**dict(views=DINO), **words})


@full
def test_pictures(photos):
    loader = loader_of(photos)
    assert len(show_batch(loader, n=16).axes) == 16 and len(show_replay(loader, 0, 1, num_images=2).axes) == 2 * 9


# ---- the numbers of the recipes, and what is drawn by them

WEAK, STRONG = (0.4, 0.4, 0.2, 0.1), (0.8, 0.8, 0.8, 0.2)
AUTHORS = {   # size, crops, scale, jitter, blur, solarize of each view, from the authors' code
    'simclr': [(224, 2, (0.08, 1.), STRONG, 0.5, 0.)],   # google-research/simclr data_util.py 74-77, 392-417; run.py 240
    'byol': [(224, 1, (0.08, 1.), WEAK, 1., 0.), (224, 1, (0.08, 1.), WEAK, 0.1, 0.2)],   # byol/utils/augmentations.py 27-66
    'moco-v3': [(224, 1, (0.08, 1.), WEAK, 1., 0.), (224, 1, (0.08, 1.), WEAK, 0.1, 0.2)],   # main_moco.py 117, 262-285
    'swav': [(224, 2, (0.14, 1.), STRONG, 0.5, 0.), (96, 6, (0.05, 0.14), STRONG, 0.5, 0.)],   # swav_800ep_pretrain.sh 28-31
    # main_dino.py 421-456
    'dino': [(224, 1, (0.4, 1.), WEAK, 1., 0.), (224, 1, (0.4, 1.), WEAK, 0.1, 0.2), (96, 8, (0.05, 0.4), WEAK, 0.5, 0.)],
    # dinov2/data/augmentations.py 62-82, with the probabilities that its transforms.py 17-21 turns around; ssl_default_config.yaml 107-116
    'dino-v2': [(224, 1, (0.32, 1.), WEAK, 0., 0.), (224, 1, (0.32, 1.), WEAK, 0.9, 0.2), (96, 8, (0.05, 0.32), WEAK, 0.5, 0.)],
}


@pytest.mark.parametrize('name', AUTHORS)
def test_recipes_have_their_authors_numbers(name):
    views = get_recipe(name).train['views']
    assert [(view.input_size, view.count, view.scale, view.color_jitter, view.gaussian_blur_prob, view.solarize_prob)
            for view in views] == AUTHORS[name]
    for view in views:
        assert (view.hflip, view.vflip, view.color_jitter_prob, view.grayscale_prob) == (0.5, 0., 0.8, 0.2)
        assert view.gaussian_blur_radius == (0.1, 2.) and view.augment().ratio == (3 / 4, 4 / 3)
        assert view.interpolation == ('bilinear' if name in ('moco-v3', 'swav') else 'bicubic')


def check_alike(ours, theirs):
    "Run the Kolmogorov-Smirnov test at 0.1 %: two samples come from the same distribution."
    ours, theirs = np.sort(ours), np.sort(theirs)
    every = np.concatenate([ours, theirs])
    apart = np.abs(np.searchsorted(ours, every, 'right') / len(ours) - np.searchsorted(theirs, every, 'right') / len(theirs)).max()
    assert apart < 1.95 * math.sqrt((len(ours) + len(theirs)) / (len(ours) * len(theirs))), apart


def check_share(drawn, share: float):
    "Assert that a share is at most four standard deviations from the expected one."
    assert abs(np.mean(drawn) - share) <= 4 * math.sqrt(share * (1 - share) / len(drawn)), (np.mean(drawn), share)


@pytest.mark.parametrize('name, num', [('dino', 2000), *(pytest.param(name, 20_000, marks=pytest.mark.full) for name in AUTHORS)])
def test_draws_are_distributed_as_torchvisions(name, num):
    torch.manual_seed(0)
    height, width, rng = 375, 500, random.Random(0)
    picture = torch.zeros(1, height, width)
    for number, view in enumerate(get_recipe(name).train['views']):
        settings = view.augment()
        sampler, keys = ParamSampler(settings), [SampleKey(k, 0, view=number, seed=1) for k in range(num)]
        crops = np.array([sampler.sample_params(height, width, key).crop for key in keys], float)
        theirs = np.array([RandomResizedCrop.get_params(picture, settings.scale, settings.ratio) for _ in keys], float)
        for ours, other in zip(crops.T, theirs.T): check_alike(ours, other)
        check_alike(crops[:, 2] * crops[:, 3], theirs[:, 2] * theirs[:, 3])
        looks = sampler.appearance(keys).rows()
        jitter = ColorJitter(*settings.color_jitter)
        ranges = jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
        _, *factors = zip(*(jitter.get_params(*ranges) for _ in keys))
        for operation, other in zip(('brightness', 'contrast', 'saturation', 'hue'), factors):
            check_alike([factor for look in looks for word, factor in look.color if word == operation], other)
        first = [look.color[0][0] for look in looks if len(look.color) > 1]
        for operation in ('brightness', 'contrast', 'saturation', 'hue'): check_share([one == operation for one in first], 1 / 4)
        check_share([look.hflip for look in looks], 0.5)
        check_share([len(look.color) > 1 for look in looks], 0.8)
        check_share([('grayscale', 0.) in look.color for look in looks], 0.2)
        check_share([look.blur > 0 for look in looks], view.gaussian_blur_prob)
        check_share([look.solarize for look in looks], view.solarize_prob)
        if view.gaussian_blur_prob: check_alike([look.blur for look in looks if look.blur], [rng.uniform(0.1, 2.) for _ in keys])
