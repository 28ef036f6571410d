"""What every path of a store is to be: a file, a folder, a socket or the link to a partition, of a name that the store
gives; and whose: all belongs to the owner of the store's folder, and nobody else can read or change it.

What root did by hand, or a copy from another host, has other owners; earlier versions made other modes; and a folder,
a link or a pipe can stand where a file belongs, which nobody can read then, or replace. `look` tells all of that, once
for each cause. `repair` gives files to their owner, makes folders that are missing, and sets aside what is of a wrong
kind or name (`mboxlist/setaside.py`): nothing is removed. What was to be there is written again by whoever has it, or
is told as lost by the check that follows.

A copy of a store for reading (`store/readonly`) has links to what it does not copy, each to its place in that store.

Only what lies in the store is given to anybody: no symbolic link is followed but those of partitions, and these only to
a folder that belongs to the owner of the store already; a file with a second name stays whose it is. So an owner of the
store gets nothing by it that was root's.
"""

import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.setaside import ASIDE, is_there, set_aside
from store.partition.marks import READ_ONLY, is_absent
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import digest_in
from store.partition.processes import look as look_inside
from store.values import Command, Finding, Repair

REPAIR = Repair.OWNER.of()
NAMED = Repair.OWNER_NAMED.of()     # of a store whose folder is root's: whose is it?
OTHERS = 0o077              # of a mode: what others than the owner may,
CHANGE = 0o022              # and what they may not do to the folder of the store; to see what is in it does no harm
FOUND = "lost+found"        # of a file system whose first folder it is: root's
LEVELS = 3                  # of folders that a finding names: partitions/primary/messages has thousands below it

KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket",
         stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device",
         stat.S_IFBLK: "a device"}
FILE, FOLDER, SOCKET = stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK
ANY = -2                    # whatever it is
STRANGER = -1               # nothing; but a file may hold a message: `filecheck` tells it, or it has another place
_LOG = r"log\.\d{10}"
_ENVIRONMENT = (            # what Berkeley DB and `mboxlist/engine` make in the folder of databases
    rf"(__db\..+|{_LOG}(\.part)?|[a-z]+\.db(\.loading)?|DB_CONFIG|[a-z]+(-[a-z]+)*(\.(before|lock))?)(\.new)?")
# With the log files that those need who follow a standby, and nobody else: `store/standby/cascade/keptlogs.py`.
_DATABASES = ("kept", FOLDER), (rf"kept/{_LOG}(\.part)?", FILE), (_ENVIRONMENT, FILE)

# The folders whose every name the store gives, with what is in them: the path below the folder, and what it is to be.
# The first that fits counts. (What is in a snapshot is its own: `store/snapshots`.)
Rules = tuple[tuple[re.Pattern[str], int], ...]


def _rules(*rules: tuple[str, int]) -> Rules:
    return tuple((re.compile(pattern, re.DOTALL), kind) for pattern, kind in (*rules, ("", FOLDER)))


STORE = {
    "mboxlist": _rules(*_DATABASES),
    "partitions": _rules((r"[^/]+", ANY)),
    "snapshots": _rules((r"\d{8}T\d{6}Z(\.[a-z]+)?|\.scratch", FOLDER), (r"[a-z]+(\.new)?", FILE), (r"[^/]+/.+", ANY)),
    "run": _rules((r"inside|news|control|second|sessions|operations|standby-unknown", FOLDER),
                  (r"(news|control|second)/[^/]+", SOCKET),
                  (r"(inside|standby-unknown)/[^/]+|sessions/[0-9a-f]{16}\.[0-9a-f]{64}(\.new|\.challenge)?|operations/[0-9a-f]{32}(\.new)?|"
                   r"[a-z0-9][a-z0-9._-]*", FILE)),
    "tls": _rules((r".+", ANY)),
    "transcripts": _rules((r"\d{8}T\d{6}Z-[a-z0-9]+-[0-9a-f]+-[0-9a-f]+-\d+\.txt", FILE)),
    "access": _rules((r"lock|[0-9a-f]{32}(\.new)?", FILE)),              # `store/accounts/apppasswords/accessfiles.py`
    "outgoing": _rules((r"[0-9a-f]{32}(\.new)?", FILE)),                 # `store/events/outgoingfiles.py`
    "audit": _rules((r"\d{6}-\d{4}-\d{2}\.jsonl|head|lock", FILE)),      # `store/audit/auditline.py`
}
PARTITION = {
    "messages": _rules((r"([0-9a-f])/([0-9a-f]{2})/\1\2[0-9a-f]{61}", FILE), (r"[0-9a-f](/[0-9a-f]{2})?", FOLDER),
                       (r"[0-9a-f]/[0-9a-f]{2}/[^/]+", STRANGER)),
    "staging": _rules((r"[0-9a-f]{16}(\.new)?|journal-[0-9a-f]{16}", FILE)),    # `store/partition/filejournal.py`
    "users": _rules((r".+/store\.idx(\..+)?", FILE),
                    (r"[0-9a-f]{2}(/[0-9a-f]{2}(/.+)?)?|(deleted|public)(/.+)?", FOLDER),
                    (r"[a-z][a-z.-]*", FILE)),          # `store/partition/marks.py`
    "index": _rules(*_DATABASES),
}
IN_USE = ("mboxlist", "index", "run")       # what processes in the store have open: not to be moved beside them
NEEDED = ("messages", "staging", "users")   # of a partition, and the folders in the first


