"What the peers with a format of their own share: its files are written once, by `prepare`."
from pathlib import Path

from common import files


def packed(data_dir, scratch, format: str) -> Path:
    "This library's pack of the photographs: files as they are, or raw pixels."
    from timmdata import ImageDataset, write_pack
    out = Path(scratch)/f'{Path(data_dir).name}-{format}'
    if not out.exists(): write_pack(ImageDataset(data_dir, split=None), out, 'train', format=format)
    return out


def size_note(data_dir, paths) -> str:
    before = sum(Path(file).stat().st_size for file, _ in files(data_dir))
    return f"its files have {sum(path.stat().st_size for path in paths) / before:.0%} of the photographs' bytes"
