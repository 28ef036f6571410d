"""Unique-ids of another POP3 server (RFC 1939 §7): a list of them as its answer to UIDL has them, or with UIDs; and
giving them to the messages of a mailbox."""

from collections.abc import Iterable, Mapping

import numpy as np
from attrs import evolve

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.index import Rows
from store.tables.uidls import is_legal, of_rows

LINE_OCTETS = 200           # far more than a number, a unique-id and a size have

Wanted = dict[int, tuple[bytes, int | None]]        # by number or UID: unique-id, and the size if it is there


class BadList(Exception):
    """Why the list cannot be read, in words."""


def parse(lines: Iterable[bytes], *, numbers: bool) -> Wanted:
    """What the lines say, by message number or UID; those that are empty, a dot, or begin with # or + are passed over.

    Raises BadList.
    """
    wanted: Wanted = {}
    for at, line in enumerate(lines, 1):
        words = line[:LINE_OCTETS].split()
        if not words or words == [b"."] or words[0][:1] in (b"#", b"+"):
            continue
        if len(line) > LINE_OCTETS or len(words) > 3 or len(words) < 2 or not words[0].isdigit() \
                or len(words[0]) > 10 or not is_legal(words[1]) or len(words) > 2 and not words[2].isdigit():
            raise BadList(f"line {at}: not a number, a unique-id and perhaps a size")
        number = int(words[0])
        if not numbers and not 0 < number < 1 << 32:
            raise BadList("a UID is between 1 and 4294967295")
        if number in wanted:
            raise BadList(f"line {at}: {number} comes twice")
        wanted[number] = words[1], int(words[2]) if len(words) > 2 else None
    return wanted


def by_uid(wanted: Wanted, rows: Rows, *, numbers: bool) -> dict[int, bytes]:
    """The unique-ids by UID. Raises StoreError GONE where the messages are not those that the list speaks of."""
    if numbers and (beyond := [number for number in wanted if not 1 <= number <= len(rows)]):
        raise StoreError(Problem.GONE, f"there is no message {beyond[0]}: INBOX has {len(rows)}, and must have the "
                                       "same messages in the same order")
    sizes = dict(zip(rows["uid"].tolist(), rows["size"].tolist(), strict=True))
    uids = {number: int(rows["uid"][number - 1]) if numbers else number for number in wanted}
    for number, (_, size) in wanted.items():
        found = sizes.get(uids[number])
        if size is not None and found is not None and found != size:
            raise StoreError(Problem.GONE, f"message {number} has {found} octets, not {size}: it is another one; "
                                           "nothing was changed")
    return {uids[number]: unique for number, (unique, _) in wanted.items()}


def give(store: Store, entry: MailboxEntry, uidls: Mapping[int, bytes]) -> list[int]:
    """Give messages of a mailbox the unique-ids that they had elsewhere; the UIDs of which there is no message.

    Not flushed. Raises StoreError BAD_NAME for what cannot be a unique-id, or is another message's in this mailbox.
    """
    if wrong := next((uid for uid, uidl in uidls.items() if not is_legal(uidl)), None):
        raise StoreError(Problem.BAD_NAME, f"What UID {wrong} is to have is not a unique-id: 1 to 70 octets of "
                                           f"printable ASCII without spaces")
    wanted = sorted(uidls)

    def work(txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        table = txn.partition.uidls
        there = of_rows(uidls, txn.rows_of(entry.id, np.array(wanted, np.uint32)))
        _all_distinct({**table.of(entry.id, txn.handle), **there})
        table.put(entry.id, there, txn.handle)
        # A new HIGHESTMODSEQ says that store.idx has something else to tell, also after a crash.
        modseq = state.highestmodseq + 1
        txn.set_state(entry.id, state, evolve(state, highestmodseq=modseq, changed=modseq))
        return [uid for uid in wanted if uid not in there]

    return store.transact(entry, work)


def _all_distinct(uidls: Mapping[int, bytes]) -> None:
    seen: dict[bytes, int] = {}
    for uid, uidl in uidls.items():
        other = seen.setdefault(uidl, uid)
        if other != uid:
            raise StoreError(Problem.BAD_NAME, f"UID {uid} and UID {other} cannot have the same unique-id")
