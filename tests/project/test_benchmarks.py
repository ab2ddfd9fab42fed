"Results of the benchmarks are shown, and their scripts find what they import."
import ast
import importlib
import io
import itertools
import json
import threading
import time
from collections import Counter

import numpy
import pytest
import torch
from PIL import Image
from synthetic import ROOT
from timm.data import auto_augment

pytestmark = pytest.mark.full
FOLDER = ROOT/'benchmarks'
SCRIPTS = sorted(path.stem for path in FOLDER.glob('*.py'))
RESULTS = sorted((FOLDER/'results').glob('*.json'))


@pytest.mark.parametrize('name', SCRIPTS)
def test_scripts_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    timms = dict(auto_augment.NAME_TO_OP)
    module = importlib.import_module(name)
    assert auto_augment.NAME_TO_OP == timms   # only a measurement repairs timm, not an import
    assert module.__doc__ and (hasattr(module, 'main') or name in ('results', 'side_by_side'))


def test_every_script_is_named_by_the_readme_or_by_another():
    readers = [FOLDER/'README.md', *FOLDER.glob('*.py')]
    texts = {path.stem: path.read_text(encoding='utf-8') for path in readers}
    assert [name for name in SCRIPTS if not any(name in text for other, text in texts.items() if other != name)] == []


@pytest.mark.parametrize('path', RESULTS, ids=lambda path: path.stem)
def test_results_say_where_they_come_from(path, monkeypatch):
    record = json.loads(path.read_text(encoding='utf-8'))
    assert {'date', 'machine', 'cores', 'python', 'torch'} <= set(record['machine']) and record['settings']
    if path.stem.startswith('gpu-'):   # named by who ran it
        monkeypatch.syspath_prepend(FOLDER)
        assert record['parts'] and set(record['parts']) <= set(importlib.import_module('on_a_gpu').PARTS)


@pytest.mark.parametrize('path', RESULTS, ids=lambda path: path.stem)
def test_results_are_shown(path):
    "Either on a page, or in a table of the benchmarks' README, which the next test compares."
    pages = ''.join(page.read_text(encoding='utf-8') for page in (ROOT/'nbs').rglob('*.ipynb'))
    shown = f'results/{path.stem}.json' in pages or f"read_record('{path.stem}')" in pages
    assert shown or path.stem.startswith('gpu-') or path.stem in ('views', 'masks', 'naflex', 'decode_limit')


