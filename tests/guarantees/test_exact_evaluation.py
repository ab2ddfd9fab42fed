"No sample counts twice: masks through every way of loading, metrics of several ranks to the last digit, one shape for all batches."
import json
import warnings

import pytest
import torch
from eval_ranks import CASES
from grids import few
from loader_parts import Coded, Stream, nothing_is_left, program
from torch._dynamo.testing import CompileCounter
from torch.utils.data.distributed import DistributedSampler
from torchvision.transforms.functional import pil_to_tensor

from timmdata.datasets.image_dataset import ImageDataset, IterableImageDataset
from timmdata.loader import create_loader
from timmdata.transforms.mixup import Mixup

pytestmark = pytest.mark.timeout(180)
no_child_is_left = pytest.fixture(autouse=True)(nothing_is_left)
INLINE, THREADS, PROCESSES = dict(num_workers=0), dict(num_workers=2, worker_type='threads'), dict(num_workers=2, worker_type='processes')
WAYS = dict(inline=INLINE, threads=THREADS, processes=PROCESSES, bare=dict(use_prefetcher=False, **PROCESSES),
            cache=dict(cache='device', train_crop_mode='rc', crop_pct=1),
            buffer=dict(buffer=dict(batches=4), **INLINE))


# ---- several ranks

@pytest.fixture(scope='module')
def worlds(samples, tmp_path_factory) -> dict[int, list]:
    "What 1, 2 and 3 ranks have found; one run for all cases, because starting it takes seconds."
    found = {}
    for size in (1, 2, 3):
        folder = tmp_path_factory.mktemp('ranks')
        words = f'{size}, {str(folder/"init")!r}, {str(folder/"rank")!r}, {str(samples/"oddities")!r}'
        runs = [program(f'run_eval_rank({rank}, {words})', 'from eval_ranks import run_eval_rank') for rank in range(size)]
        for run in runs:
            code, _, errors = run.end(120)
            assert code == 0, errors
        found[size] = [json.loads((folder/f'rank{rank}.json').read_text()) for rank in range(size)]
    return found


@pytest.mark.full
@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('case', range(len(CASES)), ids=lambda case: ' '.join(map(str, CASES[case])))
def test_metrics_of_several_ranks_are_those_of_one_to_the_last_digit(worlds, size, case):
    num, settings = CASES[case]
    expected, ranks = worlds[1][0][case], [rank[case] for rank in worlds[size]]
    for rank in ranks: assert rank['valid'] == rank['num_valid']
    if settings.get('drop_last'): return   # other samples are dropped
    assert len(expected['losses']) == num == sum(rank['valid'] for rank in ranks)
    for rank in ranks:
        for name in ('losses', 'mean', 'correct', 'accuracy'): assert rank[name] == expected[name], name
    assert len({rank['seen'] for rank in ranks}) == 1   # no rank waits for another


@pytest.mark.full
@pytest.mark.parametrize('size', [2, 3])
def test_ranks_that_skip_samples_have_other_numbers_of_them_and_each_counts_once(worlds, size):
    assert any(sum(rank[case]['seen'] for rank in worlds[size]) > num for case, (num, _) in enumerate(CASES))   # masks are needed
    for rank in range(3): assert 'rows of values have [4, 8, 12] bytes on the ranks' in worlds[3][rank][-1]
    expected, ranks = worlds[1][0][len(CASES)], [rank[len(CASES)] for rank in worlds[size]]
    assert len({rank['valid'] for rank in ranks}) > 1
    for rank in ranks: assert sorted(rank['losses']) == sorted(expected['losses']) and rank['accuracy'] == expected['accuracy']


# ---- the mask

def masks_of(loader) -> list: return [batch[-1].tolist() for batch in loader]


@pytest.mark.parametrize('way', few(WAYS, 'inline', 'processes'))
@pytest.mark.parametrize('is_training', [False, True], ids=['evaluation', 'training'])
def test_the_mask_reaches_the_consumer(way, is_training):
    loader = create_loader(Coded(10), 8, 4, is_training, valid_mask=True, pad_last=True, seed=1, device='cpu',
                           color_jitter=None, **WAYS[way])
    for _ in range(2): assert masks_of(loader) == [[True] * 4, [True] * 4, [True, True, False, False]]
    assert loader.num_valid == 10 and len(loader) == 3
    images, targets, valid = loader.replay(epoch=0, batch=2).batch
    assert len(images) == len(targets) == 4 and valid.dtype == torch.bool and valid.tolist() == [True, True, False, False]
    loader.close()


def test_num_valid_counts_what_comes():
    for settings in (dict(), dict(drop_last=True), dict(pad_last=True), dict(is_training=True),
                     dict(is_training=True, input_size_choices=[8, 12], batch_size_choices=[4, 3], drop_last=False),
                     dict(is_training=True, samples_per_epoch=7, drop_last=False), dict(is_training=True, weights=range(11))):
        loader = create_loader(Coded(11), 8, 4, valid_mask=True, seed=0, device='cpu', **INLINE, **settings)
        assert loader.num_valid == sum(sum(mask) for mask in masks_of(loader)), settings
    assert create_loader(IterableImageDataset(reader=Stream(4)), 8, 2, num_workers=0, device='cpu').num_valid is None


@pytest.mark.parametrize('settings, expected', [
    (dict(num_aug_splits=2), [True, True, False] * 2), (dict(collate_fn=torch.utils.data.default_collate, transform=pil_to_tensor),
                                                     [True, True, False]),
    (dict(mixup=Mixup(1., num_classes=9, mode='half')), [True]), (dict(mixup=Mixup(1., num_classes=9)), [True, True, False])],
    ids=['views', 'collate_fn', 'half', 'mixup'])
