"""Events of records in a row of the outbox: the octets that a transaction writes, and what a receiver is sent.

A delivery or a change of a flag writes such a row, so it is made of what is at hand, in one `pack`. Whoever sends it
makes the JSON, with its names and URLs, and nothing else. A row has all events that one transaction has for a receiver:
FORM, how many there are, when, which process, and the server's name; then each event. An event is its place among those
of the transaction, its type, the mailbox and its figures (`state.SHOWN`), and text: name of the mailbox, set of UIDs,
reader whose own flags they are, keywords.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import time
from typing import NamedTuple

from mboxlist.names import MailboxName
from store.events.eventvalues import (
    APPEND,
    CLEAR,
    EXPIRE,
    EXPUNGE,
    MILLISECONDS,
    NEW,
    READ,
    SET,
    TRASH,
    mailbox_url,
    moment,
    named_flags,
    second_of,
    to_json,
)
from store.tables.state import MESSAGES, MODSEQ_END, SHOWN

FORM = b"\1"                # a row in another form is JSON, and begins with a brace
KINDS = (NEW, APPEND, EXPIRE, EXPUNGE, READ, TRASH, SET, CLEAR)        # by the number that rows have: more at the end
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_LAST_ARRIVAL = NUMBERS[APPEND]     # what comes before it, and it, have a size
_ROW = struct.Struct("<cHdIH")              # FORM, events, Unix time, process, octets of the server's name
_EVENT = struct.Struct("<HIBIQH16s4s")      # place, octets of text, type, mailbox id, size, system flags, figures
_READ = struct.Struct("<HIBIQH" + SHOWN.format.removeprefix("<"))   # with each of the figures
_AMONG = struct.Struct("<H")                # place of an event among those of its transaction
_KIND = struct.Struct("<BI")                # of an event: type, mailbox id
_AT = slice(3, 11)                          # of a row: when,
_LENGTH = slice(15, 17)                     # octets of the server's name;
_BEFORE = struct.Struct("<IH")              # what is between these and the name: process, and those octets
PLACE = struct.Struct(">Q4sI")              # that of a row in the outbox: when, which process, which row of it
SOLE = _ROW.pack(FORM, 1, 0.0, 0, 0)[:3]        # what a row with one event begins with
MOST = 1000                 # events of a row
URLS = 10_000               # mailboxes, and what happens in them, whose JSON is remembered


class Packed(NamedTuple):
    """An event of a row: its `place` among those of the transaction, its octets, and the JSON that is sent."""

    place: int
    mailbox: int
    octets: bytes
    text: str


def pack_event(place: int, kind: str, mailbox: int, figures: bytes, size: int, flags: int, said: bytes) -> bytes:
    """One event. `figures`: those of the mailbox, as they are stored; `said`: see `words`."""
    return _EVENT.pack(place, len(said), NUMBERS[kind], mailbox, size, flags, figures[:MODSEQ_END],
                       figures[MESSAGES]) + said


def words(name: bytes, uids: bytes, reader: str = "", keywords: Sequence[str] = ()) -> bytes:
    """The text of an event; in none of it there is the end of a line."""
    return b"%b\n%b\n" % (name, uids) + "\n".join((reader, *keywords)).encode()


def pack_row(events: Sequence[bytes], at: float, process: int, server: bytes) -> bytes:
    """A row with these events."""
    return _ROW.pack(FORM, len(events), at, process, len(server)) + server + b"".join(events)


def sole_row(server: bytes, process: int, kind: str, mailbox: int, name: bytes, flags: int
             ) -> Callable[[int, int, bytes], bytes]:
    """For events that are alike, each of one message and the only one of its transaction: what makes the row, as
    `pack_row` does, of the UID, the octets, and the figures of the mailbox as they are stored. A transaction pays for
    that, so all that is alike is packed beforehand."""
    before, what, said = _before(server, process), _KIND.pack(NUMBERS[kind], mailbox), name + b"\n"
    length = len(said)
    pack = _sole_form(len(before), length).pack

    def row(uid: int, size: int, figures: bytes) -> bytes:
        end = b"%d\n" % uid            # of the figures, 16 octets are packed: up to MODSEQ_END
        return pack(SOLE, time(), before, length + len(end), what, size, flags, figures, figures[MESSAGES], said) + end

    return row


@lru_cache(maxsize=8)
def _before(server: bytes, process: int) -> bytes:
    """What is between when and the octets of text in a row with one event."""
    return _ROW.pack(FORM, 1, 0.0, process, len(server))[_AT.stop:] + server + _AMONG.pack(0)


@lru_cache(maxsize=256)
def _sole_form(before: int, said: int) -> struct.Struct:
    """_ROW and _EVENT, with what is alike in one piece, and text."""
    return struct.Struct(f"<3sd{before}sI5sQH16s4s{said}s")


def events_in(row: bytes) -> int:
    """How many there are in a row of whatever form."""
    return row[1] | row[2] << 8 if row[:1] == FORM and len(row) >= _ROW.size else 1


def sole(place: bytes, row: bytes) -> tuple[float, int, str] | None:
    """When, the mailbox, and the JSON of the only event of a row, which has that `place`, and is of one message: what
    `unpack` finds, in half the time. None: it is of another kind. Raises ValueError, struct.error, IndexError."""
    form = _SOLE_READ[row[_LENGTH]]
    at, before, octets, what, size, flags, validity, uidnext, modseq, messages = form.unpack_from(row)
    name, uid, more = row[form.size:].split(b"\n", 2)
    if len(row) != form.size + octets or not uid.isdigit():
        return None
    alike = _sole_repeated(before, what, flags, validity, name, more)
    if alike is None:
        return None
    mailbox, first, who, after, url = alike
    second = int(at)                    # as `moment` and `_text` do it, without the calls
    text = (f'{{"id":"{place.hex()}{first}{second_of(second)}{MILLISECONDS[int((at - second) * 1000)]}{who}'
            f'"{uid.decode()}","uidnext":{uidnext},"modseq":{modseq},"messages":{messages}{after}')
    return at, mailbox, f'{text}{size},"uri":"{url}/;UID={uid.decode()}"}}' if url else text


class _SoleForms(dict[bytes, struct.Struct]):
    """By the octets of a row that say how long the server's name is: the row in pieces, of which the second has what
    `_before` makes, and the fourth type and mailbox."""

    def __missing__(self, length: bytes) -> struct.Struct:
        before = _BEFORE.size + int.from_bytes(length, "little") + _AMONG.size
        form = self[length] = struct.Struct(f"<3xd{before}sI5sQH{SHOWN.format.removeprefix('<')}")
        return form


_SOLE_READ = _SoleForms()


@lru_cache(maxsize=URLS)
def _sole_repeated(before: bytes, what: bytes, flags: int, validity: int, name: bytes, more: bytes
                   ) -> tuple[int, str, str, str, str] | None:
    """The mailbox, and what `_repeated` gives of such an event, up to the size; one without a size ends there, and has
    no URL. None: the transaction had other events, before it, which this receiver does not get."""
    process, length = _BEFORE.unpack_from(before)
    kind, mailbox = _KIND.unpack(what)
    server, number = before[_BEFORE.size:_BEFORE.size + length], before[_BEFORE.size + length:]
    if number != _AMONG.pack(0):
        return None
    first, who, after, url = _repeated(server, process, kind, mailbox, flags, name, validity, more)
    if kind <= _LAST_ARRIVAL:
        return mailbox, first, who, f'{after},"messageSize":', url
    return mailbox, first, who, f"{after}}}", ""


def unpack(place: bytes, row: bytes) -> tuple[float, list[Packed]]:
    """When, and the events of the row, which has that `place`. Raises ValueError, struct.error, IndexError."""
    _, count, at, process, length = _ROW.unpack_from(row)
    begin, end, when = _ROW.size + length, len(row), moment(at)
    server, found = row[_ROW.size:begin], list[Packed]()
    while begin < end:
        number, octets, kind, mailbox, size, flags, validity, uidnext, modseq, messages = _READ.unpack_from(row, begin)
        said, following = begin + _READ.size, begin + _READ.size + octets
        if following > end:
            raise ValueError("an event of the outbox is cut off")
        text = _text((shifted(place, number) if number else place).hex(), when, server, process, kind, mailbox, size,
                     flags, validity, uidnext, modseq, messages, row[said:following])
        found.append(Packed(number, mailbox, row[begin:following], text))
        begin = following
    if len(found) != count or not found:
        raise ValueError("a row of the outbox is cut off")
    return at, found


def _text(place: str, when: str, server: bytes, process: int, kind: int, mailbox: int, size: int, flags: int,
          validity: int, uidnext: int, modseq: int, messages: int, said: bytes) -> str:
    """The JSON of an event."""
    name, uids, more = said.split(b"\n", 2)
    alike, who, after, url = _repeated(server, process, kind, mailbox, flags, name, validity, more)
    of = uids.decode()
    if not of.isdecimal():
        size_of = f',"messageSize":{size}}}' if kind <= _LAST_ARRIVAL else "}"
        return (f'{{"id":"{place}{alike}{when}{who}{to_json(of)},"uidnext":{uidnext},"modseq":{modseq},'
                f'"messages":{messages}{after}{size_of}')
    if kind <= _LAST_ARRIVAL:
        return (f'{{"id":"{place}{alike}{when}{who}"{of}","uidnext":{uidnext},"modseq":{modseq},'
                f'"messages":{messages}{after},"messageSize":{size},"uri":"{url}/;UID={of}"}}')
    return (f'{{"id":"{place}{alike}{when}{who}"{of}","uidnext":{uidnext},"modseq":{modseq},'
            f'"messages":{messages}{after}}}')


@lru_cache(maxsize=URLS)
def _repeated(server: bytes, process: int, kind: int, mailbox: int, flags: int, name: bytes, validity: int, more: bytes
              ) -> tuple[str, str, str, str]:
    """What the JSON of events has that are alike: between id and time, between time and UIDs, and behind the figures;
    and the URL of the mailbox. `more`: reader and keywords."""
    reader, _, keywords = more.decode().partition("\n")
    parsed = MailboxName.parse(name.decode())
    url, user = to_json(mailbox_url(server.decode(), parsed, validity)), reader or parsed.owner
    whose = f'"user":{to_json(user)},' if user else ""
    names = named_flags(flags, keywords.split("\n") if keywords else ())
    return (f'","event":"{KINDS[kind]}","timestamp":"',
            f'","process":"onecopy","pid":{process},"serverFQDN":{to_json(server.decode())},{whose}"mailboxID":{url},'
            f'"uidset":',
            f',"vnd.onecopy.mailbox":{mailbox}' + (f',"flagNames":{to_json(names)}' if names else ""), url[1:-1])


def alone_in_row(event: Packed, row: bytes) -> bytes:
    """A row of the same time with that event of it, which has no place among others any more."""
    _, _, at, process, length = _ROW.unpack_from(row)
    return pack_row([_AMONG.pack(0) + event.octets[_AMONG.size:]], at, process, row[_ROW.size:_ROW.size + length])


def shifted(place: bytes, by: int) -> bytes:
    """The place so many rows further on."""
    when, process, row = PLACE.unpack(place)
    return PLACE.pack(when, process, row + by)
