"""Memory of malloc: large pieces go back to the kernel when they are freed, threads share what is free (mallopt(3)),
and what is free before a fork is not used after it."""

import ctypes
from array import array
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8       # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
LARGE = 4 << 20                                 # octets
ARENAS = 2                                      # pieces of memory that malloc takes from: the first thread's, and one

_SIZES = (*range(64 << 10, 1 << 10, -512), *range(1 << 10, 8, -16))     # octets of gaps, the largest first
_HEADER = 64                                    # octets before the last piece of a heap, and its own
_UNTOLD = 1 << 20                               # octets that each thread keeps at hand, at most: they seem to be in use
_SMALL = range(16, 513, 16)                     # Python's classes of small objects, in octets: Objects/obmalloc.c
_POOL_BITS = 14                                 # a pool has 16 KiB,
_POOL = (1 << _POOL_BITS) - 48                  # and 48 octets of them are its header
_MOST = 8192                                    # pieces of one size that are taken at most


def give_back() -> None:
    """Have a piece of more than `LARGE` octets be a mapping of its own, and keep no more than that unused; and have all
    threads but the first take from one arena.

    By itself glibc raises both limits to the largest piece that was freed. One login, whose password takes 16 MiB to
    compare (RFC 7914 section 2), was enough for each thread that compares passwords to keep up to 32 MiB for ever. And
    it has an arena for each thread, up to eight for each processor, of which each keeps what was freed in it.
    Another C library has no such limits, or no such function: nothing is done then.
    """
    if set_limit := getattr(ctypes.CDLL(None), "mallopt", None):
        for limit in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            set_limit(limit, LARGE)
        set_limit(_ARENA_MAX, ARENAS)


class _Heap(ctypes.Structure):
    """What mallinfo2(3) tells."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def fill_gaps() -> None:
    """Take all free memory that lies between what is in use, and keep it. Call it before a fork.

    A copy of this process would put what it makes into such gaps, which are on some thousand pages that it would
    otherwise have in common with all others. What is made afterwards comes to lie on pages of its own, side by side.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):              # glibc 2.33
        _fill_heap(libc)
    _fill_pools(ctypes.PyDLL(None))


def _fill_heap(libc: Any) -> None:
    libc.mallinfo2.restype = _Heap
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    heap = libc.mallinfo2()
    left = heap.fordblks - heap.keepcost + _UNTOLD      # another malloc (LD_PRELOAD) has an end, too, and no such gaps
    for size in _SIZES:
        for _ in range(_MOST):
            piece = libc.malloc(size) or 0
            if piece + size + _HEADER >= libc.sbrk(0) - libc.mallinfo2().keepcost:      # from the end: no gap is left
                libc.free(piece)
                break
            if (left := left - size) < 0:
                return


def _fill_pools(python: Any) -> None:
    python.PyObject_Malloc.restype, python.PyObject_Malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    python.PyObject_Free.restype, python.PyObject_Free.argtypes = None, [ctypes.c_void_p]
    pieces = array("Q", bytes(_MOST * 8))
    for size in _SMALL:
        whole, pool, run, count = _POOL // size * 9 // 10, 0, 0, 0
        while run < whole and count < _MOST:
            pieces[count] = piece = python.PyObject_Malloc(size) or 0
            run = run + 1 if piece >> _POOL_BITS == pool else 1
            pool, count = piece >> _POOL_BITS, count + 1
        if run < whole:                         # another allocator (PYTHONMALLOC): nothing is known of its gaps
            run = count
        for at in range(count - run, count):    # a pool of which nothing was in use
            python.PyObject_Free(pieces[at])
