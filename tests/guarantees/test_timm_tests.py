"""timm's own tests of its data package, with the name replaced: what fails is known by name and by reason, and nothing else does.

They take long, so they are run with TIMMDATA_FULL=1, as in `.ci/run`.
"""
import pytest
from timm_clients import FAILING_TESTS, OTHER_WORDS, TIMM, expand, run_own_tests

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not TIMM.is_dir(), reason='no tests of timm beside the checkout'),
              pytest.mark.full]


@pytest.fixture(scope='module')
def found(tmp_path_factory) -> dict: return run_own_tests(tmp_path_factory.mktemp('timm'))


def test_failures_are_those_that_are_listed(found):
    pytest.importorskip('datasets')
    pytest.importorskip('webdataset')
    outcomes = {name.removeprefix('tests/'): outcome for name, (outcome, _) in found['outcomes'].items() if outcome != 'skipped'}
    failed = {name for name, outcome in outcomes.items() if outcome == 'failed'}
    listed = [name for names in FAILING_TESTS.values() for name in names]
    assert failed == expand(listed, list(outcomes)) and len(listed) == len(set(listed))
    for name in listed: assert expand([name], list(outcomes)), f'{name} is no test of timm'
    assert sum(outcome == 'passed' for outcome in outcomes.values()) > 150


def test_other_words_are_those_that_are_listed(found):
    pytest.importorskip('webdataset')
    names = [name.removeprefix('tests/') for name in found['other_words']]
    assert set(names) == expand(OTHER_WORDS, names)
    for name in OTHER_WORDS: assert expand([name], names), f'{name} has timm\'s words'
