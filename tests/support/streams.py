"Stand-ins for a side stream: one records its calls, the other one is delayed as far as a test needs."
import threading
import time
from contextlib import contextmanager

import torch


class RecordingStream:
    "Records every call, in order; one list for all threads."
    def __init__(self): self.log = []
    def note(self, *what): self.log.append(what)

    @contextmanager
    def work(self):
        self.note('enter', threading.current_thread().name)
        yield
        self.note('leave')

    def ready(self):
        self.note('ready')
        return f'event {sum(entry[0] == "ready" for entry in self.log) - 1}'

    def is_done(self, event): return True
    def wait(self, event): self.note('wait', event)
    def hand_over(self, tensors, event): self.note('hand over', [int(t[0]) for t in tensors], event)


class LateStream(RecordingStream):
    "Its events happen when the test says so: like a device that is far behind."
    def __init__(self):
        super().__init__()
        self.done, self.changed = 0, threading.Condition()   # the events that have happened: the first `done`

    def ready(self):
        super().ready()
        return sum(entry[0] == 'ready' for entry in self.log) - 1

    def finish(self, done):
        with self.changed:
            self.done = done
            self.changed.notify_all()

    def is_done(self, event): return event < self.done

    def wait(self, event):
        self.note('wait', event)
        with self.changed: assert self.changed.wait_for(lambda: event < self.done, 20)

    def hand_over(self, tensors, event): self.note('hand over', [], event)   # a device is told to wait; nobody waits


def numbers(num, stream=None, then=None):
    "Batches 0, 1, …; what `then` is raised after the last."
    for k in range(num):
        if stream: stream.note('loaded', k)
        yield torch.tensor([k]), torch.tensor([k])
    if then: raise then


def stage_of(stream):
    def stage(batch):
        stream.note('stage', int(batch[0][0]))
        return batch
    return stage


def threads() -> list: return [t for t in threading.enumerate() if t.name == 'timmdata-prefetch']


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
