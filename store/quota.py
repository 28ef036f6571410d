"""Quota: what a quota root uses, and what it may use. Use changes in the transaction that changes the records."""

import struct
from collections.abc import Iterator

from attrs import evolve, frozen

from mboxlist.kv import Table, Txn
from store.errors import Problem, StoreError
from store.settings import Settings

_RECORD = struct.Struct("<qqqq")

DEFAULT = -2                # a limit that is the store's default
UNLIMITED = -1


@frozen
class QuotaUse:
    """Use and limits of one quota root: octets and messages; a limit is DEFAULT, UNLIMITED or a number."""

    octets: int = 0
    messages: int = 0
    octet_limit: int = DEFAULT
    message_limit: int = DEFAULT

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _RECORD.pack(self.octets, self.messages, self.octet_limit, self.message_limit)

    @classmethod
    def from_bytes(cls, data: bytes) -> "QuotaUse":
        """From the stored form."""
        return cls(*_RECORD.unpack(data))

    def limits(self, settings: Settings) -> tuple[int | None, int | None]:
        """The limits that hold now: octets and messages, None where there is none."""
        return (_in_force(self.octet_limit, settings.default_quota),
                _in_force(self.message_limit, settings.default_message_quota))

    def has_room(self, octets: int, messages: int, settings: Settings) -> bool:
        """Whether that much more fits."""
        octet_limit, message_limit = self.limits(settings)
        return ((octet_limit is None or self.octets + octets <= octet_limit)
                and (message_limit is None or self.messages + messages <= message_limit))


_UNUSED = QuotaUse().to_bytes()


class QuotaTable:
    """`quota.db`: quota root -> use and limits."""

    def __init__(self, table: Table, settings: Settings) -> None:
        self._table = table
        self._settings = settings

    def find(self, root: str, txn: Txn = None) -> QuotaUse:
        """Use and limits of a root; one that was never used has the default limits."""
        data = self._table.get(root.encode(), txn)
        return QuotaUse.from_bytes(data) if data is not None else QuotaUse()

    def charge(self, root: str, octets: int, messages: int, txn: Txn, *, enforce: bool = True) -> None:
        """Add to the use of a root; less than nothing gives back. Raises StoreError OVER_QUOTA."""
        key = root.encode()
        data = self._table.get_to_change(key, txn) or _UNUSED
        used, count, octet_limit, message_limit = _RECORD.unpack(data)
        if enforce and messages > 0 and not QuotaUse(used, count, octet_limit, message_limit).has_room(
                octets, messages, self._settings):
            raise StoreError(Problem.OVER_QUOTA)
        self._table.put(key, _RECORD.pack(used + octets, count + messages, octet_limit, message_limit), txn)

    def set_limits(self, root: str, octets: int | None, messages: int | None, txn: Txn) -> None:
        """Change the limits that are not None; DEFAULT and UNLIMITED are allowed."""
        data = self._table.get_to_change(root.encode(), txn)
        use = QuotaUse.from_bytes(data) if data is not None else QuotaUse()
        use = evolve(use, octet_limit=use.octet_limit if octets is None else octets,
                     message_limit=use.message_limit if messages is None else messages)
        self._table.put(root.encode(), use.to_bytes(), txn)

    def forget(self, root: str, txn: Txn) -> None:
        """The root's owner is no more."""
        self._table.delete(root.encode(), txn)

    def all(self, txn: Txn = None) -> Iterator[tuple[str, QuotaUse]]:
        """Every root that was ever used, in order; within a transaction they stay as they are."""
        for key, data in self._table.scan(txn=txn, hold=txn is not None):
            yield key.decode(), QuotaUse.from_bytes(data)


def _in_force(limit: int, default: int) -> int | None:
    if limit == DEFAULT:
        return default or None
    return None if limit == UNLIMITED else limit