def test_readme_has_the_tables_of_the_peers(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    results = importlib.import_module('results')
    text = (FOLDER/'README.md').read_text(encoding='utf-8')
    for name in 'peers', 'packed', 'views', 'masks', 'naflex': assert results.peers_table(results.read_results(name)['results']) in text
    assert results.naflex_table(results.read_results('naflex')['epochs']) in text
    assert results.decode_table(results.read_results('decode_limit')['cores']) in text
    assert results.machines_table(results.read_results('beside_timm')['runs']) in text
    assert results.parts_table(results.read_results('decode_parts')['sizes']) in text
    host = results.read_results('host_cost')
    assert results.host_cost_table(host['works'], host['before']) in text
    gpu = results.read_results('gpu-h100')['parts']
    assert results.headroom_table(gpu['headroom']['models']) in text
    assert results.cores_table(gpu['cores']['images_per_s']) in text and results.kernels_table(gpu['kernels']['works']) in text
    for name, found in results.read_results('recipes')['results'].items():
        [line] = [line for line in text.splitlines() if line.startswith((f'| {name} |', f'| {name}:'))]
        assert line.endswith(f'| {found["speed"]:.2f} | {found["cpu_ms"]:.2f} | {found["timm_cpu_ms"]:.2f} |')


# the script for a GPU: what it counts, on a CPU

@pytest.fixture
def on_a_gpu(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('on_a_gpu')


@pytest.mark.parametrize('num_images', [0, 1, 4, 7, 30])
def test_links_are_as_many_as_wanted_and_from_all_classes(on_a_gpu, tmp_path, num_images):
    for number in range(6):
        path = tmp_path/f'data/{"ab"[number % 2]}/{number}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    links = on_a_gpu.images_in(on_a_gpu.enlarge(tmp_path/'data', tmp_path/'links', num_images))
    used = Counter(link.resolve().name for link in links)
    assert len(links) == (num_images or 6) and max(used.values()) - min(used.values()) <= 1
    assert len(used) == min(6, num_images or 6) and (num_images == 1 or {link.parent.name for link in links} == {'a', 'b'})


def test_waits_for_the_first_batches_of_epochs_are_told_apart(on_a_gpu):
    "A feed that sleeps before every fourth batch only."
    def batches():
        for number in itertools.count():
            if number % 4 == 0: time.sleep(0.03)
            yield torch.zeros(2, 3, 1, 1), torch.zeros(2)
    feed = on_a_gpu.Feed(batches(), 4, on_a_gpu.Clocks())
    found = on_a_gpu.steps('a feed', feed, lambda images, targets: time.sleep(0.002), 0.4, warm=5)
    assert found['epoch_steps'] == 4 and found['epochs'] == len(range(8, 5 + found['steps'], 4)) > 1
    assert found['first_wait_ms'] > 25 and found['wait_ms'] < 15 and found['first_wait_max_ms'] == found['wait_max_ms']
    assert found['python_us_per_image'].keys() == {'training thread'}
    assert found['python_us_per_image']['training thread'] * 2 * found['steps'] < 1e6 * 0.1   # sleep is not counted


def test_clocks_count_the_cpu_time_of_the_thread_that_calls(on_a_gpu):
    clocks, used = on_a_gpu.Clocks(), []
    def work(is_busy):
        start = time.thread_time()
        while is_busy and time.thread_time() - start < 0.05: pass
        if not is_busy: time.sleep(0.05)
        used.append(time.thread_time() - start)
        return 'result'
    busy, idle = (clocks.timed(name, work) for name in ('busy', 'idle'))
    threads = [threading.Thread(target=busy, args=(True,)), threading.Thread(target=idle, kwargs={'is_busy': False})]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert clocks['busy'] == pytest.approx(max(used), abs=0.005) and clocks['idle'] < 0.02 and idle(False) == 'result'
    assert list(clocks.timed_steps('batches', [1, 2, 3])) == [1, 2, 3] and 'batches' in clocks


def test_feed_of_the_library_counts_both_sides(on_a_gpu, tmp_path):
    for number in range(4): Image.new('RGB', (40, 40), (number, 0, 0)).save(tmp_path/f'{number}.png')
    (tmp_path/'a').mkdir()
    for path in tmp_path.glob('*.png'): path.rename(tmp_path/'a'/path.name)
    with on_a_gpu.feed_of('timmdata', tmp_path, 2, 32, 0) as feed:
        images, targets = next(feed.batches)
        assert feed.num_steps == 2 and images.shape == (2, 3, 32, 32) and targets.tolist() == [0, 0]
        assert set(feed.clocks) == {'prefetch thread, batches', 'prefetch thread, transform'} and min(feed.clocks.values()) > 0


@pytest.mark.parametrize('wrong', [set(), {3}, {0, 1, 6}])
def test_batches_with_wrong_pixels_are_counted(on_a_gpu, wrong):
    "A decoder that returns wrong pixels at some steps."
    batches, number = [[torch.tensor([value, value + 1])] for value in (1, 5)], itertools.count(-2)   # first each batch alone
    def decode(encoded):
        return [one + (step in wrong) for one in encoded] if (step := next(number)) >= 0 else list(encoded)
    assert on_a_gpu.count_wrong(decode, batches, 8) == len(wrong) and next(number) == 8


@pytest.mark.filterwarnings('ignore:The image decoding')   # torchvision says that it will go
def test_decoders_of_a_list_of_files(on_a_gpu):
    data = io.BytesIO()
    Image.new('RGB', (32, 24), (200, 10, 10)).save(data, 'JPEG')
    encoded = torch.frombuffer(bytearray(data.getvalue()), dtype=torch.uint8)
    expected = torch.from_numpy(numpy.array(Image.open(data))).permute(2, 0, 1)
    for name, decode in on_a_gpu.find_decoders().items():
        assert [(one.cpu().int() - expected.int()).abs().max() <= 2 for one in decode([encoded, encoded])] == [True, True], name


def test_the_part_of_tests_finds_each_file_with_the_mark(on_a_gpu):
    "However it is written: as a decorator, in a list of parameters, or bound to a name."
    def has_mark(path) -> bool:
        tree = ast.parse(path.read_text(encoding='utf-8'))
        return any(isinstance(node, ast.Attribute) and node.attr == 'gpu' for node in ast.walk(tree))
    files = on_a_gpu.gpu_tests()
    assert files == sorted(path for path in (ROOT/'tests').rglob('test_*.py') if has_mark(path)) and len(files) > 5
    texts = [path.read_text(encoding='utf-8') for path in files]
    for name in ('test_side_stream_orders_both_ways', 'test_copies_overlap_with_the_consumers_kernels'):   # not run in 2026-11
        assert sum(f'def {name}' in text for text in texts) == 1
