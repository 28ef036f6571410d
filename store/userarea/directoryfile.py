"""`users/directory`: what the directory has and no `store.idx` tells, so that it outlives the list of mailboxes, and an
older one: accounts of users without an INBOX, the rules of domains, and who has been removed.

Its first line is the CRC-32 of the rest, which is JSON. Each process writes the file of each partition with the
`store.idx` that it writes, for the users of whom it has changed something; `userareacheck` writes all of it.
"""

import json
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from attrs import asdict, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import is_unanswered, replace_file
from mboxlist.engine.transact import Failure
from mboxlist.engine.troubles import TROUBLES
from mboxlist.names import INBOX, MailboxName
from store.accounts.builtin import User
from store.errors import StoreError
from store.partition.partition import Partition
from store.store import Store
from store.userarea.paths import Locks
from store.values import few

NAME = "directory"
MOST = 50_000           # accounts, and users who are gone, that are kept


@frozen
class DirectoryRows:
    """What is in the file: rows of `users.db` and of `forgotten.db` by user id, rules of access and of Sieve by domain,
    since when (Unix time) users are gone, and when it was written (ns)."""

    rows: dict[str, str] = field(factory=dict)
    domains: dict[str, str] = field(factory=dict)
    gone: dict[str, int] = field(factory=dict)
    forgotten: dict[str, str] = field(factory=dict)
    sieve: dict[str, str] = field(factory=dict)
    written: int = field(default=0, eq=False)

    def accounts(self, users: Iterable[User]) -> list[User]:
        """These users, but those who are gone since, and those of whom the file has a newer row."""
        found = {user.account.user: user for user in users if user.account.user not in self.gone}
        for user, row in self.rows.items():
            found[user] = User.from_bytes(user, row.encode())
        return list(found.values())

    def to_bytes(self) -> bytes:
        """The stored form."""
        values = {name: value for name, value in asdict(self).items() if value or name != "sieve"}    # once it had none
        body = json.dumps(values).encode()
        return b"%08x\n%s\n" % (zlib.crc32(body), body)

    @classmethod
    def from_bytes(cls, data: bytes) -> "DirectoryRows":
        """From the stored form. Raises ValueError for what is not whole."""
        crc, _, body = data.rstrip(b"\n").partition(b"\n")
        if crc != b"%08x" % zlib.crc32(body):
            raise ValueError("it is damaged")
        return cls(**json.loads(body))


def read(folder: Path) -> DirectoryRows | None:
    """That of the partition in that folder; None when there is none, or it is damaged. Raises OSError when the disk
    does not say: accounts would be made without what it has, and it would be written anew."""
    try:
        return DirectoryRows.from_bytes(privatefiles.read(folder / "users" / NAME))
    except (ValueError, TypeError):
        return None
    except OSError as error:
        if is_unanswered(error):
            raise
        return None


def newest(folders: Iterable[Path]) -> DirectoryRows:
    """The newest of these partitions. Raises OSError as `read` does."""
    return max((found for folder in folders if (found := read(folder)) is not None),
               key=lambda found: found.written, default=DirectoryRows())


def lost_among(store: Store, kept: DirectoryRows) -> dict[str, str]:
    """The rows of users whom the directory has lost: who was removed is on record as removed, and who was renamed has
    the same hash under another name."""
    missing = {user: row for user, row in kept.rows.items() if user not in kept.gone and store.directory.keeps(user)
               and store.directory.user(user) is None and store.mailboxes.forgotten.get(user.encode()) is None}
    hashes = {row.password for account in (store.directory.all() if missing else ())
              if (row := store.directory.user(account.user)) is not None}
    return {user: row for user, row in missing.items() if User.from_bytes(user, row.encode()).password not in hashes}


def wrong(store: Store, partition: Partition, sound: list[DirectoryRows]) -> str:
    """What is wrong with the file of a partition that nobody is about to write; "" if nothing, or if it is missing and
    this process has not written it yet. Those that are `sound` are not looked at again: each partition has one."""
    there = read(partition.folder)
    if there is None:
        if (partition.folder / "users" / NAME).exists():
            return "what is kept of accounts is damaged"
        return "what is kept of accounts is missing" if partition.unwritten.directory_known else ""
    full = max(len(there.rows), len(there.gone)) >= MOST
    misleads = [] if full or there in sound else _misleads(there, _all_of(store, there, set()))
    if not misleads:
        sound.append(there)
        return ""
    return f"what is kept of accounts is not what is so: {few(misleads)}"


