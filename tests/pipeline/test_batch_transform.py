"Compare flips, colors and normalization with independent references: NumPy in float64, and torchvision."
import itertools
import random
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from appearance import Fixed, change_at_once, columns_of
from grids import few, quick
from pictures import random_colors
from torchvision.transforms import functional as F

from timmdata.core.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timmdata.datasets.demo_data import get_samples
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders.prefetch import PrefetchLoader
from timmdata.pipeline.batch_transform import BatchTransform, BatchTransformSettings
from timmdata.pipeline.colors import color_matrices, hue_lanes, turn_hue
from timmdata.pipeline.image_kernel import HueKernel, ImageByImage
from timmdata.pipeline.params import AppearanceColumns, AppearanceParams, ParamSampler
from timmdata.pipeline.sample_transform import apply_color
from timmdata.recipes import get_recipe
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.mixup import Mixup
from timmdata.transforms.settings import AugmentSettings

pytestmark = pytest.mark.timeout(120)
MEAN, STD = IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sampler_of(size, **settings) -> ParamSampler: return ParamSampler(AugmentSettings(size, **settings))


def numpy_hue(x: np.ndarray, turn: float) -> np.ndarray:
    "Turn the hue of (H, W, 3) in HSV with the textbook formula by sectors; values may be outside 0..255."
    r, g, b = np.moveaxis(x, -1, 0)
    high, low = x.max(-1), x.min(-1)
    span = np.where(high == low, 1., high - low)
    sextant = np.where(high == r, (g - b) / span, np.where(high == g, 2 + (b - r) / span, 4 + (r - g) / span)) + 6 * turn
    falls = [np.clip(np.minimum(k, 4 - k), 0, 1) for k in ((n + sextant) % 6 for n in (5, 3, 1))]
    return np.stack([high - (high - low) * fall for fall in falls], -1)


def numpy_colors(image: np.ndarray, color) -> np.ndarray:
    "Apply the operations one after another to float64 (H, W, C), without clipping in between."
    x = image.astype(np.float64)
    for name, factor in color:
        is_rgb = x.shape[2] == 3
        gray = 0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2] if is_rgb else x[..., 0]
        if name == 'brightness': x = x * factor
        elif name == 'contrast': x = (x - gray.mean()) * factor + gray.mean()
        elif name == 'saturation': x = (x - gray[..., None]) * factor + gray[..., None]
        elif name == 'grayscale': x = np.repeat(gray[..., None], x.shape[2], 2)
        elif is_rgb: x = numpy_hue(x, factor)
    return np.clip(x, 0, 255)


def uint8_batch(num, channels, height, width, seed=0, layout=torch.channels_last) -> torch.Tensor:
    "Return blobs of color with some noise: neither flat nor clipped everywhere."
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.uniform(20, 235, (num, channels, 3, 3)).astype(np.float32))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode='bilinear')
    noisy = smooth + torch.from_numpy(rng.normal(0, 20, smooth.shape).astype(np.float32))
    return noisy.clamp(0, 255).to(torch.uint8).contiguous(memory_format=layout)


def keys_of(num, epoch=0, seed=3) -> list[SampleKey]: return [SampleKey(k, epoch, seed=seed) for k in range(num)]


def stats(channels): return (MEAN, STD) if channels == 3 else ((0.4,) * channels, (0.3,) * channels)


SHAPES = [(3, 33, 47), (3, 224, 224), (3, 30, 2), (3, 1, 1), (1, 33, 47), (1, 16, 16), (3, 5, 4)]


