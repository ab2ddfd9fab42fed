"""timm's own scripts and tests with `timm.data` replaced by `timmdata` in their imports, and nothing else.

They lie beside a developer's checkout, as the photographs do: read at run time, written to a temporary folder, never copied into
this repository. The tables say which flags and which tests are run; `benchmarks/timm_scripts.py` records what came of them.
"""
import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from synthetic import ROOT

TIMM = ROOT.parent/'shared/timm'   # train.py, validate.py, tests/
MODEL, CLASSES, TRAIN_PHOTOS, VAL_PHOTOS = 'test_resnet', 7, 30, 15
NAFLEX_MODEL = 'naflexvit_base_patch16_gap'   # small by these words:
NAFLEX_SETTINGS = dict(embed_dim=64, depth=2, num_heads=2, enable_patch_interpolator=True)
NAFLEX = '--naflex-loader --batch-size 8 --naflex-train-seq-lens 9'

# name of a run of train.py: its flags beside those of `words`
TRAIN = {
    'plain': '',
    'policy, erasing, mixing': '--aa rand-m9-mstd0.5-inc1 --reprob 0.25 --mixup 0.2 --cutmix 1.0',
    'views': '--aug-splits 3 --jsd-loss --aa rand-m9-mstd0.5-inc1',
    'views, split norm': '--aug-splits 2 --split-bn --aa rand-m9 --reprob 0.2 --resplit',
    'repeats': '--aug-repeats 3',
    'no prefetcher': '--no-prefetcher',
    'no prefetcher, mixing': '--no-prefetcher --aa rand-m9-mstd0.5-inc1 --reprob 0.25 --mixup 0.2 --cutmix 1.0',
    'no prefetcher, views': '--no-prefetcher --aug-splits 3 --jsd-loss',
    'sizes': '--train-img-sizes 24 32',
    'sizes, batch sizes': '--train-img-sizes 24 32 --train-batch-sizes 6 4 --train-size-probs 0.3 0.7 --variable-batch-loss-scale linear',
    'growing sizes': '--train-img-sizes 24 32 --train-size-schedule progressive --train-size-schedule-spread 0 '
                     '--train-size-random-mix 0 --epochs 2',
    'sizes, number of batches': '--train-img-sizes 24 32 --train-batches-per-epoch 3',
    'number of batches': '--train-batches-per-epoch 3',
    'resume': '--epochs 2 --resume {folder}/plain/last.pth.tar',
    'multi-epochs loader': '--use-multi-epochs-loader --workers 1 --epochs 2',
    'workers': '--workers 2 --pin-mem --worker-seeding part',
    'random crop': '--train-crop-mode rkrc --hflip 0 --vflip 0.5',
    'random resize': '--train-crop-mode rkrr --scale 0.5 1 --ratio 0.9 1.1',
    'colors': '--color-jitter 0.3 --color-jitter-prob 0.8 --grayscale-prob 0.2 --gaussian-blur-prob 0.1',
    'no augmentation': '--no-aug',
    'mixing until an epoch': '--mixup 0.8 --cutmix-minmax 0.2 0.8 --mixup-mode elem --bce-loss --mixup-off-epoch 1 --epochs 2',
    'mixing in pairs': '--mixup 0.5 --mixup-mode pair --mixup-prob 0.5 --mixup-switch-prob 0.3',
    'accumulation': '--grad-accum-steps 2 --channels-last --model-ema',
    'gray': '--in-chans 1 --input-img-mode L',
    'gray, policy': '--in-chans 1 --input-img-mode L --aa rand-m9',
    'pixels': '--input-size 3 24 32 --mean 0.5 0.5 0.5 --std 0.2 0.2 0.2 --crop-pct 0.9 --interpolation bicubic '
              '--train-interpolation bilinear',
    'recovery, pictures': '--recovery-interval 2 --save-images',
    'evaluation': '--smoothing 0 --val-split val --validation-batch-size 8',
    'bfloat16': '--amp --amp-dtype bfloat16',
    'bfloat16 model': '--model-dtype bfloat16',
    "torch's data set": '--dataset torch/image_folder',
    'classes': '--class-map {photos}/classes.txt',
    'NaFlex': NAFLEX,
    'NaFlex, lengths': '--naflex-loader --batch-size 8 --naflex-train-seq-lens 4 9',
    'NaFlex, policy, erasing, mixing': f'{NAFLEX} --aa rand-m9-mstd0.5-inc1 --reprob 0.25 --mixup 0.2 --cutmix 1.0',
    'NaFlex, patch sizes': f'{NAFLEX} --naflex-patch-sizes 12 16',
    'NaFlex, resume': f'{NAFLEX} --epochs 2 --resume {{folder}}/NaFlex/last.pth.tar',
    'NaFlex, workers': f'{NAFLEX} --workers 2 --naflex-patchify-channels-first --no-aug',
    'NaFlex, no prefetcher': f'{NAFLEX} --no-prefetcher',
}
# where timm itself stops on the same words, with these words
STOPS_IN_TIMM = {
    'repeats': 'RepeatAugment not currently supported in non-distributed',
    'no prefetcher, views': "'list' object has no attribute 'to'",
    'gray, policy': 'color must be int or single-element tuple',
}
# where the script itself stops, whatever loads the data
STOPS = dict.fromkeys(['NaFlex, no prefetcher'], "'dict' object has no attribute 'to'")
POSTERIZES_TO_0_BITS = 'bits must be between'   # what a new Pillow says to timm's policies, when one draws that
# as likely as timm's, drawn otherwise: the shapes that a batch may have
SIZES = {(4, 3, 24, 24), (4, 3, 32, 32), (6, 3, 24, 24)}
OTHER_PLANS = {
    'sizes': SIZES, 'sizes, batch sizes': SIZES, 'sizes, number of batches': SIZES,
    'NaFlex, lengths': {(num, length, 768) for num, length in ((16, 4), (14, 4), (6, 4), (8, 9), (6, 9))},
    'NaFlex, patch sizes': {(num, 9, edge, edge, 3) for num in (8, 6) for edge in (12, 16)},
}

