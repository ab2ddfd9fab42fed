"Notebooks and checkouts made up by the tests."
import base64
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# one gray pixel
JPEG = base64.b64decode(
    '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////'
    '////////wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AVN//2Q==')


def code(source: str, *outputs: dict) -> dict:
    "A code cell."
    return dict(cell_type='code', execution_count=None, metadata={}, source=source, outputs=list(outputs))


def md(source: str) -> dict:
    "A markdown cell."
    return dict(cell_type='markdown', metadata={}, source=source)


def stream(text: str, name: str = 'stdout') -> dict:
    "What a cell has printed."
    return dict(output_type='stream', name=name, text=[text])


def shown(**data: str) -> dict:
    "A displayed result; `text_plain='1'` stands for the mime type text/plain."
    return dict(output_type='display_data', metadata={}, data={k.replace('_', '/'): v for k, v in data.items()})


def notebook(*cells: dict) -> dict:
    "A notebook of `cells`."
    cells = [{**cell, 'id': f'cell-{i}'} for i, cell in enumerate(cells)]
    kernel = dict(display_name='python3', language='python', name='python3')
    return dict(cells=cells, metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)


def write_notebook(path: Path, nb: dict):
    "Write `nb` in the form that nbdev_clean leaves."
    path.parent.mkdir(parents=True, exist_ok=True)
    nb = {**nb, 'cells': [{**c, 'source': c['source'].splitlines(True)} for c in nb['cells']]}
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + '\n', encoding='utf-8')


def git(folder: Path, *args: str) -> str:
    "Run git in `folder`, away from the user's own settings."
    config = ['-c', 'user.name=test', '-c', 'user.email=test@example.org', '-c', 'commit.gpgsign=false']
    return subprocess.run(['git', *config, *args], cwd=folder, check=True, capture_output=True, text=True).stdout


# Makes modules of the package importable in a program without all others: importing torch takes seconds.
BARE = f"""import sys, types
sys.modules['timmdata'] = types.ModuleType('timmdata')
sys.modules['timmdata'].__path__ = [{str(ROOT/'timmdata')!r}]"""