@quick(1, 'shape', SHAPES, ids=str)
def test_fused_colors_are_the_composition_in_float64(shape):
    rng, num = random.Random(0), 40
    choices = [AppearanceParams(rng.random() < 0.5, rng.random() < 0.5, random_colors(rng)) for _ in range(num)]
    images, (mean, std) = uint8_batch(num, *shape), stats(shape[0])
    out = BatchTransform(BatchTransformSettings(mean, std), Fixed(choices))(images, keys_of(num))
    whole = change_at_once(images, choices, mean, std)
    assert torch.allclose(out, whole, rtol=0, atol=1e-4)
    for image, choice, row in zip(images, choices, out):
        array = image.permute(1, 2, 0).numpy()
        if choice.hflip: array = array[:, ::-1]
        if choice.vflip: array = array[::-1]
        expected = (numpy_colors(array, choice.color) - 255 * np.array(mean)) / (255 * np.array(std))
        levels = 4. if any(name == 'hue' for name, _ in choice.color) else 0.   # the hue is rounded, then made stronger
        apart = np.abs(row.permute(1, 2, 0).numpy() - expected) * (255 * np.array(std))
        assert apart.max() < 0.02 + levels and apart.mean() < 0.02 + levels / 8, choice


def test_matrices_are_the_identity_without_operations_and_keep_gray_gray():
    rng = random.Random(1)
    kinds = 'saturation', 'hue', 'grayscale'
    choices = [AppearanceParams(color=tuple(pair for pair in random_colors(rng) if pair[0] in kinds)) for _ in range(50)]
    choices.append(AppearanceParams())
    for channels in 1, 3:
        assert color_matrices(columns_of(choices[-1:]), channels) is None
        turns, m, k = color_matrices(columns_of(choices), channels)
        assert turns[-1] == 0 and np.array_equal(m[-1], np.eye(channels, 2 * channels)) and not k.any()
        assert np.allclose(m.sum(2), 1) and turns.any() == (channels == 3)   # gray has no hue


TURNS = [-0.5, -0.41, -1 / 3, -0.21, -0.1, -0.01, 0.003, 0.05, 0.1, 1 / 6, 0.2, 0.34, 0.45, 0.5]


@quick(3, 'turn', TURNS)
@quick(2, 'shape', [(3, 33, 47), (3, 40, 40), (3, 1, 1)], ids=str)
def test_hue_is_torchvisions(shape, turn):
    "Both implementations agree bit for bit, also for an odd number of bytes."
    rng = np.random.default_rng(4)
    image = torch.from_numpy(rng.choice([0, 1, 7, 128, 254, 255, 60], shape[1:] + shape[:1]).astype(np.uint8))
    image[..., :2] += torch.from_numpy(rng.integers(0, 2, (*shape[1:], 1), np.uint8))   # shades, and equal channels
    planes = image.permute(2, 0, 1)
    exact = F.adjust_hue(planes.double() / 255, turn) * 255
    lanes = hue_lanes(np.array([turn]))
    by_bytes = HueKernel(image.numel())(image.reshape(shape[1], -1), lanes[0]).view(image.shape).permute(2, 0, 1)
    assert torch.equal(turn_hue(planes[None], torch.from_numpy(lanes)[..., None, None].unbind(1), dim=1)[0], by_bytes)
    assert (by_bytes - exact).abs().max() < 1.7 and (by_bytes - exact).abs().mean() < 0.4   # rounded down; t in 256ths
    apart = (by_bytes.int() - F.adjust_hue(planes, turn).int()).abs()
    assert apart.max() <= 2 and apart.float().mean() < 0.5


def test_images_without_hue_keep_their_bits_beside_those_with_it():
    images, strong = uint8_batch(2, 3, 24, 24), (('saturation', 1.4), ('contrast', 0.7), ('brightness', 1.3))
    alone = change_at_once(images, [AppearanceParams(color=strong)] * 2, MEAN, STD)
    mixed = change_at_once(images, [AppearanceParams(color=strong), AppearanceParams(color=(*strong, ('hue', 0.2)))], MEAN, STD)
    assert torch.allclose(alone[0], mixed[0], rtol=0, atol=1e-6) and not torch.allclose(alone[1], mixed[1], atol=0.1)


# ---- the recipes' colors, on photographs: the mean of the differences to torchvision's, and where 95 % of the pixels lie

BOUNDS = {'dino': (2.2, 6), 'moco-v3': (2.2, 6), 'byol': (2.2, 6), 'dino-v2': (2.2, 6), 'simclr': (3.4, 14), 'swav': (3.4, 14)}


