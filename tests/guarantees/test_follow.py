"Masks, boxes and points follow their images in whole loaders: images whose colors are their labels, all settings, any workers, any faults."
import csv
import json
import warnings
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from followed import (
    NESTED,
    OUTSIDE,
    TRAIN,
    Broken,
    Endless,
    Noisy,
    OwnGenerator,
    Painted,
    Sample,
    TwoRegions,
    batches,
    box_of,
    copied,
    is_same,
    labels_of,
    paint,
    png,
    read_labels,
    targets_in,
)
from grids import full, quick
from loader_parts import nothing_is_left, run_two_ranks
from PIL import Image
from torch.nn.functional import cross_entropy, max_pool2d
from torch.utils.data import ConcatDataset, DistributedSampler, Subset

from timmdata import Boxes, ImageDataset, IterableImageDataset, Mask, Mixture, Mixup, Points, View, create_loader
from timmdata.core.faults import ImageReadError
from timmdata.transforms.policy import AugmentOp, Policy, draw_all

pytestmark = pytest.mark.timeout(120)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
PROCESSES = dict(num_workers=2, worker_type='processes')
THREADS = dict(num_workers=2, worker_type='threads')
EVAL = dict(is_training=False, vflip=0.)


def differing(some: list) -> int:
    "How many pixels of the images have another label than their mask has."
    return sum((read_labels(images) != masks).sum().item() for images, _, masks in some)


def share_outside(some: list) -> float: return torch.cat([masks for *_, masks in some]).eq(OUTSIDE).float().mean().item()


class Moving(Policy):
    "Operations that move pixels, to the nearest ones, up to four in a row."
    def __init__(self, *names): self.names = names

    def draw(self, rng):
        hparams = dict(interpolation='nearest', img_mean=0, translate_const=9, magnitude_std=3.)
        return draw_all([AugmentOp(name, 0.7, 5, hparams) for name in self.names], rng)


MOVES = [Moving('Rotate'), Moving('ShearX', 'ShearY'), Moving('TranslateX', 'TranslateYRel'), Moving('Rotate', 'ShearX', 'TranslateXRel',
    'Rotate')]
TRAIN_WAYS = [
    dict(train_crop_mode='rrc'), dict(train_crop_mode='rkrc', padding_mode='constant'),
    dict(train_crop_mode='rkrr', padding_mode='constant'),
    dict(train_crop_mode='rc', rc_padding=20), dict(train_crop_mode='rrc', hflip=1., vflip=1.), dict(no_aug=True, hflip=0., vflip=0.),
    dict(train_crop_mode='rkrr', padding_mode='constant', scale=(0.2, 1.), ratio=(0.3, 3.)), dict(input_size_choices=[32, 48, 80]),
    dict(backend='pillow'), dict(color_jitter_mode='exact'), dict(scaled_decode=False), *(dict(auto_augment=policy) for policy in MOVES)]
EVAL_WAYS = [dict(crop_mode=mode, crop_pct=share) for mode in ('center', 'squash', 'border') for share in (0.5, 0.875, 1., 1.4)]


@quick(6, 'way', [*TRAIN_WAYS, *({**EVAL, **way} for way in EVAL_WAYS), {**EVAL, 'crop_border_pixels': 3}], ids=str)
def test_images_and_masks_are_equal_to_the_bit(way):
    "With nearest pixels, each pixel of an image has the color of its label, and black where its mask has the number outside."
    made = batches(Painted(), {2: Mask()}, **{'interpolation': 'nearest', **way})
    assert differing(made) == 0 and len(made) == 6
    assert {masks.dtype for *_, masks in made} == {torch.int64} and all(masks.shape[1:] == images.shape[2:] for images, _, masks in made)
    if 'auto_augment' in way or way.get('crop_pct') == 1.4 or 'rc_padding' in way: assert share_outside(made) > 0.005
    assert len(torch.cat([masks.flatten() for *_, masks in made]).unique()) >= 11


