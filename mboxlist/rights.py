"""Which mailboxes each identifier may look up: the table `rights.db`, so that LIST need not read every ACL there is.

It holds what the ACLs grant; what they take away again is decided on the few mailboxes found here. It is kept in the
transaction that writes the row of the mailbox (`MailboxList.write`).
"""

from collections.abc import Iterable, Iterator

from attrs import define

from mboxlist.acl import NEGATIVE
from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxEntry
from mboxlist.names import SEPARATOR, MailboxName

LOOKUP = "l"
_MARK = b"\x00"
_SEPARATOR = SEPARATOR.encode()
_AFTER_SEPARATOR = bytes([_SEPARATOR[0] + 1])       # every name below one is before this


@define(eq=False)
class Granted:
    """The table: identifier, then the canonical name of a mailbox that it may look up."""

    _table: Table

    def update(self, old: MailboxEntry | None, new: MailboxEntry | None, txn: Txn) -> None:
        """A row of the list was `old` and is `new`; None: it was not, or is no more, there."""
        before, after = _keys(old), _keys(new)
        for key in before - after:
            self._table.delete(key, txn)
        for key in after - before:
            self._table.put(key, b"", txn)

    def of(self, identifiers: Iterable[str], txn: Txn = None) -> set[MailboxName]:
        """The mailboxes that any of them may look up; in a transaction that stays so to its end."""
        return set(self.all_of(identifiers, txn))

    def all_of(self, identifiers: Iterable[str], txn: Txn = None) -> Iterator[MailboxName]:
        """What `of` gives, one after the other; some may come several times. Close the iterator if it is left early."""
        for identifier in identifiers:
            start = identifier.encode() + _MARK
            for key, _ in self._table.scan(start, start[:-1] + b"\x01", txn, hold=True):
                yield MailboxName.parse(key[len(start):].decode())

    def under(self, identifiers: Iterable[str], name: MailboxName) -> Iterator[MailboxName]:
        """Those of `all_of` that are of that name, or below it: others are not read. Close the iterator if it is left
        early."""
        for identifier in identifiers:
            start = identifier.encode() + _MARK
            if self._table.get(key := start + str(name).encode()) is not None:
                yield name
            for found, _ in self._table.scan(key + _SEPARATOR, key + _AFTER_SEPARATOR):
                yield MailboxName.parse(found[len(start):].decode())

    def differences(self, entries: Iterable[MailboxEntry]) -> Iterator[tuple[str, str, bool]]:
        """Where the table seems not to say what the rows say: identifier, mailbox, and whether it is too much."""
        right = {key for entry in entries for key in _keys(entry)}
        there = {key for key, _ in self._table.scan()}
        for key in sorted(right ^ there):
            identifier, _, name = key.partition(_MARK)
            yield identifier.decode(), name.decode(), key in there

    def correct(self, identifier: str, name: str, entry: MailboxEntry | None, txn: Txn) -> bool:
        """Make it what the mailbox's row, locked by the transaction, says of the identifier; whether it was not."""
        key = identifier.encode() + _MARK + name.encode()
        there, right = self._table.get_to_change(key, txn) is not None, key in _keys(entry)
        if there and not right:
            self._table.delete(key, txn)
        elif right and not there:
            self._table.put(key, b"", txn)
        return there != right


def _keys(entry: MailboxEntry | None) -> set[bytes]:
    if entry is None:
        return set()
    name = str(entry.name).encode()
    return {identifier.encode() + _MARK + name for identifier, rights in entry.acl.items()
            if LOOKUP in rights and not identifier.startswith(NEGATIVE)}
