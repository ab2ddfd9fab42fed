"Test grids: an ordinary run uses a few cases, and CI (TIMMDATA_FULL=1) uses all."
import os
from collections.abc import Iterable

import pytest

full = pytest.mark.full


def few(cases: Iterable, *ordinary, num: int = 0) -> list:
    "Cases for `parametrize`: all are marked `full` but the ordinary ones, or but a number of them, at equal distances."
    cases = list(cases)
    if num: ordinary = cases[::len(cases) // num]
    return [pytest.param(case, id=str(case)[:40], marks=[] if case in ordinary else full) for case in cases]


def quick(num: int, names: str, cases, **settings):
    "As `pytest.mark.parametrize`; all cases but the first `num` are marked `full`."
    def in_ci(case):
        if hasattr(case, 'marks'): return pytest.param(*case.values, id=case.id, marks=[*case.marks, full])
        return pytest.param(*(case if ',' in names else [case]), marks=full)
    cases = list(cases)
    return pytest.mark.parametrize(names, cases[:num] + [in_ci(case) for case in cases[num:]], **settings)


def every_eleventh(cases: Iterable) -> list:
    "A part of the cases that one test tries: all in CI. Mark such a test `examples`, so that CI repeats it."
    return list(cases)[::1 if os.environ.get('TIMMDATA_FULL') else 11]   # grids have no such period


def examples(num: int) -> int:
    "How many examples hypothesis tries: a tenth of them in an ordinary run. Mark such a test `examples`, so that CI repeats it."
    return num if os.environ.get('TIMMDATA_FULL') else max(5, num // 10)