@pytest.mark.parametrize('mode', ['rkrc', 'rkrr', 'rc'])
def test_padding_that_repeats_pixels_is_outside_in_a_mask(mode):
    way = dict(train_crop_mode=mode, padding_mode='reflect', rc_padding=20 * (mode == 'rc'))
    reflected, black = (batches(Painted(), {2: Mask()}, interpolation='nearest', **{**way,
    'padding_mode': padding}) for padding in ('reflect', 'constant'))
    assert is_same([masks for *_, masks in reflected], [masks for *_, masks in black])
    for images, _, masks in reflected:
        off = read_labels(images) != masks
        assert (masks[off] == OUTSIDE).all() and (read_labels(images) != OUTSIDE).all()


@pytest.mark.parametrize('way', [dict(), dict(train_crop_mode='rkrr', padding_mode='constant'), dict(interpolation='bicubic'),
    dict(backend='pillow')], ids=str)
def test_smooth_images_differ_at_edges_only(way):
    "At most 0.05% of the pixels have another label than their color says; each of them is beside one of the other label."
    made = batches(TwoRegions(12), {2: Mask()}, 160, **{'interpolation': 'bilinear', **way})
    wrong = total = 0
    for images, _, masks in made:
        seen = images.mean(1) > 127.5
        off = (seen != masks.eq(1)) & (masks != OUTSIDE)
        white = masks.eq(1).float()
        near = max_pool2d(white, 3, 1, 1) != -max_pool2d(-white, 3, 1, 1)
        assert (near | ~off).all()
        wrong, total = wrong + off.sum().item(), total + off.numel()
    assert wrong <= 0.0005 * total


NEAREST = dict(interpolation='nearest', color_jitter=None)
VIEWS = [View(48, vflip=0.5, **NEAREST), View(32, count=2, scale=(0.05, 0.4), **NEAREST)]


def views_of(dataset, follow, views=VIEWS, **given):
    settings = {name: value for name, value in TRAIN.items() if name not in ('color_jitter', 'vflip')}
    loader = create_loader(dataset, batch_size=4, views=views, follow=follow, **{**settings, **given})
    try: return [copied(batch) for batch in loader]
    finally: loader.close()


def test_each_view_has_a_mask_of_its_own():
    made = views_of(Painted(), {2: Mask()})
    for images, targets, masks in made:
        assert [tuple(one.shape) for one in masks] == [(4, 48, 48), (8, 32, 32)] and targets.shape == (4,)
        for of_view, mask in zip(images, masks, strict=True): assert torch.equal(read_labels(of_view), mask)
    assert is_same(views_of(Painted(), {2: Mask()}, **PROCESSES), made)
    named = views_of(Painted(), {2: Mask()}, dict(zip(('whole', 'part'), VIEWS)))
    for (images, _, masks), (of_names, _, by_name) in zip(made, named, strict=True):
        assert is_same(by_name, dict(zip(('whole', 'part'), masks))) and is_same(of_names, dict(zip(('whole', 'part'), images)))


def test_each_view_has_boxes_of_its_own():
    "In the order of the crops: a box in a view is around the object in its mask."
    class Objects(Painted):
        def __getitem__(self, index):
            image, _, mask = super().__getitem__(index)
            return image, {'mask': mask, 'boxes': [box_of(np.asarray(mask) == label) for label in range(11)], 'labels': torch.arange(11)}
    follow = {'target.mask': Mask(), 'target.boxes': Boxes(min_side=0, also=['labels'])}
    for _, views in views_of(Objects(), follow):
        assert [len(targets) for targets in views] == [4, 8]
        for target in views[0] + views[1]:
            found = dict(zip(target['labels'].tolist(), target['boxes'].numpy(), strict=True))
            for label in set(target['mask'].unique().tolist()):
                around = box_of(target['mask'].numpy() == label)
                assert (found[label][:2] <= around[:2] + 1).all() and (found[label][2:] >= around[2:] - 1).all()


