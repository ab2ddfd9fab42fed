"No package grows: the ceilings of their syntax nodes stand in a file and only go down."
import json
import math

import pytest
import size
from size import above, count_nodes, lowered, sizes


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


def test_a_new_package_is_held_by_the_sum():
    ceilings = {'core': 700, 'gone': 100, 'sum': 800}
    assert above({'core': 650, 'new': 150, 'sum': 800}, ceilings) == {}
    assert above({'core': 650, 'new': 151, 'sum': 801}, ceilings) == {'sum': 1}
    assert lowered({'core': 650, 'new': 50, 'sum': 600}, ceilings) == {'core': 700, 'new': 100, 'sum': 600}


def test_nodes_are_counted_without_their_contexts():
    assert count_nodes('a = b + 1') == 7   # module, assignment, two names, sum, operator, constant
