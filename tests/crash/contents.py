"""What a store that was opened again holds, row by row and file by file, in whatever way it lies on the disk.

Most crashes leave one of a few contents, which lie there in hundreds of ways: in the log, in pages, or in both.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from store.store import Store
from tests.support.faults.disk import REGION

#: Files that say how the databases lie on the disk, or when it was looked at: of a generation, and where a log ends.
_WHERE_IT_LIES = ("newest", "generation", "generation.list")
#: Of rows, by table: the clock of the outbox, and the note about an unclean end, which has the place in the log.
_WHEN_IT_WAS = {"outbox.db": b"c", "arrivals.db": b"\0unclean end"}
ROWS = 1000                     # that are read at a time


def contents(store: Store) -> bytes:
    """A digest of all rows and files, and their names: two stores with the same one differ in nothing that a reader,
    the check, or a change could find out through the tables."""
    digest = hashlib.blake2b(digest_size=32)
    for piece in (*_rows(store), *_files(store.root)):
        digest.update(piece)
    return digest.digest()


def _rows(store: Store) -> Iterator[bytes]:
    for env in (store.mailboxes.env, *(store.partitions[name].env for name in sorted(store.partitions))):
        for table in env.tables:
            yield table.name.encode()
            if (left_out := _WHEN_IT_WAS.get(table.name)) is None:
                for keys, values in table.pieces(ROWS):
                    yield repr((keys, values)).encode()
            else:
                yield repr([row for row in table.scan() if not row[0].startswith(left_out)]).encode()


def _files(root: Path) -> Iterator[bytes]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if folder != str(root) or name not in ("run", "generations"))
        yield f"{folder.removeprefix(str(root))} {folders}".encode()
        for name in sorted(files):
            databases = name.endswith(".db") or name.startswith("log.") or REGION.fullmatch(name)
            if not databases and name not in _WHERE_IT_LIES:
                yield b"%b %b" % (name.encode(), Path(folder, name).read_bytes())
