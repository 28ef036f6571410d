"""SEARCH: RFC 3501 §6.4.4, RFC 4731, RFC 5032, RFC 5182.

The keys are the values of `store.search.searchkeys`; what is short for others is written out.
"""

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from operator import eq, ge, gt, lt

from attrs import define, field, frozen

from imap.wire.dates import date
from imap.wire.grammar import ATOM, SyntaxProblem
from imap.wire.modseq import mod_sequence
from imap.wire.scanner import FIELD_NAME, Scanner, number_set
from store.message.text import codec
from store.search import searchkeys
from store.search.searchkeys import And, Envelope, HasFlag, Key, Keyword, Not, Received, Recent, Sent, Size
from store.values import Flag

# Those we promise; codec() knows more.
CHARSETS = b"BADCHARSET (%b)" % b" ".join([
    b"US-ASCII", b"UTF-8", *(b"ISO-8859-%d" % part for part in range(1, 17) if part != 12),
    *(b"WINDOWS-%d" % page for page in range(1250, 1259)), b"KOI8-R", b"KOI8-U", b"BIG5", b"EUC-JP", b"EUC-KR",
    b"GB18030", b"GB2312", b"ISO-2022-JP", b"SHIFT_JIS"])
_WORD = re.compile(rb"[A-Za-z]++")
_WORDS = re.compile(rb"((?: [A-Za-z]++){1,4})\Z")
_ENTRY = re.compile(rb"/flags/(?:\\?+" + ATOM.pattern + rb")")
_ENTRY_TYPES = (b"PRIV", b"SHARED", b"ALL")


class Result(Enum):
    """search-return-opt (RFC 4731 §4, RFC 5182 §3)"""

    MIN = b"MIN"
    MAX = b"MAX"
    ALL = b"ALL"
    COUNT = b"COUNT"
    SAVE = b"SAVE"


Results = frozenset[Result]


@frozen
class Search:
    """search = "SEARCH" [search-return-opts] [SP "CHARSET" SP astring] 1*(SP search-key); several keys are one And.

    The texts in `key` are decoded already; `charset` is what the client said, in upper case. `results` is None without
    RETURN. When the charset is not known (`charset_known`) there is no key: that is a matter for the session, since "$"
    may have to be emptied.
    """

    key: Key
    charset: bytes | None = None
    by_uid: bool = False
    results: Results | None = None
    charset_known: bool = True
    kinds: frozenset[type[Key]] = field(init=False, eq=False, repr=False)       # see `searchkeys.kinds`

    @kinds.default
    def _kinds_of_key(self) -> frozenset[type[Key]]:
        return searchkeys.kinds(self.key)


def parse_search(scan: Scanner, *, by_uid: bool) -> Search:
    words = _WORDS.match(scan.text, scan.at)
    if words is not None and words[1].count(b" ") <= scan.limits.keys and (
            plain := _of_words(words[1].upper(), by_uid)) is not None:
        return plain
    scan.space()
    charset, results = None, None
    word = scan.match(_WORD)
    if word is not None and word[0].upper() == b"RETURN":
        scan.space()
        results = return_options(scan)
        scan.space()
        word = scan.match(_WORD)
    if word is not None and word[0].upper() == b"CHARSET":
        scan.space()
        charset = scan.astring().upper()
        scan.space()
        word = scan.match(_WORD)
    key, known = search_keys(scan, charset, word)
    return Search(key, charset, by_uid, results, known)


def return_options(scan: Scanner) -> Results:
    """What follows RETURN. Nothing in the list is ALL (RFC 4731 §3.1)."""
    def option() -> Result:
        try:
            return Result(scan.atom().upper())
        except ValueError:
            raise SyntaxProblem("There is no such result option") from None

    found = scan.in_parentheses(option, scan.limits.items, "Too many result options", least=0)
    return frozenset(found or (Result.ALL,))


def search_keys(scan: Scanner, charset: bytes | None, word: re.Match[bytes] | None) -> tuple[Key, bool]:
    """1*(SP search-key) to the end of the command, as one key; `word`, which has been read, begins the first one.

    Gives also whether the charset is known; if not, the key means nothing.
    """
    decoder = _decoder(charset)
    reader = _Reader(scan, decoder or "latin-1")
    keys = [reader.key(word[0]) if word is not None else reader.next_key()]
    while not scan.at_end():
        scan.space()
        keys.append(reader.next_key())
    return keys[0] if len(keys) == 1 else And(tuple(keys)), decoder is not None