def test_color_and_erasing_change_the_image_alone():
    plain = [masks for *_, masks in batches(Painted(), {2: Mask()})]
    for change in (dict(re_prob=1.), dict(color_jitter=0.4), dict(color_jitter=0.4, color_jitter_mode='exact'), dict(grayscale_prob=1.)):
        assert is_same([masks for *_, masks in batches(Painted(), {2: Mask()}, **change)], plain)
    colors = 'Posterize', 'Color', 'Solarize', 'Sharpness', 'GaussianBlurRand'
    assert is_same([masks for *_, masks in batches(Painted(), {2: Mask()}, auto_augment=Moving(*colors))], plain)


# the same for any workers

@pytest.fixture(scope='module')
def reference(): return batches(Painted(form='nested'), NESTED)


WORKERS = [THREADS, PROCESSES, dict(num_workers=1, worker_type='threads'), dict(num_workers=1, worker_type='processes'),
           dict(num_workers=2, worker_type='processes', prefetch_factor=5),
    dict(num_workers=2, worker_type='processes', persistent_workers=False),
           dict(num_workers=1, worker_type='processes', multiprocessing_context='spawn')]


@quick(3, 'workers', WORKERS, ids=str)
def test_fields_do_not_depend_on_who_makes_them(reference, workers):
    assert is_same(batches(Painted(form='nested'), NESTED, **workers), reference)


def test_reference_has_something_to_lose(reference):
    targets = [target for _, targets in reference for target in targets]
    assert len({len(target['boxes']) for target in targets}) > 2
    for target in targets:
        assert len(target['boxes']) == len(target['labels'])
        assert {name: value.dtype for name, value in target.items() if name != 'id'} == {
            'mask': torch.int64, 'boxes': torch.float32, 'labels': torch.int64, 'points': torch.float32}
        assert set(target['labels'].tolist()) <= set(targets_in(target['id'])['labels'].tolist())   # its own, not its neighbor's


def test_epochs_differ_and_come_again():
    loader, other = (create_loader(Painted(form='nested'), 48, 4, follow=NESTED, **TRAIN, **how) for how in ({}, {}))
    first, second = ([copied(batch) for batch in loader] for _ in range(2))
    assert not is_same(first, second)
    other.set_epoch(1)
    assert is_same([copied(batch) for batch in other], second)
    assert is_same(copied(loader.replay(0, 3).batch), first[3])


@pytest.mark.parametrize('position', range(6))
def test_a_run_goes_on_at_each_position(reference, position):
    loader, again = (create_loader(Painted(form='nested'), 48, 4, follow=NESTED, **TRAIN) for _ in range(2))
    passed = iter(loader)
    for _ in islice(passed, position): pass
    again.load_state_dict(loader.state_dict())
    assert is_same([copied(batch) for batch in again], reference[position:])


def test_a_state_of_other_followers_is_refused():
    states = [create_loader(Painted(), 48, 4, follow=follow, **TRAIN) for follow in ({2: Mask()}, {2: Mask(outside=0)}, None)]
    for one in states:
        for other in states:
            if one is other: other.load_state_dict(one.state_dict())
            else:
                with pytest.raises(ValueError, match='the state belongs to other settings: follow was'):
                    other.load_state_dict(one.state_dict())


def by_index(some) -> dict:
    found = [zip(targets.tolist(), zip(images, masks), strict=True) for images, targets, masks in some]
    return {index: pair for batch in found for index, pair in batch}


def test_ranks_have_the_masks_of_one_process():
    every, found = by_index(batches(Painted(), {2: Mask()})), {}
    for rank in (0, 1):
        found |= by_index(batches(Painted(), {2: Mask()}, sampler=DistributedSampler(range(24), 2, rank, seed=7), drop_last=False))
    assert every.keys() == found.keys() and all(is_same(every[index], found[index]) for index in every)


