"The authors' pipeline: torchvision's transforms on PIL images, Pillow's blur and solarize, in torch's DataLoader."
import random

import torchvision
from common import MEAN, RATIO, STD
from PIL import ImageFilter, ImageOps
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from views import Photographs, each_view

NAME, VERSION = "the authors' torchvision", torchvision.__version__


class Blur:
    "Pillow's Gaussian blur with a random std."

    def __init__(self, radius): self.radius = radius

    def __call__(self, image): return image.filter(ImageFilter.GaussianBlur(random.uniform(*self.radius)))


def view_pipeline(view: dict) -> transforms.Compose:
    "One view of a PIL image, as a normalized tensor."
    interpolation = transforms.InterpolationMode(view['interpolation'])
    steps = [transforms.RandomResizedCrop(view['input_size'], view['scale'], RATIO, interpolation),
             transforms.RandomHorizontalFlip(),
             transforms.RandomApply([transforms.ColorJitter(*view['color_jitter'])], view['color_jitter_prob']),
             transforms.RandomGrayscale(view['grayscale_prob']),
             transforms.RandomApply([Blur(view['gaussian_blur_radius'])], view['gaussian_blur_prob'])]
    if view['solarize_prob']: steps.append(transforms.RandomApply([ImageOps.solarize], view['solarize_prob']))
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


class Views:
    "All views of a PIL image."

    def __init__(self, work): self.pipelines = [view_pipeline(view) for view in each_view(work)]

    def __call__(self, image): return [pipeline(image) for pipeline in self.pipelines]


def make(data_dir, work, workers, batch_size, scratch, options):
    loader = DataLoader(ImageFolder(data_dir, Views(work)), batch_size, shuffle=True, num_workers=workers, persistent_workers=True,
                        drop_last=True)
    return Photographs(loader, work, batch_size)