VALIDATE = {
    'plain': '', 'no prefetcher': '--no-prefetcher', 'border': '--crop-mode border --crop-pct 0.8', 'squash': '--crop-mode squash',
    'trimmed': '--crop-border-pixels 4', 'bicubic': '--interpolation bicubic', 'bfloat16': '--amp --amp-dtype bfloat16',
    'results': '--results-file {folder}/results.csv', 'real labels': '--real-labels {photos}/real.json',
    'valid labels': '--valid-labels {photos}/valid.txt', 'workers': '--workers 2 --retry',
    'TensorFlow': '--tf-preprocessing',   # refused here; timm needs TensorFlow for it
    'NaFlex': '--naflex-loader', 'NaFlex, no prefetcher': '--naflex-loader --no-prefetcher',
}
SCRIPTS = {'train.py': TRAIN, 'validate.py': VALIDATE}
TORCHRUN = {'two ranks': '', 'two ranks, repeats': '--aug-repeats 3', 'two ranks, NaFlex': NAFLEX}

# timm's own tests that fail here, all their cases, by reason; every other one passes
SLOW_TESTS = 'tests/test_multilabel.py::test_distributed_metrics_exclude_padding'   # not run: of timm's metrics, four times two processes
FAILING_TESTS = {
    'the test requests a split of a folder that has no splits, which is an error in timmdata': [
        'test_data.py::test_create_naflex_loader_grayscale'],
    "the test uses private names of timm's modules, which timmdata does not have": [
        'test_data.py::test_rand_bbox_minmax_can_reach_bottom_right_border',
        'test_multilabel.py::test_multilabel_mixup_preserves_shared_labels',
        'test_multilabel.py::test_target_field_paths_prefer_literal_keys',
        'test_scheduled_sampler.py::test_sample_budget_schedule_is_created_once_and_cached',
        'test_scheduled_sampler.py::test_progressive_schedule_is_created_when_iteration_starts'],
    'the test mocks a timm module, or a Hugging Face function that then returns only one split, but timmdata loads all splits': [
        'test_data.py::test_create_reader_preserves_tfds_name_case', 'test_data.py::test_hfds_sliced_imagefolder_split',
        'test_multilabel.py::test_hfds_split_expression_uses_loaded_sample_count',
        'test_multilabel.py::test_hf_multilabel_readers_and_loader',
        'test_multilabel.py::test_hfids_more_workers_than_shards_fails_fast_when_training',
        'test_multilabel.py::test_hf_multilabel_class_map', 'test_multilabel.py::test_hf_multi_field_binary_targets',
        'test_multilabel.py::test_hf_sequence_of_dicts_path_yields_label_list', 'test_multilabel.py::test_hf_multihot_target_format',
        'test_multilabel.py::test_naflex_multilabel_loader'],
    'timmdata keeps float targets as floats, for regression': [
        'test_multilabel.py::test_fast_collate_casts_scalar_targets_to_int64'],
    "`loader.dataset` is the dataset that you passed, not timm's wrapper": [
        'test_scheduled_sampler.py::test_create_loader_scheduled_resolutions_and_batch_sizes'],
    '`use_multi_epochs_loader` is another name for `persistent_workers` and can be combined with several image sizes': [
        'test_scheduled_sampler.py::test_create_loader_rejects_scheduled_resolutions_with_multi_epochs_loader'],
    '`loader.persistent_workers` is the value that you passed, even without workers': [
        'test_data.py::test_create_loader_disables_persistent_workers_without_workers',
        'test_data.py::test_create_naflex_loader_disables_persistent_workers_without_workers'],
    "the test needs a later version of timm's scripts and also fails with timm": [
        'test_multilabel.py::test_train_cli_rejects_metric_the_evaluator_does_not_produce',
        'test_multilabel.py::test_multilabel_train_cli_multihot', 'test_multilabel.py::test_multilabel_train_and_validate_cli',
        'test_multilabel.py::test_class_weights_script', 'test_multilabel.py::test_train_cli_loss_flags',
        'test_train_resume.py::test_stop_epoch_and_milestones', 'test_train_resume.py::test_stop_epoch_out_of_range',
        'test_train_resume.py::test_resume_auto_in_place', 'test_train_resume.py::test_resume_auto_requires_experiment',
        'test_train_resume.py::test_fresh_run_resets_existing_summary',
        'test_train_resume.py::test_load_config_warns_on_unknown_key',
        'test_train_resume.py::test_load_config_rejects_invalid_values[cfg0]',
        'test_train_resume.py::test_load_config_rejects_invalid_values[cfg2]',
        'test_train_resume.py::test_load_config_rejects_invalid_values[cfg3]',
        'test_train_resume.py::test_load_config_converts_numeric_strings'],
}
# they pass but for the words of an error
OTHER_WORDS = [
    'test_reader_wds.py::test_wds_multi_field_binary_targets',
    'test_reader_wds.py::test_wds_path_into_json_array_of_objects', 'test_reader_wds.py::test_wds_target_key_errors_are_not_swallowed',
    'test_scheduled_sampler.py::test_create_loader_rejects_nonpositive_scheduled_dimensions',
    'test_scheduled_sampler.py::test_progressive_schedule_rejects_when_no_full_batch_fits',
    'test_scheduled_sampler.py::test_sample_budget_schedule_rejects_when_no_full_batch_fits',
    'test_scheduled_sampler.py::test_scheduled_batch_sampler_rejects_empty_sampler',
]

