"WebDataset shards, made by its own library; and timm's reader of them."
import json
from pathlib import Path

import pytest

NUM, SHARDS = 40, 4


def write_shards(root: Path, photos):
    "Write shards of photographs, and `_info.json` with two splits."
    wds = pytest.importorskip('webdataset')
    names = [f'imgs-val-{k:02}.tar' for k in range(SHARDS)]
    for k, name in enumerate(names):
        with wds.TarWriter(str(root/name)) as writer:
            for n in range(k, NUM, SHARDS):
                data, target, word = photos[n]
                writer.write({'__key__': f'{n:04}', 'jpg': data, 'cls': target,
                              'json': {'label': target, 'word': word, 'tags': [target, 1], 'x': n % 2, 'y': 1,
                                       'some': target if n % 2 else -1}})
    split = dict(name='val', filenames=names, shard_lengths=[NUM // SHARDS] * SHARDS, num_samples=NUM)
    (root/'_info.json').write_text(json.dumps({'splits': {'val': split, 'some': {**split, 'alt_label': 'some', 'name': 'some'}}}))


def timm_wds(root, split, **settings):
    module = pytest.importorskip('timm.data.readers.reader_wds')
    try: return module.ReaderWds(str(root), split=split, **settings)
    except Exception as error: pytest.skip(f'timm cannot read shards with this webdataset: {error}')
