"A real browser, for tests of pages."
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync']


def missing(what: str):
    "On a build server, a missing tool is a failure; elsewhere, the test is skipped."
    (pytest.fail if os.environ.get('TIMMDATA_FULL') or os.environ.get('CI', '').lower() in ('1', 'true') else pytest.skip)(what)


@contextmanager
def headless_chromium() -> Iterator[Any]:
    "While it is open, no second one can be opened in this process."
    try:
        from playwright.sync_api import sync_playwright
    except ImportError: missing("playwright is not installed: pip install -c constraints.txt -e '.[dev]'")
    chosen = os.environ.get('CHROMIUM')
    names = [chosen] if chosen else ['chromium', 'chromium-browser', 'google-chrome']
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None: missing(f'no browser: {" or ".join(names)} not found; CHROMIUM=/path/to/chromium names one')
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()
