"""Which mailboxes each user is subscribed to (RFC 3501 §6.3.6). A name need not exist to be subscribed to."""

from collections.abc import Iterator

from mboxlist.kv import Table, Txn

_MARK = b"\x01"


class Subscriptions:
    """The table: user, then the mailbox name as that user's client writes it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, user: str, name: str, txn: Txn) -> None:
        """Subscribe; no harm if it was done before."""
        self._table.put(_key(user, name), b"", txn)

    def remove(self, user: str, name: str, txn: Txn) -> bool:
        """Unsubscribe; whether the user was subscribed."""
        return self._table.delete(_key(user, name), txn)

    def of(self, user: str, txn: Txn = None) -> Iterator[str]:
        """The user's subscriptions in order."""
        start = _key(user, "")
        for key, _ in self._table.scan(start, start[:-1] + b"\x02", txn):
            yield key[len(start):].decode()


def _key(user: str, name: str) -> bytes:
    return user.encode() + _MARK + name.encode()
