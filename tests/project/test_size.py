"No package grows: the ceilings of their syntax nodes stand in a file and only go down."
import json
import math

import pytest
import size
from size import above, sizes


def test_no_package_is_above_its_ceiling():
    more = above(sizes(), json.loads(size.CEILINGS.read_text(encoding='utf-8')))
    if more: pytest.fail(f'nodes above the ceilings of tests/project/size.json: {more}. Delete as many.', pytrace=False)


def test_ceilings_are_one_number_each():
    ceilings = json.loads(size.CEILINGS.read_text(encoding='utf-8'))
    assert set(ceilings) == set(sizes()) and all(type(nodes) is int for nodes in ceilings.values())


def test_ceilings_only_go_down(tmp_path, monkeypatch, capsys):
    found = sizes()
    monkeypatch.setattr(size, 'CEILINGS', tmp_path/'size.json')
    size.CEILINGS.write_text(json.dumps({**found, 'core': found['core'] - 7}))
    assert size.main([]) == 1 and '+7' in capsys.readouterr().out
    with pytest.raises(SystemExit): size.main(['--write'])
    assert 'never raised' in capsys.readouterr().err
    assert json.loads(size.CEILINGS.read_text())['core'] == found['core'] - 7
    size.CEILINGS.write_text(json.dumps({**found, 'core': found['core'] + 1000, 'gone': 5}))
    assert size.main(['--write']) == 0
    assert json.loads(size.CEILINGS.read_text()) == {**found, 'core': math.ceil(found['core'] / 100) * 100}
