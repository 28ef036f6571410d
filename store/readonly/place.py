"""Where the copy for reading of a store is, if there is one, and those of a standby. Every command looks there: this
loads next to nothing."""

import os
from pathlib import Path

MEMORY = "/dev/shm"             # a file system in memory: shm_overview(7)
TEMPORARY = "/tmp"              # hier(7), unless the environment names another
FOLDER = "reading"              # in a standby: copies of it for reading, by number;
UNFINISHED = "unfinished"       # in one that is not whole, the standby's folder


def places(root: Path) -> list[Path]:
    """Where it may be, the best first: in folders that belong to the owner of the store."""
    try:
        owner = root.stat().st_uid
    except OSError:                     # it is not mounted just now
        owner = os.geteuid()
    name = os.fspath(root.absolute()).strip("/").replace("/", "-")[-200:]
    return [Path(above, f"onecopy-{owner}", f"read-only-{name}")
            for above in (MEMORY, os.environ.get("TMPDIR") or TEMPORARY) if os.path.isdir(above)]


def numbered(root: Path) -> dict[int, Path]:
    """Those of a standby, also what was cut off while it was made."""
    try:
        return {int(name): root / FOLDER / name for name in os.listdir(root / FOLDER) if name.isdecimal()}
    except OSError:
        return {}


def is_whole(place: Path) -> bool:
    """Whether that one has been made to its end."""
    return (place / "read-only").exists() and not (place / UNFINISHED).exists()


def newest_of_standby(root: Path) -> Path | None:
    """The newest that is whole. None in a store that was a standby, whatever is left there."""
    whole = [number for number, place in numbered(root).items() if is_whole(place)]
    return root / FOLDER / str(max(whole)) if whole and (root / "standby.json").exists() else None
