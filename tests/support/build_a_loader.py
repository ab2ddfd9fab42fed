"The classes of the guide `build_a_loader`, as a module, so that spawned workers find them."
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT/'tools') not in sys.path: sys.path.insert(0, str(ROOT/'tools'))
from notebooks import run_definitions  # noqa: E402

run_definitions(ROOT/'nbs/guides/build_a_loader.ipynb', globals())
