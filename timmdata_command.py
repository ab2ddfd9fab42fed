"What the command `timmdata` runs: the version is told at once; all else imports the library, and PyTorch with it."
import sys
from importlib import metadata


def main() -> int:
    "Answer `--version` from what is installed, or hand over to the command line; give its exit code."
    if sys.argv[1:] == ['--version']:
        print(f'timmdata {metadata.version("timmdata")}')
        return 0
    from timmdata.cli import main as run
    return run()
