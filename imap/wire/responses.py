"""The replies of RFC 3501 §7, as lines. Text for people is cleaned, codes are checked: nothing can add a line."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from imap.wire import utf7
from imap.wire.commands import status_response
from imap.wire.flags import format_flags
from imap.wire.grammar import SyntaxProblem
from imap.wire.listing import StatusItem
from imap.wire.numbers import format_numbers, list_pieces
from imap.wire.writer import Writer

OK, NO, BAD, BYE = b"OK", b"NO", b"BAD", b"BYE"

READ_ONLY = b"READ-ONLY"
READ_WRITE = b"READ-WRITE"
TRYCREATE = b"TRYCREATE"
UNKNOWN_CTE = b"UNKNOWN-CTE"        # RFC 3516 §4.3
CLOSED = b"* OK [CLOSED] The mailbox is closed\r\n"        # RFC 7162 §3.2.11


def ok(tag: bytes | None, text: str, code: bytes = b"") -> bytes:
    """OK"""
    return status_response(tag, OK, text, code)


def bye(text: str, code: bytes = b"") -> bytes:
    """BYE"""
    return status_response(None, BYE, text, code)


def problem(tag: bytes | None, refused: SyntaxProblem) -> bytes:
    """The answer to a command that could not be read."""
    return status_response(tag, refused.status, refused.public, refused.code)


def capability(names: Iterable[bytes]) -> bytes:
    """capability-data"""
    return b"* " + capability_code(names) + b"\r\n"


def enabled(names: Iterable[bytes]) -> bytes:
    """RFC 5161 §3.2"""
    return b" ".join((b"* ENABLED", *names)) + b"\r\n"


def exists(count: int) -> bytes:
    """RFC 3501 §7.3.1"""
    return b"* %d EXISTS\r\n" % count


def recent(count: int) -> bytes:
    """RFC 3501 §7.3.2"""
    return b"* %d RECENT\r\n" % count


def vanished(uids: bytes, *, earlier: bool = False) -> bytes:
    """RFC 7162 §3.2.10; `uids` as `numbers.format_numbers` writes them."""
    return b"* VANISHED %s%s\r\n" % (b"(EARLIER) " if earlier else b"", uids)


def flags(keywords: Sequence[str]) -> bytes:
    """FLAGS: what can be set in this mailbox (RFC 3501 §7.2.6)."""
    return b"* FLAGS " + format_flags(0x1F, tuple(keywords)) + b"\r\n"


def listed(attributes: Iterable[bytes], name: str, separator: bytes = b"/", *, lsub: bool = False,
           childinfo: Sequence[bytes] = (), oldname: str | None = None, utf8: bool = False) -> bytes:
    """LIST or LSUB (RFC 3501 §7.2.2). The separator is one character; an empty one is NIL.

    `childinfo`: the selection options that a name below it satisfies (RFC 5258 §3.5). `oldname`: what the client called
    it (RFC 9051 §6.3.9.7). Both are only for clients that know extended LIST responses. `utf8`: see `Writer`.
    """
    line = Writer(utf8).raw(b"* LSUB " if lsub else b"* LIST ").words(attributes).raw(b" ")
    line.nstring(separator or None).raw(b" ").mailbox(name)
    if childinfo:
        line.raw(b' ("CHILDINFO" ').words(b'"%s"' % option for option in childinfo).raw(b")")
    if oldname is not None:
        line.raw(b' ("OLDNAME" (').mailbox(oldname).raw(b"))")
    return bytes(line.raw(b"\r\n"))


def status(name: str, values: Iterable[tuple[StatusItem, int]], *, utf8: bool = False) -> bytes:
    """STATUS (RFC 3501 §7.2.4)"""
    line = Writer(utf8).raw(b"* STATUS ").mailbox(name).raw(b" ")
    return bytes(line.words(b"%s %d" % (item.value, value) for item, value in values).raw(b"\r\n"))


def search_pieces(name: bytes, numbers: NDArray[np.integer], modseq: int = 0) -> Iterable[bytes]:
    """SEARCH (RFC 3501 §7.2.5) or SORT (RFC 5256 §4) in parts, none of which is long work; `modseq` is the highest of
    those messages when the client has asked for MODSEQs (RFC 7162 §3.1.6)."""
    end = b" (MODSEQ %d)\r\n" % modseq if len(numbers) and modseq else b"\r\n"
    pieces = list_pieces(numbers)
    if isinstance(pieces, tuple):
        return b"".join((b"* ", name, *pieces, end)),
    return chain((b"* " + name,), pieces, (end,))


def esearch(tag: bytes, items: Iterable[tuple[bytes, bytes]], *, by_uid: bool) -> bytes:
    """ESEARCH (RFC 4731 §3.1), as answer to the command with that tag."""
    head = b'* ESEARCH (TAG "%s")%s' % (tag, b" UID" if by_uid else b"")
    return head + b"".join([b" %s %s" % item for item in items]) + b"\r\n"


def server_id(pairs: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """ID (RFC 2971 §3.2); no pairs are NIL."""
    words = [bytes(Writer().string(name).raw(b" ").nstring(value)) for name, value in pairs]
    line = Writer().raw(b"* ID ")
    return bytes((line.words(words) if words else line.raw(b"NIL")).raw(b"\r\n"))


def namespace(personal: Sequence[str], others: Sequence[str], shared: Sequence[str], separator: bytes = b"/") -> bytes:
    """NAMESPACE (RFC 2342 §5): the prefixes of each kind; none is NIL."""
    line = Writer().raw(b"* NAMESPACE")
    for prefixes in (personal, others, shared):
        line.raw(b" " if prefixes else b" NIL")
        if prefixes:
            line.raw(b"(")
            for prefix in prefixes:
                line.raw(b"(").string(utf7.encode(prefix)).raw(b" ").string(separator).raw(b")")
            line.raw(b")")
    return bytes(line.raw(b"\r\n"))


# Response codes, without their brackets (RFC 3501 §7.1, RFC 4315 §3)


_VALID = (b"* OK [UIDVALIDITY %d] UIDs are valid\r\n* OK [UIDNEXT %d] Predicted next UID\r\n"
          b"* OK [HIGHESTMODSEQ %d] Highest mod-sequence\r\n")


def selected(count: int, described: bytes, recent: int | None, unseen: int | None, validity: int, following: int,
             modseq: int) -> bytes:
    """What a client hears of a mailbox that it selects (RFC 3501 §6.3.1, RFC 7162 §3.1.2.1): how many messages it has,
    its flags and more that is `described`, the number of the first message that is not \\Seen, UIDVALIDITY, UIDNEXT,
    HIGHESTMODSEQ. None is not said."""
    return b"".join((exists(count), b"" if recent is None else b"* %d RECENT\r\n" % recent, described,
                     b"" if unseen is None else b"* OK [UNSEEN %d] First unseen message\r\n" % unseen,
                     _VALID % (validity, following, modseq)))


@lru_cache(maxsize=1024)
def changeable_flags(keywords: tuple[str, ...], system: int, *, named: bool, more: bool) -> bytes:
    """FLAGS and PERMANENTFLAGS (RFC 3501 §7.2.6, §7.1): the flags that there are; those of them that the client may
    change, with the keywords if they are `named`; and whether it may make `more`."""
    if not (system or named):
        code, text = permanent_flags((), 0, more=False), "No flags can be changed"
    else:
        code, text = permanent_flags(keywords if named else (), system, more=more), "Flags that can be changed"
    return flags(keywords) + ok(None, text, code)


def in_progress(tag: bytes, done: int = 0, goal: int = 0) -> bytes:
    """INPROGRESS of the command with that tag: so much is done of a goal, which is 0 when unknown (RFC 9585 §4)."""
    if b"]" in tag:
        return b"INPROGRESS"
    return b'INPROGRESS ("%b" %d %d)' % (tag, done, goal) if goal else b'INPROGRESS ("%b" NIL NIL)' % tag


def capability_code(names: Iterable[bytes]) -> bytes:
    """CAPABILITY"""
    return b" ".join((b"CAPABILITY", *names))


def permanent_flags(keywords: Sequence[str], system: int = 0x1F, *, more: bool = True) -> bytes:
    """PERMANENTFLAGS: the flags that can be changed, with \\* if clients may make keywords."""
    inside = format_flags(system, tuple(keywords))[1:-1]
    return b"PERMANENTFLAGS (" + b" ".join(filter(None, (inside, b"\\*" if more else b""))) + b")"


def highestmodseq(value: int) -> bytes:
    """HIGHESTMODSEQ (RFC 7162 §3.1.2.1)"""
    return b"HIGHESTMODSEQ %d" % value


def modified(numbers: ArrayLike) -> bytes:
    """MODIFIED (RFC 7162 §3.1.3)"""
    return b"MODIFIED " + format_numbers(numbers)


def appenduid(validity: int, uids: ArrayLike) -> bytes:
    """APPENDUID (RFC 4315 §3)"""
    return b"APPENDUID %d %s" % (validity, format_numbers(uids))


def copyuid(validity: int, source: ArrayLike, target: ArrayLike) -> bytes:
    """COPYUID (RFC 4315 §3): the n-th of `source` became the n-th of `target`. Of nothing there is none: b""."""
    numbers = format_numbers(source)
    return b"COPYUID %d %s %s" % (validity, numbers, format_numbers(target)) if numbers else b""
