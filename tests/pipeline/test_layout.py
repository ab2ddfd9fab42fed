"Compare the positions of rows with numpy's strides."
import numpy as np
import pytest
import torch

from timmdata.pipeline.layout import BatchLayout

LAYOUTS = [BatchLayout(), BatchLayout({'image': (1, 3, 8, 6)}), BatchLayout({'image': (3, 1, 4, 4)}),
           BatchLayout({0: (2, 3, 8, 8), 1: (5, 3, 4, 4)}), BatchLayout({'image': (2, 3, 5, 7), 'histogram': (1, 9)}),
           BatchLayout(shared={'tokens': (1, 3, 40, 4)}), BatchLayout({'image': (1, 3, 4, 4)}, {'tokens': (2, 11)})]


def number_all(layout: BatchLayout, num: int) -> tuple[dict, torch.Tensor]:
    "Return rows in memory with the values 0, 1, 2, … modulo 251."
    memory = torch.arange(layout.num_bytes(num) + 13, dtype=torch.int64).remainder(251).to(torch.uint8)
    return layout.allocate(num, memory), memory


@pytest.mark.parametrize('layout', LAYOUTS, ids=str)
def test_rows_lie_one_after_another_in_the_memory(layout):
    rows, memory = number_all(layout, 4)
    begin = 0
    for name, tensor in rows.items():
        views, *shape = layout.fields.get(name) or layout.shared[name]
        num = views if name in layout.shared else 4 * views
        part = memory[begin:begin + num * int(np.prod(shape))].numpy()
        lines = part.reshape(num, *shape[1:], shape[0]).transpose(0, 3, 1, 2) if len(shape) == 3 else part.reshape(num, *shape)
        assert np.array_equal(tensor.numpy(), lines) and tensor.data_ptr() == memory.data_ptr() + begin
        begin += part.size
    assert begin == layout.num_bytes(4) == len(memory) - 13


@pytest.mark.parametrize('layout', LAYOUTS, ids=str)
@pytest.mark.parametrize('present', [[0, 1, 2, 3], [1, 3], [2], [0, 3]], ids=str)
def test_samples_keep_their_rows_when_gaps_are_closed(layout, present):
    rows, _ = number_all(layout, 4)
    before = [[row.clone() for row in own] for own in layout.divide(rows, 4)]
    kept = layout.keep(rows, 4, present)
    after = layout.divide(kept, len(present))
    assert len(before) == 4 and [len(own) for own in after] == [len(before[0])] * len(present)
    assert all(torch.equal(row, other) for k, own in zip(present, after) for row, other in zip(before[k], own, strict=True))
    assert all(kept[name] is rows[name] for name in layout.shared)
