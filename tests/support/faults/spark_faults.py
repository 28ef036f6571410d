"""Faults planted in a store that is closed, of many kinds, each where no other one is."""

import hashlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from mboxlist.engine.transact import transact
from store.opening import open_store
from store.partition.partition import Partition
from store.settings import Settings
from store.store import Store
from store.tables.index import chunk_key, chunk_of_key, decode, encode, is_whole
from store.tables.state import state_key
from store.userarea.writing import right_place

QUIET = Settings(cache=8 << 20, disk_reserve=0, database_locks=200_000, special_mailboxes=())
LOSSES = ("message-missing", "message-octets", "message-cut", "message-long", "message-other")


@frozen
class Planted:
    """A fault: the kind under which it is to be found, and where."""

    kind: str
    where: str


class Planter:
    """Plants faults on the partition "primary"; every message file and mailbox gets one at most."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.partition: Partition = store.partitions["primary"]
        self.chance = random.Random(seed)
        held = self.partition.removed.counts()
        known = {digest: record for digest, record in self.partition.refs.all() if record.references > held[digest]}
        self.records = known
        self.messages = sorted(known)
        self.chance.shuffle(self.messages)
        self.boxes = [mailbox for mailbox, state in self.partition.all_states() if state.messages > 2]
        self.chance.shuffle(self.boxes)
        self.roots = [root for root, use in self.partition.quotas.all() if use.messages]
        self.used: set[bytes] = set()
        self.copied = self.messages.pop()           # a whole file

    def file(self) -> tuple[bytes, Path]:
        """A message file that has no fault yet."""
        while (digest := self.messages.pop()) in self.used:
            continue
        self.used.add(digest)
        return digest, Path(self.partition.files.path(digest))

    def idx(self) -> Path:
        """The store.idx of a mailbox that has no fault yet."""
        found = self.store.known(self.boxes.pop())
        assert found is not None
        return right_place(self.partition, *found)

    def plant(self, kind: str) -> Planted:
        """One fault."""
        return Planted(kind, FAULTS[kind](self))


def _missing(planter: Planter) -> str:
    digest, path = planter.file()
    path.unlink()
    return f"message {digest.hex()}"


def _octets(planter: Planter) -> str:
    digest, path = planter.file()
    data = bytearray(path.read_bytes())
    data[-planter.chance.randrange(1, 20)] ^= 1 << planter.chance.randrange(8)      # a trace header has no digest
    path.write_bytes(data)
    return f"message {digest.hex()}"


def _cut(planter: Planter) -> str:
    digest, path = planter.file()
    data = path.read_bytes()
    path.write_bytes(data[:planter.chance.randrange(len(data))])
    return f"message {digest.hex()}"


def _long(planter: Planter) -> str:
    digest, path = planter.file()
    path.write_bytes(path.read_bytes() + b"more\r\n")
    return f"message {digest.hex()}"


def _other(planter: Planter) -> str:
    digest, path = planter.file()
    path.write_bytes(Path(planter.partition.files.path(planter.copied)).read_bytes())
    return f"message {digest.hex()}"


def _misnamed(planter: Planter) -> str:
    digest, path = planter.file()
    new = Path(planter.partition.files.path(hashlib.blake2b(digest, digest_size=32).digest()))
    if planter.chance.randrange(2):             # in the wrong folder, under the right name
        new = path.parents[1] / f"{int(path.parent.name, 16) ^ 1:02x}" / path.name
    path.rename(new)
    return str(new)


def _stranger(planter: Planter) -> str:
    data = b"Subject: nobody's\r\n\r\n%d\r\n" % planter.chance.getrandbits(60)
    path = Path(planter.partition.files.path(hashlib.blake2b(data, digest_size=32).digest()))
    if planter.chance.randrange(3) == 0:
        path = path.with_name("letter.txt")
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)


def _idx_missing(planter: Planter) -> str:
    path = planter.idx()
    path.unlink()
    return str(path)


def _idx_cut(planter: Planter) -> str:
    path = planter.idx()
    data = path.read_bytes()
    path.write_bytes(data[:planter.chance.randrange(600, len(data))])
    return str(path)


def _idx_flip(section: bytes) -> Callable[[Planter], str]:
    def flip(planter: Planter) -> str:
        path = planter.idx()
        data = bytearray(path.read_bytes())
        entries = [struct.unpack_from("<8sQQII", data, 16 + 32 * number) for number in range(data[12])]
        start, size = next(entry[1:3] for entry in entries if entry[0].rstrip(b"\0") == section)
        data[start + planter.chance.randrange(size)] ^= 1 << planter.chance.randrange(8)
        path.write_bytes(data)
        return str(path)
    return flip


def _idx_place(planter: Planter) -> str:
    path = planter.idx()
    top = planter.partition.folder / "users" / "public" / f"stray{planter.chance.getrandbits(40)}"
    top.mkdir(0o700, parents=True)
    (top / path.name).write_bytes(path.read_bytes())
    (top / path.name).chmod(0o600)
    return str(top / path.name)


def _chunk(work: Callable[[Planter, Any], Any]) -> Callable[[Planter], str]:
    """Spoil one chunk of a mailbox: `work` gives its new value for its records."""
    def change(planter: Planter) -> str:
        mailbox, partition = planter.boxes.pop(), planter.partition
        found = planter.store.known(mailbox)
        assert found is not None
        items = list(partition.index.scan(chunk_key(mailbox, 0), chunk_key(type(mailbox)(mailbox + 1), 0)))
        key, value = planter.chance.choice([item for item in items if len(item[1]) > 200])
        assert is_whole(value) and chunk_of_key(key)[0] == mailbox
        new = work(planter, value)
        transact(partition.env, lambda txn: partition.index.put(key, new, txn))
        return str(found[0].name)
    return change


def _without_one(planter: Planter, value: bytes) -> bytes:
    rows = decode(value)
    at = planter.chance.randrange(len(rows))
    planter.used.add(bytes(rows["digest"][at]))
    return encode(np.delete(rows, at))


def _other_flags(planter: Planter, value: bytes) -> bytes:
    rows = decode(value)
    at = planter.chance.randrange(len(rows))
    rows["flags"][at] ^= 2
    rows["received"][at] += 1
    return encode(rows)


def _flipped(planter: Planter, value: bytes) -> bytes:
    data = bytearray(value)
    data[planter.chance.randrange(len(data))] ^= 1 << planter.chance.randrange(8)
    return bytes(data)


def _figures(planter: Planter) -> str:
    mailbox, partition = planter.boxes.pop(), planter.partition
    found = planter.store.known(mailbox)
    assert found is not None
    state = dict(partition.all_states())[mailbox]
    wrong = evolve(state, unseen=state.unseen + 3).to_bytes()
    transact(partition.env, lambda txn: partition.states.put(state_key(mailbox), wrong, txn))
    return str(found[0].name)


def _count(planter: Planter) -> str:
    digest, _ = planter.file()
    record, partition = planter.records[digest], planter.partition
    transact(partition.env, lambda txn: partition.refs.write(
        digest, evolve(record, references=record.references + 1), txn))
    return f"message {digest.hex()}"


def _cached(planter: Planter) -> str:
    digest, _ = planter.file()
    record, partition = planter.records[digest], planter.partition
    transact(partition.env, lambda txn: partition.serials.forget_cached(record.serial, txn))
    return f"message {digest.hex()}"


def _quota(planter: Planter) -> str:
    root = planter.roots.pop()
    planter.partition.transact(lambda txn: txn.charge_root(root, 4711, 1, enforce=False))
    return f"quota root {root}"


def _rights(planter: Planter) -> str:
    name, listed = f"user/nobody/Box{planter.chance.getrandbits(40)}", planter.store.mailboxes
    key = b"anyone\0" + name.encode()
    transact(listed.env, lambda txn: listed.granted._table.put(key, b"", txn))
    return name


FAULTS: dict[str, Callable[[Planter], str]] = {
    "message-missing": _missing, "message-octets": _octets, "message-cut": _cut, "message-long": _long,
    "message-other": _other, "message-misnamed": _misnamed, "message-stranger": _stranger,
    "idx-missing": _idx_missing, "idx-cut": _idx_cut, "idx-rows": _idx_flip(b"rows"), "idx-head": _idx_flip(b"head"),
    "idx-place": _idx_place, "index-missing": _chunk(_without_one), "index-different": _chunk(_other_flags),
    "index-chunk": _chunk(_flipped), "index-figures": _figures, "references-count": _count, "cache-record": _cached,
    "quota-use": _quota, "rights-table": _rights,
}


def plant(root: Path, count: int, seed: int, settings: Settings = QUIET) -> list[Planted]:
    """So many faults, of all kinds in turn."""
    store = open_store(root, settings)
    try:
        planter, kinds = Planter(store, seed), list(FAULTS)
        # Index records first: then no message file with a fault is one of which a record goes.
        order = sorted((kinds[number % len(kinds)] for number in range(count)), key=lambda kind: kind[:5] != "index")
        return [planter.plant(kind) for kind in order]
    finally:
        store.close()
