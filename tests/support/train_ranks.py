"""One of torchrun's ranks: trains with each of some settings, one process group for all, because starting one takes seconds.

    torchrun --standalone --nproc_per_node 2 tests/train_ranks.py DIR OUT '["--mixup 0.8", "--aa 3a"]'

writes what train_script.main returned, a list in OUT/RANK.json: two ranks that print to one pipe may write into one line.
"""
import json
import sys
from pathlib import Path

import train_script
from torch import distributed

root, out, settings = sys.argv[1:]
distributed.init_process_group('gloo')
runs = [train_script.main([root, *words.split()]) for words in json.loads(settings)]
(Path(out)/f'{distributed.get_rank()}.json').write_text(json.dumps(runs))
distributed.destroy_process_group()
