"""One loader in a process of its own, which does what `beside_peers.py` asks over a pipe: `child.py FD MODULE SETTINGS`.

'epoch' runs one and answers {images, seconds, first}; the first one makes the loader and `first` are its seconds to the first batch.
'check PATH' stores the first batch's images and answers their shape, type, mean and standard deviation.
"""
import importlib
import json
import sys
import time
from multiprocessing.connection import Connection


class Child:
    "The loader, made when the first epoch is asked for."

    def __init__(self, peer, settings): self.peer, self.settings, self.loader = peer, settings, None

    def made(self):
        if self.loader is None: self.loader = self.peer.make(**self.settings)
        if isinstance(self.loader, str): raise NotImplementedError(self.loader)
        return self.loader

    def epoch(self) -> dict:
        start, seen, first = time.perf_counter(), 0, None
        for images, _ in self.made():
            if first is None: first = time.perf_counter() - start
            seen += len(images)
        return dict(images=seen, seconds=time.perf_counter() - start, first=first)

    def check(self, path: str) -> dict:
        import numpy as np
        batches = iter(self.made())
        images = next(batches)[0]
        found = dict(shape=list(images.shape), dtype=str(images.dtype), mean=images.mean().item(), std=images.std().item())
        np.save(path, images.numpy())
        for _ in batches: pass
        return found


def main():
    pipe, name, settings = Connection(int(sys.argv[1])), sys.argv[2], json.loads(sys.argv[3])
    answer = lambda **values: pipe.send_bytes(json.dumps(values).encode())   # noqa: E731
    try:
        start = time.perf_counter()
        peer = importlib.import_module(name)   # with all that it imports, torch above all
        import_s = time.perf_counter() - start
        note = getattr(peer, 'prepare', lambda **_: None)(**settings)
        answer(name=peer.NAME, version=peer.VERSION, note=note, import_s=import_s)
        child = Child(peer, settings)
        while True:
            what, *more = json.loads(pipe.recv_bytes())
            answer(**getattr(child, what)(*more))
    except EOFError: pass
    except Exception as error:
        answer(failed=f'{type(error).__name__}: {error}'.splitlines()[0][:300])
        raise


if __name__ == '__main__': main()
