"libjpeg-turbo's jpegtran, and programs that stand in for it."
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsers import missing

TURBO = "if '-version' in sys.argv: sys.exit(print('libjpeg-turbo version 3.1.0 (build 20250101)', file=sys.stderr))\n"


def require_jpegtran():
    "Skip a test if the program is not installed; on a build server that is a failure."
    from timmdata.core.restarts import JpegtranError, jpegtran_version
    try: jpegtran_version()
    except JpegtranError as error: missing(str(error))


@contextmanager
def only_program(folder: Path) -> Iterator[Callable[[str | None], None]]:
    "PATH has one folder; what is yielded puts a Python program named jpegtran there, or nothing for None."
    from timmdata.core.restarts import jpegtran_version

    def put(code):
        if code is None: (folder/'jpegtran').unlink(missing_ok=True)
        else:
            (folder/'jpegtran').write_text(f'#!{sys.executable} -S\nimport os, sys, time\n{code}\n')
            (folder/'jpegtran').chmod(stat.S_IRWXU)
        jpegtran_version.cache_clear()

    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', str(folder))
        yield put
    jpegtran_version.cache_clear()
