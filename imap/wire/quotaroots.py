"""GETQUOTA, GETQUOTAROOT, SETQUOTA and their responses: RFC 9208 §4, §7."""

from collections.abc import Iterable

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from imap.wire.writer import Writer

MAX_RESOURCES = 16


@frozen
class GetQuota:
    """getquota = "GETQUOTA" SP quota-root-name"""

    root: str


@frozen
class GetQuotaRoot:
    """getquotaroot = "GETQUOTAROOT" SP mailbox"""

    mailbox: str


@frozen
class SetQuota:
    """setquota = "SETQUOTA" SP quota-root-name SP setquota-list"""

    root: str
    limits: tuple[tuple[bytes, int], ...]


def parse_getquota(scan: Scanner) -> GetQuota:
    root = scan.as_utf8(scan.next_astring())
    scan.end()
    return GetQuota(root)


def parse_setquota(scan: Scanner) -> SetQuota:
    root = scan.as_utf8(scan.next_astring())
    scan.space()

    def limit() -> tuple[bytes, int]:
        resource = scan.atom().upper()
        scan.space()
        return resource, scan.number64()

    limits = scan.in_parentheses(limit, MAX_RESOURCES, "Too many resources", least=0)
    if len(dict(limits)) < len(limits):
        raise SyntaxProblem("A resource is there twice")
    scan.end()
    return SetQuota(root, tuple(limits))


def format_quota(root: str, resources: Iterable[tuple[bytes, int, int]]) -> bytes:
    """QUOTA (§4.2.1): of each limited resource its name, its use and its limit."""
    line = Writer().raw(b"* QUOTA ").astring(root.encode()).raw(b" ")
    return bytes(line.words(b"%s %d %d" % resource for resource in resources).raw(b"\r\n"))


def format_quotaroot(name: str, roots: Iterable[str], *, utf8: bool = False) -> bytes:
    """QUOTAROOT (§4.2.2)"""
    line = Writer(utf8).raw(b"* QUOTAROOT ").mailbox(name)
    for root in roots:
        line.raw(b" ").astring(root.encode())
    return bytes(line.raw(b"\r\n"))
