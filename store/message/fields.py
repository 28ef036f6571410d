"""Whole fields of a header, as they stand: what HEADER.FIELDS shows (RFC 3501 §6.4.5).

Those that mail programs list mailboxes by are kept in cache records, so that a list opens no message file. None of them
is among the fields of a trace header, which differ from mailbox to mailbox.
"""

import re
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate

import numpy as np

from store.message.headers import any_of

# What Thunderbird, mutt, K-9, Outlook, Roundcube and mbsync ask for, all messages of a mailbox at a time.
LISTED = frozenset((
    b"bcc", b"cc", b"content-description", b"content-type", b"date", b"disposition-notification-to", b"from",
    b"importance", b"in-reply-to", b"lines", b"list-id", b"list-post", b"list-unsubscribe", b"mail-followup-to",
    b"mail-reply-to", b"message-id", b"mime-version", b"newsgroups", b"priority", b"references", b"reply-to", b"sender",
    b"subject", b"to", b"x-k9mail-identity", b"x-label", b"x-mailer", b"x-msmail-priority", b"x-msoesrec",
    b"x-priority", b"x-ref", b"x-tuid"))
MOST = 4 << 10              # octets of such fields in a record; of a message with more the file is read
PLANS = 400                 # orders of fields that are known at a time

#: Ends of fields that are kept where one run is taken from the first on, as from most messages, or two, from answers.
FROM_FIRST, TWO_RUNS = 2, 4
_NAME = re.compile(rb"[!-9;-~]+")     # RFC 5322 §2.2
Plan = tuple[Callable[[bytes, int], tuple[int, ...]], int, int]       # see Lister.plan
_FIELD = re.compile(rb"([^\n:]*+)[^\n]*+(?:\n[ \t][^\n]*+)*\n?+")


def header_fields(header: bytes, names: Iterable[bytes], exclude: bool = False) -> bytes:
    """HEADER.FIELDS, or with `exclude` HEADER.FIELDS.NOT: whole fields as they stand, and the empty line, if any."""
    wanted = tuple(names)
    return Fields(header, wanted).pick(wanted, exclude)


class Fields:
    """The fields of one header, found in one walk, however many items ask for some of them."""

    def __init__(self, header: bytes, names: Iterable[bytes]) -> None:
        """`names`: all that may be asked for."""
        self._header = header
        self._numbers = {name: number for number, name in enumerate(sorted({name.lower() for name in names}), 1)}
        starts, numbers, at, end = array("L"), array("H"), 0, len(header)
        while at < end:
            if header[at] == 10 or header.startswith(b"\r\n", at):
                break
            match = _FIELD.match(header, at)
            assert match is not None
            starts.append(at)
            numbers.append(self._numbers.get(match[1].rstrip().lower(), 0))
            at = match.end()
        self._end = at                      # of the fields; the empty line follows, if there is one
        self._starts = np.append(np.frombuffer(starts, np.dtype("L")), [at]).astype(np.int64)
        self._fields = np.frombuffer(numbers, np.uint16)

    def pick(self, names: Iterable[bytes], exclude: bool = False) -> bytes:
        """See `header_fields`."""
        wanted = np.zeros(len(self._numbers) + 1, np.bool_)
        wanted[[self._numbers[name.lower()] for name in names]] = True
        kept = np.concatenate(([False], wanted[self._fields] ^ exclude, [False]))
        edges = self._starts[np.flatnonzero(kept[1:] != kept[:-1])].tolist()
        header = self._header
        return b"".join([header[first:last] for first, last in zip(edges[::2], edges[1::2], strict=True)]
                        ) + header[self._end:]


def _finder(names: bytes) -> re.Pattern[bytes]:
    """Finds the fields with a name of that form, in what has an LF before each line."""
    return re.compile(rb"\n%b[ \t\r\v\f]*(?=[:\n])[^\n]*+(?:\n[ \t][^\n]*+)*" % names)


