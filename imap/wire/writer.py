"""Builds what the server says. The writer chooses the form of each string, so a client's octets cannot break a line."""

import re
from collections.abc import Callable, Iterable
from operator import methodcaller

from attrs import define, field

from imap.wire import utf7
from imap.wire.flags import flag_words
from imap.wire.grammar import ASTRING_ATOM, ATOM

MAX_QUOTED = 1024       # a longer string is a literal
NUL_STAND_IN = b"\x80"  # Dovecot's too; alone it is neither ASCII nor UTF-8, so it is not taken for text

_NOT_QUOTABLE = re.compile(rb"[\x00\r\n\x80-\xff]")
_SPECIAL = re.compile(rb'(["\\])')


@define
class Writer:
    """Octets on their way out. Each method adds one element and returns the writer.

    `utf8`: mailbox names go out in UTF-8 (see `Session.utf8`).
    """

    utf8: bool = False
    _out: bytearray = field(factory=bytearray, init=False)

    def __bytes__(self) -> bytes:
        return bytes(self._out)

    def raw(self, octets: bytes) -> "Writer":
        """Octets as they are: punctuation, names of our own, what a writer has made before. Never a client's."""
        self._out += octets
        return self

    def number(self, number: int) -> "Writer":
        """number"""
        self._out += b"%d" % number
        return self

    def atom(self, value: bytes) -> "Writer":
        """atom. Raises ValueError if it is not one."""
        if not ATOM.fullmatch(value):
            raise ValueError("not an atom")
        self._out += value
        return self

    def astring(self, value: bytes) -> "Writer":
        """astring: atom if it can be, else as `string`."""
        if ASTRING_ATOM.fullmatch(value) and value.upper() != b"NIL":
            self._out += value
            return self
        return self.string(value)

    def string(self, value: bytes) -> "Writer":
        """string: quoted if it can be, else literal."""
        if len(value) > MAX_QUOTED or _NOT_QUOTABLE.search(value):
            return self.literal(value)
        self._out += b'"' + _SPECIAL.sub(rb"\\\1", value) + b'"'
        return self

    def nstring(self, value: bytes | None) -> "Writer":
        """nstring: string, or NIL for None."""
        return self.raw(b"NIL") if value is None else self.string(value)

    def literal(self, value: bytes) -> "Writer":
        """literal"""
        self._out += literal_head(len(value))
        self._out += value
        return self

    def mailbox(self, name: str) -> "Writer":
        """mailbox: in modified UTF-7, or in UTF-8 (RFC 9051 §5.1, RFC 6855 §3)."""
        if not self.utf8 or name.isascii():
            return self.astring(name.encode("ascii") if self.utf8 else utf7.encode(name))
        return self.raw(b'"' + _SPECIAL.sub(rb"\\\1", name.encode()) + b'"')

    def flags(self, system: int, keywords: Iterable[str] = (), *, recent: bool = False) -> "Writer":
        """flag-list. Raises ValueError for a keyword that is not an atom."""
        return self.words(flag_words(system, keywords, recent=recent))

    def words(self, words: Iterable[bytes]) -> "Writer":
        """A list in parentheses of what is written already."""
        self._out += b"(" + b" ".join(words) + b")"
        return self


without_nul: Callable[[bytes], bytes] = methodcaller("replace", b"\0", NUL_STAND_IN)
"""Octets of a message, for a literal: 1 to 255 (RFC 3501 §9 CHAR8). Without a NUL they are the same object."""


def literal_head(size: int) -> bytes:
    """What stands before the octets of a literal, when these go out by themselves."""
    return b"{%d}\r\n" % size
