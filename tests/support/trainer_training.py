"Training with Hugging Face's Trainer, tested against the contract of `framework_runs`."
import logging
import warnings

import torch
from framework_runs import BATCH, EPOCHS, SETTINGS, make_dataset, make_model
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import TrainingArguments
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from timmdata.integrations.huggingface import ImageTrainer

set_verbosity_error()
disable_progress_bar()


class Model(nn.Module):
    "The tiny model, called and answering as those of Transformers; it tells what it sees in training."
    def __init__(self, see=lambda targets: None):
        super().__init__()
        self.model, self.see = make_model(), see

    def forward(self, pixel_values, labels):
        if self.training: self.see(labels)
        logits = self.model(pixel_values)
        return dict(loss=cross_entropy(logits, labels), logits=logits)


def make_trainer(folder, see=lambda targets: None, save_every=1000, settings=None, **changes):
    "A trainer of two epochs."
    settings = {'num_workers': SETTINGS['num_workers'], **(settings or {})}
    args = dict(output_dir=str(folder), num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, use_cpu=True,
                per_device_eval_batch_size=BATCH, data_seed=SETTINGS['seed'], dataloader_drop_last=True, report_to='none',
                save_strategy='steps', save_steps=save_every, eval_strategy='epoch', logging_steps=1, disable_tqdm=True)
    dataset = make_dataset()
    return ImageTrainer(Model(see), TrainingArguments(**{**args, **changes}), train_dataset=dataset, eval_dataset=dataset,
                        input_size=8, settings=settings)


def train(folder, see, resume, save_every, **changes):
    "Two epochs, each with an evaluation at its end."
    logging.disable(logging.WARNING)
    warnings.filterwarnings('ignore')
    torch.manual_seed(0)
    make_trainer(folder, see, save_every, **changes).train(resume_from_checkpoint=resume or None)


def predict_all(folder):
    "Targets, predictions and loss of a model that was not trained, as one process has them."
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    trainer = make_trainer(folder, settings=dict(num_workers=0))
    found = trainer.predict(trainer.eval_dataset)
    return found.label_ids.tolist(), found.predictions.argmax(1).tolist(), found.metrics['test_loss']
