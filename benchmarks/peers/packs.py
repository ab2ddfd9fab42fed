"What the peers with a format of their own share: its files are written once, by `prepare`."
from pathlib import Path

from common import files, normalized, tensor_pipeline
from PIL import Image


def packed(data_dir, scratch, format: str, shard_bytes: int | None = None) -> Path:
    "This library's pack of the photographs: files as they are, or raw pixels."
    from timmdata import ImageDataset, write_pack
    from timmdata.datasets import packing
    out = Path(scratch)/f'{Path(data_dir).name}-{format}'
    if shard_bytes: packing._SHARD_BYTES = shard_bytes   # a small set shall have several
    if not out.exists(): write_pack(ImageDataset(data_dir, split=None), out, 'train', format=format)
    return out


def cache(options: dict, argument: str = 'cache_dir') -> dict[str, str]:
    "The argument that names the folder for copies of what a server has, if there is to be one."
    return {argument: options['cache']} if 'cache' in options else {}


def size_note(data_dir, paths) -> str:
    before = sum(Path(file).stat().st_size for file, _ in files(data_dir))
    return f"its files have {sum(path.stat().st_size for path in paths) / before:.0%} of the photographs' bytes"


class ToTensor:
    "torchvision's pipeline for a PIL image, to a uint8 tensor; picklable."

    def __init__(self, work): self.steps = tensor_pipeline(work)

    def __call__(self, image: Image.Image):
        from torchvision.transforms.v2.functional import pil_to_tensor
        return pil_to_tensor(self.steps(image.convert('RGB')))


class Normalized:
    "Batches of a loader that gives (uint8 images, targets)."

    def __init__(self, loader): self.loader = loader

    def __iter__(self):
        for images, targets in self.loader: yield normalized(images), targets

    def __getattr__(self, name): return getattr(self.loader, name)   # a state, where there is one
