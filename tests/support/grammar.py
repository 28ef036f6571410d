r"""Reads what an IMAP server says, as strictly as the formal syntax does: RFC 3501 §9, RFC 9051 §9, and what the
extensions add to it (RFC 2971, 3516, 4314, 4315, 4731, 5161, 5182, 5256, 5258, 5530, 6154, 7162, 7889, 8438, 8440,
9208, 9585). Written from these only.

    response, end = response_at(octets, at)      Incomplete when more octets must come; Ungrammatical when it is wrong

A response is a tuple that begins with its kind: ("+",), ("tagged", tag, status, code), ("OK", code) and NO, BAD, BYE,
("EXISTS", n), ("EXPUNGE", n), ("FETCH", n, items) and so on; a code is None or a tuple that begins with its name.
"""

import re

MAX32 = (1 << 32) - 1
MAX63 = (1 << 63) - 1

_ATOM_CHAR = rb"[!#$&'+,\-./0-9:;<=>?@A-Z\[^_`a-z|}~]"          # any CHAR except atom-specials
ATOM = re.compile(_ATOM_CHAR + rb"+")
ASTRING = re.compile(rb"[!#$&'+,\-./0-9:;<=>?@A-Z\[^_`a-z|}~\]]+")
TAG = re.compile(rb"[!#$&',\-./0-9:;<=>?@A-Z\[^_`a-z|}~\]]+")
QUOTED = re.compile(rb'"((?:[\x01-\x09\x0b\x0c\x0e-!#-\[\]-\x7f]|\\["\\])*)"')
QUOTED8 = re.compile(rb'"((?:[\x01-\x09\x0b\x0c\x0e-!#-\[\]-\x7f\x80-\xff]|\\["\\])*)"')
TEXT = re.compile(rb"[\x01-\x09\x0b\x0c\x0e-\x7f]+")
NUMBER = re.compile(rb"[0-9]+")
LITERAL = re.compile(rb"\{(0|[1-9][0-9]*)\}\r\n")
FLAG = re.compile(rb"\\?" + _ATOM_CHAR + rb"+")
SET = re.compile(rb"[1-9][0-9]*(?::[1-9][0-9]*)?(?:,[1-9][0-9]*(?::[1-9][0-9]*)?)*")
BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\r\n")
DATE_TIME = re.compile(rb'"(?: [1-9]|[012][0-9]|3[01])-(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)-[0-9]{4} '
                       rb'[0-2][0-9]:[0-5][0-9]:[0-6][0-9] [+-][0-9]{4}"')
