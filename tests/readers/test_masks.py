"Each image gets the mask of its own name, from any layout of folders; what has no partner is one error that lists it."
import io
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from timmdata import ImageDataset, create_dataset, create_loader, relabel
from timmdata.core.faults import ImageReadError
from timmdata.datasets import classes_of, targets_of
from timmdata.datasets.outputs import data_folders, output_path
from timmdata.datasets.wrappers import content_key, fingerprint
from timmdata.look.pictures import dataset_html
from timmdata.samplers import sample_weights

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings('ignore:.*the classes are the folders:UserWarning')]
NAMES = '3.jpg', '1.jpeg', 'x.y.jpg', '20.png'


def put(path: Path, image: Image.Image, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def image_of(number: int, size=(24, 18)) -> Image.Image: return Image.new('RGB', size, (0, 10 * number, 0))


def draw(root: Path, images: list[str], masks: list[str], ending: str = '.png'):
    "Images whose green is 10 × their number, and masks that are full of theirs; folders that correspond have the same numbers."
    number = 0
    for folder, other in zip(images, masks, strict=True):
        for name in NAMES:
            number += 1
            put(root/'images'/folder/name, image_of(number))
            put(root/'masks'/other/f'{Path(name).stem}{ending}', Image.new('L', (24, 18), number))


def check(dataset: ImageDataset, count: int, fields: list[str]):
    "The number in each mask is that of its image, whose pixels Pillow reads from its file."
    assert len(dataset) == count and dataset.field_names == fields
    for k in range(count):
        *_, mask = sample = dataset[k]
        green = Image.open(dataset.filename(k, absolute=True)).getpixel((0, 0))[1]
        assert mask.getextrema() == (round(green / 10),) * 2 and len(sample) == len(fields) and sample[0].size == mask.size


PLAIN, LABELED = ['image', 'mask'], ['image', 'target', 'mask']
SPLITS = ['train', 'val']
LAYOUTS = {   # folders of images, those of masks, arguments, samples, fields
    'flat': ([''], [''], {}, 4, PLAIN),
    'flat, whole root': ([''], [''], dict(split=None), 4, PLAIN),
    'splits': (SPLITS, SPLITS, dict(split='val'), 4, PLAIN),
    'splits, another name of a split': (['training', 'validation'], ['train', 'val'], dict(split='val'), 4, PLAIN),
    'all splits': (SPLITS, ['training', 'validation'], dict(split=None), 8, PLAIN),
    'one split': (['train'], ['train'], {}, 4, PLAIN),
    'classes': (['cat', 'dog'], ['cat', 'dog'], {}, 8, LABELED),
    'splits of classes': ([f'{split}/{name}' for split in SPLITS for name in 'ab'],) * 2 + (dict(split='val'), 8, LABELED),
    'all splits of classes': ([f'{split}/{name}' for split in SPLITS for name in 'ab'],) * 2 + (dict(split=None), 16, LABELED),
    'a split of any name': (['fold1/a', 'fold2/a'],) * 2 + (dict(split='fold2'), 4, LABELED),
    'a class map': (['cat', 'dog'], ['cat', 'dog'], dict(class_map={'dog': 5}), 4, LABELED),
}


@pytest.mark.parametrize('name', LAYOUTS)
def test_images_find_their_masks_in_any_layout(tmp_path, name):
    images, masks, settings, count, fields = LAYOUTS[name]
    draw(tmp_path, images, masks)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # of a class that the class map leaves out
        dataset = ImageDataset(tmp_path/'images', masks=tmp_path/'masks', **settings)
    check(dataset, count, fields)
    assert f'masks: {tmp_path/"masks"}' in repr(dataset)


ROOTS = {   # where images and masks are, and the roots that are passed
    'the split in the masks only': (['training', 'validation'],) * 2 + ('images/validation', 'masks', {}),
    'the split in the images only': (['validation'], [''], 'images', 'masks', dict(split='val')),
    'both roots are splits': (['train', 'val'], ['train', 'val'], 'images/val', 'masks/val', {}),
    'the split, and its masks': (['train', 'val'], ['train', 'val'], 'images', 'masks/val', dict(split='val')),
    'images without a split': (['', ], ['training'], 'images', 'masks', {}),
}


@pytest.mark.parametrize('name', ROOTS)
def test_the_split_may_be_on_one_side_only(tmp_path, name):
    images, masks, root, other, settings = ROOTS[name]
    draw(tmp_path, images, masks)
    check(ImageDataset(tmp_path/root, masks=tmp_path/other, **settings), 4, PLAIN)


@pytest.mark.parametrize(('root', 'masks', 'settings'), [
    ('images/val', 'masks/train', {}), ('images', 'masks/train', dict(split='val')), ('images/train', 'masks/val', {})])
def test_masks_of_another_split_are_never_taken(tmp_path, root, masks, settings):
    "All names are the same there."
    draw(tmp_path, SPLITS, SPLITS)
    with pytest.raises(ValueError, match='(?s)4 of 4 images have no mask.*4 of 4 masks belong to another split: '):
        ImageDataset(tmp_path/root, masks=tmp_path/masks, **settings)


def test_hidden_files_and_other_types_are_no_masks(tmp_path):
    draw(tmp_path, [''], [''])
    put(tmp_path/'masks'/'.3.png', Image.new('L', (9, 9)))
    put(tmp_path/'masks'/'@eaDir'/'3.png', Image.new('L', (9, 9)))
    (tmp_path/'masks'/'3.txt').write_text('about 3')
    put(tmp_path/'masks'/'more.png', Image.new('L', (9, 9)))   # a mask without an image is no error
    check(ImageDataset(tmp_path/'images', masks=os.fspath(tmp_path/'masks')), 4, PLAIN)
    check(create_dataset('', tmp_path/'images', 'train', masks=tmp_path/'masks'), 4, PLAIN)


MODES = {
    'P': (Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4)).convert('P'), '.png'), 'L': (Image.new('L', (4, 3), 7), '.tif'),
    'I;16': (Image.fromarray(np.full((3, 4), 50_000, np.uint16)), '.png'), '1': (Image.new('1', (4, 3), 1), '.bmp'),
    'RGB': (Image.new('RGB', (4, 3), (200, 0, 7)), '.PNG')}


