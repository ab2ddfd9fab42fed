"Policies, views, repeats, mixing and scheduled sizes in the loader: the same batches whoever computes them."
import random
import warnings
from itertools import islice

import pytest
import torch
from grids import few
from PIL import Image
from torchvision.transforms import functional as F

from timmdata import AugMixDataset, FastCollateMixup, ImageDataset, Mixup, create_loader, get_recipe, list_recipes, show_replay
from timmdata.pipeline.sample_transform import apply_color
from timmdata.samplers.batch_schedule import create_batch_schedule
from timmdata.samplers.distributed import RepeatAugSampler
from timmdata.samplers.epoch import EpochSampler
from timmdata.transforms.policy import Policy

INLINE, THREADS, PROCESSES = dict(num_workers=0), dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes')
MIX = dict(mixup_alpha=0.8, cutmix_alpha=1., num_classes=10)
SETTINGS = {
    'rand': dict(auto_augment='rand-m9-mstd0.5-inc1', re_prob=0.3, re_mode='pixel'), '3a': dict(auto_augment='3a', color_jitter=0.3),
    'augmix': dict(auto_augment='augmix-m5-w3-d2', num_aug_splits=3, re_prob=0.3, re_split=True),
    'repeats': dict(num_aug_repeats=3, gaussian_blur_prob=0.3), 'mixup': dict(mixup=Mixup(**MIX)),
    'elements': dict(mixup=Mixup(mode='elem', partner='random', **MIX), re_prob=0.3, auto_augment='v0r-mstd0.5'),
    'half': dict(mixup=Mixup(mode='half', **MIX)),
    'sizes': dict(input_size_choices=[24, 32, 48], batch_size_choices=[12, 8, 4], batch_choice_schedule='progressive',
                  batch_schedule_epochs=2, auto_augment='original'),
}


@pytest.fixture(scope='module')
def dataset(samples): return ImageDataset(samples, split='val')


def training(dataset, **settings):
    return create_loader(dataset, **{**dict(input_size=32, batch_size=8, is_training=True, seed=3, device='cpu'), **settings})


def epochs(loader, count=2): return [[tuple(t.clone() for t in batch) for batch in loader] for _ in range(count)]


def assert_same(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b): assert all(map(torch.equal, one, other)) and len(one) == len(other) == 2


@pytest.mark.parametrize('name', few(SETTINGS, 'elements'))
def test_same_batches_whoever_computes_them(dataset, name):
    reference = epochs(training(dataset, **SETTINGS[name], **INLINE))
    assert not torch.equal(reference[0][0][0][:2], reference[1][0][0][:2]) and len(reference[0]) == len(reference[1])
    for other in (THREADS, dict(THREADS, use_prefetcher=False), *([PROCESSES] if name in ('augmix', 'sizes', 'elements') else [])):
        for one, again in zip(reference, epochs(training(dataset, **SETTINGS[name], **other)), strict=True): assert_same(one, again)


@pytest.mark.parametrize('name', few(SETTINGS, 'sizes'))
def test_a_run_that_stopped_goes_on(dataset, name):
    loader, resumed = training(dataset, **SETTINGS[name], **INLINE), training(dataset, **SETTINGS[name], **THREADS)
    whole = epochs(loader, 1)[0]
    loader.set_epoch(0)
    assert_same([tuple(t.clone() for t in batch) for batch in islice(loader, 3)], whole[:3])
    resumed.load_state_dict(loader.state_dict())
    assert_same(epochs(resumed, 1)[0], whole[3:])


@pytest.mark.parametrize('name', ['rand', '3a'])
def test_pixels_are_the_record_applied_by_pillow(dataset, name):
    "Crop, resize, flip, the policy's steps, colors: what replay says was drawn gives the batch's pixels."
    settings = {**SETTINGS[name], 're_prob': 0.}
    loader = training(dataset, backend='pillow', interpolation='random', color_jitter_mode='exact', **settings, **INLINE)
    replayed, policy = loader.replay(0, 1), loader.loader.builder.sample_loader.params.policy
    assert sum(bool(host.ops) for host in replayed.sample_params) > 2
    mean, std = (torch.tensor(v).view(3, 1, 1) * 255 for v in (loader.mean, loader.std))
    for image, key, host, device in zip(replayed.batch[0], replayed.keys, replayed.sample_params, replayed.appearance_params):
        top, left, height, width = host.crop
        photo = dataset[key.index][0].convert('RGB').crop((left, top, left + width, top + height))
        photo = photo.resize(host.size[::-1], {'bilinear': 2, 'bicubic': 3}[host.interpolation])
        if device.hflip: photo = F.hflip(photo)
        pixels = F.pil_to_tensor(apply_color(policy.apply(photo, host.ops), device.color)).float()
        assert torch.allclose(image * std + mean, pixels, atol=1e-3)


def test_augmix_dataset_asks_for_views(dataset):
    ours, wrapped = (training(d, auto_augment='augmix-m5', **s, **INLINE)
                     for d, s in ((dataset, dict(num_aug_splits=2)), (AugMixDataset(dataset, 2), {})))
    assert_same(list(ours), list(wrapped))


