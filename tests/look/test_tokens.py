"What a report says before training, beside the batches that loaders then give."
import numpy as np
import pytest
from grids import few
from torch.utils.data import Subset

from timmdata import ImageDataset, NaFlex, compare_naflex_modes, create_loader

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize('settings', few([
    dict(is_training=True), dict(is_training=True, scale=(0.5, 1.), ratio=(0.9, 1.1)), dict(is_training=True, no_aug=True),
    dict(is_training=False)], dict(is_training=True)))
def test_a_report_is_what_loaders_do(samples, settings):
    data = ImageDataset(samples/'train')
    data = Subset(data, range(0, len(data), 4))
    naflex = NaFlex(train_seq_lens=(64, 128, 256), max_seq_len=200)
    report = compare_naflex_modes(data, 7, naflex, seed=5, **settings)
    for mode in report.modes:
        loader = create_loader(data, batch_size=7, seed=5, device='cpu', **settings,
                               naflex=NaFlex(**{**vars(naflex), 'mode': mode.mode}), drop_last=False)
        batches = [batch for batch, _ in loader]
        assert mode.batch_images == pytest.approx(sum(len(batch['grid_sizes']) for batch in batches) / len(batches))
        tokens = sum(batch['patch_valid'].numel() for batch in batches)
        padding = 1 - sum(int(batch['patch_valid'].sum()) for batch in batches) / tokens
        assert mode.num_batches == len(batches) and mode.batch_tokens == pytest.approx(tokens / len(batches), rel=0.02)
        assert mode.padding == pytest.approx(padding, abs=0.02 if mode.mode == 'schedule' else 1e-9), mode.mode
    assert str(report).count('\n') == 3


def test_a_report_takes_sizes():
    sizes = np.random.default_rng(0).integers(10, 900, (300, 2))
    report = compare_naflex_modes(sizes, 8, NaFlex(patch_size_choices=(8, 16)), num_replicas=2)
    assert [mode.mode for mode in report.modes] == ['schedule', 'native', 'packed'] and len(report.lengths) == 300
    one = compare_naflex_modes(sizes, 8, NaFlex(patch_size=8))
    assert one.modes[1].num_batches == pytest.approx(2 * report.modes[1].num_batches, abs=1)
