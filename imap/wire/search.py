"""SEARCH: RFC 3501 §6.4.4. The keys are the values of `store.search`; what is short for others is written out."""

import re
from collections.abc import Callable

from attrs import define, frozen

from imap.wire.dates import date
from imap.wire.grammar import ATOM, SyntaxProblem
from imap.wire.numbers import number_set
from imap.wire.scanner import Scanner
from store.search import (
    All,
    And,
    Before,
    Body,
    HasFlag,
    Header,
    Key,
    Keyword,
    Larger,
    New,
    Not,
    Numbers,
    Old,
    On,
    Or,
    Recent,
    SentBefore,
    SentOn,
    SentSince,
    Since,
    Smaller,
    Text,
    Uids,
)
from store.text import codec
from store.values import Flag

CHARSETS = b"BADCHARSET (US-ASCII UTF-8)"       # those we promise; codec() knows more
_WORD = re.compile(rb"[A-Za-z]++")


@frozen
class Search:
    """search = "SEARCH" [SP "CHARSET" SP astring] 1*(SP search-key); several keys are one And.

    The texts in `key` are decoded already; `charset` is what the client said, in upper case.
    """

    key: Key
    charset: bytes | None = None
    by_uid: bool = False


def parse_search(scan: Scanner, *, by_uid: bool) -> Search:
    scan.space()
    charset = None
    word = scan.match(_WORD)
    if word is not None and word[0].upper() == b"CHARSET":
        scan.space()
        charset = scan.astring().upper()
        scan.space()
        word = scan.match(_WORD)
    reader = _Reader(scan, _decoder(charset))
    keys = [reader.key(word[0] if word is not None else None)]
    while not scan.at_end():
        scan.space()
        keys.append(reader.next_key())
    return Search(keys[0] if len(keys) == 1 else And(tuple(keys)), charset, by_uid)


def _decoder(charset: bytes | None) -> str:
    if charset is None:
        return "utf-8"      # US-ASCII in RFC 3501; that clients send UTF-8 unannounced is the rule of RFC 9051 §6.4.4
    name = codec(charset)
    if name is None or not _makes_text(name):
        raise SyntaxProblem("That charset is not known here", code=CHARSETS, status=b"NO")
    return name


def _makes_text(name: str) -> bool:
    """Whether this codec makes text of octets; Python's hex and zlib do not."""
    try:
        b"a".decode(name)
    except UnicodeError:
        return True
    except LookupError:
        return False
    return True


@define
class _Reader:
    """Reads search keys, and counts them."""

    scan: Scanner
    _codec: str
    _count: int = 0

    def next_key(self) -> Key:
        """search-key"""
        word = self.scan.match(_WORD)
        return self.key(word[0] if word is not None else None)

    def key(self, word: bytes | None) -> Key:
        """The search-key that begins with this word, which has been read; with None, one that begins with no word."""
        self._count += 1
        if self._count > self.scan.limits.keys:
            raise SyntaxProblem("Too many search keys")
        if word is None:
            return self._group() if self.scan.looks_at(b"(") else Numbers(number_set(self.scan).ranges)
        name = word.upper()
        plain = _PLAIN.get(name)
        if plain is not None:
            return plain
        read = _READERS.get(name)
        if read is None:
            raise SyntaxProblem("There is no such search key")
        self.scan.space()
        return read(self)

    def _group(self) -> Key:
        self.scan.expect(b"(")
        self.scan.deeper()
        keys = [self.next_key()]
        while not self.scan.take(b")"):
            self.scan.space()
            keys.append(self.next_key())
        self.scan.back()
        return keys[0] if len(keys) == 1 else And(tuple(keys))

    def text(self) -> str:
        """astring, in the charset of the command"""
        try:
            return self.scan.astring().decode(self._codec)
        except UnicodeError:
            raise SyntaxProblem("The text is not in the charset of this command") from None

    def keyword(self) -> str:
        """flag-keyword"""
        found = self.scan.match(ATOM)
        if found is None or len(found[0]) > self.scan.limits.word:
            raise SyntaxProblem("A keyword is expected here")
        return found[0].decode("ascii")

    def inverted(self) -> Key:
        """The key after NOT"""
        self.scan.deeper()
        key = self.next_key()
        self.scan.back()
        return Not(key)

    def either(self) -> Key:
        """The two keys after OR"""
        self.scan.deeper()
        first = self.next_key()
        self.scan.space()
        second = self.next_key()
        self.scan.back()
        return Or(first, second)

    def header(self) -> Key:
        """What follows HEADER"""
        name = self.scan.field_name().decode("ascii")
        self.scan.space()
        return Header(name, self.text())


def _field(name: str) -> Callable[[_Reader], Key]:
    return lambda reader: Header(name, reader.text())


_PLAIN: dict[bytes, Key] = {
    b"ALL": All(),
    b"ANSWERED": HasFlag(Flag.ANSWERED),
    b"DELETED": HasFlag(Flag.DELETED),
    b"DRAFT": HasFlag(Flag.DRAFT),
    b"FLAGGED": HasFlag(Flag.FLAGGED),
    b"NEW": New(),
    b"OLD": Old(),
    b"RECENT": Recent(),
    b"SEEN": HasFlag(Flag.SEEN),
    b"UNANSWERED": Not(HasFlag(Flag.ANSWERED)),
    b"UNDELETED": Not(HasFlag(Flag.DELETED)),
    b"UNDRAFT": Not(HasFlag(Flag.DRAFT)),
    b"UNFLAGGED": Not(HasFlag(Flag.FLAGGED)),
    b"UNSEEN": Not(HasFlag(Flag.SEEN)),
}

_READERS: dict[bytes, Callable[[_Reader], Key]] = {
    b"BCC": _field("Bcc"),
    b"BEFORE": lambda reader: Before(date(reader.scan)),
    b"BODY": lambda reader: Body(reader.text()),
    b"CC": _field("Cc"),
    b"FROM": _field("From"),
    b"HEADER": _Reader.header,
    b"KEYWORD": lambda reader: Keyword(reader.keyword()),
    b"LARGER": lambda reader: Larger(reader.scan.number()),
    b"NOT": _Reader.inverted,
    b"ON": lambda reader: On(date(reader.scan)),
    b"OR": _Reader.either,
    b"SENTBEFORE": lambda reader: SentBefore(date(reader.scan)),
    b"SENTON": lambda reader: SentOn(date(reader.scan)),
    b"SENTSINCE": lambda reader: SentSince(date(reader.scan)),
    b"SINCE": lambda reader: Since(date(reader.scan)),
    b"SMALLER": lambda reader: Smaller(reader.scan.number()),
    b"SUBJECT": _field("Subject"),
    b"TEXT": lambda reader: Text(reader.text()),
    b"TO": _field("To"),
    b"UID": lambda reader: Uids(number_set(reader.scan).ranges),
    b"UNKEYWORD": lambda reader: Not(Keyword(reader.keyword())),
}
