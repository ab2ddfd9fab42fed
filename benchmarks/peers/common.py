"""What the peers share: the files of a folder, the statistics, the pipeline for uint8 tensors.

Every peer is a module with NAME, VERSION and
`make(data_dir, work, workers, batch_size, scratch, options)`, which gives an object whose every `iter()` is an epoch of
(float32 images (N, 3, 224, 224) on the CPU, targets), or a str: the reason why it cannot do this work.
`work` is 'train', 'jitter', 'eval' or 'phone' ('train' on 12-megapixel photographs). The number of files is a multiple of
batch_size · workers. `scratch` is a folder for files of the peer's own; a module may have `prepare(...)`, with the same parameters,
that writes them before anything is timed and gives a note for the table.
"""
import math
import random
from pathlib import Path

import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE, RESIZE = 224, 256
SCALE, RATIO, JITTER = (0.08, 1.0), (3 / 4, 4 / 3), 0.4


def files(data_dir: str) -> list[tuple[str, int]]:
    "(path, class) of every file, in the order of names."
    folders = sorted(p for p in Path(data_dir).iterdir() if p.is_dir())
    return [(str(path), target) for target, folder in enumerate(folders) for path in sorted(folder.iterdir())]


def shuffled(samples: list, work: str) -> list:
    "The samples in random order; in their own for evaluation."
    return samples if work == 'eval' else [samples[i] for i in torch.randperm(len(samples)).tolist()]


def random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    "(top, left, height, width) as RandomResizedCrop draws them, without tensors."
    for _ in range(10):
        area, aspect = height * width * random.uniform(*SCALE), math.exp(random.uniform(*map(math.log, RATIO)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height: return random.randint(0, height - h), random.randint(0, width - w), h, w
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (height - h) // 2, (width - w) // 2, h, w


def tensor_pipeline(work: str):
    "torchvision v2 for one decoded image, uint8 (3, H, W) or PIL: as it arrives at `normalized`."
    from torchvision.transforms import InterpolationMode, v2
    if work == 'eval':
        return v2.Compose([v2.Resize(RESIZE, InterpolationMode.BICUBIC, antialias=True), v2.CenterCrop(SIZE)])
    jitter = [v2.ColorJitter(JITTER, JITTER, JITTER)] if work == 'jitter' else []
    return v2.Compose([v2.RandomResizedCrop(SIZE, SCALE, RATIO, antialias=True), v2.RandomHorizontalFlip(), *jitter])


class LeanPipeline:
    "The same work for a uint8 tensor with the fewest Python steps, for loaders whose threads share one interpreter."

    def __init__(self, work):
        from torchvision.transforms import v2
        self.whole = tensor_pipeline(work) if work == 'eval' else None
        self.jitter = v2.ColorJitter(JITTER, JITTER, JITTER) if work == 'jitter' else None

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        if self.whole: return self.whole(image)
        top, left, height, width = random_crop(*image.shape[1:])
        crop = image[None, :, top:top + height, left:left + width]
        image = torch.nn.functional.interpolate(crop, (SIZE, SIZE), mode='bilinear', antialias=True)[0]
        if random.random() < 0.5: image = image.flip(2)
        return self.jitter(image) if self.jitter else image


def normalized(images: torch.Tensor) -> torch.Tensor:
    "uint8 images (N, 3, H, W) as normalized float32, for loaders that leave this to the user."
    mean, std = (torch.tensor(values).view(3, 1, 1) * 255 for values in (MEAN, STD))
    return images.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).div_(std)
