"Every public name of timm.data 1.0.31, side by side: the same here, better (with the case), or timm's own."
import ast
import inspect
import pickle
import pkgutil
import subprocess
import sys
import types
import warnings
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image

import timmdata
from timmdata.timm_names import DROPPED, HERE
from timmdata.timm_names import MODULES as KNOWN_MODULES

SAME = """DEFAULT_CROP_MODE DEFAULT_CROP_PCT IMAGENET_DEFAULT_MEAN IMAGENET_DEFAULT_STD IMAGENET_DPN_MEAN IMAGENET_DPN_STD
    IMAGENET_INCEPTION_MEAN IMAGENET_INCEPTION_STD OPENAI_CLIP_MEAN OPENAI_CLIP_STD MaybePILToTensor MaybeToTensor RandomCropOrPad
    RandomResizedCropAndInterpolation ResizeKeepRatio add_img_extensions del_img_extensions
    get_img_extensions is_img_extension set_img_extensions interp_mode_to_str str_to_interp_mode str_to_pil_interp crop_or_pad
    center_crop_or_pad CenterCropOrPad auto_augment_policy rand_augment_ops Patchify
    ResizeToSequence calculate_naflex_batch_size patchify_image""".split()
FORWARDED = """CenterCropToSequence CustomDatasetInfo DatasetInfo DatasetInfoLabelMapper ImageNetInfo LabelMappingCoverage
    NaFlexMapDatasetWrapper RandomCropToSequence RandomPad RealLabelsImagenet ResizeKeepRatioToSequence ScheduledTransformDataset
    ToNumpy ToTensor
    infer_imagenet_subset mix_batch_variable_size pairwise_mixup_target resolve_data_config resolve_input_data_config
    resolve_model_data_config""".split()   # timm's own


def odd_batch(module): module.Mixup(num_classes=3)(torch.zeros(3, 3, 8, 8), torch.arange(3))


def odd_collate(module): module.FastCollateMixup(num_classes=3)([(np.zeros((3, 8, 8), np.uint8), 0)] * 3)


# name → what is better, and a case: (fails with timm, works here) or (accepted by timm, refused here)
BETTER = {
    'ImageDataset': 'faults are answered as on_error says; tables of labels; its transform is not overwritten',
    'IterableImageDataset': 'each sample has random numbers of its own, whatever the workers',
    'create_loader': 'the same batches for any number of workers, resumable, replayable, no GPU needed',
    'create_transform': 'wrong settings are errors',
    'create_dataset': 'a wrong split is an error that lists the splits; paths keep their case',
    'create_reader': 'tables of labels; indexes of archives are no pickles',
    'AugMixDataset': 'the loader makes the views by itself',
    'RandAugment': 'posterizing keeps one bit',
    'AutoAugment': 'posterizing keeps one bit',
    'rand_augment_transform': 'parts that are not understood are errors',
    'auto_augment_transform': 'parts that are not understood are errors',
    'Mixup': 'odd batches; inputs are left as they are; a random partner',
    'FastCollateMixup': 'odd batches; the switch reaches workers',
    'ScheduledBatchSampler': 'plans of neighboring seeds are unrelated; the epoch advances by itself',
    'TrimBorder': 'a border that leaves nothing is an error',
    'MultiLabelTarget': 'wrong indexes are errors',
    'create_naflex_loader': 'the same batches for any number of workers, whole ones; resumable, replayable; no GPU needed',
    'NaFlexMixup': 'mixes on the device; what is mixed is a function of seed, epoch and batch',
    'RandomResizedCropToSequence': 'max_ratio holds',
}


def public_names(module) -> set[str]:
    return {name for name in dir(module) if not name.startswith('_') and not isinstance(getattr(module, name), types.ModuleType)}


def test_every_name_is_accounted_for_once():
    names = [*SAME, *BETTER, *FORWARDED]
    assert set(names) == public_names(timm.data) and len(names) == len(set(names))
    assert {*SAME, *BETTER} <= set(timmdata.__all__) - {*FORWARDED} <= set(dir(timmdata))
    assert len(timmdata.__all__) == len(set(timmdata.__all__))


def star(module: str) -> dict:
    scope = {}
    exec(f'from {module} import *', scope)
    return {name: value for name, value in scope.items() if not name.startswith('__') and not isinstance(value, types.ModuleType)}


