"Compare sequences of patches with whole images, loops over tokens, torchvision's flips, and loaders with other workers."
import math

import numpy as np
import pytest
import torch
from appearance import change_at_once, columns_of, numbers_for
from grids import full, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from timmdata import (
    ImageDataset,
    Mixup,
    NaFlex,
    NaFlexMixup,
    View,
    create_loader,
    create_naflex_loader,
    patchify_image,
    show_batch,
    show_replay,
    write_pack,
)
from timmdata.datasets.image_sizes import image_sizes
from timmdata.pipeline.batch_transform import BatchTransformSettings
from timmdata.pipeline.colors import color_matrices
from timmdata.pipeline.params import AppearanceParams
from timmdata.pipeline.patches import PatchBatchTransform, TokensByImage, change_tokens, describe_tokens, image_of_patches
from timmdata.samplers.keys import SampleKey
from timmdata.transforms.naflex_transforms import get_image_size_for_seq

pytestmark = pytest.mark.timeout(180)
STATISTICS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MODES = 'schedule', 'native', 'packed'
LENGTHS = dict(train_seq_lens=(32, 64, 128), max_seq_len=96)


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    "Return 36 images of many shapes in three classes."
    root, rng = tmp_path_factory.mktemp('shapes'), np.random.default_rng(0)
    for index in range(36):
        height, width = rng.integers(20, 260, 2)
        folder = root/f'class{index % 3}'
        folder.mkdir(exist_ok=True)
        rough = Image.fromarray(rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8))
        rough.resize((int(width), int(height))).save(folder/f'{index:02}.jpg', quality=90)
    return root


def loader_of(data, mode='schedule', naflex=None, **given):
    words = dict(batch_size=6, is_training=True, seed=3, device='cpu', num_workers=0, drop_last=False)
    if not given.get('use_prefetcher', True): del words['device']
    data = ImageDataset(data) if not hasattr(data, '__getitem__') else data
    return create_loader(data, naflex=NaFlex(mode=mode, **{**LENGTHS, **(naflex or {})}), **{**words, **given})


def kept(loader) -> list:
    return [({name: value.clone() if torch.is_tensor(value) else value for name, value in batch.items()}, targets.clone())
            for batch, targets in loader]


def equal(some, others) -> bool:
    def same(a, b): return torch.equal(a, b) if torch.is_tensor(a) else a == b
    return len(some) == len(others) and all(
        torch.equal(targets, other_targets) and batch.keys() == other.keys() and all(same(batch[k], other[k]) for k in batch)
        for (batch, targets), (other, other_targets) in zip(some, others, strict=True))


def images_of(batch) -> list[torch.Tensor]:
    "Return the images of a batch in order, in any format."
    tokens = batch['patches'][batch['patch_valid']]
    grids = batch['grid_sizes'].tolist()
    parts = tokens.split([down * across for down, across in grids])
    return [image_of_patches(part.view(len(part), -1, 3), grid, (16, 16)) for part, grid in zip(parts, grids)]


# the batches

@pytest.mark.parametrize('mode', MODES)
@quick(1, 'given', [
    dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes'), dict(use_prefetcher=False),
    dict(num_workers=1, worker_type='processes', use_prefetcher=False)],
    ids=['threads', 'processes', 'no prefetcher', 'processes, no prefetcher'])
def test_batches_do_not_depend_on_who_makes_them(photos, mode, given):
    words = dict(mixup=NaFlexMixup(num_classes=3), re_prob=0.5, re_mode='pixel', color_jitter=(0.4, 0.4, 0.4, 0.1))
    assert equal(kept(loader_of(photos, mode, **words)), kept(loader_of(photos, mode, **words, **given)))


@full
def test_decoded_images_may_be_kept(photos):
    for mode in MODES: assert equal(
        kept(loader_of(photos, mode, cache='memory')), kept(loader_of(photos, mode, scaled_decode=False)))


