"Training with Lightning, tested against the contract of `framework_runs`."
import logging
import warnings

import torch
from framework_runs import BATCH, EPOCHS, SETTINGS, make_dataset, make_model
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

from timmdata.integrations.lightning import ImageDataModule

QUIET = dict(accelerator='cpu', logger=False, enable_progress_bar=False, enable_model_summary=False)


class Model(LightningModule):
    "The tiny model, which reports its inputs."
    def __init__(self, see=lambda targets: None):
        super().__init__()
        self.model, self.see = make_model(), see
        self.evaluated = []

    def training_step(self, batch, batch_idx):
        images, targets = batch
        self.see(targets)
        return cross_entropy(self.model(images), targets)

    def validation_step(self, batch, batch_idx): self.evaluated.append(batch[1].tolist())

    test_step = predict_step = validation_step

    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.01)


def make_data(**changes):
    "Training and validation with one dataset."
    settings = {**SETTINGS, **changes}
    for name in ('input_size', 'batch_size', 'is_training', 'device'): settings.pop(name)
    dataset = make_dataset()
    return ImageDataModule({'train': dataset, 'val': dataset}, 8, BATCH, **settings)


def train(folder, see, resume, save_every, **trainer):
    "Two epochs, with a validation in the middle and at the end of each, and one before the first."
    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)
    warnings.filterwarnings('ignore')
    saving = ModelCheckpoint(folder, filename='{step}', every_n_train_steps=save_every, save_top_k=-1)
    settings = dict(max_epochs=EPOCHS, val_check_interval=0.5, devices=1, callbacks=[saving])
    newest = max(folder.glob('*.ckpt'), key=lambda path: int(path.stem.split('=')[1]), default=None)
    Trainer(**{**QUIET, **settings, **trainer}).fit(Model(see), make_data(), ckpt_path=newest if resume else None)
