"""The small values that the store and its callers exchange."""

from enum import Enum, IntFlag

from attrs import frozen


class Flag(IntFlag):
    """The system flags of RFC 3501 §2.3.2, as bits of a record. \\Recent is kept apart (`Store.claim_recent`)."""

    SEEN = 1
    ANSWERED = 2
    FLAGGED = 4
    DELETED = 8
    DRAFT = 16


@frozen
class Flags:
    """System flags and keywords of one message (RFC 3501 §2.3.2)."""

    system: Flag = Flag(0)
    keywords: tuple[str, ...] = ()


class FlagAction(Enum):
    """What STORE does with the flags it names (RFC 3501 §6.4.6)."""

    ADD = "+FLAGS"
    REMOVE = "-FLAGS"
    REPLACE = "FLAGS"


@frozen
class InternalDate:
    """When the server received a message (RFC 3501 §2.3.3): Unix time, and the zone in minutes east of UTC."""

    seconds: int
    zone: int = 0


class Secret:
    """Octets that must not be printed, logged or compared by accident: a password."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The octets themselves, for the one place that needs them."""
        return self._value

    def __repr__(self) -> str:
        return "Secret()"


# What is found wrong

RECONSTRUCT = "reconstruct"
RESTORE = "restore"
RESTART = "restart"


@frozen
class Finding:
    """What is wrong, where, and what repairs it: a command of `onecopy`."""

    what: str
    where: str
    repair: str = RECONSTRUCT
