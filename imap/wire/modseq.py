"""Mod-sequences in commands: RFC 7162 §7."""

from attrs import frozen

from imap.wire.grammar import ATOM, SyntaxProblem
from imap.wire.numbers import STAR, NumberSet
from imap.wire.scanner import Scanner, number_set


@frozen
class SequenceMatch:
    """seq-match-data: the n-th message number belongs to the n-th UID, as far as the client knows."""

    numbers: NumberSet
    uids: NumberSet


@frozen
class Resync:
    """"QRESYNC" SP "(" uidvalidity SP mod-sequence-value [SP known-uids] [SP seq-match-data] ")\""""

    uidvalidity: int
    modseq: int
    uids: NumberSet | None = None
    match: SequenceMatch | None = None


def mod_sequence(scan: Scanner) -> int:
    """mod-sequence-valzer: 63 bits. Also where it should not be 0, which stands for the beginning of time."""
    return scan.number64("mod-sequence")


def modifiers(scan: Scanner) -> dict[bytes, int | None]:
    """The modifiers of FETCH or STORE that are in parentheses here (RFC 4466 §2.4, §2.5): names in upper case, and the
    mod-sequences after CHANGEDSINCE and UNCHANGEDSINCE."""
    found: dict[bytes, int | None] = {}
    scan.expect(b"(")
    while not found or not scan.take(b")"):
        if found:
            scan.space()
        name = word(scan)
        if name in found:
            raise SyntaxProblem("A modifier is there twice")
        found[name] = None
        if name in (b"CHANGEDSINCE", b"UNCHANGEDSINCE"):
            scan.space()
            found[name] = mod_sequence(scan)
        elif name != b"VANISHED":
            raise SyntaxProblem("There is no such modifier")
    return found


def resync(scan: Scanner) -> Resync:
    """What follows QRESYNC in SELECT."""
    scan.expect(b"(")
    uidvalidity = scan.number()
    scan.space()
    modseq = mod_sequence(scan)
    uids = match = None
    more = scan.take(b" ")
    if more and not scan.looks_at(b"("):
        uids = _without_star(scan)
        more = scan.take(b" ")
    if more:
        match = _match(scan)
    scan.expect(b")")
    if not uidvalidity:
        raise SyntaxProblem("UIDVALIDITY is never 0")
    return Resync(uidvalidity, modseq, uids, match)


def word(scan: Scanner) -> bytes:
    """The name of a parameter or modifier, in upper case."""
    found = scan.match(ATOM)
    if found is None:
        raise SyntaxProblem("A parameter is expected here")
    return found[0].upper()


def _match(scan: Scanner) -> SequenceMatch:
    scan.expect(b"(")
    numbers = _ascending(_without_star(scan))
    scan.space()
    uids = _ascending(_without_star(scan))
    scan.expect(b")")
    if _count(numbers) != _count(uids):
        raise SyntaxProblem("There are not as many message numbers as UIDs")
    return SequenceMatch(numbers, uids)


def _without_star(scan: Scanner) -> NumberSet:
    numbers = number_set(scan)
    if numbers.saved or any(STAR in pair for pair in numbers.ranges):
        raise SyntaxProblem("'*' and '$' are not allowed here")
    return numbers


def _ascending(numbers: NumberSet) -> NumberSet:
    last = 0
    for pair in numbers.ranges:
        if not last < pair[0] <= pair[1]:
            raise SyntaxProblem("These numbers must be in ascending order")
        last = pair[1]
    return numbers


def _count(numbers: NumberSet) -> int:
    return sum(last - first + 1 for first, last in numbers.ranges)