@pytest.mark.parametrize('mode', MODES)
def test_a_mask_is_as_in_its_file(tmp_path, mode):
    mask, ending = MODES[mode]
    put(tmp_path/'images'/'a.jpg', image_of(1))
    path = put(tmp_path/'masks'/f'a{ending}', mask)
    _, found = ImageDataset(tmp_path/'images', masks=tmp_path/'masks')[0]
    assert found.mode == Image.open(path).mode and np.array_equal(found, Image.open(path))
    raw = ImageDataset(tmp_path/'images', masks=tmp_path/'masks', load_bytes=True)
    assert raw[0] == ((tmp_path/'images'/'a.jpg').read_bytes(), path.read_bytes()) == raw.reader[0]
    assert raw.mask_filename(0) == path.name and raw.mask_filename(0, absolute=True) == os.fspath(path)


def test_all_that_has_no_partner_is_one_error(tmp_path):
    draw(tmp_path, SPLITS, SPLITS)
    for name in '1.png', '20.png': (tmp_path/'masks'/'train'/name).unlink()
    put(tmp_path/'masks'/'train'/'21.png', Image.new('L', (24, 18)))
    with pytest.raises(ValueError) as caught: ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    text = str(caught.value)
    for part in ('2 of 4 images have no mask: train/1.jpeg, train/20.png', '1 of 7 masks have no image: train/21.png',
                 '4 of 7 masks belong to another split: val/1.png, val/3.png, val/20.png, …',
                 "pass their names as exclude="): assert part in text
    check(ImageDataset(tmp_path/'images', masks=tmp_path/'masks', exclude=['train/1.jpeg', 'train/20.png']), 2, PLAIN)


