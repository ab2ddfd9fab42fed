"A notebook as text, for `git diff`: sources without outputs: python tools/textconv.py NOTEBOOK"
import json
import sys
from pathlib import Path


def textconv(text: str) -> str:
    "The sources of a notebook, each cell under a line `%%code`, `%%md` or `%%raw`; anything else unchanged."
    try: cells = json.loads(text)['cells']
    except (ValueError, KeyError, TypeError): return text   # a notebook with merge conflicts is still shown
    kinds = {'markdown': 'md'}
    return ''.join(f'%%{kinds.get(c["cell_type"], c["cell_type"])}\n{"".join(c["source"])}\n\n' for c in cells)


if __name__ == '__main__':
    if len(sys.argv) != 2: raise SystemExit(__doc__)
    sys.stdout.reconfigure(encoding='utf-8')
    sys.stdout.write(textconv(Path(sys.argv[1]).read_text(encoding='utf-8')))
