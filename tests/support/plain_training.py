"Training without a framework, held to the contract of `framework_runs`: shows that the contract can be met, and that it can fail."
import torch
from framework_runs import EPOCHS, make_loader, make_model
from torch.nn.functional import cross_entropy


def train(folder, see, resume, save_every, forgets=False):
    "Two epochs; `forgets` leaves the loader out of the checkpoint, as loops do that know nothing of it."
    model, loader, step, first = make_model(), make_loader(), 0, 0
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    if resume:
        state = torch.load(folder/'checkpoint.pt')
        model.load_state_dict(state['model'])
        step, first = state['step'], state['epoch']
        if not forgets: loader.load_state_dict(state['loader'])
    for epoch in range(first, EPOCHS):
        for images, targets in loader:
            see(targets)
            loss = cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % save_every == 0: torch.save(
                dict(model=model.state_dict(), step=step, epoch=epoch, loader=loader.state_dict()), folder/'checkpoint.pt')
