"""Which messages are meant, in words of a command line: the search keys of IMAP (RFC 3501 §6.4.4, RFC 5032), and
`mailbox NAME`. A value is a word of its own, so that it needs no quotes of IMAP: `subject "annual report"`.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import ge, le

from attrs import define, frozen

from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from imap.wire.search import parse_search
from mboxlist.patterns import Test, compile_patterns
from store.search import searchkeys
from store.search.searchkeys import Key
from store.values import duration, size
from tools.exits import Failure, did_you_mean

MAILBOX = "mailbox"
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_IMAP_DATE = re.compile(r"\d{1,2}-[A-Za-z]{3}-\d{4}")
_ALONE = frozenset("all answered deleted draft flagged seen unanswered undeleted undraft unflagged unseen".split())


@frozen
class Wanted:
    """The mailboxes, by their names as their owners' clients write them, and what is wanted of them."""

    mailboxes: Test
    key: Key
    whole: bool         # every message of these mailboxes


def read(words: Sequence[str], now: float) -> Wanted:
    """What the words mean at that time. Raises Failure."""
    reader = _Words(list(words), now)
    patterns, keys = [], []
    while reader.left:
        if reader.left[0].lower() == MAILBOX:
            reader.next("a search key")
            patterns.append(reader.next("the name of a mailbox"))
        else:
            keys.append(reader.key())
    try:
        key = parse_search(Scanner(Frame([b" " + b" ".join(keys or [b"ALL"])])), by_uid=True).key
        return Wanted(compile_patterns(patterns or ["*"]), searchkeys.mapped(key, partial(_at, int(now))),
                      isinstance(key, searchkeys.All))
    except (SyntaxProblem, ValueError) as error:
        raise Failure(f"{' '.join(words)}: {error}") from None


def _at(now: int, key: Key) -> Key:
    """What OLDER and YOUNGER mean now."""
    if isinstance(key, searchkeys.Within):
        return searchkeys.ReceivedAt(le if key.older else ge, now - key.seconds)
    return key


@define
class _Words:
    """The words that are left."""

    left: list[str]
    now: float

    def next(self, what: str) -> str:
        """One more. Raises Failure where there is none: `what` is missing."""
        if not self.left:
            raise Failure(f"{what} is missing at the end")
        return self.left.pop(0)

    def key(self) -> bytes:
        """A search-key, as IMAP has it. Raises Failure."""
        word = self.next("a search key").lower()
        if word == "(":
            keys = []
            while not (self.left and self.left[0] == ")"):
                keys.append(self.key())
            self.left.pop(0)
            return b"(%b)" % (b" ".join(keys) or b"ALL")
        name = word.upper().encode()
        if word == "not":
            return b"NOT " + self.key()
        if word == "or":
            return b"OR %b %b" % (self.key(), self.key())
        if word in _ALONE:
            return name
        values = _VALUES.get(word)
        if values is None:
            raise Failure(_unknown(word))
        return b" ".join([name, *(value(self.next(f"what stands behind {word}"), self.now) for value in values)])


def _unknown(word: str) -> str:
    if word == MAILBOX:
        return "mailbox stands by itself: not behind not or or, and not in parentheses"
    if re.fullmatch(r"[\d:,*]+", word):
        return f"{word}: numbers of messages change; say uid {word}"
    return f"{word}: there is no such search key{did_you_mean(word, [MAILBOX, 'not', 'or', *_ALONE, *_VALUES])}"


def _text(word: str, now: float) -> bytes:
    if re.search("[\0\r\n]", word):
        raise Failure("what is searched for cannot have line ends in it")
    return b'"%b"' % word.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _as_it_is(word: str, now: float) -> bytes:
    if not re.fullmatch(r"[!-~]+", word) or re.search(r'[(){"\\]', word):
        raise Failure(f"{word}: this cannot stand here")
    return word.encode()


def _uids(word: str, now: float) -> bytes:
    if not re.fullmatch(r"[\d:,*]+", word):
        raise Failure(f"{word}: UIDs are written as 5, 5:9 or 5,7:*")
    return word.encode()


def _day(word: str, now: float) -> bytes:
    """2026-11-27, 27-Nov-2026, or so long ago: 7d; a day in UTC."""
    if _ISO_DATE.fullmatch(word):
        try:
            day = datetime.fromisoformat(word)
        except ValueError:
            raise Failure(f"{word}: there is no such day") from None
    elif re.fullmatch(r"\d+[smhdw]", word):
        day = datetime.fromtimestamp(now - duration(word), UTC)
    elif _IMAP_DATE.fullmatch(word):
        return _as_it_is(word, now)
    else:
        raise Failure(f"{word}: this is no day: 2026-11-27, 27-Nov-2026, or 7d for so long ago")
    return b"%d-%b-%04d" % (day.day, _MONTHS[day.month - 1].encode(), day.year)


def _span(word: str, now: float) -> bytes:
    return b"%d" % _number(word, duration)


def _size(word: str, now: float) -> bytes:
    return b"%d" % _number(word, size)


def _number(word: str, of: Callable[[str], float]) -> float:
    try:
        return of(word)
    except ValueError as error:
        raise Failure(f"{word}: {error}") from None


_Value = Callable[[str, float], bytes]
_VALUES: dict[str, tuple[_Value, ...]] = {
    **dict.fromkeys("bcc body cc from subject text to".split(), (_text,)),
    **dict.fromkeys("before on since sentbefore senton sentsince".split(), (_day,)),
    **dict.fromkeys(("larger", "smaller"), (_size,)), **dict.fromkeys(("older", "younger"), (_span,)),
    **dict.fromkeys(("keyword", "unkeyword", "modseq"), (_as_it_is,)), "uid": (_uids,), "header": (_text, _text)}
