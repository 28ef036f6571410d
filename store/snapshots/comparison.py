"""What is different between two snapshots of a store, or a snapshot and the store as it is now."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC
from store.errors import StoreError
from store.opening import open_store
from store.partition.marks import WITHOUT_FILES
from store.settings import Settings
from store.snapshots import taking
from store.snapshots.taking import LIST, Snapshot
from store.store import Store
from store.tables.index import Rows
from store.tables.state import Mailbox


@define
class Difference:
    """Of one mailbox: names before and after ("" where it is not there), UIDs of messages that came, went, or have
    other flags."""

    before: str
    after: str
    added: list[int] = field(factory=list)
    gone: list[int] = field(factory=list)
    flags: list[int] = field(factory=list)
    unreadable: str = ""

    @property
    def what(self) -> str:
        """What became of the mailbox itself."""
        if not self.before:
            return "made"
        if not self.after:
            return "gone"
        return "renamed" if self.before != self.after else "changed"

    @property
    def user(self) -> str:
        """Whose mailbox it is, or was."""
        parts = (self.after or self.before).split("/")
        return PUBLIC if parts[0] + "/" == PUBLIC else parts[1]


def by_user(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """How many mailboxes and messages of each user are different."""
    rows: dict[str, dict[str, Any]] = {}
    for each in found:
        row = rows.setdefault(each.user, {"user": each.user, "made": 0, "gone_mailboxes": 0, "renamed": 0, "added": 0,
                                          "gone": 0, "flags": 0})
        kind = {"made": "made", "gone": "gone_mailboxes", "renamed": "renamed"}.get(each.what)
        if kind:
            row[kind] += 1
        for name in ("added", "gone", "flags"):
            row[name] += len(getattr(each, name))
    return [rows[user] for user in sorted(rows)]


@contextmanager
def opened(snapshot: Snapshot, settings: Settings, scratch: Path | None = None) -> Iterator[Store]:
    """A store with the databases of a snapshot, which is only read, in a folder for the time being in `scratch` (beside
    the snapshot); without message files. Raises StoreError, Failure (of `transact`), OSError."""
    with taking.scratch_folder(snapshot, scratch) as place:
        for name in snapshot.manifest.environments:
            target = place / name
            privatefiles.make_folder(target, parents=True)
            taking.put_back(snapshot, name, target)
            if name != LIST:
                for part in ("messages", "staging", "users"):
                    privatefiles.make_folder(target.parent / part)
        privatefiles.make_folder(place / "run")
        privatefiles.touch(place / WITHOUT_FILES)
        settings = evolve(settings, sync="none", host="", log_archive=None, snapshot_folder=None)
        with closing(open_store(place, settings)) as store:
            yield store


def differences(before: Store, after: Store, user: str | None = None) -> Iterator[Difference]:
    """Every mailbox that is different, of one user or all (the public ones are those of "public/"), in order of name.

    Two stores in which a mailbox has the same figures have the same messages in it.
    """
    old = {entry.id: entry for entry in before.mailboxes.all() if user in (None, entry.name.owner or PUBLIC)}
    new = {entry.id: entry for entry in after.mailboxes.all() if user in (None, entry.name.owner or PUBLIC)}
    for mailbox in sorted({*old, *new}, key=lambda each: str((new.get(each) or old[each]).name)):
        found = _difference(before, old.get(mailbox), after, new.get(mailbox))
        if found.what != "changed" or found.added or found.gone or found.flags or found.unreadable:
            yield found


def _difference(before: Store, old: MailboxEntry | None, after: Store, new: MailboxEntry | None) -> Difference:
    found = Difference(str(old.name) if old else "", str(new.name) if new else "")
    try:
        if old is not None and new is not None and _figures(before, old) == _figures(after, new):
            return found
        one = before.open_mailbox(old) if old is not None else None
        two = after.open_mailbox(new) if new is not None else None
    except StoreError as error:
        found.unreadable = error.detail or error.public
        return found
    if one is not None and two is not None and one.state.uidvalidity == two.state.uidvalidity:
        both, left, right = np.intersect1d(one.uids, two.uids, assume_unique=True, return_indices=True)
        found.gone = np.setdiff1d(one.uids, both).tolist()
        found.added = np.setdiff1d(two.uids, both).tolist()
        names = sorted({*one.state.keywords, *two.state.keywords})
        same = ((one.rows["flags"][left] == two.rows["flags"][right]) &
                (_keywords(one, one.rows[left], names) == _keywords(two, two.rows[right], names)))
        found.flags = both[~same].tolist()
    else:
        found.gone = one.uids.tolist() if one is not None else []
        found.added = two.uids.tolist() if two is not None else []
    return found


def _figures(store: Store, entry: MailboxEntry) -> tuple[int, int, int, int]:
    state = store.status(entry)
    return state.uidvalidity, state.uidnext, state.highestmodseq, state.messages


def _keywords(mailbox: Mailbox, rows: Rows, names: list[str]) -> NDArray[np.uint64]:
    """The keywords of records as bits by these names, since two views may number them in other ways."""
    bits = np.zeros(len(rows), np.uint64)
    for at, name in enumerate(mailbox.state.keywords):
        set_ = rows["keywords"] >> np.uint64(at) & np.uint64(1)
        bits |= set_ << np.uint64(names.index(name))
    return bits