def test_erasing_spares_clean_views_only_if_asked(dataset):
    for re_split, is_clean in ((True, True), (False, False)):
        images, _ = next(iter(training(dataset, num_aug_splits=2, color_jitter=None, re_prob=1., re_split=re_split, **INLINE)))
        plain, _ = next(iter(training(dataset, color_jitter=None, **INLINE)))
        assert torch.equal(images[:8], plain) == is_clean and not torch.equal(images[8:], plain)


def test_mixing_stops_at_once(dataset):
    for loader in (training(dataset, mixup=Mixup(**MIX), **THREADS), training(dataset, collate_fn=FastCollateMixup(**MIX), **THREADS)):
        batches = iter(loader)
        mixed = [next(batches)[1] for _ in range(3)]
        assert any(((t > 0.15) & (t < 0.9)).any() for t in mixed)
        loader.mixup_enabled = False
        for _, targets in batches: assert torch.allclose(targets.max(1).values, torch.tensor(0.9 + 0.01))
        assert not loader.mixup_enabled


def test_mixing_is_that_of_the_plain_batch(dataset):
    "What a mixed batch is, computed with the mixer from the batch of the loader that does not mix."
    mixup = Mixup(mode='elem', **MIX)
    mixed, plain = training(dataset, mixup=mixup, **INLINE), training(dataset, **INLINE)
    for k, ((images, targets), (own, classes)) in enumerate(zip(mixed, plain, strict=True)):
        expected = mixup.apply(own, classes, mixed.replay(0, k).mix_params)
        assert torch.equal(images, expected[0]) and torch.equal(targets, expected[1])


def test_dense_targets_are_mixed(samples):
    dense = ImageDataset(samples, split='val', target_transform=lambda t: torch.nn.functional.one_hot(torch.tensor(t), 10).float())
    images, targets = next(iter(training(dense, mixup=Mixup(label_smoothing=0., multi_label=True, **MIX), **INLINE)))
    assert targets.shape == (8, 10) and torch.allclose(targets.sum(1), torch.ones(8))


def test_sizes_follow_the_plan_on_every_rank(dataset):
    settings = {**SETTINGS['sizes'], 'batch_choice_schedule': 'constant'}
    seen = {tuple(images.shape) for images, _ in training(dataset, **settings, **THREADS)}
    assert {(12, 3, 24, 24), (8, 3, 32, 32), (4, 3, 48, 48)} & seen and len(seen) > 1
    indexes = []
    loader = training(dataset, **settings, **INLINE)
    for k in range(len(loader)): indexes += [key.index for key in loader.replay(0, k).keys]
    assert len(indexes) == len(set(indexes)) > len(dataset) - 4


@pytest.mark.parametrize('name', few(['augmix', 'repeats', 'mixup'], 'augmix'))
def test_buffered_batches_are_the_same(dataset, name):
    plain = epochs(training(dataset, **SETTINGS[name], **INLINE), 1)[0]
    loader = training(dataset, buffer=dict(batches=4), **SETTINGS[name], **INLINE)
    try: assert_same(epochs(loader, 1)[0], plain)
    finally: loader.loader.close()


@pytest.mark.parametrize('name', few(list_recipes(), num=3))
def test_recipes_run(dataset, name):
    recipe = get_recipe(name, num_classes=10)
    if 'views' in recipe.train:
        images, targets = next(iter(create_loader(dataset, batch_size=6, seed=0, device='cpu', **recipe.train, **THREADS)))
        assert len(targets) == 6 and [len(one) for one in images] == [6 * view.count for view in recipe.train['views']]
        assert all(one.isfinite().all() for one in images)
    else:
        train = create_loader(dataset, batch_size=6, seed=0, device='cpu', **{**recipe.train, 'input_size': 32}, **THREADS)
        images, targets = next(iter(train))
        assert images.shape[2:] == (32, 32) and images.isfinite().all() and ('mixup' in recipe.train) == (targets.ndim == 2)
        assert len(images) == 6 * recipe.train.get('num_aug_splits', 1)
    images, targets = next(iter(create_loader(dataset, batch_size=4, device='cpu', **{**recipe.eval, 'input_size': 32}, **INLINE)))
    assert images.shape == (4, 3, 32, 32) and targets.shape == (4,)


# ---- what goes together, and what users bring

class Drawing(torch.utils.data.Dataset):
    "A data set that draws: another gray each time, from Python's generator."
    def __len__(self): return 8
    def __getitem__(self, index): return Image.new('RGB', (20, 20), (random.randrange(256),) * 3), index


class Stripes(Policy):
    "A policy of a user's, with a record of its own and numbers from the global generator."
    def __init__(self, width=2): self.width = width
    def draw(self, rng): return rng.random()
    def apply(self, image, drawn):
        image = image.copy()
        image.paste((int(255 * drawn), random.randrange(256), 0), (0, 0, self.width, image.height))
        return image


def halve(image): return F.pil_to_tensor(image.resize((16, 16))).float() / 255


