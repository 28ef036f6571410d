"""Mailboxes to which nobody writes, since they are on their way elsewhere."""

from collections.abc import Iterable

from attrs import evolve

from mboxlist.entry import MailboxId
from store.partition.transactions import WriteTxn
from store.tables.state import at_rest, is_moving, state_key


def hold(txn: WriteTxn, mailboxes: Iterable[MailboxId]) -> None:
    """Nobody writes to these mailboxes from here on."""
    for mailbox in sorted(mailboxes):
        state = txn.any_state(mailbox)
        if state is not None:
            txn.set_state(mailbox, None, evolve(state, moving=True))


def moves_no_more(txn: WriteTxn, mailbox: MailboxId) -> None:
    """The mailbox is where it is: let it be written to. Its figures stay of the epoch that they are of, so that UIDs
    which nobody has seen need not be left out (`uidvalidity.rewind`)."""
    states, key = txn.partition.states, state_key(mailbox)
    data = states.get_to_change(key, txn.handle)
    if data is not None and is_moving(data):
        states.put(key, at_rest(data), txn.handle)
