"""A message as a script sees it: its header fields, which `editheader` may change, and its parts."""

import re
from collections.abc import Callable, Hashable
from typing import Any

from attrs import frozen

from store.message import mime
from store.message.headers import all_fields, unfold
from store.message.text import decode_words, leaf_octets, octets_text

_FIELD = re.compile(rb"([!-9;-~]++)[ \t]*+:([^\n]*+(?:\n[ \t][^\n]*+)*)\n?+|[^\n]*+\n?+")
SCANNED = 16 << 20                      # octets at the head of a message whose parts are found
REMEMBERED = 1 << 20                    # octets of what tests have made of a message


@frozen
class HeaderField:
    """One field: its name as it stands, and the octets of the whole of it, with its line ends."""

    name: bytes
    octets: bytes

    @property
    def value(self) -> bytes:
        """Unfolded, without the blanks around it."""
        return unfold(self.octets).partition(b":")[2].strip()

    @property
    def text(self) -> str:
        """The value with its encoded words decoded (RFC 5228 §2.4.2.2)."""
        return decode_words(self.value)


def fields_of(header: bytes) -> list[HeaderField]:
    """The fields of a header, in order; lines that are no field go."""
    found = []
    for match in _FIELD.finditer(header):
        if match[1] is not None:
            found.append(HeaderField(match[1], match[0]))
        elif match[0] in (b"\r\n", b"\n"):
            break
    return found


class ReceivedMail:
    """One message, for the scripts of all its recipients. `read(offset, count)` gives octets of all `size`, header
    first.

    `edition` counts the changes that a script has made (`changed`); an action takes the message as it is at that
    moment. `remembered` has what tests have made of it: see `remember`.
    """

    def __init__(self, header: bytes, size: int, read: Callable[[int, int], bytes]) -> None:
        self.header = header
        self.size = size
        self.read = read
        self.edition = 0
        self.remembered: dict[Hashable, Any] = {}
        self._room = REMEMBERED
        self._fields: list[HeaderField] | None = None
        self._folded: dict[bytes, list[bytes]] | None = None
        self._values: dict[str, list[bytes]] = {}
        self._texts: dict[str, list[str]] = {}
        self._parts: mime.Part | None = None

    @classmethod
    def of(cls, octets: bytes) -> "ReceivedMail":
        """Of a message in memory."""
        match = re.search(rb"\A\r?\n|\n\r?\n", octets)
        return cls(octets[:match.end() if match else len(octets)], len(octets), lambda at, count: octets[at:at + count])

    @property
    def fields(self) -> list[HeaderField]:
        """The header's fields, from the top; see `changed`."""
        if self._fields is None:
            self._fields = fields_of(self.header)
        return self._fields

    def named(self, name: str) -> list[HeaderField]:
        """The fields of that name in any case, from the top."""
        wanted = name.lower().encode("utf-8", "replace")
        return [one for one in self.fields if one.name.lower() == wanted] if self.values(name) else []

    def values(self, name: str) -> list[bytes]:
        """The values of the fields of that name, unfolded, without the blanks around them."""
        name = name.lower()
        found = self._values.get(name)
        if found is None:
            folded = self._parsed() if self._folded is None else self._folded
            found = self._values[name] = []
            for value in folded.get(name.encode("utf-8", "replace"), ()):
                found.append((unfold(value) if b"\n" in value else value).strip())
        return found

    def _parsed(self) -> dict[bytes, list[bytes]]:
        self._folded = all_fields(self.header if self._fields is None else b"".join(
            [one.octets if one.octets.endswith(b"\n") else one.octets + b"\n" for one in self._fields]))
        return self._folded

    def lacks(self, names: frozenset[bytes]) -> bool:
        """Whether there is no field of any of these names, which are in lower case."""
        return (self._parsed() if self._folded is None else self._folded).keys().isdisjoint(names)

    def has(self, names: frozenset[bytes]) -> bool:
        """Whether there is a field of each of these names, which are in lower case."""
        return (self._parsed() if self._folded is None else self._folded).keys() >= names

    def texts(self, name: str) -> list[str]:
        """These values with their encoded words decoded (RFC 5228 §2.4.2.2)."""
        name = name.lower()
        found = self._texts.get(name)
        if found is None:
            found = self._texts[name] = []
            for value in self.values(name):
                found.append(value.decode() if value.isascii() and b"=?" not in value else decode_words(value))
        return found

    def remember(self, about: Hashable, found: Any, octets: int) -> None:
        """Other tests, and scripts of other recipients, find this in `remembered`, unless there is too much of it."""
        if octets <= self._room:
            self._room -= octets
            self.remembered[about] = found

    def changed(self, fields: list[HeaderField]) -> "ReceivedMail":
        """The message with these fields as its header."""
        made = ReceivedMail(self.header, self.size, self.read)
        made._fields, made._parts, made.edition = fields, self._parts, self.edition + 1
        return made

    @property
    def structure(self) -> mime.Part:
        """The MIME tree (RFC 2045) of the message as it came."""
        if self._parts is None:
            self._parts = mime.parse(self.read, min(self.size, SCANNED))
        return self._parts

    def part_header(self, part: mime.Part) -> list[HeaderField]:
        """The fields of a part; of the message itself those that it has now."""
        if self._parts is part:
            return self.fields
        return fields_of(self.read(part.header_start, part.body_start - part.header_start))

    def part_octets(self, part: mime.Part, most: int) -> bytes:
        """The body of a part as it stands, at most so many octets."""
        return self.read(part.body_start, min(part.end - part.body_start, most))

    def part_text(self, part: mime.Part, most: int) -> str:
        """The body of a part without its transfer encoding, as text in its charset."""
        charset = next((value for name, value in part.params if name == b"CHARSET"), b"")
        return octets_text(leaf_octets(self.part_octets(part, most), part.encoding), charset)
