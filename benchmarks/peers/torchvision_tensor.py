"`torchvision.io` decodes and v2 works on uint8 tensors, in torch's DataLoader."
import torch
import torchvision
from common import MEAN, STD, tensor_pipeline
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

NAME, VERSION = 'torchvision, tensors', torchvision.__version__


def load(path: str) -> torch.Tensor: return decode_image(read_file(path), ImageReadMode.RGB)


def make(data_dir, work, workers, batch_size, scratch, options):
    to_float = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset = ImageFolder(data_dir, v2.Compose([tensor_pipeline(work), *to_float]), loader=load)
    return DataLoader(dataset, batch_size, shuffle=work != 'eval', num_workers=workers, persistent_workers=True)
