"""When a user last logged in and last read, by day: on record for administrators alone.

The day (UTC) is an annotation of the user's INBOX (`annotations.LAST_USE`), so it is in that mailbox's `store.idx`, and
goes along with the mailbox: when the user is renamed, removed and had back, moved, backed up. A user has at most one
transaction for each on a day, which many users share; `store.net.openlogins` says when.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from attrs import frozen

from mboxlist.annotations import LAST_LOGIN, LAST_READ, Annotations
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from mboxlist.table import MailboxList, MailboxNames
from store.errors import StoreError
from store.problems import problems

if TYPE_CHECKING:
    from store.store import Store


@frozen
class LastUse:
    """The days on which a user was last logged in, and last read a message; None: not since there is a record."""

    login: date | None = None
    read: date | None = None


def of_user(mailboxes: MailboxNames, user: str) -> LastUse:
    """What is on record of a user."""
    entry = mailboxes.find(MailboxName(user, INBOX))
    return LastUse() if entry is None else of_inbox(mailboxes.annotations, entry.id)


def of_inbox(known: Annotations, inbox: MailboxId) -> LastUse:
    """What is on record of the user whose INBOX that is."""
    return LastUse(*(day_of(known.get(inbox, name)) for name in (LAST_LOGIN, LAST_READ)))


def midnight(day: date | None) -> datetime | None:
    """The beginning of a day."""
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def day_of(value: bytes | None) -> date | None:
    """The day that an annotation says; None for one that says none."""
    try:
        return None if value is None else date.fromisoformat(value.decode())
    except ValueError:
        return None


@problems()
def note(store: "Store", users: Mapping[str, bool], now: float) -> int:
    """These users were logged in at that time (Unix time), and have read something where the value is true; how many
    of them this was news of. Of a user whose mailboxes may not be changed now nothing is noted."""
    today = datetime.fromtimestamp(now, UTC).date().isoformat().encode()

    def work(txn: Txn) -> list[MailboxEntry]:
        return [entry for user, read in users.items() if (entry := _note(store.mailboxes, user, read, today, txn))]

    changed = transact(store.mailboxes.env, work)
    for entry in changed:
        after_commit(store.mailboxes.noticed, entry)
    return len(changed)


def _note(mailboxes: MailboxList, user: str, read: bool, today: bytes, txn: Txn) -> MailboxEntry | None:
    """The INBOX, if its annotations have changed."""
    entry = mailboxes.find(MailboxName(user, INBOX), txn)
    if entry is None:
        return None
    known = mailboxes.annotations
    new = [name for name, is_so in ((LAST_LOGIN, True), (LAST_READ, read))
           if is_so and (known.get(entry.id, name, txn=txn) or b"") < today]
    try:
        if new:
            mailboxes.guard(user, txn)
    except StoreError:                  # the user is on the way to another back end, say
        return None
    for name in new:
        known.set(entry.id, name, today, txn)
    return entry if new else None
