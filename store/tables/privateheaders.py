"""Header fields that a message has in one mailbox and not in another, kept beside the message file that both share.

A partition's `heads.db` gives each different text of such fields a number, which index records have as `head`; 0 stands
for none. A message is these octets, and then its file from `header_length` on.

A number is for ever: rows are neither changed nor removed, though nothing may refer to them any more, and no number is
given twice. So whoever has a record, however old, can read its fields, and nobody counts references. It costs little,
since what the fields say follows from the recipient: there is a row or two for each address that mail came to.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from attrs import define
from numpy.typing import NDArray

from store.errors import Problem, StoreError
from store.tables.index import Rows

if TYPE_CHECKING:                   # who only looks at records needs no database
    from mboxlist.engine.btree import Table, Txn

LOST = (1 << 32) - 1        # a number that is never given
UNKNOWN = -1 << 40          # stands for the octets of fields that are lost; no sum with it is the size of a message
_NUMBER = struct.Struct(">I")
_LAST = _NUMBER.pack(0)     # the key under which the number given last is


@define(eq=False)
class PrivateHeaders:
    """The table: number -> octets, digest of the octets -> number. The keys are of different lengths."""

    _table: "Table"

    def get(self, number: int, txn: "Txn" = None) -> bytes | None:
        """The octets of that number, if it has been given; b"" for 0."""
        return self._table.get(_NUMBER.pack(number), txn) if number else b""

    def find(self, number: int, txn: "Txn" = None) -> bytes:
        """The octets of that number. Raises StoreError CORRUPT."""
        octets = self.get(number, txn)
        if octets is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"header fields {number} are not known")
        return octets

    def number(self, octets: bytes, txn: "Txn" = None) -> int | None:
        """The number of these octets, if they have one."""
        data = self._table.get(_digest(octets), txn) if octets else bytes(4)
        return None if data is None else int(_NUMBER.unpack(data)[0])

    def numbers(self, every: Iterable[bytes], txn: "Txn") -> dict[bytes, int]:
        """A number for each of these octets; those that have none get one. Raises StoreError LIMIT.

        For a transaction that does nothing else: everybody who gives a number, or looks for one, waits for its end. If
        a later transaction is on disk, so is this one.
        """
        found: dict[bytes, int] = {}
        last = data = self._table.get_to_change(_LAST, txn) or bytes(4)
        for octets in every:
            number = self.number(octets, txn)
            if number is None:
                number = int(_NUMBER.unpack(last)[0]) + 1
                if number >= LOST:
                    raise StoreError(Problem.LIMIT, detail="there are no more numbers for header fields")
                last = _NUMBER.pack(number)
                self._table.put(last, octets, txn)
                self._table.put(_digest(octets), last, txn)
            found[octets] = number
        if last != data:
            self._table.put(_LAST, last, txn)
        return found

    def put_back(self, private_headers: Mapping[int, bytes], txn: "Txn") -> None:
        """Where the table is lost: these octets have these numbers again; neither they nor smaller ones are given."""
        last = int(_NUMBER.unpack(self._table.get_to_change(_LAST, txn) or bytes(4))[0])
        for number, octets in private_headers.items():
            if 0 < number < LOST:
                self._table.put(_NUMBER.pack(number), octets, txn)
                self._table.put(_digest(octets), _NUMBER.pack(number), txn)
                last = max(last, number)
        self._table.put(_LAST, _NUMBER.pack(last), txn)

    def used(self, rows: Rows, txn: "Txn" = None) -> dict[int, bytes]:
        """The octets of all numbers that these records have, as far as the table has them."""
        private_headers = rows["head"]
        found = ((number, self.get(number,
                                   txn)) for number in sorted(set(private_headers[private_headers != 0].tolist())))
        return {number: octets for number, octets in found if octets is not None}

    def sizes(self, rows: Rows, txn: "Txn" = None) -> NDArray[np.int64]:
        """How many octets of each record's message are fields of its own; UNKNOWN where nobody knows them."""
        if not rows["head"].any():
            return np.zeros(len(rows), np.int64)
        numbers, which = np.unique(rows["head"], return_inverse=True)
        known = {0: b"", **self.used(rows, txn)}
        return np.array([len(known[number]) if number in known else UNKNOWN for number in numbers.tolist()],
                        np.int64)[which]

    def all(self, txn: "Txn" = None) -> Iterator[tuple[int, bytes]]:
        """Each number with its octets; 0 has the number given last."""
        for key, octets in self._table.scan(txn=txn, hold=txn is not None):
            if len(key) == _NUMBER.size:
                yield int(_NUMBER.unpack(key)[0]), octets


def _digest(octets: bytes) -> bytes:
    return blake2b(octets, digest_size=16).digest()


def renumbered(rows: Rows, new: Mapping[int, int]) -> Rows:
    """A copy of the records with these numbers in the place of theirs; LOST for one that has none there."""
    rows = rows.copy()
    if rows["head"].any():
        numbers, which = np.unique(rows["head"], return_inverse=True)
        there = [new.get(number, LOST) if number else 0 for number in numbers.tolist()]
        rows["head"] = np.array(there, np.uint32)[which]
    return rows