class Wrong(Enum):
    """What can be wrong with a path."""

    OWNER = auto()
    MODE = auto()
    KIND = auto()           # it is of another kind than belongs there
    NAME = auto()           # nothing of the store has such a name there
    PLACE = auto()          # a message file that belongs to another folder
    MISSING = auto()        # it is not there


@frozen
class Fault:
    """What is wrong with a path: that of `below` under `top`, the store or a partition, which is called `shown`.
    `folder` is a descriptor of the folder that it is in, for as long as the fault is looked at; -1: nothing is mended.
    """

    shown: Path
    top: Path
    below: str
    folder: int
    what: str
    wrong: Wrong

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.shown / self.below

    @property
    def name(self) -> str:
        """The last level."""
        return self.path.name


@define
class Repaired:
    """How many files and folders were given to their owner or made; what was set aside, and where it is now; what is
    left."""

    mended: int = 0
    aside: list[tuple[Path, Path]] = field(factory=list)
    left: list[Finding] = field(factory=list)


def look(root: Path, owner: tuple[int, int], *, access: bool = True) -> list[Finding]:
    """What is not as it should be; without `access`, whoever can reach it. Raises nothing: what cannot be looked at
    belongs to somebody else."""
    root = root.absolute()
    summary = _Summary(root)
    for fault in _faults(root, owner, access=access):
        summary.add(fault, _how(fault, owner))
    return summary.findings()


def repair(root: Path, owner: tuple[int, int]) -> Repaired:
    """Give all of it to the owner, if this process may, and to nobody else; make what folders are missing; set aside
    what does not belong where it is."""
    root, done = root.absolute(), Repaired()
    left = _Summary(root)
    in_use = (root / "run").is_dir() and bool(look_inside(root / "run")[0])
    for fault in _faults(root, owner):
        if fault.folder < 0 or _how(fault, owner) == NAMED:
            left.add(fault, _how(fault, owner))
        elif fault.wrong in (Wrong.KIND, Wrong.NAME) and in_use and fault.below.split("/")[0] in IN_USE:
            left.add(fault, _how(fault, owner), ": it stays while processes have the store open")
        else:
            try:
                _mend(fault, owner, done)
            except OSError as error:
                left.add(fault, _how(fault, owner), f": {error.strerror}")
    done.left = left.findings()
    return done