# a name that is nowhere here fails in the test that uses it, not in the import that all tests of a file share
MISSING = '''
class Missing:
    def __init__(self, name): self.name = name
    def __getattr__(self, what): raise AttributeError(f'{self.name} is not in timmdata')
    def __call__(self, *args, **kwargs): raise AttributeError(f'{self.name} is not in timmdata')


def __getattr__(name): return Missing(name)
'''


def home(module: str, name: str) -> str:
    "The module that has a name of a module of timm.data here: that of the same path."
    place = module.replace('timm.data', 'timmdata', 1)
    return place if hasattr(importlib.import_module(place), name) else 'missing_names'


def replaced_import(node: ast.stmt) -> list[str] | None:
    "The statements in place of an import of timm.data; None: another statement."
    if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[:2] == ['timm', 'data']:
        if node.module == 'timm.data': return [ast.unparse(node).replace('timm.data', 'timmdata', 1)]
        return [f'from {home(node.module, alias.name)} import {ast.unparse(alias)}' for alias in node.names]
    if isinstance(node, ast.Import) and node.names[0].name.startswith('timm.data.'):
        return [ast.unparse(node).replace('timm.data', 'timmdata', 1)]
    return None


def replaced(source: str) -> str:
    "A script whose imports of timm.data are of timmdata; all other lines are as they were, with their numbers."
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        new = replaced_import(node)
        if new is None: continue
        lines[node.lineno - 1] = ' ' * node.col_offset + '; '.join(new)
        lines[node.lineno:node.end_lineno] = [''] * (node.end_lineno - node.lineno)
    return '\n'.join(lines) + '\n'