@full
def test_ranks_of_a_distributed_run(tmp_path):
    parts = run_two_ranks('followed', 'run_followed_rank', tmp_path)
    every = {index: sums for part in parts for index, sums in part.items()}
    expected = {str(index): [image.sum().item(), mask.sum().item()] for index,
    (image, mask) in by_index(batches(Painted(), {2: Mask()})).items()}
    assert every == expected and all(len(part) == 12 for part in parts)


def test_a_buffer_of_batches(reference, tmp_path):
    assert is_same(batches(Painted(form='nested'), NESTED, buffer=dict(batches=4, directory=tmp_path/'buffer')), reference)


def test_without_the_prefetcher():
    "Masks are finished, and those of the prefetcher."
    masks = [masks for *_, masks in batches(Painted(), {2: Mask()})]
    for workers in ({}, PROCESSES):
        made = batches(Painted(), {2: Mask()}, use_prefetcher=False, **workers)
        assert is_same([masks for *_, masks in made], masks) and made[0][0].dtype == torch.float32


def columns(samples):
    images, targets, masks = zip(*samples)
    return torch.stack(images), targets, masks


@pytest.mark.parametrize('workers', [dict(num_workers=0), PROCESSES], ids=str)
def test_a_collate_function_gets_finished_fields(workers):
    made = batches(Painted(), {2: Mask()}, collate_fn=columns, interpolation='nearest', **workers)
    for images, _, masks in made:
        assert {mask.dtype for mask in masks} == {torch.int64} and torch.equal(read_labels(images), torch.stack(list(masks)))


def test_valid_samples_are_told_at_the_end():
    made = batches(Painted(10), {2: Mask()}, valid_mask=True, **EVAL)
    assert [len(batch) for batch in made] == [4, 4, 4] and torch.cat([valid for *_, valid in made]).sum() == 10
    [*_, last] = batches(Painted(10, 'dict'), {'mask': Mask()}, valid_mask=True, **EVAL)
    assert list(last) == ['image', 'target', 'mask', 'valid'] and last['mask'].shape == (2, 48, 48)


# what a sample may be

@pytest.mark.parametrize('form, follow, kind', [
    ('tuple', {2: Mask()}, tuple), ('list', {2: Mask()}, tuple), ('named', {2: Mask()}, Sample), ('dict', {'mask': Mask()}, dict)])
def test_samples_of_any_form(form, follow, kind):
    expected = batches(Painted(), {2: Mask()}, interpolation='nearest')
    for made, (images, targets, masks) in zip(batches(Painted(form=form), follow, interpolation='nearest'), expected, strict=True):
        assert type(made) is kind and is_same([*(made.values() if kind is dict else made)], [images, targets, masks])


class Flat(Painted):
    "Boxes and labels beside the image; at the top level, for processes that are spawned."
    def __getitem__(self, index):
        image, target = Painted(form='nested')[index]
        sample = {'image': image, 'target': index, 'boxes': target['boxes'], 'labels': target['labels']}
        return sample if self.form == 'dict' else tuple(sample.values())


def test_padded_boxes_in_tuples_and_dicts():
    "The count is appended; rows are those of the lists."
    plain = batches(Flat(form='tuple'), {2: Boxes(also=[3])})
    tuples = batches(Flat(form='tuple'), {2: Boxes(also=[3], pad=True)})
    dicts = batches(Flat(form='dict'), {'boxes': Boxes(also=['labels'], pad=True)}, **PROCESSES)
    nested = batches(Painted(form='nested'), {'target.boxes': Boxes(also=['labels'], pad=True), 'target.mask': Mask()})
    for (_, _, boxes, labels), of_tuple, of_dict, (_, target) in zip(plain, tuples, dicts, nested, strict=True):
        assert list(of_dict) == ['image', 'target', 'boxes', 'labels', 'num_boxes'] and is_same([*of_dict.values()], [*of_tuple])
        assert is_same([target[name] for name in ('boxes', 'labels', 'num_boxes')], [*of_tuple[2:]]) and target['mask'].shape == (4, 48, 48)
        counts = of_tuple[4].tolist()
        assert counts == [len(one) for one in boxes] == [len(one) for one in labels]
        for row, count in enumerate(counts):
            assert torch.equal(of_tuple[2][row, :count], boxes[row]) and torch.equal(of_tuple[3][row, :count], labels[row])


