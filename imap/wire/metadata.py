"""GETMETADATA, SETMETADATA and METADATA: RFC 5464 §4, §5."""

import re
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from imap.wire.writer import Writer

_OPTIONS = re.compile(rb"\((?:MAXSIZE|DEPTH) ", re.IGNORECASE)     # entries begin with a slash
MAX_ENTRIES = 100           # that one command names
DEPTHS = {b"0": 0, b"1": 1, b"INFINITY": 1 << 16}       # levels below an entry (§4.2.2)


@frozen
class GetMetadata:
    """getmetadata = "GETMETADATA" [SP getmetadata-options] SP mailbox SP entries

    Options behind the mailbox are taken, too: the RFC's own examples (§4.2.1) have them there.
    `mailbox` is "" for the server. `names` are in lower case (§3.2). Of values with more octets than `most` only
    the size of the largest is told (§4.2.1).
    """

    mailbox: str
    names: tuple[str, ...]
    depth: int = 0
    most: int | None = None


@frozen
class SetMetadata:
    """setmetadata = "SETMETADATA" SP mailbox SP entry-values; None takes an entry away."""

    mailbox: str
    values: Mapping[str, bytes | None] = field(hash=False)


def parse_getmetadata(scan: Scanner) -> GetMetadata:
    scan.space()
    depth, most = 0, None
    if scan.looks_at(b"("):
        depth, most = _options(scan)
        scan.space()
    mailbox = scan.mailbox()
    scan.space()
    if _OPTIONS.match(scan.text, scan.at):
        depth, most = _options(scan)
        scan.space()
    names = tuple(scan.in_parentheses(lambda: _name(scan), MAX_ENTRIES, "Too many entries")
                  ) if scan.looks_at(b"(") else (_name(scan),)
    scan.end()
    return GetMetadata(mailbox, names, depth, most)


def _options(scan: Scanner) -> tuple[int, int | None]:
    found: dict[bytes, int] = {}

    def option() -> None:
        name = scan.atom().upper()
        if name in found:
            raise SyntaxProblem("An option is there twice")
        scan.space()
        if name == b"MAXSIZE":
            found[name] = scan.number()
        elif name == b"DEPTH":
            depth = scan.atom().upper()
            if depth not in DEPTHS:
                raise SyntaxProblem("DEPTH is 0, 1 or infinity")
            found[name] = DEPTHS[depth]
        else:
            raise SyntaxProblem("There is no such option")

    scan.in_parentheses(option, 2, "Too many options")
    return found.get(b"DEPTH", 0), found.get(b"MAXSIZE")


def parse_setmetadata(scan: Scanner) -> SetMetadata:
    mailbox = scan.next_mailbox()
    scan.space()

    def entry() -> tuple[str, bytes | None]:
        name = _name(scan)
        scan.space()
        return name, scan.nstring()

    values = scan.in_parentheses(entry, MAX_ENTRIES, "Too many entries")
    if len(dict(values)) < len(values):
        raise SyntaxProblem("An entry is there twice")
    scan.end()
    return SetMetadata(mailbox, dict(values))


def _name(scan: Scanner) -> str:
    """entry = astring, without wildcards and empty levels (§3.2, §5)"""
    octets = scan.astring()
    name = octets.decode("ascii", "replace").lower()
    if (not name.startswith("/") or name.endswith("/") or "//" in name or not set(name).isdisjoint("*%\ufffd")
            or not name.isprintable()):
        raise SyntaxProblem("That is not the name of an entry")
    return name


def format_metadata(mailbox: str, values: Iterable[tuple[str, bytes | None]], *, utf8: bool = False) -> bytes:
    """METADATA with values (§4.4.1)."""
    line = Writer(utf8).raw(b"* METADATA ").mailbox(mailbox).raw(b" ")
    pairs = [bytes(Writer().astring(name.encode()).raw(b" ").nstring(value)) for name, value in values]
    return bytes(line.words(pairs).raw(b"\r\n"))
