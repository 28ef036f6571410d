"""APPEND: RFC 3501 §6.3.11, RFC 3502, RFC 4466 §2.6. The messages pass by: the session streams them to the store."""

import re

from attrs import frozen

from imap.wire.dates import date_time
from imap.wire.flags import flag_list
from imap.wire.framer import Frame
from imap.wire.grammar import ASTRING_READ, TAG, SyntaxProblem
from imap.wire.scanner import Scanner
from store.values import Flags, InternalDate

_APPEND = re.compile(TAG.pattern + rb" APPEND ", re.IGNORECASE)
_TO_ATOM = re.compile(_APPEND.pattern + ASTRING_READ.pattern + b" ", re.IGNORECASE)
_UTF8 = re.compile(rb"UTF8 \(", re.IGNORECASE)
NO_FLAGS = Flags()


@frozen
class Appended:
    """append-message = [SP flag-list] [SP date-time] SP append-data

    append-data = literal / literal8 (RFC 3516 §4.4) / "UTF8" SP "(" literal8 ")" (RFC 6855 §4); the three mean the same
    here. `size` octets come, for which the client waits to be asked if `sync`.
    """

    flags: Flags
    date: InternalDate | None
    size: int
    sync: bool = True


@frozen
class Append:
    """append = "APPEND" SP mailbox 1*append-message

    The messages themselves are not in the value: the session takes them from the stream.
    """

    mailbox: str
    messages: tuple[Appended, ...]


def parse_append(scan: Scanner) -> Append:
    """Reads both the frame of a `Message`, which ends where a message begins, and the whole command."""
    mailbox = scan.next_mailbox()
    messages = [_message(scan)]
    while not scan.at_end():
        messages.append(_message(scan))
    return Append(mailbox, tuple(messages))


def parse_next_message(text: bytes, before: bytes) -> Appended:
    """The message that a frame announces in its last text, which follows another one, announced in `before`.

    So a command with many messages is read once, and not again for each of them. Raises SyntaxProblem.
    """
    scan = Scanner(Frame((text,)))
    if before.rpartition(b" ")[2].startswith(b"(~"):
        scan.expect(b")")
    return _message(scan)


def _message(scan: Scanner) -> Appended:
    scan.space()
    flags, received, in_utf8 = NO_FLAGS, None, False
    if scan.text[scan.at:scan.at + 1] not in (b"{", b"~"):
        if scan.looks_at(b"("):
            flags = flag_list(scan)
            scan.space()
        if scan.looks_at(b'"'):
            received = date_time(scan)
            scan.space()
        in_utf8 = scan.match(_UTF8) is not None
    if in_utf8 and not scan.looks_at(b"~"):
        raise SyntaxProblem("A literal of octets is expected here")
    literal, came = scan.announced()
    if in_utf8 and came:
        scan.expect(b")")
    return Appended(flags, received, literal.size, literal.sync)


def is_message(frame: Frame) -> bool:
    """Whether the literal announced at the end of this frame is a message of an APPEND: for `Framer`.

    It is one if the mailbox is there already, however wrong the rest: then the session finds out before it takes any.
    """
    if _TO_ATOM.match(frame[0]) is not None:        # nearly all
        return True
    scan = Scanner(frame, utf8=True)
    if scan.match(_APPEND) is None:
        return False
    try:
        scan.astring()
        scan.space()
    except SyntaxProblem:
        return False
    return True
