"""What responses are put together of: atoms, strings, numbers, lists (RFC 3501 §9)."""

import re

MAX32 = (1 << 32) - 1
MAX63 = (1 << 63) - 1

_ATOM_CHAR = rb"[!#$&'+,\-./0-9:;<=>?@A-Z\[^_`a-z|}~]"          # any CHAR except atom-specials
ATOM = re.compile(_ATOM_CHAR + rb"+")
ASTRING = re.compile(rb"[!#$&'+,\-./0-9:;<=>?@A-Z\[^_`a-z|}~\]]+")
QUOTED = re.compile(rb'"((?:[\x01-\x09\x0b\x0c\x0e-!#-\[\]-\x7f]|\\["\\])*)"')
QUOTED8 = re.compile(rb'"((?:[\x01-\x09\x0b\x0c\x0e-!#-\[\]-\x7f\x80-\xff]|\\["\\])*)"')
NUMBER = re.compile(rb"[0-9]+")
LITERAL = re.compile(rb"\{(0|[1-9][0-9]*)\}\r\n")
FLAG = re.compile(rb"\\?" + _ATOM_CHAR + rb"+")
SET = re.compile(rb"[1-9][0-9]*(?::[1-9][0-9]*)?(?:,[1-9][0-9]*(?::[1-9][0-9]*)?)*")


class Ungrammatical(AssertionError):
    """The formal syntax does not allow that."""


class Incomplete(Exception):
    """The octets end before the response does."""


def numbers_of(octets):
    """The numbers in a sequence-set or uid-set without "*", in its order (RFC 4315 §3: which of a range do not count).
    """
    found = []
    for part in octets.split(b","):
        first, _, last = part.partition(b":")
        first, last = int(first), int(last or first)
        if last > MAX32 or first > MAX32 or abs(last - first) > 1_000_000:
            raise Ungrammatical(f"a set with {part!r}")
        found += range(min(first, last), max(first, last) + 1)
    return found


class ElementReader:
    """A place in octets. `utf8`: the client has enabled it, so quoted strings may have it (RFC 9051 §9, RFC 6855 §3).
    """

    def __init__(self, data, at=0, *, utf8=False):
        self.data = data
        self.at = at
        self.utf8 = utf8
        self.depth = 0

    def wrong(self, wanted):
        """Raises what it is: too little, or not as it should be."""
        rest = self.data[self.at:self.at + 60]
        if len(self.data) - self.at < 60 and b"\r\n" not in rest:
            raise Incomplete(wanted)
        raise Ungrammatical(f"{wanted} is expected, not {rest!r}, after {self.data[max(0, self.at - 60):self.at]!r}")

    # Elements

    def match(self, pattern, wanted="this"):
        """What the pattern matches here."""
        found = pattern.match(self.data, self.at)
        if found is None:
            self.wrong(wanted)
        self.at = found.end()
        return found[0]

    def takes(self, octets):
        """Whether these come next; if so they are read."""
        if self.data.startswith(octets, self.at):
            self.at += len(octets)
            return True
        return False

    def want(self, octets):
        """These come next."""
        if not self.takes(octets):
            self.wrong(repr(octets))

    def space(self):
        """SP"""
        self.want(b" ")

    def number(self, most=MAX32, least=0):
        """number, or one of the others, by its limits"""
        digits = self.match(NUMBER, "a number")
        if self.at == len(self.data):
            raise Incomplete
        if len(digits) > 19 or not least <= int(digits) <= most or (digits[:1] == b"0" and len(digits) > 1):
            raise Ungrammatical(f"{digits!r} is out of range")
        return int(digits)

    def nz(self, most=MAX32):
        """nz-number, nz-number64"""
        return self.number(most, 1)

    def atom(self):
        """atom"""
        return self.match(ATOM, "an atom")

    def set(self):
        """sequence-set without "*", uid-set"""
        found = self.match(SET, "a set")
        if self.at == len(self.data):
            raise Incomplete
        return numbers_of(found)

    def literal(self, *, nul=False):
        """literal; with `nul` its octets may be NUL"""
        head = self.match(LITERAL, "a string")
        size = int(head[1:-3])
        if size > MAX63:
            raise Ungrammatical("a literal that is too long")
        if self.at + size > len(self.data):
            raise Incomplete
        octets = self.data[self.at:self.at + size]
        self.at += size
        if not nul and b"\0" in octets:
            raise Ungrammatical("NUL in a literal")
        return octets

    def string(self):
        """string"""
        if self.data[self.at:self.at + 1] != b'"':
            return self.literal()
        found = (QUOTED8 if self.utf8 else QUOTED).match(self.data, self.at)
        if found is None:
            if self.data.find(b"\r\n", self.at) < 0:
                raise Incomplete
            self.wrong("a quoted string")
        self.at = found.end()
        try:
            found[1].decode("utf-8")
        except UnicodeDecodeError:
            raise Ungrammatical("a quoted string that is not UTF-8") from None
        return re.sub(rb'\\(["\\])', rb"\1", found[1])

    def nstring(self):
        """nstring"""
        return None if self.takes(b"NIL") else self.string()

    def astring(self):
        """astring"""
        if found := ASTRING.match(self.data, self.at):
            if found.end() == len(self.data):
                raise Incomplete
            self.at = found.end()
            return found[0]
        return self.string()

    def list_of(self, item, *, least=0):
        """"(" [item *(SP item)] ")" """
        self.want(b"(")
        found = []
        while len(found) < least or not self.takes(b")"):
            if found:
                self.space()
            found.append(item())
        return found

    def words(self):
        """*(SP atom) as far as they go"""
        found = []
        while self.takes(b" "):
            found.append(self.atom())
        return found

    def flag(self):
        """flag, of the kinds that there are"""
        flag = self.match(FLAG, "a flag")
        if flag[:1] == b"\\" and flag.lower() not in (
                b"\\answered", b"\\flagged", b"\\deleted", b"\\seen", b"\\draft", b"\\recent"):
            raise Ungrammatical(f"the flag {flag!r}")
        return flag

    def flags(self, *, recent=False):
        """flag-list; with `recent` of flag-fetch"""
        found = self.list_of(self.flag)
        if not recent and b"\\recent" in (flag.lower() for flag in found):
            raise Ungrammatical("\\Recent where it cannot be")
        if len({flag.lower() for flag in found}) != len(found):
            raise Ungrammatical(f"a flag twice in {found}")
        return found

    def mailbox(self):
        """mailbox: in modified UTF-7 (RFC 3501 §5.1.3), or in UTF-8"""
        name = self.astring()
        if not self.utf8 and not all(32 <= octet < 127 for octet in name):
            raise Ungrammatical(f"a mailbox {name!r}")
        return name