def copy_replaced(folder: Path) -> Path:
    "Write timm's scripts and tests into a folder, with the name replaced."
    for path in TIMM.rglob('*.py'):
        target = folder/path.relative_to(TIMM)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(replaced(path.read_text(encoding='utf-8')), encoding='utf-8')
    (folder/'missing_names.py').write_text(MISSING)
    return folder


def make_photos(folder: Path) -> Path:
    "Small pictures in class folders, files about them, and a model."
    rng = np.random.default_rng(0)
    for split, number in (('train', TRAIN_PHOTOS), ('val', VAL_PHOTOS)):
        for k in range(number):
            path = folder/split/f'class{k % CLASSES}'/f'ILSVRC2012_val_{k + 1:08d}.JPEG'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)).resize((48, 40)).save(path)
    (folder/'classes.txt').write_text('\n'.join(f'class{k}' for k in reversed(range(CLASSES))))
    (folder/'real.json').write_text(json.dumps([[k % CLASSES, (k + 2) % CLASSES] if k % 4 else [] for k in range(VAL_PHOTOS)]))
    (folder/'valid.txt').write_text('\n'.join(map(str, range(CLASSES))))
    make_model(folder, MODEL)
    make_model(folder, NAFLEX_MODEL, **NAFLEX_SETTINGS)
    return folder


def make_model(photos: Path, name: str, **settings):
    "Write a model that was not trained, and still answers differently to different pictures."
    import timm
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=CLASSES, **settings).eval()
    pixels = [np.asarray(Image.open(path).resize((32, 32)), np.float32).transpose(2, 0, 1) / 64 - 2 for path in photos.rglob('*.JPEG')]
    head = model.get_classifier()
    with torch.no_grad():
        features = model.forward_features(torch.tensor(np.stack(pixels)))
        if isinstance(features, dict): features = features['patches']
        features = model.forward_head(features, pre_logits=True)
        spread = features.std(0)
        head.weight.normal_().div_(spread.clamp_min(spread.mean()))
        head.bias.copy_(-(head.weight @ features.mean(0)))
    torch.save(model.state_dict(), photos/f'{name}.pth')


