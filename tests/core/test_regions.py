"A region of a JPEG from nvImageCodec: bit-identical to simplejpeg, in any process and thread, without printing anything."
import multiprocessing
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from grids import few, full
from loader_parts import program
from pictures import encoded, largest, photographs, rgb

from timmdata.core import jpeg, regions
from timmdata.core.jpeg import Pixels, read_header, resolve_backend
from timmdata.core.regions import decode_region, import_nvimgcodec, read_size
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.measure.diagnosis import diagnose

simplejpeg = pytest.importorskip('simplejpeg')
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(import_nvimgcodec() is None, reason='no nvimgcodec')]


def crops(rng: random.Random, height: int, width: int, num: int) -> list[tuple[int, int, int, int]]:
    "Crops of all sizes; half of them touch a border."
    found = []
    for _ in range(num):
        h, w = rng.randint(1, height), rng.randint(1, width)
        tops, lefts = [0, height - h, *[rng.randint(0, height - h)] * 2], [0, width - w, *[rng.randint(0, width - w)] * 2]
        found.append((rng.choice(tops), rng.choice(lefts), h, w))
    return found


def assert_region(data: bytes, region: tuple[int, int, int, int], whole: np.ndarray):
    "The pixels are those of the whole photo; narrow regions, which libjpeg-turbo smooths differently, are left to other decoders."
    top, left, height, width = region
    found = decode_region(data, region)
    assert (found is None) == (width < 8)
    assert found is None or np.array_equal(found, whole[top:top + height, left:left + width])


@pytest.mark.parametrize('source', few(['samples', 'imagenet-200', 'ants-bees'], 'samples'))
def test_region_is_that_of_simplejpegs_photo(samples, source):
    rng = random.Random(0)
    for path in photographs(samples, source):
        data = path.read_bytes()
        if read_header(data, 'simplejpeg') is None: continue   # CMYK and similar files are left to Pillow
        whole = simplejpeg.decode_jpeg(data, 'RGB')
        for top, left, h, w in crops(rng, *whole.shape[:2], 25):
            assert_region(data, (top, left, h, w), whole)


@pytest.mark.parametrize('subsampling', ['4:4:4', '4:2:2', '4:2:0', '4:1:1'])
@pytest.mark.parametrize('options', [{}, dict(progressive=True), dict(restart_marker_rows=1), dict(optimize=True)], ids=str)
def test_region_of_each_kind_and_small_size(samples, subsampling, options):
    image, rng = rgb((samples/'val/cat/0003.jpg').read_bytes()), random.Random(1)
    for size in (113, 87), (64, 128), (17, 16), (8, 1), (1, 1):
        for mode in 'RGB', 'L':
            data = encoded(image.resize(size).convert(mode), subsampling=subsampling, **options)
            whole = simplejpeg.decode_jpeg(data, 'RGB')
            for top, left, h, w in crops(rng, *whole.shape[:2], 20):
                assert_region(data, (top, left, h, w), whole)


@pytest.mark.parametrize('subsampling', ['4:4:4', '4:2:2', '4:2:0', '4:1:1'])
def test_region_of_all_columns_and_of_all_rows(samples, subsampling):
    image = rgb((samples/'val/cat/0003.jpg').read_bytes())
    for width, height in (41, 9), (9, 41):
        data = encoded(image.resize((width, height)), subsampling=subsampling)
        whole = simplejpeg.decode_jpeg(data, 'RGB')
        for start in range(41):
            for length in range(1, 42 - start):
                assert_region(data, (0, start, 9, length) if width == 41 else (start, 0, length, 9), whole)


def test_region_that_is_too_large_is_left_to_others(samples, monkeypatch):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    monkeypatch.setattr(regions, 'MOST_PIXELS', 4_000)
    assert decode_region(data, (0, 0, 50, 80)).shape == (50, 80, 3) and decode_region(data, (0, 0, 50, 81)) is None
    assert Pixels(data, backend='nvimgcodec').read_crop((0, 0, 50, 81)).shape == (50, 81, 3)


def test_size_is_that_of_pillow_and_cmyk_is_left_to_it(samples):
    image = rgb((samples/'val/cat/0003.jpg').read_bytes())
    for data in encoded(image), encoded(image.convert('L')), encoded(image, keep_rgb=True):
        assert read_size(data) == (image.height, image.width)
        assert largest(decode_region(data, (5, 6, 70, 80)), np.asarray(rgb(data))[5:75, 6:86]) <= 1
    for data in encoded(image.convert('CMYK')), encoded(image, 'png'): assert read_size(data) is None


def test_bytes_views_and_mapped_files_are_read(samples, tmp_path):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    crop = (20, 30, 50, 60)
    expected = decode_region(data, crop)
    mapped = np.memmap(samples/'val/cat/0003.jpg', np.uint8, 'r')
    for other in bytearray(data), memoryview(data), memoryview(b'x' + data)[1:], memoryview(mapped):
        assert np.array_equal(decode_region(other, crop), expected)


def test_region_outlives_its_file_and_the_next_region(samples):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    first = decode_region(bytearray(data), (0, 0, 60, 70))
    expected = first.copy()
    for _ in range(20): decode_region(data, (50, 40, 60, 70))
    assert np.array_equal(first, expected) and first.flags.writeable


