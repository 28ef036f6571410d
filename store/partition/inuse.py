"""`run/partitions`: the names of the partitions that are in use since the first process opened the store."""

import os
from pathlib import Path

from mboxlist import privatefiles


def listed(root: Path) -> list[str] | None:
    """The names in `run/partitions`; None when no process has opened the store yet."""
    try:
        return privatefiles.read_text(root / "run" / "partitions").split()
    except FileNotFoundError:
        return None


def version(root: Path) -> tuple[int, ...]:
    """Another one after each change of the list. Raises OSError."""
    status = os.stat(f"{os.fspath(root)}/run/partitions")
    return status.st_mtime_ns, status.st_ino, status.st_size


def write_list(root: Path, names: list[str]) -> None:
    """Have these partitions in use."""
    path = root / "run" / "partitions"
    new = path.with_name("partitions.new")
    privatefiles.write(new, "".join(f"{name}\n" for name in sorted(names)))
    new.replace(path)


def unlist(root: Path, name: str) -> None:
    """No process opens the partition any more. For a process that is alone in the store."""
    names = listed(root)
    if names is not None and name in names:
        write_list(root, [other for other in names if other != name])
