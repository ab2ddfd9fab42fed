"""One loader in a process of its own, which does what `beside_peers.py` asks over a pipe: `child.py FD MODULE SETTINGS`.

'epoch' runs one and answers {images, seconds, first}; the first one makes the loader and `first` are its seconds to the first batch.
'check PATH' stores the first batch's images and answers their shape, type, mean and standard deviation.
'begin COUNT PATH' trains for some batches of an epoch and stores the loader's state; 'resume PATH' goes on there with a new loader.
"""
import hashlib
import importlib
import json
import pickle
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path


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

    def begin(self, count: int, path: str) -> dict:
        "Digests of the first batches; after each, the state is stored, if there is one. The epoch stays as it is."
        self.seed()
        self.batches, digests = iter(self.made()), []
        while len(digests) < count:
            digests.append(digest(next(self.batches)))
            if hasattr(self.loader, 'state_dict'): Path(path).write_bytes(pickle.dumps(self.loader.state_dict()))
        return dict(digests=digests)

    def resume(self, path: str) -> dict:
        "Seconds from nothing but imports to the first batch after a state, and its digest."
        self.seed()
        start = time.perf_counter()
        loader = self.made()
        if Path(path).exists(): loader.load_state_dict(pickle.loads(Path(path).read_bytes()))
        batch = next(iter(loader))
        return dict(first=time.perf_counter() - start, digest=digest(batch))

    def seed(self):
        import torch
        torch.manual_seed(0)


def digest(batch: tuple) -> list[str]:
    "What tells the samples of a batch, and its pixels."
    return [hashlib.blake2b(part.contiguous().numpy().tobytes(), digest_size=8).hexdigest() for part in batch[::-1]]


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
