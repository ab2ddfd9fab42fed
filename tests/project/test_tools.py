"README and what the tools know about notebooks."
import base64
import re

import pytest
from notebooks import default_exp, join_code_cells, page_name, site_url, split_cell
from readme import describe, render, write_readme
from save import find_pages
from synthetic import JPEG, ROOT, code, md, notebook, shown, stream, write_notebook

SETTINGS = '[DEFAULT]\ndoc_host = https://example.org\ndoc_baseurl = /docs\n'
TITLE = md('# timmdata\n\n> Files to **batches**.')


@pytest.fixture
def repo(tmp_path):
    "A repository with three notebooks and no README."
    (tmp_path/'settings.ini').write_text(SETTINGS)
    write_notebook(tmp_path/'nbs/46_loader.ipynb', notebook(code('#| default_exp loader')))
    write_notebook(tmp_path/'nbs/guides/dataloader.ipynb', notebook(md('# Data loader')))
    write_notebook(tmp_path/'nbs/index.ipynb', notebook(TITLE))
    return tmp_path


def test_readme_links_lead_somewhere_before_and_after_the_site_is_published(repo):
    cell = md('[a](46_loader.ipynb) [b](guides/dataloader.ipynb#a-word) [c](https://x.org) [d](#x) ![e](images/e.png) [f](../LICENSE)')
    text, _ = render(notebook(cell), repo)
    assert '[a](nbs/46_loader.ipynb) [b](nbs/guides/dataloader.ipynb#a-word)' in text and '[f](LICENSE)' in text
    (repo/'settings.ini').write_text(SETTINGS + '\nsite_is_published = True\n')
    text, _ = render(notebook(cell), repo)
    assert '[a](https://example.org/docs/loader.html)' in text
    assert '[b](https://example.org/docs/guides/dataloader.html#a-word)' in text
    assert '[c](https://x.org) [d](#x) ![e](nbs/images/e.png)' in text


def test_readme_leaves_code_blocks_alone(repo):
    block = '```python\nf[0](46_loader.ipynb)\n```'
    assert block in render(notebook(md(f'[a](46_loader.ipynb)\n\n{block}\n\nend')), repo)[0]


def test_readme_refuses_links_to_missing_notebooks(repo):
    with pytest.raises(SystemExit, match='77_nothing.ipynb'): render(notebook(md('[a](77_nothing.ipynb)')), repo)


def test_readme_shows_code_and_textual_outputs(repo):
    text, pictures = render(notebook(
        TITLE, code('#| hide\nsecret = 1'), code('#| echo: false\nprint(2)', stream('two\n')),
        code('x = 3\nx', stream('noise', 'stderr'), shown(text_plain='3')),
        code('t', shown(text_markdown='|a|'))), repo)
    assert 'secret' not in text and 'print(2)' not in text and 'noise' not in text and '#|' not in text
    assert '```text\ntwo\n```' in text and '```python\nx = 3\nx\n```\n\n```text\n3\n```' in text and '\n|a|\n' in text
    assert pictures == {}


def test_cells_without_an_output_between_them_are_one_block():
    cells = [code('import a'), code('a'), code('b', shown(text_plain='1')), code('c'), md('d'), code('e'), code('#| hide\nf'), code('g')]
    found = [cell['source'] for cell in join_code_cells(cells)]
    assert found == ['import a\n\na\n\nb', 'c', 'd', 'e', '#| hide\nf', 'g'] and cells[0]['source'] == 'import a'


def test_readme_writes_pictures_and_removes_old_ones(repo):
    picture = shown(image_jpeg=base64.b64encode(JPEG).decode(), text_plain='<Figure size 1x1>')
    write_notebook(repo/'nbs/index.ipynb', notebook(TITLE, code('show_batch(loader)', picture, picture)))
    write_readme(repo)
    text = (repo/'README.md').read_text(encoding='utf-8')
    assert '![Files to batches.](nbs/images/readme-1.jpg)\n\n![Files to batches.](nbs/images/readme-2.jpg)' in text
    assert '<Figure' not in text
    assert (repo/'nbs/images/readme-2.jpg').read_bytes() == JPEG
    write_notebook(repo/'nbs/index.ipynb', notebook(TITLE, code('show_batch(loader)', picture)))
    write_readme(repo)
    assert [p.name for p in (repo/'nbs/images').iterdir()] == ['readme-1.jpg']


def test_readme_without_index_fails(repo):
    (repo/'nbs/index.ipynb').unlink()
    with pytest.raises(SystemExit, match='index.ipynb'): write_readme(repo)


def test_describe():
    assert describe('First.\n\nA batch, as `show_batch`\nsees [it](x.ipynb):') == 'A batch, as show_batch sees it'


def test_readme_has_the_two_commands_that_ci_runs():
    text = (ROOT/'README.md').read_text(encoding='utf-8')
    assert [len(re.findall(rf'^pip install .*{word}$', text, re.MULTILINE)) for word in ('timmdata demo', 'pytest')] == [1, 1]


def test_readme_pictures_of_this_repository_exist():
    pictures = re.findall(r'!\[[^\]]*\]\(([^)]+)\)', (ROOT/'README.md').read_text(encoding='utf-8'))
    assert pictures and all((ROOT/p).is_file() for p in pictures)


def test_notebook_facts():
    assert split_cell('#| export\n#|hide\n\nx = 1\n#| late') == (['export', 'hide'], 'x = 1\n#| late')
    assert default_exp(notebook(md('# A'), code('#| default_exp loader'))) == 'loader'
    assert default_exp(notebook(md('#| default_exp loader'))) is None
    pages = {'46_loader.ipynb': 'loader.html', 'guides/01_a_b.ipynb': 'guides/a_b.html', 'index.ipynb': 'index.html'}
    assert {path: page_name(path) for path in pages} == pages
    assert site_url().startswith('https://') and not site_url().endswith('/')


def test_pages_are_found_by_any_of_their_names():
    names = 'nbs/readers/40_tar.ipynb', 'readers/tar', 'tar', '40_tar'
    assert {path.relative_to(ROOT).as_posix() for name in names for path in find_pages([name])} == {names[0]}
    with pytest.raises(SystemExit, match='no notebook named trr; name one as'): find_pages(['tar', 'trr'])