@pytest.mark.parametrize('name', few(BOUNDS, 'dino', 'simclr'))
def test_colors_of_recipes_are_near_to_torchvisions(name):
    "Factors and order are the same; torchvision rounds and clips after each. With a rotation of the hue: 4.3 and 16, 5.9 and 24."
    photographs, apart = ImageDataset(get_samples(), transform=F.pil_to_tensor), []
    for view, at in itertools.product(get_recipe(name).train['views'], range(0, 320, 10)):
        image = F.resize(photographs[at][0], [64, 64])[None].contiguous(memory_format=torch.channels_last)
        sampler = ParamSampler(replace(view.augment(), color_jitter_prob=1., grayscale_prob=0.))
        color = sampler.appearance_params(SampleKey(at, 0, seed=5)).color
        fused = BatchTransform(BatchTransformSettings((0.,) * 3, (1 / 255,) * 3), Fixed({at: AppearanceParams(color=color)}))
        assert 'hue' in dict(color)
        apart.append((fused(image, [SampleKey(at, 0)]) - apply_color(image[0], color)).abs().flatten())
    apart = torch.cat(apart)
    assert (apart.mean(), apart.quantile(0.95)) < BOUNDS[name] and apart.quantile(0.95) < BOUNDS[name][1]


def test_fused_jitter_is_near_to_torchvisions():
    "They differ where torchvision rounds and clips between the steps."
    sampler, images = sampler_of(64, is_training=True, color_jitter=0.4), uint8_batch(60, 3, 64, 64)
    stage = BatchTransform(BatchTransformSettings((0.,) * 3, (1 / 255,) * 3), sampler)
    fused, differing = stage(images, keys_of(60)), []
    for image, choice, row in zip(images, stage.appearance(keys_of(60))[0].rows(), fused):
        exact = apply_color(image, choice.color)
        if choice.hflip: exact = exact.flip(2)
        differing.append((row - exact.float()).abs().mean().item())
    assert max(differing) < 8 and np.median(differing) < 2, differing


def normal_stage(shape, **settings) -> BatchTransform:
    mean, std = stats(shape[0])
    sampler = sampler_of(shape[1:], is_training=True, vflip=0.3, color_jitter=(0.4, 0.4, 0.4, 0.1), color_jitter_prob=0.8,
                         grayscale_prob=0.2)
    return BatchTransform(BatchTransformSettings(mean, std, **settings), sampler)


@quick(1, 'layout', [torch.channels_last, torch.contiguous_format], ids=str)
@quick(1, 'dtype', [torch.float32, torch.bfloat16])
@quick(2, 'shape', [(3, 33, 47), (3, 64, 64), (3, 96, 72), (1, 33, 47), (3, 2, 1)], ids=str)
def test_bits_do_not_depend_on_the_batch_or_the_threads(shape, dtype, layout):
    images, keys = uint8_batch(13, *shape, layout=layout), keys_of(13)
    stage = normal_stage(shape, img_dtype=dtype)
    whole = stage(images, keys)
    for threads, step in itertools.product((1, 2, 3), (1, 4)):
        torch.set_num_threads(threads)
        for k in range(0, 13, step):
            part = images[k:k + step].contiguous(memory_format=layout)
            assert torch.equal(stage(part, keys[k:k + step]), whole[k:k + step]), (threads, k)
        assert torch.get_num_threads() == threads
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    shuffled = stage(images[order].contiguous(memory_format=layout), [keys[k] for k in order])
    assert torch.equal(shuffled, whole[order])


def test_bits_do_not_depend_on_what_other_threads_do():
    images, stage = uint8_batch(16, 3, 48, 40), normal_stage((3, 48, 40))
    expected, found = stage(images, keys_of(16)), []
    torch.set_num_threads(2)
    def work():
        for _ in range(10): found.append(torch.equal(stage(images, keys_of(16)), expected))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 40 and all(found)


