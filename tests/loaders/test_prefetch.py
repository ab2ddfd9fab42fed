"`PrefetchLoader`: what passes through and how, with real streams on a GPU."
import gc
from collections import namedtuple

import pytest
import torch
from grids import quick
from streams import LateStream, threads

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.loaders import prefetch
from timmdata.loaders.prefetch import PrefetchLoader, resolve_device
from timmdata.pipeline.batch_transform import BatchTransform, BatchTransformSettings

pytestmark = pytest.mark.timeout(60)
Batch = namedtuple('Batch', 'image target name')


@quick(1, 'num_workers', [0, 2])
def test_loader_gives_the_same_batches_through_a_stream(samples, num_workers, monkeypatch):
    loaders = [create_loader(ImageDataset(samples), (3, 32, 48), 16, is_training=True, re_prob=0.5, seed=4, device='cpu',
                             num_workers=num_workers) for _ in range(2)]
    stream = LateStream()
    stream.finish(10**6)
    expected = [[(images.clone(), targets) for images, targets in loaders[0]] for _ in range(2)]
    monkeypatch.setattr(prefetch, 'create_stream', lambda device, source: stream)   # as on a device: a thread does the arithmetic
    for epoch in expected:
        for (a, s), (b, t) in zip(epoch, loaders[1], strict=True): assert torch.equal(a, b) and torch.equal(s, t)
    assert sum(entry[0] == 'hand over' for entry in stream.log) == 2 * len(loaders[0]) and not threads()
    assert loaders[0].state_dict() == loaders[1].state_dict()


def test_ready_batch_transform_takes_the_place_of_the_settings():
    transform = BatchTransform(BatchTransformSettings((0.5,) * 3, (0.25,) * 3, torch.float16))
    loader = PrefetchLoader([(images(value=255), torch.arange(2))], device='cpu', batch_transform=transform)
    assert next(iter(loader))[0].unique().tolist() == [2.] and loader.img_dtype == torch.float16 and loader.mean == (0.5,) * 3


# ---- what passes through

def images(num=2, channels=3, value=0):
    return torch.full((num, channels, 4, 5), value, dtype=torch.uint8)


def first(batch, **settings): return next(iter(PrefetchLoader([batch], device='cpu', **settings)))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_img_dtype(dtype):
    out, target = first((images(value=255), torch.arange(2)), img_dtype=dtype)
    assert out.dtype == dtype and target.dtype == torch.int64
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(out[0, :, 0, 0].float(), expected, rtol=1e-2)
    assert first((images(), torch.arange(2)), fp16=True)[0].dtype == torch.float16
    assert first((images(), torch.arange(2)), fp16=True, img_dtype=torch.float32)[0].dtype == torch.float16   # as timm


def test_further_fields_pass_through():
    extra = {'boxes': [torch.ones(2, 4), torch.zeros(1, 4)], 'names': ['a', 'b']}
    out = first((images(), torch.arange(2), extra, 'text', None, 3))
    assert len(out) == 6 and out[2]['names'] == ['a', 'b'] and out[2]['boxes'][1].shape == (1, 4)
    assert out[3:] == ('text', None, 3)
    out = first({'image': images(), 'target': torch.arange(2), 'index': [4, 5]})
    assert out['image'].dtype == torch.float32 and out['target'].tolist() == [0, 1] and out['index'] == [4, 5]
    assert len(first([images(), torch.arange(2)])) == 2


def test_source_batch_is_not_changed():
    batch = {'image': images(value=7), 'target': torch.arange(2)}
    first(batch, re_prob=1.)
    assert batch['image'].dtype == torch.uint8 and (batch['image'] == 7).all()
    pair = [images(value=7), torch.arange(2)]
    first(pair, re_prob=1.)
    assert (pair[0] == 7).all() and pair[0].dtype == torch.uint8


def test_named_tuple_stays_one():
    out = first(Batch(images(), torch.arange(2), ['a', 'b']))
    assert isinstance(out, Batch) and out.image.dtype == torch.float32


def test_default_dtype_does_not_change_the_numbers():
    expected = first((images(value=77), torch.arange(2)))[0]
    torch.set_default_dtype(torch.bfloat16)
    assert torch.equal(first((images(value=77), torch.arange(2)))[0], expected)


def test_device_may_be_a_string_an_object_or_nothing():
    assert resolve_device('cpu') == resolve_device(torch.device('cpu')) == torch.device('cpu')
    assert resolve_device(None).type == ('cuda' if torch.cuda.is_available() else resolve_device().type)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match='device=None'): PrefetchLoader([], device='cuda')
    with pytest.raises(RuntimeError): PrefetchLoader([], device='nonsense')


@pytest.mark.parametrize('local_rank, num_gpus, current, expected', [
    ('1', 4, 0, 'cuda:1'), ('0', 4, 0, 'cuda:0'), ('1', 4, None, 'cuda:1'),   # None: CUDA is not initialized yet
    ('1', 4, 1, 'cuda'), ('1', 4, 3, 'cuda'),   # chosen by torch.cuda.set_device
    ('1', 1, 0, 'cuda'), (None, 4, 0, 'cuda')], ids=str)