def _mend(fault: Fault, owner: tuple[int, int], done: Repaired) -> None:
    if fault.wrong in (Wrong.OWNER, Wrong.MODE):
        privatefiles.make_private(fault.name, owner if fault.wrong is Wrong.OWNER else None, at=fault.folder)
    if fault.wrong is Wrong.PLACE and _put_in_place(fault):
        done.mended += 1
    elif fault.wrong in (Wrong.KIND, Wrong.NAME, Wrong.PLACE):
        moved = set_aside(fault.top, fault.below)
        with privatefiles.Folder.at(fault.top) as top:
            for path in moved.relative_to(fault.top).parents[:-1]:      # where root has made them
                with top.folder(path.parent) if path.parent.parts else top.again() as parent:
                    privatefiles.make_private(path.name, owner, at=parent.handle)
        done.aside.append((fault.path, fault.shown / moved.relative_to(fault.top)))
    else:
        done.mended += 1
    if fault.wrong in (Wrong.KIND, Wrong.MISSING):
        with privatefiles.Folder.at(fault.top) as top:
            for below in _needed(fault.top):
                if f"{below}/".startswith(f"{fault.below}/"):
                    with top.folder(os.path.dirname(below)) if "/" in below else top.again() as parent:
                        privatefiles.make_folder(os.path.basename(below), exist_ok=True, at=parent.handle)
                        privatefiles.make_private(os.path.basename(below), owner, at=parent.handle)
                        parent.sync()


def _put_in_place(fault: Fault) -> bool:
    """Give a message file its place, if nothing has that."""
    with privatefiles.Folder.at(fault.top) as top:
        right = os.path.relpath(MessageFiles(fault.top).path(digest_in(fault.name)), fault.top)
        with top.folder(os.path.dirname(right)) as folder:
            if is_there(folder, fault.name):
                return False
            top.rename(fault.below, right)
            folder.sync()
    return True


def _how(fault: Fault, owner: tuple[int, int]) -> Command:
    """The command that mends it. Root's is no store by itself: somebody may have given root the folder by mistake."""
    return NAMED if fault.wrong is Wrong.OWNER and not owner[0] else REPAIR


@define
class _Summary:
    """Findings, one for all files of a folder that have the same fault."""

    root: Path
    _found: dict[tuple[Path, str, Command, str], list[Path]] = field(factory=dict)

    def add(self, fault: Fault, how: Command, why: str = "") -> None:
        """One more; of what is not where it belongs each is one of its own."""
        below = fault.path.relative_to(self.root) if fault.path.is_relative_to(self.root) else fault.path
        place = Path(*below.parts[:-1][:LEVELS])
        alone = "" if fault.wrong in (Wrong.OWNER, Wrong.MODE, Wrong.MISSING) else str(below)
        self._found.setdefault((place, fault.what + why, how, alone), []).append(below)

    def findings(self) -> list[Finding]:
        return [Finding(what, str(self.root / paths[0]) if len(paths) == 1 else
                        f"{len(paths)} files in {self.root / place}", how)
                for (place, what, how, _), paths in self._found.items()]


# What is there

def _faults(root: Path, owner: tuple[int, int], *, access: bool = True) -> Iterator[Fault]:
    real = root.resolve()
    parent = privatefiles.open_handle(real.parent, os.O_PATH | os.O_DIRECTORY)     # it need not be readable
    try:
        if access:
            yield from _of_access(root.parent, real.parent, real.name, real.lstat(), parent, owner, CHANGE)
    finally:
        os.close(parent)
    original = _original(root)
    yield from _below(root, owner, STORE, original, access=access)
    for path in sorted(_partitions(root)):
        top = path.resolve()
        if path.is_symlink() and top.is_dir() and top.stat().st_uid != owner[0]:
            yield Fault(path.parent, top.parent, path.name, -1, f"it is where a partition lies, and belongs to "
                        f"{_name(top.stat().st_uid)}, not to {_name(owner[0])}: only chown helps", Wrong.OWNER)
        elif top.is_dir():
            there = None if original is None else original / "partitions" / path.name
            yield from _below(path, owner, PARTITION, there, access=access)


def _original(root: Path) -> Path | None:
    """The store that this is a copy of for reading; None: it is none."""
    try:
        return Path(privatefiles.read_text(root / READ_ONLY)).absolute()
    except (OSError, ValueError):
        return None


def _partitions(root: Path) -> Iterator[Path]:
    """Those that are there; a name that begins with a dot is that of one that is being made or removed."""
    try:
        yield from (path for path in (root / "partitions").iterdir()
                    if path.name != FOUND and not path.name.startswith(".") and path.is_dir())
    except OSError:             # there is none, or it cannot be read
        return