@pytest.mark.parametrize('without', [None, 'simplejpeg'])
def test_damaged_file_is_what_pillow_makes_of_it(samples, monkeypatch, without, capfd):
    "The result is Pillow's pixels or Pillow's error, and nothing is printed."
    if without: monkeypatch.setattr('timmdata.core.jpeg.simplejpeg', None)
    data, rng = encoded(rgb((samples/'val/cat/0003.jpg').read_bytes()).resize((300, 200)), quality=95), random.Random(2)
    num_errors = 0
    for number in range(150):
        odd = bytearray(data)
        if number % 3 == 0: del odd[rng.randrange(700, len(odd)):]
        elif number % 3 == 1: odd[rng.randrange(700, len(odd))] ^= 1 << rng.randrange(8)
        else: odd[rng.randrange(700, len(odd))] = 0xFF
        try: expected = np.asarray(rgb(bytes(odd)))
        except Exception: expected = None
        try: found = Pixels(bytes(odd), backend='nvimgcodec').read_crop((0, 0, 200, 300))
        except OSError: found = None
        assert (found is None) == (expected is None)
        if found is None: num_errors += 1
        else: assert largest(found, expected) <= 1
    assert num_errors >= 40
    assert 'ERROR' not in capfd.readouterr().err


def decode_some(data: bytes, results: object = None) -> list:
    "Decode some regions, in a process or thread."
    found = [decode_region(data, crop).sum().item() for crop in crops(random.Random(3), *read_size(data), 40)]
    if results is not None: results.put(found)
    return found


@pytest.mark.parametrize('method', few(['fork', 'spawn', 'forkserver'], 'fork'))
def test_processes_decode_after_their_parent_did(samples, method):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    expected = decode_some(data)
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    processes = [context.Process(target=decode_some, args=(data, results)) for _ in range(3)]
    for process in processes: process.start()
    assert all(results.get() == expected for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def test_process_forked_while_threads_decode(samples):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    expected, is_done = decode_some(data), threading.Event()

    def decode_on():
        while not is_done.is_set(): decode_some(data)
    threads = [threading.Thread(target=decode_on) for _ in range(3)]
    for thread in threads: thread.start()
    try:
        context = multiprocessing.get_context('fork')
        for _ in range(5):
            results = context.SimpleQueue()
            process = context.Process(target=decode_some, args=(data, results))
            process.start()
            assert results.get() == expected
            process.join(60)
            assert process.exitcode == 0
    finally:
        is_done.set()
        for thread in threads: thread.join()


def test_many_threads_decode(samples):
    data = (samples/'val/cat/0003.jpg').read_bytes()
    expected = decode_some(data)
    with ThreadPoolExecutor(16) as pool: assert all(found == expected for found in pool.map(decode_some, [data] * 64))


@full
def test_import_writes_nothing_and_keeps_the_lines_of_others(samples):
    run = program(f'''import os, threading, time
from timmdata.core.regions import decode_region
data = open({str(samples/"val/cat/0003.jpg")!r}, 'rb').read()
os.environ.pop('PYNVIMGCODEC_VERBOSITY', None)
def write():
    for k in range(200):
        os.write(2, b'a line of mine\\n')
        time.sleep(0.001)
writer = threading.Thread(target=write)
writer.start()
while writer.is_alive(): decode_region(data, (0, 0, 9, 9))
assert decode_region(data[:3000], (200, 0, 9, 9)) is None
print('PYNVIMGCODEC_VERBOSITY' in os.environ)''')
    code, out, errors = run.end()
    assert code == 0 and out.split() == ['False'], errors
    assert errors.splitlines() == ['a line of mine'] * 200


@full
def test_works_without_a_standard_error_file(samples):
    run = program(f'''import os
os.close(2)
from timmdata.core.regions import decode_region
print(decode_region(open({str(samples/"val/cat/0003.jpg")!r}, 'rb').read(), (0, 0, 9, 8)).shape)''')
    code, out, _ = run.end()
    assert code == 0 and '(9, 8, 3)' in out


@pytest.mark.parametrize('error', [ImportError, OSError, RuntimeError])
def test_broken_installation_is_as_if_it_were_missing(monkeypatch, error):
    def fail(codec): raise error('libcudart.so')
    monkeypatch.setattr(regions, '_make_decoder', fail)
    assert import_nvimgcodec() is not None and import_nvimgcodec.__wrapped__() is None


@pytest.mark.usefixtures('always_in_part')
def test_run_continues_with_regions_and_gives_the_same_batches(samples):
    "A state contains the decoder of whole photos, which does not change with regions."
    def loader(backend, **workers):
        return create_loader(ImageDataset(samples, split='val'), (3, 64, 64), 8, is_training=True, seed=3, device='cpu', backend=backend,
                             **workers)
    one, other = loader('simplejpeg', num_workers=0), loader('nvimgcodec', num_workers=2, worker_type='threads')
    batches = iter(one)
    for _ in range(2): next(batches)
    other.load_state_dict(one.state_dict())
    rest = [images for images, _ in batches]
    found = [images for images, _ in other]
    assert len(rest) == len(found) >= 2 and all(torch.equal(a, b) for a, b in zip(rest, found))


def test_doctor_tries_regions_in_training_only(samples):
    def calls(**settings):
        return diagnose(ImageDataset(samples), 64, 8, num_images=16, rounds=1, seconds=0.05, num_workers=0, device='cpu', **settings).calls
    assert "backend='nvimgcodec'" in calls(is_training=True)
    assert "backend='nvimgcodec'" not in calls() and "backend='nvimgcodec'" not in calls(is_training=True, backend='nvimgcodec')


def test_named_backend_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setitem(jpeg._FIND, 'nvimgcodec', lambda: None)
    with pytest.raises(ImportError, match='pip install nvidia-nvimgcodec-cu12'): resolve_backend('nvimgcodec')
    assert resolve_backend() != 'nvimgcodec'
