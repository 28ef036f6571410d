"""The small values that the store and its callers exchange."""

import re
import shlex
from collections.abc import Callable, Sequence
from enum import Enum, IntFlag
from typing import Any, TypeVar

from attrs import field, frozen

T = TypeVar("T")

UNIT = 1024                 # what a unit is of the next smaller one, where octets are shown


def setting(default: T, help: str, *, type: str = "", validator: Any = None, check: Callable[[T], object] | None = None
            ) -> T:
    """A field that an administrator can set. `type`: "size", "duration" or "mode", if the annotation does not say it.
    `check` raises ValueError for a value that is not allowed; so does `validator`, one of attrs'."""
    if check is not None:
        def validator(instance: object, attribute: object, value: T) -> None:
            check(value)

    found: T = field(default=default, validator=validator, metadata={"help": help, **({"type": type} if type else {})})
    return found


class Flag(IntFlag):
    """The system flags of RFC 3501 §2.3.2, as bits of a record. \\Recent is kept apart (`Store.claim_recent`)."""

    SEEN = 1
    ANSWERED = 2
    FLAGGED = 4
    DELETED = 8
    DRAFT = 16


#: What they are called, by their bits.
SYSTEM_NAMES = {int(flag): f"\\{str(flag.name).capitalize()}" for flag in Flag}
#: Each set of system flags, by its bits: to make one takes several calls.
FLAG_SETS = tuple(map(Flag, range(32)))


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

class Command(str):
    """A command line of `onecopy`, without that word, which repairs something. Only `Repair` makes them."""


    @property
    def reconstructs(self) -> bool:
        """Whether it is a reconstruct."""
        return self.startswith("reconstruct")


class Repair(Enum):
    """Every command that a finding can name; {} is what it is about."""

    RECONSTRUCT = "reconstruct --all"
    RECONSTRUCT_PARTITION = "reconstruct --partition {}"
    RESTORE = "restore ARCHIVE --over"
    SWEEP = "scrub --sweep"
    APPLY = "check --engine spark --apply"
    OWNER = "check --repair"
    OWNER_NAMED = "check --repair --workers-user USER"
    ADD_USER = "user add {}"
    USERS = "reconstruct --mboxlist --force --users FILE"
    SET_USER = "user set {} --status active --password"
    RENAME = "mailbox rename {} {} NEW"
    ADD_PARTITION = "partition add {}"
    LOST_MAILBOX = "config show store.lost_mailbox"
    NO_RECEIVER = "outbox discard {} --waiting"
    OUTBOX_ROWS = "outbox discard {} --unreadable"
    ACCESS = "access reset {}"
    BRING_HOME = "standby rejoin --from HOST:PORT"

    def of(self, *about: str) -> Command:
        """As it is typed."""
        return Command(self.value.format(*map(shlex.quote, about)))


RECONSTRUCT = Repair.RECONSTRUCT.of()
RESTORE = Repair.RESTORE.of()
SWEEP = Repair.SWEEP.of()


@frozen
class Finding:
    """What is wrong, where, and what repairs it."""

    what: str
    where: str
    repair: Command = RECONSTRUCT


NAMES_SHOWN = 20


def few(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def readable(octets: int) -> str:
    """An amount of octets for a person: "512 octets", "1.8 MiB"."""
    if octets < UNIT:
        return f"{octets} octets"
    amount, units = octets / UNIT, iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while amount >= 999.95 and (larger := next(units, None)) is not None:
        amount, unit = amount / UNIT, larger
    return f"{amount:.1f} {unit}"


# As administrators write them

LARGEST_SIZE = 1 << 63      # what no size reaches: databases and protocols have 63 bits for it
LONGEST_TIME = 36_500 * 86_400.0        # seconds
SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
DURATIONS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def size(text: str) -> int:
    """Octets from "4096", "64M", "1.5 GiB", "512 octets": all that is printed can be read. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?:([kmgtp]?)(?:i?b)?|octets)", text.strip().lower())
    if not match:
        raise ValueError("not a size (such as 4096, 64M, 2G)")
    unit = SIZES[match[2] or ""]
    octets = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if octets >= LARGEST_SIZE:
        raise ValueError("too large: a size is less than 8192P")
    return octets


def duration(text: str) -> float:
    """Seconds from "90", "30m", "7d". Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(ms|[smhdw]?)", text.strip().lower())
    if not match:
        raise ValueError("not a duration (such as 90, 30m, 12h, 7d)")
    seconds = float(match[1]) * DURATIONS[match[2]]
    if seconds > LONGEST_TIME:
        raise ValueError("too long: a duration is at most 36500d")
    return seconds


def boolean(text: str) -> bool:
    """From yes, no, on, off, true, false, 1, 0. Raises ValueError."""
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise ValueError("not yes or no") from None
