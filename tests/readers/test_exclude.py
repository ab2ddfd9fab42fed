"Samples left out by name, from every kind of reader; classes keep their indexes."
import json
import tarfile

import pytest
import torch
from PIL import Image

from timmdata import ImageDataset, create_loader
from timmdata.datasets.wrappers import describe, fingerprint


@pytest.fixture
def photos(tmp_path):
    "Three classes of two photographs; one name holds a line break."
    names = ['ant/a.png', 'ant/b.png', 'bee/a.png', 'bee/b.png', 'cow/a.png', 'cow/new\nline.png']
    for number, name in enumerate(names):
        (tmp_path/'photos'/name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8), (number, 0, 0)).save(tmp_path/'photos'/name)
    return tmp_path/'photos'


def contents(dataset) -> list[tuple]:
    "Of each sample: its name, its red, its class."
    return [(dataset.filename(k), dataset[k][0].getpixel((0, 0))[0], dataset[k][1]) for k in range(len(dataset))]


def test_a_folder_a_tar_and_a_table_agree(photos, tmp_path):
    with tarfile.open(tmp_path/'photos.tar', 'w') as tar: tar.add(photos, '.')
    names = ['ant/a.png', 'bee/a.png', 'bee/b.png']
    rows = [f'{path.relative_to(photos).as_posix()},{path.parent.name}' for path in sorted(photos.rglob('*.png')) if '\n' not in path.name]
    (photos/'labels.csv').write_text('\n'.join(['path,target', *rows]))
    for root in (photos, tmp_path/'photos.tar', photos/'labels.csv'):
        whole = ImageDataset(root, split=None)
        files = {name.removeprefix('./'): name for name in whole.filenames()}
        kept = ImageDataset(root, split=None, exclude=[files[name] for name in names])
        assert contents(kept) == [row for row in contents(whole) if row[0].removeprefix('./') not in names]
        assert kept.class_to_idx == whole.class_to_idx == {'ant': 0, 'bee': 1, 'cow': 2} and fingerprint(kept) != fingerprint(whole)


def test_names_of_a_file(photos, tmp_path):
    path = tmp_path/'exclude.json'
    path.write_text(json.dumps({'cow/new\nline.png': 'its name'}))
    assert len(ImageDataset(photos, exclude=path)) == 5
    path = tmp_path/'exclude.txt'
    path.write_bytes(b'ant/a.png\r\n\r\nant/b.png\n')
    assert len(ImageDataset(photos, exclude=str(path))) == 4


def test_readers_of_users_are_wrapped_or_refused():
    class Named(list):
        def filename(self, index, basename=False, absolute=False): return f'{index}.png'
    samples = [(Image.new('RGB', (8, 8), (k, 0, 0)), k) for k in range(6)]
    dataset = ImageDataset('', reader=Named(samples), exclude=['0.png', '3.png'])
    assert contents(dataset) == [(f'{k}.png', k, k) for k in (1, 2, 4, 5)]
    _, targets = next(iter(create_loader(dataset, 8, 4, num_workers=0, device='cpu')))
    assert torch.equal(targets, torch.tensor([1, 2, 4, 5]))
    with pytest.raises(TypeError, match='exclude.*list .*filename'): ImageDataset('', reader=samples, exclude=['0.png'])


def test_a_function_is_described_wherever_its_file_lies():
    "A comprehension and a lambda are code in the code, which names its file and its line."
    source = 'def pairs(samples): return sorted([2 * sample for sample in samples], key=lambda pair: -pair)'
    made = []
    for text, name in ((source, 'one.py'), ('\n\n' + source, '/another/place/two.py'), (source.replace('2', '3'), 'one.py')):
        there = {}
        exec(compile(text, name, 'exec'), there)
        made.append(describe(there['pairs']))
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize('name, content', [
    ('list.json', b'["a", '), ('list.txt', b'\xff\xd8\xff\xe0'), ('list.json', b'\xff\xfe'), ('list.json', b'{"a": ')])
def test_a_file_that_lists_nothing_is_named(photos, tmp_path, name, content):
    (tmp_path/name).write_bytes(content)
    with pytest.raises(ValueError, match=rf'{name} does not list names .*: must be JSON, or text in UTF-8 with one name per line'):
        ImageDataset(photos, exclude=tmp_path/name)


def test_a_name_that_looks_like_one_of_a_sample_is_told(photos):
    with pytest.raises(ValueError, match="1 of 1 names match no sample.*'ant/A.png' looks like 'ant/a.png'"):
        ImageDataset(photos, exclude=['ant/A.png'])