@pytest.mark.parametrize('dataset', [Subset(Painted(), [3, 4, 5, 9]), ConcatDataset([Painted(4), Painted(8)]), Endless(Painted()),
                                     IterableImageDataset(reader=Endless(Painted()))], ids=['subset', 'concat', 'stream', 'reader'])
def test_wrapped_datasets_and_streams(dataset):
    made = batches(dataset, {2: Mask()}, interpolation='nearest')
    assert differing(made) == 0 and len(made) > 0
    assert is_same(batches(dataset, {2: Mask()}, interpolation='nearest', num_workers=1), made)


@pytest.fixture(scope='module')
def rows():
    hf = pytest.importorskip('datasets')
    features = hf.Features({'image': hf.Image(), 'label': hf.Value('int64'), 'mask': hf.Image()})
    columns = {'image': [paint(labels_of(k)) for k in range(12)], 'label': [*range(12)],
    'mask': [Image.fromarray(labels_of(k)) for k in range(12)]}
    return hf.Dataset.from_dict(columns, features=features)


@pytest.mark.parametrize('is_stream', [False, True])
def test_datasets_of_hugging_face(rows, is_stream):
    made = batches(rows.to_iterable_dataset() if is_stream else rows, {'mask': Mask()}, interpolation='nearest')
    for batch in made: assert torch.equal(read_labels(batch['image']), batch['mask'])
    assert len(made) == 3


# tables, and samples that are wrong

@pytest.fixture(scope='module')
def table(tmp_path_factory):
    "24 images with paths of masks, boxes and points in columns."
    folder = tmp_path_factory.mktemp('table')
    for index in range(24):
        paint(labels_of(index)).save(folder/f'{index}.png')
        Image.fromarray(labels_of(index)).save(folder/f'mask{index}.png')
    Image.fromarray(labels_of(7)[1:]).save(folder/'small.png')
    (folder/'cut.png').write_bytes(png(labels_of(9))[:100])
    return folder


WRONG = {5: ('mask', 'gone.png', 'No such file'), 7: ('mask', 'small.png', 'both must have the same size'), 9: ('mask', 'cut.png',
    'truncated'),
         11: ('boxes', '[[0, 0, 5000, 5000]]', 'is outside its image'), 13: ('points', '[[NaN, 1]]', 'row 0 has a number that is NaN'),
         15: ('boxes', '[[1, 2, 3]]', r'must be \(n, 4\)')}
FIELDS = {2: Mask(), 3: Boxes(), 4: Points()}


def table_of(folder, name, wrong=(), **given) -> ImageDataset:
    path = folder/f'{name}.csv'
    with open(path, 'w', newline='') as file:
        out = csv.DictWriter(file, ['path', 'target', 'mask', 'boxes', 'points'])
        out.writeheader()
        for index in range(24):
            target = targets_in(index)
            row = dict(path=f'{index}.png', target=index, mask=folder/f'mask{index}.png',
                       boxes=json.dumps(target['boxes'].tolist()), points=json.dumps(target['points'].tolist()))
            if index in wrong:
                field, value, _ = WRONG[index]
                row[field] = folder/value if field == 'mask' else value
            out.writerow(row)
    return ImageDataset(path, fields=['mask', 'boxes', 'points'], **given)


def made_of(dataset, **given):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return batches(dataset, FIELDS, interpolation='nearest', **{'drop_last': False, **given})


