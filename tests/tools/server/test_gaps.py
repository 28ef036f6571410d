"""What a copy of a process makes does not lie among what it has in common with the others (fork(2))."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tools.server.process import freedmemory
from tools.server.process.freedmemory import _fill_heap

pytestmark = pytest.mark.long

PROGRAM = """
import os, re, sys
from tools.server.process.freedmemory import fill_gaps

def own():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"Private_Dirty: +([0-9]+) kB", file.read())[1])

size = int(sys.argv[2])
held = [b"x" * size for _ in range(20_000_000 // size)]
del held[::max(2, 4096 // size)]
if sys.argv[1] == "fill":
    fill_gaps()
if not (child := os.fork()):
    before = own()
    made = [b"x" * size for _ in range(4_000)]
    print((own() - before) * 1024 - 4_000 * (size + 48), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""

HEAP = """
import ctypes
from tools.server.process import freedmemory

def gaps():
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = freedmemory._Heap
    heap = libc.mallinfo2()
    return heap.fordblks - heap.keepcost

held = [bytes(size) for size in range(600, 8000)]
del held[::2]
print(gaps())
freedmemory.fill_gaps()
print(gaps())
"""


def more(way: str, size: int) -> int:
    """Octets that become a copy's own when it makes 4,000 pieces of a size, beside those."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, way, str(size)], capture_output=True, check=True).stdout)


@pytest.mark.parametrize("size", [100, 400, 1000])
def test_a_copy_uses_no_gaps(size: int) -> None:
    assert more("fill", size) < 2 << 20


@pytest.mark.parametrize("size", [100, 400])
def test_otherwise_it_would(size: int) -> None:
    """Where this fails, memory is given out otherwise, and filling may be needless."""
    assert more("as it is", size) > 5 << 20


def test_nothing_is_free_below_the_end_of_the_heap() -> None:
    """By mallinfo2(3): free octets, but for those at the end."""
    done = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 8 << 20 and after < 64 << 10


def test_of_another_malloc_little_is_taken() -> None:
    """One that takes from the same heap (sbrk(2)), and of which glibc's mallinfo2(3) knows nothing: no piece is at the
    end."""
    taken = [0]

    def malloc(size: int) -> int:
        taken[0] += size
        return taken[0]

    _fill_heap(SimpleNamespace(malloc=malloc, free=lambda piece: None, sbrk=lambda octets: 1 << 40, mallinfo2=_none))
    assert taken[0] < 2 << 20


def _none() -> freedmemory._Heap:
    return freedmemory._Heap()