@pytest.mark.parametrize('module', ['', '.dataset', '.mixup', '.scheduled_sampler', '.transforms', '.transforms_factory', '.loader'])
def test_a_star_imports_what_it_imports_from_timm(module):
    timms, ours = star(f'timm.data{module}'), star(f'timmdata{module}')
    has_file = find_spec(f'timmdata{module}').has_location and module   # its own names: a few more and less
    if not has_file: assert set(timms) <= set(ours)
    for name in {*timms} & {*ours} - OURS: assert ours[name] is timms[name]


@pytest.mark.parametrize('name', FORWARDED)
def test_what_is_timms_own_is_forwarded(name):
    scope = {}
    exec(f'from timmdata import {name}', scope)
    assert scope[name] is getattr(timmdata, name) is getattr(timm.data, name)
    assert name not in dir(timmdata)   # so that completion in an editor does not import timm


def parameters(what) -> list[str]:
    try: return [name for name in inspect.signature(what).parameters if name not in ('args', 'kwargs')]
    except (TypeError, ValueError): return []


# parameters of timm that are not named here, and why
NOT_TAKEN = {
    'ImageDataset': {'additional_features'},   # a reader of Hugging Face sets gives them: reader.additional_features
    'IterableImageDataset': {'batch_size', 'class_map', 'download', 'input_key', 'is_training', 'max_steps', 'num_samples',
                             'repeats', 'seed', 'target_key'},   # handed to the reader by name
    **dict.fromkeys(['add_img_extensions', 'del_img_extensions', 'is_img_extension'], {'ext'}),   # given by place
}


@pytest.mark.parametrize('name', [*SAME, *BETTER])
def test_what_is_offered_takes_timms_words(name):
    timms, ours = getattr(timm.data, name), getattr(timmdata, name)
    if not callable(timms):
        assert timms == ours
        return
    assert inspect.isclass(timms) == inspect.isclass(ours)
    assert set(parameters(timms)) - set(parameters(ours)) == NOT_TAKEN.get(name, set())
    assert len(parameters(ours)) >= min(1, len(parameters(timms)))


@pytest.mark.parametrize('name, meant', [('ImageFolder', 'ImageDataset'), ('DataLoader', 'create_loader'),
                                         ('create_loadr', 'create_loader'), ('MixUp', 'Mixup'), ('qqq', None)])
def test_a_name_that_is_not_there_is_said_with_the_one_that_is_meant(name, meant):
    message = f"^timmdata has no '{name}'" + (rf': did you mean {meant}\?$' if meant else '$')
    with pytest.raises(AttributeError, match=message): getattr(timmdata, name)
    with pytest.raises(ImportError, match=message) as found: exec(f'from timmdata import {name}')
    assert type(found.value) is ImportError and not hasattr(timmdata, name) and getattr(timmdata, name, 1) == 1
    with pytest.raises(ImportError, match=f"timmdata.loader has no '{name}x'"): exec(f'from timmdata.loader import {name}x')
    assert not hasattr(timmdata.loader, f'{name}x')
    with pytest.raises(ModuleNotFoundError, match=f"No module named 'timmdata.{name}'"): import_module(f'timmdata.{name}')


def test_a_name_that_an_earlier_version_had_says_what_to_do():
    message = '^timmdata has no \'compare_naflex_modes\': nbs/guides/naflex.ipynb compares the modes of NaFlex in one cell$'
    with pytest.raises(ImportError, match=message): exec('from timmdata import compare_naflex_modes')
    with pytest.raises(AttributeError, match=message): timmdata.compare_naflex_modes   # noqa: B018


@pytest.mark.parametrize('case', [odd_batch, odd_collate])
def test_better_cases(case):
    with pytest.raises((AssertionError, RuntimeError, ValueError)): case(timm.data)
    case(timmdata)


def test_a_border_that_leaves_nothing_is_an_error():
    image = Image.new('RGB', (8, 8))
    assert min(timm.data.TrimBorder(10)(image).size) <= 0   # an image without pixels, which fails later
    with pytest.raises(ValueError, match='removes a whole'): timmdata.TrimBorder(10)(image)


