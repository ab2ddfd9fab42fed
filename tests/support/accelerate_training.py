"A training loop with Accelerate, tested against the contract of `framework_runs`."
import torch
from accelerate import Accelerator
from framework_runs import BATCH, EPOCHS, SETTINGS, make_dataset, make_model
from torch.nn.functional import cross_entropy

from timmdata.integrations.huggingface import create_accelerated_loader


class Counts:
    "Counters of a loop, for its checkpoint."
    def __init__(self): self.step = self.epoch = 0
    def state_dict(self): return dict(vars(self))
    def load_state_dict(self, state): vars(self).update(state)


def make_training_loader(accelerator):
    settings = {name: value for name, value in SETTINGS.items() if name not in ('input_size', 'batch_size', 'device')}
    return create_accelerated_loader(accelerator, make_dataset(), 8, BATCH, **settings)


def train(folder, see, resume, save_every):
    "Two epochs with accumulated gradients."
    accelerator, counts = Accelerator(cpu=True, gradient_accumulation_steps=3), Counts()
    model = make_model()
    loader = make_training_loader(accelerator)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), loader)
    accelerator.register_for_checkpointing(loader, counts)
    if resume:
        newest = max((path for path in folder.glob('step*') if path.is_dir()), key=lambda path: int(path.name[4:]))
        accelerator.load_state(newest)
    while counts.epoch < EPOCHS:
        loader.set_epoch(counts.epoch)
        for images, targets in loader:
            see(targets)
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(images), targets))
                optimizer.step()
                optimizer.zero_grad()
            counts.step += 1
            if counts.step % save_every == 0: accelerator.save_state(folder/f'step{counts.step}')
        counts.epoch += 1


def gather_all(num):
    "The targets of an evaluation, as each process has them after `gather_for_metrics`."
    from loader_parts import Coded
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(create_accelerated_loader(accelerator, Coded(num), 8, BATCH, num_workers=0))
    return [number for _, targets in loader for number in accelerator.gather_for_metrics(targets).tolist()]
