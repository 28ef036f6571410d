"""What the kernel says of a process tree: CPU, memory, bytes written; and of a folder."""

import os
import time
from pathlib import Path

from mboxlist import privatefiles

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512                            # the unit of st_blocks
_CPU_CLOCK = 2                          # clock_getcpuclockid(3): of a process, in nanoseconds
_KTHREADD = 2                           # parent of all kernel threads


def _read(path: str) -> bytes:
    """A small file of /proc, empty when its process is gone."""
    try:
        return privatefiles.read_named(path)
    except OSError:
        return b""


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third (state) on."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def start_time(pid: int) -> bytes:
    """When a process was started, in ticks; nothing when it has ended, even if nobody has asked how."""
    fields = _stat_fields(pid)
    return fields[19] if fields and fields[0] != b"Z" else b""


def command_line(pid: int) -> bytes:
    """What a process was started with; nothing when it has ended."""
    return _read(f"/proc/{pid}/cmdline")


def process_tree(root: int) -> list[int]:
    """`root` and all of its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    tree = [root] if os.path.exists(f"/proc/{root}") else []
    for pid in tree:                    # grows while it is walked
        tree += children.get(pid, [])
    return tree


def cpu_of(pid: int) -> float:
    """CPU seconds of one process, of its threads that have ended too, and of its children that it has reaped."""
    fields = _stat_fields(pid)
    if not fields:
        return 0.0
    reaped = sum(map(int, fields[13:15])) / _TICK
    try:
        return time.clock_gettime(_CPU_CLOCK | ~pid << 3) + reaped
    except OSError:                     # it has just ended
        return reaped


def cpu_seconds(root: int) -> float:
    """User and system CPU seconds of the tree, ended and reaped processes included."""
    return sum(cpu_of(pid) for pid in process_tree(root))


def written_bytes(root: int) -> int:
    """Bytes the tree has caused to be written to disk, ended processes included."""
    total = 0
    for pid in process_tree(root):
        for line in _read(f"/proc/{pid}/io").splitlines():
            if line.startswith(b"write_bytes:"):
                total += int(line.split()[1])
    return total


def resident_bytes(root: int) -> int:
    """Sum of the tree's resident sets; pages shared count once for each process."""
    total = 0
    for pid in process_tree(root):
        words = _read(f"/proc/{pid}/statm").split()
        total += int(words[1]) * _PAGE if words else 0
    return total


def proportional_bytes(root: int) -> int:
    """Sum of the tree's proportional set sizes (PSS): shared pages count once."""
    total = 0
    for pid in process_tree(root):
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def machine_cpu_seconds() -> float:
    """CPU seconds all processes of the machine, and the kernel, have used."""
    words = _read("/proc/stat").split(b"\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, _steal = map(int, words)
    return (user + nice + system + irq + softirq) / _TICK


def kernel_thread_seconds() -> dict[int, float]:
    """CPU seconds of each kernel thread (write-back, journal, block devices)."""
    found = {}
    for pid in process_tree(_KTHREADD):
        words = _read(f"/proc/{pid}/schedstat").split()
        found[pid] = int(words[0]) / 1e9 if words else 0.0
    return found


def growth(before: dict[int, float], after: dict[int, float]) -> float:
    """How much the values grew in all; new keys count from 0."""
    return sum(max(0.0, value - before.get(key, 0.0)) for key, value in after.items())


def machine_memory_bytes() -> int:
    """Memory in use on the whole machine, the kernel's included, page cache left out."""
    found = {}
    for line in _read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(b":")
        found[name] = int(rest.split()[0]) * 1024
    free = sum(found[name] for name in (b"MemFree", b"Buffers", b"Cached", b"SReclaimable"))
    return found[b"MemTotal"] - free + found[b"Shmem"]


def disk_usage(folder: Path) -> int:
    """Bytes of disk blocks the files below `folder` take, each inode once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    stack = [os.fspath(folder)]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if (info.st_dev, info.st_ino) not in seen:
                seen.add((info.st_dev, info.st_ino))
                total += info.st_blocks * _BLOCK
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total