def test_the_error_is_short_for_many_images(tmp_path):
    put(tmp_path/'images'/'0.jpg', image_of(1))
    for k in range(1, 3000): os.link(tmp_path/'images'/'0.jpg', tmp_path/'images'/f'{k}.jpg')
    put(tmp_path/'masks'/'other.png', Image.new('L', (24, 18)))
    with pytest.raises(ValueError, match='3,000 of 3,000 images have no mask') as caught:
        ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize(('image', 'others', 'nearest'), [
    ('train/aachen/aachen_000000_000019_leftImg8bit.png', ['train/aachen/aachen_000000_000019_gtFine_labelIds.png',
     'train/aachen/aachen_000001_000019_gtFine_labelIds.png', 'train/bochum/bochum_000000_000019_gtFine_labelIds.png'], 0),
    ('12.jpg', ['11_mask.png', '12_mask.png', '13_mask.png'], 1), ('a/7.jpg', ['a/seg_7.png', 'b/seg_7.png'], 0)])
def test_the_error_shows_the_nearest_name_and_the_table_that_helps(tmp_path, image, others, nearest):
    put(tmp_path/'images'/image, image_of(1))
    for name in others: put(tmp_path/'masks'/name, Image.new('L', (24, 18)))
    with pytest.raises(ValueError) as caught: ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    assert f'The nearest name to {image} is {others[nearest]}. ' in str(caught.value) and "mask_key='mask'" in str(caught.value)


def test_names_that_are_not_unique_are_errors(tmp_path):
    put(tmp_path/'images'/'a.jpg', image_of(1))
    put(tmp_path/'masks'/'a.png', Image.new('L', (24, 18)))
    put(tmp_path/'masks'/'a.tif', Image.new('L', (24, 18)))
    with pytest.raises(ValueError, match=r'1 images have several masks: a.jpg \(a.png, a.tif\)'):
        ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    (tmp_path/'masks'/'a.tif').unlink()
    put(tmp_path/'images'/'a.png', image_of(1))
    with pytest.raises(ValueError, match=r'1 masks belong to several images: a.png \(a.jpg, a.png\)'):
        ImageDataset(tmp_path/'images', masks=tmp_path/'masks')


def test_folders_that_cannot_be_masks(tmp_path):
    draw(tmp_path, [''], [''])
    (tmp_path/'empty').mkdir()
    (tmp_path/'empty'/'a.npy').write_bytes(b'')
    os.symlink(tmp_path/'images', tmp_path/'link')
    for masks, error, match in (
            ('nowhere', FileNotFoundError, 'there is no folder of masks'), ('empty', ValueError, 'found no masks in'),
            ('images', ValueError, 'the folder of the images itself'), ('link', ValueError, 'the folder of the images itself'),
            ('images/3.jpg', NotADirectoryError, 'mask_key=')):
        with pytest.raises(error, match=match): ImageDataset(tmp_path/'images', masks=tmp_path/masks)
    (tmp_path/'link').unlink()
    with pytest.raises(ValueError, match='so masks such as masks/1.png were read as images'): ImageDataset(tmp_path, masks=tmp_path/'masks')
    with pytest.raises(TypeError, match='masks= needs images with names below a root, unlike list'):
        ImageDataset('', reader=[(image_of(1), 0)], masks=tmp_path/'masks')


def test_masks_are_not_found_twice(tmp_path):
    draw(tmp_path, [''], [''])
    (tmp_path/'t.csv').write_text('path,mask\nimages/3.jpg,masks/3.png\n')
    with pytest.raises(ValueError, match="have a field 'mask' already"):
        ImageDataset(tmp_path/'t.csv', target_key=None, mask_key='mask', masks=tmp_path/'masks')


