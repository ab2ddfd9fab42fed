"Albumentations on OpenCV's arrays, in torch's DataLoader."
import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from common import MEAN, RATIO, SCALE, STD
from masks import SIZE, Photographs, rows
from torch.utils.data import DataLoader, Dataset

NAME, VERSION = 'Albumentations', A.__version__


class Segmentation(Dataset):
    "Photographs with masks, read with OpenCV, and transformed together."

    def __init__(self, table):
        self.rows = rows(table)
        self.steps = A.Compose([A.RandomResizedCrop((SIZE, SIZE), SCALE, RATIO), A.HorizontalFlip(), A.Normalize(MEAN, STD), ToTensorV2()])

    def __len__(self): return len(self.rows)

    def __getitem__(self, index):
        path, mask = self.rows[index]
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        done = self.steps(image=image, mask=cv2.imread(mask, cv2.IMREAD_UNCHANGED))
        return done['image'], done['mask'].long()


def one_thread(_): cv2.setNumThreads(0)


def make(data_dir, work, workers, batch_size, scratch, options):
    return Photographs(DataLoader(Segmentation(data_dir), batch_size, shuffle=True, num_workers=workers, persistent_workers=True,
                                  drop_last=True, worker_init_fn=one_thread))
