"""Header fields that a message has in one mailbox and not in another, kept beside the message file that both share.

A partition's `heads.db` gives each different text of such fields a number, which index records have as `head`; 0 stands
for none. A message is these octets, and then its file from `header_length` on.

What a recipient's address says (Delivered-To) is in many messages: such a number is for ever, and nobody counts
references; there is a row or two for each address that mail came to. The trace fields of one delivery are in records of
one message file alone: their number is that message's own, and its rows go when the purge forgets the message, of which
no record is left then; so is it where such records are moved, restored or imported to (`numbers_for`). A number that is
asked for without saying of which message is for ever from then on. No number is given twice.

The keys are of different lengths: number -> octets; digest of the octets -> number, and of which message it is, if of
one; `_OWNED`, beginning of a message's digest, number -> nothing.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from attrs import define
from numpy.typing import NDArray

from store.errors import Problem, StoreError
from store.tables.index import Rows, take

if TYPE_CHECKING:                   # who only looks at records needs no database
    from mboxlist.engine.btree import Table, Txn

LOST = (1 << 32) - 1        # a number that is never given
UNKNOWN = -1 << 40          # stands for the octets of fields that are lost; no sum with it is the size of a message
_NUMBER = struct.Struct(">I")
_LAST = _NUMBER.pack(0)     # the key under which the number given last is
_OWNED = _NUMBER.pack(LOST)     # what these keys begin with: they come behind those of numbers
_MESSAGE = 16               # octets of a message's digest that are kept
_OWNED_KEY = len(_OWNED) + _MESSAGE + _NUMBER.size


@define(eq=False)
class PrivateHeaders:
    """The table of these texts."""

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

    def number(self, octets: bytes, txn: "Txn" = None, *, lasting: bool = False) -> int | None:
        """The number of these octets, if they have one, which with `lasting` is for ever."""
        data = self._table.get(_digest(octets), txn) if octets else bytes(4)
        if data is None or lasting and len(data) > _NUMBER.size:
            return None
        return int(_NUMBER.unpack_from(data)[0])

    def numbers(self, every: Iterable[bytes], txn: "Txn", message: bytes = b"") -> dict[bytes, int]:
        """A number for each of these octets; those that have none get one. Raises StoreError LIMIT.

        `message` is the digest of the message whose own they are: they go when it is forgotten. For a transaction that
        does nothing else: everybody who gives a number, or looks for one, waits for its end. If a later transaction is
        on disk, so is this one.
        """
        owner = message[:_MESSAGE]
        found: dict[bytes, int] = {}
        last = data = self._table.get_to_change(_LAST, txn) or bytes(4)
        for octets in every:
            key = _digest(octets)
            known = self._table.get(key, txn)
            if known is None:
                if int(_NUMBER.unpack(last)[0]) + 1 >= LOST:
                    raise StoreError(Problem.LIMIT, detail="there are no more numbers for header fields")
                last = _NUMBER.pack(int(_NUMBER.unpack(last)[0]) + 1)
                self._table.put(last, octets, txn)
                known = last + owner
                self._table.put(key, known, txn)
                if owner:
                    self._table.put(_OWNED + owner + last, b"", txn)
            elif known[_NUMBER.size:] not in (b"", owner):          # not of that message alone
                self._table.delete(_OWNED + known[_NUMBER.size:] + known[:_NUMBER.size], txn)
                known = known[:_NUMBER.size]
                self._table.put(key, known, txn)
            found[octets] = int(_NUMBER.unpack_from(known)[0])
        if last != data:
            self._table.put(_LAST, last, txn)
        return found

    def numbers_for(self, rows: Rows, fields: Mapping[int, bytes], txn: "Txn") -> dict[int, int]:
        """A number here for each of these header fields, by the number that records have which come from elsewhere, and
        whose messages are here already. Fields that records of one message alone have are that message's own. See
        `numbers`."""
        owners: dict[int, bytes] = {}
        some = take(rows, rows["head"] != 0)
        for number, digest in set(zip(some["head"].tolist(), some["digest"].tolist(), strict=True)):
            owners[number] = digest if number not in owners else b""
        by_owner: dict[bytes, list[int]] = {}
        for number in fields:
            by_owner.setdefault(owners.get(number, b""), []).append(number)
        found: dict[int, int] = {}
        for owner, numbers in sorted(by_owner.items()):
            given = self.numbers([fields[number] for number in numbers], txn, owner)
            found |= {number: given[fields[number]] for number in numbers}
        return found

    def forget(self, messages: Iterable[bytes], txn: "Txn") -> None:
        """These messages (digests, in order) are no more, nor are the header fields that were theirs alone. Where no
        message has any this costs one look."""
        owned: list[bytes] = []
        following = b""                     # no message before this one has any
        for digest in messages:
            start = _OWNED + digest[:_MESSAGE]
            if start < following:
                continue
            with closing(cast("Any", self._table.scan(start, txn=txn, hold=True))) as rows:
                following = b"\xff" * (_OWNED_KEY + 1)
                for key, _ in rows:
                    if not key.startswith(start):
                        following = key[:len(start)]
                        break
                    if len(key) == _OWNED_KEY:
                        owned.append(key)
        for key in owned:
            self._remove(key, txn)

    def _remove(self, key: bytes, txn: "Txn") -> None:
        owner, number = key[len(_OWNED):-_NUMBER.size], key[-_NUMBER.size:]
        octets = self._table.get(number, txn)
        if octets is not None and self._table.get(_digest(octets), txn) == number + owner:
            self._table.delete(_digest(octets), txn)
            self._table.delete(number, txn)
        self._table.delete(key, txn)

    def left_over(self, is_there: Callable[[bytes], bool], txn: "Txn" = None) -> list[bytes]:
        """The beginnings of digests of messages that are not there, as that function says, though header fields are
        kept as theirs alone."""
        owners = {key[len(_OWNED):-_NUMBER.size] for key, _ in self._table.scan(_OWNED, txn=txn, hold=txn is not None)
                  if len(key) == _OWNED_KEY and key.startswith(_OWNED)}
        return sorted(owner for owner in owners if not is_there(owner))

    def put_back(self, private_headers: Mapping[int, bytes], txn: "Txn") -> None:
        """Where the table is lost: these octets have these numbers again; neither they nor smaller ones are given."""
        last = int(_NUMBER.unpack(self._table.get_to_change(_LAST, txn) or bytes(4))[0])
        for number, octets in private_headers.items():
            if 0 < number < LOST:
                self._table.put(_NUMBER.pack(number), octets, txn)
                self._table.put(_digest(octets), _NUMBER.pack(number), txn)
                last = max(last, number)
        self._table.put(_LAST, _NUMBER.pack(last), txn)

    def skip(self, number: int, txn: "Txn") -> None:
        """Where the table is lost: records have that number, so neither it nor a smaller one is given."""
        if number > int(_NUMBER.unpack(self._table.get_to_change(_LAST, txn) or bytes(4))[0]):
            self._table.put(_LAST, _NUMBER.pack(number), txn)

    def wrong(self, txn: "Txn" = None) -> list[int]:
        """The numbers that will be given again, or whose octets are known by another number, or by none; and those
        whose octets are lost."""
        known = dict(self.all(txn))
        last = int(_NUMBER.unpack(known.pop(0, bytes(4)))[0])
        found = [number for number, octets in known.items()
                 if number > last or known.get(self.number(octets, txn) or 0) != octets]
        return found + [number for number in self._named(txn).values() if number not in known]

    def _named(self, txn: "Txn") -> dict[bytes, int]:
        """The number of each text, by its digest."""
        return {key: int(_NUMBER.unpack_from(data)[0]) for key, data in self._table.scan(txn=txn, hold=txn is not None)
                if len(key) == _MESSAGE}

    def correct(self, txn: "Txn") -> int:
        """Have each text known by its number, and no number given again; how many were wrong."""
        wrong = self.wrong(txn)
        known = dict(self.all(txn))
        if not wrong:
            return 0
        for key, number in self._named(txn).items():
            if number not in known:
                self._table.delete(key, txn)
        for number in wrong:
            if number in known:
                self._table.put(_digest(known[number]), _NUMBER.pack(number), txn)
        self.skip(max(number for number in known), txn)
        return len(wrong)

    def used(self, rows: Rows, txn: "Txn" = None) -> dict[int, bytes]:
        """The octets of all numbers that these records have, as far as the table has them."""
        if not rows["head"].any():
            return {}
        numbers = np.unique(rows["head"])
        numbers = numbers[numbers != 0]
        found = zip(numbers.tolist(), self._table.pick([_NUMBER.pack(number) for number in numbers], txn), strict=True)
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
