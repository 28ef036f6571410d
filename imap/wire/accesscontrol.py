"""SETACL, DELETEACL, GETACL, LISTRIGHTS, MYRIGHTS and their responses: RFC 4314 §3, §7."""

from collections.abc import Iterable

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from imap.wire.writer import Writer
from mboxlist import acl
from store.accounts.sasl.saslprep import saslprep


@frozen
class SetAcl:
    """setacl = "SETACL" SP mailbox SP identifier SP mod-rights

    `modification` as the client wrote it: rights, or `+` or `-` and rights.
    """

    mailbox: str
    identifier: str
    modification: str


@frozen
class DeleteAcl:
    """deleteacl = "DELETEACL" SP mailbox SP identifier"""

    mailbox: str
    identifier: str


@frozen
class GetAcl:
    """getacl = "GETACL" SP mailbox"""

    mailbox: str


@frozen
class ListRights:
    """listrights = "LISTRIGHTS" SP mailbox SP identifier"""

    mailbox: str
    identifier: str


@frozen
class MyRights:
    """myrights = "MYRIGHTS" SP mailbox"""

    mailbox: str


def parse_setacl(scan: Scanner) -> SetAcl:
    mailbox, identifier = scan.next_mailbox(), _identifier(scan)
    modification = scan.as_utf8(scan.next_astring())
    scan.end()
    try:
        acl.parse_rights(modification[1:] if modification[:1] in ("+", "-") else modification)
    except acl.AclProblem:
        raise SyntaxProblem("There is a right that is not known") from None         # §3.1: BAD
    return SetAcl(mailbox, identifier, modification)


def parse_deleteacl(scan: Scanner) -> DeleteAcl:
    mailbox, identifier = scan.next_mailbox(), _identifier(scan)
    scan.end()
    return DeleteAcl(mailbox, identifier)


def parse_listrights(scan: Scanner) -> ListRights:
    mailbox, identifier = scan.next_mailbox(), _identifier(scan, as_written=True)        # §3.4: for the answer
    scan.end()
    return ListRights(mailbox, identifier)


def format_acl(name: str, entries: Iterable[tuple[str, str]], *, utf8: bool = False) -> bytes:
    """ACL (§3.6): identifiers and their rights."""
    line = Writer(utf8).raw(b"* ACL ").mailbox(name)
    for identifier, rights in entries:
        line.raw(b" ").astring(identifier.encode()).raw(b" ").astring(_shown(rights))
    return bytes(line.raw(b"\r\n"))


def format_listrights(name: str, identifier: str, always: str, optional: Iterable[str], *, utf8: bool = False
                      ) -> bytes:
    """LISTRIGHTS (§3.7): what the identifier always has, and each right that it may be given."""
    optional = list(optional)
    line = Writer(utf8).raw(b"* LISTRIGHTS ").mailbox(name).raw(b" ").astring(identifier.encode())
    for rights in (always, *optional, *acl.virtual("".join(optional))):
        line.raw(b" ").astring(rights.encode())
    return bytes(line.raw(b"\r\n"))


def format_myrights(name: str, rights: str, *, utf8: bool = False) -> bytes:
    """MYRIGHTS (§3.8)"""
    return bytes(Writer(utf8).raw(b"* MYRIGHTS ").mailbox(name).raw(b" ").astring(_shown(rights)).raw(b"\r\n"))


def _shown(rights: str) -> bytes:
    return (rights + acl.virtual(rights)).encode()


def _identifier(scan: Scanner, *, as_written: bool = False) -> str:
    """An identifier that can be one, prepared with SASLprep: what cannot is BAD (§3)."""
    text = scan.as_utf8(scan.next_astring())
    try:
        prepared = acl.parse_identifier(text if text.isascii() else saslprep(text))
    except (acl.AclProblem, ValueError) as problem:
        raise SyntaxProblem(str(problem)) from None
    return text if as_written else prepared
