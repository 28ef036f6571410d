"""Reads the elements of RFC 3501 §9 off a frame, from left to right. Every method raises SyntaxProblem.

Literals are handed out whole and never looked at as text. Where this is more lenient than the RFC, a comment says why.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from imap.wire import utf7
from imap.wire.commandlimits import Limits
from imap.wire.framer import Announced, Frame, literal_at
from imap.wire.grammar import (
    ASTRING_READ,
    ATOM,
    ESCAPE,
    LITERAL,
    MAX_NUMBER,
    MAX_NUMBER64,
    NUMBER,
    QUOTED,
    SyntaxProblem,
)
from imap.wire.numbers import SAVED, NumberSet

T = TypeVar("T")

_DEFAULT = Limits()
_BACKSLASH, = b"\\"                # `in` finds a number six times as fast
FIELD_NAME = re.compile(rb"[!-9;-~]{1,997}")      # RFC 5322 §2.2; the longest that fits a line
_FLAG = re.compile(rb"\\?+" + ATOM.pattern)
_SET = re.compile(rb"[0-9:,*]++")
# nz-number, or "*"; zeros before it are passed over
_ONE_NUMBER = rb"(?:0*+[1-9][0-9]{0,9}|\*)"
_RANGES = re.compile(rb"(?:%b(?::%b)?(?:,|$))+" % (_ONE_NUMBER, _ONE_NUMBER))
_PAIR = re.compile(rb"([0-9*]++)(?::([0-9*]++))?")


class Scanner:
    """A place in a frame, which is read from the octet `at` on. `limits` are for the parsers of nested and repeated
    things.

    `utf8`: the client has enabled IMAP4rev2 or UTF8=ACCEPT, so mailbox names are UTF-8.
    """

    __slots__ = ("_depth", "_part", "at", "frame", "limits", "text", "utf8")

    def __init__(self, frame: Frame, limits: Limits = _DEFAULT, utf8: bool = False, at: int = 0) -> None:
        self.frame = frame
        self.limits = limits
        self.utf8 = utf8
        self.text = frame[0]            # the text being read,
        self.at = at                    # and how far
        self._part = 0                  # which of the frame's texts it is
        self._depth = 0

    # Punctuation

    def space(self) -> None:
        """SP: exactly one."""
        if self.text[self.at:self.at + 1] != b" ":
            raise SyntaxProblem("An argument is missing" if self.at_end() else "A space is expected here")
        self.at += 1

    def blanks(self) -> None:
        """Any number of SP, also none: where the RFC has one at most, and clients put others."""
        while self.text[self.at:self.at + 1] == b" ":
            self.at += 1

    def take(self, octet: bytes) -> bool:
        """Whether this octet is next; if so it is read."""
        if self.text[self.at:self.at + 1] == octet:
            self.at += 1
            return True
        return False

    def looks_at(self, octet: bytes) -> bool:
        """Whether this octet is next; it stays."""
        return self.text[self.at:self.at + 1] == octet

    def expect(self, octet: bytes) -> None:
        """This octet."""
        if self.text[self.at:self.at + 1] != octet:
            raise SyntaxProblem(f"'{octet.decode('ascii')}' is expected here")
        self.at += 1

    def at_end(self) -> bool:
        """Whether the command ends here."""
        return self.at == len(self.text) and self._part == len(self.frame) - 1

    def end(self) -> None:
        """The end of the command."""
        if self.at != len(self.text) or self._part != len(self.frame) - 1:
            raise SyntaxProblem("The command is longer than it should be")

    def rest(self) -> bytes:
        """All text to the end of the command, in which there must be no literal."""
        if self._part != len(self.frame) - 1:
            raise SyntaxProblem("A literal is not allowed here")
        start, self.at = self.at, len(self.text)
        return self.text[start:]

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """What the pattern matches here, read; None if it does not, and nothing is."""
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def in_parentheses(self, read: Callable[[], T], most: int, too_many: str, *, least: int = 1) -> list[T]:
        """What `read` reads between parentheses, once or more often (with `least` 0, also not at all), with a space
        between two. `too_many` is what the client hears of more than `most`.

        Further blanks are passed over: aioimaplib and others put some within the parentheses.
        """
        self.expect(b"(")
        self.blanks()
        found: list[T] = []
        while len(found) < least or not self.take(b")"):
            if len(found) == most:
                raise SyntaxProblem(too_many)
            found.append(read())
            if not self.looks_at(b")"):
                self.space()
                self.blanks()
        return found

    def deeper(self) -> None:
        """Enter something nested."""
        self._depth += 1
        if self._depth > self.limits.depth:
            raise SyntaxProblem("The command is nested too deeply")

    def back(self) -> None:
        """Leave something nested."""
        self._depth -= 1

    # Words

    def atom(self) -> bytes:
        """atom"""
        return self._matched(ATOM, "A word is expected here")

    def flag(self) -> str:
        r"""flag: "\" atom, or atom; as the client wrote it."""
        return self._matched(_FLAG, "A flag is expected here").decode("ascii")

    def nil(self) -> bool:
        """Whether "NIL" is next, in any case; if so it is read."""
        found = ASTRING_READ.match(self.text, self.at)
        if found is None or found[0].upper() != b"NIL":
            return False
        self.at = found.end()
        return True

    def number(self) -> int:
        """number: 32 bits, unsigned."""
        digits = self._matched(NUMBER, "A number is expected here")
        number = int(digits) if len(digits) <= 10 else MAX_NUMBER + 1
        if number > MAX_NUMBER:
            raise SyntaxProblem("The number is out of range")
        return number

    def number64(self, what: str = "number") -> int:
        """number64: 63 bits (RFC 9051 §9)."""
        digits = self._matched(NUMBER, f"A {what} is expected here")
        if len(digits) > 19 or int(digits) > MAX_NUMBER64:
            raise SyntaxProblem(f"The {what} is out of range")
        return int(digits)

    # Strings

    def astring(self) -> bytes:
        """astring: atom with "]" allowed, or string. Wildcards are taken: passwords may have some."""
        found = ASTRING_READ.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            return found[0]
        return self.string()

    def string(self) -> bytes:
        """string: quoted or literal"""
        if self.text[self.at:self.at + 1] == b'"':
            return self._quoted()
        return self._literal()

    def nstring(self) -> bytes | None:
        """nstring: string or NIL"""
        return None if self.nil() else self.string()

    def field_name(self) -> bytes:
        """header-fld-name: an astring that can be one"""
        name = self.astring()
        if not FIELD_NAME.fullmatch(name):
            raise SyntaxProblem("That is not the name of a header field")
        return name

    def mailbox(self) -> str:
        """mailbox: an astring in modified UTF-7 (RFC 3501 §5.1.3), or in UTF-8 (RFC 9051 §5.1, RFC 6855 §3)"""
        return self._mailbox_name(self.astring())

    def next_mailbox(self) -> str:
        """SP mailbox"""
        self.space()
        return self.mailbox()

    def next_astring(self) -> bytes:
        """SP astring"""
        self.space()
        return self.astring()

    def reference(self) -> str | None:
        """A mailbox below which LIST looks; None for what is no modified UTF-7, and so above no name."""
        return self._pattern(self.astring())

    def list_mailbox(self) -> str | None:
        """list-mailbox: a mailbox that may have wildcards, without quotes too. None: as for `reference`."""
        found = self.match(ASTRING_READ)
        return self._pattern(found[0] if found is not None else self.string())

    def _pattern(self, octets: bytes) -> str | None:
        try:
            return self._mailbox_name(octets)
        except SyntaxProblem as problem:
            if problem.status == b"NO":         # what is no UTF-8 is BAD
                return None
            raise

    def _mailbox_name(self, octets: bytes) -> str:
        return self.as_utf8(octets) if self.utf8 else utf7.decode(octets)

    def as_utf8(self, octets: bytes) -> str:
        """Octets that a person typed, as text. ASCII in RFC 3501; UTF-8 in every later one."""
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError:
            raise SyntaxProblem("That is not UTF-8") from None

    def announced(self) -> tuple[Announced, bool]:
        """literal or literal8 (RFC 3516 §4.4), passed over; and whether it has come, and been streamed elsewhere."""
        literal = literal_at(self.text, self.at + self.looks_at(b"~"))
        if literal is None:
            raise SyntaxProblem("A literal is expected here")
        self.at = len(self.text)
        came = self._part < len(self.frame) - 1
        if came:
            self._next_text()
        return literal, came

    def _matched(self, pattern: re.Pattern[bytes], expected: str) -> bytes:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise SyntaxProblem("An argument is missing" if self.at_end() else expected)
        self.at = found.end()
        return found[0]

    def _quoted(self) -> bytes:
        found = QUOTED.match(self.text, self.at)
        if found is None:
            raise SyntaxProblem("The quoted string is not closed, or has a character that needs a literal")
        self.at = found.end()
        inside = found[1]
        return ESCAPE.sub(rb"\1", inside) if _BACKSLASH in inside else inside

    def _literal(self) -> bytes:
        if self._part == len(self.frame) - 1 or LITERAL.match(self.text, self.at) is None:
            raise SyntaxProblem("An argument is missing" if self.at_end() else "A string is expected here")
        octets = self.frame[self._part + 1]
        if b"\0" in octets:
            raise SyntaxProblem("NUL is not allowed in a literal")      # RFC 3501 §9 CHAR8
        self._next_text()
        return octets

    def _next_text(self) -> None:
        self._part += 2
        self.text = self.frame[self._part]
        self.at = 0


