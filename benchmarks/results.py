"""The results of the benchmarks as files: results/NAME.json contains the machine with date and versions, the settings and the numbers.

Pages and guides plot these files, so that a script can reproduce every number on a page.
"""
import json
from pathlib import Path
from typing import Any

from timmdata.measure.machine import describe_machine

RESULTS = Path(__file__).resolve().parent/'results'


def write_results(
    name: str,   # file name without .json
    settings: dict[str, Any],   # settings of the measurement
    folder: Path | None = None,   # None: benchmarks/results
    **numbers: Any,   # values that JSON can store
):
    "Write the numbers and the machine."
    folder = folder or RESULTS
    folder.mkdir(exist_ok=True)
    record = {'machine': describe_machine(), 'settings': settings, **numbers}
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder/f'{name}.json').write_text(text + '\n', encoding='utf-8')


def rounded(
    value: Any,   # a number, or lists and dicts of them
) -> Any:
    "Round to four significant digits; further digits are noise."
    if isinstance(value, float): return float(f'{value:.4g}')
    if isinstance(value, dict): return {name: rounded(v) for name, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, (list, tuple)) else value


WORKS = {'train': 'crop, flip', 'jitter': '… and color jitter', 'eval': 'evaluation', 'phone': '12 megapixels',
         'dino': "DINO's ten views", 'simclr': "SimCLR's two views", 'segment': 'photos and masks, 512 pixels',
         'schedule': '128 to 1024 patches', 'seq256': '256', 'seq1024': '1024', 'schedule_ra': 'RandAugment',
         'seq_eval': 'evaluation, 576'}


def read_results(
    name: str,   # file name without .json
) -> dict[str, Any]:
    "Read the results of a benchmark."
    return json.loads((RESULTS/f'{name}.json').read_text(encoding='utf-8'))


def peers_table(
    results: dict[str, dict[str, dict[str, float]]],   # work → loader → numbers
) -> str:
    "The README's table: speed relative to timm and CPU time per image for each workload; the other columns are for the first."
    first = results[next(iter(results))]
    lines = [f'| loader | {" | ".join(WORKS[work] for work in results)} | MB | first batch | of later epochs | import |',
             '|---' * (len(results) + 5) + '|']
    for name, numbers in first.items():
        shown = f'**{name}**' if name.startswith('timmdata') else name
        found = [loaders.get(name) for loaders in results.values()]
        cells = [f'{one["speed"]:.2f} · {one["cpu_ms"]:.1f} ms' if one else '' for one in found]
        seconds = [f'{numbers[name]:.2f} s' for name in ('first_batch_s', 'next_epochs_s', 'import_s')]
        lines.append(f'| {shown} | {" | ".join(cells)} | {numbers["pss_mb"]:.0f} | {" | ".join(seconds)} |')
    return '\n'.join(lines)


def naflex_table(
    epochs: dict[str, dict[str, dict[str, float]]],   # loader or mode → work → numbers
) -> str:
    "The table of NaFlex epochs: padding, tokens per batch, steps, and kilobytes per image that workers send."
    works = list(epochs['timm'])
    lines = [f'| mode | {" | ".join(f"{work}: padding | tokens | steps | KB" for work in works)} |', '|---' * (4 * len(works) + 1) + '|']
    for mode, found in epochs.items():
        shown = mode if mode == 'timm' else f'**{mode}**'
        cells = [f'{100 * one["padding"]:.1f} % | {one["tokens_a_batch"]:,.0f} | {one["steps"]} | {one["kb_an_image"]:,.0f}'
                 for one in found.values()]
        lines.append(f'| {shown} | {" | ".join(cells)} |')
    return '\n'.join(lines)


def decode_table(
    cores: dict[str, dict[str, dict[str, float]]],   # written by decode_limit.py: cores → work → numbers
) -> str:
    "The README's table: images per second and share of the decode limit."
    names = {'one thread, simplejpeg': 'simplejpeg in one thread', 'DataLoader, Pillow': '`DataLoader`, Pillow',
             'DataLoader, torchvision': '`DataLoader`, torchvision', 'DataLoader, simplejpeg': '`DataLoader`, simplejpeg',
             'timmdata, decode only': '**timmdata**, decode only', 'timmdata, training': '**timmdata**, training',
             'timmdata, evaluation': '**timmdata**, evaluation',
             'DataLoader, simplejpeg, nothing handed over': 'decoding alone, nothing handed over'}
    lines = [f'| images/s (share) | {" | ".join(f"cores: {number}" for number in cores)} |', '|---' * (len(cores) + 1) + '|']
    for name, label in names.items():
        cells = [f'{rows[name]["images_per_s"]:,.0f} ({rows[name]["share"]:.2f})' for rows in cores.values()]
        lines.append(f'| {label} | {" | ".join(cells)} |')
    return '\n'.join(lines)


def parts_table(
    sizes: dict[str, dict[str, Any]],   # written by decode_parts.py: size of the photos → numbers
) -> str:
    "The README's table: time to decode a crop, relative to simplejpeg's full decoding."
    names = {'rows': 'rows down to the crop, simplejpeg', 'region': 'region, nvImageCodec',
             'chosen without regions': "**timmdata**, `backend='simplejpeg'`", 'chosen': "**timmdata**, `backend='nvimgcodec'`",
             'best': 'the fastest way of each crop'}
    lines = [f'| relative to full decoding | {" | ".join(sizes)} |', '|---' * (len(sizes) + 1) + '|']
    for name, label in names.items():
        cells = [f"{numbers['ratio'][name]:.2f}" for numbers in sizes.values()]
        lines.append(f'| {label} | {" | ".join(cells)} |')
    return '\n'.join(lines)


