"The photos next to a developer's checkout; tests are skipped if they are missing."
import os
from pathlib import Path

import pytest
from synthetic import ROOT

DATA = ROOT.parent/'shared/data'


def shared_data(name: str) -> Path:
    "Return a folder of photos next to the checkout; the test is skipped if it is missing."
    if not (DATA/name).is_dir(): pytest.skip(f'no {os.path.relpath(DATA/name, ROOT)}')
    return DATA/name
