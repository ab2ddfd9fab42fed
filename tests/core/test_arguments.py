"Arguments as one object, compared with Python's own calls and signatures."
import inspect
import linecache
import os
import sysconfig
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from timmdata import IterableImageDataset, NaFlex, create_dataset, create_reader
from timmdata.core.arguments import Arguments, warn_caller
from timmdata.datasets.image_dataset import ImageDataset
from timmdata.formats import ImageFormat
from timmdata.inspection import inspect as inspect_images
from timmdata.loader import NO_EFFECT, REFUSED, create_loader
from timmdata.loaders.batch_loader import BatchSettings
from timmdata.pipeline.batch_transform import BatchTransformSettings
from timmdata.pipeline.sample_transform import DecodeSettings
from timmdata.pipeline.views import View
from timmdata.samplers.batch_schedule import create_batch_schedule
from timmdata.samplers.order import OrderSettings
from timmdata.transforms.random_erasing import ErasingSettings
from timmdata.transforms.settings import AugmentSettings
from timmdata.workers.settings import WorkerSettings

PARAMETERS = inspect.signature(create_loader).parameters
ROUTED = [AugmentSettings, BatchSettings, BatchTransformSettings, DecodeSettings, ErasingSettings, OrderSettings, WorkerSettings,
          create_batch_schedule, View]
# None means that other arguments decide
RESOLVED = {('BatchSettings', 'drop_last'), ('create_batch_schedule', 'drop_last'), ('DecodeSettings', 'scaled_decode'),
            ('OrderSettings', 'shuffle'), ('WorkerSettings', 'pin_memory'), ('View', 'gaussian_blur_radius')}


def bake(flour, salt=0.02, heat=None, fan=False, times=(1, 2)): return Arguments(bake, locals())


def test_what_is_off_is_not_given():
    for value in (None, 0, False, 0., np.False_, np.float32(0)): assert not bake('rye', heat=value).is_given('heat')
    for value in (1, '', [], (0,), torch.zeros(2), np.zeros(2)): assert bake('rye', heat=value).is_given('heat')
    assert [bake('rye', salt=value).is_given('salt') for value in (0.02, 0, None, 0.03)] == [False, True, True, True]
    for value in ([0.1, 0.2], [0.02], 0.03): assert all(bake('rye', salt=kind(value)).is_given('salt') for kind in (np.array, torch.tensor))
    assert not bake('rye', salt=np.array(0.02)).is_given('salt')
    assert bake('rye').replace(heat=9).heat == 9 and bake('rye', heat=9).without('heat').heat is None


def test_tables_name_arguments_and_facts_only():
    for what, why, others in REFUSED + NO_EFFECT:
        assert why == why.strip() and not why.endswith('.')
        for item in (what, *others.split(', ')):
            for name in item.split(' with '): assert name in ('a stream', 'a mixture') or name.partition('=')[0] in PARAMETERS, name


def test_every_argument_is_checked_or_used_by_somebody():
    routed = {name for owner in ROUTED for name in inspect.signature(owner).parameters}
    code = inspect.getsource(inspect.getmodule(create_loader)) + inspect.getsource(inspect.getmodule(ImageFormat))
    for name in PARAMETERS: assert name in routed or f'given.{name}' in code or f"'{name}'" in code, name


@pytest.mark.parametrize('owner', ROUTED, ids=lambda owner: owner.__name__)
def test_defaults_that_stand_twice_agree(owner):
    for name, parameter in inspect.signature(owner).parameters.items():
        if parameter.default is parameter.empty or name not in PARAMETERS or (owner.__name__, name) in RESOLVED: continue
        assert PARAMETERS[name].default == parameter.default, name


def test_the_loader_names_no_format():
    import timmdata.loader as module
    for function in (module.make_loader, module._make_batches):
        names = function.__code__.co_names + function.__code__.co_varnames
        assert not {'naflex', 'views', 'PatchFormat', 'ViewsFormat', 'CustomFormat'} & {*names}


def test_warnings_point_at_the_users_line():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        warn_caller('direct')
        create_loader([(torch.zeros(3, 8, 8, dtype=torch.uint8), 0)], 8, 1, num_workers=0, re_prob=0.5, device='cpu')
        View.augment(View(8))
    assert [one.filename for one in heard] == [__file__] * 2


def test_a_reader_warns_at_the_users_line_with_the_category(tmp_path):
    (tmp_path/'cat').mkdir()
    for name in ('a.png', 'b.heic'):
        Image.new('RGB', (8, 8)).save(tmp_path/'cat'/name, 'PNG')
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        ImageDataset(tmp_path)   # through decorators and several packages
        warn_caller('of a category', RuntimeWarning)
    assert [(one.filename, one.category) for one in heard] == [(__file__, UserWarning), (__file__, RuntimeWarning)]


# ---- a warning shows the line of the user's program, whatever code is in between

