"""Events of records in a row of the outbox: the octets that a transaction writes, and what a receiver is sent.

A delivery or a change of a flag writes such a row, so it is made of what is at hand, in one `pack`; the body, with its
names and URLs, is made by whoever sends it. A row has all events that one transaction has for a receiver: FORM, how
many there are, when, which process, and the server's name; then each event. An event is its place among those of the
transaction, its type, the mailbox and its figures (`state.SHOWN`), and text: name of the mailbox, set of UIDs, reader
whose own flags they are, keywords.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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
)
from store.tables.state import MESSAGES, MODSEQ_END, SHOWN

FORM = b"\1"                # a row in another form is JSON, and begins with a brace
KINDS = (NEW, APPEND, EXPIRE, EXPUNGE, READ, TRASH, SET, CLEAR)        # by the number that rows have: more at the end
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_ROW = struct.Struct("<cHdIH")              # FORM, events, Unix time, process, octets of the server's name
_EVENT = struct.Struct("<HIBIQH")           # place, octets of text, type, mailbox id, size, system flags
_PLACE = struct.Struct("<H")
MOST = 1000                 # events of a row
URLS = 10_000               # of mailboxes that are remembered


class Packed(NamedTuple):
    """An event of a row: its `place` among those of the transaction, its octets, and what it says."""

    place: int
    mailbox: int
    octets: bytes
    body: dict[str, Any]


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


def unpack(row: bytes) -> tuple[float, list[Packed]]:
    """When, and the events. Raises ValueError, struct.error, IndexError."""
    _, count, at, process, length = _ROW.unpack_from(row)
    begin = _ROW.size + length
    server = row[_ROW.size:begin].decode()
    of_all = {"event": "", "timestamp": moment(at), "process": "onecopy", "pid": process, "serverFQDN": server}
    found: list[Packed] = []
    while begin < len(row):
        event = _unpacked(row, begin, of_all)
        begin += len(event.octets)
        found.append(event)
    if len(found) != count or not found:
        raise ValueError("a row of the outbox is cut off")
    return at, found


def _unpacked(row: bytes, begin: int, of_all: dict[str, Any]) -> Packed:
    place, length, kind, mailbox, size, flags = _EVENT.unpack_from(row, begin)
    validity, uidnext, modseq, messages = SHOWN.unpack_from(row, begin + _EVENT.size)
    text = begin + _EVENT.size + SHOWN.size
    end = text + length
    if end > len(row):
        raise ValueError("an event of the outbox is cut off")
    name, uids, reader, *keywords = row[text:end].decode().split("\n")
    owner, url = _address(of_all["serverFQDN"], name, validity)
    body = of_all.copy()
    body["event"] = KINDS[kind]
    if reader or owner:
        body["user"] = reader or owner
    body["mailboxID"] = url
    body["uidset"] = uids
    body["uidnext"] = uidnext
    body["modseq"] = modseq
    body["messages"] = messages
    body["vnd.onecopy.mailbox"] = mailbox
    if kind <= _NUMBERS[APPEND]:
        body["messageSize"] = size
    if flags or keywords:
        body["flagNames"] = named_flags(flags, keywords)
    if kind <= _NUMBERS[APPEND] and uids.isdigit():
        body["uri"] = f"{url}/;UID={uids}"
    return Packed(place, mailbox, row[begin:end], body)


def alone(event: Packed, row: bytes) -> bytes:
    """A row of the same time with that event of it, which has no place among others any more."""
    _, _, at, process, length = _ROW.unpack_from(row)
    return pack_row([_PLACE.pack(0) + event.octets[_PLACE.size:]], at, process, row[_ROW.size:_ROW.size + length])


@lru_cache(maxsize=URLS)
def _address(server: str, name: str, validity: int) -> tuple[str, str]:
    """Whose mailbox it is, and its URL."""
    parsed = MailboxName.parse(name)
    return parsed.owner, mailbox_url(server, parsed, validity)