def _misleads(there: DirectoryRows, wanted: DirectoryRows) -> list[str]:
    """The users, and @domains, of which something would be rebuilt from the file that is not so. What it lacks is
    written when the disk lets it be; and while the row of an INBOX is lost the file need not have the account, which
    the INBOX's `store.idx` has."""
    users = {user for user, row in there.rows.items() if row != wanted.rows.get(user, row)}
    domains = {domain for old, new in ((there.domains, wanted.domains), (there.sieve, wanted.sieve))
               for domain, _ in old.items() ^ new.items()}
    return sorted(users | (there.gone.keys() - wanted.gone.keys()) | {f"@{domain}" for domain in domains})


def write(store: Store, partition: Partition, *, everything: bool = False) -> None:
    """Write the file of a partition, if this process has changed anything that belongs into it. What fails is logged,
    and comes again."""
    users, path = partition.unwritten.take_users(), partition.folder / "users" / NAME
    if users or everything or not partition.unwritten.directory_known or not path.exists():
        try:
            with Locks(partition) as locks:
                locks.take_name(path)
                before = read(partition.folder)
                now = (_all_of if before is None or everything else _changed)(store, before or DirectoryRows(), users)
                if now != before:
                    replace_file(path, now.to_bytes())
            partition.unwritten.directory_known = True
        except (StoreError, OSError, Failure) as error:
            partition.unwritten.users |= users
            TROUBLES.met(f"users/{NAME} cannot be written on partition {partition.name}", str(error))


def _changed(store: Store, before: DirectoryRows, users: set[str]) -> DirectoryRows:
    rows, gone, forgotten = dict(before.rows), dict(before.gone), dict(before.forgotten)
    for user in users:
        for each in (rows, forgotten):
            each.pop(user, None)
        row, kept = store.directory.user(user), store.mailboxes.forgotten.get(user.encode())
        if row is not None:
            gone.pop(user, None)
            if _is_nowhere_else(store, row):
                rows[user] = row.to_bytes().decode()
        elif store.directory.keeps(user):
            gone[user] = gone.get(user, int(time.time()))
        if kept is not None:
            forgotten[user] = kept.decode()
    return _limited(store, rows, gone, forgotten)


def _all_of(store: Store, before: DirectoryRows, changed: set[str]) -> DirectoryRows:
    """What belongs into the file. The row of an account that the directory has lost stays."""
    users = [(account.user, store.directory.user(account.user)) for account in store.directory.all()]
    there = {user for user, _ in users}
    forgotten = {key.decode(): data.decode() for key, data in store.mailboxes.forgotten.scan()}
    gone = {user: since for user, since in before.gone.items() if user not in there}
    now = int(time.time())
    gone = {**{user: now for user in forgotten if user not in there}, **gone}
    lost = {user: row for user, row in lost_among(store, before).items() if user not in changed}
    return _limited(store, lost | {user: row.to_bytes().decode() for user, row in users
                                   if row is not None and _is_nowhere_else(store, row)}, gone, forgotten)


def _is_nowhere_else(store: Store, row: User) -> bool:
    user = row.account.user
    return store.directory.keeps(user) and not row.is_lost and store.mailboxes.find(MailboxName(user, INBOX)) is None


def _limited(store: Store, rows: dict[str, str], gone: dict[str, int], forgotten: dict[str, str]) -> DirectoryRows:
    if max(len(rows), len(gone)) > MOST:
        TROUBLES.met(f"users/{NAME} has {MOST} users, and no others that have no INBOX, or are gone")
        rows = dict(list(rows.items())[-MOST:])
        gone = dict(sorted(gone.items(), key=lambda each: each[1])[-MOST:])
    found = list(store.directory.domains.all())
    return DirectoryRows(rows, {domain: row.access for domain, row in found if row.access}, gone, forgotten,
                         {domain: row.sieve for domain, row in found if row.sieve}, time.time_ns())