def _decoder(charset: bytes | None) -> str | None:
    if charset is None:
        return "utf-8"      # US-ASCII in RFC 3501; that clients send UTF-8 unannounced is the rule of RFC 9051 §6.4.4
    name = codec(charset)
    return name if name is not None and _makes_text(name) else None


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
            return self._group() if self.scan.looks_at(b"(") else self.numbers()
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

    def numbers(self) -> Key:
        """sequence-set of message numbers, or "$" """
        found = number_set(self.scan)
        return searchkeys.Saved() if found.saved else searchkeys.Numbers(found.ranges)

    def uids(self) -> Key:
        """sequence-set of UIDs, or "$" """
        found = number_set(self.scan)
        return searchkeys.Saved() if found.saved else searchkeys.Uids(found.ranges)

    def within(self, *, older: bool) -> Key:
        """The interval after OLDER or YOUNGER"""
        seconds = self.scan.number()
        if not seconds:
            raise SyntaxProblem("The interval must not be 0")
        return searchkeys.Within(seconds, older)

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

    def modseq(self) -> Key:
        """What follows MODSEQ. The name of a flag is read, and passed over (RFC 7162 §3.1.5)."""
        if self.scan.looks_at(b'"'):
            name = self.scan.string()
            self.scan.space()
            if not _ENTRY.fullmatch(name) or self.scan.atom().upper() not in _ENTRY_TYPES:
                raise SyntaxProblem("MODSEQ takes an entry such as \"/flags/$Junk\" and priv, shared or all")
            self.scan.space()
        return searchkeys.ModSeq(mod_sequence(self.scan))

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
        return searchkeys.Or(first, second)

    def header(self) -> Key:
        """What follows HEADER. No message has a field whose name cannot be one."""
        name = self.scan.astring()
        self.scan.space()
        text = self.text()
        return searchkeys.Header(name.decode("ascii"), text) if FIELD_NAME.fullmatch(name) else Not(searchkeys.All())


def _field(name: str) -> Callable[[_Reader], Key]:
    return lambda reader: Envelope(name, reader.text())


_PLAIN: dict[bytes, Key] = {
    b"ALL": searchkeys.All(),
    b"ANSWERED": HasFlag(Flag.ANSWERED),
    b"DELETED": HasFlag(Flag.DELETED),
    b"DRAFT": HasFlag(Flag.DRAFT),
    b"FLAGGED": HasFlag(Flag.FLAGGED),
    b"NEW": And((Recent(), Not(HasFlag(Flag.SEEN)))),
    b"OLD": Not(Recent()),
    b"RECENT": Recent(),
    b"SEEN": HasFlag(Flag.SEEN),
    b"UNANSWERED": Not(HasFlag(Flag.ANSWERED)),
    b"UNDELETED": Not(HasFlag(Flag.DELETED)),
    b"UNDRAFT": Not(HasFlag(Flag.DRAFT)),
    b"UNFLAGGED": Not(HasFlag(Flag.FLAGGED)),
    b"UNSEEN": Not(HasFlag(Flag.SEEN)),
}


@lru_cache(maxsize=256)
def _of_words(words: bytes, by_uid: bool) -> Search | None:
    """The search for a few keys that have no arguments, each after a blank: clients ask for the same again and again,
    and it is the same value each time. None if a word is another one."""
    keys = [_PLAIN.get(word) for word in words[1:].split(b" ")]
    known = tuple([key for key in keys if key is not None])
    if len(known) < len(keys):
        return None
    return Search(known[0] if len(known) == 1 else And(known), by_uid=by_uid)


_READERS: dict[bytes, Callable[[_Reader], Key]] = {
    b"BCC": _field("bcc"),
    b"BEFORE": lambda reader: Received(lt, date(reader.scan)),
    b"BODY": lambda reader: searchkeys.Body(reader.text()),
    b"CC": _field("cc"),
    b"FROM": _field("from"),
    b"HEADER": _Reader.header,
    b"KEYWORD": lambda reader: Keyword(reader.keyword()),
    b"LARGER": lambda reader: Size(gt, reader.scan.number64()),
    b"MODSEQ": _Reader.modseq,
    b"NOT": _Reader.inverted,
    b"OLDER": lambda reader: reader.within(older=True),
    b"ON": lambda reader: Received(eq, date(reader.scan)),
    b"OR": _Reader.either,
    b"SENTBEFORE": lambda reader: Sent(lt, date(reader.scan)),
    b"SENTON": lambda reader: Sent(eq, date(reader.scan)),
    b"SENTSINCE": lambda reader: Sent(ge, date(reader.scan)),
    b"SINCE": lambda reader: Received(ge, date(reader.scan)),
    b"SMALLER": lambda reader: Size(lt, reader.scan.number64()),
    b"SUBJECT": _field("subject"),
    b"TEXT": lambda reader: searchkeys.Text(reader.text()),
    b"TO": _field("to"),
    b"UID": _Reader.uids,
    b"UNKEYWORD": lambda reader: Not(Keyword(reader.keyword())),
    b"YOUNGER": lambda reader: reader.within(older=False),
}
