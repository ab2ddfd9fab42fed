"Write README.md and its pictures from nbs/index.ipynb; `tools/save.py` calls this."
import base64
import posixpath
import re
from pathlib import Path

from notebooks import find_notebooks, join_code_cells, page_name, read_notebook, read_settings, root, site_url, split_cell

WARNING = '<!-- Generated from nbs/index.ipynb by tools/save.py: edit the notebook, not this file. -->'
LINK = re.compile(r'(!?)\[([^\]]*)\]\(([^)\s]+)\)')
FENCED = re.compile(r'^```.*?^```', re.MULTILINE | re.DOTALL)
IMAGE_SUFFIX = {'image/jpeg': 'jpg', 'image/png': 'png'}


def rewrite_links(text: str, base: Path) -> str:
    "Point links to notebooks at the site, after it is published, and all others at files in the repository."
    is_published = read_settings(base).get('site_is_published') == 'True'   # until then, the address does not exist
    pages = {p.relative_to(base/'nbs').as_posix() for p in find_notebooks(base)}

    def rewrite(match):
        bang, label, target = match.groups()
        if re.match(r'[a-z]+:|#|/', target): return match[0]
        path, _, anchor = target.partition('#')
        in_repository = posixpath.normpath(f'nbs/{path}') + (f'#{anchor}' if anchor else '')
        if not path.endswith('.ipynb'): return f'{bang}[{label}]({in_repository})'
        if path not in pages: raise SystemExit(f'nbs/index.ipynb links to {path}, which does not exist in nbs/')
        if not is_published: return f'[{label}]({in_repository})'
        return f'[{label}]({site_url(base)}/{page_name(path)}{"#" + anchor if anchor else ""})'

    parts, end = [], 0   # code blocks stay as they are
    for block in FENCED.finditer(text):
        parts += [LINK.sub(rewrite, text[end:block.start()]), block[0]]
        end = block.end()
    return ''.join(parts) + LINK.sub(rewrite, text[end:])


def describe(markdown: str) -> str:
    "Return the last paragraph of a markdown cell as plain text, which a screen reader reads for the picture below it."
    paragraph = markdown.strip().split('\n\n')[-1]
    plain = LINK.sub(r'\2', re.sub(r'^[>#\s]+', '', paragraph))
    return ' '.join(re.sub(r'[`*\[\]]', '', plain).split()).rstrip(':')


def render_output(output: dict, name: str, alt: str) -> tuple[str, bytes | None]:
    "Return an output of a code cell as markdown, and the bytes of the picture file `name` (without suffix) if it is a picture."
    if output['output_type'] == 'stream':
        text = ''.join(output['text']).rstrip('\n')
        return (f'```text\n{text}\n```', None) if output['name'] == 'stdout' and text else ('', None)
    if output['output_type'] == 'error': return '```text\n' + '\n'.join(output['traceback']) + '\n```', None
    data = output.get('data', {})
    for mime, suffix in IMAGE_SUFFIX.items():
        if mime in data: return f'![{alt}]({name}.{suffix})', base64.b64decode(''.join(data[mime]))
    if 'text/markdown' in data: return ''.join(data['text/markdown']), None
    if 'text/plain' in data: return '```text\n' + ''.join(data['text/plain']).rstrip('\n') + '\n```', None
    return '', None


def render(nb: dict, base: Path = root) -> tuple[str, dict[str, bytes]]:
    "Return the README of the index notebook `nb`, and its pictures: path in the repository -> bytes."
    blocks, pictures, alt = [WARNING], {}, ''
    for cell in join_code_cells(nb['cells']):
        if cell['cell_type'] == 'markdown':
            blocks.append(rewrite_links(cell['source'].strip('\n'), base))
            alt = describe(cell['source'])
        elif cell['cell_type'] == 'code':
            directives, code = split_cell(cell['source'])
            if 'hide' in directives: continue
            if code.strip() and 'echo: false' not in directives:
                blocks.append(f'```python\n{code.strip()}\n```')
            for output in cell['outputs']:
                name = f'nbs/images/readme-{len(pictures) + 1}'
                block, picture = render_output(output, name, alt)
                if picture: pictures[re.search(r'\((nbs/images/.*)\)$', block)[1]] = picture
                blocks.append(block)
    return '\n\n'.join(filter(None, blocks)) + '\n', pictures


def write_readme(base: Path = root):
    "Write README.md and its pictures under `base`; pictures that the notebook no longer has are removed."
    index = base/'nbs/index.ipynb'
    if not index.exists(): raise SystemExit('there is no nbs/index.ipynb to write README.md from')
    text, pictures = render(read_notebook(index), base)
    for old in (base/'nbs/images').glob('readme-*'): old.unlink()
    for name, picture in pictures.items():
        (base/name).parent.mkdir(parents=True, exist_ok=True)
        (base/name).write_bytes(picture)
    (base/'README.md').write_text(text, encoding='utf-8', newline='\n')