def words(script: str, photos: Path, folder: Path, flags: str) -> list[str]:
    "The command line of a short run on a CPU."
    model, settings = (NAFLEX_MODEL, NAFLEX_SETTINGS) if '--naflex-loader' in flags else (MODEL, {})
    common = ['--data-dir', str(photos), '--model', model, '--num-classes', str(CLASSES), '--img-size', '32', '--batch-size', '4',
              '--device', 'cpu', '--workers', '0', '--naflex-max-seq-len', '9',
              '--model-kwargs', *(f'{name}={value}' for name, value in settings.items())]
    training = ['--epochs', '1', '--warmup-epochs', '0', '--lr', '0.01', '--log-interval', '1', '--output', str(folder)]
    evaluation = ['--checkpoint', str(photos/f'{model}.pth'), '--log-freq', '1']
    own = flags.format(photos=photos, folder=folder).split()
    return [*common, *(training if script == 'train.py' else evaluation), *own]


def environment(folder: Path) -> dict[str, str]:
    "The variables of a program that sees this checkout and a folder, with one thread for torch."
    path = os.pathsep.join(map(str, [ROOT, folder, *filter(None, [os.environ.get('PYTHONPATH')])]))
    return {**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': '1', 'PYTHONDONTWRITEBYTECODE': '1'}


class ScriptRuns:
    "Runs of both scripts in one program, started now, or on two ranks of torchrun; `results` waits for it."

    def __init__(self, scripts: Path, photos: Path, folder: Path, tables: dict[str, dict[str, str]], on_ranks: bool = False):
        folder.mkdir()
        self.out, runs = folder/'out', []
        for script, table in tables.items():
            for name, flags in table.items():
                named = ['--experiment', name] if script == 'train.py' else []
                runs.append([f'{script} {name}', str(scripts/script), [*words(script, photos, folder, flags), *named]])
        (folder/'runs.json').write_text(json.dumps(runs))
        launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', '2'] if on_ranks else []
        command = [sys.executable, *launcher, str(ROOT/'tests/support/run_timm_clients.py'), str(folder/'runs.json'), str(self.out)]
        self.errors = (folder/'errors.txt').open('w+')
        self.program = subprocess.Popen(command, cwd=folder, env=environment(scripts), stdout=subprocess.DEVNULL, stderr=self.errors)

    def results(self, rank: int = 0, timeout: float = 500) -> dict[str, dict]:
        "What came of each run on a rank, by script and name."
        try: code = self.program.wait(timeout)
        except subprocess.TimeoutExpired:
            self.program.terminate()   # torchrun ends its ranks
            raise
        self.errors.seek(0)
        if code: raise RuntimeError(self.errors.read()[-3000:])
        return json.loads(Path(f'{self.out}{rank}.json').read_text())


def run_ranks(scripts: Path, photos: Path, folder: Path, name: str) -> list[dict]:
    "A run of `TORCHRUN` on both ranks; one a program, since its process group ends with it."
    program = ScriptRuns(scripts, photos, folder, {'train.py': {name: TORCHRUN[name]}}, on_ranks=True)
    return [program.results(rank)[f'train.py {name}'] for rank in range(2)]


def run_own_tests(folder: Path, timeout: float = 500) -> dict:
    "timm's own tests, from a copy with the name replaced: outcome and reason of each, and which raise other words."
    copy_replaced(folder)
    out = folder/'outcomes.json'
    env = {**environment(folder), 'OUTCOMES': str(out)}
    env['PYTHONPATH'] += os.pathsep + str(ROOT/'tests/support')
    command = [sys.executable, '-m', 'pytest', '-q', 'tests', '-p', 'no:cacheprovider', '-p', 'timm_outcomes', '--tb=line',
               f'--deselect={SLOW_TESTS}']
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)
    if done.returncode not in (0, 1): raise RuntimeError(done.stdout[-3000:] + done.stderr[-1000:])
    return json.loads(out.read_text())


def expand(names: list[str], found: list[str]) -> set[str]:
    "All cases of tests."
    return {case for case in found if case in names or case.partition('[')[0] in names}
