"""What a mailbox is to be: the value that every source gives, and that the loader puts into a partition.

Its messages' octets are in the files that its records name by their digests.
"""

import contextlib
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.acl import AclProblem, parse_identifier, parse_rights
from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import PUBLIC, SEPARATOR, MailboxName, NameProblem, legal_owner
from mboxlist.table import MailboxList
from store.partition.partition import Partition
from store.quota.roots import root_for
from store.rebuild.userareascan import Source
from store.tables.index import MAX_UID, ROW, Rows
from store.tables.privateheaders import renumbered
from store.tables.quotatable import DOMAIN
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState, counted
from store.userarea.idxfile import OWN, Head

NEW = MailboxId(0)          # the id of a mailbox that is not there yet
MODSEQS = 1 << 62           # no mailbox comes to this MODSEQ, and no message to this arrival serial

Own = tuple[int, str, NDArray[Any]]         # chunk, reader, flags
Note = tuple[str, str, bytes]               # an annotation: entry name, user, value


def _no_rows() -> Rows:
    return np.empty(0, ROW)


@frozen(eq=False)
class DesiredMailbox:
    """A mailbox as it is to be. `removed` is the Unix time at which it was deleted, or 0; `subscriptions` are the
    owner's, in an INBOX; `uidls` see `tables.uidls`. Where `rows`, `own` or `uidls` is None, those that are there stay.

    For a partition in use: one with the id NEW is not there yet; its UIDVALIDITY 0 means a new one, and UIDNEXT and
    HIGHESTMODSEQ are the least that it gets. Of one that is there `state` is what `store.idx` had when it was written;
    records that are `unused` have message files that cannot be used, and may be there; what is not `complete` may lack
    others, too.
    """

    entry: MailboxEntry
    state: MailboxState
    rows: Rows | None
    removed: int = 0
    own: Sequence[Own] | None = ()
    annotations: Sequence[Note] = ()
    subscriptions: Sequence[str] = ()
    uidls: Mapping[int, bytes] | None = field(factory=dict)
    unused: Rows = field(factory=_no_rows)
    complete: bool = True


def new_mailbox(name: MailboxName, rows: Rows | None = None, keywords: Sequence[str] = (), *, uidvalidity: int = 0,
                special_use: str | None = None, own: Sequence[Own] = (), uidls: Mapping[int, bytes] | None = None
                ) -> DesiredMailbox:
    """One that is not there yet, or records that one is to have; `keywords` are what their bits stand for, `own` and
    `uidls` go by their UIDs."""
    entry = MailboxEntry(NEW, name, "", uidvalidity, int(time.time()), special_use)
    state = evolve(MailboxState.new(uidvalidity, 0, ""), keywords=tuple(keywords))
    return DesiredMailbox(entry, state, _no_rows() if rows is None else rows, own=own, uidls=uidls or {})


# Out of the heads of the user area

def entry_of(source: Source, validity: int) -> MailboxEntry:
    """The row of the list that a `store.idx` describes; `validity` where its head has none."""
    head = source.head
    return MailboxEntry(MailboxId(head.id), source.name, source.partition, head.uidvalidity or validity,
                        head.created or int(time.time()), head.special_use, acl_of(head))


def listed(source: Source, entry: MailboxEntry) -> DesiredMailbox:
    """What the list is to have of the mailbox; of its records nothing."""
    head = source.head
    return DesiredMailbox(entry, MailboxState.new(entry.uidvalidity, head.epoch, ""), None, head.removed, None,
                          list(annotations_of(head)), head.subscriptions, None)


def annotations_of(head: Head) -> Iterator[Note]:
    """Those that can be read."""
    for name, values in head.annotations.items():
        for user, value in values.items():
            with contextlib.suppress(ValueError):       # what nobody could have set
                yield name, user, b64decode(value)


def acl_of(head: Head) -> dict[str, str]:
    """The entries that somebody could have set."""
    found = {}
    for identifier, rights in head.acl.items():
        with contextlib.suppress(AclProblem):
            found[parse_identifier(identifier)] = parse_rights(rights)
    return found


def own_of(head: Head, items: NDArray[Any]) -> list[Own]:
    """Readers' own flags, as a `store.idx` has them (`idxfile.OWN`)."""
    assert items.dtype == OWN
    return [(int(item["chunk"]), head.readers[int(item["reader"])], item["own"]) for item in items
            if int(item["reader"]) < len(head.readers) and _is_owner(head.readers[int(item["reader"])])]


def _is_owner(text: str) -> bool:
    try:
        legal_owner(text)
    except NameProblem:
        return False
    return True