def picker(names: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """`header_fields` for these names, of headers that end with an empty line; made once for many messages."""
    if not all(map(_NAME.fullmatch, names)):
        return lambda header: header_fields(header, names)
    wanted = b"|".join([re.escape(name) for name in sorted(set(names))])
    field = _finder(b"(?i:%b)" % wanted)

    def pick(header: bytes) -> bytes:
        cut = -2 if header.endswith(b"\r\n") else -1
        found = field.findall(b"\n" + header[:cut])
        return b"".join(found)[1:] + b"\n" + header[cut:] if found else header[cut:]

    return pick


_NUMBERS = {name: number for number, name in enumerate(sorted(LISTED))}
_ANY_LISTED = _finder(any_of(sorted(LISTED)))


def listed(header: bytes) -> bytes:
    """What a record keeps of a message's header: the fields that are in LISTED, and the empty line.

    Their number, of each the number of its name, of each where it ends, and the octets. b"" if they are too many, or no
    empty line ends the header.
    """
    if not header.endswith((b"\n\r\n", b"\n\n")) and header not in (b"\r\n", b"\n"):
        return b""
    cut = -2 if header.endswith(b"\r\n") else -1
    found = _ANY_LISTED.findall(b"\n" + header[:cut])
    octets = b"".join(found)[1:] + (b"\n" if found else b"") + header[cut:]
    if len(octets) > MOST or len(found) > 255:
        return b""
    numbers = bytearray((len(found),))
    for one in found:                   # few: a comprehension would be a call
        numbers.append(_number(one.partition(b":")[0]))
    return bytes(numbers) + _ends(len(found)).pack(*accumulate(map(len, found))) + octets


@lru_cache(maxsize=1000)
def _number(start: bytes) -> int:
    """The number of the name of the field that begins so: with an LF, up to the colon."""
    name = _NAME.match(start, 1)
    assert name is not None
    return _NUMBERS[name[0].lower()]


@cache
def _ends(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}H")


class Lister:
    """Takes these names' fields, all of them in LISTED, from what `listed` has made: as `header_fields` would."""

    __slots__ = ("_wanted", "plans")

    def __init__(self, names: Iterable[bytes]) -> None:
        self._wanted = bytes([_NUMBERS[name.lower()] for name in names])
        self.plans: dict[bytes, Plan] = {}          # by the numbers of the names that a message has, in order

    def __call__(self, kept: bytes) -> bytes:
        """Those of one message."""
        return self.of_many((kept,), (0,), (len(kept),))[0]

    def of_many(self, values: Iterable[bytes], begins: Iterable[int], ends: Iterable[int]) -> list[bytes]:
        """Those of many messages. Of each value what `listed` has made is from its place in `begins` to that in `ends`.
        """
        found: list[bytes] = []
        add, plans = found.append, self.plans
        for value, at, end in zip(values, begins, ends, strict=True):
            numbers = value[at:at + 1 + value[at]]
            try:
                edges_of, skipped, count = plans[numbers]
            except KeyError:
                edges_of, skipped, count = self.plan(numbers)
            if count == FROM_FIRST:
                run, last = edges_of(value, at)
                at += skipped
                add(value[at:at + run] + value[at + last:end])
                continue
            if count == TWO_RUNS:
                run, start, stop, last = edges_of(value, at)
                at += skipped
                add(value[at:at + run] + value[at + start:at + stop] + value[at + last:end])
                continue
            edges = edges_of(value, at)
            at += skipped
            if count & 1 == 0:
                edges = (0, *edges)
            taken = value[at + edges[-1]:end]
            for run in range(len(edges) - 3, -1, -2):           # of few: a comprehension would be a call
                taken = value[at + edges[run]:at + edges[run + 1]] + taken
            add(taken)
        return found

    def plan(self, numbers: bytes) -> Plan:
        """How the ends between which to take are stored: those of runs of fields that are wanted, and that of the last
        field, behind which there is the empty line. What unpacks them; octets before the fields; how many ends these
        are: an even number where the first field is taken, which begins at 0."""
        if len(self.plans) >= PLANS:
            self.plans.clear()
        wanted = [number in self._wanted for number in numbers[1:]]
        kept = [False, *wanted, True]
        edges = [at for at in range(len(wanted) + 1) if kept[at] != kept[at + 1]]       # ends of so many fields
        stored = edges[1:] if edges[0] == 0 else edges
        form, at = f"<{len(numbers)}x", 1
        for edge in stored:
            form += f"{2 * (edge - at)}xH"
            at = edge + 1
        plan = struct.Struct(form).unpack_from, len(numbers) + 2 * len(wanted), len(stored)
        self.plans[numbers] = plan
        return plan
