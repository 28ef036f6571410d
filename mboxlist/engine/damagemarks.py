"""Small files in an environment's folder, by which the next start can tell whether something is missing.

    tables      which tables there are, each with its identity (20 octets of its first page, in hexadecimal)
    newest      the newest log file, and up to which octet it has been flushed, at least: log.0000000007:0000004096
    opening     is there while the first process opens the environment
    suspect     what Berkeley DB has found wrong: the next start reads everything before it believes anything
    clean       sizes and times of the files after a clean end; while they are so, nobody has touched them
    unlogged    there are tables that were made without the log (`bulk`): it does not go back to their beginning
    memory      how the shared memory was made; and after a clean end what it was then: see `regions`
    DB_CONFIG   is Berkeley DB's own: what `kv` has it read whenever it opens the environment

Nothing here is needed to recover what a crash leaves; these files are hints, and only what they miss is damage.
"""

import contextlib
import json
import os
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine.disk import is_unanswered, replace_file

TABLES, NEWEST, OPENING, SUSPECT, CLEAN, ENDED = "tables", "newest", "opening", "suspect", "clean", "clean.before"
FLUSHED = b"log.%010d:%010d\n"       # what NEWEST has in it: a file of the log, and octets of it
UNLOGGED, CONFIG, MEMORY = "unlogged", "DB_CONFIG", "memory"
OURS = (TABLES, NEWEST, OPENING, SUSPECT, CLEAN, ENDED, UNLOGGED, CONFIG, MEMORY)
LOADING = ".loading"            # behind the name of a table that is being made
SECTOR = 512
_ID = slice(52, 72)             # the identity of a file in its first page
_LONGEST = 2000                 # octets of a cause


def log_files(folder: Path) -> list[Path]:
    """The log files by their names, the oldest first."""
    return sorted(path for path in folder.glob("log.??????????") if path.name[4:].isdecimal())


def logs(folder: Path) -> list[Path]:
    """The log files that are in use, the oldest first; without one that has only been written beforehand (`LogAhead`).
    """
    found = log_files(folder)
    if found and not is_begun(found[-1]):
        del found[-1]
    return found


def is_begun(log: Path) -> bool:
    """Whether Berkeley DB has begun that log file: it then writes the first record. Recovery leaves out a last file
    that has none."""
    try:
        with privatefiles.open_file(log, "rb", buffering=0) as file:
            return any(file.read(SECTOR))
    except OSError:
        return True             # who opens the environment finds out


def tables(folder: Path) -> list[Path]:
    """The tables that are there."""
    return sorted(folder.glob("*.db"))


def file_id(table: Path) -> str:
    """The identity of a table's file; "" when it has none."""
    try:
        with privatefiles.open_file(table, "rb") as file:
            return file.read(72)[_ID].hex()
    except OSError:
        return ""


def known_tables(folder: Path) -> dict[str, str]:
    """The tables that must be there, and their identities; a new environment has none. Raises OSError when the disk
    gives no answer: otherwise an empty table would be made in the place of a missing one."""
    try:
        lines = privatefiles.read_text(folder / TABLES).splitlines()
    except UnicodeDecodeError:
        return {}
    except OSError as error:
        if is_unanswered(error):
            raise
        return {}
    return {name: identity for name, _, identity in (line.partition(" ") for line in lines) if name.endswith(".db")}


def write_tables(folder: Path, found: dict[str, str]) -> None:
    """Put on record which tables there are; on disk. Raises OSError."""
    if known_tables(folder) != found:
        lines = "".join(f"{name} {identity}\n" for name, identity in found.items())
        replace_file(folder / TABLES, lines.encode())


def newest(folder: Path) -> tuple[int, int]:
    """The number of the newest log file that is on record, and how many octets it had then; or zeros."""
    with contextlib.suppress(OSError, ValueError):
        name, _, octets = privatefiles.read_text(folder / NEWEST).partition(":")
        return int(name.removeprefix("log.")), int(octets)
    return 0, 0


