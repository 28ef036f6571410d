"""Which mailboxes each user is subscribed to (RFC 3501 §6.3.6). A name need not exist to be subscribed to."""

from collections.abc import Callable, Iterable, Iterator

from attrs import define

from mboxlist.engine.btree import Table, Txn
from mboxlist.names import OTHERS, SEPARATOR

_MARK = b"\x01"


@define(eq=False)
class Subscriptions:
    """The table: user, then the mailbox name as that user's client writes it. `changed` gets user, name, whether there
    is a subscription now, and the transaction."""

    _table: Table
    changed: Callable[[str, str, bool, Txn], None] = lambda user, name, subscribed, txn: None

    def add(self, user: str, name: str, txn: Txn) -> None:
        """Subscribe; no harm if it was done before."""
        self._table.put(_key(user, name), b"", txn)
        self.changed(user, name, True, txn)

    def remove(self, user: str, name: str, txn: Txn) -> bool:
        """Unsubscribe; whether the user was subscribed."""
        if not self._table.delete(_key(user, name), txn):
            return False
        self.changed(user, name, False, txn)
        return True

    def of(self, user: str, txn: Txn = None) -> Iterator[str]:
        """The user's subscriptions in order; within a transaction they stay so to its end."""
        start = _key(user, "")
        for key, _ in self._table.scan(start, start[:-1] + b"\x02", txn, hold=txn is not None):
            yield key[len(start):].decode()

    def naming(self, user: str) -> list[bytes]:
        """The keys of the user's rows, and of others' that name mailboxes of the user. Looks at everything."""
        return [key for key, _ in self._table.scan() if _renamed(key, user, "") != key]

    def rename_user(self, keys: Iterable[bytes], old: str, new: str, txn: Txn) -> None:
        """In these rows the user has another name; no harm if it was done before."""
        for key in keys:
            if self._table.delete(key, txn):
                self._table.put(_renamed(key, old, new), b"", txn)


def _renamed(key: bytes, old: str, new: str) -> bytes:
    user, _, name = key.decode().partition(_MARK.decode())
    prefix = f"{OTHERS}{old}{SEPARATOR}"
    if name.startswith(prefix):
        name = f"{OTHERS}{new}{SEPARATOR}{name[len(prefix):]}"
    return _key(new if user == old else user, name)


def _key(user: str, name: str) -> bytes:
    return user.encode() + _MARK + name.encode()
