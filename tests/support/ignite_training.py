"Ignite under the contract of `framework_runs`: its `Checkpoint` takes the loader as it is."
import torch
from framework_runs import EPOCHS, make_loader, make_model
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from torch.nn.functional import cross_entropy


def train(folder, see, resume, save_every):
    "Two epochs."
    model, loader = make_model(), make_loader()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(engine, batch):
        images, targets = batch
        see(targets)
        loss = cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    trainer = Engine(step)
    parts = dict(trainer=trainer, model=model, optimizer=optimizer, loader=loader)
    save = Checkpoint(parts, DiskSaver(str(folder), require_empty=False), filename_pattern='checkpoint.pt', n_saved=None)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=save_every), save)
    if resume: Checkpoint.load_objects(parts, torch.load(folder/'checkpoint.pt'))
    trainer.run(loader, max_epochs=EPOCHS)