def log_size(folder: Path) -> tuple[int, int]:
    """The number of the newest log file, and its octets."""
    there = logs(folder)
    return (int(there[-1].name[4:]), there[-1].stat().st_size) if there else (0, 0)


def note_newest(folder: Path, there: tuple[int, int] | None = None) -> bool:
    """Put on record that the log is on disk up to there; without `there`, that the newest file's name is. Whether that
    changed anything. Any process may do it: a record that is too old says less, but nothing wrong."""
    found = there or (log_size(folder)[0], 0)
    if found <= newest(folder):
        return False
    with contextlib.suppress(OSError):
        record = open_flushed(folder)
        try:
            os.pwrite(record, FLUSHED % found, 0)
        finally:
            os.close(record)
    return True


def open_flushed(folder: Path) -> int:
    """A descriptor of the record of how far the log has been flushed (FLUSHED), written after each flush. It is not
    synced itself: after a loss of power it may be an older one. What is behind it nobody was answered for, or it was
    only in the last moments. Raises OSError."""
    return privatefiles.open_handle(folder / NEWEST, os.O_WRONLY | os.O_CREAT)


def begin(folder: Path) -> None:
    """Note that the first process opens the environment. Raises OSError."""
    with privatefiles.open_file(folder / OPENING, "ab") as file:
        file.write(b".")
    with contextlib.suppress(FileNotFoundError):
        (folder / CLEAN).rename(folder / ENDED)


def is_open(folder: Path) -> None:
    """Note that it is open, and can be used."""
    (folder / ENDED).unlink(missing_ok=True)
    (folder / OPENING).unlink(missing_ok=True)


def marks(folder: Path) -> str:
    """Why an earlier process wants everything looked at; "" if there is nothing."""
    try:
        return privatefiles.read_text(folder / SUSPECT, "replace") or "suspect"
    except FileNotFoundError:
        pass
    except OSError:
        return "suspect"
    with contextlib.suppress(OSError):
        if (folder / OPENING).stat().st_size > 1:       # once may be any kill; twice is no accident
            return "processes have died while they opened it"
    return ""


def suspect(folder: Path, cause: str) -> None:
    """Have the next start look at everything; the first cause counts. If it cannot be written, nothing is done."""
    with contextlib.suppress(OSError), privatefiles.open_file(folder / SUSPECT, "xb") as file:
        file.write(cause[:_LONGEST].encode(errors="replace"))


def _stamps(folder: Path) -> dict[str, list[int]]:
    found = {}
    for path in (*tables(folder), *logs(folder)[-1:]):
        status = path.lstat()
        found[path.name] = [status.st_size, status.st_mtime_ns, status.st_ino]
    return found


def mark_clean(folder: Path) -> None:
    """Note that all processes have left, and everything is in the tables. Raises OSError."""
    privatefiles.write(folder / CLEAN, json.dumps(_stamps(folder)))


def is_untouched(folder: Path) -> bool:
    """Whether the end was clean, and no file has been changed since."""
    try:
        return bool(json.loads(privatefiles.read_text(folder / CLEAN)) == _stamps(folder))
    except (OSError, ValueError):
        return False


def has_whole_tables(folder: Path) -> bool:
    """Whether the end was clean, and no table has been changed since: then the log has nothing that the tables lack."""
    for name in (CLEAN, ENDED):
        with contextlib.suppress(OSError, ValueError):
            then, now = json.loads(privatefiles.read_text(folder / name)), _stamps(folder)
            return all(then[table] == now.get(table) for table in then if table.endswith(".db"))
    return False


# Looking

