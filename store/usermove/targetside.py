"""A user arrives: what the back end does that a user is moved to. Blocking, for a thread.

The copy is complete on the partition before anybody can see it: its mailboxes have ids of this list, but no rows in it.
`ready` puts on disk what the list will say (`mboxlist.moves`); `activate` makes that so in one transaction. Until then
the user's row names the other back end, so that mail and logins are put off here.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

from attrs import define, evolve, field

from mboxlist.engine.btree import Txn
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxId
from mboxlist.names import NameProblem, legal_owner
from mboxlist.usermoves import Move, Phase
from store import hosting
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.delivery.batch import BatchStore, SideBySide, one_by_one
from store.errors import Problem, StoreError
from store.mailboxes import placement
from store.partition.partition import Partition
from store.quota import roots
from store.store import Store
from store.userarea import writing
from store.usermove import sourceside
from store.usermove.receivemailboxes import Arrival, drop_copy, put

log = logging.getLogger(__name__)


@define(eq=False)
class IncomingMoves:
    """All users who are on their way to this process: nobody comes twice at the same time."""

    store: Store
    side_by_side: SideBySide = one_by_one
    _busy: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextlib.contextmanager
    def alone(self, user: str) -> Iterator[None]:
        """Nobody else does anything with that user's move. Raises StoreError BUSY."""
        with self._lock:
            if user in self._busy:
                raise StoreError(Problem.BUSY, f"{user} is being moved")
            self._busy.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(user)


# Before and after

def begin(store: Store, user: str, move: str, host: str, place: str, side_by_side: SideBySide = one_by_one
          ) -> Arrival:
    """Begin, whatever an earlier try has left. The user comes from `host`, from a partition of the name `place`.

    Raises StoreError USER_EXISTS, MAILBOX_EXISTS, BAD_NAME, DISK_FULL, UNAVAILABLE.
    """
    partition = look(store, user, place)
    old = store.mailboxes.moves.find(user)
    if old is not None:
        drop_copy(store, old)
    sourceside.remove_mailboxes(store, store.names(user))
    partition.check_room()
    partition.transact(lambda txn: partition.quotas.forget_user(user, txn.handle))
    put(store, Move(user, move, Phase.COMING, host, partition.name))
    return Arrival(store, user, move, host, partition, BatchStore(partition, side_by_side))


def look(store: Store, user: str, place: str) -> Partition:
    """The partition to which the user would come. Raises StoreError USER_EXISTS, MAILBOX_EXISTS, BAD_NAME,
    NO_PERMISSION, UNAVAILABLE."""
    hosting.require_name(store)
    try:
        legal_owner(user)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error
    row = store.directory.user(user)
    if row is not None and hosting.is_here(store, row.account):
        raise StoreError(Problem.USER_EXISTS, f"{user} is on {store.settings.host} already, as its directory says")
    old = store.mailboxes.moves.find(user)
    if old is not None and old.phase in (Phase.GONE, Phase.LEFT):
        raise StoreError(Problem.BUSY, f"{store.settings.host} has not finished the move of {user} to {old.host}: do "
                                       f"it there again first")
    for entry in store.names(user):
        if store.partition_of(entry).state(entry.id).uidnext > 1:
            raise StoreError(Problem.MAILBOX_EXISTS, f"There is mail of {user} on {store.settings.host}: {entry.name}")
    names = [row.account.partition if row is not None else "", place]
    return next((store.partitions[name] for name in names if name in store.partitions),
                None) or store.partition(placement.for_new_mail(store))


def activate(store: Store, user: str, move: str, host: str, access: Access) -> None:
    """The user is here from now on, with these app passwords. No harm if it was done before.

    Raises StoreError GONE when there is no such copy, and DISK_FULL, READ_ONLY, after which nothing has been done.
    """
    _take_access(store, user, move, host, access)

    def work(txn: Txn) -> Move | None:
        mailboxes = store.mailboxes
        there = mailboxes.moves.find_to_change(user, txn)
        if there is None or (there.id, there.host) != (move, host) or there.phase not in (Phase.READY, Phase.HERE):
            raise StoreError(Problem.GONE, f"There is no copy of {user} here for that move")
        if there.phase is Phase.HERE:
            return None
        hosting.set_row_host(store, user, store.settings.host, txn)
        for planned in there.planned:
            if planned.removed:
                mailboxes.deleted.add(planned.entry, planned.removed, txn)
            else:
                mailboxes.write(planned.entry, txn)
        for name in list(mailboxes.subscriptions.of(user, txn)):
            mailboxes.subscriptions.remove(user, name, txn)
        for name in there.subscriptions:
            mailboxes.subscriptions.add(user, name, txn)
        validity = max((planned.entry.uidvalidity for planned in there.planned), default=0)
        mailboxes.skip_identities(MailboxId(0), validity, txn)
        mailboxes.moves.put(evolve(there, phase=Phase.HERE, planned=(), subscriptions=(), mailboxes=()), txn)
        return there

    done = store.mailboxes.change(work)
    if done is not None:
        for planned in done.planned:
            writing.note(store, planned.entry)
        store.news.tell([planned.entry.id for planned in done.planned])
        after_commit(roots.recharge_renamed, store, user)       # a root may have been made while they were held
        log.info("%s is here now, from %s", user, done.host)


def _take_access(store: Store, user: str, move: str, host: str, access: Access) -> None:
    """Have them before the user is here, and not again afterwards: they may have been changed since."""
    there = store.mailboxes.moves.find(user)
    if there is None or (there.id, there.host, there.phase) != (move, host, Phase.READY):
        return
    files = AccessFiles(store.root)
    if files.path(user).exists():               # from an earlier stay
        files.remove(user)
    if not access.is_empty:
        files.change(user, lambda _: access)


def confirm(store: Store, user: str, move: str, host: str) -> None:
    """The other back end knows that the user is here."""
    def work(txn: Txn) -> None:
        there = store.mailboxes.moves.find_to_change(user, txn)
        if there is not None and (there.id, there.host) == (move, host) and there.phase is Phase.HERE:
            store.mailboxes.moves.forget(user, txn)

    store.mailboxes.change(work)


def drop(store: Store, user: str, move: str, host: str) -> None:
    """The move is given up. No harm if there is none."""
    there = store.mailboxes.moves.find(user)
    if there is not None and (there.id, there.host) == (move, host) and there.phase in (Phase.COMING, Phase.READY):
        drop_copy(store, there)
