"""The keys of SEARCH as values: RFC 3501 §6.4.4. `store.search` evaluates them."""

from datetime import date

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from store.values import Flag

Mask = NDArray[np.bool_]
Ranges = tuple[tuple[int, int], ...]        # both ends included, in either order; 0 stands for "*"


class Key:
    """A search key."""


@frozen
class All(Key):
    """ALL"""


@frozen
class HasFlag(Key):
    """ANSWERED, DELETED, DRAFT, FLAGGED, SEEN; UNANSWERED etc. are Not(HasFlag(...))"""

    flag: Flag


@frozen
class Keyword(Key):
    """KEYWORD; UNKEYWORD is Not(Keyword(...))"""

    name: str


@frozen
class Recent(Key):
    """RECENT; OLD is Not(Recent())"""


@frozen
class New(Key):
    """NEW: RECENT and not SEEN"""


@frozen
class Old(Key):
    """OLD: not RECENT"""


@frozen
class Before(Key):
    """BEFORE: internal date, disregarding time and zone"""

    day: date


@frozen
class On(Key):
    """ON"""

    day: date


@frozen
class Since(Key):
    """SINCE"""

    day: date


@frozen
class Older(Key):
    """OLDER (RFC 5032): the internal date is this Unix time or before it."""

    time: int


@frozen
class Younger(Key):
    """YOUNGER: this Unix time or after it."""

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
class SentBefore(Key):
    """SENTBEFORE: the Date field, disregarding time and zone; a message without a date is not found"""

    day: date


@frozen
class SentOn(Key):
    """SENTON"""

    day: date


@frozen
class SentSince(Key):
    """SENTSINCE"""

    day: date


@frozen
class Larger(Key):
    """LARGER"""

    octets: int


@frozen
class Smaller(Key):
    """SMALLER"""

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
