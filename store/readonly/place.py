"""Where the copy for reading of a store is, if there is one. Every command looks there: this loads next to nothing."""

import os
from pathlib import Path

MEMORY = "/dev/shm"             # a file system in memory: shm_overview(7)
TEMPORARY = "/tmp"              # hier(7), unless the environment names another


def places(root: Path) -> list[Path]:
    """Where it may be, the best first: in folders that belong to the owner of the store."""
    try:
        owner = root.stat().st_uid
    except OSError:                     # it is not mounted just now
        owner = os.geteuid()
    name = os.fspath(root.absolute()).strip("/").replace("/", "-")[-200:]
    return [Path(above, f"onecopy-{owner}", f"read-only-{name}")
            for above in (MEMORY, os.environ.get("TMPDIR") or TEMPORARY) if os.path.isdir(above)]
