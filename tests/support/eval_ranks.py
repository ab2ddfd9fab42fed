"An evaluation as a rank of a process group, or alone; importable, so that the ranks' programs find it."
import json
import warnings

import torch
from loader_parts import Coded
from torch import distributed
from torch.utils.data import Subset

from timmdata.datasets.image_dataset import ImageDataset
from timmdata.loader import create_loader
from timmdata.samplers.distributed import gather_valid

CASES = [   # number of samples, and settings
    (10, {}), (11, dict(pad_last=True)), (7, dict(use_prefetcher=False, num_workers=2, worker_type='threads')),
    (12, dict(num_workers=2, worker_type='processes', pad_last=True)), (1, {}), (2, dict(pad_last=True)),
    (9, dict(buffer=dict(batches=4), pad_last=True)), (13, dict(drop_last=True))]


def evaluate(loader, model: torch.Tensor) -> dict:
    "What an evaluation loop finds: over all ranks, and what this rank has seen."
    losses, correct, masks = [], [], []
    with torch.inference_mode():
        for images, targets, valid in loader:
            scores = (images.double().flatten(1)[:, None] * model).sum(-1)
            losses.append(torch.logsumexp(scores, 1) - scores.gather(1, targets[:, None] % 5)[:, 0])
            correct.append(scores.argmax(1) == targets % 5)
            masks.append(valid)
    loader.close()
    losses, correct, masks = map(torch.cat, (losses, correct, masks))
    every_loss, every_correct = gather_valid(losses, masks), gather_valid(torch.stack([correct] * 2, 1), masks)
    return dict(losses=every_loss.tolist(), mean=every_loss.mean().item(), correct=every_correct[:, 0].tolist(),
                accuracy=every_correct.float().mean().item(), num_valid=loader.num_valid, seen=len(masks), valid=int(masks.sum()))


def run_eval_rank(rank: int, world_size: int, init_file: str, out: str, oddities: str):
    "One rank of several, or, with a world of one, a program without a process group."
    torch.set_num_threads(1)
    if world_size > 1: distributed.init_process_group('gloo', init_method=f'file://{init_file}', rank=rank, world_size=world_size)
    common = dict(distributed=world_size > 1, valid_mask=True, device='cpu')
    generator, found = torch.Generator().manual_seed(0), []
    model = torch.randn(5, 3 * 8 * 8, dtype=torch.float64, generator=generator)
    for num, settings in CASES:
        found.append(evaluate(create_loader(Coded(num), 8, 4, **{**dict(num_workers=0), **common, **settings}), model))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        skipping = ImageDataset(oddities, split=None, on_error='skip')
        bad = [k for k in range(len(skipping)) if skipping.filename(k) in ('empty.jpg', 'text.jpg', 'truncated.jpg')]
        good = [k for k in range(len(skipping)) if k not in bad]
        unequal = Subset(skipping, [bad[0], good[0], bad[1], *good[1:4], bad[2], *good[4:]])   # of two ranks, all are of the first one
        found.append(evaluate(create_loader(unequal, 8, 2, num_workers=0, **common), model))
    if world_size > 1:
        try: gather_valid(torch.zeros(3, 1 + rank), torch.ones(3, dtype=torch.bool))
        except ValueError as error: found.append(str(error))
        distributed.destroy_process_group()
    with open(f'{out}{rank}.json', 'w') as file: json.dump(found, file)
