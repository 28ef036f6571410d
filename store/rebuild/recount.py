"""Figures that are sums of others, counted again from the records: of mailboxes, quota roots and message files."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName, NameProblem
from mboxlist.table import MailboxList
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partition.records import every_reference, sound, sound_rows
from store.partition.transactions import WriteTxn
from store.rebuild.outcome import Correction
from store.rebuild.repair import ALL_FLAGS, fit, repair_mailbox
from store.rebuild.salvage import Counts, broken_chunks
from store.store import Store
from store.tables.index import ROW, Rows, chunk_key, chunk_of_key
from store.tables.references import FOREVER, UNSEEN_TRACE, MessageRecord, marks
from store.tables.state import UNCOUNTED_KEY, MailboxState, counted

log = logging.getLogger(__name__)

CACHED_AT_A_TIME = 1000     # messages whose cache records are looked at, and
PURGED_AT_A_TIME = 10_000   # messages of which it is seen whether they should wait for the purge
# Of a record: its mark; and of its message file the digest, and what messages.db says.
USES = np.dtype([("mark", "<u8"), ("digest", "V32"), ("serial", "<u8"), ("references", "<u4"), ("check", "<u8"),
                 ("size", "<u8"), ("trace", "<u4")])
FIGURES = ("uidvalidity", "uidnext", "highestmodseq", "recent", "messages", "unseen", "deleted", "octets", "logged")


class _Broken(Exception):
    """There is a chunk that cannot be used."""


def recount(store: Store, partition: Partition) -> list[Correction]:
    """Count everything on the partition again, and the tables of rights and aliases, and correct what is wrong; each
    correction. Flushed.

    A mailbox is locked while it is counted; all mailboxes' figures when a quota root seems to have a wrong use; and
    the whole partition when a message file seems to have a wrong count. Raises StoreError BUSY, CORRUPT.
    """
    done = rebuild_rights(store) + reconcile_aliases(store)
    for mailbox in [mailbox for mailbox, _ in partition.all_states()]:
        done += _mend_mailbox(store, partition, mailbox)[0]
    done += recount_quota(partition)
    done += recount_references(partition)
    done += recount_purge(partition)
    done += _rebuild_cached(partition)
    partition.flush()
    return done


def recount_some(store: Store, partition: Partition, mailboxes: Iterable[MailboxId]
                 ) -> tuple[list[Correction], NDArray[Any] | None]:
    """Count these mailboxes and quota again, as `recount` does; and the references to message files over the whole
    partition if something was wrong, or if those from these mailboxes alone cannot be what was counted. If nothing was,
    also the USES of the records, one for each message, for who looks at these next."""
    done: list[Correction] = []
    used, complete = [_no_uses()], True
    for mailbox in mailboxes:
        corrections, uses = _mend_mailbox(store, partition, mailbox)
        done += corrections
        if uses is None:
            complete = False
        else:
            used.append(uses)
    done += recount_quota(partition)
    uses = np.concatenate(used)
    uses = uses.take(np.argsort(uses["serial"], kind="stable"))     # a tenth of what uses[...] takes
    if done or _are_doubtful(uses):
        done += recount_references(partition)
    partition.flush()
    if done or not complete:
        return done, None
    first = np.ones(len(uses), np.bool_)
    first[1:] = uses["digest"][1:] != uses["digest"][:-1]
    return done, uses[first]


def _mend_mailbox(store: Store, partition: Partition, mailbox: MailboxId
                  ) -> tuple[list[Correction], NDArray[Any] | None]:
    """What was done, and the USES of its records; None where it has not looked at any."""
    found = store.known(mailbox)
    if found is None or found[0].partition != partition.name:
        return [], None
    done: list[Correction] = []
    try:
        corrections, uses = partition.transact(lambda txn: _recount_mailbox(txn, *found))
    except _Broken:
        done = repair_mailbox(store, found[0])
        try:
            corrections, uses = partition.transact(lambda txn: _recount_mailbox(txn, *found))
        except _Broken:
            raise StoreError(Problem.CORRUPT, detail=f"{found[0].name} is damaged again") from None
    return done + corrections, uses


def _no_uses() -> NDArray[Any]:
    return np.empty(0, USES)


def _are_doubtful(uses: NDArray[Any]) -> bool:
    """Whether these records, in order of serial, cannot be among those that were counted: there are more of a message
    file than all that were, or they are all and their marks have another sum. Where other mailboxes have the message
    too, that is all that can be said without looking at those."""
    if not len(uses):
        return False
    starts = np.flatnonzero(np.append(True, uses["serial"][1:] != uses["serial"][:-1]))
    counted, said = np.diff(starts, append=len(uses)), uses["references"][starts]
    checks = np.add.reduceat(uses["mark"], starts)
    return bool(((counted > said) | (counted == said) & (checks != uses["check"][starts])).any())


def repair_damaged(store: Store, partition: Partition, mailbox: MailboxId) -> bool:
    """Repair a mailbox in which the partition has met damage; False if it is no longer there. For housekeeping."""
    found = store.known(mailbox)
    if found is None or found[0].partition != partition.name:
        partition.damaged.discard(mailbox)
        return False
    repair_mailbox(store, found[0])
    for correction in recount_references(partition):
        log.warning("repaired %s: %s", correction.where, correction.what)
    return True


def rebuild_rights(store: Store) -> list[Correction]:
    """Have the table of rights say what the list says. What seems to be wrong is looked at again while it stays as it
    is: an ACL may just be changed."""
    listed = store.mailboxes
    doubtful = list(listed.granted.differences(listed.all()))

    def work(txn: Txn) -> list[Correction]:
        wrong = {name for identifier, name, _ in doubtful
                 if listed.granted.correct(identifier, name, _row(listed, name, txn), txn)}
        return [Correction("the table of rights did not agree with its ACL", name) for name in sorted(wrong)]

    done = transact(listed.env, work)
    listed.env.flush()
    return done


def _row(listed: MailboxList, name: str, txn: Txn) -> MailboxEntry | None:
    try:
        return listed.find(MailboxName.parse(name), txn)
    except NameProblem:
        return None


def wrong_rights(store: Store) -> list[Correction]:
    """What `rebuild_rights` would put right."""
    listed = store.mailboxes
    entries = list(listed.all())
    wrong = {name for _, name, _ in listed.granted.differences(entries)}
    return [Correction("the table of rights does not agree with its ACL", name) for name in sorted(wrong)]


def reconcile_aliases(store: Store) -> list[Correction]:
    """Have the table of aliases say what the users' rows say."""
    return [Correction(f"the table of aliases did not agree with user {user}", f"alias {alias}")
            for alias, user, _ in store.directory.reconcile_aliases()]


