"""Rows of a partition's tables that contradict the mailboxes, or are of none.

Expunged UIDs that cannot be right go, and the log of them begins again: clients then hear of every UID that is not
there (RFC 7162 §3.2.5.1). Index records of a mailbox that has no figures are kept if messages.db counts them: such a
mailbox comes back, by the name that its `store.idx` has.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from attrs import evolve

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from store.errors import StoreError
from store.mend.idxfiles import UserArea, desired_of, skip_ahead
from store.partition.filecontent import trace_of
from store.partition.partition import Partition
from store.partition.records import every_reference, sound
from store.partition.transactions import WriteTxn
from store.rebuild.desired import entry_of, state_of
from store.rebuild.livecorrection import LiveCorrection
from store.rebuild.outcome import Correction, Outcome
from store.rebuild.repair import ALL_FLAGS, mend_own_flags
from store.rebuild.salvage import Counts, readable
from store.rebuild.userareascan import Source, free_name
from store.store import Store
from store.tables.index import CHUNK, Rows, chunk_key, chunk_of_key
from store.tables.references import FOREVER
from store.tables.state import MailboxState
from store.tables.vanished import ranges_of
from store.userarea import idxreading


def correct_leftovers(store: Store, partition: Partition, mailboxes: list[MailboxId]) -> Iterator[Correction]:
    """What hangs on these mailboxes, which are in the list or among the deleted ones. Looks through all that was
    expunged. Raises StoreError."""
    keys: dict[int, list[bytes]] = {}
    for item in partition.removed.all():
        keys.setdefault(item.mailbox, []).append(item.key)
    for mailbox in mailboxes:
        found = store.known(mailbox)
        if found is None or found[0].partition != partition.name:
            continue
        where = f"{found[0].name} (deleted)" if found[1] else str(found[0].name)
        for work in (_own_flags, _vanished, _keywords, _modseqs):
            for what in partition.transact(partial(_of, work, mailbox)):
                yield Correction(what, where)
        if mailbox in keys:
            for what in partition.transact(lambda txn, mailbox=mailbox: _expunged(      # type: ignore[misc]
                    txn, mailbox, keys[mailbox])):
                yield Correction(what, where)


Work = Callable[[WriteTxn, MailboxId], list[str]]


def _of(work: Work, mailbox: MailboxId, txn: WriteTxn) -> list[str]:
    return work(txn, mailbox)


def _state(txn: WriteTxn, mailbox: MailboxId) -> MailboxState | None:
    state = txn.any_state(mailbox)
    return None if state is None or state.moving else state


def _own_flags(txn: WriteTxn, mailbox: MailboxId) -> list[str]:
    state, readers = _state(txn, mailbox), txn.partition.readers
    if state is None:
        return []
    done = [f"{reader}'s own flags of chunk {number} were damaged, and may be others now"
            for number, reader in mend_own_flags(txn, mailbox)]
    state = _state(txn, mailbox) or state
    highest = state.highestmodseq
    for number, reader, own in list(readers.all(mailbox, txn.handle)):
        if number * CHUNK + 1 >= max(state.uidnext, 2):
            readers.forget_chunk(mailbox, number, reader, txn.handle)
            done.append(f"{reader} had flags of its own in chunk {number}, where no message ever was")
        elif (own["flags"] & ~np.uint8(ALL_FLAGS & 0xFF)).any() or own["modseq"].max() > state.highestmodseq:
            own["flags"] &= np.uint8(ALL_FLAGS & 0xFF)
            highest = state.highestmodseq + 1
            own["modseq"] = np.where(own["modseq"] > state.highestmodseq, highest, own["modseq"])
            txn.put_own(mailbox, number, reader, own)
            done.append(f"{reader}'s own flags of chunk {number} could not be")
    if highest > state.highestmodseq:
        txn.set_state(mailbox, state, evolve(state, highestmodseq=highest, changed=highest))
    return done


def _rows(txn: WriteTxn, mailbox: MailboxId) -> Rows:
    return readable(mailbox, txn.partition.index.scan(
        chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0), txn.handle))[0]


def _vanished(txn: WriteTxn, mailbox: MailboxId) -> list[str]:
    state, vanished = _state(txn, mailbox), txn.partition.vanished
    if state is None:
        return []
    uids = None
    for modseq, data in vanished.all(mailbox, txn.handle):
        uids = _rows(txn, mailbox)["uid"] if uids is None else uids
        pairs = ranges_of(data)
        if pairs is None or modseq > state.highestmodseq or pairs[-1, 1] >= state.uidnext or (
                np.searchsorted(uids, pairs[:, 1], "right") > np.searchsorted(uids, pairs[:, 0])).any():
            vanished.forget(mailbox, txn.handle)
            higher = state.highestmodseq + 1
            txn.set_state(mailbox, state, evolve(state, highestmodseq=higher, changed=higher, log_since=higher,
                                                 logged=0))
            return [f"what was expunged at MODSEQ {modseq} could not be: the log of expunged UIDs begins again"]
    return []


def _keywords(txn: WriteTxn, mailbox: MailboxId) -> list[str]:
    """Of two keywords with the same name the later one gets another."""
    state = _state(txn, mailbox)
    if state is None:
        return []
    names: dict[str, str] = {}
    for name in state.keywords:
        free, number = name, 2
        while free.lower() in names:
            free, number = f"{name}-{number}", number + 1
        names[free.lower()] = free
    keywords = tuple(names.values())
    if keywords == state.keywords:
        return []
    modseq = state.highestmodseq + 1
    txn.set_state(mailbox, state, evolve(state, keywords=keywords, highestmodseq=modseq, changed=modseq))
    return ["two keywords had the same name"]


def _modseqs(txn: WriteTxn, mailbox: MailboxId) -> list[str]:
    """No MODSEQ is 0, and no change is after HIGHESTMODSEQ (RFC 7162 §3.1.1)."""
    state = _state(txn, mailbox)
    if state is None:
        return []
    done, rows = [], _rows(txn, mailbox)
    if max(state.changed, state.log_since) > state.highestmodseq:
        done.append("it changed after its HIGHESTMODSEQ")
    wrong = rows["modseq"] == 0
    if wrong.any():
        done.append(f"{np.count_nonzero(wrong)} MODSEQs were 0")
        rows["modseq"][wrong] = state.highestmodseq + 1
        txn.rewrite(mailbox, rows, wrong)
    if done:
        modseq = state.highestmodseq + 1
        txn.set_state(mailbox, state, evolve(state, highestmodseq=modseq, changed=modseq,
                                             log_since=min(state.log_since, modseq)))
    return done


def _expunged(txn: WriteTxn, mailbox: MailboxId, keys: list[bytes]) -> list[str]:
    """What can be undeleted is not there as well, and no UID of it comes again."""
    state, removed = _state(txn, mailbox), txn.partition.removed
    if state is None:
        return []
    done, uids, uidnext = [], _rows(txn, mailbox)["uid"], state.uidnext
    for key in keys:
        item = removed.find_to_change(key, txn.handle)
        if item is None:
            continue
        both = np.isin(item.rows["uid"], uids)
        if both.any():
            removed.replace(item, item.rows[~both], txn.handle)
            done.append(f"{np.count_nonzero(both)} messages were there and could be undeleted as well")
        uidnext = max(uidnext, int(item.rows["uid"].max(initial=0)) + 1)
    if uidnext > state.uidnext:
        modseq = state.highestmodseq + 1
        txn.set_state(mailbox, state, evolve(state, uidnext=uidnext, highestmodseq=modseq))
        done.append("a UID that was expunged would have come again")
    return done


# Rows of mailboxes without figures

def correct_orphans(store: Store, partition: Partition) -> Iterator[Correction]:
    """Bring back the mailboxes of which records, or `store.idx`, are left alone; other rows without figures go."""
    files = UserArea(store)
    unlisted = {MailboxId(source.head.id): source for source in files.unlisted(partition)}
    for mailbox in sorted({*_without_figures(partition), *unlisted}):
        if store.known(mailbox) is not None or partition.any_state(mailbox) is not None:
            continue                                    # its figures are made again
        source = unlisted.get(mailbox) or files.of(partition.name, mailbox)
        rows = readable(mailbox, partition.index.scan(chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)))[0]
        if mailbox in unlisted or len(rows) and (source is not None or _are_counted(partition, mailbox, rows)):
            yield from _revive(store, partition, mailbox, source, rows)
        else:
            transact(partition.env, lambda txn, mailbox=mailbox: _forget(partition, mailbox, txn))  # type: ignore[misc]
            yield Correction("rows of a mailbox that is not there", f"mailbox {mailbox}")


def _revive(store: Store, partition: Partition, mailbox: MailboxId, source: Source | None, rows: Rows
            ) -> Iterator[Correction]:
    """The row and the figures are lost."""
    name = source.name if source is not None else MailboxName("", f"Lost/Recovered ({mailbox})")
    if store.mailboxes.find(name) is not None:
        name = free_name(name, mailbox, [])
    if source is not None:
        entry = evolve(entry_of(source, int(time.time())), id=mailbox, name=name)
    else:
        entry = MailboxEntry(mailbox, name, partition.name, int(time.time()), int(time.time()))
    state = state_of(partition, entry, rows, source)
    partition.transact(lambda txn: txn.set_state(mailbox, None, state))

    def add(txn: Txn) -> None:
        store.mailboxes.skip_identities(entry.id, entry.uidvalidity, txn)
        store.mailboxes.write(entry, txn, guarded=False)

    transact(store.mailboxes.env, add)
    done = Outcome()
    if source is not None:
        with contextlib.suppress(StoreError):
            contents = idxreading.read(source.path)
            LiveCorrection(store, partition, desired_of(partition, entry, 0, contents), done, True).run()
        partition.transact(lambda txn: skip_ahead(txn, mailbox, state))
    yield Correction("its row and its figures were lost", str(name))
    yield from done.corrections


def _without_figures(partition: Partition) -> list[MailboxId]:
    there = {chunk_of_key(key)[0] for key, _ in partition.index.scan()}
    there |= partition.readers.mailboxes() | partition.vanished.mailboxes() | partition.uidls.mailboxes()
    return [MailboxId(mailbox) for mailbox in sorted(there - {mailbox for mailbox, _ in partition.all_states()})]


def _are_counted(partition: Partition, mailbox: MailboxId, rows: Rows) -> bool:
    """Whether messages.db counts these records: nothing fits without them, and something with them."""
    def others(owner: MailboxId, number: int, value: bytes) -> bool:
        return owner != mailbox and sound(owner, number, value)

    without = Counts.of(every_reference(partition, usable=others))
    wrong = {digest for digest, *_ in without.differing(partition)}
    return any(digest in wrong for digest in rows["digest"].tolist())


def _forget(partition: Partition, mailbox: MailboxId, txn: Txn) -> None:
    for key, _ in list(partition.index.scan(chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0), txn)):
        partition.index.delete(key, txn)
    partition.readers.forget(mailbox, txn)
    partition.vanished.forget(mailbox, txn)
    partition.uidls.forget(mailbox, txn)


# Message files, and what waits for the purge

def correct_purge(partition: Partition) -> Iterator[Correction]:
    """Strike from the purge list what nothing is known of, or was not released then."""
    for key, digests in list(partition.refs.lists(FOREVER)):
        wrong = [digest for digest in digests if not partition.refs.waits(key, digest)]
        if wrong:
            transact(partition.env, lambda txn, key=key, wrong=wrong: partition.refs.strike(    # type: ignore[misc]
                key, [digest for digest in wrong if not partition.refs.waits(key, digest, txn)], txn))
        for digest in wrong:
            yield Correction("it was on the purge list, and does not wait for the purge", f"message {digest.hex()}")


def correct_serials(partition: Partition) -> Iterator[Correction]:
    """Each message has an arrival serial of its own, and none of them is given out again."""
    by_serial: dict[int, list[bytes]] = {}
    for digest, record in partition.refs.all(raw=True):
        by_serial.setdefault(record.serial, []).append(digest)
    highest = max(by_serial, default=0)
    if highest >= partition.serials.first_free():
        partition.serials.skip(highest)
        yield Correction(f"the arrival serial {highest} would have been given out again", f"partition {partition.name}")
    for serial, digests in by_serial.items():
        if len(digests) == 1:
            continue
        cached = partition.serials.cached([serial])[0]
        owner = cached.digest if cached is not None and cached.digest in digests else min(digests)
        for digest in digests:
            if digest != owner:
                new = partition.serials.next_serial()
                transact(partition.env, partial(_renumber, partition, digest, serial, new))
                yield Correction(f"it had the arrival serial {serial}, as another message has",
                                 f"message {digest.hex()}")


def _renumber(partition: Partition, digest: bytes, old: int, new: int, txn: Txn) -> None:
    record = partition.refs.find_to_change(digest, txn)
    if record is not None and record.serial == old:
        partition.refs.write(digest, evolve(record, serial=new), txn)


def correct_sizes(partition: Partition) -> Iterator[Correction]:
    """Where messages.db and a file that holds what its name says differ in length, the file is right."""
    for digest, record in list(partition.refs.all()):
        path = partition.files.locate(digest, record.serial)
        if path is None or (size := _size(path)) == record.size and record.trace <= record.size:
            continue
        try:
            found = trace_of(path, digest, [record.trace])
        except (OSError, StoreError):
            found = None
        if found is None:
            continue
        transact(partition.env, lambda txn, digest=digest, found=found: _measure(       # type: ignore[misc]
            partition, digest, found, txn))
        yield Correction(f"messages.db said that its file has {record.size} octets, it has {size}",
                         f"message {digest.hex()}")


def _measure(partition: Partition, digest: bytes, found: tuple[int, int], txn: Txn) -> None:
    record = partition.refs.find_to_change(digest, txn)
    if record is not None:
        partition.refs.write(digest, evolve(record, trace=found[0], size=found[1]), txn)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def correct_headers(partition: Partition) -> Iterator[Correction]:
    """Header fields that messages have of their own have one number each, up to the last one."""
    wrong = transact(partition.env, partition.private_headers.correct)
    if wrong:
        yield Correction(f"{wrong} header fields of single messages had another number", f"partition {partition.name}")

    def forget(txn: Txn) -> list[bytes]:
        over = partition.private_headers.left_over(partial(partition.refs.has, txn=txn), txn)
        partition.private_headers.forget(over, txn)
        return over

    for message in transact(partition.env, forget):
        yield Correction("header fields were kept for a message that is no more", f"message {message.hex()}")
