"The photographs that lie beside a developer's checkout; tests skip where they are absent."
import os
from pathlib import Path

import pytest
from synthetic import ROOT

DATA = ROOT.parent/'shared/data'


def shared_data(name: str) -> Path:
    "A folder of photographs beside the checkout; the test is skipped where it is absent."
    if not (DATA/name).is_dir(): pytest.skip(f'no {os.path.relpath(DATA/name, ROOT)}')
    return DATA/name
