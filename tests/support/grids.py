"Grids of which a few cases run always, and the others in `.ci/run` (TIMMDATA_FULL=1)."
import os

import pytest

full = pytest.mark.full


def quick(num: int, names: str, cases, **settings):
    "As `pytest.mark.parametrize`; all cases but the first `num` are marked `full`."
    def in_ci(case):
        if hasattr(case, 'marks'): return pytest.param(*case.values, id=case.id, marks=[*case.marks, full])
        return pytest.param(*(case if ',' in names else [case]), marks=full)
    cases = list(cases)
    return pytest.mark.parametrize(names, cases[:num] + [in_ci(case) for case in cases[num:]], **settings)


def examples(num: int) -> int:
    "How many examples hypothesis tries: a tenth of them in an ordinary run."
    return num if os.environ.get('TIMMDATA_FULL') else max(5, num // 10)