def test_policies_work_with_this_pillow():
    "timm's policies reach 0 bits, for which Pillow 13 raises an error."
    image, policy = Image.new('RGB', (8, 8)), timmdata.rand_augment_transform('rand-m10-p1-n8', {})
    for _ in range(40): policy(image)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try: timm.data.auto_augment.AugmentOp('Posterize', 1., 0)(image)
        except (ValueError, OSError): return
    pytest.skip('this Pillow posterizes to 0 bits')


def test_bare_inc_is_refused_where_timm_passes_over_it():
    assert isinstance(timm.data.rand_augment_transform('rand-m9-inc', {}), timm.data.RandAugment)
    with pytest.raises(ValueError, match='inc'): timmdata.rand_augment_transform('rand-m9-inc', {})


def test_the_switch_of_mixing(samples):
    "timm's mixup_enabled = False does not reach its persistent workers; here it takes effect at once."
    def targets(module, **own):
        dataset = module.ImageDataset(str(samples/'val'))
        loader = module.create_loader(dataset, (3, 16, 16), 8, is_training=True, num_workers=1, device=torch.device('cpu'),
                                      collate_fn=module.FastCollateMixup(0.8, num_classes=10, label_smoothing=0.), **own)
        next(iter(loader))
        loader.mixup_enabled = False
        return torch.cat([target for _, target in loader])
    def is_mixed(target): return bool(((target > 0.01) & (target < 0.99)).any())
    assert not is_mixed(targets(timmdata, seed=0)) and is_mixed(targets(timm.data, persistent_workers=True))


def test_samples_are_not_written_to():
    image = np.random.default_rng(0).integers(0, 255, (4, 3, 8, 8), dtype=np.uint8)
    before = image.copy()
    timmdata.FastCollateMixup(num_classes=4)([(pixels, k) for k, pixels in enumerate(image)])
    assert np.array_equal(image, before)


def test_images_are_not_enlarged_where_that_was_asked():
    image, settings = Image.new('RGB', (32, 32)), dict(scale=(1., 1.), ratio=(1., 1.), max_ratio=1.)
    assert timmdata.RandomResizedCropToSequence(16, 256, **settings)(image).size == (32, 32)
    assert timm.data.RandomResizedCropToSequence(16, 256, **settings)(image).size == (256, 256)


MODULES = [module.name.removeprefix('timm.data') for module in pkgutil.walk_packages(timm.data.__path__, 'timm.data.')]
OURS = {name for names in HERE.values() for name in names.split()}


def made_in(module: str) -> set[str]:
    "Return the public names that a module of timm.data defines, or that a package exports."
    spec = find_spec(f'timm.data{module}')
    if spec.submodule_search_locations: return public_names(import_module(spec.name))
    names = set()
    def collect(body):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)): names.add(node.name)
            elif isinstance(node, ast.Assign): names.update(ast.unparse(target) for target in node.targets)
            elif isinstance(node, (ast.If, ast.Try)): collect([*node.body, *node.orelse])
    with open(spec.origin, encoding='utf-8') as file: collect(ast.parse(file.read()).body)
    return {name for name in names if name.isidentifier() and not name.startswith('_')}


def test_all_modules_of_timm_are_known():
    assert {*KNOWN_MODULES} == {*MODULES}


def names_in(module: str) -> set[str]:
    "All names of a module of timm.data: private ones, and those that it only imports; without TensorFlow, those that it makes."
    try: found = vars(import_module(f'timm.data{module}'))
    except ImportError: return made_in(module)
    return {name for name, value in found.items() if not name.startswith('__') and not isinstance(value, types.ModuleType)}


@pytest.mark.parametrize('module', MODULES)
def test_what_is_imported_from_a_module_of_timm_is_imported_from_here(module):
    here = import_module(f'timmdata{module}')
    try: theirs = import_module(f'timm.data{module}')
    except ImportError as error: theirs = error   # it needs TensorFlow
    for name in names_in(module):
        if name not in OURS and isinstance(theirs, ImportError):
            with pytest.raises(type(theirs), match=str(theirs)): getattr(here, name)
            continue
        scope = {}
        exec(f'from timmdata{module} import {name}', scope)
        if name in OURS: assert not getattr(scope[name], '__module__', 'timmdata').startswith('timm.')
        elif not find_spec(f'timmdata{module}').has_location: assert scope[name] is getattr(theirs, name)
        if hasattr(timmdata, name): assert scope[name] is getattr(timmdata, name) or name not in OURS
    if not isinstance(theirs, ImportError) and not find_spec(f'timmdata{module}').has_location:
        assert {*star(f'timm.data{module}')} == {*dir(here)}
    needed = 'tensorflow' if isinstance(theirs, ImportError) else 'qqq'
    with pytest.raises(ImportError, match=needed): exec(f'from timmdata{module} import qqq')


