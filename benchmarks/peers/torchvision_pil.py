"torchvision's `ImageFolder` and v2 on PIL images, in torch's DataLoader: the pipeline of the reference scripts."
import torch
import torchvision
from common import MEAN, STD, tensor_pipeline
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

NAME, VERSION = 'torchvision, PIL images', torchvision.__version__


def make(data_dir, work, workers, batch_size, scratch, options):
    to_float = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset = ImageFolder(data_dir, v2.Compose([tensor_pipeline(work), *to_float]))
    return DataLoader(dataset, batch_size, shuffle=work != 'eval', num_workers=workers, persistent_workers=True)
