"""Memory of a worker comes to lie in large pages where much of it is the worker's own: madvise(2), MADV_COLLAPSE."""

import json
import struct
import subprocess
import sys

import pytest

from tools.server.process.largepages import LARGE, OWN, own_pages, places

# proc(5): the heap, a file, memory that others have too, what cannot be written, and two pieces that are too small.
MAPS = b"""\
00400000-00a00000 rw-p 00000000 00:00 0                          [heap]
10000000-10400000 rw-p 00000000 fd:01 2295485                    /usr/lib/libdb.so
20000000-20400000 rw-s 00000000 00:01 2048                       /dev/zero (deleted)
30000000-30400000 r--p 00000000 00:00 0
40100000-402ff000 rw-p 00000000 00:00 0
50001000-50401000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                  [stack]
"""
PRESENT, EXCLUSIVE, SWAPPED = 1 << 63, 1 << 56, 1 << 62         # Documentation/admin-guide/mm/pagemap.rst

PROGRAM = """
import ctypes, json, mmap, os, re
from tools.server.process import largepages
from tools.server.process.largepages import LARGE, LargePages

def huge(at):
    with open("/proc/self/smaps") as file:
        text = file.read()
    spans = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*(?:\\n[A-Z].*)*?\\nAnonHugePages: +(\\d+) kB", text, re.M)
    return sum(int(size) for first, end, size in spans if int(first, 16) <= at < int(end, 16))

def piece():
    area = mmap.mmap(-1, 4 * LARGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return area, start, -(-start // LARGE) * LARGE

def write(area, many):
    for page in range(0, len(area), 4096):
        if page // 4096 % 100 < many:
            area[page] = 1

def chosen(pages, at):
    return at in pages.task().items(None)

pages, (area, start, at) = LargePages(), piece()
write(area, 100)
probe, _, probed = piece()
write(probe, 100)
works = ctypes.CDLL(None).madvise(ctypes.c_void_p(probed), ctypes.c_size_t(LARGE), 25) == 0 and largepages.are_wanted()
read, told = os.pipe()
if not os.fork():
    found = {"shared": chosen(pages, at)}
    write(area, 30)
    found["a third written"] = chosen(pages, at)
    write(area, 60)
    found["most written"] = chosen(pages, at)
    task = pages.task()
    found["made"] = int(found["most written"] and any(task.work(None, at) for _ in range(100)))    # EAGAIN: madvise(2)
    found["huge"] = huge(at)
    found["again"] = chosen(pages, at)
    found["kept"] = all(area[page] == (page % 4096 == 0) for page in range(0, len(area), 2048))
    os.write(told, json.dumps(found | {"works": works}).encode())
    os._exit(0)
os.close(told)
with os.fdopen(read, "rb") as file:
    print(file.read().decode())
os.wait()
"""


def test_the_private_memory_that_no_file_holds_is_looked_at() -> None:
    assert places(MAPS) == [0x400000, 0x600000, 0x800000, 0x50200000]


def test_what_others_have_too_is_not_counted() -> None:
    entries = [PRESENT | EXCLUSIVE | 77, PRESENT | 78, 0, SWAPPED | 5, PRESENT | EXCLUSIVE, EXCLUSIVE]
    assert own_pages(struct.pack("6Q", *entries)) == 2


def test_a_large_page_is_two_mebibytes_of_which_two_fifths_are_ones_own() -> None:
    assert (LARGE, OWN) == (2 * 1024 * 1024, 204)


@pytest.mark.long
def test_what_a_copied_process_has_written_to_becomes_a_large_page() -> None:
    """Where the kernel makes none, or shall make none, nothing is tried; either way the memory is what it was."""
    found = json.loads(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout)
    works = found.pop("works")
    assert found.pop("kept")
    if works:
        assert found.pop("huge") >= 2048
        assert found == {"shared": False, "a third written": False, "most written": True, "made": 1, "again": False}
    else:
        assert found.pop("huge") == 0
        assert not found["made"]
