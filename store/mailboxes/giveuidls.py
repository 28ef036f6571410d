"""Messages of a mailbox get the unique-ids that they had on another POP3 server (RFC 1939 §7)."""

from collections.abc import Mapping

import numpy as np
from attrs import evolve

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.uidls import is_legal, of_rows


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
