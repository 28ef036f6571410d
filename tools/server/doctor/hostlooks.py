"""The host: volumes, the clock, descriptors, memory."""

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from store.partition import processes
from store.settings import Settings
from store.values import readable
from tools.cli.options import Config
from tools.server.doctor.advice import Advice

FEW_INODES = 0.05               # of all those of a volume,
MUCH_MEMORY = 0.5               # and of all memory
_PASSING = {"tmpfs": "what is written there is gone after a restart of the host", "ramfs": "it is memory"}
_OF_OTHERS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs", "afs"}
_UNSAFE = {"nobarrier", "barrier=0"}
_UNSYNCHRONIZED = 0x40          # STA_UNSYNC of adjtimex(2)
_TIMEX = 208                    # octets of its struct, and where in it `status` is
_STATUS_AT = 40


def look(config: Config) -> Iterator[Advice]:
    """What is not as a store of mail wants it."""
    yield from volumes(config.root, Path("/proc/self/mountinfo"))
    yield from clock(_clock_status())
    pid = processes.server(config.root / "run" / "server.pid")
    if pid:
        yield from descriptors(config, Path("/proc", str(pid), "limits"))
    yield from memory(config, Path("/proc/meminfo"))


def volumes(root: Path, mounts: Path) -> Iterator[Advice]:
    """Those of the store and of its partitions."""
    partitions = root / "partitions"
    folders = [root, *sorted(partitions.iterdir())] if partitions.is_dir() else [root]
    seen = set[int]()
    for folder in folders:
        try:
            place, device = folder.resolve(strict=True), folder.stat().st_dev
            space = os.statvfs(place)
        except OSError as error:
            yield Advice(str(folder), True, f"it cannot be looked at: {error.strerror}", "mount its volume")
            continue
        if device in seen:
            continue
        seen.add(device)
        if space.f_files and space.f_favail < FEW_INODES * space.f_files:
            yield Advice(str(place), True, f"{space.f_favail} inodes are left of {space.f_files}: each message file "
                         "needs one", "make the file system with more, or move a partition to another volume")
        kind, options = _mount(place, mounts)
        if kind in _PASSING:
            yield Advice(str(place), True, f"it is on a {kind}: {_PASSING[kind]}", "move the store to a disk")
        if kind in _OF_OTHERS:
            yield Advice(str(place), True, f"it is on {kind}: Berkeley DB's databases need a file system of this host",
                         "use a local file system, or a block device over the network")
        if unsafe := _UNSAFE & options:
            yield Advice(str(place), True, f"it is mounted with {min(unsafe)}: after a loss of power what was "
                         "acknowledged may be missing", "mount it without that option")


def _mount(place: Path, mounts: Path) -> tuple[str, set[str]]:
    """The kind of the file system at that place, and its options (proc(5), mountinfo)."""
    best, found = -1, ("", set[str]())
    for line in privatefiles.read_named(mounts).decode(errors="replace").splitlines():
        before, _, behind = line.partition(" - ")
        words, kind = before.split(), behind.split()
        if len(words) < 6 or len(kind) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4])
        if place.is_relative_to(point) and len(Path(point).parts) >= best:
            best, found = len(Path(point).parts), (kind[0], {*words[5].split(","), *kind[2].split(",")})
    return found


def _clock_status() -> int:
    """`status` of adjtimex(2); 0 where it cannot be had."""
    place = ctypes.create_string_buffer(_TIMEX)
    try:
        if ctypes.CDLL(None).adjtimex(place) < 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return int.from_bytes(place.raw[_STATUS_AT:_STATUS_AT + 4], "little")


def clock(status: int) -> Iterator[Advice]:
    """Whether somebody keeps it right."""
    if status & _UNSYNCHRONIZED:
        yield Advice("clock", False, "nobody keeps the clock of this host right: dates of mail, ends of tokens and "
                     "certificates go by it", "run chrony or systemd-timesyncd")


def descriptors(config: Config, limits: Path) -> Iterator[Advice]:
    """Whether a process of the running server may have as many files open as it is to have connections."""
    try:
        text = privatefiles.read_named(limits).decode()
    except OSError:
        return                                  # of another user, or ended just now
    found = re.search(r"^Max open files +(\d+)", text, re.MULTILINE)
    wanted = max(int(str(config.values[f"{server}.connections"])) for server in ("imap", "pop3", "lmtp", "http")) + 200
    if found and int(found[1]) < wanted:
        yield Advice("file descriptors", True, f"a process of the server may have {found[1]} files open, and the "
                     f"connections that are allowed need {wanted}", "raise LimitNOFILE= of the service, or lower "
                     "imap.connections and the like")


def memory(config: Config, meminfo: Path) -> Iterator[Advice]:
    """Whether the caches fit."""
    found = re.search(r"^MemTotal: +(\d+) kB", privatefiles.read_named(meminfo).decode(), re.MULTILINE)
    partitions = config.root / "partitions"
    count = 1 + (len(list(partitions.iterdir())) if partitions.is_dir() else 1)
    cache = config.settings("store", Settings).cache
    if found and cache * count > MUCH_MEMORY * int(found[1]) * 1024:
        yield Advice("store.cache", True, f"{count} caches of {readable(cache)} are more than half of this host's "
                     f"{readable(int(found[1]) * 1024)}", "lower store.cache, or have fewer partitions on this host")