def test_repeats_by_a_sampler_of_this_library_differ_on_each_rank(dataset):
    def pixels(rank):
        sampler = RepeatAugSampler(range(12), 2, rank, num_repeats=2, seed=0)
        subset = torch.utils.data.Subset(dataset, range(12))
        return torch.cat([images for images, _ in training(subset, batch_size=6, sampler=sampler, num_aug_repeats=0, **INLINE)])
    ranks = [pixels(rank) for rank in (0, 1)]
    keys = [list(RepeatAugSampler(range(12), 2, rank, num_repeats=2, seed=0).keys(0)) for rank in (0, 1)]
    assert [key.index for key in keys[0]] == [key.index for key in keys[1]] and not torch.equal(*ranks)


@pytest.mark.parametrize('settings', [INLINE, PROCESSES], ids=str)
def test_views_are_of_one_picture_also_where_the_data_set_draws(settings):
    images, _ = next(iter(training(Drawing(), batch_size=4, num_aug_splits=3, color_jitter=None, **settings)))
    first, second, third = images.split(4)
    assert torch.equal(first, second) and torch.equal(first, third) and len(set(first[:, 0, 0, 0].tolist())) > 1


def test_a_sample_is_read_once_for_all_its_views_and_skipped_with_them(dataset):
    class Counted:
        reads, class_to_idx, is_thread_safe = [], dataset.class_to_idx, True
        def __len__(self): return 8
        def filename(self, index, *args, **kwargs): return f'{index}.jpg'
        def __getitem__(self, index):
            self.reads.append(index)
            if index == 2: raise OSError('gone')
            return dataset.reader[index][0], index
    counted = ImageDataset(dataset.root, reader=Counted(), on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        images, targets = next(iter(training(counted, batch_size=4, num_aug_splits=3, shuffle=False, **INLINE)))
    assert targets.tolist() == [0, 1, 3] * 3 and len(images) == 9 and Counted.reads == [0, 1, 2, 3]
    whole = training(dataset, batch_size=4, num_aug_splits=3, shuffle=False, **INLINE)
    assert torch.equal(images, next(iter(whole))[0][[0, 1, 3, 4, 5, 7, 8, 9, 11]])


def test_mixing_by_a_collate_function_belongs_to_the_seed(dataset):
    settings = dict(input_size=16, transform=halve, mean=None, std=None, use_prefetcher=False)
    runs = [epochs(training(dataset, collate_fn=FastCollateMixup(**MIX), **settings, **workers), 1)[0]
            for workers in (INLINE, INLINE, PROCESSES)]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])
    through = epochs(training(dataset, collate_fn=FastCollateMixup(**MIX), **{**settings, 'use_prefetcher': True}, **THREADS), 1)[0]
    assert len(through) == len(runs[0]) and through[0][1].shape == (8, 10)


def test_a_schedule_is_the_same_setting_for_any_number_of_ranks():
    plans = [create_batch_schedule(EpochSampler(range(100), num_replicas=ranks), 8, [24, 32], batch_choice_schedule='progressive',
                                   batch_schedule_epochs=3) for ranks in (1, 2)]
    assert repr(plans[0]) == repr(plans[1]) and len(plans[0]) != len(plans[1])


def test_a_policy_of_the_users(dataset):
    loader, other = (training(dataset, auto_augment=Stripes(), **workers) for workers in (INLINE, PROCESSES))
    whole = epochs(loader, 1)[0]
    assert_same(whole, epochs(other, 1)[0])
    loader.set_epoch(0)
    next(iter(loader))
    resumed = training(dataset, auto_augment=Stripes(), num_workers=1)   # processes: threads share its generator
    resumed.load_state_dict(loader.state_dict())
    assert_same(epochs(resumed, 1)[0], whole[1:])
    assert resumed.loader.workers.worker_type == 'processes'
    with pytest.raises(ValueError, match='auto_augment was Stripes'): training(
        dataset, auto_augment=Stripes(3), **INLINE).load_state_dict(loader.state_dict())
    assert show_replay(loader, 0, 0, num_images=2).axes


def test_a_policy_keeps_the_size(dataset):
    class Shrinks(Stripes):
        def apply(self, image, drawn): return image.resize((5, 5))
    with pytest.raises(ValueError, match='Shrinks changed .*RGB .5, 5.'): next(iter(training(dataset, auto_augment=Shrinks(), **INLINE)))


def test_replay_tells_the_mixing_of_workers(dataset):
    loader = training(dataset, mixup=Mixup(mode='half', **MIX), use_prefetcher=False, **INLINE)
    images, targets = next(iter(loader))
    replayed = loader.replay(0, 0)
    assert torch.equal(replayed.batch[0], images) and len(replayed.mix_params.lam) == len(images) == 4
    assert len(show_replay(loader, 0, 0, num_images=8).axes) == 8   # four pairs


def test_the_switch_reaches_worker_processes_without_a_prefetcher(dataset):
    loader = training(dataset, mixup=Mixup(**MIX), use_prefetcher=False, **PROCESSES)
    assert loader.mixup_enabled and any(((t > 0.15) & (t < 0.9)).any() for _, t in loader)
    loader.mixup_enabled = False
    assert all(torch.allclose(t.max(1).values, torch.tensor(0.91)) for _, t in loader)
