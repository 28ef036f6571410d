"""Commands for any time: CAPABILITY, NOOP, LOGOUT, STARTTLS (RFC 3501 §6.1, §6.2.1), ID (RFC 2971), ENABLE (RFC 5161),
IDLE (RFC 2177), UNAUTHENTICATE (RFC 8437)."""

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner

MAX_ID_PAIRS = 30       # RFC 2971 §3.3
MAX_ID_NAME = 30
MAX_ID_VALUE = 1024
MAX_ENABLE = 64


@frozen
class Capability:
    """capability = "CAPABILITY" """


@frozen
class Noop:
    """noop = "NOOP" """


@frozen
class Logout:
    """logout = "LOGOUT" """


@frozen
class StartTls:
    """starttls = "STARTTLS" """


@frozen
class Unauthenticate:
    """unauthenticate = "UNAUTHENTICATE" """


@frozen
class Idle:
    """idle = "IDLE"; the line "DONE" ends it: see `is_done`."""


@frozen
class Id:
    """id = "ID" SP id-params-list. `NIL` is an empty `pairs`."""

    pairs: tuple[tuple[bytes, bytes | None], ...] = ()


@frozen
class Enable:
    """enable = "ENABLE" 1*(SP capability); the names in upper case, known or not."""

    capabilities: tuple[bytes, ...]


def is_done(line: bytes) -> bool:
    """Whether this line ends IDLE (RFC 2177 §4)."""
    return line.upper() == b"DONE"


def parse_id(scan: Scanner) -> Id:
    """RFC 2971 §4; with blanks anywhere within the list, as Dovecot takes it and aioimaplib sends it."""
    scan.space()
    if scan.nil():
        scan.end()
        return Id()

    def pair() -> tuple[bytes, bytes | None]:
        name = scan.string()
        scan.space()
        scan.blanks()
        value = scan.nstring()
        if len(name) > MAX_ID_NAME or len(value or b"") > MAX_ID_VALUE:
            raise SyntaxProblem("A field of ID is too long")
        return name, value

    pairs = scan.in_parentheses(pair, MAX_ID_PAIRS, "Too many fields in ID", least=0)
    scan.end()
    return Id(tuple(pairs))


def parse_enable(scan: Scanner) -> Enable:
    """RFC 5161 §4."""
    names: list[bytes] = []
    while not names or not scan.at_end():
        if len(names) == MAX_ENABLE:
            raise SyntaxProblem("Too many capabilities")
        scan.space()
        names.append(scan.atom().upper())
    return Enable(tuple(names))
