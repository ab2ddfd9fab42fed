"Grids of which the ordinary run takes a few cases, and CI (TIMMDATA_FULL=1) all."
from collections.abc import Iterable

import pytest


def few(cases: Iterable, *ordinary, num: int = 0) -> list:
    "Cases for `parametrize`: all are marked `full` but the ordinary ones, or but a number of them, at equal distances."
    cases = list(cases)
    if num: ordinary = cases[::len(cases) // num]
    return [pytest.param(case, id=str(case)[:40], marks=[] if case in ordinary else pytest.mark.full) for case in cases]
