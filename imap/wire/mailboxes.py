"""CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE (RFC 3501 §6.3.3 to §6.3.7), CREATE with USE (RFC 6154 §3) and
NAMESPACE (RFC 2342)."""

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner

MAX_USES = 8


@frozen
class Create:
    """create = "CREATE" SP mailbox [SP "(" "USE" SP "(" use-attrs ")" ")"]

    `mailbox` may end in the hierarchy separator, as the client wrote it. `special_uses` as given, with their backslash.
    """

    mailbox: str
    special_uses: tuple[str, ...] = ()


@frozen
class Delete:
    """delete = "DELETE" SP mailbox"""

    mailbox: str


@frozen
class Rename:
    """rename = "RENAME" SP mailbox SP mailbox"""

    old: str
    new: str


@frozen
class Subscribe:
    """subscribe = "SUBSCRIBE" SP mailbox"""

    mailbox: str


@frozen
class Unsubscribe:
    """unsubscribe = "UNSUBSCRIBE" SP mailbox"""

    mailbox: str


@frozen
class Namespace:
    """ "NAMESPACE" """


def parse_create(scan: Scanner) -> Create:
    mailbox = scan.next_mailbox()
    uses: list[str] = []
    if scan.take(b" "):
        scan.expect(b"(")
        if scan.atom().upper() != b"USE":
            raise SyntaxProblem("CREATE knows no parameter but USE")
        scan.space()
        uses = scan.in_parentheses(scan.flag, MAX_USES, "Too many special uses", least=0)
        scan.expect(b")")
    scan.end()
    return Create(mailbox, tuple(uses))


def parse_rename(scan: Scanner) -> Rename:
    old, new = scan.next_mailbox(), scan.next_mailbox()
    scan.end()
    return Rename(old, new)
