"The store of a buffer: with damage, full disks or removed files, batches equal those of an undisturbed run."
import os
import resource
import shutil
import warnings
from functools import partial
from itertools import islice

import numpy as np
import pytest
from buffer_parts import batch_file, buffered, flip, forever, undisturbed, values
from grids import full, quick
from loader_parts import children, nothing_is_left, program, wait_until

from timmdata.buffer import BatchBufferError

pytestmark = pytest.mark.timeout(120)
clean = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.mark.full
def test_flipped_bits_are_made_again(tmp_path):
    "In header, names, pixels and targets, while the buffer runs and while it does not; also in a truncated file."
    expected, rng, directory = undisturbed(81), np.random.default_rng(0), tmp_path/'buffer'
    buffer = buffered(tmp_path, low_watermark=8)
    batches = forever(buffer)
    seen = list(islice(batches, 20))
    with pytest.warns(RuntimeWarning, match='damaged and will be recreated'):
        for k in range(10):
            wait_until(lambda: buffer.status()['waiting'] >= 7, 'it is not filled')
            used = buffer.status()['used']   # it was delivered, and the next one is checked already
            damaged = batch_file(directory, used + 2 + k % 2)
            size = damaged.stat().st_size
            if k < 9: flip(damaged, [3, 9, 40, size - 1, *rng.integers(24, size, 5).tolist()][k])
            else: os.truncate(damaged, size // 2)
            seen += islice(batches, 4)
    rebuilt = buffer.status()['rebuilt']
    wait_until(lambda: buffer.status()['waiting'] >= 7, 'it is not filled')
    buffer.close()
    used = buffer.status()['used']
    flip(batch_file(directory, used + 1), 77)
    batch_file(directory, used + 2).unlink()   # as if it had never been there
    batch_file(directory, used + 3).rename(batch_file(directory, used + 2))   # the wrong one
    again = buffered(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        seen += values(again, 22)[1:]   # the one that was not acknowledged comes again
    again.close()
    assert seen == expected and rebuilt == 10


@full
@pytest.mark.parametrize('change', ['os.truncate(path, 0)', 'path.write_bytes(bytes(path.stat().st_size))'], ids=['cut', 'overwritten'])
def test_a_file_that_is_changed_in_place_changes_no_batch(change, tmp_path):
    "In a separate program, because reading a mapped file beyond its new end would be a bus error."
    run = program(f"""import os, warnings
from pathlib import Path
from buffer_parts import make_loader, mark
warnings.simplefilter('ignore')   # damaged, and made again
buffer, marks = BatchBuffer(make_loader(), batches=8, directory={str(tmp_path/'buffer')!r}), []
for host in buffer.host_batches():
    if not marks: wait_until(lambda: len(buffer.store.numbers()) > 3, 'nothing is made ahead')
    for path in Path({str(tmp_path/'buffer')!r}).glob('*.batch'):   # the one in use, and those that wait
        try: {change}
        except FileNotFoundError: pass   # replaced at this moment
    marks.append(mark(host))
    buffer.acknowledge(0, host.position)
print(*marks)
assert buffer.status()['rebuilt']
buffer.close()
""")
    code, out, errors = run.end()
    assert (code, errors) == (0, '') and out.split() == undisturbed(13)


@quick(1, 'what', ['identity', 'all', 'directory'])
def test_files_that_go_are_an_error(tmp_path, what):
    buffer = buffered(tmp_path, low_watermark=8)
    values(buffer, 3)
    wait_until(lambda: buffer.status()['waiting'] >= 8, 'it is not filled')   # then nobody writes
    if what == 'identity': (tmp_path/'buffer/identity').unlink()
    elif what == 'all':
        for path in (tmp_path/'buffer').iterdir(): path.unlink()
    else: shutil.rmtree(tmp_path/'buffer')
    with pytest.raises(BatchBufferError, match='was removed'): values(buffer, 30)
    buffer.close()


@full
def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path):
    "A short write: for a while, files are limited to 50 kB, and a batch has 77 kB."
    expected, buffer = undisturbed(30), buffered(tmp_path, low_watermark=8)
    batches = forever(buffer)
    seen = list(islice(batches, 5))
    limit, = [partial(resource.prlimit, child.pid, resource.RLIMIT_FSIZE) for child in children()]   # of the producer
    limits = limit()
    limit((50_000, limits[1]))
    try:
        with pytest.raises(BatchBufferError, match=r'cannot write \d+\.batch.* to .*: File too large'):
            for batch in batches: seen.append(batch)
    finally: limit(limits)
    assert 5 <= len(seen) < 20 and seen == expected[:len(seen)]
    wait_until(lambda: not list((tmp_path/'buffer').glob('*.new')), 'drafts are left')   # its producer tells how it is
    del batches
    buffer.close()
    again = buffered(tmp_path)
    assert [*seen, *values(again, 30 - len(seen))] == expected
    again.close()
