"""What unique-ids look like (RFC 1939 §7): made from a template, so that clients know those of an earlier server again.

In a template `%u` stands for the UID and `%v` for UIDVALIDITY, `%%` for a percent sign. In between may stand a number
of digits to fill with zeros, such as 08, and X for hexadecimal digits: `%08Xu%08Xv` is UID and UIDVALIDITY as eight
hexadecimal digits each. The pair never comes to mean another message (RFC 3501 §2.3.1.1), as RFC 1939 §7 wants it.
"""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from attrs import frozen

DEFAULT = "%08Xv%08Xu"
LIMIT = 70                  # RFC 1939 §7: octets of a unique-id
TAIL = b"+"                 # after a unique-id that is made and happens to be one that another message brought along
_LARGEST = (1 << 32) - 1
_ITEM = re.compile(r"%(%|(?:0([1-9][0-9]?))?(X?)([uv]))")
_TEXT = re.compile(r"[!-~]*")


@frozen
class Format:
    """A template, taken apart: pieces of a format of bytes, each with what it takes: "u", "v", or "" for none."""

    pieces: tuple[tuple[bytes, str], ...]

    def of(self, validity: int) -> bytes:
        """The template for one mailbox, as a format that takes its messages' UID as often as there is %u in it."""
        return b"".join([piece if what != "v" else piece % validity for piece, what in self.pieces])

    @property
    def times(self) -> int:
        """How often that is."""
        return sum(what == "u" for _, what in self.pieces)


@lru_cache(maxsize=16)
def parse(template: str) -> Format:
    """The format of a template. Raises ValueError for what would make no unique-ids, or none that RFC 1939 allows."""
    pieces: list[tuple[bytes, str]] = []
    at, fixed = 0, True
    for item in _ITEM.finditer(template):
        pieces.append((_literal(template[at:item.start()]), ""))
        if item.start() > at:
            fixed = True                # what comes next cannot be mistaken for more of the number before
        at = item.end()
        zeros, hexadecimal, what = item.group(2, 3, 4)
        if what is None:
            pieces.append((b"%%", ""))
            fixed = True
            continue
        is_fixed = int(zeros or 0) >= (8 if hexadecimal else 10)
        if not fixed and not is_fixed:
            raise ValueError("two numbers of any length need something between them")
        fixed = is_fixed
        pieces.append((f"%{'0' + zeros if zeros else ''}{'x' if hexadecimal else 'd'}".encode("ascii"), what))
    pieces.append((_literal(template[at:]), ""))
    made = Format(tuple(pieces))
    if not made.times:
        raise ValueError("%u is missing: without the UID all messages would have the same")
    if len(made.of(_LARGEST) % ((_LARGEST,) * made.times)) > LIMIT:
        raise ValueError(f"it makes more than {LIMIT} octets")
    return made


def _literal(text: str) -> bytes:
    if "%" in text:
        raise ValueError("after % comes %, u or v, perhaps with a number of digits such as 08 and X between")
    if not _TEXT.fullmatch(text):
        raise ValueError("a unique-id is printable ASCII without spaces")
    return text.encode("ascii")


class UniqueIds:
    """The unique-ids of one mailbox's messages. `own` are those that messages brought along from another server.

    What is made must not be one that another message has brought along: it gets a tail.
    """

    def __init__(self, form: Format, validity: int, own: "dict[int, bytes] | None" = None) -> None:
        self._form = form.of(validity)
        self._times = form.times
        self._own = own or {}
        self._taken: Collection[bytes] = frozenset(self._own.values())
        self._line = b"%d " + self._form + b"\r\n"

    def of(self, uid: int) -> bytes:
        """The unique-id of a message."""
        own = self._own.get(uid)
        if own is not None:
            return own
        made = self._form % ((uid,) * self._times)
        while made in self._taken:
            made = (made + TAIL)[-LIMIT:]
        return made

    def lines(self, numbered: "Iterable[tuple[int, int]]") -> bytes:
        """Unique-id listings (RFC 1939 §7) of messages: number and UID of each."""
        if self._times == 1 and not self._own:
            form = self._line
            return b"".join([form % one for one in numbered])
        return b"".join([b"%d %b\r\n" % (number, self.of(uid)) for number, uid in numbered])
