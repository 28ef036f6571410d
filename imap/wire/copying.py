"""COPY and MOVE: RFC 3501 §6.4.7, RFC 6851 §3.1; the answer is RFC 4315 §3."""

from attrs import frozen

from imap.wire.numbers import NumberSet
from imap.wire.scanner import Scanner, number_set


@frozen
class Copy:
    """copy = "COPY" SP sequence-set SP mailbox; MOVE is the same with `remove`."""

    messages: NumberSet
    target: str
    by_uid: bool = False
    remove: bool = False


def parse_copy(scan: Scanner, *, by_uid: bool, remove: bool) -> Copy:
    scan.space()
    messages = number_set(scan)
    target = scan.next_mailbox()
    scan.end()
    return Copy(messages, target, by_uid, remove)