OLD = """from timm.data.transforms import _pil_interp
from timm.data import Dataset, DatasetTar
from timm.data.dataset import Dataset
from timm.data.parsers import create_parser, ParserImageFolder
from timm.data.parsers.parser import Parser
from timm.data.parsers.parser_factory import create_parser
from timm.data.parsers.parser_image_folder import ParserImageFolder, find_images_and_targets
from timm.data.parsers.parser_image_in_tar import ParserImageInTar
from timm.data.parsers.parser_image_tar import ParserImageTar
from timm.data.parsers.class_map import load_class_map
from timm.data.parsers.constants import IMG_EXTENSIONS
import timm.data.parsers.parser_factory
from timm.data.loader import _worker_init, expand_to_chs""".splitlines()


@pytest.mark.parametrize('line', OLD)
def test_what_older_scripts_import_is_here_under_its_old_name(line):
    "timm itself removed these names, except `_worker_init`; the new ones are timm's own."
    scope = {}
    exec(line.replace('timm.data', 'timmdata'), scope)
    for name in {*scope} & {*DROPPED}: assert scope[name].__name__ == DROPPED[name]


def test_the_old_names_work(samples):
    scope = {}
    exec('from timmdata import Dataset, create_parser\nfrom timmdata.transforms import _pil_interp', scope)
    assert len(scope['Dataset'](str(samples/'val'))) == len(timm.data.ImageDataset(str(samples/'val')))
    parser = scope['create_parser']('', str(samples/'val'))
    assert [*parser.class_to_idx] == [*timm.data.create_reader('', str(samples/'val')).class_to_idx]
    for name in ('bicubic', 'lanczos', 'hamming', 'bilinear'): assert scope['_pil_interp'](name) == timm.data.str_to_pil_interp(name)


def test_a_module_of_timm_is_an_attribute_and_pickles_name_the_true_one():
    assert timmdata.dataset.ImageDataset is timmdata.ImageDataset is pickle.loads(pickle.dumps(timmdata.dataset.ImageDataset))
    assert timmdata.readers.reader_factory.create_reader is timmdata.create_reader
    scope = {}
    exec('from timmdata.scheduled_sampler import *', scope)
    assert {'ScheduledBatchSampler', 'ScheduledTransformDataset'} <= {*scope}


WITHOUT_TIMM = '''
import sys
sys.modules['timm'] = None
import timmdata.dataset, timmdata.mixup
assert 'torch' not in sys.modules   # until a name is asked for
from importlib import import_module
from timmdata.timm_names import HERE, MODULES
for home, names in HERE.items():
    for name in names.split():
        for module in (home, '.dataset', '.loader', '.readers'): exec(f'from timmdata{module} import {name}')
for module in ['', *MODULES]:
    here = import_module(f'timmdata{module}')
    assert not hasattr(here, 'MultiEpochsDataLoader')
    try: exec(f'from timmdata{module} import MultiEpochsDataLoader')
    except ImportError as error:
        assert f"the names of timm.data{module} come from timm, which is not installed: pip install timm" in str(error), error
    else: raise AssertionError
try: exec('from timmdata.scheduled_sampler import *')
except ImportError as error: assert 'pip install timm' in str(error)
else: raise AssertionError
from timmdata.parsers import create_parser
try: from timmdata import ImageFolder
except ImportError as error: assert str(error) == "timmdata has no 'ImageFolder': did you mean ImageDataset?"
else: raise AssertionError
exec('from timmdata import *')
import pydoc, timmdata
assert 'create_loader' in pydoc.render_doc(timmdata)
try: import timmdata.nonsense
except ModuleNotFoundError as error: assert str(error) == "No module named 'timmdata.nonsense'"
else: raise AssertionError
'''


@pytest.mark.full
def test_without_timm_the_error_says_what_is_timms():
    done = subprocess.run([sys.executable, '-c', WITHOUT_TIMM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
