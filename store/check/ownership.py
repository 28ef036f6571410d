"""Who may reach what is in the store: all of it belongs to the owner of the store's folder, and nobody else can read or
change it. What root did by hand, or a copy from another host, has other owners; earlier versions made other modes.

Only what lies in the store is given to anybody: no symbolic link is followed but those of partitions, and these only to
a folder that belongs to the owner of the store already; a file with a second name stays whose it is. So an owner of the
store gets nothing by it that was root's.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field, frozen

from mboxlist import privatefiles
from store.values import Command, Finding, Repair

NAMED = Repair.OWNER_NAMED.of()     # of a store whose folder is root's: whose is it?
OTHERS = 0o077              # of a mode: what others than the owner may,
CHANGE = 0o022              # and what they may not do to the folder of the store; to see what is in it does no harm
FOUND = "lost+found"        # of a file system whose first folder it is: root's
LEVELS = 3                  # of folders that a finding names: partitions/primary/messages has thousands below it


@frozen
class Fault:
    """What is wrong with a file or folder. `folder` is a descriptor, for as long as the fault is looked at;
    -1: nothing is mended."""

    path: Path
    name: str
    folder: int
    what: str
    owner: bool             # its owner is wrong, not only its mode


def look(root: Path, owner: tuple[int, int]) -> list[Finding]:
    """What is not the owner's alone. Raises nothing: what cannot be looked at belongs to somebody else."""
    root = root.resolve()
    summary = _Summary(root)
    for fault in _faults(root, owner):
        summary.add(fault, _how(fault, owner))
    return summary.findings()


def repair(root: Path, owner: tuple[int, int]) -> tuple[int, list[Finding]]:
    """Give all of it to the owner, if this process may, and to nobody else: how many files and folders were mended, and
    what is left."""
    root = root.resolve()
    mended, left = 0, _Summary(root)
    for fault in _faults(root, owner):
        if fault.folder < 0 or _how(fault, owner) == NAMED:
            left.add(fault, _how(fault, owner))
            continue
        try:
            privatefiles.make_private(fault.name, owner if fault.owner else None, at=fault.folder)
            mended += 1
        except OSError as error:
            left.add(fault, _how(fault, owner), f": {error.strerror}")
    return mended, left.findings()


def _how(fault: Fault, owner: tuple[int, int]) -> Command:
    """The command that mends it. Root's is no store by itself: somebody may have given root the folder by mistake."""
    return NAMED if fault.owner and not owner[0] else Repair.OWNER.of()


@define
class _Summary:
    """Findings, one for all files of a folder that have the same fault."""

    root: Path
    _found: dict[tuple[Path, str, Command], list[Path]] = field(factory=dict)

    def add(self, fault: Fault, how: Command, why: str = "") -> None:
        below = fault.path.relative_to(self.root) if fault.path.is_relative_to(self.root) else fault.path
        place = Path(*below.parts[:-1][:LEVELS])
        self._found.setdefault((place, fault.what + why, how), []).append(below)

    def findings(self) -> list[Finding]:
        return [Finding(what, str(paths[0]) if len(paths) == 1 else f"{len(paths)} files in {self.root / place}", how)
                for (place, what, how), paths in self._found.items()]


def _faults(root: Path, owner: tuple[int, int]) -> Iterator[Fault]:
    parent = privatefiles.open_handle(root.parent, os.O_PATH | os.O_DIRECTORY)     # it need not be readable
    try:
        yield from _of_name(root, root.name, parent, owner, others=CHANGE)
    finally:
        os.close(parent)
    tops = [root]
    for link in sorted((root / "partitions").glob("*")) if os.access(root, os.X_OK) else ():
        if link.is_symlink():
            tops.append(link.resolve())
    for top in tops:
        if top == root or top.is_dir() and top.stat().st_uid == owner[0]:
            yield from _below(top, owner)
        elif top.is_dir():
            yield Fault(top, top.name, -1, f"it is where a partition lies, and belongs to {_name(top.stat().st_uid)}, "
                                           f"not to {_name(owner[0])}: only chown helps", True)


def _below(top: Path, owner: tuple[int, int]) -> Iterator[Fault]:
    """A folder is mended, if at all, before what is in it is looked at."""
    for place, folders, files, handle in os.fwalk(top):
        if place == str(top):
            folders[:] = (name for name in folders if name != FOUND)
        for name in (*folders, *files):
            yield from _of_name(Path(place, name), name, handle, owner)


def _of_name(path: Path, name: str, folder: int, owner: tuple[int, int], others: int = OTHERS) -> Iterator[Fault]:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:         # it has gone
        return
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK):
        return
    needed = privatefiles.FOLDER_MODE if kind == stat.S_IFDIR else privatefiles.FILE_MODE
    if status.st_uid != owner[0]:
        yield Fault(path, name, folder, f"it belongs to {_name(status.st_uid)}, not to {_name(owner[0])}: "
                    "root alone can give it back", True)
    elif kind != stat.S_IFSOCK and (mode & others or mode & needed != needed):
        what = "others than the owner can reach it" if mode & others else "its owner cannot use it"
        yield Fault(path, name, folder, f"{what} (mode {mode:04o})", False)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