# After a kill

def note_uncounted(txn: WriteTxn) -> None:
    """References and quota of the partition are to be counted, since figures of mailboxes are put back: on record until
    that is done, also in a copy of the databases."""
    txn.partition.states.put(UNCOUNTED_KEY, os.urandom(8), txn.handle)


def is_uncounted(partition: Partition) -> bool:
    """Whether they are to be counted."""
    return partition.states.get(UNCOUNTED_KEY) is not None


def count_what_is_due(partition: Partition) -> list[Correction]:
    """Count them, if they are to be counted. References to a damaged mailbox are counted when it is repaired."""
    noted = partition.states.get(UNCOUNTED_KEY)
    if noted is None:
        return []
    done = recount_references(partition) + recount_quota(partition)

    def forget(txn: Txn) -> None:
        if partition.states.get_to_change(UNCOUNTED_KEY, txn) == noted:     # else more was put back meanwhile
            partition.states.delete(UNCOUNTED_KEY, txn)

    transact(partition.env, forget)
    return done


# Mailboxes

def _recount_mailbox(txn: WriteTxn, entry: MailboxEntry, removed: int
                     ) -> tuple[list[Correction], NDArray[Any] | None]:
    before = txn.any_state(entry.id)
    if before is None or before.moving:
        if broken_chunks(txn.partition, entry.id):
            raise _Broken
        return [], None
    rows = _sound_rows(txn, entry.id)
    figures = txn.refs.figures(rows["digest"], txn.handle)
    for digest in rows["digest"][figures["trace"] == UNSEEN_TRACE].tolist():
        txn.refs.find(digest, txn.handle)           # raises, unless its file can be read again by now
        raise StoreError(Problem.BUSY, detail=f"message file {digest.hex()} could not be read a moment ago")
    wrong = _correct(txn, before, rows, figures)
    uidls = txn.partition.uidls.correct(entry.id, rows, txn.handle)
    logged = txn.partition.vanished.octets(entry.id, txn.handle)
    after = _counted(before, rows, before.uidvalidity if removed else entry.uidvalidity, logged)
    changes = [f"{name} was {getattr(before, name)}, and is {getattr(after, name)}" for name in FIGURES
            if getattr(before, name) != getattr(after, name)]
    if wrong.any():
        changes.append(f"{np.count_nonzero(wrong)} records were not what the mailbox and the messages say")
    if uidls:
        changes.append(f"{uidls} unique-ids were not those of its messages")
    if changes:
        modseq = after.highestmodseq + 1
        rows["modseq"][wrong] = modseq
        txn.rewrite(entry.id, rows, wrong)
        lost = after.messages < before.messages         # clients hear of every UID that is not there
        txn.set_state(entry.id, before, evolve(after, highestmodseq=modseq, changed=modseq,
                                               log_since=modseq if lost else after.log_since))
    uses = np.empty(len(rows), USES)
    uses["mark"], uses["digest"] = marks(entry.id, rows["uid"]), rows["digest"]
    for name in ("serial", "references", "check", "size", "trace"):
        uses[name] = figures[name]
    return [Correction(what, str(entry.name)) for what in changes], uses


