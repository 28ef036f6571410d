"""The keys of SEARCH as values: RFC 3501 §6.4.4.

A new key is a class here; `imap.wire.search` reads it, `mailboxsearch` evaluates it where the index or a column knows,
`matching` where octets must be read. What only a session knows is put in by `imap.verbs.search`. One that is made of
other keys must be in `leaves` and `mapped`. Its test: a script in `tests/scripts/imap/`.

What is short for others is written out by who reads the command: UNSEEN is Not(HasFlag(Flag.SEEN)), OLD Not(Recent()),
NEW And((Recent(), Not(HasFlag(Flag.SEEN)))).
"""

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from store.values import Flag

Mask = NDArray[np.bool_]
Ranges = tuple[tuple[int, int], ...]        # both ends included, in either order; 0 stands for "*"
Relation = Callable[[Any, Any], Any]        # one of `operator`: lt, le, eq, ge, gt


class Key:
    """A search key."""


@frozen
class All(Key):
    """ALL"""


@frozen
class HasFlag(Key):
    """ANSWERED, DELETED, DRAFT, FLAGGED, SEEN"""

    flag: Flag


@frozen
class Keyword(Key):
    """KEYWORD"""

    name: str


@frozen
class Recent(Key):
    """RECENT"""


@frozen
class Received(Key):
    """BEFORE (lt), ON (eq), SINCE (ge): the internal date, disregarding time and zone."""

    relation: Relation
    day: date


@frozen
class ReceivedAt(Key):
    """OLDER (le), YOUNGER (ge): the internal date as Unix time (RFC 5032)."""

    relation: Relation
    time: int


@frozen
class Within(Key):
    """OLDER or YOUNGER as the client says it, so many seconds ago; only a session knows from when."""

    seconds: int
    older: bool


@frozen
class Saved(Key):
    """"$" (RFC 5182), which only a session knows"""


@frozen
class Sent(Key):
    """SENTBEFORE (lt), SENTON (eq), SENTSINCE (ge): the Date field, disregarding time and zone, if there is one."""

    relation: Relation
    day: date


@frozen
class Size(Key):
    """LARGER (gt), SMALLER (lt)"""

    relation: Relation
    octets: int


@frozen
class ModSeq(Key):
    """MODSEQ (RFC 7162 §3.1.5). The store has one MODSEQ for all flags of a message: no single flag is asked for."""

    least: int


@frozen
class Numbers(Key):
    """A set of message sequence numbers; those not there are passed over."""

    ranges: Ranges


@frozen
class Uids(Key):
    """UID; those not there are passed over."""

    ranges: Ranges


@frozen
class Among(Key):
    """The messages that a mask, as long as the mailbox, names."""

    mask: Mask = field(eq=False)


@frozen
class Envelope(Key):
    """FROM, TO, CC, BCC, SUBJECT: what ENVELOPE shows of that field. An empty text: the field is there."""

    name: str
    text: str


@frozen
class Header(Key):
    """HEADER. An empty text: the field is there."""

    name: str
    text: str


@frozen
class Body(Key):
    """BODY"""

    text: str


@frozen
class Text(Key):
    """TEXT: header or body"""

    text: str


@frozen
class And(Key):
    """Several keys side by side; none of them finds everything."""

    keys: tuple[Key, ...]


@frozen
class Or(Key):
    """OR"""

    first: Key
    second: Key


@frozen
class Not(Key):
    """NOT"""

    key: Key


def leaves(key: Key) -> list[Key]:
    """The keys in a key that are not put together of others."""
    found, left = list[Key](), [key]
    while left:
        match left.pop():
            case And(keys):
                left += reversed(keys)
            case Or(first, second):
                left += second, first
            case Not(inner):
                left.append(inner)
            case leaf:
                found.append(leaf)
    return found


def asks(key: Key, *kinds: type[Key]) -> bool:
    """Whether keys of these kinds are in it."""
    for leaf in leaves(key):
        if isinstance(leaf, kinds):
            return True
    return False


def kinds(key: Key) -> frozenset[type[Key]]:
    """Of which kinds its `leaves` are."""
    return frozenset(map(type, leaves(key)))


def mapped(key: Key, change: Callable[[Key], Key]) -> Key:
    """The key with each of its `leaves` changed."""
    match key:
        case And(keys):
            return And(tuple([mapped(inner, change) for inner in keys]))
        case Or(first, second):
            return Or(mapped(first, change), mapped(second, change))
        case Not(inner):
            return Not(mapped(inner, change))
    return change(key)
