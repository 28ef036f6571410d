"""What FETCH tells of a message: msg-att (RFC 3501 §9; RFC 3516 §7, RFC 7162 §7)."""

import re

from tests.support.grammar.elements import MAX63, ElementReader, Ungrammatical

DATE_TIME = re.compile(rb'"(?: [1-9]|[012][0-9]|3[01])-(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)-[0-9]{4} '
                       rb'[0-2][0-9]:[0-5][0-9]:[0-6][0-9] [+-][0-9]{4}"')
SECTION = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*(?:\.(?:HEADER|TEXT|MIME))?|HEADER|TEXT)?\]")
FIELDS = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*\.)?HEADER\.FIELDS(?:\.NOT)? \(")
SECTION_BINARY = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*)?\]")
ORIGIN = re.compile(rb"<[0-9]+>")


class MessageReader(ElementReader):
    """Reads items of messages, too."""

    def address(self):
        """address"""
        self.want(b"(")
        found = []
        for number in range(4):
            if number:
                self.space()
            found.append(self.nstring())
        self.want(b")")
        return tuple(found)

    def addresses(self):
        """env-from and the like; groups begin and end (RFC 3501 §7.4.2)"""
        if self.takes(b"NIL"):
            return []
        self.want(b"(")
        found = [self.address()]
        while not self.takes(b")"):
            found.append(self.address())
        return found

    def envelope(self):
        """envelope"""
        self.want(b"(")
        date, _, subject, _ = self.nstring(), self.space(), self.nstring(), self.space()
        people = []
        for _ in range(6):
            people.append(self.addresses())
            self.space()
        reply, _, identity = self.nstring(), self.space(), self.nstring()
        self.want(b")")
        return (date, subject, *people, reply, identity)

    def params(self):
        """body-fld-param"""
        if self.takes(b"NIL"):
            return []

        def pair():
            name = self.string()
            self.space()
            return name, self.string()
        return self.list_of(pair, least=1)

    def body(self, *, extended):
        """body: (type, subtype, octets or None, lines or None, envelope or None, parts); `extended`: BODYSTRUCTURE."""
        self.depth += 1
        self.want(b"(")
        parts, octets, lines, envelope = [], None, None, None
        if self.data[self.at:self.at + 1] == b"(":
            while not self.takes(b" "):
                parts.append(self.body(extended=extended))
            kind, subtype = b"MULTIPART", self.string()
            if extended:
                self.space()
                self.params()
        else:
            kind, _, subtype, _ = self.string().upper(), self.space(), self.string().upper(), self.space()
            if kind == b"MULTIPART":
                raise Ungrammatical("a multipart without parts")        # it could not be told from a basic type
            self.params()
            self.space()
            self.nstring()
            self.space()
            self.nstring()
            self.space()
            self.string()
            self.space()
            octets = self.number()
            is_global = (kind, subtype) == (b"MESSAGE", b"GLOBAL") and self.data[self.at:self.at + 2] == b" ("
            if (kind, subtype) == (b"MESSAGE", b"RFC822") or is_global:
                self.space()
                envelope = self.envelope()
                self.space()
                parts.append(self.body(extended=extended))
            if envelope is not None or kind == b"TEXT":
                self.space()
                lines = self.number(MAX63)
            if extended:
                self.space()
                self.nstring()
        if extended:
            self.space()
            self.disposition()
            self.space()
            if self.data[self.at:self.at + 1] == b"(":
                self.list_of(self.string, least=1)
            else:
                self.nstring()
            self.space()
            self.nstring()
        self.want(b")")
        self.depth -= 1
        return kind, subtype, octets, lines, envelope, parts

    def disposition(self):
        """body-fld-dsp"""
        if self.takes(b"NIL"):
            return
        self.want(b"(")
        self.string()
        self.space()
        self.params()
        self.want(b")")

    def items(self):
        """msg-att: its items by their names"""
        found = {}
        self.want(b"(")
        while not found or not self.takes(b")"):
            if found:
                self.space()
            name, value = self.item()
            if name in found:
                raise Ungrammatical(f"{name!r} twice")
            found[name] = value
        return found

    def item(self):
        """msg-att-dynamic, msg-att-static"""
        name = self.match(re.compile(rb"[A-Z0-9.]+"), "an item")
        if name in (b"BODY", b"BINARY", b"BINARY.SIZE") and self.data[self.at:self.at + 1] == b"[":
            label = name + self.section(name)
            self.space()
            if name == b"BINARY.SIZE":
                return label, self.number()
            return label, self.octets(binary=name == b"BINARY")
        self.space()
        read = _ITEMS.get(name)
        if read is None:
            raise Ungrammatical(f"the item {name!r}")
        return name, read(self)

    def octets(self, *, binary=False):
        """nstring; or literal8 (RFC 3516 §7), which alone may have NULs"""
        if binary and self.takes(b"~"):
            return self.literal(nul=True)
        return self.nstring()

    def section(self, name):
        """section, section-binary, and where a partial one begins"""
        start = self.at
        if name != b"BODY":
            self.match(SECTION_BINARY, "a section")
        elif FIELDS.match(self.data, self.at):
            self.match(FIELDS)
            self.astring()
            while not self.takes(b")"):
                self.space()
                self.astring()
            self.want(b"]")
        else:
            self.match(SECTION, "a section")
        if name != b"BINARY.SIZE" and self.data[self.at:self.at + 1] == b"<":
            self.match(ORIGIN, "an origin")
        return self.data[start:self.at]

    def modseq(self):
        """fetch-mod-resp (RFC 7162 §7)"""
        self.want(b"(")
        number = self.nz(MAX63)
        self.want(b")")
        return number


_ITEMS = {
    b"FLAGS": lambda read: read.flags(recent=True),
    b"UID": MessageReader.nz,
    b"MODSEQ": MessageReader.modseq,
    b"INTERNALDATE": lambda read: read.match(DATE_TIME, "a date-time"),
    b"RFC822.SIZE": lambda read: read.number(MAX63),
    b"ENVELOPE": MessageReader.envelope,
    b"BODY": lambda read: read.body(extended=False),
    b"BODYSTRUCTURE": lambda read: read.body(extended=True),
    b"RFC822": MessageReader.octets, b"RFC822.HEADER": MessageReader.octets, b"RFC822.TEXT": MessageReader.octets,
}
