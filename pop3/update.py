"""What remains of a session: the UPDATE state (RFC 1939 §6), and flags."""

import logging
from functools import partial

from mboxlist.engine.transact import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import after_commit
from pop3.maildrop import Maildrop, counted
from pop3.settings import Settings
from store import offload
from store.delivery import durable
from store.errors import StoreError
from store.mailboxes import authorization
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.problems import tell_refusal
from store.store import Store
from store.tables.slices import EXPUNGE_UNITS, FLAG_UNITS, UNITS, PartlyDone, sorted_uids, units
from store.values import Flag, FlagAction, Flags

log = logging.getLogger(__name__)

AT_ONCE = UNITS // 2        # of work; more is done in a thread


async def update(store: Store, settings: Settings, drop: Maildrop, who: str) -> int | None:
    """Remove what is marked as deleted, on disk when this returns: so many messages; None when that failed, -1
    when only some of them were removed.

    With it goes what was retrieved, where nothing may be left (RFC 2449 §6.7), and what has expired. Messages that
    others have expunged meanwhile are gone, which is what was asked for. Raises Unflushed: there is no answer then.
    """
    asked = sorted_uids(drop.deleted())
    others = [] if settings.leave_on_server else list(drop.all_sent())
    if settings.expire_removes:
        others += drop.expired
    uids = sorted_uids([*asked, *others]) if others else asked
    if not len(uids):
        return 0
    if not _may(store, drop, "te"):
        log.info("%s: QUIT: the user may not delete", who)
        return None
    before = Commits.total
    try:
        if units(uids, EXPUNGE_UNITS) > AT_ONCE:
            entry = drop.mailbox.entry
            await offload.run(store, "changes", remove, store, entry, uids, user=entry.name.owner)
        else:
            await offload.change(store, lambda: remove(store, drop.mailbox.entry, uids))
        await durable.flushed(store, drop.mailbox.entry)
    except PartlyDone as error:
        tell_refusal(log, logging.WARNING, f"{who}: QUIT", error)
        await durable.flushed(store, drop.mailbox.entry)
        return -1
    except StoreError as error:
        tell_refusal(log, logging.WARNING, f"{who}: QUIT", error)
        return None
    except Unflushed:
        raise
    except Exception as error:
        log.exception("%s: QUIT failed", who)
        unless_committed(before, error)
        return None
    after_commit(_tell_removed, who, len(asked), len(uids) - len(asked) if others else None)
    return len(uids)


def _tell_removed(who: str, asked: int, others: int | None) -> None:
    log.info("%s has deleted %s%s", who, counted(asked), "" if others is None else f", and {others} by policy")


def mark_seen(store: Store, drop: Maildrop, who: str) -> None:
    r"""Set \Seen on what RETR has sent, however the session ended."""
    unseen = sorted_uids(drop.sent_unseen())
    work = partial(change_flags, store, drop.mailbox.entry, unseen, FlagAction.ADD, Flags(Flag.SEEN))
    try:
        if len(unseen) and _may(store, drop, "s"):
            if units(unseen, FLAG_UNITS) > AT_ONCE:
                offload.start(store, "changes", work)
            else:
                offload.sometime(store, work)
    except StoreError as error:
        tell_refusal(log, logging.WARNING, f"{who}: RETR", error)


def _may(store: Store, drop: Maildrop, rights: str) -> bool:
    """Whether the user has these rights on its own INBOX, as it nearly always has (RFC 4314 §4)."""
    entry = drop.mailbox.entry
    return all(authorization.may(store, entry.name.owner, entry, right) for right in rights)
