"""The shared memory of an environment: files, `__db.*`, that all its processes have mapped.

The last process that leaves in order keeps it. The next one joins it, as processes do that come while others are there,
and need not make it and fill it. That is so only as long as the system runs (a loss of power may leave anything of
these files), and only for a process that wants memory of the same form. In every other case recovery makes it again.
"""

import contextlib
import ctypes
import errno
import os
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import CONFIG, MEMORY
from mboxlist.engine.disk import replace_file

LOCK_LISTS = 8209           # lists of locked pages, a prime: all are made at once, of 136 octets each, and would be as
                            # many as there may be locks
CACHE_MUTEXES = 1021        # that guard the lists of pages in the cache, a prime. There would be one for each list,
                            # 8,191 of 136 octets for 64 MiB: so each page that is read would touch another page of the
                            # shared memory, which costs a fault when the kernel has just written that to the disk
BOOT = Path("/proc/sys/kernel/random/boot_id")      # another one after each start of the system: random(4)
KEEP_SIZE = 1               # FALLOC_FL_KEEP_SIZE of fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)


def configure(folder: Path) -> None:
    """Write what Berkeley DB reads when it opens the environment, for settings for which `berkeleydb` has no call.
    Raises OSError.

    The file is whole at any time: with a bad line in it, nobody could open the environment.
    """
    path, text = folder / CONFIG, f"set_lk_tablesize {LOCK_LISTS}\nset_mp_mtxcount {CACHE_MUTEXES}\n".encode()
    with contextlib.suppress(FileNotFoundError):
        if privatefiles.read(path) == text:
            return
    replace_file(path, text)


def begin(folder: Path, form: str) -> None:
    """Note that the first process is about to use the memory, of this form. Raises OSError."""
    privatefiles.write(folder / MEMORY, f"{form}\n")


def keep(folder: Path) -> None:
    """Note that all processes have left it, in order. Raises OSError."""
    form = privatefiles.read_text(folder / MEMORY).partition("\n")[0]
    privatefiles.write(folder / MEMORY, f"{form}\n{_stamps(folder)}\n")


def is_kept(folder: Path, form: str) -> bool:
    """Whether it is as the last process has left it, and has this form."""
    try:
        return privatefiles.read_text(folder / MEMORY) == f"{form}\n{_stamps(folder)}\n"
    except (OSError, UnicodeDecodeError):
        return False


def _stamps(folder: Path) -> str:
    found = [(path.name, path.stat()) for path in sorted(folder.glob("__db.*"))]
    return " ".join([privatefiles.read_named(BOOT).decode().strip(), *(
        f"{name}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}" for name, status in found)])


def reserve(folder: Path) -> None:
    """Give disk blocks to all of the shared memory: a write to a hole of a mapped file on a full disk is SIGBUS.

    Regions are made small and grow, up to the size that is mapped from the beginning. Raises OSError.
    """
    mapped = _mapped()
    for region in sorted(folder.resolve().glob("__db.*")):
        handle = privatefiles.open_handle(region, os.O_RDWR)
        try:
            size = os.fstat(handle).st_size
            os.posix_fallocate(handle, 0, size)
            if _libc.fallocate(handle, KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(
                    mapped.get(os.fsencode(region), size))) != 0 and ctypes.get_errno() != errno.EOPNOTSUPP:
                raise OSError(ctypes.get_errno(), f"no room for all that {region} may become")
        finally:
            os.close(handle)


def _mapped() -> dict[bytes, int]:
    """How many octets of regions this process has mapped, by their names: proc(5), /proc/pid/maps."""
    found: dict[bytes, int] = {}
    with privatefiles.open_named("/proc/self/maps") as lines:
        for line in lines:
            if b"/__db." not in line:
                continue            # one of some hundred libraries
            span, _, offset, *_, name = line.rstrip(b"\n").split(None, 5)
            first, _, end = span.partition(b"-")
            name = name.replace(b"\\012", b"\n")
            found[name] = max(found.get(name, 0), int(offset, 16) + int(end, 16) - int(first, 16))
    return found