SECTION = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*(?:\.(?:HEADER|TEXT|MIME))?|HEADER|TEXT)?\]")
FIELDS = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*\.)?HEADER\.FIELDS(?:\.NOT)? \(")
SECTION_BINARY = re.compile(rb"\[(?:[1-9][0-9]*(?:\.[1-9][0-9]*)*)?\]")
ORIGIN = re.compile(rb"<[0-9]+>")
# Codes without arguments: RFC 3501 §7.1, RFC 5530 §3, RFC 3516, 5182, 6154, 7162, 7889, 9585.
PLAIN_CODES = frozenset((
    b"ALERT", b"PARSE", b"READ-ONLY", b"READ-WRITE", b"TRYCREATE", b"UIDNOTSTICKY", b"UNAVAILABLE",
    b"AUTHENTICATIONFAILED", b"AUTHORIZATIONFAILED", b"EXPIRED", b"PRIVACYREQUIRED", b"CONTACTADMIN", b"NOPERM",
    b"INUSE", b"EXPUNGEISSUED", b"CORRUPTION", b"SERVERBUG", b"CLIENTBUG", b"CANNOT", b"LIMIT", b"OVERQUOTA",
    b"ALREADYEXISTS", b"NONEXISTENT", b"NOTSAVED", b"HASCHILDREN", b"CLOSED", b"UNKNOWN-CTE", b"TOOBIG", b"NOMODSEQ",
    b"USEATTR", b"INPROGRESS", b"BADCHARSET"))
STATUS_ITEMS = frozenset((b"MESSAGES", b"RECENT", b"UIDNEXT", b"UIDVALIDITY", b"UNSEEN", b"SIZE", b"DELETED",
                          b"DELETED-STORAGE", b"APPENDLIMIT", b"HIGHESTMODSEQ"))


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


class Reader:
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

    # Messages

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
            if (kind, subtype) in ((b"MESSAGE", b"RFC822"), (b"MESSAGE", b"GLOBAL")):
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
        """nstring; or literal8 (RFC 3516 §7). A message that has NULs goes out as it is."""
        if binary and self.takes(b"~"):
            return self.literal(nul=True)
        if self.data[self.at:self.at + 1] == b"{":
            return self.literal(nul=not binary)
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

    # Text and codes

    def text(self):
        """resp-text and its end: the code, or None"""
        end = self.data.find(b"\r\n", self.at)
        if end < 0:
            raise Incomplete
        code = None
        if self.takes(b"["):
            code = self.code()
            self.want(b"]")
            self.space()
        self.match(TEXT, "text")
        self.want(b"\r\n")
        return code

    def code(self):
        """resp-text-code"""
        name = self.match(re.compile(rb"[A-Z0-9-]+"), "a code")
        more = self.data[self.at:self.at + 1] == b" "
        if not more and name in PLAIN_CODES:
            return (name,)
        if name == b"CAPABILITY":
            return name, self.capabilities()
        self.space()
        match name:
            case b"BADCHARSET":
                return name, self.list_of(self.astring, least=1)
            case b"PERMANENTFLAGS":
                found = self.list_of(lambda: b"\\*" if self.takes(b"\\*") else self.flag())
                return name, found
            case b"UIDNEXT" | b"UIDVALIDITY" | b"UNSEEN":
                return name, self.nz()
            case b"HIGHESTMODSEQ":
                return name, self.nz(MAX63)
            case b"APPENDUID":
                return name, self.nz(), self.space() or self.set()
            case b"COPYUID":
                found = name, self.nz(), self.space() or self.set(), self.space() or self.set()
                if len(found[2]) != len(found[3]):
                    raise Ungrammatical("COPYUID of two sets that are not as long")
                return found
            case b"MODIFIED":
                return name, self.set()
            case b"INPROGRESS":                     # RFC 9585 §7
                self.want(b"(")
                tag = self.string()
                for most in (MAX63, MAX63):
                    self.space()
                    if not self.takes(b"NIL"):
                        self.number(most)
                self.want(b")")
                return name, tag
        raise Ungrammatical(f"the code {name!r}")

    def capabilities(self):
        """What follows CAPABILITY"""
        found = self.words()
        if b"IMAP4rev1" not in found or b"IMAP4rev2" not in found or len(set(found)) != len(found):
            raise Ungrammatical("a wrong list of capabilities")
        return found

    # Responses

    def response(self):
        """continue-req, response-data or response-tagged"""
        if self.takes(b"+ "):
            if found := BASE64.match(self.data, self.at):
                self.at = found.end()
            else:
                self.text()
            return ("+",)
        if not self.takes(b"* "):
            tag = self.match(TAG, "a tag")
            self.space()
            status = self.atom()
            if status not in (b"OK", b"NO", b"BAD"):
                raise Ungrammatical(f"{status!r} after a tag")
            self.space()
            return "tagged", tag, status.decode(), self.text()
        if NUMBER.match(self.data, self.at):
            return self.message_data()
        name = self.match(re.compile(rb"[A-Z]+"), "a response")
        if name in (b"OK", b"NO", b"BAD", b"BYE"):
            self.space()
            return name.decode(), self.text()
        read = _RESPONSES.get(name)
        if read is None:
            raise Ungrammatical(f"the response {name!r}")
        answer = name.decode(), *read(self)
        self.want(b"\r\n")
        return answer

    def message_data(self):
        """message-data, and the two of mailbox-data that begin with a number"""
        number = self.number()
        self.space()
        name = self.match(re.compile(rb"[A-Z]+"), "a response")
        if name in (b"EXPUNGE", b"FETCH") and not number or name not in (b"EXISTS", b"RECENT", b"EXPUNGE", b"FETCH"):
            raise Ungrammatical(f"{number} {name!r}")
        if name == b"FETCH":
            self.space()
            found = "FETCH", number, self.items()
        else:
            found = name.decode(), number
        self.want(b"\r\n")
        return found

    def vanished(self):
        """VANISHED (RFC 7162 §7)"""
        earlier = self.takes(b" (EARLIER)")
        self.space()
        end = self.data.find(b"\r\n", self.at)
        if end < 0:
            raise Incomplete
        found = self.match(SET, "a set")
        if not earlier:
            return False, numbers_of(found)
        return True, found                          # ranges of UIDs that there may never have been

    def listed(self):
        """mailbox-list (RFC 5258 §6)"""
        self.space()
        attributes = self.list_of(lambda: self.match(re.compile(rb"\\" + _ATOM_CHAR + rb"+"), "an attribute"))
        self.space()
        if not self.takes(b"NIL"):
            separator = self.string()
            if len(separator) != 1:
                raise Ungrammatical(f"the separator {separator!r}")
        self.space()
        name = self.mailbox()
        if self.takes(b" ("):
            self.at -= 1
            self.list_of(self.extended)
        if len({attribute.lower() for attribute in attributes}) != len(attributes):
            raise Ungrammatical("an attribute twice")
        return attributes, name

    def extended(self):
        """mbox-list-extended-item, of the kinds that there are"""
        name = self.astring()
        self.space()
        if name == b"CHILDINFO":
            return name, self.list_of(self.string, least=1)
        if name == b"OLDNAME":
            return name, self.list_of(self.mailbox, least=1)
        raise Ungrammatical(f"the extended item {name!r}")

    def status(self):
        """STATUS (RFC 3501 §7.2.4, RFC 8438 §4, RFC 9208 §4.1)"""
        self.space()
        name = self.mailbox()
        self.space()

        def value():
            item = self.atom()
            if item not in STATUS_ITEMS:
                raise Ungrammatical(f"the item {item!r} of STATUS")
            self.space()
            return item, self.number(MAX63)
        return name, dict(self.list_of(value))

    def searched(self):
        """SEARCH, SORT (RFC 7162 §7)"""
        found, modseq = [], None
        while self.takes(b" "):
            if self.takes(b"("):
                self.want(b"MODSEQ ")
                modseq = self.nz(MAX63)
                self.want(b")")
                break
            found.append(self.nz())
        return found, modseq

    def esearch(self):
        """ESEARCH (RFC 4731 §4, RFC 9051 §9)"""
        tag, items = None, {}
        if self.takes(b" ("):
            self.want(b"TAG ")
            tag = self.astring()
            self.want(b")")
        by_uid = self.takes(b" UID")
        while self.takes(b" "):
            name = self.atom()
            self.space()
            if name in items or name not in (b"MIN", b"MAX", b"ALL", b"COUNT", b"MODSEQ"):
                raise Ungrammatical(f"{name!r} of ESEARCH")
            if name == b"ALL":
                items[name] = self.set()
            else:
                items[name] = self.nz(MAX63) if name == b"MODSEQ" else self.number(MAX32, name != b"COUNT")
        return tag, by_uid, items

    def thread(self):
        """thread-data (RFC 5256 §5): all numbers in it"""
        found = []
        if self.takes(b" "):
            self.thread_list(found)
            while self.data[self.at:self.at + 1] == b"(":
                self.thread_list(found)
        return (found,)

    def thread_list(self, found):
        """thread-list"""
        self.want(b"(")
        if self.data[self.at:self.at + 1] != b"(":
            found.append(self.nz())
            while self.takes(b" "):
                if self.data[self.at:self.at + 1] == b"(":
                    self.thread_nested(found)
                    break
                found.append(self.nz())
        else:
            self.thread_nested(found)
        self.want(b")")

    def thread_nested(self, found):
        """thread-nested"""
        self.thread_list(found)
        self.thread_list(found)
        while self.data[self.at:self.at + 1] == b"(":
            self.thread_list(found)

    def namespaces(self):
        """NAMESPACE (RFC 2342 §6)"""
        for _ in range(3):
            self.space()
            if self.takes(b"NIL"):
                continue
            self.want(b"(")
            while True:
                self.want(b"(")
                self.string()
                self.space()
                self.string()
                self.want(b")")
                if self.takes(b")"):
                    break
        return ()

    def identity(self):
        """ID (RFC 2971 §4)"""
        self.space()
        if not self.takes(b"NIL"):
            words = self.list_of(self.nstring, least=2)
            if len(words) % 2 or None in words[::2]:
                raise Ungrammatical("ID with half a pair")
        return ()

    def acl(self):
        """ACL (RFC 4314 §7)"""
        self.space()
        name, found = self.mailbox(), []
        while self.takes(b" "):
            identifier = self.astring()
            self.space()
            found.append((identifier, self.rights()))
        return name, found

    def rights(self):
        """rights"""
        found = self.astring()
        if not re.fullmatch(rb"[a-z0-9]*", found):
            raise Ungrammatical(f"the rights {found!r}")
        return found

    def list_rights(self):
        """LISTRIGHTS"""
        self.space()
        name, _, identifier, _ = self.mailbox(), self.space(), self.astring(), self.space()
        found = [self.rights()]
        while self.takes(b" "):
            found.append(self.rights())
        return name, identifier, found

    def my_rights(self):
        """MYRIGHTS"""
        self.space()
        return self.mailbox(), self.space() or self.rights()

    def quota(self):
        """QUOTA (RFC 9208 §7)"""
        self.space()
        root = self.astring()
        self.space()

        def resource():
            name, _, used, _ = self.atom(), self.space(), self.number(MAX63), self.space()
            return name, used, self.number(MAX63)
        return root, self.list_of(resource)

    def quota_root(self):
        """QUOTAROOT"""
        self.space()
        name, roots = self.mailbox(), []
        while self.takes(b" "):
            roots.append(self.astring())
        return name, roots


_ITEMS = {
    b"FLAGS": lambda read: read.flags(recent=True),
    b"UID": Reader.nz,
    b"MODSEQ": Reader.modseq,
    b"INTERNALDATE": lambda read: read.match(DATE_TIME, "a date-time"),
    b"RFC822.SIZE": lambda read: read.number(MAX63),
    b"ENVELOPE": Reader.envelope,
    b"BODY": lambda read: read.body(extended=False),
    b"BODYSTRUCTURE": lambda read: read.body(extended=True),
    b"RFC822": Reader.octets, b"RFC822.HEADER": Reader.octets, b"RFC822.TEXT": Reader.octets,
}
_RESPONSES = {
    b"CAPABILITY": lambda read: (read.capabilities(),),
    b"ENABLED": lambda read: (read.words(),),
    b"FLAGS": lambda read: (read.space() or read.flags(),),
    b"LIST": Reader.listed, b"LSUB": Reader.listed,
    b"STATUS": Reader.status,
    b"SEARCH": Reader.searched, b"SORT": Reader.searched, b"ESEARCH": Reader.esearch, b"THREAD": Reader.thread,
    b"VANISHED": Reader.vanished,
    b"NAMESPACE": Reader.namespaces, b"ID": Reader.identity,
    b"ACL": Reader.acl, b"LISTRIGHTS": Reader.list_rights, b"MYRIGHTS": Reader.my_rights,
    b"QUOTA": Reader.quota, b"QUOTAROOT": Reader.quota_root,
}


def response_at(octets, at=0, *, utf8=False):
    """The response that begins there, and where it ends. Raises Incomplete, Ungrammatical."""
    read = Reader(octets, at, utf8=utf8)
    return read.response(), read.at


def responses(octets, *, utf8=False):
    """All the responses in octets, of which nothing may be left over. Raises Ungrammatical."""
    found, at = [], 0
    while at < len(octets):
        try:
            response, at = response_at(octets, at, utf8=utf8)
        except Incomplete:
            raise Ungrammatical(f"{octets[at:at + 200]!r} is not complete") from None
        found.append(response)
    return found