def test_there_is_one_value_for_each_image(settings, expected):
    size = 4 if 'mixup' in settings and settings['mixup'].mode == 'half' else 3
    for use_prefetcher in (True, False)[:1 if 'collate_fn' in settings else 2]:
        loader = create_loader(Coded(5), 8, size, True, valid_mask=True, pad_last=True, seed=1, use_prefetcher=use_prefetcher,
                               device='cpu', **INLINE, **settings)
        *_, last = loader
        assert last[-1].tolist() == (expected if size == 3 else [True, False]) and len(last[-1]) == len(last[0])


def test_a_dict_gets_a_field():
    data = [dict(image=Coded(3)[k][0], target=k) for k in range(3)]
    *_, last = create_loader(data, 8, 2, valid_mask=True, pad_last=True, device='cpu', **INLINE)
    assert last['valid'].tolist() == [True, False] and last['target'].tolist() == [2, 0]
    with pytest.raises(ValueError, match="already has a field 'valid'"):
        list(create_loader([dict(sample, valid=1) for sample in data], 8, 2, valid_mask=True, device='cpu', **INLINE))


def test_skipped_samples_leave_mask_and_images_together(samples):
    dataset = ImageDataset(samples/'oddities', split=None, on_error='skip')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for settings in (INLINE, PROCESSES):
            batches = list(create_loader(dataset, 8, 4, valid_mask=True, pad_last=True, device='cpu', **settings))
    num = len(dataset) - len(dataset.bad_samples)
    assert num < len(dataset) and sum(int(valid.sum()) for _, _, valid in batches) == num
    for images, targets, valid in batches: assert len(images) == len(targets) == len(valid)


# ---- states

def ranks_of(monkeypatch, num_ranks: int) -> list:
    found = []
    for rank in range(num_ranks):
        monkeypatch.setattr(torch.distributed, 'get_world_size', lambda: num_ranks)
        monkeypatch.setattr(torch.distributed, 'get_rank', lambda rank=rank: rank)
        found.append(create_loader(Coded(23), 8, 3, True, distributed=True, pad_last=True, valid_mask=True, seed=2, device='cpu',
                                   color_jitter=None, **INLINE))
    return found


def valid_targets(batches) -> list: return [target for _, targets, valid in batches for target in targets[valid].tolist()]


@pytest.mark.parametrize('before, after', [(1, 1), (2, 2), (2, 3), (3, 1)])
def test_padded_epochs_resume_with_any_number_of_ranks(monkeypatch, before, after):
    begun = []
    for loader in ranks_of(monkeypatch, before):
        batches = iter(loader)
        begun += valid_targets([next(batches), next(batches)])
        state = loader.state_dict()
        rest = list(batches)
    others = ranks_of(monkeypatch, after)
    for loader in others: loader.load_state_dict(state)
    shares = [list(loader) for loader in others]
    assert sorted(begun + sum(map(valid_targets, shares), [])) == list(range(23))
    assert {len(targets) for share in shares for _, targets, _ in share} == {3} and len({len(share) for share in shares}) == 1
    if before == after:   # exactly what the last rank would have seen
        for batch, expected in zip(shares[-1], rest, strict=True): assert all(map(torch.equal, batch, expected))


# ---- one shape

@pytest.mark.parametrize('settings', few([INLINE, THREADS, PROCESSES], INLINE))
def test_replaced_samples_never_shrink_a_batch(samples, settings):
    dataset = ImageDataset(samples/'oddities', split=None, on_error='replace')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        loader = create_loader(dataset, 16, 3, True, pad_last=True, valid_mask=True, seed=1, device='cpu', **settings)
        batches = list(loader)
    assert dataset.bad_samples and len(batches) == len(loader)
    assert {(tuple(images.shape), len(targets), len(valid)) for images, targets, valid in batches} == {((3, 3, 16, 16), 3, 3)}
    assert sum(int(valid.sum()) for *_, valid in batches) == len(dataset) == loader.num_valid


def count_graphs(**settings) -> int:
    "How many graphs two epochs of training and evaluation compile."
    torch._dynamo.reset()
    counter = CompileCounter()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5))

    def step(images, targets, valid):
        losses = torch.nn.functional.cross_entropy(model(images), targets % 5, reduction='none')
        return (losses * valid).sum() / valid.sum().clamp(min=1)

    compiled = torch.compile(step, backend=counter)
    train = create_loader(Coded(11), 8, 4, True, seed=1, device='cpu', valid_mask=True, **INLINE, **settings)
    evaluation = create_loader(Coded(10), 8, 4, device='cpu', valid_mask=True, **INLINE, **settings)
    for _ in range(2):
        model.train()
        for batch in train: compiled(*batch).backward()
        model.eval()
        with torch.no_grad():
            for batch in evaluation: compiled(*batch)
    torch._dynamo.reset()
    return counter.frame_count


@pytest.mark.full
def test_full_batches_compile_one_graph_for_training_and_one_for_evaluation():
    assert count_graphs(pad_last=True) == 2 < count_graphs(drop_last=False)


@pytest.mark.parametrize('wrong', [
    dict(is_training=True, input_size_choices=[8], pad_last=True), dict(dataset=IterableImageDataset(reader=Stream(4)), pad_last=True),
    dict(dataset=IterableImageDataset(reader=Stream(4)), valid_mask=True),
    dict(sampler=DistributedSampler(range(9), 2, 0), valid_mask=True)], ids=lambda wrong: ','.join(wrong))
def test_what_cannot_be_had_is_refused(wrong):
    with pytest.raises(ValueError, match='cannot be used together|distributed=True'):
        create_loader(**{**dict(dataset=Coded(9), input_size=8, batch_size=4, device='cpu'), **wrong})