def test_a_rank_takes_the_gpu_of_its_number(local_rank, num_gpus, current, expected, monkeypatch):
    "No GPU is needed: torch's functions are replaced."
    found = dict(is_available=True, is_initialized=current is not None, device_count=num_gpus, current_device=current)
    for name, value in found.items(): monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.delenv('LOCAL_RANK', raising=False)
    if local_rank is not None: monkeypatch.setenv('LOCAL_RANK', local_rank)
    assert resolve_device(distributed=True) == torch.device(expected)
    assert resolve_device() == torch.device('cuda') and resolve_device('cpu', distributed=True) == torch.device('cpu')


def test_a_rank_without_a_gpu_of_its_own_is_an_error(monkeypatch):
    for name, value in dict(is_available=True, is_initialized=False, device_count=2).items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setenv('LOCAL_RANK', '2')
    with pytest.raises(RuntimeError, match="device='cuda:2': the index must be below 2"): resolve_device(distributed=True)


def test_erasing_repeats_with_the_seed_and_differs_between_epochs_and_batches():
    batches = [(images(8, value=99), torch.arange(8))] * 3
    runs = [[list(loader) for _ in range(2)]
        for loader in (PrefetchLoader(batches, device='cpu', re_prob=0.8, re_mode='pixel', seed=s) for s in (1, 1, 2))]
    flat = [[x for epoch in run for x, _ in epoch] for run in runs]
    assert all(torch.equal(a, b) for a, b in zip(flat[0], flat[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(flat[0], flat[2], strict=True))
    assert not any(torch.equal(flat[0][i], flat[0][j]) for i in range(6) for j in range(i))


# ---- on a GPU

def pinned(num=6, size=(8, 3, 64, 64)):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randint(0, 256, size, dtype=torch.uint8, generator=generator).pin_memory(),
             torch.arange(size[0]).pin_memory()) for _ in range(num)]


@pytest.mark.gpu
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('device', ['cuda', 'cuda:0', None])
def test_gpu_gives_the_numbers_of_the_cpu(device, dtype):
    batches = pinned()
    expected = list(PrefetchLoader(batches, device='cpu', img_dtype=dtype))
    for (a, s), (b, t) in zip(expected, PrefetchLoader(batches, device=device, img_dtype=dtype), strict=True):
        assert b.device.type == 'cuda' and b.dtype == dtype and t.device.type == 'cuda' and torch.equal(s, t.cpu())
        # a division may be rounded the other way
        assert torch.allclose(a.float(), b.cpu().float(), rtol=2e-6 if dtype == torch.float32 else 1e-2, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize('mode', ['const', 'rand', 'pixel'])
def test_gpu_erases_the_same_rectangles(mode):
    batches = pinned()
    settings = dict(re_prob=0.7, re_mode=mode, re_count=2, seed=5)
    plain = [x.cpu() for x, _ in PrefetchLoader(batches, device='cuda')]
    on = [[x.cpu() for x, _ in PrefetchLoader(batches, device=device, **settings)]
          for device in ('cpu', 'cuda', 'cuda')]
    assert all(torch.equal(a, b) for a, b in zip(on[1], on[2], strict=True))
    for cpu, gpu, before in zip(on[0], on[1], plain, strict=True):
        changed = (gpu != before).any(1)
        assert changed.any() and ((cpu - before).abs().amax(1) > 1e-4).eq(changed).float().mean() > 0.999


@pytest.mark.gpu
@pytest.mark.parametrize('stream', [None, 'side'])
def test_memory_is_safe_under_a_slow_consumer(stream):
    "The consumer's kernels read a batch long after it was dropped; until then, its memory must not be filled with the next batch."
    batches = pinned(20, (16, 3, 128, 128))
    expected = [x.double().sum().item() for x, _ in PrefetchLoader(batches, device='cpu')]
    stream = torch.cuda.Stream() if stream else torch.cuda.current_stream()
    sums = []
    with torch.cuda.stream(stream):
        for images, _ in PrefetchLoader(batches, device='cuda'):
            torch.cuda._sleep(30_000_000)   # about 15 ms
            sums.append(images.double().sum())
            del images
    torch.cuda.synchronize()
    assert [s.item() for s in sums] == pytest.approx(expected, rel=1e-6)


@pytest.mark.gpu
def test_copies_overlap_with_the_consumers_kernels():
    "With the prefetcher, copies run at the same time as the consumer's kernels: the loop takes hardly longer than the kernels alone."
    batches = pinned(8, (256, 3, 224, 224))
    def milliseconds(step) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    def copy_all():
        for _ in PrefetchLoader(batches, device='cuda'): pass
    def work(cycles):
        for _ in batches: torch.cuda._sleep(cycles)
    def both(cycles):
        for _ in PrefetchLoader(batches, device='cuda'): torch.cuda._sleep(cycles)
    copy_all()   # allocates
    copying = milliseconds(copy_all)
    cycles = int(30_000_000 * 2 * copying / milliseconds(lambda: work(30_000_000)))   # work of twice the copies' time
    both(cycles)
    together, working = milliseconds(lambda: both(cycles)), milliseconds(lambda: work(cycles))
    assert together < working + 0.6 * copying, (together, working, copying)   # one after the other: working + copying


@pytest.mark.gpu
def test_loader_left_early_on_a_gpu_ends_its_thread():
    for _ in range(20):
        for _ in PrefetchLoader(pinned(4), device='cuda'): break
    gc.collect()
    assert not threads()
