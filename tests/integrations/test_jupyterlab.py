"The widgets of `explore` in a real JupyterLab, in a real browser."
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import frameworks
import pytest
from browsers import headless_chromium

pytestmark = [pytest.mark.timeout(240), pytest.mark.full]
TOKEN = 'explore'
CELL = ["from timmdata import ImageDataset, explore, get_samples\n", "explorer = explore(ImageDataset(get_samples()), 64, 2, seed=1)\n",
        "explorer"]


def notebook() -> dict:
    "A notebook of one cell."
    cell = dict(cell_type='code', id='widgets', metadata={}, execution_count=None, outputs=[], source=CELL)
    kernel = dict(display_name='Python 3', language='python', name='python3')
    return dict(cells=[cell], metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)


@pytest.fixture(scope='module')
def lab(tmp_path_factory, cache, samples):
    "The address of a JupyterLab that has the notebook."
    frameworks.require('jupyterlab')
    frameworks.require('ipywidgets')
    root = tmp_path_factory.mktemp('lab')
    (root/'explore.ipynb').write_text(json.dumps(notebook()), encoding='utf-8')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    homes = {name: str(root/name.lower()) for name in ('JUPYTER_CONFIG_DIR', 'JUPYTER_DATA_DIR', 'JUPYTER_RUNTIME_DIR', 'IPYTHONDIR')}
    env = {**os.environ, **homes, 'TIMMDATA_CACHE': str(cache), 'PYTHONPATH': str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, '-m', 'jupyterlab', '--no-browser', '--allow-root', '--ip=127.0.0.1', f'--port={port}',
               f'--IdentityProvider.token={TOKEN}', f'--ServerApp.root_dir={root}', '--LabApp.news_url=None', '--ServerApp.port_retries=0']
    with open(root/'lab.log', 'w') as log:
        server = subprocess.Popen(command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            address = f'http://127.0.0.1:{port}'
            for _ in range(300):
                try: urllib.request.urlopen(f'{address}/api/status?token={TOKEN}', timeout=5).close(); break
                except (urllib.error.URLError, ConnectionError): time.sleep(0.2)
                assert server.poll() is None, (root/'lab.log').read_text()
            else: pytest.fail((root/'lab.log').read_text())
            yield address
        finally:
            server.terminate()   # it ends its kernels
            server.wait(30)


@pytest.fixture(scope='module')
def browser():
    frameworks.require('playwright')
    with headless_chromium() as chromium: yield chromium


def test_a_slider_changes_the_sheet_and_the_call(lab, browser):
    page = browser.new_page(viewport=dict(width=1280, height=1400))
    page.goto(f'{lab}/lab/tree/explore.ipynb?token={TOKEN}&reset')
    prompt = page.locator('.jp-Notebook .jp-InputPrompt').first
    for _ in range(20):   # until its kernel is there, JupyterLab forgets what it is asked to run
        for dialog in page.locator('.jp-Dialog').all():   # on a busy machine, it asks which kernel is meant
            print(dialog.inner_text())
            page.keyboard.press('Enter')
        page.locator('.jp-Notebook .jp-CodeCell .cm-content').first.click(timeout=60_000)
        page.keyboard.press('Shift+Enter')
        page.wait_for_timeout(1000)
        if prompt.inner_text().strip(' []:'): break   # a star or a number
    output = page.locator('.jp-OutputArea-output .widget-output, .jp-OutputArea-output .jupyter-widgets-output-area').first

    def shown(wanted: str):
        "The sheet and the call, once the call says it."
        output.get_by_text(wanted).wait_for(timeout=90_000)
        page.wait_for_timeout(300)   # the sheet came before the call
        return output.locator('img').get_attribute('src'), output.locator('pre').last.inner_text().strip()

    first = shown('create_loader(dataset, 64, 2, is_training=True, seed=1)')
    assert first[0].startswith('data:image/jpeg;base64,')
    slider = page.locator('.widget-slider', has_text='scale').locator('.noUi-handle').first
    slider.focus()
    page.keyboard.press('PageUp')   # a larger part at least
    sheet, call = shown('scale=(0.')
    assert sheet != first[0] and call.startswith('create_loader(dataset, 64, 2, is_training=True, seed=1, scale=(0.')

    policy = page.get_by_label('auto_augment')
    policy.fill('rand-m9-x3')   # a wrong word
    policy.press('Enter')
    output.get_by_text("ValueError: 'rand-m9-x3': unknown part 'x3'").wait_for(timeout=30_000)
    assert not output.locator('img').count()
    policy.fill('')
    policy.press('Enter')
    assert shown('scale=(0.') == (sheet, call)
    page.close()