def test_a_mask_that_cannot_be_read_is_a_fault_of_its_sample(tmp_path):
    draw(tmp_path, [''], [''])
    def made(on_error='raise'): return ImageDataset(tmp_path/'images', masks=tmp_path/'masks', on_error=on_error)
    both = made(), made('skip'), made('replace')
    (tmp_path/'masks'/'1.png').unlink()
    (tmp_path/'masks'/'20.png').write_bytes(b'\x89PNG damaged')
    for dataset in both:
        numbers = {name: k for k, name in enumerate(dataset.filenames())}
        if dataset.faults.on_error == 'raise':
            with pytest.raises(ImageReadError, match=r'cannot read 1\.jpeg .*: FileNotFoundError.*masks/1\.png'): dataset[numbers['1.jpeg']]
            with pytest.raises(ImageReadError, match=r'cannot read 20\.png .*: cannot read mask 20\.png: '): dataset[numbers['20.png']]
            continue
        with pytest.warns(RuntimeWarning): found = [dataset[numbers[name]] for name in ('1.jpeg', '20.png')]
        assert [bad.path for bad in dataset.bad_samples] == ['1.jpeg', '20.png']
        assert found == [None, None] if dataset.faults.on_error == 'skip' else all(len(sample) == 2 for sample in found)


WORKERS = {'here': dict(num_workers=0), 'threads': dict(num_workers=2, worker_type='threads'),
           'processes': dict(num_workers=2, worker_type='processes')}


def as_it_is(value, geometry): return value


@pytest.mark.parametrize('who', WORKERS)
def test_a_loader_gets_the_files_of_the_masks(tmp_path, who):
    draw(tmp_path, ['cat', 'dog'], ['cat', 'dog'])
    dataset = ImageDataset(tmp_path/'images', masks=tmp_path/'masks', exclude=['cat/1.jpeg'])
    follow = {'mask': as_it_is}
    batches = list(create_loader(dataset, 16, 4, is_training=False, device='cpu', follow=follow, **WORKERS[who]))
    files = [(tmp_path/'masks'/name).with_suffix('.png').read_bytes() for name in dataset.filenames()]
    assert [mask for *_, masks in batches for mask in masks] == files and len(files) == 7
    assert [target for _, targets, _ in batches for target in targets.tolist()] == [0] * 3 + [1] * 4


def test_images_and_masks_may_lie_in_a_store(tmp_path):
    store = pytest.importorskip('fsspec').filesystem('memory')
    draw(tmp_path, SPLITS, SPLITS)
    for path in tmp_path.rglob('*.*'): store.pipe(f'/{tmp_path.name}/{path.relative_to(tmp_path).as_posix()}', path.read_bytes())
    here = ImageDataset(tmp_path/'images', split='val', masks=tmp_path/'masks', load_bytes=True)
    url = f'memory://{tmp_path.name}'
    for root, masks in ((f'{url}/images', f'{url}/masks'), (tmp_path/'images', f'{url}/masks'), (f'{url}/images', tmp_path/'masks')):
        there = ImageDataset(root, split='val', masks=masks, load_bytes=True)
        there.prefetch(range(4))
        assert there.is_remote and [there[k] for k in range(4)] == [here[k] for k in range(4)]
        again = pickle.loads(pickle.dumps(there))
        assert again[3] == here[3] and type(again.reader[3][1]) is bytes
    assert there.mask_filename(2, absolute=True) == os.fspath(tmp_path/'masks'/here.mask_filename(2))
    store.rm(f'/{tmp_path.name}/masks/val/1.png')
    gone = ImageDataset(tmp_path/'images', split='val', masks=f'{url}/masks', exclude=['val/1.jpeg'])
    assert len(gone) == 3
    with pytest.raises(ValueError, match='is the folder of the images itself'): ImageDataset(f'{url}/images', masks=f'{url}/images/')


