"""The messages between back ends, octet by octet. Pure: it knows neither sockets nor stores.

A message is 8 octets, the lengths of what follows, both big-endian: fields, a JSON object in UTF-8, and octets, which
mean what the fields say. Both lengths have a limit, and each field is looked at when it is used, so that whatever comes
in is a message or raises BadMessage.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field, frozen

VERSION = 2                 # of the language; both sides must speak the same one
FIELDS_OCTETS = 1 << 20     # of the fields of a message, at most
DATA_OCTETS = 1 << 20       # of what follows the fields, at most,
ANSWER_OCTETS = 4 << 20     # and of what follows those of an answer
SEND_OCTETS = 256 << 10     # of a long text or a message file that one message takes
MOST_SECONDS = 1e11         # no clock shows more, in the year 5138, and nothing is older
_LENGTHS = struct.Struct(">II")
_NUMBERS = 1 << 63
_said = json.JSONEncoder(separators=(",", ":")).encode


class BadMessage(Exception):
    """What came is not a message of this language, or not one that can come now."""


class Ended(Exception):
    """The other side has closed the connection, or it was lost."""


class Wire(Protocol):
    """A connection: blocking, with a time limit of its own."""

    def read(self, count: int) -> bytes:
        """Up to that many octets; b"" at the end. Raises OSError."""

    def write(self, data: bytes) -> None:
        """Send it all. Raises OSError."""

    def limit(self, seconds: float) -> None:
        """How long one wait for the other side may take from now on."""

    def close(self) -> None:
        """End the connection."""


@frozen
class Message:
    """One message: fields, and octets that mean what the fields say."""

    fields: Mapping[str, Any]
    octets: bytes = field(default=b"", repr=False)
    head: bytes = field(default=b"", repr=False, eq=False)      # all before the octets, of one that was received

    def text(self, name: str, most: int = 1000) -> str:
        """A text. Raises BadMessage."""
        return _text(self.fields.get(name), most, name)

    def texts(self, name: str, most: int) -> list[str]:
        """A list of so many texts at most. Raises BadMessage."""
        return [_text(each, 10_000, name) for each in self.list(name, most)]

    def number(self, name: str, least: int = 0, most: int = _NUMBERS) -> int:
        """A whole number. Raises BadMessage."""
        return whole(self.fields.get(name), name, least, most)

    def truth(self, name: str) -> bool:
        """True or false. Raises BadMessage."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise BadMessage(f"{name} is not true or false")
        return value

    def numbers(self, name: str, most: int) -> list[int]:
        """A list of so many numbers at most. Raises BadMessage."""
        return [whole(each, name) for each in self.list(name, most)]

    def list(self, name: str, most: int) -> list[Any]:
        """A list of that length at most. Raises BadMessage."""
        value = self.fields.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise BadMessage(f"{name} is not a list, or too long")
        return value


def whole(value: object, name: str, least: int = 0, most: int = _NUMBERS) -> int:
    """The value, if it is a number in that range. Raises BadMessage."""
    if type(value) is not int or not least <= value < most:
        raise BadMessage(f"{name} is not a number, or out of range")
    return value


def seconds(value: object, name: str) -> float:
    """The value, if it is a number of seconds, as a Unix time or an age: JSON of Python also has NaN and Infinity, with
    which nothing can be reckoned. Raises BadMessage."""
    if type(value) not in (int, float) or not 0 <= value < MOST_SECONDS:      # type: ignore[operator]
        raise BadMessage(f"{name} is no number of seconds, or out of range")
    return float(value)     # type: ignore[arg-type]


def _text(value: object, most: int, name: str) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise BadMessage(f"{name} is not a text, or too long")
    try:
        value.encode()              # JSON can hold half of a surrogate pair
    except UnicodeEncodeError:
        raise BadMessage(f"{name} is not a text") from None
    return value


def encode(fields: Mapping[str, Any], octets: bytes = b"", most: int = DATA_OCTETS) -> bytes:
    """The octets of a message, at most so many behind its fields. Raises ValueError when it is too long."""
    said = _said(fields).encode()
    if len(said) > FIELDS_OCTETS or len(octets) > most:
        raise ValueError(f"a message of {len(said)} and {len(octets)} octets is too long")
    return b"".join((_LENGTHS.pack(len(said), len(octets)), said, octets))


def receive(read: Callable[[int], bytes], fields: int = FIELDS_OCTETS, octets: int = DATA_OCTETS) -> Message:
    """The next message, with these limits. Raises BadMessage, Ended, and what `read` raises."""
    lengths = _exactly(read, _LENGTHS.size)
    said, more = _LENGTHS.unpack(lengths)
    if said > fields or more > octets:
        raise BadMessage("a message is too long")
    text = _exactly(read, said)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("the fields of a message cannot be read") from None
    if not isinstance(values, dict):
        raise BadMessage("the fields of a message are no object")
    return Message(values, _exactly(read, more), lengths + text)


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    octets = read(count) if count else b""
    if len(octets) == count:
        return octets
    found = [octets]
    while octets and (count := count - len(octets)):
        octets = read(count)
        found.append(octets)
    if count:
        raise Ended
    return b"".join(found)
