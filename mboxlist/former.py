"""Which UIDVALIDITY a name had that a mailbox has no more: it must never come back to the name (RFC 3501 §2.3.1.1)."""

import struct
from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from mboxlist.engine.btree import Table, Txn

_VALIDITY = struct.Struct(">I")


@define(eq=False)
class Former:
    """`former.db`: canonical name -> the highest UIDVALIDITY of mailboxes that were deleted or renamed from it."""

    _table: "Table"

    def note(self, name: str, validity: int, txn: "Txn") -> None:
        """The mailbox with that UIDVALIDITY has the name no more."""
        if validity > self.find(name, txn):
            self._table.put(name.encode(), _VALIDITY.pack(validity), txn)

    def find(self, name: str, txn: "Txn" = None) -> int:
        """The highest, or 0: a mailbox made under the name must have a higher one."""
        data = self._table.get(name.encode(), txn)
        return 0 if data is None else int(_VALIDITY.unpack(data)[0])

    def take_back(self, name: str, validity: int, txn: "Txn") -> None:
        """What was noted last had never been given: the highest is that."""
        if validity:
            self._table.put(name.encode(), _VALIDITY.pack(validity), txn)
        else:
            self._table.delete(name.encode(), txn)