@pytest.fixture(scope='module')
def warned_about(tmp_path_factory):
    "A folder with a file that is skipped, and others about which timmdata warns."
    root = tmp_path_factory.mktemp('warned')
    for name in ('cat/a.png', 'cat/b.heic', 'flat/c.png'):
        (root/name).parent.mkdir(exist_ok=True)
        Image.new('RGB', (8, 8)).save(root/name, 'PNG')
    (root/'table.csv').write_text('path,label\ncat/a.png,cat\ncat/gone.png,cat\n')
    with tarfile.open(root/'a.tar', 'w') as tar: tar.add(root/'cat/a.png', 'cat/a.png')
    (root/'a.tar').write_bytes((root/'a.tar').read_bytes() * 2)   # cat a.tar a.tar
    return root


LIST = [(torch.zeros(3, 8, 8, dtype=torch.uint8), 0)] * 4
SMALL = dict(input_size=8, batch_size=4, device='cpu', num_workers=0)
# a function of an installed package, such as Lightning's trainer
INSTALLED = dict(__name__='lightning.trainer', __file__=os.path.join(sysconfig.get_path('purelib'), 'lightning', 'trainer.py'))
exec(compile('def call(function, *args): return function(*args)', INSTALLED['__file__'], 'exec'), INSTALLED)
# each on its own line, which the warning must name
WARNED = {
    'folder': lambda root: ImageDataset(root/'cat'),
    'folder, by create_dataset': lambda root: create_dataset('', root/'cat', 'train'),
    'folder, by partial': lambda root: partial(ImageDataset, split=None)(root/'cat'),
    'folder, by timm_name': lambda root: create_reader('folder', root/'cat', 'train'),
    'table': lambda root: ImageDataset(root/'table.csv', on_problem='drop'),
    'tar, whose archives are listed in threads': lambda root: ImageDataset(root/'a.tar'),
    'no classes': lambda root: create_loader(ImageDataset(root/'flat'), **SMALL),
    'no effect': lambda root: create_loader(LIST, re_prob=0.5, **SMALL),
    'swapped': lambda root: create_loader(LIST, 4, 224, num_workers=0),
    'one channel': lambda root: create_loader(LIST, (1, 8, 8), 4, num_workers=0),
    'pin_memory': lambda root: create_loader(LIST, pin_memory=True, use_prefetcher=False, input_size=8, batch_size=4, num_workers=0),
    'naflex': lambda root: create_loader(LIST, batch_size=4, naflex=NaFlex(), re_prob=0.5, num_workers=0),
    'stream': lambda root: list(create_loader(IterableImageDataset(reader=[]), **SMALL)),
    'inspect': lambda root: inspect_images(root/'flat', root/'report', progress=False),
    'in a comprehension': lambda root: [create_loader(LIST, re_prob=0.5, **SMALL) for _ in range(1)],
    'in a progress bar': lambda root: list(tqdm(create_loader(IterableImageDataset(reader=[]), **SMALL), disable=True)),
    'in a thread pool': lambda root: list(ThreadPoolExecutor(1).map(lambda name: ImageDataset(root/name), ['cat'])),
    'in a pool that only calls it': lambda root: ThreadPoolExecutor(1).submit(ImageDataset, root/'cat').result()}


def named_line(call) -> str:
    "Return the line that all warnings name."
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        call()
    (path, number), = {(one.filename, one.lineno) for one in heard}
    assert path == __file__
    return linecache.getline(path, number).strip()


@pytest.mark.parametrize('kind', WARNED)
def test_each_warning_names_the_users_line(warned_about, monkeypatch, kind):
    def missing(): raise ImportError('imagehash')
    monkeypatch.setattr('timmdata.inspection.inspection.perceptual_hash', missing)
    assert named_line(lambda: WARNED[kind](warned_about)).startswith(f'{kind!r}: ')


def test_frames_of_installed_packages_are_passed_over(warned_about):
    def make(): INSTALLED['call'](ImageDataset, warned_about/'cat')
    assert named_line(make).startswith('def make()')
    def train(): next(iter(DataLoader(Skipping())))   # torch is one, too
    assert named_line(train).startswith('def train()')


class Skipping(Dataset):
    "Skip samples that cannot be read, like the datasets of this package."
    def __len__(self): return 1
    exec(compile("def __getitem__(self, index):\n warn('of a sample')\n return 0", 'dataset.py', 'exec'),
         dict(warn=warn_caller, __name__='timmdata.datasets.skipping'), locals())


def test_a_with_block_and_threads_of_workers_name_the_users_line(tmp_path):
    class Thin:   # one of a thread
        def __len__(self): return 4
        def __getitem__(self, index): return Image.new('RGB', (8, 8)), index
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        with create_loader(Thin(), re_prob=0.5, **SMALL) as loader:   # the first
            pool = ThreadPoolExecutor(1)
            waiting = pool.submit(warn_caller, 'in a thread that has no line of the program', RuntimeWarning)
            waiting.result(), list(loader)   # the second
    assert [(one.filename, one.category) for one in heard] == [(__file__, UserWarning), (__file__, RuntimeWarning)]
    assert linecache.getline(__file__, heard[0].lineno).rstrip().endswith('# the first')


def test_a_warning_is_shown_once_for_a_line_as_pythons_own(recwarn):
    warnings.simplefilter('default')
    for _ in range(3): warn_caller('again and again')
    warn_caller('again and again')
    assert len(recwarn) == 2
    warnings.filterwarnings('error', module=__name__.replace('.', r'\.'))
    with pytest.raises(UserWarning, match='an error by now'): warn_caller('an error by now')
