"""Hashes of batches, to see whether a change of shape changes a pixel: python tools/batch_hashes.py --write FILE | --compare FILE

They depend on torch, torchvision, Pillow and the JPEG decoder, so they are recorded before a change and compared after it, on one
machine. Each case runs inline, in threads and in processes, which must agree, too; then
batches are replayed, with all that was drawn for them.
"""
import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from timmdata import ImageDataset, IterableImageDataset, Mixup, NaFlex, NaFlexMixup, View, create_loader

TRAIN = dict(input_size=64, batch_size=8, is_training=True)
INLINE, THREADS = dict(num_workers=0), dict(num_workers=2, worker_type='threads')
PROCESSES = dict(num_workers=2, worker_type='processes', multiprocessing_context='fork')
WORKERS = dict(inline=INLINE, threads=THREADS, processes=PROCESSES)
MIXUP = dict(mixup_alpha=0.2, cutmix_alpha=1., num_classes=3)
OF_SEQUENCES = dict(patch_size=8, train_seq_lens=(16, 36), max_seq_len=36, batch_divisor=1)
SEQUENCES = NaFlex(**OF_SEQUENCES)


def halved(image: Image.Image) -> torch.Tensor:
    "A transform of a user's own."
    pixels = np.asarray(image.convert('RGB').resize((64, 64)))
    return torch.from_numpy(pixels // 2).permute(2, 0, 1)


def paired(samples: list) -> tuple[torch.Tensor, torch.Tensor]:
    "A collate function of a user's own."
    return torch.stack([image for image, *_ in samples]), torch.tensor([target for _, target, *_ in samples])


CASES = {
    'plain': {}, 'seed': dict(seed=2**62 - 1), 'vertical': dict(vflip=0.5, hflip=0.2), 'no augmentation': dict(no_aug=True),
    'rkrc': dict(train_crop_mode='rkrc'), 'rkrr': dict(train_crop_mode='rkrr'),
    'rc': dict(train_crop_mode='rc', rc_padding=8, input_size=32), 'random interpolation': dict(interpolation='random'),
    'scale': dict(scale=(0.2, 0.6), ratio=(0.5, 2)), 'pillow': dict(backend='pillow'), 'dct': dict(scaled_decode=True, input_size=16),
    'jitter': dict(color_jitter=(0.4, 0.3, 0.2, 0.1), color_jitter_prob=0.7), 'exact jitter': dict(color_jitter_mode='exact'),
    'gray and blur': dict(grayscale_prob=0.4, gaussian_blur_prob=0.5), 'rand augment': dict(auto_augment='rand-m9-mstd0.5-inc1'),
    'auto augment': dict(auto_augment='original'), '3-augment': dict(auto_augment='3a'), 'augmix': dict(auto_augment='augmix-m5-w4-d2'),
    'erasing': dict(re_prob=0.6, re_mode='pixel', re_count=3), 'erasing const': dict(re_prob=0.6),
    'mixup': dict(mixup=MIXUP), 'mixup by element': dict(mixup=dict(MIXUP, mode='elem')),
    'mixup by pair': dict(mixup=dict(MIXUP, mode='pair')),
    'views': dict(num_aug_splits=3, auto_augment='rand-m9-mstd0.5-inc1', re_prob=0.5, re_split=True),
    'repeats': dict(num_aug_repeats=3), 'balanced': dict(balanced_batches=True), 'weights': dict(weights='balanced'),
    'samples': dict(samples_per_epoch=29), 'schedule': dict(input_size_choices=[32, 64, 48]),
    'progressive': dict(input_size_choices=[32, 48, 64], batch_choice_schedule='progressive', batch_schedule_epochs=2),
    'workers finish': dict(use_prefetcher=False, re_prob=0.5), 'float16': dict(img_dtype=torch.float16),
    'keep the last': dict(drop_last=False), 'pad the last': dict(pad_last=True, valid_mask=True), 'evaluation': dict(is_training=False),
    'evaluation squash': dict(is_training=False, crop_mode='squash', crop_pct=1.), 'contiguous': dict(channels_last=False),
    'evaluation border': dict(is_training=False, crop_mode='border', interpolation='bicubic', crop_border_pixels=4),
    'cache': dict(train_crop_mode='rc', rc_padding=4, input_size=48, cache='device', data='equal'),
    'buffer': dict(buffer=dict(batches=4)), 'stream': dict(data='stream'),
    'stream of views': dict(data='stream', auto_augment='rand-m9-mstd0.5-inc1', re_prob=0.5),
    'named crops': dict(views=dict(large=View(48, count=2, gaussian_blur_prob=0.5), small=View(24, count=3, solarize_prob=0.5))),
    'listed crops': dict(views=[View(48, hflip=0.), View(24, count=2, auto_augment='rand-m9-mstd0.5')], re_prob=0.5),
    'scheduled patches': dict(naflex=SEQUENCES), 'native patches': dict(naflex=NaFlex(mode='native', **OF_SEQUENCES)),
    'packed patches': dict(naflex=NaFlex(mode='packed', **OF_SEQUENCES), re_prob=0.5),
    'patches': dict(naflex=SEQUENCES, re_prob=0.5, mixup=NaFlexMixup(num_classes=3)),
    'patches, evaluation': dict(naflex=SEQUENCES, is_training=False),
    'own transform': dict(transform=halved, re_prob=0.5), 'own collate': dict(collate_fn=paired, use_prefetcher=False),
    'skipped': dict(data='damaged', on_error='skip'), 'replaced': dict(data='damaged', on_error='replace')}


def write_images(folder: Path, num: int = 37):
    "Pictures of noise in three classes of different sizes, half of them PNG; all of one size; and one in six cut short."
    rng = np.random.default_rng(0)
    for k in range(num):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
        sizes = dict(photos=(90 + 3 * k, 130 - 2 * k), equal=(48, 48), damaged=(90 + 3 * k, 130 - 2 * k))
        for root, size in ((folder/name, size) for name, size in sizes.items()):
            path = root/f'class{k * k % 3}'/f'{k:02}.{"png" if k % 2 else "jpg"}'
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
            if root.name == 'damaged' and k % 6 == 1: path.write_bytes(path.read_bytes()[:200])


class FileStream:
    "A stream of the files of a folder, divided among workers by torch's own rule."
    def __init__(self, folder): self.paths = sorted(folder.glob('*/*'))

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return ((path.read_bytes(), int(path.stem)) for path in self.paths[first::step])


def make(folder: Path, **settings):
    "A loader of a case, on the CPU."
    settings = {'seed': 7, **TRAIN, **settings}
    data, on_error = settings.pop('data', 'photos'), settings.pop('on_error', 'raise')
    if 'views' in settings: del settings['input_size']
    if 'naflex' in settings: del settings['input_size']
    if isinstance(settings.get('mixup'), dict): settings['mixup'] = Mixup(**settings['mixup'])
    if settings.get('use_prefetcher', True): settings['device'] = 'cpu'
    dataset = IterableImageDataset(reader=FileStream(folder/'photos')) if data == 'stream' else ImageDataset(folder/data, on_error=on_error)
    return create_loader(dataset, **settings)


def parts(value) -> Iterator[bytes]:
    "All that a value consists of, in its order, with dtypes and shapes."
    if isinstance(value, torch.Tensor):
        yield f'{value.dtype} {tuple(value.shape)} {value.is_contiguous()}'.encode()
        yield value.contiguous().numpy().tobytes()
    elif isinstance(value, Mapping):
        for name in value: yield from (str(name).encode(), *parts(value[name]))
    elif isinstance(value, (list, tuple)):
        for part in value: yield from parts(part)
    else: yield repr(value).encode()


def digest(batches: Iterator) -> str:
    "Of all fields of all batches."
    found = hashlib.sha256()
    for batch in batches:
        for field in batch.values() if isinstance(batch, Mapping) else batch:
            for part in parts(field): found.update(part)
    return found.hexdigest()[:16]


def two_epochs(folder: Path, **settings) -> str:
    with make(folder, **settings) as loader: return digest(batch for _ in range(2) for batch in loader)


def replayed(folder: Path, **settings) -> str:
    "Batches of the second epoch made again, with all that was drawn for them."
    with make(folder, **settings) as loader: return digest(loader.replay(epoch=1, batch=k) for k in (0, 2))


def resumed(folder: Path, **settings) -> str:
    "The rest of an epoch after its second batch, in another loader; and a batch made again."
    with make(folder, **settings) as loader:
        loader.set_epoch(1)
        for _ in islice(loader, 2): state = loader.state_dict()
    with make(folder, **settings) as loader:
        loader.load_state_dict(state)
        return digest(loader) + digest([loader.replay(epoch=3, batch=1).batch])


def ranked(folder: Path, **settings) -> str:
    "Two ranks' shares, without torch.distributed: from the sampler that create_loader would make."
    from timmdata.samplers import EpochSampler
    order = EpochSampler(ImageDataset(folder/'photos'), seed=7)
    found = hashlib.sha256()
    for rank in range(2):
        shared = EpochSampler(range(37), sampler=order, num_replicas=2, rank=rank)
        for epoch in range(2): found.update(str([(k.index, k.epoch, k.view, k.valid) for k in shared.keys(epoch)]).encode())
    return found.hexdigest()[:16]


def hash_all(folder: Path, only: str = '') -> dict[str, str]:
    "Hash of each case and kind of worker."
    write_images(folder)
    found = {}
    for name, settings in CASES.items():
        if only not in name: continue
        kinds = WORKERS if settings.get('data') != 'stream' else {'inline': INLINE, 'processes': dict(num_workers=2)}
        for kind, workers in kinds.items(): found[f'{name}, {kind}'] = two_epochs(folder, **{**settings, **workers})
        print(name, flush=True)
        if settings.get('data') != 'stream' and not {'buffer', 'collate_fn'} & {*settings}:
            found[f'{name}, replayed'] = replayed(folder, **{**settings, **INLINE})
    if only in 'resume':
        for kind, workers in WORKERS.items(): found[f'resume, {kind}'] = resumed(folder, re_prob=0.5, **workers)
        found['resume, repeats'] = resumed(folder, num_aug_repeats=2, num_workers=0)
    if only in 'ranks': found['ranks'] = ranked(folder)
    for name in {key.rpartition(', ')[0] for key in found} - {'', 'resume', 'stream', 'stream of views'}:
        values = {value for key, value in found.items()
                  if key.rpartition(', ')[0] == name and not key.endswith('replayed')}
        if len(values) > 1: raise SystemExit(f'{name}: workers of different kinds give different batches')
    return found


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--write', type=Path, help='file to write the hashes to')
    parser.add_argument('--compare', type=Path, help='file of hashes to compare with')
    parser.add_argument('--only', default='', help='part of the names of cases')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    with tempfile.TemporaryDirectory() as folder: found = hash_all(Path(folder), args.only)
    if args.write: args.write.write_text(json.dumps(found, indent=1) + '\n')
    if args.compare:
        before = json.loads(args.compare.read_text())
        other = [name for name in found if before.get(name, found[name]) != found[name]]
        print(f'{len(found)} hashes, {len(set(found) & set(before))} compared, {len(other)} differ')
        sys.exit('\n'.join(other) if other else 0)
