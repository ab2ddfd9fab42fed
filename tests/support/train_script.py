"""One epoch of training with the words of timm's train.py, through timmdata: python train_script.py DIR [--aa … --mixup …].

Prints a line of JSON: steps, evaluated samples and what was correct among them. It trains as a rank of a process group if there is
one (tests/train_ranks.py makes it, under torchrun).
"""
import argparse
import json

import torch
from torch import distributed, nn
from torch.nn import functional as F

from timmdata import (
    AugMixDataset,
    FastCollateMixup,
    Mixup,
    create_dataset,
    create_loader,
    resolve_data_config,
)

parser = argparse.ArgumentParser()
parser.add_argument('data_dir')
parser.add_argument('--train-split', default='train')
parser.add_argument('--val-split', default='val')
parser.add_argument('-b', '--batch-size', type=int, default=16)
parser.add_argument('--num-classes', type=int, default=2)
parser.add_argument('--img-size', type=int, default=32)
parser.add_argument('-j', '--workers', type=int, default=1)
parser.add_argument('--no-prefetcher', action='store_true')
parser.add_argument('--no-aug', action='store_true')
parser.add_argument('--train-crop-mode', default=None)
parser.add_argument('--scale', type=float, nargs=2, default=[0.08, 1.])
parser.add_argument('--ratio', type=float, nargs=2, default=[3 / 4, 4 / 3])
parser.add_argument('--hflip', type=float, default=0.5)
parser.add_argument('--vflip', type=float, default=0.)
parser.add_argument('--color-jitter', type=float, default=0.4)
parser.add_argument('--color-jitter-prob', type=float, default=None)
parser.add_argument('--grayscale-prob', type=float, default=0.)
parser.add_argument('--gaussian-blur-prob', type=float, default=0.)
parser.add_argument('--aa', default=None)
parser.add_argument('--aug-repeats', type=float, default=0)
parser.add_argument('--aug-splits', type=int, default=0)
parser.add_argument('--jsd-loss', action='store_true')
parser.add_argument('--resplit', action='store_true')
parser.add_argument('--reprob', type=float, default=0.)
parser.add_argument('--remode', default='pixel')
parser.add_argument('--recount', type=int, default=1)
parser.add_argument('--mixup', type=float, default=0.)
parser.add_argument('--cutmix', type=float, default=0.)
parser.add_argument('--cutmix-minmax', type=float, nargs=2, default=None)
parser.add_argument('--mixup-prob', type=float, default=1.)
parser.add_argument('--mixup-switch-prob', type=float, default=0.5)
parser.add_argument('--mixup-mode', default='batch')
parser.add_argument('--smoothing', type=float, default=0.1)
parser.add_argument('--train-interpolation', default='random')
parser.add_argument('--crop-pct', type=float, default=None)
parser.add_argument('--input-size-choices', type=int, nargs='+', default=None)
parser.add_argument('--lr', type=float, default=0.05)
parser.add_argument('--seed', type=int, default=42)


def main(arguments: list[str] | None = None) -> dict:
    "Train for an epoch, evaluate; what this rank did."
    args = parser.parse_args(arguments)
    is_distributed = distributed.is_initialized()
    rank, world_size = (distributed.get_rank(), distributed.get_world_size()) if is_distributed else (0, 1)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    data_config = resolve_data_config({'img_size': args.img_size, 'crop_pct': args.crop_pct}, pretrained_cfg={'interpolation': 'bicubic'})
    train_set = create_dataset('', root=args.data_dir, split=args.train_split, is_training=True)
    eval_set = create_dataset('', root=args.data_dir, split=args.val_split)

    mixing, collate_fn, mixup_fn = args.mixup > 0 or args.cutmix > 0 or args.cutmix_minmax is not None, None, None
    if mixing:
        mixup_args = dict(
            mixup_alpha=args.mixup, cutmix_alpha=args.cutmix, cutmix_minmax=args.cutmix_minmax, prob=args.mixup_prob,
            switch_prob=args.mixup_switch_prob, mode=args.mixup_mode, label_smoothing=args.smoothing, num_classes=args.num_classes)
        if args.no_prefetcher: mixup_fn = Mixup(**mixup_args)
        else: collate_fn = FastCollateMixup(**mixup_args)
    if args.aug_splits > 1: train_set = AugMixDataset(train_set, num_splits=args.aug_splits)

    common = dict(mean=data_config['mean'], std=data_config['std'], num_workers=args.workers, distributed=is_distributed,
                  use_prefetcher=not args.no_prefetcher, device='cpu')
    loader_train = create_loader(
        train_set, input_size=data_config['input_size'], batch_size=args.batch_size, is_training=True, no_aug=args.no_aug,
        re_prob=args.reprob, re_mode=args.remode, re_count=args.recount, re_split=args.resplit,
        train_crop_mode=args.train_crop_mode, scale=args.scale, ratio=args.ratio, hflip=args.hflip, vflip=args.vflip,
        color_jitter=args.color_jitter, color_jitter_prob=args.color_jitter_prob, grayscale_prob=args.grayscale_prob,
        gaussian_blur_prob=args.gaussian_blur_prob, auto_augment=args.aa, num_aug_repeats=args.aug_repeats,
        num_aug_splits=args.aug_splits, interpolation=args.train_interpolation, collate_fn=collate_fn,
        input_size_choices=args.input_size_choices, **common)
    loader_eval = create_loader(
        eval_set, input_size=data_config['input_size'], batch_size=args.batch_size, is_training=False,
        interpolation=data_config['interpolation'], crop_pct=data_config['crop_pct'], **common)

    model = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, args.num_classes))
    if is_distributed: model = nn.parallel.DistributedDataParallel(model)
    optimizer, steps = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9), 0
    for images, targets in loader_train:
        if mixup_fn is not None: images, targets = mixup_fn(images, targets)
        output = model(images)
        if args.jsd_loss:
            clean = output.split(len(output) // args.aug_splits)[0]
            shares = torch.stack([part.softmax(1) for part in output.split(len(clean))])
            middle = shares.mean(0).clamp(1e-7, 1).log()
            spread = sum(F.kl_div(middle, share, reduction='batchmean') for share in shares) / len(shares)
            loss = F.cross_entropy(clean, targets[:len(clean)]) + 12 * spread
        else: loss = F.cross_entropy(output, targets, label_smoothing=0. if mixing else args.smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    assert loss.isfinite() and steps == len(loader_train)

    model.eval()
    correct = []
    keys = loader_eval.loader.sampler if not args.no_prefetcher else loader_eval.sampler
    indexes = [key.index for key in keys.keys(0)]
    with torch.inference_mode():
        for images, targets in loader_eval:
            correct += (model(images).argmax(1) == targets).tolist()
    real = len(eval_set) // world_size + (rank < len(eval_set) % world_size)   # padding repeats samples at the end
    return dict(rank=rank, steps=steps, loss=loss.item(), evaluated=indexes[:real], correct=sum(correct[:real]))


if __name__ == '__main__': print(json.dumps(main()), flush=True)
