"""What the model has the store do, in whatever process; plain values go in and come out."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Duplicate, Target
from store.errors import Problem, StoreError
from store.mailboxes import authorization, deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.quota import roots
from store.store import Store
from store.tables import vanished
from store.tables.quotatable import UNLIMITED
from store.tables.state import Mailbox
from store.values import Flag, FlagAction, Flags
from tests.store.model.expected import MAILBOX_LIMIT, PURGE_DELAY, Reference
from tests.support.stores.purging import purge, purge_mailboxes
from tests.support.stores.stores import SMALL

SETTINGS = evolve(SMALL, mailbox_limit=MAILBOX_LIMIT, purge_delay=PURGE_DELAY, private_flags="seen flagged")
LOG_LIMIT = 96              # octets of a mailbox's log of expunges: so few that it is trimmed
ENVIRONMENTS = ("mboxlist", "partitions/primary/index")
BEGAN, SLOWLY = time.time_ns(), 1e-4
OUTSIDE = ("generations", "partitions/primary/users")   # what a process that leaves writes besides

Row = tuple[int, bytes, Flag, frozenset[str], int]      # UID, text, flags, keywords, MODSEQ


@define(eq=False)
class Seat:
    """A place from which the store is used: a process has one. `now` is what its clock says."""

    store: Store | None = None
    now: float = 0
    views: dict[tuple[int, str], Mailbox] = field(factory=dict)

    def sit(self) -> Callable[[], None]:
        """From now on this process's clock is the seat's, and logs of expunges are short; gives what ends that."""
        clock, nanoseconds, limit = time.time, time.time_ns, vanished.LIMIT
        # It goes on, though slowly, in all processes alike: files and tables are compared by when they were written.
        time.time = lambda: self.now + (nanoseconds() - BEGAN) * SLOWLY / 1e9
        time.time_ns = lambda: int(self.now) * 10 ** 9 + int((nanoseconds() - BEGAN) * SLOWLY)
        vanished.LIMIT = LOG_LIMIT

        def stand() -> None:
            time.time, time.time_ns, vanished.LIMIT = clock, nanoseconds, limit

        return stand

    def do(self, now: int, act: str, arguments: tuple[Any, ...]) -> Any:
        """The outcome of an act; a Problem when it was refused."""
        self.now = now
        try:
            return ACTS[act](self, *arguments)
        except StoreError as refusal:
            return refusal.problem

    def entry(self, of: Reference) -> MailboxEntry:
        """The mailbox of that name; or as somebody remembers it who has not heard of its end."""
        if isinstance(of, str):
            return self.store.entry(MailboxName.parse(of))
        return MailboxEntry(of[1], MailboxName.parse(of[0]), "primary", of[2], 1)

    def flush(self) -> None:
        """As before an answer to a client."""
        for partition in self.store.partitions.values():
            partition.env.flush()

    # Coming and going

    def open(self, root: Path) -> None:
        self.store = open_store(root, SETTINGS)

    def close(self) -> None:
        self.store.close()
        self.store = None
        self.views.clear()

    def image(self, into: Path) -> None:
        """What a crash now would leave: not what the log buffers hold in memory."""
        for name in (*ENVIRONMENTS, *OUTSIDE):
            shutil.copytree(self.store.root / name, into / name)

    # Acts

    def deliver(self, targets: list[Reference], body: bytes, trace: bytes, flags: Flag, words: tuple[str, ...],
                reader: str, headers: list[bytes] = [], window: int = 0) -> list[int | str | Problem]:  # noqa: B006
        entries = [self.entry(each) for each in targets]
        staged = self.store.stage(entries[0], trace)
        staged.write(body)
        outcomes = offload.now(durable.deliver(self.store, staged, [
            Target(entry, Flags(flags, words), appended=bool(reader), reader=reader,
                   own=self.store.private_bits(entry, reader), suppress=window,
                   header=headers[at % len(headers)] if headers else b"") for at, entry in enumerate(entries)]))
        return [each.uid if isinstance(each, Delivered) else "again" if isinstance(each, Duplicate) else each.problem
                for each in outcomes]

    def copy(self, source: Reference, target: Reference, uids: list[int], remove: bool, reader: str) -> list[int]:
        made = copy_messages(self.store, self.entry(source), self.entry(target), uids, remove=remove, reader=reader)
        self.flush()
        return made

    def change_flags(self, of: Reference, uids: list[int], action: FlagAction, flags: Flag, words: tuple[str, ...],
                     reader: str) -> list[int]:
        gone = change_flags(self.store, self.entry(of), uids, action, Flags(flags, words), reader)
        self.flush()
        return gone.tolist()

    def expunge(self, of: Reference, uids: list[int] | None) -> list[int]:
        gone = expunge(self.store, self.entry(of), uids)
        self.flush()
        return gone

    def remove(self, of: Reference, uids: list[int]) -> list[int]:
        gone = remove(self.store, self.entry(of), uids)
        self.flush()
        return gone

    def deleted_messages(self, of: Reference, since: int) -> list[tuple[int, int, int]]:
        found = deletion.deleted_messages(self.store, self.entry(of), since=since)
        return [(each.when, each.uid, each.size) for each in found]

    def undelete_messages(self, of: Reference, since: int, uids: list[int] | None) -> list[int]:
        return deletion.undelete_messages(self.store, self.entry(of), since=since, uids=uids)

    def claim_recent(self, of: Reference) -> tuple[int, int]:
        found = self.store.claim_recent(self.entry(of))
        self.flush()
        return found

    def create(self, name: str) -> tuple[int, int]:
        entry = namespace.create_mailbox(self.store, MailboxName.parse(name))
        return entry.id, entry.uidvalidity

    def delete(self, name: str) -> None:
        deletion.delete_mailbox(self.store, MailboxName.parse(name))

    def undelete(self, name: str, new: str) -> tuple[int, int]:
        entry = deletion.undelete_mailbox(self.store, MailboxName.parse(name), new_name=MailboxName.parse(new))
        return entry.id, entry.uidvalidity

    def rename(self, old: str, new: str) -> None:
        namespace.rename_mailbox(self.store, MailboxName.parse(old), MailboxName.parse(new))

    def set_acl(self, name: str, identifier: str, modification: str) -> None:
        authorization.set_acl(self.store, MailboxName.parse(name), identifier, modification)

    def set_quota(self, root: str, octets: int | None, messages: int | None) -> None:
        roots.set_quota(self.store, root, *(UNLIMITED if limit is None else limit for limit in (octets, messages)))

    def remove_quota_root(self, root: str) -> None:
        roots.remove_quota_root(self.store, root)

    def snapshot(self) -> None:
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now))
        (self.store.root / "snapshots" / name).mkdir(parents=True, exist_ok=True)

    def forget_snapshots(self) -> None:
        shutil.rmtree(self.store.root / "snapshots", ignore_errors=True)

    def purge(self) -> None:
        purge_mailboxes(self.store, self.now)
        for partition in self.store.partitions.values():
            while purge(partition, self.now):
                pass
            partition.env.flush()

    # Looking

    def check(self) -> list[str]:
        return [str(finding) for finding in check(self.store)]

    def deleted(self, name: str) -> tuple[int, int, int]:
        """The mailbox last deleted under that name: when, id, UIDVALIDITY."""
        return max((when, entry.id, entry.uidvalidity) for when, entry in self.store.mailboxes.deleted.all()
                   if str(entry.name) == name)

    def names(self, owner: str) -> list[str]:
        return [str(entry.name) for entry in self.store.names(owner)]

    def look(self, name: str, reader: str, since: list[int]) -> dict[str, Any]:
        """All of a mailbox as the reader sees it, and what went after each of the MODSEQs `since`.

        A view that was kept and brought up to date must be what a new one is.
        """
        entry = self.entry(name)
        fresh = self.store.open_mailbox(entry, reader)
        kept = self.store.refresh(self.views.get((entry.id, reader), fresh))
        self.views[entry.id, reader] = kept
        assert kept.rows.tobytes() == fresh.rows.tobytes(), "a refreshed picture is not what there is"
        assert _figures(kept) == _figures(fresh), "a refreshed picture has other figures"
        gone = [self.store.vanished(entry, each) for each in since]
        state, status = fresh.state, self.store.status(entry, reader)
        assert (state.highestmodseq, state.messages) == (status.highestmodseq, status.messages)
        return {
            "rights": set(authorization.rights(self.store, reader, entry)),
            "id": entry.id, "validity": (entry.uidvalidity, state.uidvalidity), "uidnext": state.uidnext,
            "highest": state.highestmodseq, "root": state.quota_root, "words": sorted(state.keywords),
            "figures": (state.messages, status.unseen, state.deleted, state.octets),
            "rows": [self._row(entry, fresh, row) for row in fresh.rows],
            "gone": [None if uids is None else uids.tolist() for uids in gone]}

    def _row(self, entry: MailboxEntry, mailbox: Mailbox, row: Any) -> Row:
        with self.store.open_message(entry, row) as file:
            text = file.read(0, file.size)
        assert len(text) == int(row["size"])
        return (int(row["uid"]), text, Flag(int(row["flags"])), frozenset(mailbox.keyword_names(int(row["keywords"]))),
                int(row["modseq"]))

    def quota(self, root: str) -> tuple[int, int]:
        use = roots.quota(self.store, root)
        return use.octets, use.messages

    def references(self) -> dict[bytes, tuple[int, int]]:
        """Digest of each message file that is known -> references, check value."""
        found = self.store.partitions["primary"].refs.all()
        return {own_digest: (record.references, record.check) for own_digest, record in found}

    def files(self, digests: list[bytes]) -> list[bool]:
        """Whether there is a file of that digest."""
        there = self.store.partitions["primary"].files
        return [os.path.exists(there.path(own_digest)) for own_digest in digests]


ACTS: dict[str, Callable[..., Any]] = {
    name: value for name, value in vars(Seat).items() if callable(value) and not name.startswith("_")}


def _figures(mailbox: Mailbox) -> bytes:
    """Without those that change without a new HIGHESTMODSEQ."""
    return evolve(mailbox.state, recent=0, quota_root="").to_bytes()


def digest(body: bytes) -> bytes:
    """The name of the message file with that content."""
    return hashlib.blake2b(body, digest_size=32).digest()
