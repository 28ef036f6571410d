"""Stores for tests: made in a temporary folder, with users, small caches, and no threads."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store import offload
from store.accounts.passwords import hash_password
from store.accounts.sasl.scram import HASHES
from store.delivery import durable
from store.delivery.commit import Outcome, Target
from store.mailboxes import firstuse
from store.mailboxes.expunge import expunges, forget
from store.opening import make_empty_store, open_store
from store.partition.marks import generations_of_list, generations_of_partition
from store.partition.partition import Partition
from store.settings import Settings
from store.store import Store
from store.tables.references import FOREVER
from store.values import Flags, InternalDate, Secret
from tests.support.stores import small

small.make()
PASSWORD = b"secret"
HASH = hash_password(Secret(PASSWORD), HASHES)
SMALL = Settings(cache=1 << 20, disk_reserve=0, database_locks=20_000, special_mailboxes=(),
                 snapshots_kept=0)


def make_store(root: Path, users: Iterable[str] = ("alice", "bob"), settings: Settings = SMALL) -> Store:
    """A fresh store whose users have the password "secret", each with an INBOX."""
    make_empty_store(root)
    store = open_store(root, settings)
    for user in users:
        firstuse.inbox(store, store.directory.add(user, HASH))        # type: ignore[attr-defined]
    return store


def reopen(store: Store, settings: Settings = SMALL) -> None:
    """Open a store again that has been closed: whoever has the object has the one that is open."""
    store.__dict__ = open_store(store.root, settings).__dict__


def deliver(store: Store, body: bytes, *mailboxes: str, flags: Flags = Flags(), trace: bytes = b"",
            received: InternalDate | None = None, header: bytes = b"", suppress: int = 0) -> list[Outcome]:
    """Deliver to mailboxes named in canonical form ("user/alice/INBOX").

    In `header` {} stands for the name of each mailbox.
    """
    entries = [store.entry(MailboxName.parse(name)) for name in mailboxes]
    staged = store.stage(entries[0], trace)
    staged.write(body)
    return offload.now(durable.deliver(store, staged, [
        Target(entry, flags, header=header.replace(b"{}", str(entry.name).encode()), suppress=suppress)
        for entry in entries], received))


def let_go(store: Store, until: float | None = None) -> int:
    """What was expunged up to that Unix time, or now, can be brought back no more; how many expunges."""
    last = int(time.time() if until is None else until)
    return sum(forget(partition, some) for partition in store.partitions.values() for some in expunges(partition, last))


def unlist(partition: Partition, digest: bytes) -> None:
    """A message file waits for the purge no more."""
    for key, digests in list(partition.refs.lists(FOREVER)):
        if digest in digests:
            transact(partition.env, lambda txn, key=key: partition.refs.strike(key, [digest], txn))    # type: ignore[misc]


def reopen_after_crash(store: Store) -> Store:
    """The store as a process that is killed now would leave it: what the log buffer held in memory is gone."""
    root, settings = store.root, store.settings
    folders = [root / "mboxlist", *(partition.folder / "index" for partition in store.partitions.values())]
    images = [folder.with_name(folder.name + ".image") for folder in folders]
    for folder, image in zip(folders, images, strict=True):
        shutil.copytree(folder, image)
    marks = {path: path.read_bytes() for path in generation_marks(root)}
    store.close()
    for folder, image in zip(folders, images, strict=True):
        shutil.rmtree(folder)
        image.rename(folder)
    for path, octets in marks.items():
        path.write_bytes(octets)
    return open_store(root, settings)


def generation_marks(root: Path) -> list[Path]:
    """The files that say which state of each environment was there last: who puts an older one back in a test, and does
    not want it found, puts these back, too."""
    places = {*generations_of_list(root), *(path for folder in root.glob("partitions/*")
                                            for path in generations_of_partition(folder))}
    return sorted(path for path in places if path.exists())
