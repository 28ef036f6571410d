"""Flags both ways, and STORE: RFC 3501 §2.3.2, §6.4.6, RFC 7162 §3.1.3."""

import re
from collections.abc import Iterable
from functools import lru_cache, reduce
from operator import or_

from attrs import frozen

from imap.wire.grammar import ATOM, SyntaxProblem
from imap.wire.modseq import modifiers
from imap.wire.numbers import NumberSet
from imap.wire.scanner import Scanner, number_set, parse_number_set
from store.values import FLAG_SETS, Flag, FlagAction, Flags

# The names in the order of RFC 3501 §2.3.2.
NAMES = {
    Flag.SEEN: b"\\Seen",
    Flag.ANSWERED: b"\\Answered",
    Flag.FLAGGED: b"\\Flagged",
    Flag.DELETED: b"\\Deleted",
    Flag.DRAFT: b"\\Draft",
}
RECENT = b"\\Recent"
TOO_MANY = "Too many flags"

_SYSTEM = {name.decode("ascii").upper(): int(flag) for flag, name in NAMES.items()}
_ACTION = re.compile(rb"([+-]?+)FLAGS(\.SILENT)?(?= )", re.IGNORECASE)
# A sequence-set, and a list of system flags
_PLAIN = re.compile(rb" ([0-9:,*]++) ([+-]?+)FLAGS(\.SILENT)? (\([A-Za-z\\ ]{1,60}+\))\Z", re.IGNORECASE)
_ACTIONS = {b"+": FlagAction.ADD, b"-": FlagAction.REMOVE, b"": FlagAction.REPLACE}


@frozen
class StoreFlags:
    """store = "STORE" SP sequence-set [SP "(" "UNCHANGEDSINCE" SP mod-sequence-valzer ")"] SP
    ["+" / "-"] "FLAGS" [".SILENT"] SP (flag-list / (flag *(SP flag)))"""

    messages: NumberSet
    action: FlagAction
    flags: Flags
    silent: bool = False
    by_uid: bool = False
    unchanged_since: int | None = None


def parse_store(scan: Scanner, *, by_uid: bool) -> StoreFlags:
    plain = _PLAIN.match(scan.text, scan.at)
    if plain is not None and plain[4].count(b" ") < scan.limits.items and (
            known := _plain_flags(plain[4])) is not None:
        messages = parse_number_set(plain[1], scan.limits.ranges)
        return StoreFlags(messages, _ACTIONS[plain[2]], known, plain[3] is not None, by_uid)
    scan.space()
    messages = number_set(scan)
    scan.space()
    since = None
    if scan.looks_at(b"("):
        found = modifiers(scan)
        since = found.get(b"UNCHANGEDSINCE")
        if since is None or len(found) > 1:
            raise SyntaxProblem("There is no such modifier of STORE")
        scan.space()
    action = scan.match(_ACTION)
    if action is None:
        raise SyntaxProblem("FLAGS, +FLAGS or -FLAGS is expected here")
    scan.space()
    flags = flag_list(scan) if scan.looks_at(b"(") else _bare_flags(scan)
    scan.end()
    return StoreFlags(messages, _ACTIONS[action[1]], flags, action[2] is not None, by_uid, since)


def flag_list(scan: Scanner) -> Flags:
    """flag-list: "(" [flag *(SP flag)] ")". Raises SyntaxProblem, for \\Recent too."""
    return _flags(scan.in_parentheses(scan.flag, scan.limits.items, TOO_MANY, least=0), scan)


def flag_words(system: int, keywords: Iterable[str] = (), *, recent: bool = False) -> list[bytes]:
    """The flags as they are written, system flags first. Raises ValueError for a keyword that is not an atom."""
    words = [name for flag, name in NAMES.items() if system & flag]
    if recent:
        words.append(RECENT)
    for keyword in keywords:
        word = keyword.encode("ascii")
        if not ATOM.fullmatch(word):
            raise ValueError("not a keyword")
        words.append(word)
    return words


@lru_cache(maxsize=4096)
def format_flags(system: int, keywords: tuple[str, ...] = (), recent: bool = False) -> bytes:
    """flag-list; the same few come again and again. Raises ValueError for a keyword that is not an atom."""
    return b"(" + b" ".join(flag_words(system, keywords, recent=recent)) + b")"


@lru_cache(maxsize=64)
def _plain_flags(text: bytes) -> Flags | None:
    """The flags of a list that has only system flags, as most have; None for any other text."""
    found = [_SYSTEM.get(name) for name in text.decode("ascii").upper().strip("()").split(" ")]
    system = [bits for bits in found if bits is not None]
    return Flags(FLAG_SETS[reduce(or_, system)], ()) if len(system) == len(found) else None


def _bare_flags(scan: Scanner) -> Flags:
    names = [scan.flag()]
    while scan.take(b" "):
        names.append(scan.flag())
        if len(names) > scan.limits.items:
            raise SyntaxProblem(TOO_MANY)
    return _flags(names, scan)


def _flags(names: list[str], scan: Scanner) -> Flags:
    system = 0
    keywords: dict[str, str] = {}
    for name in names:
        if not name.startswith("\\"):
            if len(name) > scan.limits.word:
                raise SyntaxProblem("The keyword is too long")
            keywords.setdefault(name.lower(), name)     # RFC 9051 §2.3.2: case does not tell keywords apart
            continue
        flag = _SYSTEM.get(name.upper())
        if flag is None:
            recent = name.encode("ascii").upper() == RECENT.upper()
            raise SyntaxProblem("\\Recent is the server's to set" if recent else "There is no such system flag")
        system |= flag
    return Flags(FLAG_SETS[system], tuple(keywords.values()))
