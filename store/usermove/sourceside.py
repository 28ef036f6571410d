"""A user leaves: what is done by the back end that a user is moved from. Blocking, for a thread.

Message files and records are sent while everything goes on, again and again until little is new. Then the mailboxes
are held: a change of them waits, or is put off. The rest is sent, and all else that belongs to the mailboxes; the other
back end has it on disk (`ready`). Then comes the one step that decides: a single transaction compares the list with
what was sent, and has the user's row name the other back end. It is on disk before that one hears `activate`; and only
when it has said that the user is there does this one remove what it has.

What a crash leaves, and what follows. `here` and `elsewhere` are what the user's row says at each side; who says
elsewhere puts mail and logins off. A phase is that of the row in `mboxlist.moves`, which is written with it.

    this one             the other one        then
    here                 elsewhere, -         nothing has happened
    here                 elsewhere, COMING    the user is here; the other one's next start or the next try removes that
    here                 elsewhere, READY     the user is here; the next try removes that, and begins again
    elsewhere, GONE      elsewhere, READY     nobody has the user, for as long as it takes: `finish` activates the copy
    elsewhere, GONE      here, HERE           the user is there: `finish` removes what this one has
    elsewhere, LEFT      here, HERE           this one has nothing any more: `finish` tells the other one so
    elsewhere, LEFT      here, -              `finish` removes our row
    elsewhere, -         here, -              done

The first three begin again with another id, so that no copy of an earlier try can be activated. From the fourth on only
`finish` is done, by the same command or by housekeeping, as often as it takes; each of its steps may be done twice.
While the other one has the row HERE, it lets the user go nowhere: so our questions have one answer. The other one
activates what is READY under the id in our row GONE, and we write that row only when it has said `ready`: so both never
have the user. Our copy stays until the other one has said that the user is there: so it is never lost.
"""

import logging
import time
from collections.abc import Callable, Collection
from contextlib import closing

from attrs import evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.usermoves import Move, Phase
from store import hosting
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.partition.transactions import WriteTxn
from store.partitions.partitionmove import Moved, alone
from store.problems import nothing_shown, problems
from store.search.columns import columns_of
from store.store import Store
from store.userarea import writing
from store.usermove.peer import Peer
from store.usermove.sendmailboxes import MailboxSender, Progress

log = logging.getLogger(__name__)

TRIES, PAUSE = 20, 0.5      # to finish a move, and seconds before each: a server is up again in so much time


@frozen
class Gone:
    """What a move came to; `held` is how many seconds the mailboxes could not be written to."""

    moved: Moved
    held: float


@nothing_shown()
@problems()
def send(store: Store, user: str, host: str, connect: Callable[[], Peer], progress: Progress = lambda so_far: None,
         tries: int = TRIES) -> Gone:
    """Move a user to the back end of that name, or finish a move that was cut off, for which there are so many tries.

    Raises StoreError: what kept it from being done. If it was UNAVAILABLE the same call may finish it later.
    """
    with alone(store):
        old = store.mailboxes.moves.find(user)
        if old is not None and old.phase in (Phase.GONE, Phase.LEFT):
            if old.host != host:
                raise StoreError(Problem.BUSY, f"{user} is on the way to {old.host}: finish that first")
            with closing(connect()) as peer:
                finish(store, old, peer)
            return Gone(Moved(), 0.0)
        require_movable(store, user, host)
        store.directory.try_set_host(user)      # once the user has gone it would be too late to find out
        with closing(connect()) as peer:
            sender = MailboxSender(store, user, host, peer, progress)
            move = sender.run()
            try:
                finish(store, move, peer)
            except StoreError as refused:
                _finish_later(store, user, connect, refused, tries)
        return Gone(sender.moved, sender.held)


def _finish_later(store: Store, user: str, connect: Callable[[], Peer], refused: StoreError,
                  tries: int) -> None:
    """The other one may only have been started again. Raises StoreError."""
    for _ in range(tries):
        if refused.problem is not Problem.UNAVAILABLE:
            break
        time.sleep(PAUSE)
        move = store.mailboxes.moves.find(user)
        if move is None:
            return
        try:
            with closing(connect()) as peer:
                finish(store, move, peer)
            return
        except StoreError as again:
            refused = again
    raise StoreError(refused.problem, f"{user} has gone, and the end of the move is due: do it again "
                                      f"({refused.public})", refused.detail)