@quick(2, 'mode', MODES)
@quick(1, 'is_training', [True, False])
def test_a_run_resumes_anywhere_and_batches_are_made_again(photos, mode, is_training):
    words = dict(is_training=is_training, re_prob=0.5 if is_training else 0., num_workers=2)
    whole = kept(loader_of(photos, mode, **words))
    assert sum(len(targets) for _, targets in whole) == 36
    for stop in range(0, len(whole), 2):
        loader = loader_of(photos, mode, **words)
        for number, _ in enumerate(loader):
            if number == stop: break
        again = loader_of(photos, mode, **{**words, 'num_workers': 0})
        again.load_state_dict(loader.state_dict())
        rest = kept(again)   # after the last batch, the next epoch begins
        assert equal(rest, whole[stop + 1:]) or stop == len(whole) - 1
        replay = loader.replay(0, stop)
        assert equal([replay.batch], whole[stop:stop + 1])
        grids = [[size[0] // 16, size[1] // 16] for size in (drawn.size for drawn in replay.sample_params)]
        assert grids == whole[stop][0]['grid_sizes'].tolist()


@quick(1, 'mode', MODES)
def test_the_next_epoch_has_other_crops_and_set_epoch_goes_back(photos, mode):
    loader = loader_of(photos, mode)
    first, second = kept(loader), kept(loader)
    assert not equal(first, second)
    loader.set_epoch(0)
    assert equal(kept(loader), first)


def test_images_are_the_same_in_all_forms_of_batches(photos):
    "Native and packed batches have bit-identical images, in training and in evaluation."
    for is_training in (True, False):
        found = {}
        for mode in ('native', 'packed'):
            loader = loader_of(photos, mode, is_training=is_training, num_workers=2)
            for host in loader.loader.host_batches():
                batch, _ = loader.batch_transform.on_batch(host.batch, host.keys)
                for key, image in zip(host.keys, images_of(batch)): found.setdefault(key.index, []).append(image)
        assert len(found) == 36 and all(torch.equal(*pair) for pair in found.values())


@quick(1, 'patch_size', [16, 14, (8, 16)])
def test_in_evaluation_pixels_are_those_of_the_resized_image(photos, patch_size):
    height, width = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
    data, seen = ImageDataset(photos), 0
    loader = loader_of(photos, naflex=dict(patch_size=patch_size), is_training=False, backend='pillow', mean=0., std=1.)
    for batch, _ in loader:
        for patches, valid, coord in zip(batch['patches'], batch['patch_valid'], batch['patch_coord']):
            image = data[seen][0]
            size = get_image_size_for_seq(image.size[::-1], patch_size, 96)[1]
            pixels = torch.from_numpy(np.array(image.resize(size[::-1], Image.Resampling.BILINEAR))).permute(2, 0, 1)
            expected, where, _ = patchify_image(pixels, (height, width))
            assert torch.equal((patches[valid] * 255).round().to(torch.uint8), expected)
            assert torch.equal(coord[valid], where) and not coord[~valid].any() and not patches[~valid].any()
            seen += 1
    assert seen == 36


def test_native_enlarges_nothing_and_keeps_to_the_longest(photos):
    sizes = image_sizes(ImageDataset(photos))
    grids = torch.cat([batch['grid_sizes'] for batch, _ in loader_of(photos, 'native', is_training=False, num_workers=0)])
    assert grids.prod(1).max() <= 96 and len(grids) == 36
    own = np.ceil(sizes / 16).prod(1)
    assert sorted(grids.prod(1).tolist())[:12] == sorted(own.astype(int).tolist())[:12]   # those that are small enough


@pytest.mark.parametrize('mode', ['native', 'packed'])
@quick(1, 'patch_size', [16, (8, 14)], ids=str)
@quick(1, 'given', [{}, dict(scale=(0.5, 3.), ratio=(0.3, 2.)), dict(scale=(1., 1.), ratio=(1.5, 2.))],
                         ids=['default', 'large', 'never fits'])
def test_in_training_a_crop_keeps_its_own_size(photos, mode, patch_size, given):
    "It becomes the patches that cover it, or as many as fit in the longest sequence, and its slot has exactly this length."
    height, width = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
    loader = loader_of(photos, mode, dict(patch_size=patch_size, train_seq_lens=(9, 30, 60)), num_aug_repeats=2, **given)
    crops, is_random = [], set()
    for epoch in range(2):
        loader.set_epoch(epoch)
        for number in range(len(loader)):
            replay = loader.replay(epoch, number)
            ends = 0
            for key, drawn, grid in zip(replay.keys, replay.sample_params, replay.batch[0]['grid_sizes'].tolist()):
                own = math.ceil(drawn.crop[2] / height), math.ceil(drawn.crop[3] / width)
                assert drawn.size == (grid[0] * height, grid[1] * width)
                if math.prod(own) <= 60: assert tuple(grid) == own
                else: assert math.prod(grid) <= 60 and grid[0] <= own[0] and grid[1] <= own[1]
                if mode == 'packed':   # rows are full but for their ends
                    assert key.bucket == ends or key.bucket % loader.batch_transform.row_len == 0
                    ends = key.bucket + math.prod(grid)
                crops.append(drawn.crop)
                is_random.add((key.epoch, key.view))
    assert len(crops) >= 2 * 36 and len(is_random) == 4
    if not given: assert len(set(crops)) == len(crops)


@pytest.mark.parametrize('mode', ['native', 'packed'])
def test_a_plan_knows_the_lengths_of_crops_before_pixels(photos, mode):
    "The lengths equal those of the crops that `sample_params` draws, for any samples, epochs and views."
    params = loader_of(photos, mode).batch_transform.params
    rng = np.random.default_rng(0)
    params.sizes = rng.integers(1, 900, (400, 2)).astype(np.int32)
    for seed, epoch in (3, 0), (-7, 2**40):
        indexes, views = rng.integers(0, 400, 700), rng.integers(0, 3, 700)
        keys = [SampleKey(int(index), epoch, int(view), seed=seed) for index, view in zip(indexes, views)]
        drawn = [params.sample_params(*params.sizes[key.index].tolist(), key).size for key in keys]
        expected = [height // 16 * (width // 16) for height, width in drawn]
        assert params.lengths(seed, epoch, indexes, views).tolist() == expected


@quick(1, 'mode', ['native', 'packed'])
def test_another_image_than_was_planned_fits_in_its_room(photos, mode):
    "Some sizes are wrong, as for substitutes: nothing overlaps, and the other images do not change."
    sizes = image_sizes(ImageDataset(photos))
    wrong = sizes.copy()
    wrong[::3] = 40
    batches = kept(loader_of(photos, mode, dict(image_sizes=wrong), num_workers=2))
    assert sum(len(targets) for _, targets in batches) == 36
    for batch, _ in batches:
        assert int(batch['grid_sizes'].prod(1).sum()) == int(batch['patch_valid'].sum())
        if mode == 'packed': assert batch['cu_seqlens'].diff().tolist() == batch['grid_sizes'].prod(1).tolist()
    right, made = (loader_of(photos, mode, dict(image_sizes=which)) for which in (sizes, wrong))
    for index in range(36):
        one, other = (loader.replay(1, index=index).sample_params[0] for loader in (right, made))
        assert one == other if index % 3 else math.prod(other.size) <= 9 * 256 and other.crop == one.crop


@quick(1, 'is_turned', [True, False])
def test_crops_of_turned_images_are_planned_as_they_are_drawn(tmp_path, is_turned):
    for index in range(8):
        (tmp_path/'class').mkdir(exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = (1, 6, 8, 3)[index % 4]   # orientation
        Image.new('RGB', (150 + index, 60)).save(tmp_path/'class'/f'{index}.jpg', exif=exif)
    loader = loader_of(ImageDataset(tmp_path, split=None, exif_transpose=is_turned), 'packed')
    for number in range(len(loader)):
        for drawn in loader.replay(0, number).sample_params:
            assert drawn.size == tuple(16 * math.ceil(edge / 16) for edge in drawn.crop[2:])


@full
def test_in_a_loop_the_length_is_that_of_the_pass(photos):
    for arguments in dict(use_prefetcher=False), dict(num_workers=2), {}:
        loader, lengths = loader_of(photos, 'packed', dict(train_seq_lens=(64,)), batch_size=1, **arguments), []
        for _ in range(4):
            length = len(loader)   # before it begins, as trainers ask
            seen = [(len(loader), loader.num_valid) for _ in loader]
            assert seen == [(length, 36)] * length
            lengths.append(length)
        assert len(set(lengths)) > 1   # crops differ in size
        for _ in loader: break
        assert len(loader) == len(kept(loader))   # after a break, the next one counts
        for _ in loader:
            loader.set_epoch(0)
            assert len(loader) == lengths[0]   # of the epoch that was chosen
            break


@pytest.mark.parametrize('mode, shapes', [('schedule', {(24, 32), (8, 64), (6, 128)}), ('native', {(24, 32), (8, 64), (6, 128)}),
                                          ('packed', {(1, 512)})])
def test_full_batches_have_one_of_a_few_shapes(photos, mode, shapes):
    naflex = dict(batch_divisor=2) if mode != 'packed' else {}
    found = {tuple(batch['patches'].shape[:2]) for batch, _ in loader_of(photos, mode, naflex, drop_last=True)}
    buckets = NaFlex(mode=mode, **LENGTHS, **naflex).buckets(6, True)
    assert found <= {(bucket.num_rows, bucket.seq_len) for bucket in buckets} and found
    assert {length for _, length in shapes} == {bucket.seq_len for bucket in buckets}


def test_pad_multiple_rounds_lengths_up(photos):
    for mode in MODES:
        for batch, _ in loader_of(photos, mode, dict(pad_multiple=48)):
            assert batch['seq_len'] % 48 == 0 and batch['patch_valid'].sum(1).max() <= (128 if mode != 'packed' else 10**6)


def test_an_epoch_may_have_a_budget_of_tokens(photos):
    for mode in MODES:
        found = kept(loader_of(photos, mode, dict(tokens_per_epoch=1100), drop_last=True))
        assert found and sum(batch['patch_valid'].numel() for batch, _ in found) <= 1100


def test_patch_sizes_are_chosen_for_each_batch(photos):
    loader = loader_of(photos, naflex=dict(patch_size_choices=(8, 16), patch_size_choice_probs=(1, 3)), batch_size=3)
    shapes = {tuple(batch['patches'].shape[2:]) for _ in range(3) for batch, _ in loader}
    assert shapes == {(8, 8, 3), (16, 16, 3)}


def test_channels_come_first_or_last(photos):
    first, last = (loader_of(photos, naflex=dict(patch_size=(8, 16), patchify_channels_last=last)) for last in (False, True))
    for (a, _), (b, _) in zip(first, last, strict=True):
        assert torch.equal(a['patches'].unflatten(2, (3, 128)).transpose(2, 3).flatten(2), b['patches'])


@quick(2, 'mode', MODES)
def test_ranks_share_an_epoch(photos, mode, monkeypatch):
    seen = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, 'get_world_size', lambda: 2)
        monkeypatch.setattr(torch.distributed, 'get_rank', lambda rank=rank: rank)
        loader = loader_of(photos, mode, distributed=True, valid_mask=True)
        hosts = list(loader.loader.host_batches())
        assert len(hosts) == len(loader)
        assert [host.batch[-1].tolist() for host in hosts] == [[key.valid for key in host.keys] for host in hosts]
        seen += [key.index for host in hosts for key in host.keys if key.valid]
    if mode == 'schedule': assert len(seen) == 36
    assert sorted(set(seen)) == list(range(36)) and len(seen) == 36


@quick(2, 'mode', MODES)
def test_what_cannot_be_read_is_replaced_or_left_out(photos, mode, tmp_path):
    for path in sorted(photos.rglob('*.jpg')):
        folder = tmp_path/path.parent.name
        folder.mkdir(exist_ok=True)
        (folder/path.name).write_bytes(path.read_bytes())
    (tmp_path/'class1'/'13.jpg').write_bytes(b'no image')
    with pytest.raises(OSError, match='13.jpg'): kept(loader_of(tmp_path, mode))
    replaced = kept(loader_of(ImageDataset(tmp_path, on_error='replace'), mode))
    assert sum(len(targets) for _, targets in replaced) == 36   # never a smaller batch
    skipped = kept(loader_of(ImageDataset(tmp_path, on_error='skip'), mode, num_workers=2))
    assert sum(len(targets) for _, targets in skipped) == 35
    for batch, targets in skipped:
        assert len(targets) == len(batch['grid_sizes']) and int(batch['grid_sizes'].prod(1).sum()) == int(batch['patch_valid'].sum())


@full
def test_sizes_come_from_the_index_of_a_pack(photos, tmp_path):
    write_pack(ImageDataset(photos), tmp_path/'pack', seed=1)
    packed = ImageDataset(tmp_path/'pack')
    data = ImageDataset(photos)
    assert np.array_equal(packed.reader.image_sizes, image_sizes(data))
    assert np.array_equal(image_sizes(packed), image_sizes(data))
    assert np.array_equal(image_sizes(ConcatDataset([Subset(packed, [5, 2]), data])), image_sizes(data)[[5, 2, *range(36)]])
    assert equal(kept(loader_of(packed, 'native')), kept(loader_of(data, 'native')))


@pytest.mark.parametrize('words, error, message', [
    (dict(input_size=224), ValueError, 'naflex and input_size .*max_seq_len=…, train_seq_lens=…'),
    (dict(input_size=(1, 64, 64)), ValueError, 'naflex and input_size .*one value of mean and std for each'),
    (dict(views=[View(64)]), ValueError, 'views'), (dict(buffer='1GB'), ValueError, 'buffer'),
    (dict(num_aug_splits=2), ValueError, 'num_aug_splits'), (dict(transform=lambda image: image), ValueError, 'transform'),
    (dict(cache='device'), ValueError, 'cache'), (dict(mixup=Mixup(num_classes=3)), TypeError, 'NaFlexMixup'),
    (dict(train_crop_mode='rkrc'), ValueError, 'train_crop_mode'), (dict(pad_last=True, drop_last=None), ValueError, 'pad_last')])
def test_what_cannot_be_had_together_is_refused(photos, words, error, message):
    with pytest.raises(error, match=message): loader_of(photos, **words)


@quick(1, 'mode', MODES)
def test_a_state_of_other_sequences_says_which(photos, mode):
    was, now = (create_loader(ImageDataset(photos), batch_size=2, is_training=True, num_workers=0, device='cpu',
                              naflex=NaFlex(mode=mode, train_seq_lens=lengths)) for lengths in ((64,), (64, 81)))
    with pytest.raises(ValueError, match=r'naflex was NaFlex\(train_seq_lens=\(64,\).*, is NaFlex\(train_seq_lens=\(64, 81\)'):
        now.load_state_dict(was.state_dict())


def test_the_seed_decides_the_plan_of_lengths_and_a_state_brings_it(photos):
    def planned(loader): return [batch['seq_len'] for batch, _ in loader]
    def seeded(seed): return loader_of(photos, seed=seed, is_training=True)
    plans = [planned(seeded(seed)) for seed in (1, 1, 2, 3)]
    assert plans[0] == plans[1] and not plans[0] == plans[2] == plans[3]
    begun, fresh = seeded(None), seeded(None)
    batches = iter(begun)
    next(batches)
    fresh.load_state_dict(begun.state_dict())
    assert planned(fresh) == [batch['seq_len'] for batch, _ in batches]
    before = seeded(None)
    object.__setattr__(before.loader.batches.schedule.settings, 'seed', 0)   # as plans were until the seed reached them
    with pytest.raises(ValueError, match='the state belongs to other settings: schedule'):
        seeded(None).load_state_dict(before.state_dict())


def test_colors_of_other_channels_are_refused(photos):
    with pytest.raises(ValueError, match='4-channel images .*color_jitter=None'):
        create_loader(ImageDataset(photos), batch_size=4, is_training=True, naflex=NaFlex(), mean=[0.5] * 4, std=[0.5] * 4)


@pytest.mark.parametrize('channels', [1, 4])
def test_the_number_of_channels_is_that_of_mean_and_std(channels):
    "As with timm's `channels`, whose statistics are for three channels."
    images = [(torch.full((channels, 32, 32), 51 * k, dtype=torch.uint8), 0) for k in range(4)]
    words = dict(batch_size=2, naflex=NaFlex(patch_size=16, max_seq_len=4), num_workers=0, device='cpu')
    ours = create_loader(images, mean=[0.] * channels, std=[1.] * channels, **words)
    timms = create_naflex_loader(images, 16, batch_size=2, max_seq_len=4, channels=channels, mean=0., std=1., num_workers=0, device='cpu')
    for (batch, _), (other, _) in zip(ours, timms, strict=True):
        assert batch['patches'].shape[-1] == 16 * 16 * channels and torch.equal(batch['patches'], other['patches'])


def test_small_batches_are_not_cut_to_a_multiple():
    assert [bucket.num_rows for bucket in NaFlex(train_seq_lens=(32, 128)).buckets(4, True)] == [16, 4]   # timm: 16 and 1
    assert [bucket.num_rows for bucket in NaFlex(train_seq_lens=(32, 128)).buckets(9, True)] == [32, 8]


@full
def test_pictures(photos):
    import matplotlib
    matplotlib.use('agg')
    for mode in MODES:
        loader = loader_of(photos, mode, dict(patchify_channels_last=False))
        assert len(show_batch(loader, n=3).axes) >= 3
        with pytest.raises(TypeError, match='cannot draw patches: use show_batch'): show_replay(loader, 0, 0)


# on the device

@st.composite
def batches(draw):
    "Yield tokens of several documents with gaps, as in a packed batch, and the expected result for each."
    pixels, channels = draw(st.sampled_from([(4, 3), (6, 1), (9, 3)]))
    documents, first = [], draw(st.integers(0, 2))
    for _ in range(draw(st.integers(1, 4))):
        down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        documents.append([first, down, across, 1, pixels])
        first += down * across + draw(st.integers(0, 2))
    num = math.ceil(first / 2)
    tokens = torch.randint(256, (2, num, pixels, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(first))
    looks = [AppearanceParams(color=tuple(draw(st.lists(st.tuples(
        st.sampled_from(['brightness', 'contrast', 'saturation', 'hue', 'grayscale']), st.floats(-0.3, 0.3)), max_size=3))),
        solarize=draw(st.booleans())) for _ in documents]
    looks = [look._replace(color=tuple((name, 0. if name == 'grayscale' else value if name == 'hue' else 1 + value)
                                       for name, value in look.color)) for look in looks]
    return tokens, np.array(documents, np.int32), looks


@settings(max_examples=60, deadline=None)
@given(batches())
def test_tokens_change_as_images_do(drawn):
    tokens, documents, looks = drawn
    mean, std = (part[:tokens.shape[-1]] for part in STATISTICS)
    coord, valid, number = describe_tokens(torch.from_numpy(documents).long(), tokens.shape[:2])
    at_once = change_tokens(tokens, number, numbers_for(looks, mean, std))
    columns = columns_of(looks)
    colors = color_matrices(columns, len(mean))
    by_image = TokensByImage(BatchTransformSettings(mean, std))(tokens, documents, columns, colors)
    assert torch.allclose(at_once, by_image, atol=5e-5)
    black, flat = torch.tensor(mean).neg() / torch.tensor(std), by_image.flatten(0, 1)
    assert torch.allclose(by_image[~valid], black.expand_as(by_image[~valid]), atol=1e-6)
    for (first, down, across, *_), look in zip(documents.tolist(), looks):
        last = first + down * across
        image = tokens.flatten(0, 1)[first:last].permute(2, 0, 1)[None].contiguous()   # a line for each patch
        expected = change_at_once(image, [look], mean, std)[0].permute(1, 2, 0)
        assert torch.allclose(flat[first:last], expected, atol=5e-5)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_tokens_are_described_as_by_a_loop(drawn):
    tokens, documents, _ = drawn
    coord, valid, number = (part.flatten(0, 1).tolist() for part in describe_tokens(
        torch.from_numpy(documents).long(), tokens.shape[:2]))
    expected = {}
    for k, (first, down, across, *_) in enumerate(documents.tolist()):
        for y in range(down):
            for x in range(across): expected[first + y * across + x] = [y, x], True, k + 1
    assert [(c, v, n) for c, v, n in zip(coord, valid, number)] == [
        expected.get(token, ([0, 0], False, 0)) for token in range(len(valid))]


@quick(2, 'mode', MODES)
def test_mixing_and_erasing_are_those_of_the_transforms(photos, mode):
    mixup = NaFlexMixup(num_classes=3, mixup_alpha=0.4)
    loader = loader_of(photos, mode, mixup=mixup, re_prob=1., re_mode='const')
    plain = PatchBatchTransform(loader.batch_transform.settings, loader.batch_transform.params,
                                row_len=loader.batch_transform.row_len)
    for host in loader.loader.host_batches():
        before, targets = plain.on_batch(host.batch, host.keys)
        after, mixed = loader.batch_transform.on_batch(host.batch, host.keys)
        drawn = loader.batch_transform.draw(host.batch[0], host.keys)
        mixing, erased = drawn.mixing, drawn.pieces
        expected = mixup.apply_images(images_of(before), mixing)
        for image, seen, pieces in zip(expected, images_of(after), erased):
            patches, *_ = patchify_image(image, (16, 16))
            for piece in pieces: patches[torch.as_tensor(piece)] = 0.
            assert torch.allclose(patchify_image(seen, (16, 16))[0], patches, atol=1e-6)
        assert torch.equal(mixed, mixup.apply_target(targets, mixing))


def test_flips_are_those_of_images(photos):
    plain, flipped = (loader_of(photos, hflip=flip, vflip=flip, color_jitter=None) for flip in (0., 1.))
    for (a, _), (b, _) in zip(plain, flipped):
        for before, after in zip(images_of(a), images_of(b)): assert torch.equal(before.flip(1, 2), after)


def test_types_of_numbers(photos):
    full, half = (kept(loader_of(photos, 'native', img_dtype=dtype)) for dtype in (torch.float32, torch.bfloat16))
    for (a, _), (b, _) in zip(full, half): assert torch.equal(a['patches'].bfloat16(), b['patches'])


@pytest.mark.gpu
@pytest.mark.parametrize('mode', MODES)
def test_a_gpu_gives_the_batches_of_a_cpu(photos, mode):
    words = dict(mixup=NaFlexMixup(num_classes=3), re_prob=0.5, num_workers=2)
    for (a, x), (b, y) in zip(loader_of(photos, mode, **words), loader_of(photos, mode, **words, device='cuda')):
        assert torch.allclose(a['patches'], b['patches'].cpu(), atol=1e-4) and torch.equal(x, y.cpu())
        assert torch.equal(a['patch_coord'], b['patch_coord'].cpu())