def test_fields_of_a_table(table):
    "Paths of masks, and JSON; equal to the objects of a dataset of one's own."
    made = made_of(table_of(table, 'right'))
    assert differing([(images, targets, masks) for images, targets, masks, *_ in made]) == 0
    for workers in (THREADS, PROCESSES): assert is_same(made_of(table_of(table, 'right'), **workers), made)
    own = batches(Painted(form='nested'), {'target.boxes': Boxes(), 'target.points': Points()}, interpolation='nearest', drop_last=False)
    for (*_, boxes, points), (_, targets) in zip(made, own, strict=True):
        assert all(torch.allclose(one, target['boxes'], atol=1e-4) for one, target in zip(boxes, targets, strict=True))
        assert all(torch.allclose(one, target['points'], atol=1e-3) for one, target in zip(points, targets, strict=True))


@pytest.mark.parametrize('index', WRONG)
def test_a_sample_that_is_wrong_is_named(table, index):
    field, value, found = WRONG[index]
    with pytest.raises(ImageReadError, match=rf'cannot read {index}.png \(index {index}\): field .*{found}') as error:
        made_of(table_of(table, f'one{index}', [index]))
    assert field != 'mask' or value in str(error.value) or 'same size' in found


@pytest.mark.parametrize('on_error', ['skip', 'replace'])
@quick(1, 'workers', [dict(num_workers=0), THREADS, PROCESSES], ids=str)
def test_samples_that_are_wrong_are_left_out_or_replaced_one_by_one(table, on_error, workers):
    "And logged; a replacement has its own mask, and nothing else changes."
    plain = by_index(batch[:3] for batch in made_of(table_of(table, 'right')))
    dataset = table_of(table, f'wrong {on_error} {len(str(workers))}', WRONG, on_error=on_error)
    made = made_of(dataset, **workers)
    assert differing([batch[:3] for batch in made]) == 0
    assert {bad.index for bad in dataset.bad_samples} == {*WRONG}
    for bad in dataset.bad_samples: assert (bad.replaced_by is None) == (on_error == 'skip') and bad.replaced_by not in WRONG
    kept = [index for batch in made for index in batch[1].tolist()]
    assert len(kept) == (24 if on_error == 'replace' else 24 - len(WRONG)) and not set(kept) & {*WRONG}
    if on_error == 'skip':
        found = by_index(batch[:3] for batch in made)
        assert all(is_same(found[index], plain[index]) for index in found)
    for batch in made: assert len(batch[0]) == len(batch[1]) == len(batch[2]) == len(batch[3]) == len(batch[4])


def test_whole_masks_in_evaluation():
    "The images are cropped and resized, their masks are those of the files, one after the other."
    made = batches(Painted(), {2: Mask(at='file')}, **EVAL)
    masks = [mask for _, _, masks in made for mask in masks]
    assert all(images.shape == (4, 3, 48, 48) for images, *_ in made) and {mask.dtype for mask in masks} == {torch.int64}
    assert all(np.array_equal(mask, labels_of(index)) for index, mask in enumerate(masks)) and len(masks) == 24


# users' own followers

@pytest.mark.parametrize('workers', [THREADS, PROCESSES], ids=['threads', 'processes'])
def test_a_generator_of_a_function_is_keyed_to_its_sample(workers):
    "Each thread has its own copy."
    expected = batches(Painted(), {2: OwnGenerator()})
    assert is_same(batches(Painted(), {2: OwnGenerator()}, **workers), expected)
    assert len(torch.cat([drawn for *_, drawn in expected]).unique()) == 24


def test_a_follower_that_draws_from_the_global_generators():
    expected = batches(Painted(), {2: Noisy()})
    assert is_same(batches(Painted(), {2: Noisy()}, **PROCESSES), expected)
    for images, _, (drawn, masks) in [(images, targets, zip(*fields)) for images, targets, fields in expected]:
        assert len({tuple(one.tolist()) for one in drawn}) == 4 and len(list(masks)) == len(images)
    assert is_same([images for images, *_ in expected], [images for images, *_ in batches(Painted(), {2: Mask()})])


def stop(value, geometry): raise StopIteration
def nothing(value, geometry): return None
def fails(value, geometry): raise ZeroDivisionError('in my function')


