"Not a loader but the limit of those that decode in full: simplejpeg in threads, into a buffer that is reused, and nothing more."
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import simplejpeg
from common import files, shuffled

NAME, VERSION = 'full decode only', version('simplejpeg')
local = threading.local()


def decode(paths: list[str]) -> int:
    "Decode these files, one after the other."
    for path in paths:
        with open(path, 'rb') as file: data = file.read()
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        if len(getattr(local, 'buffer', b'')) < height * width * 3: local.buffer = bytearray(height * width * 3)
        simplejpeg.decode_jpeg(data, 'RGB', buffer=local.buffer)
    return len(paths)


class Loader:
    "Batches of nothing, as long as they should be."

    def __init__(self, data_dir, work, workers, batch_size):
        self.paths, self.work, self.batch_size = [path for path, _ in files(data_dir)], work, batch_size
        self.pool, self.share = ThreadPoolExecutor(workers), -(-batch_size // (4 * workers))

    def __iter__(self):
        paths = shuffled(self.paths, self.work)
        seen = 0
        for count in self.pool.map(decode, [paths[k:k + self.share] for k in range(0, len(paths), self.share)]):
            seen += count
            while seen >= self.batch_size:
                yield range(self.batch_size), None
                seen -= self.batch_size


def make(data_dir, work, workers, batch_size, scratch, options): return Loader(data_dir, work, workers, batch_size)
