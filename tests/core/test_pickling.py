"An object that cannot be pickled is named by its place in the user's object, with advice; pickle itself is the oracle."
import collections
import multiprocessing
import pickle
import sqlite3
import sys
import threading
from functools import partial

import pytest
import torch
from torchvision.transforms import v2

from timmdata.core.pickling import explain_unpicklable, find_unpicklable


class Holder:
    "A user's dataset."
    def __init__(self, thing): self.index, self.thing = {'a.jpg': 0}, thing


class Refuses:
    def __reduce__(self): raise NotImplementedError('this is not copied')


class RefusesItsState:
    def __getstate__(self): raise RuntimeError('no state')


class Slotted:
    __slots__ = ('fine', 'bad')
    def __init__(self, bad): self.fine, self.bad = 1, bad


class WithoutItsFile:
    "Omits its file when pickled, as it should, but not its lambda."
    def __init__(self): self.file, self.function = sys.stdout, lambda: None
    def __getstate__(self): return {'function': self.function}


Pair = collections.namedtuple('Pair', 'first second')


def local():
    class Local: pass
    return Local()


def local_function():
    def inner(): pass
    return inner


def nested(depth: int = 100_000) -> list:
    found = []
    for _ in range(depth): found = [found]
    return found


def linked(depth: int = 20_000) -> Holder:
    first = last = Holder(None)
    for _ in range(depth):
        last.thing = Holder(None)
        last = last.thing
    return first


def circle():
    holder = Holder(None)
    holder.thing = [holder, sys]
    return holder


class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.function = lambda image: image


CASES = {   # value of an attribute of the dataset → name and kind of the part that cannot be pickled, and what to do
    'file': (lambda: open(__file__), 'dataset.thing: an open file ', 'at its first use in __getitem__'),
    'lock': (threading.Lock, 'dataset.thing: a lock ', '__getstate__'), 'again': (threading.RLock, 'dataset.thing: a lock ', ''),
    'database': (lambda: sqlite3.connect(':memory:'), 'dataset.thing: an object of type sqlite3.Connection ', '__getitem__'),
    'module': (lambda: sys, 'dataset.thing: a module ', ''), 'generator': (lambda: (n for n in 'a'), 'dataset.thing: a generator ', ''),
    'refuses': (Refuses, 'Refuses cannot be pickled .*NotImplementedError: this is not copied', ''),
    'state': (RefusesItsState, 'RefusesItsState cannot .*RuntimeError: no state', ''),
    'lambda': (lambda: lambda: None, 'dataset.thing: a lambda ', 'define it at the top level of a module'),
    'function': (local_function, 'dataset.thing: a function that is defined inside a function', 'top level'),
    'class': (local, 'dataset.thing: a class that is defined inside a function', 'top level'),
    'slots': (lambda: Slotted(sys), r'dataset\.thing\.bad: a module', ''),
    'tuple': (lambda: Pair(1, sys), r'dataset\.thing\.second: a', ''),
    'left out': (WithoutItsFile, r'dataset\.thing\.function: a lambda', ''),
    'in itself': (circle, r'dataset\.thing\.thing\[1\]: a module', ''),
    'dict': (lambda: {'a': [1, {'b': sys}]}, r"dataset\.thing\['a'\]\[1\]\['b'\]: a module", ''),
    'ordered': (lambda: collections.OrderedDict(a=sys), r"dataset\.thing\['a'\]: a module", ''),
    'partial': (lambda: partial(max, key=lambda n: n), r"dataset\.thing\.keywords\['key'\]: a lambda", ''),
    'method': (lambda: Holder(sys).__init__, r'dataset\.thing\.__self__\.thing: a module', ''),
    'compose': (lambda: v2.Compose([v2.ToImage(), v2.Lambda(lambda image: image)]), r'dataset\.thing\.transforms\[1\]\.lambd: a la', ''),
    'network': (Net, r'dataset\.thing\.function: a lambda', ''),
    'deep': (nested, 'dataset.thing: an object that is nested too deeply', 'flat'),
    'linked': (linked, r'dataset\.thing: an object that is nested too deeply', 'flat')}


@pytest.mark.parametrize('name', CASES)
def test_the_part_that_is_refused_is_named(name):
    make, message, advice = CASES[name]
    thing = make()
    with pytest.raises(Exception) as refused: pickle.dumps(Holder(thing))   # noqa: B017, PT011  (of many types)
    with pytest.raises(TypeError, match=f'{message}(?s:.*){advice}.*, or use worker_type=') as raised:
        raise explain_unpicklable({'transform': 1, 'dataset': Holder(thing)})
    assert type(refused.value).__name__ in str(raised.value)   # and pickle's own message


@pytest.mark.parametrize('thing', [3, Holder([1]), WithoutItsFile.__init__, torch.zeros(3), max, Holder])
def test_what_can_be_pickled_is_not_named(thing): assert find_unpicklable(Holder(thing)) is None


@pytest.mark.parametrize('make', ['Lock', 'Queue', 'Pipe', 'Event'])
def test_what_only_a_starting_process_may_get_is_not_named(make):
    "Locks and pipes of multiprocessing; a lock from the context 'fork' cannot be sent to a spawned process."
    context = multiprocessing.get_context('spawn')
    assert find_unpicklable(Holder(getattr(context, make)())) is None
    if make == 'Lock': assert find_unpicklable(Holder(multiprocessing.get_context('fork').Lock())).name == '.thing'
    with pytest.raises(RuntimeError, match='inheritance|spawning'): pickle.dumps(context.Lock())   # nothing is left behind