@pytest.mark.parametrize('workers', [dict(num_workers=0), PROCESSES], ids=str)
def test_errors_of_a_function_are_not_lost(workers):
    "Above all StopIteration, which would end a loop of ours as if there were nothing more."
    with pytest.raises(RuntimeError, match='StopIteration was raised while loading index 22 of the dataset'):
        batches(Painted(), {2: stop}, **workers)
    with pytest.raises(ZeroDivisionError, match='in my function'): batches(Painted(), {2: fails}, **workers)
    assert [fields for *_, fields in batches(Painted(), {2: nothing}, **workers)] == [[None] * 4] * 6


def test_a_function_that_a_new_process_cannot_get():
    with pytest.raises(TypeError, match=r'follow.*a lambda cannot be pickled.*define it at the top level of a module'):
        batches(Painted(), {2: lambda value, geometry: 1}, num_workers=1, worker_type='processes', multiprocessing_context='spawn')


# refused before anything is read

class Untouched(Painted):
    "Must not be read."
    def __getitem__(self, index): raise AssertionError('a sample was read')


TOGETHER = 'follow and {} cannot be used together: nothing follows what this does to the images'
REFUSED = [
    (dict(mixup=partial(Mixup, mixup_alpha=0.2, num_classes=24)), TOGETHER.format('mixup')),
    (dict(num_aug_splits=2, auto_augment='rand-m9'), TOGETHER.format('num_aug_splits')),
    (dict(cache='device'), TOGETHER.format("cache='device'")), (dict(transform=np.asarray), TOGETHER.format('transform')),
    (dict(auto_augment='augmix-m3'), 'follow and AugMixAugment cannot be used together.*use another auto_augment, such as rand-m9-mstd0.5'),
    (dict(follow=[Mask()]), 'follow has type list: pass a dict'), (dict(follow={2: 3}), r'follow\[2\] has type int: pass a Mask\(\)'),
    (dict(follow={2: Mask}), r'follow\[2\] has type type'), (dict(follow={'image': Mask()}), "follow names the field 'image'")]


@pytest.mark.parametrize('given, found', REFUSED, ids=[str(next(iter(given.items())))[:40] for given, _ in REFUSED])
def test_what_nothing_can_follow_is_refused_before_anything_is_read(given, found):
    given = {name: value() if isinstance(value, partial) else value for name, value in given.items()}
    with pytest.raises((ValueError, TypeError), match=found):
        create_loader(Untouched(), 48, 4, **{'follow': {2: Mask()}, **TRAIN, 'num_workers': 2, **given})


def test_follow_with_patches_is_refused():
    from timmdata import NaFlex
    settings = {name: value for name, value in TRAIN.items() if name != 'vflip'}
    with pytest.raises(ValueError, match='follow and naflex cannot be used together'):
        create_loader(Untouched(), batch_size=4, naflex=NaFlex(), follow={2: Mask()}, **settings)


def test_names_that_no_sample_has():
    for follow in ({'maks': Mask()}, {3: Mask()}, {'target.boxes': Boxes()}):
        with pytest.raises((KeyError, TypeError), match='(maks|3).*only image, target, 2|must be a dict'): batches(Painted(), follow)
    with pytest.raises(KeyError, match="follow names the field 'box', but there are only mask, boxes, labels"):
        batches(Painted(form='nested'), {'target.box': Boxes()})


class Lacking(Painted):
    def __getitem__(self, index):
        sample = Painted(form='dict')[index]
        if index == 5: del sample['mask']
        return sample


def test_one_sample_without_the_field():
    with pytest.raises(KeyError, match="follow names the field 'mask', but there are only image, target") as error:
        batches(Lacking(), {'mask': Mask()})
    if hasattr(error.value, '__notes__'): assert 'index 5 of the dataset' in error.value.__notes__[0]


@pytest.mark.parametrize('value, found', [(None, 'the mask has type NoneType'),
    (labels_of(4), 'both must have the same size')], ids=['none', 'size'])