def numbered(partition: Partition, rows: Rows, fields: Mapping[int, bytes]) -> Rows:
    """A copy of the records, whose own header fields get the numbers that the partition has for them."""
    return renumbered(rows, partition.transact(
        lambda txn: partition.private_headers.numbers_for(rows, fields, txn.handle)) if fields else {})


def limits_of(found: Iterable[Source], partition: str) -> dict[str, list[int]]:
    """The limits of all domains, and of the roots of those who have mailboxes on the partition: the newest ones."""
    limits: dict[str, list[int]] = {}
    found = sorted(found, key=lambda source: source.head.written)
    for source in found:
        limits |= source.head.limits
    owners = {source.name.owner or PUBLIC[:-1] for source in found if source.partition == partition}
    return {root: limit for root, limit in limits.items()
            if root.startswith(DOMAIN) or root.partition(SEPARATOR)[0] in owners}


# Figures

def is_as_written(state: MailboxState, written: MailboxState | Head) -> bool:
    """Whether nothing has happened to the mailbox since these were its figures."""
    behind = max(0, state.epoch - written.epoch)
    return (state.uidnext, state.highestmodseq) == (written.uidnext + behind * UID_SKIP,
                                                    written.highestmodseq + behind * MODSEQ_SKIP)


def written_state(head: Head) -> MailboxState:
    """The figures of the mailbox when its `store.idx` was written; nothing that is counted."""
    return evolve(MailboxState.new(head.uidvalidity, head.epoch, ""), uidnext=head.uidnext, recent=head.recent,
                  highestmodseq=head.highestmodseq, removed=head.removed, keywords=tuple(head.keywords))


def figures_of(source: Source, partition: Partition, rows: Rows | None = None) -> tuple[int, int]:
    """UIDNEXT and HIGHESTMODSEQ that a file, and its records, say, for the partition's epoch: both skip ahead of what
    may have been shown since the file was written."""
    head, behind = source.head, max(0, partition.epoch - source.head.epoch)
    uidnext, highest = head.uidnext, head.highestmodseq
    if rows is not None:
        uidnext = max(uidnext, int(rows["uid"].max(initial=0)) + 1)
        highest = max(highest, int(rows["modseq"].max(initial=1)))
    return min(uidnext + behind * UID_SKIP, MAX_UID), highest + behind * MODSEQ_SKIP


def state_of(partition: Partition, entry: MailboxEntry, rows: Rows, source: Source | None, *,
             left: MailboxState | None = None, removed: int = 0) -> MailboxState:
    """The state of a mailbox with these records: neither behind what its `store.idx` says, nor behind what is `left` of
    the databases. Its log of expunged UIDs is empty."""
    epoch = partition.epoch
    base = left or MailboxState.new(entry.uidvalidity, epoch, root_for(partition, entry.name))
    uidnext, highest, recent, keywords = base.uidnext, base.highestmodseq, base.recent, base.keywords
    if source is not None:
        figures = figures_of(source, partition, rows)
        uidnext, highest = max(uidnext, figures[0]), max(highest, figures[1])
        recent = max(recent, source.head.recent)
        if left is None or len(source.head.keywords) >= len(keywords):
            keywords = tuple(source.head.keywords)
    elif left is None:                  # nobody knows what it had
        uidnext, highest = 1 + (epoch - 1) * UID_SKIP, 1 + epoch * MODSEQ_SKIP
    uidnext = min(max(uidnext, int(rows["uid"].max(initial=0)) + 1), MAX_UID)
    highest = max(highest, int(rows["modseq"].max(initial=1)))
    return counted(evolve(base, uidvalidity=entry.uidvalidity, uidnext=uidnext, highestmodseq=highest, changed=highest,
                          log_since=highest, logged=0, epoch=epoch, removed=removed, moving=False, keywords=keywords,
                          recent=min(recent, uidnext)), rows)


# The list

def enlist(mailboxes: MailboxList, desired: DesiredMailbox, txn: Txn) -> None:
    """Have the mailbox in the list, with what is there beside its records."""
    entry = desired.entry
    for name, user, value in desired.annotations:
        with contextlib.suppress(ValueError):           # as above
            mailboxes.annotations.set(entry.id, name, value, txn, user)
    if desired.removed:
        mailboxes.deleted.add(entry, desired.removed, txn)
        return
    mailboxes.write(entry, txn)
    if entry.name.is_inbox():
        for name in desired.subscriptions:
            mailboxes.subscriptions.add(entry.name.owner, name, txn)
