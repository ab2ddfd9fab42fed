"Which files are read, which are reported, and which are passed over: by their names alone."
import mimetypes

import pytest
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS as torchvision_extensions

from timmdata.readers.extensions import NO_EXTENSION, add_img_extensions, get_img_extensions, is_ignored, set_img_extensions, unread_type

pytestmark = pytest.mark.timeout(60)
DATA_TYPES = {'BUFR', 'GRIB', 'HDF5', 'MPEG'}   # Pillow knows their names, not their pixels


def test_all_names_of_jpeg_files_are_read():
    pillows = {extension for extension, kind in Image.registered_extensions().items() if kind == 'JPEG'}
    browsers = set(mimetypes.MimeTypes().guess_all_extensions('image/jpeg'))
    assert pillows | browsers | {'.jfif', '.jif', '.pjpeg', '.pjp'} <= get_img_extensions(as_set=True)
    assert set(torchvision_extensions) <= get_img_extensions(as_set=True)


def test_every_type_that_pillow_reads_is_read_or_reported():
    readable = {extension for extension, kind in Image.registered_extensions().items()
                if kind in Image.OPEN and kind not in DATA_TYPES}
    assert len(readable) > 50
    assert {extension for extension in readable if unread_type(f'photo{extension.upper()}') != extension} == set()


def test_every_type_that_python_calls_an_image_is_reported():
    images = [extension for extension, kind in mimetypes.MimeTypes().types_map[True].items() if kind.startswith('image/')]
    assert len(images) > 15 and all(unread_type(f'photo{extension}') == extension for extension in images)


@pytest.mark.parametrize('name, kind', [
    ('a.heic', '.heic'), ('a.HEIF', '.heif'), ('a.jxl', '.jxl'), ('a.dng', '.dng'), ('a.svg', '.svg'), ('a.eps', '.eps'), ('a.xyz', '.xyz'),
    ('a', NO_EXTENSION), ('a.', NO_EXTENSION), ('2024.11.28', NO_EXTENSION), ('my photo v1.5 of a cat', NO_EXTENSION),
    ('a.jpg_', '.jpg_'), ('a.jpg ', '.jpg '), ('a.JPG~', '.jpg~'), ('a.jpg\u00a0', '.jpg\u00a0'), ('a.jpg?x=1', '.jpg?…'),
    ('a.png?x=2', '.png?…'),
    ('a.jpg (1)', '.jpg …'), ('a.jpg:large', '.jpg:…'), ('a.jpg.1', '.jpg.…'), ('a.jpg.bak', '.jpg.bak'), ('a.jpg.gz', '.jpg.gz'),
    ('a.jfif_', '.jfif_'), ('a.nii.gz', '.nii.gz'), ('a.jpg.webp2', '.jpg.webp2')])
def test_what_may_be_an_image_is_counted_under_its_type(name, kind):
    assert unread_type(name) == kind


@pytest.mark.parametrize('name', """a.txt a.XML a.json a.csv a.py a.md a.npy a.npz a.db a.ini a.yaml a.log a.pdf a.zip
    a.tar.gz a.csv.gz a.mp4 a.wav a.pth a.safetensors a.bin a.h5 a.html a.ipynb
    a.jpg.txt a.jpg.json a.png.npy a.gif.mp4 a.bak a.tfw README LICENSE Makefile SHA256SUMS
    events.out.tfevents.1700000000.host.7.0""".split())
def test_what_is_certainly_not_an_image_is_not_counted(name):
    assert unread_type(name) is None


def test_many_names_have_few_types():
    assert {unread_type(f'{k}.jpg?id={k}') for k in range(1000)} == {'.jpg?…'}


def test_a_type_that_was_added_is_counted_if_it_is_not_read():
    before = get_img_extensions()
    try:
        add_img_extensions('.npy')
        assert unread_type('a.npy') == '.npy' and unread_type('a.npy?x=1') == '.npy?…'
    finally: set_img_extensions(before)
    assert unread_type('a.npy') is None


def test_folders_of_systems_are_passed_over():
    system = ['.git', '@eaDir', '#recycle', '__MACOSX', '$RECYCLE.BIN', '$Recycle.Bin', 'System Volume Information', 'lost+found']
    assert all(map(is_ignored, system))
    assert not any(map(is_ignored, ['cat', 'macosx', '@home', '#cat', '$', 'lost', 'recycle', 'eadir', '_']))