def test_selections_keep_the_pairs(tmp_path):
    draw(tmp_path, ['cat', 'dog', 'emu'], ['cat', 'dog', 'emu'])
    whole = ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    chosen = relabel(whole, {'cat': 'pet', 'dog': None, 'emu': 'bird'})
    check(chosen, 8, LABELED)
    assert chosen.class_to_idx == {'bird': 0, 'pet': 1} and chosen[0][1] == 1
    check(pickle.loads(pickle.dumps(chosen)), 8, LABELED)
    check(ImageDataset(tmp_path/'images', masks=tmp_path/'masks', exclude=['dog/3.jpg']), 11, LABELED)
    joined = ConcatDataset([Subset(whole, [7, 2]), chosen])
    assert [joined[k][2].getpixel((0, 0)) for k in range(3)] == [whole[k][2].getpixel((0, 0)) for k in (7, 2, 0)]
    assert targets_of(joined).tolist() == [1, 0] + [1] * 4 + [0] * 4


def test_samples_without_targets(tmp_path):
    "There is no target of -1, and what needs labels says so."
    draw(tmp_path, [''], [''])
    dataset = ImageDataset(tmp_path/'images', masks=tmp_path/'masks')
    assert dataset.classes == [] and 'samples have no target' in repr(dataset) and len(dataset[0]) == 2
    assert 'PNG' not in dataset_html(dataset)   # no label in place of the target
    assert targets_of(dataset).tolist() == [-1] * 4   # as for images without masks
    with pytest.raises(TypeError, match='does not provide class names'): classes_of(dataset)
    with pytest.raises(TypeError, match='does not provide class names'): relabel(dataset, {'a': 'b'})
    with pytest.raises(ValueError, match='have no label, so no class to balance'): sample_weights(dataset, 'balanced')
    with pytest.raises(ValueError, match='target_transform has no effect'):
        ImageDataset(tmp_path/'images', masks=tmp_path/'masks', target_transform=str)


def test_fingerprints_see_the_masks(tmp_path):
    "The fingerprint covers their names, the key of the content their size and time."
    draw(tmp_path, [''], [''])
    def made(**settings): return ImageDataset(tmp_path/'images', **settings)
    bare, first = made(), made(masks=tmp_path/'masks')
    prints, keys = {fingerprint(bare), fingerprint(first)}, {content_key(bare), content_key(first)}
    put(tmp_path/'masks'/'3.png', Image.effect_noise((24, 18), 9))
    assert fingerprint(made(masks=tmp_path/'masks')) in prints and content_key(made(masks=tmp_path/'masks')) not in keys
    (tmp_path/'masks'/'3.png').rename(tmp_path/'masks'/'3.bmp')
    assert fingerprint(made(masks=tmp_path/'masks')) not in prints and len(prints) == len(keys) == 2


def test_nothing_is_written_into_the_masks(tmp_path):
    draw(tmp_path, [''], [''])
    reader = ImageDataset(tmp_path/'images', masks=tmp_path/'masks').reader
    assert data_folders(reader) == [(tmp_path/name).resolve() for name in ('images', 'masks')]
    with pytest.raises(ValueError, match='where images are read from'): output_path(tmp_path/'masks'/'report', 'report', [reader])


# A table with a column of masks

def table_of(root: Path) -> Path:
    draw(root, [''], [''])
    rows = [f'images/{name},masks/{Path(name).stem}.png,{k % 2},{k}.5,"[{k}, 1]"' for k, name in enumerate(NAMES)]
    (root/'t.csv').write_text('\n'.join(['path,segmentation,label,share,points', *rows]))
    return root/'t.csv'


def test_a_column_of_masks_is_read_like_a_folder(tmp_path):
    path = table_of(tmp_path)
    check(ImageDataset(path, target_key=None, mask_key='segmentation'), 4, PLAIN)
    check(ImageDataset(path, mask_key='segmentation'), 4, LABELED)
    dataset = ImageDataset(path, mask_key='segmentation', weight_key='share', fields=['points', 'segmentation'])
    assert dataset.field_names == ['image', 'target', 'weight', 'points', 'segmentation', 'mask']
    image, *others, mask = dataset[2]
    assert others == [0, 2.5, '[2, 1]', 'masks/x.y.png'] and dataset.mask_filename(2) == 'masks/x.y.png'
    assert mask.getpixel((0, 0)) == 3
    (tmp_path/'t.csv').rename(tmp_path/'images'/'t.csv')
    check(ImageDataset(tmp_path, table=tmp_path/'images'/'t.csv', mask_key='segmentation'), 4, LABELED)
    check(ImageDataset(tmp_path, table=tmp_path/'images'/'t.csv', mask_key='segmentation', check_files=False), 4, LABELED)


