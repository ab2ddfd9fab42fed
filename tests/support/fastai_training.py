"fastai's `Learner` under the contract of `framework_runs`."
from fastai.callback.core import Callback
from fastai.learner import Learner
from fastai.optimizer import SGD
from framework_runs import EPOCHS, make_loader, make_model
from torch.nn.functional import cross_entropy

from timmdata.integrations.fastai import LoaderCheckpoint, create_dataloaders


class Watch(Callback):
    "Write down what the model gets in training; `run_valid` is fastai's word."
    run_valid = False
    def __init__(self, see): self.see = see
    def before_batch(self): self.see(self.yb[0])


def train(folder, see, resume, save_every):
    "Two epochs. fastai's checkpoint is found in the folder, whether the run is said to resume or not."
    dls = create_dataloaders(make_loader(), make_loader(is_training=False), path=folder)
    learn = Learner(dls, make_model(), cross_entropy, opt_func=SGD)
    callbacks = [LoaderCheckpoint(save_every), Watch(see)]
    assert resume == (learn.path/'models/resume.json').exists()
    learn.fit(EPOCHS, cbs=callbacks)
