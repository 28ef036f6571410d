"""APPEND: RFC 3501 §6.3.11. The message itself passes by: the session streams it to the store."""

import re

from attrs import frozen

from imap.wire.dates import date_time
from imap.wire.flags import flag_list
from imap.wire.framer import Frame
from imap.wire.grammar import TAG, SyntaxProblem
from imap.wire.scanner import Scanner
from store.values import Flags, InternalDate

_APPEND = re.compile(TAG.pattern + rb" APPEND ", re.IGNORECASE)


@frozen
class Append:
    """append = "APPEND" SP mailbox [SP flag-list] [SP date-time] SP literal

    The message is not in the value: the session takes its `size` octets from the stream. `sync`: the client
    waits for "+".
    """

    mailbox: str
    flags: Flags
    date: InternalDate | None
    size: int
    sync: bool = True


def parse_append(scan: Scanner) -> Append:
    """Reads both the frame of a `Message`, which ends where the message begins, and the whole command."""
    scan.space()
    mailbox = scan.mailbox()
    scan.space()
    flags = Flags()
    if scan.looks_at(b"("):
        flags = flag_list(scan)
        scan.space()
    received = None
    if scan.looks_at(b'"'):
        received = date_time(scan)
        scan.space()
    literal = scan.announced()
    scan.end()
    return Append(mailbox, flags, received, literal.size, literal.sync)


def is_message(frame: Frame) -> bool:
    """Whether the literal announced at the end of this frame is the message of an APPEND: for `Framer`.

    It is one if the mailbox is there already, however wrong the rest: then the session finds out before it takes any.
    """
    scan = Scanner(frame)
    if scan.match(_APPEND) is None:
        return False
    try:
        scan.astring()
        scan.space()
    except SyntaxProblem:
        return False
    return True
