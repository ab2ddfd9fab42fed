"No package grows unseen: its syntax nodes stand in a file, and what makes one larger says there what that buys."
import json

import pytest
import size
from size import count_nodes, grown, sizes


def test_no_package_has_grown():
    more = grown(sizes(), json.loads(size.ALLOWED.read_text(encoding='utf-8')))
    if more: pytest.fail(f'nodes more than tests/project/size.json allows: {more}. Delete as many, or run `python tools/size.py --write '
                         '--why "what they buy"` and commit the file.', pytrace=False)


def test_what_has_grown_needs_a_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(size, 'ALLOWED', tmp_path/'size.json')
    with pytest.raises(SystemExit): size.main(['--write'])
    assert '--why' in capsys.readouterr().err and not size.ALLOWED.exists()
    assert size.main(['--write', '--why', 'the first count']) == 0 == size.main([])
    known = json.loads(size.ALLOWED.read_text())
    known['core'] = {'nodes': known['core']['nodes'] - 7, 'why': 'a decoder'}
    size.ALLOWED.write_text(json.dumps(known))
    assert size.main([]) == 1 and '+7' in capsys.readouterr().out
    assert grown({'core': 5, 'new': 3, 'gone': 1}, {'core': {'nodes': 7}, 'gone': {'nodes': 1}}) == {'new': 3}


def test_nodes_are_counted_without_their_contexts():
    assert count_nodes('a = b + 1') == 7   # module, assignment, two names, sum, operator, constant