def test_a_table_names_masks_that_are_missing(tmp_path):
    path = table_of(tmp_path)
    text = path.read_text()
    path.write_text(text.replace('masks/3.png', '../out.png').replace('masks/1.png', ''))
    Image.new('L', (4, 3)).save(tmp_path.parent/'out.png')
    (tmp_path/'masks'/'20.png').unlink()
    with pytest.raises(ValueError) as caught: ImageDataset(path, mask_key='segmentation', within_root=True)
    for part in ('1 × no mask: row 2 (images/1.jpeg)', '1 × missing mask: row 4 (masks/20.png)',
                 '1 × path outside the root: row 1 (../out.png)', 'Files were looked for in'): assert part in str(caught.value)
    with pytest.warns(UserWarning, match='missing mask'):
        kept = ImageDataset(path, mask_key='segmentation', within_root=True, on_problem='drop')
    assert kept.filenames() == ['images/x.y.jpg'] and kept[0][2].getpixel((0, 0)) == 3
    with pytest.raises(ValueError, match='mask_key'): ImageDataset(path, mask_key='masks')


def test_a_table_in_a_store_has_masks_there(tmp_path):
    store = pytest.importorskip('fsspec').filesystem('memory')
    path = table_of(tmp_path)
    for file in tmp_path.rglob('*.png'): store.pipe(f'/{tmp_path.name}/{file.relative_to(tmp_path).as_posix()}', file.read_bytes())
    for file in tmp_path.rglob('*.jp*'): store.pipe(f'/{tmp_path.name}/{file.relative_to(tmp_path).as_posix()}', file.read_bytes())
    here = ImageDataset(path, mask_key='segmentation', load_bytes=True)
    for check_files in True, False:
        there = ImageDataset(f'memory://{tmp_path.name}', table=path, mask_key='segmentation', load_bytes=True, check_files=check_files)
        assert there.is_remote and [there[k] for k in range(4)] == [here[k] for k in range(4)]


# Names of fields

def test_names_of_fields(tmp_path):
    put(tmp_path/'a'/'a.jpg', image_of(1))
    assert ImageDataset(tmp_path).field_names == ['image', 'target']
    assert ImageDataset('', reader=[(image_of(1), 0, 'more')]).field_names == ['image', 'target']
    class Own(list):
        field_names = 'image', 'target', 'depth'
        def filename(self, index, basename=False, absolute=False): return f'{index}'
    own = ImageDataset('', reader=Own([(image_of(1), 0, 'deep'), (image_of(2), 1, 'deeper')]), exclude=['0'])
    assert own.field_names == ['image', 'target', 'depth'] and own[0][2] == 'deeper'


def test_names_of_fields_of_hugging_face():
    hf = pytest.importorskip('datasets')
    features = hf.Features(image=hf.Image(), label=hf.Value('int64'), annotation=hf.Image(), boxes=hf.Value('string'))
    file = io.BytesIO()
    Image.new('L', (24, 18), 7).save(file, 'PNG')
    rows = dict(image=[image_of(1)], label=[0], annotation=[dict(bytes=file.getvalue(), path=None)], boxes=['[1]'])
    table = hf.Dataset.from_dict(rows, features=features)
    dataset = ImageDataset(table, additional_features=['annotation', 'boxes'])
    assert dataset.field_names == ['image', 'target', 'annotation', 'boxes']
    assert dataset[0][2].getpixel((0, 0)) == 7 and dataset[0][3] == '[1]'