@quick(2, 'shape', [(3, 33, 47), (1, 33, 47), (3, 64, 64), (4, 8, 8)], ids=str)
@quick(1, 'layout', [torch.channels_last, torch.contiguous_format], ids=str)
@quick(3, 'axes', [(3,), (2,), (2, 3)])
def test_flips_are_exact(shape, layout, axes):
    mean, std = stats(shape[0])
    sampler = sampler_of(shape[1:], is_training=True, hflip=float(3 in axes), vflip=float(2 in axes), color_jitter=None)
    images = uint8_batch(5, *shape, layout=layout)
    flipped = BatchTransform(BatchTransformSettings(mean, std), sampler)(images, keys_of(5))
    assert torch.equal(flipped, BatchTransform(BatchTransformSettings(mean, std))(images, keys_of(5)).flip(axes))


@pytest.mark.parametrize('layout', [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_float32_rounded_once(dtype, layout):
    images = uint8_batch(6, 3, 33, 47, layout=layout)
    exact, rounded = (normal_stage((3, 33, 47), img_dtype=t)(images, keys_of(6)) for t in (torch.float32, dtype))
    assert rounded.dtype == dtype and torch.equal(rounded, exact.to(dtype))


def test_layout_of_the_result():
    images, stage = uint8_batch(6, 3, 33, 47), normal_stage((3, 33, 47))
    last, first = stage(images, keys_of(6)), normal_stage((3, 33, 47), channels_last=False)(images, keys_of(6))
    assert last.is_contiguous(memory_format=torch.channels_last) and first.is_contiguous() and torch.equal(last, first)


def test_input_is_left_as_it_is_and_results_do_not_share_memory():
    images, stage = uint8_batch(6, 3, 32, 32), normal_stage((3, 32, 32))
    before, results = images.clone(), [stage(images, keys_of(6, epoch)) for epoch in range(8)]
    copies = [result.clone() for result in results]
    for epoch in range(8, 12): stage(images, keys_of(6, epoch))   # uses memory again where it may
    assert torch.equal(images, before) and all(map(torch.equal, results, copies))
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(results, 2))


def test_choices_are_those_of_the_key():
    stage = normal_stage((3, 8, 8))
    expected = [stage.params.appearance_params(key) for key in keys_of(50, 4)]
    assert stage.appearance(keys_of(50, 4))[0].rows() == expected and len(set(expected)) > 40
    shares = [np.mean(getattr(stage.appearance(keys_of(4000))[0], name)) for name in ('hflip', 'vflip')]
    assert shares == pytest.approx([0.5, 0.3], abs=0.04)
    counts = Counter(name for c in stage.appearance(keys_of(4000))[0].rows() for name, _ in c.color)
    assert counts['hue'] == counts['contrast'] == pytest.approx(3200, abs=130)
    assert counts['grayscale'] == pytest.approx(800, abs=130)


@pytest.mark.gpu
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_gpu_gives_the_numbers_of_the_cpu(dtype):
    for shape in SHAPES:
        images, stage = uint8_batch(16, *shape), normal_stage(shape, img_dtype=dtype)
        there = stage(images.cuda(), keys_of(16))
        bound = 1e-4 if dtype == torch.float32 else 5e-3
        assert there.is_cuda and torch.allclose(there.cpu().float(), stage(images, keys_of(16)).float(), rtol=0, atol=bound)


@quick(1, 'dtype', [torch.float32, torch.bfloat16])
def test_batches_of_many_sizes_share_the_memory_of_the_largest(dtype):
    "Batches of many sizes come from on_error='skip' with many unreadable files; the memory of every size was kept."
    settings = BatchTransformSettings((0.5,) * 3, (0.25,) * 3, dtype)
    transform = ImageByImage(settings)
    images = torch.randint(256, (40, 3, 32, 32), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    used = set()
    for num in [40, *range(1, 40), *range(39, 0, -1)]:
        made = transform(images[:num], AppearanceColumns.unchanged(num))
        assert torch.equal(made, ImageByImage(settings)(images[:num], AppearanceColumns.unchanged(num))) and made.dtype == dtype
        used.add(made.data_ptr())
        del made
    assert len(used) == 1
    kept = [transform(images[:num], AppearanceColumns.unchanged(num)) for num in (3, 40, 2)]   # at once, large after small
    assert len({batch.data_ptr() for batch in kept}) == 3
    assert all(torch.equal(batch, kept[1][:len(batch)]) for batch in kept)


# ---- drawn where the batch is made

MIXED = dict(mixup=Mixup(0.8, 1., num_classes=10, mode='elem'), re_prob=0.5, re_mode='pixel')


def mixed_loader(samples, **settings):
    return create_loader(ImageDataset(samples/'train'), 32, 16, is_training=True, seed=3, device='cpu', **{**MIXED, **settings})


def same_batches(one, other) -> bool:
    return all(torch.equal(a, b) for pair in zip(one, other, strict=True) for a, b in zip(*pair))


@quick(2, 'kind', [dict(num_workers=0), dict(num_workers=2, worker_type='processes'), dict(num_workers=2, worker_type='threads')], ids=str)
def test_what_a_worker_draws_is_what_the_consumer_would_draw(samples, kind):
    with mixed_loader(samples, **kind) as loader:
        for host in loader.loader.host_batches():
            assert host.drawn is not None
            copied = [tensor.clone() for tensor in host.batch]
            there = loader.batch_transform.on_batch(host.batch, host.keys, host.drawn)
            here, drawn = loader.batch_transform.draw_and_apply(copied, host.keys)
            assert all(map(torch.equal, there, here)) and drawn.mixing == host.drawn.mixing and drawn.erased == host.drawn.erased


@pytest.mark.parametrize('change', [
    lambda loader: setattr(loader, 'mixup_enabled', False), lambda loader: setattr(loader.mixing, 'prob', 0.1),
    lambda loader: setattr(loader.random_erasing, 'probability', 0.),
    lambda loader: setattr(loader.mixing, 'cutmix_minmax', np.array([0.2, 0.3]))], ids=['switch', 'prob', 'erasing', 'minmax'])
def test_settings_that_change_in_the_loop_count_for_the_next_batch(samples, change):
    "Workers have copies of the old settings; a loader without workers is the reference."
    def run(**kind):
        found = []
        with mixed_loader(samples, mixup=Mixup(0.8, 1., num_classes=10), **kind) as loader:
            for number, batch in enumerate(loader):
                found.append([tensor.clone() for tensor in batch])
                if number == 1: change(loader)
        return found
    expected = run(num_workers=0)
    assert len(expected) > 3 and same_batches(run(num_workers=2, worker_type='processes'), expected)
    unchanged = mixed_loader(samples, mixup=Mixup(0.8, 1., num_classes=10), num_workers=0)
    assert not same_batches(expected, unchanged)


class Curriculum(Mixup):
    "Count the batches; a copy in a worker would count different ones."
    num = 0

    def draw(self, batch_size, size, rng=None):
        self.num += 1
        self.prob = float(self.num % 2)
        return super().draw(batch_size, size, rng)


def test_mixing_of_the_users_own_is_drawn_in_the_training_process(samples):
    runs = [[[tensor.clone() for tensor in batch] for batch in mixed_loader(samples, mixup=Curriculum(0.8, 1., num_classes=10), **kind)]
            for kind in (dict(num_workers=0), dict(num_workers=2, worker_type='processes'))]
    assert same_batches(*runs)


def test_a_loader_with_another_transform_does_not_use_what_was_drawn_for_the_first(samples):
    loader = mixed_loader(samples, num_workers=1, worker_type='threads')
    plain = BatchTransform(loader.batch_transform.settings)
    expected = [plain.on_batch(host.batch, host.keys)[0].clone() for host in loader.loader.host_batches()]
    loader.loader.set_epoch(0)
    found = [batch[0].clone() for batch in PrefetchLoader(loader.loader, device='cpu', batch_transform=plain)]
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