def missing(folder: Path) -> list[str]:
    """What should be there and is not, in words for people; nothing is opened."""
    found = []
    for name in known_tables(folder):
        if not (folder / name).is_file():
            found.append(f"{name} is missing")
    number, octets = newest(folder)
    there = {int(path.name[4:]): path for path in logs(folder)}
    last = max(there, default=0)
    if number > last:
        found.append(f"log.{number:010} is missing")
    elif number == last and number and there[number].stat().st_size < octets:
        found.append(f"{there[number].name} has been cut short: it had {octets} octets")
    gaps = sorted(set(range(min(there, default=0), last + 1)) - set(there)) if there else []
    found += [f"log.{gap:010} is missing" for gap in gaps[:3]]
    return found


# The log

_LONGEST_RECORD = 1 << 20
_HEADER = 12                    # octets before a record's own: where the one before it is, its length, its checksum


def end_of_log(folder: Path) -> tuple[str, bytes]:
    """The newest log file as it is, without the zeros at its end that may have been written beforehand. Recovery only
    adds to it, unless it finds something damaged."""
    there = logs(folder)
    return (there[-1].name, privatefiles.read(there[-1]).rstrip(b"\0")) if there else ("", b"")


def cut_zeros(folder: Path, before: tuple[str, bytes]) -> None:
    """Take away zeros behind the end of the newest log file, which recovery would write again, up to 16 MiB. What a
    record may end with stays. Raises OSError."""
    name, then = before
    if not name:
        return
    number, flushed = newest(folder)
    end = max(len(then), flushed if number == int(name[4:]) else 0) + _LONGEST_RECORD
    if (folder / name).stat().st_size > end:
        handle = privatefiles.open_handle(folder / name, os.O_WRONLY)
        try:
            os.ftruncate(handle, end)
        finally:
            os.close(handle)


def cut_at(folder: Path, before: tuple[str, bytes], end: tuple[int, int]) -> int | None:
    """The place where the log, which recovery has left with this `end`, differs from what it was, or ends; None if it
    goes on."""
    name, then = before
    try:
        now = privatefiles.read(folder / name) if name else b""
    except OSError:
        return 0
    if now.startswith(then):
        return None if not name or end >= (int(name[4:]), len(then)) else end[1] if end[0] == int(name[4:]) else 0
    first = next(at for at in range(0, len(then), SECTOR) if now[at:at + SECTOR] != then[at:at + SECTOR])
    return first + next(at for at in range(SECTOR) if now[first + at:first + at + 1] != then[first + at:first + at + 1])


def was_cut(folder: Path, before: tuple[str, bytes], ended: tuple[int, int]) -> bool:
    """Whether recovery has cut the log off at something that was damaged.

    A loss of power may leave the end half written: a write that is missing and reads as zeros, in a record or at its
    end, or a last record that is not whole. That is no damage, since nobody was answered for what is in it.
    """
    differs, then = cut_at(folder, before, ended), before[1]
    if differs is None:
        return False
    if (int(before[0][4:] or 0), differs) < newest(folder):         # so far it had been flushed
        return True
    at, length = 0, _length(then, 0)
    while _HEADER <= length and at + length <= max(differs, _first(then)):
        at += length
        length = _length(then, at)
    end = at + length
    if not _HEADER <= length < _LONGEST_RECORD:
        return length != 0 and not _is_torn(then, at)
    if end > len(then) or int.from_bytes(then[end:end + 4], "little") != at:    # nothing that is whole comes behind it
        return False
    return not then[at:end].endswith(bytes(16)) and bytes(64) not in then[at:end]


def _length(log: bytes, at: int) -> int:
    """The length of the record that begins there."""
    return int.from_bytes(log[at + 4:at + 8], "little")


def _first(log: bytes) -> int:
    """Of the record at the beginning of each file, which is Berkeley DB's own: recovery writes it again, with what is
    behind it, where nothing else in the file is whole."""
    length = _length(log, 0)
    return length if length <= SECTOR else 0


def _is_torn(log: bytes, at: int) -> bool:
    """Whether the length of the record there is not whole, since the sector is missing into which it goes on."""
    sector = (at // SECTOR + 1) * SECTOR
    return sector < at + 8 and not any(log[sector:sector + SECTOR])