def _sound_rows(txn: WriteTxn, mailbox: MailboxId) -> Rows:
    """The records of all chunks, locked; the array may be changed. Raises _Broken."""
    rows = sound_rows((chunk_of_key(key)[1], value) for key, value in txn.partition.index.scan_to_change(
        chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0), txn.handle))
    if rows is None:
        raise _Broken
    return rows


def _counted(before: MailboxState, rows: Rows, uidvalidity: int, logged: int) -> MailboxState:
    uidnext = max(before.uidnext, int(rows["uid"][-1]) + 1 if len(rows) else 0)
    highest = max(before.highestmodseq, int(rows["modseq"].max()) if len(rows) else 0)
    return counted(evolve(before, uidvalidity=uidvalidity, uidnext=uidnext, highestmodseq=highest,
                          recent=min(before.recent, uidnext), logged=logged), rows)


def _correct(txn: WriteTxn, state: MailboxState, rows: Rows, figures: NDArray[Any]) -> NDArray[np.bool_]:
    """Have the records say nothing that the mailbox and the messages (their FIGURES) do not; which of them were
    changed."""
    keywords = np.uint64((1 << len(state.keywords)) - 1)
    right = (rows["serial"] == figures["serial"]) & (rows["head"] == 0) & (
        rows["size"] + rows["header_length"] == figures["size"]) & (
        (rows["header_length"] == 0) | (rows["header_length"] == figures["trace"]))     # nearly all
    changed: NDArray[np.bool_] = (rows["flags"] & ~ALL_FLAGS != 0) | (rows["keywords"] & ~keywords != 0)
    rows["flags"] &= ALL_FLAGS
    rows["keywords"] &= keywords
    for at in np.flatnonzero(~right & (figures["serial"] != 0)).tolist():
        record, old = MessageRecord.from_bytes(figures[at].tobytes()), rows[at].tobytes()
        rows[at]["serial"] = record.serial
        fit(rows[at], record, txn)
        changed[at] |= rows[at].tobytes() != old
    return changed


# Message files

def recount_references(partition: Partition) -> list[Correction]:
    """Correct the counts of references and their check values; nothing while a chunk is damaged. What was expunged and
    cannot be read is let go of.

    A message whose last record was lost stays, and does not wait for the purge.
    """
    done = []
    if unreadable := partition.removed.unreadable():
        transact(partition.env, lambda txn: partition.removed.discard(unreadable, txn))
        done.append(Correction(f"{len(unreadable)} expunges could not be read", f"removed.db of {partition.name}"))
    try:
        counts = Counts.of(every_reference(partition, usable=_usable))
        if not any(True for _ in counts.differing(partition)) and counts.known.all():
            return done
        return done + transact(partition.env, lambda txn: list(_correct_references(partition, txn)))
    except _Broken:
        return done


def _usable(mailbox: MailboxId, number: int, value: bytes) -> bool:
    if not sound(mailbox, number, value):
        raise _Broken
    return True


def _correct_references(partition: Partition, txn: Txn) -> Iterator[Correction]:
    counts = Counts.of(every_reference(partition, txn, usable=_usable))
    wrong = list(counts.differing(partition, txn))
    for digest, record, references, check in wrong:
        partition.refs.write(digest, evolve(record, references=references, check=check, released=0), txn)
        if references != record.references:
            text = f"{references} records refer to it, counted were {record.references}"
        else:
            text = "the records that refer to it were not those that were counted"
        yield Correction(text + ("" if references else "; its file stays"), f"message {digest.hex()}")
    unknown = counts.serials[~counts.known]
    if len(unknown):
        yield from _take_up(partition, counts, unknown, txn)


