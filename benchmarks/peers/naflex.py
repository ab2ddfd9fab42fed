"""What the peers of beside_naflex.py share: timm's words for each work, and batches of patches that are counted.

A peer is a module as common.py says; its images are patches, float32 (N, length, 768), padding included. PLAN is a file in `scratch`: the
length and the number of images of each batch, in `schedule`; so that all peers make the same batches, in an order of their own.
"""
import torch

PLAN = 'naflex_plan.json'
LENGTHS = (128, 256, 576, 784, 1024)
TRAIN = dict(is_training=True, train_seq_lens=LENGTHS)
SETTINGS = {
    'schedule': TRAIN,
    'seq256': {**TRAIN, 'train_seq_lens': (256,)},
    'seq1024': {**TRAIN, 'train_seq_lens': (1024,)},
    'schedule_ra': {**TRAIN, 'auto_augment': 'rand-m9-mstd0.5-inc1'},
    'seq_eval': dict(max_seq_len=576)}   # the other words are timm's defaults: flip 0.5, color jitter 0.4, bilinear


def common(work: str, workers: int, batch_size: int) -> dict:
    "Arguments of both create_naflex_loaders."
    return dict(patch_size=16, batch_size=batch_size, num_workers=workers, device=torch.device('cpu'), **SETTINGS[work])


class Patches:
    "Batches of (patches, targets) of a loader of (dict, targets); no image is missing in an epoch, and none comes twice."

    def __init__(self, loader, num_images: int): self.loader, self.num_images = loader, num_images

    def __iter__(self):
        seen = 0
        for batch, targets in self.loader:
            patches = batch['patches']
            if patches.dtype != torch.float32 or patches.shape[2] != 768: raise ValueError(
                f'patches of {patches.dtype}, {tuple(patches.shape)}, not float32 (N, length, 768)')
            seen += len(patches)
            yield patches, targets
        if seen != self.num_images: raise ValueError(f'{seen} images in an epoch, not {self.num_images}')
