"""A plugin of pytest for timm's own tests: the outcome of each, in a file that OUTCOMES names.

An error of the right type with other words passes, and is noted: messages are written in this library's own way.
"""
import json
import os
import re
from pathlib import Path

import pytest

outcomes, other_words, running, timms_raises = {}, set(), [], pytest.raises


class Raises:
    "`pytest.raises` that notes other words in place of failing."

    def __init__(self, expected, match): self.inside, self.match = timms_raises(expected), match

    def __enter__(self): return self.inside.__enter__()

    def __exit__(self, kind, error, trace):
        is_expected = self.inside.__exit__(kind, error, trace)
        if is_expected and self.match and not re.search(self.match, str(error)): other_words.add(running[-1])
        return is_expected


pytest.raises = lambda expected, match=None: Raises(expected, match)


def pytest_runtest_logstart(nodeid, location): running.append(nodeid)


def pytest_runtest_logreport(report):
    if report.failed or report.when == 'call' or report.skipped:
        reason = report.longrepr.reprcrash.message if report.failed else ''
        outcomes.setdefault(report.nodeid, (report.outcome, reason[:200]))


def pytest_sessionfinish(session):
    Path(os.environ['OUTCOMES']).write_text(json.dumps(dict(outcomes=outcomes, other_words=sorted(other_words))))