def require_movable(store: Store, user: str, host: str) -> None:
    """Raises StoreError NO_USER, ELSEWHERE, NO_PERMISSION, BUSY when this back end cannot send the user there."""
    if hosting.require_name(store) == host:
        raise StoreError(Problem.NO_PERMISSION, f"{host} is this back end")
    row = store.directory.user(user)
    if row is None:
        raise StoreError(Problem.NO_USER, f"There is no user {user}")
    if not hosting.is_here(store, row.account):
        raise StoreError(Problem.ELSEWHERE, f"{user} is on {row.account.host}")
    there = store.mailboxes.moves.find(user)
    if there is not None and there.phase is Phase.HERE:
        raise StoreError(Problem.BUSY, f"{there.host} has not finished the move of {user}: do it there again first")
    if row.is_being_renamed:
        raise StoreError(Problem.BUSY, f"{user} is being renamed: finish that first")


@nothing_shown()
@problems()
def finish(store: Store, move: Move, peer: Peer) -> None:
    """Go on from the row GONE to the end. Raises StoreError: UNAVAILABLE, DISK_FULL, and GONE when the other one has no
    copy."""
    store.mailboxes.env.flush()         # our row may have been committed when there was no room to have it on disk
    if move.phase is not Phase.LEFT:
        store.directory.set_host(move.user, move.host)
        peer.activate(move.user, move.id, _access(store, move.user))
        clear(store, move)
    peer.confirm(move.user, move.id)

    def forget(txn: Txn) -> None:
        there = store.mailboxes.moves.find_to_change(move.user, txn)
        if there is not None and there.id == move.id:
            store.mailboxes.moves.forget(move.user, txn)

    store.mailboxes.change(forget)


def _access(store: Store, user: str) -> bytes:
    """The app passwords and the second factor, which go along; b"" where there is nothing that can be read. Nobody
    changes them any more: who would has to find the user here. Raises StoreError UNAVAILABLE."""
    try:
        return AccessFiles(store.root).settled(user).to_bytes()
    except StoreError as error:
        if error.problem is not Problem.CORRUPT:
            raise
        log.error("%s goes without app passwords and second factor: %s", user, error.detail)
        return b""


def moves_to_finish(store: Store) -> list[Move]:
    """The moves for which `finish` is due."""
    return [move for move in store.mailboxes.moves.all() if move.phase in (Phase.GONE, Phase.LEFT)]


def clear(store: Store, move: Move) -> None:
    """Remove all that is left here of a user who has gone; what is cut off is done when it is done again."""
    user = move.user
    AccessFiles(store.root).remove(user)
    live = store.names(user)
    remove_mailboxes(store, live)
    remove_mailboxes(store, [entry for _, entry in store.mailboxes.deleted.all() if entry.name.owner == user])
    for partition in store.partitions.values():
        partition.transact(lambda txn, place=partition: place.quotas.forget_user(user, txn.handle))  # type: ignore[misc]
        partition.flush()

    def forget(txn: Txn) -> None:
        for name in list(store.mailboxes.subscriptions.of(user, txn)):
            store.mailboxes.subscriptions.remove(user, name, txn)
        store.mailboxes.moves.put(evolve(move, phase=Phase.LEFT), txn)

    store.mailboxes.change(forget)


def remove_mailboxes(store: Store, entries: Collection[MailboxEntry]) -> None:
    """Remove mailboxes of somebody who is elsewhere, deleted or not. Their files wait for the purge.

    They are marked before they leave the list: what is cut off then, the next start finishes.
    """
    now = int(time.time())
    ids: dict[str, list[MailboxId]] = {}
    for entry in entries:
        ids.setdefault(entry.partition, []).append(entry.id)

    def doom(txn: WriteTxn) -> None:
        for mailbox in sorted(ids[txn.partition.name]):
            deletion.bury(txn, mailbox, now)
            state = txn.any_state(mailbox)
            if state is not None:
                txn.set_state(mailbox, None, evolve(state, removed=deletion.DOOMED, moving=False))

    def forget(txn: Txn) -> None:
        for entry in entries:
            listed = store.mailboxes.find(entry.name, txn)
            if listed is not None and listed.id == entry.id:
                store.mailboxes.remove(entry.name, txn, guarded=False)
            store.mailboxes.deleted.remove(entry.id, txn)
            store.mailboxes.annotations.forget(entry.id, txn)

    for name in ids:
        store.partition(name).transact(doom)
        store.partition(name).flush()
    store.mailboxes.change(forget)
    for name, those in ids.items():
        deletion.destroy_wholly(store.partition(name), those)
    for entry in entries:
        columns_of(store).forget(entry.id)
        store.partition(entry.partition).views.forget_changes(entry.id)
        writing.note(store, entry)                     # its store.idx has to go
    store.news.tell([entry.id for entry in entries])