BESIDE_TIMM = {'train: crop, flip': 'crop, flip', 'train: crop, flip, jitter 0.4': '… and color jitter',
               'train: RandAugment, erasing 0.25': 'RandAugment, erasing', 'evaluation, bicubic': 'evaluation',
               'train: 12 megapixels': '12 megapixels'}


def machines_table(
    runs: list[dict[str, Any]],   # written by beside_timm.py: machines with dates and numbers
) -> str:
    "The README's table: speed relative to timm on each machine, CPU time per image, and crop and flip relative to decoding alone."
    lines = [f'| machine | {" | ".join(BESIDE_TIMM.values())} | crop, flip ÷ decoding alone |', '|---' * (len(BESIDE_TIMM) + 2) + '|']
    for run in runs:
        rows = [run['results'].get(work, {}) for work in BESIDE_TIMM]
        formats = {'speed': '{:.2f}', 'cpu_ms': '{:.1f} ms'}
        cells = [' · '.join(shown.format(row[key]) for key, shown in formats.items() if key in row) for row in rows]
        share = f'{rows[0]["share"]:.2f}' if 'share' in rows[0] else ''
        lines.append(f'| {run["date"]}, {run.get("cpu", "not noted")} | {" | ".join(cells)} | {share} |')
    return '\n'.join(lines)


def headroom_table(
    models: dict[str, dict[str, dict[str, float]]],   # written by on_a_gpu.py: model → loader → numbers
) -> str:
    "The README's table: images per second of a training step, and the share of a batch that stays on the device."
    loaders = {'copied': 'one batch, copied each time', 'timmdata': '**timmdata**', 'timm': 'timm', 'torchvision': 'torchvision',
               'DALI': 'DALI'}
    lines = [f'| batches from | {" | ".join(f"{model}: images/s | share" for model in models)} |', '|---' * (2 * len(models) + 1) + '|']
    for name, label in loaders.items():
        cells = []
        for rows in models.values():
            found = [rows[key] for key in (name, f'{name} again') if key in rows]
            cells += [' · '.join(f'{row["images_per_s"]:,.0f}' for row in found), ' · '.join(f'{row["share"]:.2f}' for row in found)]
        if any(cells): lines.append(f'| {label} | {" | ".join(cells)} |')
    return '\n'.join(lines)


def kernels_table(
    works: dict[str, dict[str, float]],   # written by on_a_gpu.py: arithmetic → numbers
) -> str:
    "The README's table: milliseconds until the arithmetic of a batch is queued, and until it is done."
    lines = ['| arithmetic | until queued, ms | until done, ms |', '|---|---|---|']
    lines += [f'| {name} | {row["host_ms"]:.1f} | {row["device_ms"]:.1f} |' for name, row in works.items()]
    return '\n'.join(lines)


def host_cost_table(
    works: dict[str, dict[str, float]],   # written by host_cost.py: arithmetic → numbers
    before: dict[str, dict[str, float]],   # the same for commit 9e0ff73d
) -> str:
    "The README's table: the Python cost of a batch in the training process, before and now."
    titles = {'us': 'µs', 'calls': 'Python calls', 'operations': 'torch operations', 'copies': 'copies to the device'}
    lines = [f'| before → now | {" | ".join(titles.values())} |', '|---' * (len(titles) + 1) + '|']
    for name, now in works.items():
        cells = [f'{before[name][key]:,.0f} → {now[key]:,.0f}' for key in titles]
        lines.append(f'| {name} | {" | ".join(cells)} |')
    return '\n'.join(lines)


def cores_table(
    rates: dict[str, dict[str, float]],   # written by on_a_gpu.py: cores → loader → images per second
) -> str:
    "The README's table: images per second on the device by the number of cores."
    lines = [f'| images/s on the device, without a model | {" | ".join(f"{count} cores" for count in rates)} |',
             '|---' * (len(rates) + 1) + '|']
    for name in ('timmdata', 'timm', 'torchvision'):
        label = f'**{name}**' if name == 'timmdata' else name
        lines.append(f'| {label} | {" | ".join(f"{row[name]:,.0f}" for row in rates.values())} |')
    return '\n'.join(lines)


if __name__ == '__main__':
    for name in 'peers', 'packed', 'views', 'masks', 'naflex': print(peers_table(read_results(name)['results']), end='\n\n')
    print(naflex_table(read_results('naflex')['epochs']), end='\n\n')
    print(machines_table(read_results('beside_timm')['runs']), end='\n\n')
    print(decode_table(read_results('decode_limit')['cores']), parts_table(read_results('decode_parts')['sizes']), sep='\n\n')
    host = read_results('host_cost')
    print(host_cost_table(host['works'], host['before']), end='\n\n')
    gpu = read_results('gpu-h100')['parts']
    print(headroom_table(gpu['headroom']['models']), cores_table(gpu['cores']['images_per_s']), kernels_table(gpu['kernels']['works']),
          sep='\n\n')
