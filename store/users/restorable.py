"""Users who have been forgotten, and can still be had back: what went with them is on record for the purge delay, as
long as their deleted mailboxes are there.

`forgotten.db`: user id -> when, the row of the directory, and what `lifecycle.forget_user` takes away beside the
mailboxes: subscriptions, limits, what the user was granted in others' mailboxes, annotations of its own. (The own flags
that a reader had of shared mailboxes do not come back.)
"""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

from attrs import asdict, evolve, field, frozen

from mboxlist.acl import NEGATIVE
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from store.accounts.base import Status
from store.accounts.builtin import BuiltinDirectory, User
from store.errors import Problem, StoreError
from store.mailboxes import subscribing
from store.mailboxes.deletion import undelete_mailbox
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.quota import limitturns
from store.store import Store
from store.tables.quotatable import DEFAULT, LimitsTurn
from store.userarea import writing
from store.users.lifecycle import concerned, remove_mail, remove_user, restore_user
from store.users.renaming import leave_others, leave_readers


@frozen
class Forgotten:
    """What is kept of a user. `when`: since when (Unix time); `removed`: what the row says of its removal; `limits`: by
    partition and quota root; `granted`: mailbox id, identifier, rights; `annotations`: mailbox id, name, value."""

    user: str
    when: int
    removed: int
    row: str
    mailboxes: tuple[int, ...] = ()
    subscriptions: tuple[str, ...] = ()
    limits: tuple[tuple[str, str, int, int], ...] = ()
    granted: tuple[tuple[int, str, str], ...] = ()
    annotations: tuple[tuple[int, str, str], ...] = ()

    @classmethod
    def from_bytes(cls, user: str, data: bytes) -> "Forgotten":
        """From the stored form."""
        values: dict[str, Any] = json.loads(data)
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(tuple(each) if isinstance(each, list) else each for each in value)
        return cls(user, **values)

    def to_bytes(self) -> bytes:
        """The stored form; the user id is the key."""
        values = asdict(self)
        del values["user"]
        return json.dumps(values).encode()


@frozen
class Back:
    """What came back, or would; `problems` says what did not."""

    user: str
    mailboxes: int
    subscriptions: int
    granted: int
    problems: list[str] = field(factory=list)


def remember(store: Store, user: str, now: float | None = None) -> None:
    """Put on record what is to be taken from a removed user; what a removal that was cut off has put there stays."""
    directory = store.directory
    row, known = directory.user(user), find(store, user)
    if row is None or (known is not None and known.removed == row.account.removed):
        return
    names = (user, NEGATIVE + user)
    record = Forgotten(
        user, int(time.time() if now is None else now), row.account.removed, row.to_bytes().decode(),
        tuple(entry.id for entry in store.names(user)), tuple(subscribing.subscriptions(store, user)),
        tuple((partition.name, root, use.octet_limit, use.message_limit)
              for partition in store.partitions.values()
              for root in (user, *partition.quotas.roots_below(user)) for use in (partition.quotas.find(root),)
              if root != user or (use.octet_limit, use.message_limit) != (DEFAULT, DEFAULT)),
        tuple((entry.id, name, entry.acl[name]) for entry in _entries(store) for name in names if name in entry.acl),
        tuple((int(mailbox), name, base64.b64encode(value).decode())
              for mailbox in list(store.mailboxes.annotations.mailboxes())
              for name, whose, value in list(store.mailboxes.annotations.of(mailbox)) if whose == user))
    transact(store.mailboxes.env, lambda txn: _write(store, record, txn))
    store.mailboxes.env.flush()


def _entries(store: Store) -> Iterator[MailboxEntry]:
    entry: MailboxEntry | None = None
    while some := store.mailboxes.some_after(entry.name if entry is not None else None, 256):
        yield from some
        entry = some[-1]


def _write(store: Store, record: Forgotten, txn: Txn) -> None:
    store.mailboxes.forgotten.put(record.user.encode(), record.to_bytes(), txn)


def find(store: Store, user: str) -> Forgotten | None:
    """What is on record of a user."""
    data = store.mailboxes.forgotten.get(user.encode())
    return None if data is None else Forgotten.from_bytes(user, data)


def everyone(store: Store) -> list[Forgotten]:
    """Who is forgotten and can be had back, in order of user id."""
    return [Forgotten.from_bytes(key.decode(), data) for key, data in list(store.mailboxes.forgotten.scan())]


def due(store: Store, now: float | None = None) -> list[str]:
    """Those of whom nothing need be kept any more."""
    until = (time.time() if now is None else now) - store.settings.purge_delay
    return [record.user for record in everyone(store) if record.when <= until]


@problems()
def drop(store: Store, user: str) -> int:
    """Keep nothing of a user any more; 1."""
    transact(store.mailboxes.env, lambda txn: store.mailboxes.forgotten.delete(user.encode(), txn))
    after_commit(writing.note_user, store, user)
    return 1


