"""SELECT, EXAMINE, CHECK, CLOSE, EXPUNGE (RFC 3501 §6.3.1, §6.3.2, §6.4.1 to §6.4.3), UNSELECT (RFC 3691) and
UID EXPUNGE (RFC 4315 §2.1); the parameters of SELECT are those of RFC 7162."""

import re

from attrs import frozen

from imap.wire.grammar import SyntaxProblem
from imap.wire.modseq import Resync, resync, word
from imap.wire.numbers import NumberSet
from imap.wire.scanner import Scanner, number_set

_PLAIN = re.compile(rb" ([A-Za-z0-9./_-]++)\Z")        # a name that is the same in every encoding, and no more


@frozen
class Select:
    """select = "SELECT" SP mailbox [SP "(" select-param *(SP select-param) ")"]; EXAMINE: the same with `read_only`.

    The parameters are CONDSTORE and QRESYNC.
    """

    mailbox: str
    read_only: bool = False
    condstore: bool = False
    resync: Resync | None = None


@frozen
class Check:
    """ "CHECK" """


@frozen
class Close:
    """ "CLOSE" """


@frozen
class Unselect:
    """ "UNSELECT": CLOSE that expunges nothing."""


@frozen
class Expunge:
    """ "EXPUNGE", or "UID EXPUNGE" SP sequence-set with `uids`."""

    uids: NumberSet | None = None


def parse_select(scan: Scanner, *, read_only: bool) -> Select:
    plain = _PLAIN.match(scan.text, scan.at)
    if plain is not None:
        return Select(plain[1].decode("ascii"), read_only)
    mailbox = scan.next_mailbox()
    found: dict[bytes, Resync | None] = {}
    if scan.take(b" "):
        scan.expect(b"(")
        while not found or not scan.take(b")"):
            if found:
                scan.space()
            name = word(scan)
            if name in found or name not in (b"CONDSTORE", b"QRESYNC"):
                raise SyntaxProblem("A parameter of SELECT is unknown, or there twice")
            found[name] = None
            if name == b"QRESYNC":
                scan.space()
                found[name] = resync(scan)
    scan.end()
    return Select(mailbox, read_only, b"CONDSTORE" in found, found.get(b"QRESYNC"))


def parse_uid_expunge(scan: Scanner) -> Expunge:
    scan.space()
    uids = number_set(scan)
    scan.end()
    return Expunge(uids)
