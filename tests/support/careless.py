"JPEGs with careless headers: application segments and comments that break their own rules, and bytes between segments."
import struct

PHOTOSHOP, EXIF = b'Photoshop 3.0\0', b'Exif\0\0'


def segment(marker: int, body: bytes, size: int | None = None) -> bytes:
    "A marker segment of a JPEG; `size` is a wrong length."
    return bytes((0xFF, marker)) + struct.pack('>H', len(body) + 2 if size is None else size) + body


CARELESS = {   # name → bytes between two segments of the header
    'JFIF without a version': segment(0xE0, b'JFIF'), 'JFIF cut': segment(0xE0, b'JFIF\0'), 'JFXX cut': segment(0xE0, b'JFXX\0'),
    'empty APP0': segment(0xE0, b''), 'empty EXIF': segment(0xE1, EXIF), 'EXIF cut': segment(0xE1, EXIF + b'II*\0\x08\0\0\0\x05\0\x12\1'),
    'EXIF of letters': segment(0xE1, EXIF + b'xx'),
    'resolution as text': segment(0xE1, EXIF + b'II*\0\x08\0\0\0\1\0\x1a\1\2\0\4\0\0\0abc\0' + bytes(4)),
    'XMP cut': segment(0xE1, b'http://ns.adobe.com/xap/1.0/\0<x'),
    'MPF cut': segment(0xE2, b'MPF\0II*\0\x08\0\0\0\3\0\1\xb0'),
    'MPF of letters': segment(0xE2, b'MPF\0xx'),
    'MPF counts in text': segment(0xE2, b'MPF\0II*\0\x08\0\0\0\1\0\1\xb0\2\0\4\0\0\0abc\0' + bytes(4)),
    'profile without a number': segment(0xE2, b'ICC_PROFILE\0'), 'profile cut': segment(0xE2, b'ICC_PROFILE\0\1'),
    'Photoshop cut': segment(0xED, PHOTOSHOP + b'8BIM'), 'Photoshop cut in the code': segment(0xED, PHOTOSHOP + b'8BIM\3\xed'),
    'Photoshop cut in the name': segment(0xED, PHOTOSHOP + b'8BIM\3\xed\xff'),
    'Photoshop with a size beyond': segment(0xED, PHOTOSHOP + b'8BIM\3\xed\0\0\xff\xff\xff\xff'),
    'Photoshop with a short resolution': segment(0xED, PHOTOSHOP + b'8BIM\3\xed\0\0\0\0\0\4\0\0\0\0'),
    'Adobe without a version': segment(0xEE, b'Adobe'), 'Adobe cut': segment(0xEE, b'Adobe\0'),
    'Adobe without a transform': segment(0xEE, b'Adobe\0\x64\0\0\0\0'),
    'length 0': segment(0xE5, b'', 0), 'length 1': segment(0xE5, b'', 1), 'comment of length 0': segment(0xFE, b'', 0),
    'bytes between segments': segment(0xE1, EXIF) + b'junk',
    'zeros between segments': segment(0xE5, b'x') + bytes(7), 'zeros': bytes(7),
    'a length that is too short': segment(0xE5, b'abcdef', 5), 'filling': b'\xff\xff\xff', 'a restart marker': b'\xff\xd0'}


def careless_jpegs(jpeg: bytes) -> dict[str, bytes]:
    "Put each of them behind the start, behind the first segment, and before the pixels of a JPEG."
    first = 4 + int.from_bytes(jpeg[4:6], 'big')
    at = {'start': 2, 'first segment': first, 'pixels': jpeg.index(b'\xff\xda')}
    return {f'{name}, {where}': jpeg[:k] + odd + jpeg[k:] for name, odd in CARELESS.items() for where, k in at.items()}
