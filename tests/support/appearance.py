"Flips and colors that a test chooses, as columns, and in place of a `ParamSampler`."
from collections.abc import Sequence

import numpy as np
import torch

from timmdata.core.ambient import together_on_device
from timmdata.pipeline.colors import color_matrices
from timmdata.pipeline.params import AppearanceColumns, AppearanceParams
from timmdata.pipeline.whole_batch import batch_numbers, change_batch


def columns_of(rows: Sequence[AppearanceParams]) -> AppearanceColumns:
    "The inverse of `AppearanceColumns.rows`; shorter lists of operations are filled up."
    num_steps = max(len(row.color) for row in rows)
    columns = [AppearanceColumns.of(row) for row in rows]
    filled = [one._replace(ops=np.pad(one.ops, ((0, num_steps - len(one.ops)), (0, 0))),
                           factors=np.pad(one.factors, ((0, num_steps - len(one.factors)), (0, 0)))) for one in columns]
    return AppearanceColumns(*(np.concatenate(parts, -1) for parts in zip(*filled)))


def numbers_for(rows: Sequence[AppearanceParams], mean, std) -> dict[str, torch.Tensor]:
    "The numbers that the device needs to change a batch."
    columns = columns_of(rows)
    return together_on_device(batch_numbers(columns, color_matrices(columns, len(mean)), mean, std), torch.device('cpu'))


def change_at_once(images: torch.Tensor, rows: Sequence[AppearanceParams], mean, std) -> torch.Tensor:
    "The device's way, on tensors of the CPU."
    return change_batch(images, numbers_for(rows, mean, std))


class Fixed:
    "Return given values in place of random ones, by the index of the sample."
    changes_on_device = changes_color = True
    def __init__(self, rows): self.rows = rows
    def appearance(self, keys): return columns_of([self.rows[key.index] for key in keys])
    def share(self, drawn): return AppearanceColumns.unchanged(len(drawn.hflip)), drawn
