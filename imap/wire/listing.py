"""LIST, LSUB, STATUS (RFC 3501 §6.3.8 to §6.3.10); LIST's options for special use are RFC 6154 §5."""

from enum import Enum

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner


@frozen
class List:
    """list = "LIST" SP [select-opts SP] mailbox SP list-mailbox [SP return-opts], SPECIAL-USE being the only option.

    `special_use_only`: (SPECIAL-USE) before the reference, which also asks for the attributes.
    """

    reference: str
    pattern: str
    special_use_only: bool = False
    return_special_use: bool = False


@frozen
class Lsub:
    """lsub = "LSUB" SP mailbox SP list-mailbox"""

    reference: str
    pattern: str


class StatusItem(Enum):
    """status-att; the value is the name on the wire."""

    MESSAGES = b"MESSAGES"
    RECENT = b"RECENT"
    UIDNEXT = b"UIDNEXT"
    UIDVALIDITY = b"UIDVALIDITY"
    UNSEEN = b"UNSEEN"


@frozen
class Status:
    """status = "STATUS" SP mailbox SP "(" status-att *(SP status-att) ")"; each item once, in the client's order."""

    mailbox: str
    items: tuple[StatusItem, ...]


_STATUS_ITEMS = {item.value: item for item in StatusItem}


def parse_list(scan: Scanner) -> List:
    scan.space()
    only = _special_use(scan) if scan.looks_at(b"(") else None
    if only is not None:
        scan.space()
    reference = scan.mailbox()
    scan.space()
    pattern = scan.list_mailbox()
    returned = False
    if scan.take(b" "):
        if scan.atom().upper() != b"RETURN":
            raise SyntaxProblem("RETURN or the end of the command is expected here")
        scan.space()
        returned = _special_use(scan)
    scan.end()
    return List(reference, pattern, bool(only), returned or bool(only))


def parse_lsub(scan: Scanner) -> Lsub:
    scan.space()
    reference = scan.mailbox()
    scan.space()
    pattern = scan.list_mailbox()
    scan.end()
    return Lsub(reference, pattern)


def parse_status(scan: Scanner) -> Status:
    scan.space()
    mailbox = scan.mailbox()
    scan.space()
    items: dict[StatusItem, None] = {}
    scan.expect(b"(")
    while not items or not scan.take(b")"):
        if items:
            scan.space()
        try:
            items[_STATUS_ITEMS[scan.atom().upper()]] = None
        except KeyError:
            raise SyntaxProblem("Unknown STATUS item") from None
    scan.end()
    return Status(mailbox, tuple(items))


def _special_use(scan: Scanner) -> bool:
    """An option list: whether SPECIAL-USE is in it. Nothing else can be."""
    scan.expect(b"(")
    if scan.take(b")"):
        return False
    while True:
        if scan.atom().upper() != b"SPECIAL-USE":
            raise SyntaxProblem("Unknown LIST option")
        if scan.take(b")"):
            return True
        scan.space()
