"The targets of a whole pass of a loader."
import torch


def collect_targets(loader) -> list[int]:
    "All targets of one pass, in order."
    return [int(target) for _, targets in loader for target in torch.as_tensor(targets).view(-1)]
