"What the tests of readers share: some photographs as bytes, and the targets that a loader gives."
from pathlib import Path

import pytest
from wds_shards import write_shards


@pytest.fixture(scope='package')
def photos(samples) -> list[tuple[bytes, int, str]]:
    "Bytes, class index and class name of forty photographs, four a class."
    paths = [path for folder in sorted((samples/'val').iterdir()) for path in sorted(folder.iterdir())[:4]]
    names = sorted({path.parent.name for path in paths})
    return [(path.read_bytes(), names.index(path.parent.name), path.parent.name) for path in paths]


@pytest.fixture(scope='package')
def shards(photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('shards')
    write_shards(root, photos)
    return root
