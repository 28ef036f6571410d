"""The mailboxes of a partition: figures, records, what was expunged, readers' own flags; and quota roots."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxId
from mboxlist.usermoves import Phase
from store.check.filecheck import Messages
from store.errors import StoreError
from store.partition.partition import Partition
from store.progress import Tell, silent
from store.store import Store
from store.tables.counters import counters_of
from store.tables.index import CHUNK, ROW, Rows, chunk_key, chunk_of_key, is_whole, join
from store.tables.quotatable import QuotaUse
from store.tables.state import MailboxState
from store.tables.uidls import is_legal
from store.tables.vanished import ranges_of
from store.values import Finding, Flag

_FLAGS = sum(flag.value for flag in Flag)
NONE = np.empty(0, np.uint32)
UNLIKE = "is not what is known of its message"
ROOT = "quota root "            # begins the place of a finding about one


@frozen(eq=False)
class Mailboxes:
    """What is known of all mailboxes of a partition at once: their figures, and the UIDs of each that can be undeleted.

    Whoever moves a record from a mailbox to those that can be undeleted changes the figures, and leaves the row of its
    message file alone. So, within a transaction, only who has all figures locked knows where every record is.
    """

    states: dict[MailboxId, MailboxState]
    removed: dict[MailboxId, NDArray[np.uint32]]
    unreadable: bool                    # something that was expunged cannot be read
    suspects: dict[str, set[MailboxId]] = field(factory=dict)      # by what is told of them: those that seem wrong

    @classmethod
    def of(cls, partition: Partition, txn: Txn) -> "Mailboxes":
        """Those of a partition; locked in the order in which everybody locks."""
        states = dict(partition.all_states(txn))
        found: dict[MailboxId, list[NDArray[np.uint32]]] = {}
        for item in partition.removed.all(txn=txn):
            found.setdefault(item.mailbox, []).append(item.rows["uid"].copy())
        return cls(states, {mailbox: np.concatenate(uids) for mailbox, uids in found.items()},
                   bool(partition.removed.unreadable(txn)))


def look(store: Store, partition: Partition, mailboxes: Mailboxes, messages: Messages, txn: Txn, tell: Tell = silent
         ) -> Iterator[Finding]:
    """What is wrong; with `txn`, while nothing changes. The references of all records are counted in `messages`."""
    for item in partition.removed.held(txn):
        messages.count(item.mailbox, item.rows, sure=True, held=True)
    if mailboxes.unreadable:
        messages.sure = False
        yield Finding("what was expunged cannot be read", f"removed.db of {partition.name}")
    uses: dict[str, list[int]] = {}
    states, removed = mailboxes.states, mailboxes.removed
    coming = store.mailboxes.moves.mailboxes(Phase.COMING)
    for done, (mailbox, state) in enumerate(states.items()):
        tell(f"{partition.name}: mailboxes", done, len(states))
        for finding in look_at_one(store, partition, mailbox, state, removed.get(mailbox, NONE), txn,
                                   coming=mailbox in coming, messages=messages):
            mailboxes.suspects.setdefault(finding.where, set()).add(mailbox)
            yield finding
        if not state.removed:
            _charge(uses, state)
    yield from _look_at_orphans(partition, set(states), txn)
    yield from _look_at_quota(partition, uses, txn)
    yield from _look_at_heads(partition, txn)


def look_at_one(store: Store, partition: Partition, mailbox: MailboxId, state: MailboxState,
                removed: NDArray[np.uint32], txn: Txn, *, coming: bool, messages: Messages | None = None
                ) -> Iterator[Finding]:
    """What is wrong with one mailbox, of which these UIDs can be undeleted, and which comes from another back end if it
    is `coming`. Without `messages` nobody looks whether the records are what is known of these (`UNLIKE`)."""
    where = _where(store, mailbox)
    rows, broken = _rows(partition, mailbox, where, txn)
    yield from broken
    if messages is not None:
        messages.count(mailbox, rows, sure=not broken)
    if coming or (state.moving or state.removed) and not _is_here(store, partition, mailbox):
        return                              # on its way to or from elsewhere, or being purged
    if state.epoch > partition.epoch:
        yield Finding(f"its figures are of epoch {state.epoch}, its partition has come to {partition.epoch}", where)
    yield from _look_at_mailbox(state, rows, where, whole=not broken)
    for uid in () if messages is None else messages.wrong(rows, partition.private_headers.sizes(rows, txn)):
        yield Finding(f"UID {uid} {UNLIKE}", where)
    yield from _look_at_vanished(partition, mailbox, state, rows, where, txn)
    yield from _look_at_removed(removed, state, rows, where)
    yield from _look_at_own_flags(partition, mailbox, state, where, txn)
    yield from _look_at_uidls(partition, mailbox, rows, where, txn)


def _is_here(store: Store, partition: Partition, mailbox: MailboxId) -> bool:
    found = store.known(mailbox)
    return found is not None and found[0].partition == partition.name


def _charge(uses: dict[str, list[int]], state: MailboxState) -> None:
    use = uses.setdefault(state.quota_root, [0, 0])
    use[0] += state.octets
    use[1] += state.messages


def _where(store: Store, mailbox: MailboxId) -> str:
    found = store.known(mailbox)
    return f"mailbox {mailbox}" if found is None else f"{found[0].name} (deleted)" if found[1] else str(found[0].name)


def _rows(partition: Partition, mailbox: MailboxId, where: str, txn: Txn) -> tuple[Rows, list[Finding]]:
    start, end = chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)
    whole, broken = [np.empty(0, ROW)], []
    for key, value in partition.index.scan(start, end, txn, hold=txn is not None):
        number = chunk_of_key(key)[1]
        if not is_whole(value):
            broken.append(Finding(f"index chunk {number} does not agree with its checksum", where))
            continue
        rows = join((value,))
        if ((rows["uid"].astype(np.int64) - 1) // CHUNK != number).any():
            broken.append(Finding(f"index chunk {number} has records that are not its own", where))
        whole.append(rows)
    return np.concatenate(whole), broken


def _look_at_mailbox(state: MailboxState, rows: Rows, where: str, *, whole: bool) -> Iterator[Finding]:
    def found(what: str) -> Finding:
        return Finding(what, where)

    uids, flags = rows["uid"].astype(np.int64), rows["flags"]
    if (np.diff(uids) <= 0).any():
        yield found("UIDs do not ascend")
    if len(uids) and uids.max() >= state.uidnext:
        yield found(f"UID {uids.max()} is not below UIDNEXT {state.uidnext}")
    if len(rows) and int(rows["modseq"].max()) > state.highestmodseq:
        yield found(f"a MODSEQ is above HIGHESTMODSEQ {state.highestmodseq}")
    if len(rows) and not rows["modseq"].all():
        yield found("a MODSEQ is 0")
    if max(state.changed, state.log_since) > state.highestmodseq:
        yield found(f"it changed after its HIGHESTMODSEQ {state.highestmodseq}")
    if state.recent > state.uidnext:
        yield found("the first \\Recent UID is above UIDNEXT")
    if len(rows) and int(np.bitwise_or.reduce(rows["keywords"])) >> len(state.keywords):
        yield found("a message has a keyword that has no name")
    if len(rows) and int(np.bitwise_or.reduce(flags)) & ~_FLAGS:
        yield found("a message has a flag that does not exist")
    if len({name.lower() for name in state.keywords}) != len(state.keywords):
        yield found("two keywords have the same name")
    for name, figure in counters_of(rows)._asdict().items() if whole else ():
        if getattr(state, name) != figure:
            yield found(f"{name}: {getattr(state, name)} in its figures, {figure} in its records")


def _look_at_vanished(partition: Partition, mailbox: MailboxId, state: MailboxState, rows: Rows, where: str, txn: Txn
                      ) -> Iterator[Finding]:
    items = partition.vanished.all(mailbox, txn)
    octets = sum(len(data) for _, data in items)
    if octets != state.logged:
        yield Finding(f"{state.logged} octets of expunged UIDs in its figures, {octets} on record", where)
    for modseq, data in items:
        pairs = ranges_of(data)
        if pairs is None:
            yield Finding(f"what was expunged at MODSEQ {modseq} cannot be read", where)
        elif modseq > state.highestmodseq or pairs[-1, 1] >= state.uidnext:
            yield Finding(f"what was expunged at MODSEQ {modseq} was never there", where)
        elif (np.searchsorted(rows["uid"], pairs[:, 1], "right") > np.searchsorted(rows["uid"], pairs[:, 0])).any():
            yield Finding(f"a UID that was expunged at MODSEQ {modseq} is still there", where)


def _look_at_removed(uids: NDArray[np.uint32], state: MailboxState, rows: Rows, where: str) -> Iterator[Finding]:
    if len(uids) and uids.max() >= state.uidnext:
        yield Finding(f"UID {uids.max()} was expunged and is not below UIDNEXT {state.uidnext}", where)
    both = np.intersect1d(uids, rows["uid"])
    if len(both):
        yield Finding(f"UID {both[0]} is there and can be undeleted as well", where)


def _look_at_own_flags(partition: Partition, mailbox: MailboxId, state: MailboxState, where: str, txn: Txn
                       ) -> Iterator[Finding]:
    damaged = [(number, reader) for number, reader, _ in partition.readers.damaged(mailbox, txn)]
    for number, reader in damaged:
        yield Finding(f"{reader}'s own flags of chunk {number} do not agree with their checksum", where)
    try:
        for number, reader, own in () if damaged else partition.readers.all(mailbox, txn):
            if own["modseq"].max() > state.highestmodseq:
                yield Finding(f"a MODSEQ of {reader}'s own flags of chunk {number} is above HIGHESTMODSEQ", where)
            if int(np.bitwise_or.reduce(own["flags"])) & ~_FLAGS or number * CHUNK + 1 >= max(state.uidnext, 2):
                yield Finding(f"{reader} has flags of its own in chunk {number} that cannot be", where)
    except StoreError:
        pass                        # damaged since: the second look tells


def _look_at_uidls(partition: Partition, mailbox: MailboxId, rows: Rows, where: str, txn: Txn) -> Iterator[Finding]:
    """The unique-ids of POP3 that messages brought along: each is a message's that is there, and no other's."""
    uidls = partition.uidls.all(mailbox, txn)
    count = partition.uidls.counted(mailbox, txn)
    if count != len(uidls):
        yield Finding(f"{count} messages should have a unique-id of their own, {len(uidls)} have one", where)
    there = set(rows["uid"].tolist())
    for uid, uidl in uidls.items():
        if uid not in there:
            yield Finding(f"UID {uid} has a unique-id of its own and is not there", where)
        elif not is_legal(uidl):
            yield Finding(f"UID {uid} has a unique-id that is none", where)
    if len(set(uidls.values())) != len(uidls):
        yield Finding("two messages have the same unique-id", where)


def _look_at_orphans(partition: Partition, known: set[MailboxId], txn: Txn) -> Iterator[Finding]:
    records = set()
    for key, _ in partition.index.scan(txn=txn, hold=txn is not None):
        records.add(chunk_of_key(key)[0])
    for what, mailboxes in (("records", records), ("readers' own flags", partition.readers.mailboxes(txn)),
                            ("expunged UIDs", partition.vanished.mailboxes(txn)),
                            ("unique-ids", partition.uidls.mailboxes(txn))):
        for mailbox in sorted(mailboxes - known):
            yield Finding(f"{what} of a mailbox that has no figures", f"mailbox {mailbox}")


def _look_at_heads(partition: Partition, txn: Txn) -> Iterator[Finding]:
    """Header fields that messages have of their own: each has one number, up to the last one."""
    for number in partition.private_headers.wrong(txn):
        yield Finding("they have another number, or it will be given again", f"header fields {number}")
    for message in partition.private_headers.left_over(partial(partition.refs.has, txn=txn), txn):
        yield Finding("header fields are kept for a message that is no more", f"message {message.hex()}")


def _look_at_quota(partition: Partition, uses: dict[str, list[int]], txn: Txn) -> Iterator[Finding]:
    """Use is compared with the mailboxes' figures, and these are compared with the records."""
    known = {root for root, _ in partition.quotas.all(txn)}
    for root in sorted(uses.keys() | known):
        octets, messages = uses.get(root, (0, 0))
        wrong = wrong_use(root, partition.quotas.find(root, txn), octets, messages)
        if wrong is not None:
            yield wrong


def wrong_use(root: str, use: QuotaUse, octets: int, messages: int) -> Finding | None:
    """What is wrong where the mailboxes that are charged to that root have so much."""
    if (use.octets, use.messages) == (octets, messages):
        return None
    said, found = f"{use.octets} octets in {use.messages} messages", f"{octets} in {messages}"
    return Finding(f"quota says {said}, the mailboxes {found}", ROOT + root)
