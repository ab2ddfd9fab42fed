"fastai's `Learner` under the contract of `framework_runs`, with the recipe of the guide."
from fastai.vision.all import SGD, Callback, DataLoaders, Learner
from framework_runs import EPOCHS, make_loader, make_model
from guide_recipes import recipe
from torch.nn.functional import cross_entropy


class Watch(Callback):
    "Record what the model gets in training; `run_valid` is fastai's word."
    run_valid = False
    def __init__(self, see): self.see = see
    def before_batch(self): self.see(self.yb[0])


def train(folder, see, resume, save_every):
    "Two epochs. The checkpoint is found in the folder, whether the run is said to resume or not."
    learn = Learner(DataLoaders(make_loader(), make_loader(is_training=False)), make_model(), cross_entropy, opt_func=SGD)
    assert resume == (folder/'resume.pt').exists()
    learn.fit(EPOCHS, cbs=[recipe('fastai').LoaderCheckpoint(folder/'resume.pt', save_every), Watch(see)])