def number_set(scan: Scanner) -> NumberSet:
    """sequence-set, or "$". Raises SyntaxProblem."""
    if scan.take(b"$"):
        return SAVED
    found = scan.match(_SET)
    if found is None:
        raise SyntaxProblem("A set of numbers is expected here")
    return parse_number_set(found[0], scan.limits.ranges)


def parse_number_set(octets: bytes, most: int) -> NumberSet:
    """sequence-set of at most so many ranges. Raises SyntaxProblem."""
    if octets.isdigit() and len(octets) < 10 and octets[0] != 48:       # one number, which most are
        number = int(octets)
        return NumberSet(((number, number),))
    if octets.count(b",") >= most:
        raise SyntaxProblem("Too many ranges in the set of numbers")
    if _RANGES.fullmatch(octets) is None or octets.endswith(b","):
        raise SyntaxProblem("The set of numbers is not one")
    octets = octets.replace(b"*", b"0")                     # with C code alone: there may be 20,000
    if b":" in octets:
        pairs = _PAIR.findall(octets)
        firsts = list(map(int, [first for first, _ in pairs]))
        lasts = list(map(int, [last or first for first, last in pairs]))
    else:
        firsts = lasts = list(map(int, octets.split(b",")))
    if max(firsts) > MAX_NUMBER or max(lasts) > MAX_NUMBER:
        raise SyntaxProblem("The number is out of range")
    return NumberSet(tuple(zip(firsts, lasts, strict=True)))