def test_one_mask_that_is_wrong_in_a_dataset_of_the_users(value, found):
    with pytest.raises((TypeError, OSError), match=found) as error: batches(Broken(value), {2: Mask()}, **PROCESSES)
    if hasattr(error.value, '__notes__'): assert 'index 5 of the dataset' in error.value.__notes__[0]


def test_nothing_changes_if_nothing_follows():
    assert is_same([images for images, *_ in batches(Painted(), {2: Mask()})], [images for images, *_ in batches(Painted(), {})])
    assert all(isinstance(mask, Image.Image) for *_, masks in batches(Painted(), {}) for mask in masks)


# training

@full
def test_a_detector_of_torchvision_takes_the_batches():
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
    torch.manual_seed(0)
    model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=96)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    follow = {'target.boxes': Boxes(min_side=2, also=['labels'])}
    for images, targets in islice(batches(Painted(16, 'nested'), follow, 96, std=1.), 2):
        targets = [{'boxes': target['boxes'], 'labels': target['labels'] % 4 + 1} for target in targets]
        losses = model(list(images), targets)
        assert len(losses) == 4 and all(loss.isfinite() for loss in losses.values())
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()


def block(ins: int, outs: int):
    return torch.nn.Sequential(torch.nn.Conv2d(ins, outs, 3, padding=1), torch.nn.BatchNorm2d(outs), torch.nn.ReLU())


class UNet(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first, self.low, self.up = block(3, 8), block(8, 16), torch.nn.ConvTranspose2d(16, 8, 2, 2)
        self.last, self.head = block(16, 8), torch.nn.Conv2d(8, classes, 1)

    def forward(self, images):
        near = self.first(images)
        far = self.up(self.low(max_pool2d(near, 2)))
        return self.head(self.last(torch.cat([near, far], 1)))


@full
def test_a_small_u_net_learns():
    "To tell dark labels from light ones; with the mask of another image of the batch, it does not."
    light = Mask(classes={label: int(label > 5) for label in range(11)})
    def final_loss(shift: int) -> float:
        torch.manual_seed(0)
        model, losses = UNet(2), []
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        loader = create_loader(Painted(), 48, 8, follow={2: light}, **{**TRAIN, 'std': 1.})
        for _ in range(10):
            for images, _, masks in loader:
                loss = cross_entropy(model(images), masks.roll(shift, 0), ignore_index=OUTSIDE)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return sum(losses[-4:]) / 4
    assert final_loss(0) < 0.3 < 0.6 < final_loss(1)


@quick(1, 'num_workers', [0, 2])
def test_a_mixture_of_folders_with_masks(tmp_path, num_workers):
    "Each mask is that of its own image, from whichever source: images have the gray level of their indexes."
    sources = {}
    for number, name in enumerate(['few', 'many']):
        for k in range(3 + 4 * number):
            level = np.full((40, 50), 10 * k + number + 1, np.uint8)
            for kind in 'images', 'masks':
                (tmp_path/name/kind).mkdir(parents=True, exist_ok=True)
                Image.fromarray(level).save(tmp_path/name/kind/f'{k}.png')
        sources[name] = ImageDataset(tmp_path/name/'images', masks=tmp_path/name/'masks')
    mix = Mixture(sources, {'few': 1, 'many': 1}, with_source=True)
    loader = create_loader(
        mix, 32, 4, is_training=True, seed=0, samples_per_epoch=24, num_workers=num_workers, device='cpu', follow={'mask': Mask()},
        mean=0., std=1 / 255, color_jitter=None)
    seen = []
    for images, masks, source in loader:
        assert torch.equal(images[:, 0].round().long(), masks) and torch.equal((masks[:, 0, 0] - 1) % 10, source)
        seen += masks[:, 0, 0].tolist()
    assert len({*seen[:6]} | {*seen[6:12]}) > 6 and len(seen) == 24
    loader.close()
