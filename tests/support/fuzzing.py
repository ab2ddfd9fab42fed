"Shared by the fuzz tests: mutated bytes, the number of examples, and limits of time and memory."
import math
import os
import struct
from contextlib import contextmanager
from datetime import timedelta

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st

try:
    import resource
except ImportError:   # Windows
    resource = None

SOAK = float(os.environ.get('TIMMDATA_SOAK') or 0)   # seconds
SHARE = max(1., SOAK / 30) if SOAK or os.environ.get('TIMMDATA_FULL') else 0.1   # of the examples; 1: in CI, half a minute
MUCH = 4 << 30   # bytes of address space that one test may add: all files here are small
EDITS = ('flip', 'set', 'insert', 'delete', 'repeat', 'swap', 'cut', 'number')
NUMBERS = [struct.pack(form, value) for form in ('<H', '>H', '<I', '>I', '<Q', '>Q')
           for value in (0, 1, 127, 128, 255, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
           if value < 256**struct.calcsize(form)]


def fuzz(
    examples: int,   # in CI, where they are the same each time; a tenth of them in the ordinary run
):
    "Run a test for many examples: more of them, and other ones each time, where `TIMMDATA_SOAK` gives seconds."
    chosen = hypothesis.settings(
        max_examples=math.ceil(examples * SHARE), derandomize=not SOAK, deadline=timedelta(seconds=20),
        database=None, suppress_health_check=list(HealthCheck), print_blob=True)
    return lambda test: pytest.mark.examples(chosen(test))


def _edit(data: bytearray, kind: str, at: int, size: int, value: int):
    "Change the bytes in place."
    at %= len(data) or 1
    piece = bytes(data[at:at + size])
    if kind == 'flip' and data: data[at] ^= 1 << value % 8
    elif kind == 'set' and data: data[at] = value % 256
    elif kind == 'insert': data[at:at] = bytes([value % 256]) * size
    elif kind == 'delete': del data[at:at + size]
    elif kind == 'repeat': data[at:at] = piece * (1 + value % 3)
    elif kind == 'swap': data[at:at + size], data[value % (len(data) or 1):][:0] = piece[::-1], b''
    elif kind == 'cut': del data[at:]
    elif kind == 'number':
        number = NUMBERS[value % len(NUMBERS)]
        data[at:at + len(number)] = number


@st.composite
def mutated(draw, sources: st.SearchStrategy[bytes], most: int = 4) -> bytes:
    "Bytes of a source with at most a given number of edits."
    data = bytearray(draw(sources))
    edit = st.tuples(st.sampled_from(EDITS), st.integers(0, 2**32), st.integers(1, 64), st.integers(0, 2**16))
    for kind, at, size, value in draw(st.lists(edit, max_size=most)): _edit(data, kind, at, size, value)
    return bytes(data)


def mutate_json(value):
    "A strategy of values that differ from a JSON value in one or two places."
    return st.lists(st.tuples(st.integers(0, 2**16), ODD_VALUES), max_size=2).map(lambda edits: _replaced(value, edits))


ODD_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([2**31, 2**63, -2**63, 10**30, 10**400]), st.floats(),
    st.text(max_size=5), st.just([]), st.just({}), st.lists(st.integers(-2, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))


def _places(value, here=()):
    "The paths to all parts of a JSON value."
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items: yield from _places(part, (*here, key))


def _replaced(value, edits):
    for number, new in edits:
        places = list(_places(value))
        value = _put(value, places[number % len(places)], new)
    return value


def _put(value, way, new):
    if not way: return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[way[0]] = _put(value[way[0]], way[1:], new)
    return changed


@contextmanager
def little_memory():
    "Let a request for more than `MUCH` memory fail, so that a test sees it; where there is no such limit, do nothing."
    if resource is None or not os.path.exists('/proc/self/statm'):
        yield
        return
    with open('/proc/self/statm') as file: used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MUCH, hard))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
