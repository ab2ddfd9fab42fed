"""torchvision v2 with tv_tensors, in torch's DataLoader.

Option "read": 'Pillow', as in torchvision's reference scripts, or 'torchvision.io'.
"""
import torch
import torchvision
from common import MEAN, RATIO, SCALE, STD
from masks import SIZE, Photographs, rows
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

NAME, VERSION = 'torchvision v2', torchvision.__version__


class Segmentation(Dataset):
    "Photographs with masks, read with Pillow or as tensors, and transformed together."

    def __init__(self, table, way):
        self.rows, self.way = rows(table), way
        to_float = v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, 'others': None}, scale=True)
        crop = v2.RandomResizedCrop(SIZE, SCALE, RATIO, antialias=True)
        self.steps = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.ToImage(), to_float, v2.Normalize(MEAN, STD)])

    def __len__(self): return len(self.rows)

    def read(self, path, mask):
        if self.way == 'torchvision.io':
            image = tv_tensors.Image(decode_image(read_file(path), ImageReadMode.RGB))
            return image, tv_tensors.Mask(decode_image(read_file(mask), ImageReadMode.UNCHANGED)[0])
        return Image.open(path).convert('RGB'), tv_tensors.Mask(Image.open(mask))

    def __getitem__(self, index):
        image, mask = self.steps(*self.read(*self.rows[index]))
        return image, mask.squeeze(0)


def make(data_dir, work, workers, batch_size, scratch, options):
    dataset = Segmentation(data_dir, options['read'])
    return Photographs(DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True))
