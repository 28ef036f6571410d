"""A store as a loss of power leaves it: messages are on disk in a file journal, and their files are not."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mboxlist.names import MailboxName
from store.partition.filejournal import is_journal
from store.store import Store
from tests.crash.operations_journal import Journalled
from tests.crash.places import deliver


def left_in_journal(store: Store, name: MailboxName, bodies: Sequence[bytes], copy: Path, trace: bytes = b"") -> None:
    """Deliver these, and copy the store as the disk has it then; the last of them has no place in `messages/` yet."""
    partition = store.partitions["primary"]
    journal = Journalled(store, partition, 64).journal
    partition.files.make_ready(partition.serials.next_serial() for _ in range(2 * len(bodies)))
    before = _written(partition.files.staging)
    for body in bodies:
        deliver(store, body, name, trace=trace)
    shutil.copytree(store.root, copy, ignore=shutil.ignore_patterns("__db.*", "run"))
    assert len(journal._kept) == len(bodies)
    folder = copy / "partitions" / "primary"
    files = {path.read_bytes(): path for path in (folder / "messages").glob("?/??/*")}
    written = [folder / "staging" / name for name in sorted(_written(folder / "staging") - before)]
    for path in written:
        placed = files[path.read_bytes()]
        placed.unlink()
        path.write_bytes(bytes(path.stat().st_size) if path == written[0] else b"")
        if path != written[-1]:
            os.link(path, placed)


def _written(staging: Path) -> set[str]:
    return {path.name for path in staging.iterdir() if path.stat().st_size and not is_journal(path.name)}