def _below(shown: Path, owner: tuple[int, int], rules: Mapping[str, Rules], original: Path | None, *,
           access: bool = True) -> Iterator[Fault]:
    top = shown.resolve()
    needed: dict[str, list[str]] = {}
    for below in _needed(top) if rules is PARTITION and not is_absent(top) else ():
        needed.setdefault(os.path.dirname(below), []).append(os.path.basename(below))
    handle = privatefiles.open_folder(top)
    try:
        yield from _Walk(shown, top, owner, rules, needed, access, original).folder("", handle)
    finally:
        os.close(handle)


def _needed(top: Path) -> list[str]:
    """The folders that a partition has, the outer ones first."""
    paths = [folder[len(str(top)) + 1:] for folder in MessageFiles(top).folders()]
    return [*NEEDED, *sorted({os.path.dirname(path) for path in paths}), *paths]


@frozen
class _Walk:
    """Through the store or a partition. A folder is mended, if at all, before what is in it is looked at; what is of a
    wrong kind is not looked into, and what was set aside, which only the owner can reach, is as it was. `original` is
    what this is a copy of for reading."""

    shown: Path
    top: Path
    owner: tuple[int, int]
    rules: Mapping[str, Rules]
    needed: Mapping[str, list[str]]
    access: bool
    original: Path | None

    def folder(self, below: str, handle: int) -> Iterator[Fault]:
        """What is wrong in the folder with that descriptor. What cannot be read, or has gone, has nothing wrong."""
        try:
            with os.scandir(handle) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if path != FOUND:
                try:
                    yield from self._entry(path, entry, handle)
                except FileNotFoundError:
                    continue
        missing = set(self.needed.get(below, ())).difference(entry.name for entry in entries)
        for name in sorted(missing):
            yield Fault(self.shown, self.top, f"{below}/{name}" if below else name, handle, "the folder is missing",
                        Wrong.MISSING)

    def _entry(self, path: str, entry: "os.DirEntry[str]", handle: int) -> Iterator[Fault]:
        kind = FILE if entry.is_file(follow_symlinks=False) else FOLDER if entry.is_dir(follow_symlinks=False) else (
            stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
        what = _misfit(path, kind, self.rules)
        if what is not None and kind == stat.S_IFLNK and self.original is not None and (
                os.readlink(entry.name, dir_fd=handle) == str(self.original / path)):
            return
        if what is not None:
            yield Fault(self.shown, self.top, path, handle, *what)
            return
        if self.access:
            yield from _of_access(self.shown, self.top, path, entry.stat(follow_symlinks=False), handle, self.owner)
        if kind != FOLDER or path == ASIDE or self.rules is STORE and os.path.dirname(path) == "partitions":
            return
        try:
            inner = privatefiles.open_folder(entry.name, at=handle)
        except OSError:
            return
        try:
            yield from self.folder(path, inner)
        finally:
            os.close(inner)


def _misfit(path: str, kind: int, rules: Mapping[str, Rules]) -> tuple[str, Wrong] | None:
    """What is wrong with the kind or the name of what has that path."""
    first, _, rest = path.partition("/")
    wanted = next((wanted for pattern, wanted in rules.get(first, ()) if pattern.fullmatch(rest)), None)
    if wanted in (kind, ANY) or first not in rules:
        return None
    if wanted == STRANGER and kind == FILE:
        return ("its place is another folder", Wrong.PLACE) if digest_in(rest[-64:]) else None
    if wanted in (None, STRANGER):
        return "nothing of a store has such a name there", Wrong.NAME
    return f"{KINDS[kind]} is where {KINDS[wanted]} belongs", Wrong.KIND


def _of_access(shown: Path, top: Path, below: str, status: os.stat_result, folder: int, owner: tuple[int, int],
               others: int = OTHERS) -> Iterator[Fault]:
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    if kind not in (FILE, FOLDER, SOCKET):
        return
    needed = privatefiles.FOLDER_MODE if kind == FOLDER else privatefiles.FILE_MODE
    if status.st_uid != owner[0]:
        yield Fault(shown, top, below, folder, f"it belongs to {_name(status.st_uid)}, not to {_name(owner[0])}: "
                    "root alone can give it back", Wrong.OWNER)
    elif kind != SOCKET and (mode & others or mode & needed != needed):
        what = "others than the owner can reach it" if mode & others else "its owner cannot use it"
        yield Fault(shown, top, below, folder, f"{what} (mode {mode:04o})", Wrong.MODE)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