def _take_up(partition: Partition, counts: Counts, unknown: NDArray[np.uint64], txn: Txn) -> Iterator[Correction]:
    """Have messages known that records refer to, and whose files are there."""
    found: dict[bytes, Any] = {}
    for _, rows in every_reference(partition, txn, usable=_usable):
        for row in rows[np.isin(rows["serial"], unknown)]:
            known = found.setdefault(bytes(row["digest"]), row)
            if row["header_length"] > known["header_length"]:
                found[bytes(row["digest"])] = row
    for digest, row in sorted(found.items()):
        serial = int(row["serial"])
        path = partition.files.locate(digest, serial)
        if path is None or partition.refs.find(digest, txn) is not None:
            continue
        cached = partition.serials.cached([serial])[0]
        trace = cached.trace if cached is not None and cached.digest == digest else int(row["header_length"])
        at = int(np.searchsorted(counts.serials, serial))
        partition.refs.write(digest, MessageRecord(serial, int(counts.references[at]), path.stat().st_size, trace, 0,
                                                int(counts.checks[at])), txn)
        yield Correction("records refer to it, and nothing was known of it", f"message {digest.hex()}")


def _rebuild_cached(partition: Partition) -> list[Correction]:
    """Rebuild lost cache records. What has no file is left out."""
    done = []
    for digest in chain.from_iterable(lost_cached(partition)):
        row = np.zeros(1, ROW)
        row["digest"] = digest
        try:
            partition.serials.rebuild_cached(row[0])
        except StoreError:
            continue
        done.append(Correction("it had no cache record of its own", f"message {digest.hex()}"))
    return done


# Quota use, the purge list, and messages without cache records

def recount_quota(partition: Partition, wanted: Callable[[str], bool] = lambda root: True, *, change: bool = True
                  ) -> list[Correction]:
    """Have each quota root use what its mailboxes have, or those roots that are `wanted`; without `change` only say
    which do not."""
    if not any(wanted(root) for root, _, _ in _wrong_uses(partition, None)):
        return []

    def work(txn: Txn) -> list[Correction]:
        done = []
        for root, octets, messages in list(_wrong_uses(partition, txn)):
            if not wanted(root):
                continue
            if change:
                partition.quotas.charge(root, octets, messages, txn, enforce=False)
            done.append(Correction(f"the quota's use was wrong by {-octets} octets, {-messages} messages",
                                   f"quota root {root}"))
        return done

    return transact(partition.env, work, reads=not change)


def _wrong_uses(partition: Partition, txn: Txn) -> Iterator[tuple[str, int, int]]:
    """The quota roots whose use is not the sum of their mailboxes; what must be added: octets, messages."""
    uses: dict[str, list[int]] = {}
    for _, state in partition.all_states(txn):
        if not state.removed:
            use = uses.setdefault(state.quota_root, [0, 0])
            use[0] += state.octets
            use[1] += state.messages
    known = dict(partition.quotas.all(txn))
    for root in sorted(uses.keys() | known.keys()):
        octets, messages = uses.get(root, (0, 0))
        said = partition.quotas.find(root, txn)
        if (said.octets, said.messages) != (octets, messages):
            yield root, octets - said.octets, messages - said.messages


def recount_purge(partition: Partition) -> list[Correction]:
    """Have everything wait for the purge that was released."""
    waiting = set(partition.refs.waiting(FOREVER))
    missing = []
    for digests, said in partition.refs.all_figures(PURGED_AT_A_TIME):
        for at in np.flatnonzero((said["released"] != 0) & (said["references"] == 0)).tolist():
            if (int(said["released"][at]), digests[at]) not in waiting:
                missing.append(digests[at])
    for digest in missing:
        transact(partition.env, lambda txn, digest=digest: partition.refs.list_for_purge(digest, txn))       # type: ignore[misc]
    return [Correction("it was released, and did not wait for the purge",
                       f"message {digest.hex()}") for digest in missing]


def lost_cached(partition: Partition) -> Iterator[list[bytes]]:
    """The messages that are in use and have no cache record of their own, of some messages at a time: often none. No
    cursor stays open between two."""
    start = b""
    while batch := list(islice(partition.refs.all(start=start, raw=True), CACHED_AT_A_TIME)):
        used = [(digest, record) for digest, record in batch if record.references]
        digests = [digest for digest, _ in used]
        figures = np.array([(record.serial, record.trace) for _, record in used], np.uint64).reshape(-1, 2)
        sound = partition.serials.are_cached(figures[:, 0], np.frombuffer(b"".join(digests), "V32"), figures[:, 1])
        yield [digests[at] for at in np.flatnonzero(~sound).tolist()]
        start = batch[-1][0] + b"\0"
