"Files that a careless loader clips, rotates or silently replaces: eleven test files."
import io
from pathlib import Path

import numpy as np
from PIL import Image

ODDITIES = {   # file → what it is; the last three cannot be read
    'gray.jpg': 'grayscale, mode L',
    'cmyk.jpg': 'CMYK, as print shops deliver',
    'palette.png': '64 colors, one of them transparent, mode P',
    'gray16.png': '16 bits a pixel, mode I;16',
    'rgba.png': 'transparency that fades out to the right',
    'exif_rotated.jpg': 'stored lying down, EXIF orientation 6 says to turn it',
    'progressive.jpg': 'progressive JPEG',
    'animated.png': 'animated PNG of two frames',
    'truncated.jpg': 'cut off after 60 % of its bytes',
    'empty.jpg': 'no bytes at all',
    'text.jpg': 'a text file',
}


def encode(image: Image.Image, format: str, **options) -> bytes:
    "Encode an image as a file."
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def make_oddities() -> dict[str, bytes]:
    "Make the files of `ODDITIES`, from one view of the cat."
    from timmdata.datasets.demo_data import make_view
    cat = Image.open(io.BytesIO(make_view('cat', 1000))).convert('RGB').resize((160, 120))
    gray, jpeg = cat.convert('L'), encode(cat, 'jpeg', quality=90)
    deep = np.asarray(gray).astype(np.uint16) * 240 + np.arange(160, dtype=np.uint16)   # up to 61359, beyond 8 bits
    fading = cat.copy()
    fading.putalpha(Image.fromarray(np.tile(np.linspace(255, 0, 160).astype(np.uint8), (120, 1))))
    exif = Image.Exif()
    exif[0x0112] = 6   # orientation: turn by 90 degrees clockwise to view
    lying = cat.transpose(Image.Transpose.ROTATE_90)
    return {
        'gray.jpg': encode(gray, 'jpeg'),
        'cmyk.jpg': encode(cat.convert('CMYK'), 'jpeg'),
        'palette.png': encode(cat.quantize(64), 'png', transparency=0),
        'gray16.png': encode(Image.fromarray(deep), 'png'),
        'rgba.png': encode(fading, 'png'),
        'exif_rotated.jpg': encode(lying, 'jpeg', exif=exif),
        'progressive.jpg': encode(cat, 'jpeg', progressive=True),
        'animated.png': encode(cat, 'png', save_all=True, append_images=[gray.convert('RGB')]),
        'truncated.jpg': jpeg[:len(jpeg) * 6 // 10],
        'empty.jpg': b'',
        'text.jpg': b'This is a text file with the extension of a photograph.\n',
    }


def write_oddities(folder: Path):
    "Write the files into a new folder."
    folder.mkdir()
    for name, data in make_oddities().items(): (folder/name).write_bytes(data)