@problems()
def undelete_user(store: Store, user: str, *, change: bool = True) -> Back:
    """Have a removed or forgotten user back, with account, mailboxes, subscriptions, limits and rights, or only say
    what would come back. Cut off in the middle it leaves a removed user, with whom it goes on when it is done again.

    Raises StoreError NO_USER, USER_EXISTS, NO_PERMISSION.
    """
    concerned(store, user)
    directory = store.directory
    row, record = directory.user(user), find(store, user)
    if row is not None and row.account.status is not Status.REMOVED:
        raise StoreError(Problem.USER_EXISTS, f"{user} has not been removed")
    if record is None or (row is not None and record.removed != row.account.removed):
        if row is None:
            raise StoreError(Problem.NO_USER, f"Nothing is kept of {user}")
        back = Back(user, len(store.names(user)), len(subscribing.subscriptions(store, user)), 0)
    else:
        if row is None and change:
            record = _put_back(store, directory, record)
        back = _bring_back(store, record, change)
    if change:
        restore_user(store, user)
        if record is not None:
            drop(store, user)
        store.mailboxes.env.flush()
        store.news.tell([entry.id for entry in store.names(user)])
    return back


def _put_back(store: Store, directory: BuiltinDirectory, record: Forgotten) -> Forgotten:
    """The row, as of one who has been removed just now: nobody forgets the user again before all is back."""
    old, now = User.from_bytes(record.user, record.row.encode()), int(time.time())
    row = evolve(old, account=evolve(old.account, removed=now))
    record = evolve(record, removed=now)

    def work(txn: Txn) -> None:
        directory.write(row, txn)
        _write(store, record, txn)

    try:
        transact(store.mailboxes.env, work)
    except StoreError as error:                         # somebody has an alias now that the user had
        if error.problem is not Problem.USER_EXISTS or not old.account.aliases or directory.user(record.user):
            raise
        row = evolve(row, account=evolve(row.account, aliases=()))
        transact(store.mailboxes.env, work)
    store.mailboxes.env.flush()
    return record


def _bring_back(store: Store, record: Forgotten, change: bool) -> Back:
    with limitturns.in_turn(store, record.user) as turn:
        for place, root, octets, messages in record.limits if change else ():
            partition = store.partitions.get(place)
            if partition is not None:
                partition.transact(lambda txn: _limit(txn, root, octets, messages, turn))       # noqa: B023
                partition.flush()
    found = {entry.id: entry for _, entry in list(store.mailboxes.deleted.all())}
    mailboxes, problems = 0, list[str]()
    for mailbox in record.mailboxes:
        entry = found.get(MailboxId(mailbox))
        try:
            if entry is not None and change:
                undelete_mailbox(store, entry.name, mailbox=entry.id)
        except StoreError as error:
            problems.append(f"{entry.name if entry is not None else mailbox}: {error.public}")
        else:
            there = entry is not None or store.mailboxes.find_id(MailboxId(mailbox)) is not None
            mailboxes += there
            if not there:
                problems.append(f"mailbox {mailbox} has been purged")
    if change:
        _have_again(store, record)
    return Back(record.user, mailboxes, len(record.subscriptions), len(record.granted), problems)


def _limit(txn: WriteTxn, root: str, octets: int, messages: int, turn: LimitsTurn) -> None:
    txn.partition.quotas.set_limits(root, octets, messages, txn.handle, turn)


def _have_again(store: Store, record: Forgotten) -> None:
    """Subscriptions, rights and annotations; what is there again already stays."""
    for name in record.subscriptions:
        subscribing.subscribe(store, record.user, name)

    def work(txn: Txn) -> None:
        for mailbox, identifier, held in record.granted:
            entry = store.mailboxes.find_id(MailboxId(mailbox), txn)
            if entry is not None and identifier not in entry.acl:
                store.mailboxes.write(evolve(entry, acl=dict(sorted({**entry.acl, identifier: held}.items()))), txn,
                                      guarded=False)
        for mailbox, name, value in record.annotations:
            if store.mailboxes.find_id(MailboxId(mailbox), txn) is not None:
                store.mailboxes.annotations.set(MailboxId(mailbox), name, base64.b64decode(value), txn, record.user)

    transact(store.mailboxes.env, work)


def forget_user(store: Store, user: str) -> None:
    """Delete the user's mailboxes, and forget the user, who can be had back while the mailboxes can.

    Raises StoreError NO_USER.

    Cut off in the middle it leaves a removed user, of whom it takes the rest when it is done again.
    """
    partitions = concerned(store, user)
    remove_user(store, user)
    remember(store, user)
    remove_mail(store, user)

    leave_others(store, user, None)
    for partition in partitions:
        leave_readers(partition, user, None)
    store.directory.remove(user)
