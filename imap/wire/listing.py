"""LIST, LSUB, STATUS (RFC 3501 §6.3.8 to §6.3.10); extended LIST is RFC 5258 §6, with the options of RFC 6154, RFC 5819
and RFC 8440."""

from collections.abc import Collection, Iterable
from enum import Enum

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner

MAX_PATTERNS = 256


class ListOption(Enum):
    """A selection or return option; the value is the name on the wire."""

    SUBSCRIBED = b"SUBSCRIBED"
    REMOTE = b"REMOTE"
    RECURSIVEMATCH = b"RECURSIVEMATCH"
    SPECIAL_USE = b"SPECIAL-USE"
    CHILDREN = b"CHILDREN"
    STATUS = b"STATUS"
    MYRIGHTS = b"MYRIGHTS"


class StatusItem(Enum):
    """status-att; the value is the name on the wire."""

    MESSAGES = b"MESSAGES"
    RECENT = b"RECENT"
    UIDNEXT = b"UIDNEXT"
    UIDVALIDITY = b"UIDVALIDITY"
    UNSEEN = b"UNSEEN"
    SIZE = b"SIZE"                          # RFC 8438, RFC 9051
    DELETED = b"DELETED"                    # RFC 9208 §4.1.4, RFC 9051
    DELETED_STORAGE = b"DELETED-STORAGE"    # RFC 9208 §4.1.4
    APPENDLIMIT = b"APPENDLIMIT"            # RFC 7889
    HIGHESTMODSEQ = b"HIGHESTMODSEQ"        # RFC 7162 §3.1.7


@frozen
class List:
    """list = "LIST" [SP list-select-opts] SP mailbox SP mbox-or-pat [SP list-return-opts]

    `patterns` are those that names can match: what is no modified UTF-7 matches none (Dovecot, Cyrus), and is no error.
    `select`: what a name must be to be listed. `give`: what is wanted of it, also what a selection option implies.
    `extended`: the command is none of RFC 3501's (RFC 5258 §1).
    """

    reference: str
    patterns: tuple[str, ...]
    select: frozenset[ListOption] = frozenset()
    give: frozenset[ListOption] = frozenset()
    status: tuple[StatusItem, ...] = ()
    extended: bool = False


@frozen
class Lsub:
    """lsub = "LSUB" SP mailbox SP list-mailbox"""

    reference: str
    patterns: tuple[str, ...]       # one, or none when no name can match it


@frozen
class Status:
    """status = "STATUS" SP mailbox SP "(" status-att *(SP status-att) ")"; each item once, in the client's order."""

    mailbox: str
    items: tuple[StatusItem, ...]


_OPTIONS = {option.value: option for option in ListOption}
_WITH_RETURN = frozenset({ListOption.SUBSCRIBED, ListOption.SPECIAL_USE})
_SELECTION = _WITH_RETURN | {ListOption.REMOTE, ListOption.RECURSIVEMATCH}
_RETURN = _WITH_RETURN | {ListOption.CHILDREN, ListOption.STATUS, ListOption.MYRIGHTS}


def parse_list(scan: Scanner) -> List:
    scan.space()
    extended = scan.looks_at(b"(")
    select, give = frozenset[ListOption](), frozenset[ListOption]()
    status: tuple[StatusItem, ...] = ()
    if extended:
        select, _ = _options(scan, _SELECTION)
        scan.space()
        if ListOption.RECURSIVEMATCH in select and not select & _WITH_RETURN:
            raise SyntaxProblem("RECURSIVEMATCH needs an option that selects")         # RFC 5258 §3.1
    reference = scan.reference()
    scan.space()
    extended = extended or scan.looks_at(b"(")
    patterns = _patterns(scan)
    if scan.take(b" "):
        extended = True
        if scan.atom().upper() != b"RETURN":
            raise SyntaxProblem("RETURN or the end of the command is expected here")
        scan.space()
        give, status = _options(scan, _RETURN)
    scan.end()
    return List(reference or "", _possible(reference, patterns), select, give | select & _WITH_RETURN, status, extended)


def parse_lsub(scan: Scanner) -> Lsub:
    scan.space()
    reference = scan.reference()
    scan.space()
    pattern = scan.list_mailbox()
    scan.end()
    return Lsub(reference or "", _possible(reference, [pattern]))


def parse_status(scan: Scanner) -> Status:
    mailbox = scan.next_mailbox()
    scan.space()
    items = _status_items(scan)
    scan.end()
    return Status(mailbox, items)


def _status_items(scan: Scanner) -> tuple[StatusItem, ...]:
    def item() -> StatusItem:
        try:
            return StatusItem(scan.atom().upper())
        except ValueError:
            raise SyntaxProblem("Unknown STATUS item") from None

    return tuple(dict.fromkeys(scan.in_parentheses(item, scan.limits.items, "Too many STATUS items")))


def _patterns(scan: Scanner) -> list[str | None]:
    """mbox-or-pat"""
    if not scan.looks_at(b"("):
        return [scan.list_mailbox()]
    return scan.in_parentheses(scan.list_mailbox, MAX_PATTERNS, "Too many patterns")


def _possible(reference: str | None, patterns: Iterable[str | None]) -> tuple[str, ...]:
    """The patterns that can match a name, and the empty one, which asks for something else."""
    return tuple(one for one in patterns if one == "" or one is not None and reference is not None)


def _options(scan: Scanner, known: Collection[ListOption]) -> tuple[frozenset[ListOption], tuple[StatusItem, ...]]:
    """The options of a list, in any order, and the items of STATUS if it is among them; given twice is given once."""
    status: tuple[StatusItem, ...] = ()

    def read() -> ListOption:
        nonlocal status
        option = _OPTIONS.get(scan.atom().upper())
        if option is None or option not in known:
            raise SyntaxProblem("Unknown LIST option")
        if option is ListOption.STATUS:
            scan.space()
            status = _status_items(scan)
        return option

    found = frozenset(scan.in_parentheses(read, scan.limits.items, "Too many LIST options", least=0))
    return found, status
