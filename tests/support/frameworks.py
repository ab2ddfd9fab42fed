"The other trainers that tests/integrations runs: skipped if they are not installed, unless they are required."
import importlib
import os
from types import ModuleType

import pytest

# .ci/run sets it for its second environment, so that a framework that cannot be imported there is a failure
REQUIRED = 'TIMMDATA_INTEGRATIONS_REQUIRED'
os.environ.setdefault('KERAS_BACKEND', 'torch')   # else Keras looks for TensorFlow


def require(name: str) -> ModuleType:
    "Import a framework; if it is not installed, the tests are skipped, or fail where all frameworks are required."
    if os.environ.get(REQUIRED): return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"needs {name}: pip install -c constraints.txt -e '.[dev,integrations]'")
