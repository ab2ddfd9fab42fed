"""Count the Python cost of a batch for a GPU in the training process, without a GPU.

    python benchmarks/host_cost.py [--batch-size 256] [--rounds 25] [--out NAME]

A worker has made the batch and drawn for it; this process restores what was drawn and queues the work of the device. Torch's operations,
copies to the device and copies that would wait for it are counted on torch's device `meta`, which has shapes but no values. Microseconds
and Python calls are those for images of 4 × 4 pixels in the CPU's memory that take the device's way, with what was drawn for 224 × 224
pixels and ten classes: arithmetic costs little, and Python and torch's dispatch cost what they cost for a GPU. `time.thread_time` leaves
out what other processes do; the least of all rounds counts. The numbers of `before`, in the file of the results, were counted in the same
way with commit 9e0ff73d, which drew for each image in the training process.
"""
import argparse
import pickle
import sys
import time
from collections.abc import Callable

import torch
from results import RESULTS, read_results, rounded, write_results
from torch.utils._python_dispatch import TorchDispatchMode

import timmdata
from timmdata.pipeline import batch_transform
from timmdata.samplers.keys import SampleKey
from timmdata.transforms import mixup, random_erasing

MIXUP = dict(mixup_alpha=0.2, cutmix_alpha=1., num_classes=10)
WORKS = {   # each has all of the one before
    'crop, flip': dict(color_jitter=None), '… and color jitter': {}, '… and erasing': dict(re_prob=0.25, re_mode='pixel'),
    '… and mixing': dict(re_prob=0.25, re_mode='pixel', mixup=timmdata.Mixup(**MIXUP)),
    'erasing with zeros, mixing': dict(re_prob=0.25, mixup=timmdata.Mixup(**MIXUP)),
    'mixing by element': dict(color_jitter=None, mixup=timmdata.Mixup(**MIXUP, mode='elem')),
    'DINO: hue, blur, grayscale, solarize too': dict(
        color_jitter=(0.4, 0.4, 0.2, 0.1), color_jitter_prob=0.8, gaussian_blur_prob=0.5, gaussian_blur_radius=(0.1, 2.),
        grayscale_prob=0.2, solarize_prob=0.2)}


class Counter(TorchDispatchMode):
    "Counts torch's operations, copies from the CPU to the device, and those that wait for it."

    def __init__(self):
        super().__init__()
        self.operations = self.copies = self.waits = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.operations += 1
        if function.__name__.startswith('_to_copy') and args[0].device.type == 'cpu' and str(kwargs.get('device')) == 'meta':
            self.copies += 1
            self.waits += not kwargs.get('non_blocking')
        return function(*args, **kwargs)


def count_calls(function: Callable) -> int:
    "Count the calls of this library's functions, and of the functions that they call."
    num = 0

    def count(frame, event, argument):
        nonlocal num
        num += event in ('call', 'c_call') and '/timmdata/' in frame.f_code.co_filename

    sys.setprofile(count)
    try: function()
    finally: sys.setprofile(None)
    return num


def take_the_devices_way():
    "Process images in CPU memory as if they were on a device."
    together, here = batch_transform.together_on_device, torch.device('cpu')
    copy, alike = batch_transform.BatchTransform._copy_numbers, mixup._mix_alike

    def mix_each(x, params, numbers, overwrite):
        other = x[numbers['partner'].long()]
        own = mixup.paste_masked(x, other, numbers['box'])
        return mixup._blend(own, other, numbers['blend'].view(-1, 1, 1, 1), True)

    def erase(self, images, drawn, edges=None):
        if self.mode != 'const': return erase_slices(self, images, drawn)
        for of_images in edges: images.masked_fill_(random_erasing.inside_boxes(of_images, images.shape[2:])[:, None], 0.)
        return images

    erase_slices = random_erasing.RandomErasing.erase
    batch_transform.together_on_device = lambda arrays, device: together(arrays, here)
    batch_transform.DeviceTransform.draw_and_apply = batch_transform.DeviceTransform._draw_and_apply
    batch_transform.BatchTransform._copy_numbers = lambda self, device, drawn, **more: copy(self, torch.device('meta'), drawn, **more)
    batch_transform.BatchTransform._normalize = lambda self, images, drawn, numbers: (
        batch_transform.change_batch(images, numbers).to(self.settings.img_dtype))
    mixup._mix_alike = lambda x, params, numbers, overwrite: alike(x, params, numbers, False)
    mixup._mix_each, mixup.check_target, random_erasing.RandomErasing.erase = mix_each, lambda *args: None, erase


def measure(settings: dict, batch_size: int, rounds: int, device: str) -> dict[str, float]:
    "Restore what a worker drew, and queue the work of the device, for one batch."
    size = 224 if device == 'meta' else 4
    dataset = [(torch.zeros(3, 8, 8, dtype=torch.uint8), 0)] * 4 * batch_size
    loader = timmdata.create_loader(dataset, 224, batch_size, is_training=True, seed=1, num_workers=0, device='cpu',
                                    img_dtype=torch.bfloat16, **settings)
    keys = [SampleKey(k, 3, seed=1) for k in range(batch_size)]
    images = torch.zeros(batch_size, size, size, 3, dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
    batch = images, torch.zeros(batch_size, dtype=torch.int64, device=device)
    loader.batch_transform.is_for_cpu = False   # as with device='cuda'
    drawn = loader.batch_transform.draw_early(torch.empty(batch_size, 3, 224, 224, dtype=torch.uint8, device='meta'), keys)
    sent = pickle.dumps((keys, drawn), protocol=5)

    def work(): loader.batch_transform.on_batch(batch, *pickle.loads(sent))

    work()
    if device != 'meta':
        spent = []
        for _ in range(rounds):
            start = time.thread_time()
            work()
            spent.append((time.thread_time() - start) * 1e6)
        return {'us': min(spent), 'calls': count_calls(work)}
    with Counter() as counter: work()
    return {'operations': counter.operations, 'copies': counter.copies, 'waits': counter.waits, 'bytes_sent': len(sent)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--batch-size', type=int, default=256)
    parser.add_argument('--rounds', type=int, default=25)
    parser.add_argument('--out', default='host_cost')
    a = parser.parse_args()
    torch.set_num_threads(1)
    noise = random_erasing.keyed_noise
    random_erasing.keyed_noise = lambda seed, shape, like: (   # `meta` has no generator, and a small image has no room
        torch.empty(tuple(shape), dtype=like.dtype, device='meta') if like.device.type == 'meta'
        else noise(seed, (shape[0], 1, 1), like))
    found = {name: measure(settings, a.batch_size, a.rounds, 'meta') for name, settings in WORKS.items()}
    take_the_devices_way()
    for name, settings in WORKS.items(): found[name] |= measure(settings, a.batch_size, a.rounds, 'cpu')
    for name, numbers in found.items(): print(f'{name:14}', {key: round(value) for key, value in numbers.items()})
    kept = {}
    if (RESULTS/f'{a.out}.json').exists(): kept['before'] = read_results(a.out)['before']
    write_results(a.out, {'batch_size': a.batch_size, 'rounds': a.rounds}, works=rounded(found), **kept)


if __name__ == '__main__': main()
