"""The consistency check: every promise that the store keeps on disk, as findings where it is broken.

It runs beside the servers. What a first look finds may be a change that was half seen, so a partition with findings is
looked at again with everything on it held still.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from attrs import frozen

from mboxlist.entry import MailboxEntry
from mboxlist.kv import Txn, transact
from store.index import CHUNK, ROW, Rows, chunk_of_key, is_whole
from store.mailbox import MailboxState
from store.partition import Partition
from store.refs import MessageRecord
from store.store import Store
from store.txn import state_key
from store.values import Flag


@frozen
class Finding:
    """What is wrong, where, and what repairs it."""

    what: str
    where: str
    repair: str


def check(store: Store) -> list[Finding]:
    """All findings; none in a store that is whole."""
    findings = list(_check_list(store))
    for partition in store.partitions.values():
        entries = [entry for entry in store.mailboxes.all() if entry.partition == partition.name]
        if list(_check_partition(partition, entries, None)):
            findings += transact(partition.env, lambda txn, place=partition: list(    # type: ignore[misc]
                _check_partition(place, [entry for entry in store.mailboxes.all() if entry.partition == place.name],
                                 txn)))
    return findings


def _check_list(store: Store) -> Iterator[Finding]:
    ids: dict[int, MailboxEntry] = {}
    for entry in store.mailboxes.all():
        if entry.id in ids:
            yield Finding(f"has the same id as {ids[entry.id].name}", str(entry.name), "reconstruct")
        ids[entry.id] = entry
        if entry.partition not in store.partitions:
            yield Finding(f"is on partition {entry.partition}, which does not exist", str(entry.name), "partition add")
        if entry.name.owner and store.directory.find(entry.name.owner) is None:
            yield Finding("belongs to no user", str(entry.name), "user remove")


def _check_partition(partition: Partition, entries: list[MailboxEntry], txn: Txn) -> Iterator[Finding]:
    uses: dict[bytes, list[int]] = {}           # digest -> references, serial, octets of its file by the records
    charged: dict[str, list[int]] = {}          # quota root -> octets, messages
    listed = {entry.id: entry for entry in entries}
    for entry in entries:
        data = partition.states.get(state_key(entry.id), txn)
        if data is None:
            yield Finding("has no figures", str(entry.name), "reconstruct")
            continue
        state = MailboxState.from_bytes(data, partition.epoch)
        rows, broken = _rows(partition, entry, txn)
        yield from broken
        yield from _check_mailbox(entry, state, rows)
        use = charged.setdefault(entry.quota_root, [0, 0])
        use[0] += int(rows["size"].sum())
        use[1] += len(rows)
        for mid, serial, octets in zip(rows["mid"].tolist(), rows["serial"].tolist(),
                                       (rows["size"] + rows["skip"]).tolist(), strict=True):
            found = uses.setdefault(mid, [0, serial, octets])
            found[0] += 1
            if found[1:] != [serial, octets]:
                yield Finding(f"message {mid.hex()} is not what others say of it", str(entry.name), "reconstruct")
    for key, _ in partition.index.scan(txn=txn, hold=txn is not None):
        if chunk_of_key(key)[0] not in listed:
            yield Finding("records of a mailbox that is not in the list", f"mailbox {chunk_of_key(key)[0]}", "recover")
    yield from _check_quotas(partition, charged, txn)
    yield from _check_messages(partition, uses, txn)


def _rows(partition: Partition, entry: MailboxEntry, txn: Txn) -> tuple[Rows, list[Finding]]:
    start, end = entry.id.to_bytes(4, "big"), (entry.id + 1).to_bytes(4, "big")
    whole, broken = [], []
    for key, value in partition.index.scan(start, end, txn, hold=txn is not None):
        number = chunk_of_key(key)[1]
        if not is_whole(value):
            broken.append(Finding(f"index chunk {number} does not agree with its checksum", str(entry.name),
                                  "reconstruct"))
            continue
        rows = np.frombuffer(value[:-4], ROW)
        if not len(rows) or ((rows["uid"] - 1) // CHUNK != number).any():
            broken.append(Finding(f"index chunk {number} has records that are not its own", str(entry.name),
                                  "reconstruct"))
        whole.append(rows)
    return np.concatenate(whole) if whole else np.empty(0, ROW), broken


def _check_mailbox(entry: MailboxEntry, state: MailboxState, rows: Rows) -> Iterator[Finding]:
    def found(what: str) -> Finding:
        return Finding(what, str(entry.name), "reconstruct")

    uids, flags = rows["uid"].astype(np.int64), rows["flags"]
    if state.uidvalidity != entry.uidvalidity:
        yield found(f"UIDVALIDITY is {state.uidvalidity} in its figures and {entry.uidvalidity} in the list")
    if (np.diff(uids) <= 0).any():
        yield found("UIDs do not ascend")
    if len(uids) and uids.max() >= state.uidnext:
        yield found(f"UID {uids.max()} is not below UIDNEXT {state.uidnext}")
    if len(rows) and int(rows["modseq"].max()) > state.highestmodseq:
        yield found(f"a MODSEQ is above HIGHESTMODSEQ {state.highestmodseq}")
    if state.recent > state.uidnext:
        yield found("the first \\Recent UID is above UIDNEXT")
    if len(rows) and int(np.bitwise_or.reduce(rows["keywords"])) >> len(state.keywords):
        yield found("a message has a keyword that has no name")
    counted = {"messages": len(rows), "octets": int(rows["size"].sum()),
               "unseen": len(rows) - int(np.count_nonzero(flags & np.uint16(Flag.SEEN))),
               "deleted": int(np.count_nonzero(flags & np.uint16(Flag.DELETED)))}
    for name, figure in counted.items():
        if getattr(state, name) != figure:
            yield found(f"{name}: {getattr(state, name)} in its figures, {figure} in its records")


def _check_quotas(partition: Partition, charged: dict[str, list[int]], txn: Txn) -> Iterator[Finding]:
    known = dict(partition.quotas.all(txn))
    for root in sorted(charged.keys() | known.keys()):
        octets, messages = charged.get(root, [0, 0])
        use = partition.quotas.find(root, txn)
        if (use.octets, use.messages) != (octets, messages):
            said, found = f"{use.octets} octets in {use.messages} messages", f"{octets} in {messages}"
            yield Finding(f"quota says {said}, the records {found}", f"quota root {root}", "reconstruct")


def _check_messages(partition: Partition, uses: dict[bytes, list[int]], txn: Txn) -> Iterator[Finding]:
    records = dict(partition.refs.all(txn))
    waiting = {(released, mid) for released, mid in partition.refs.waiting((1 << 32) - 2)}
    for mid in sorted(uses.keys() | records.keys()):
        where = f"message {mid.hex()}"
        record = records.get(mid)
        references, serial, octets = uses.get(mid, [0, 0, 0])
        if record is None:
            yield Finding(f"{references} records refer to it, and nothing is known of it", where, "reconstruct")
            continue
        if record.references != references:
            yield Finding(f"{references} records refer to it, counted are {record.references}", where, "reconstruct")
        if references and (record.serial, record.size) != (serial, octets):
            yield Finding("its records have another serial or size than it has", where, "reconstruct")
        if not record.references and (record.released, mid) not in waiting:
            yield Finding("nothing refers to it, and it does not wait for the purge", where, "purge")
        yield from _check_file(partition, mid, record, where)
    yield from _check_names(partition, records)


def _check_file(partition: Partition, mid: bytes, record: MessageRecord, where: str) -> Iterator[Finding]:
    path = partition.files.locate(mid, record.serial)
    if path is None:
        if record.references:
            yield Finding("its file is missing", where, "restore")
        return
    size = path.stat().st_size
    if size != record.size:
        yield Finding(f"its file has {size} octets instead of {record.size}", where, "restore")
    cached = partition.cached([record.serial])[0]
    if cached is None:
        yield Finding("it has no cache record", where, "reconstruct")
    elif cached.mid != mid or cached.trace != record.trace:
        yield Finding("its cache record is another message's", where, "reconstruct")


def _check_names(partition: Partition, records: dict[bytes, MessageRecord]) -> Iterator[Finding]:
    """Every file in `messages/` belongs there. (Those in `staging/` may be on their way.)"""
    known: Iterable[str] = {mid.hex() for mid in records}
    for path in partition.files.folder.glob("?/??/*"):
        if path.name not in known and partition.refs.find(_digest(path.name)) is None:
            yield Finding("nothing is known of this file", str(path), "scrub")


def _digest(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""

