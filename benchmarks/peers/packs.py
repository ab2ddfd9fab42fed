"What the peers with a format of their own share: its files are written once, by `prepare`."
from pathlib import Path

from common import files, normalized, tensor_pipeline
from PIL import Image


def packed(data_dir, scratch, format: str) -> Path:
    "This library's pack of the photographs: JPEGs with segments, files as they are, or raw pixels."
    from timmdata import ImageDataset, pack
    out = Path(scratch)/f'{Path(data_dir).name}-{format}'
    if not out.exists(): pack(ImageDataset(data_dir, split=None), out, 'train', format=format)
    return out


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
