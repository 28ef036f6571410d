"""Events of records in a row of the outbox: the octets that a transaction writes, and what a receiver is sent.

A delivery or a change of a flag writes such a row, so it is made of what is at hand, in one `pack`. Whoever sends it
makes the JSON, with its names and URLs, and nothing else. A row has all events that one transaction has for a receiver:
FORM, how many there are, when, which process, and the server's name; then each event. An event is its place among those
of the transaction, its type, the mailbox and its figures (`state.SHOWN`), and text: name of the mailbox, set of UIDs,
reader whose own flags they are, keywords.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from mboxlist.names import MailboxName
from store.events.eventvalues import (
    APPEND,
    CLEAR,
    EXPIRE,
    EXPUNGE,
    NEW,
    READ,
    SET,
    TRASH,
    mailbox_url,
    moment,
    named_flags,
    to_json,
)
from store.tables.state import MESSAGES, MODSEQ_END, SHOWN

FORM = b"\1"                # a row in another form is JSON, and begins with a brace
KINDS = (NEW, APPEND, EXPIRE, EXPUNGE, READ, TRASH, SET, CLEAR)        # by the number that rows have: more at the end
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_ROW = struct.Struct("<cHdIH")              # FORM, events, Unix time, process, octets of the server's name
_EVENT = struct.Struct("<HIBIQH")           # place, octets of text, type, mailbox id, size, system flags
_AMONG = struct.Struct("<H")                # place of an event among those of its transaction
PLACE = struct.Struct(">Q4sI")              # that of a row in the outbox: when, which process, which row of it
MOST = 1000                 # events of a row
URLS = 10_000               # of mailboxes that are remembered,
FLAG_SETS = 1000            # and flags that come together


class Packed(NamedTuple):
    """An event of a row: its `place` among those of the transaction, its octets, and the JSON that is sent."""

    place: int
    mailbox: int
    octets: bytes
    text: str


def pack_event(place: int, kind: str, mailbox: int, figures: bytes, size: int, flags: int, said: bytes) -> bytes:
    """One event. `figures`: those of the mailbox, as they are stored; `said`: see `words`."""
    return (_EVENT.pack(place, len(said), _NUMBERS[kind], mailbox, size, flags) + figures[:MODSEQ_END]
            + figures[MESSAGES] + said)


def words(name: bytes, uids: bytes, reader: str = "", keywords: Sequence[str] = ()) -> bytes:
    """The text of an event; in none of it there is the end of a line."""
    return b"%b\n%b\n" % (name, uids) + "\n".join((reader, *keywords)).encode()


def pack_row(events: Sequence[bytes], at: float, process: int, server: bytes) -> bytes:
    """A row with these events."""
    return _ROW.pack(FORM, len(events), at, process, len(server)) + server + b"".join(events)


def events_in(row: bytes) -> int:
    """How many there are in a row of whatever form."""
    return _ROW.unpack_from(row)[1] if row[:1] == FORM and len(row) >= _ROW.size else 1


def unpack(place: bytes, row: bytes) -> tuple[float, list[Packed]]:
    """When, and the events of the row, which has that `place`. Raises ValueError, struct.error, IndexError."""
    _, count, at, process, length = _ROW.unpack_from(row)
    begin = _ROW.size + length
    server = row[_ROW.size:begin]
    of_all = f'"timestamp":"{moment(at)}","process":"onecopy","pid":{process},"serverFQDN":{_text(server)}'
    found: list[Packed] = []
    while begin < len(row):
        event = _unpacked(place, row, begin, server, of_all)
        begin += len(event.octets)
        found.append(event)
    if len(found) != count or not found:
        raise ValueError("a row of the outbox is cut off")
    return at, found


def _unpacked(place: bytes, row: bytes, begin: int, server: bytes, of_all: str) -> Packed:
    number, length, kind, mailbox, size, flags = _EVENT.unpack_from(row, begin)
    validity, uidnext, modseq, messages = SHOWN.unpack_from(row, begin + _EVENT.size)
    said = begin + _EVENT.size + SHOWN.size
    end = said + length
    if end > len(row):
        raise ValueError("an event of the outbox is cut off")
    name, uids, more = row[said:end].split(b"\n", 2)
    reader, _, keywords = more.partition(b"\n")
    who, url = _address(server, name, validity, reader)
    single = uids.isdigit()
    text = (f'{{"id":"{(shifted(place, number) if number else place).hex()}","event":"{KINDS[kind]}",{of_all}{who}'
            f',"uidset":{_text(uids)},"uidnext":{uidnext},"modseq":{modseq}'
            f',"messages":{messages},"vnd.onecopy.mailbox":{mailbox}')
    if kind <= _NUMBERS[APPEND]:
        text += f',"messageSize":{size}'
    if flags or keywords:
        text += _flag_names(flags, keywords)
    if single and kind <= _NUMBERS[APPEND]:
        text += f',"uri":"{url}/;UID={uids.decode()}"'
    return Packed(number, mailbox, row[begin:end], text + "}")


def alone(event: Packed, row: bytes) -> bytes:
    """A row of the same time with that event of it, which has no place among others any more."""
    _, _, at, process, length = _ROW.unpack_from(row)
    return pack_row([_AMONG.pack(0) + event.octets[_AMONG.size:]], at, process, row[_ROW.size:_ROW.size + length])


def shifted(place: bytes, by: int) -> bytes:
    """The place so many rows further on."""
    when, process, row = PLACE.unpack(place)
    return PLACE.pack(when, process, row + by)


@lru_cache(maxsize=URLS)
def _address(server: bytes, name: bytes, validity: int, reader: bytes) -> tuple[str, str]:
    """Whose mailbox it is, or who has read, and its URL, as members of an object; and the URL alone."""
    parsed = MailboxName.parse(name.decode())
    url = to_json(mailbox_url(server.decode(), parsed, validity))
    user = reader.decode() or parsed.owner
    return (f',"user":{to_json(user)},' if user else ",") + f'"mailboxID":{url}', url[1:-1]


@lru_cache(maxsize=FLAG_SETS)
def _flag_names(flags: int, keywords: bytes) -> str:
    """As a member of an object."""
    names = named_flags(flags, keywords.decode().split("\n") if keywords else ())
    return f',"flagNames":{to_json(names)}'


@lru_cache(maxsize=URLS)
def _text(octets: bytes) -> str:
    """A string in JSON."""
    return to_json(octets.decode())
