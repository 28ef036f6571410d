"""The rows of the databases' tables as values that can be read, for `onecopy dump`: one function for each table.

Hashes of passwords are in no row. What a function cannot read is shown as it is; a damaged row stops nothing.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict, frozen

from mboxlist.table import LAST_IDENTITY
from store.errors import StoreError
from store.message.cacherecord import CachedMessage
from store.partition.serials import META, META_KEY
from store.tables.index import OWN, TRAILER, chunk_of_key, decode
from store.tables.quotatable import QuotaUse
from store.tables.references import MessageRecord, since
from store.tables.state import UNCOUNTED_KEY, MailboxState
from store.tables.vanished import ranges_of

HIDDEN = "***"
SECRETS = frozenset({"users", "forgotten"})     # tables with hashes of passwords
ID = 4                      # octets of a mailbox id, and of other numbers
_DIGEST = 32
_SECRET_WORDS = frozenset({"password", "secret"})
_LONGEST = 2_000            # letters of a value that is shown as it is

Row = Mapping[str, Any]
Decode = Callable[[bytes, bytes], Row]


@frozen
class Layout:
    """What is known of a table: what it has, whether its keys begin with a mailbox id, and how a row is read."""

    what: str
    row: Decode
    by_mailbox: bool = False


def shown(table: str, key: bytes, value: bytes) -> dict[str, Any]:
    """The row of a table as values for JSON; one that cannot be read says so, and comes as octets."""
    try:
        return {"key": text(key), **LAYOUTS[table].row(key, value)}
    except (ValueError, KeyError, TypeError, IndexError, struct.error, StoreError) as error:
        return {"key": text(key), "problem": f"it cannot be read: {error}"[:_LONGEST],
                "value": HIDDEN if table in SECRETS else value.hex()[:_LONGEST]}


def text(octets: bytes) -> str:
    """Octets as a person reads them, and as --from takes them: text, or 0x and hexadecimal digits."""
    try:
        found = octets.decode()
    except UnicodeDecodeError:
        return f"0x{octets.hex()}"
    return found if found.isprintable() and not found.startswith("0x") else f"0x{octets.hex()}"


def octets(typed: str) -> bytes:
    """What `text` has made such words of. Raises ValueError."""
    return bytes.fromhex(typed[2:]) if typed.startswith("0x") else typed.encode()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name in _SECRET_WORDS else _without_secrets(each) for name, each in value.items()}
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value


def _json(key: bytes, value: bytes) -> Row:
    return {"value": _without_secrets(json.loads(value))}


def _user(key: bytes, value: bytes) -> Row:
    return {"user": key.decode(), **_json(key, value)} if not key.startswith(b"@") or len(key) > 1 else {
        "value": HIDDEN}


def _forgotten(key: bytes, value: bytes) -> Row:
    values = json.loads(value)
    return {"user": key.decode(), "value": {**values, "row": _without_secrets(json.loads(values["row"]))
                                            if values["row"] else None}}


def _words(*names: str) -> Decode:
    """A key of texts with a mark between them, and a value that is a text, or nothing."""
    def row(key: bytes, value: bytes) -> Row:
        marks = b"\0" if b"\0" in key else b"\x01"
        words = [each.decode() for each in key.split(marks, len(names) - 1)]
        return {**dict(zip(names, words, strict=True)), **({"value": text(value)} if value else {})}
    return row


def _mailbox(key: bytes, value: bytes) -> Row:
    if key == LAST_IDENTITY[0]:
        last, validity = LAST_IDENTITY[1].unpack(value)
        return {"last_id": last, "last_uidvalidity": validity}
    if key.startswith(b"\0"):
        return {"value": text(value)}
    return {"mailbox": key.replace(b"\x01", b"/").decode(), **json.loads(value)}


def _name(key: bytes, value: bytes) -> Row:
    return {"mailbox_id": _number(key), "mailbox": value.decode()}


def _deleted(key: bytes, value: bytes) -> Row:
    length = int.from_bytes(value[ID:ID + 2], "little")
    name, row = value[ID + 2:ID + 2 + length], value[ID + 2 + length:]
    return {"mailbox_id": _number(key), "deleted": int.from_bytes(value[:ID], "little"), "mailbox": name.decode(),
            "row": json.loads(row)}


def _pending(key: bytes, value: bytes) -> Row:
    if len(key) == ID and value:
        return {"mailbox_id": _number(key), "since": _number(value)}
    try:
        return {"value": json.loads(value)}
    except ValueError:
        return {"value": text(value)}


def _former(key: bytes, value: bytes) -> Row:
    return {"mailbox": key.decode(), "uidvalidity": _number(value)}


def _annotation(key: bytes, value: bytes) -> Row:
    name, _, user = key[ID:].partition(b"\0")
    return {"mailbox_id": _number(key[:ID]), "entry": name.decode(), "user": user.decode(), "value": text(value)}


def _parcel(key: bytes, value: bytes) -> Row:
    return {"value": json.loads(value)} if len(key) > 1 else {"clock": int.from_bytes(value, "big")}


def _records(rows: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    shape = rows.dtype.names
    return [{name: each.hex() if isinstance(each, bytes) else each for name, each in zip(shape, row, strict=True)
             if name in names} for row in rows.tolist()]


_RECORD = ("uid", "flags", "keywords", "modseq", "received", "zone", "saved", "size", "serial", "header_length", "head",
           "digest")


def _chunk(key: bytes, value: bytes) -> Row:
    mailbox, number = chunk_of_key(key)
    return {"mailbox_id": mailbox, "chunk": number, "records": _records(decode(value), _RECORD)}


def _state(key: bytes, value: bytes) -> Row:
    if key == META_KEY:
        epoch, serial, written = META.unpack(value)
        return {"epoch": epoch, "first_serial": serial, "format": written}
    if key.startswith(META_KEY):
        return {"value": text(value)}
    if key == UNCOUNTED_KEY:
        return {"uncounted": True}
    state = MailboxState.from_bytes(value, int.from_bytes(value[48:52], "little"))
    return {"mailbox_id": _number(key), **asdict(state)}


def _quota(key: bytes, value: bytes) -> Row:
    return {"root": key.partition(b"\0")[2].decode() if b"\0" in key else key[1:].decode(),
            **asdict(QuotaUse.from_bytes(value))}


def _message(key: bytes, value: bytes) -> Row:
    return {"digest": key.hex(), **asdict(MessageRecord.from_bytes(value))}


def _purge(key: bytes, value: bytes) -> Row:
    digests = [value[at:at + _DIGEST].hex() for at in range(0, len(value), _DIGEST)] or [key[ID:].hex()]
    return {"since": since(key), "digests": digests}


def _cached(key: bytes, value: bytes) -> Row:
    found = CachedMessage.from_bytes(value)
    return {"serial": _number(key), "digest": found.digest.hex(), "trace": found.trace,
            "envelope": found.envelope.decode("utf-8", "replace"), "octets": len(value)}


def _reader(key: bytes, value: bytes) -> Row:
    mailbox, number = chunk_of_key(key[:2 * ID])
    own = decode_own(value)
    return {"mailbox_id": mailbox, "chunk": number, "reader": key[2 * ID:].decode(), "flags": own}


def decode_own(value: bytes) -> list[list[int]]:
    """A reader's own flags: place in the chunk, flags, MODSEQ, of those that have any."""
    size = OWN.itemsize
    found = [(at // size, value[at], int.from_bytes(value[at + 1:at + size], "little"))
             for at in range(0, len(value) - TRAILER, size)]
    return [list(each) for each in found if any(each[1:])]


def _vanished(key: bytes, value: bytes) -> Row:
    ranges = ranges_of(value)
    return {"mailbox_id": _number(key[:ID]), "modseq": _number(key[ID:]),
            "uids": None if ranges is None else ranges.tolist()}


def _expunged(key: bytes, value: bytes) -> Row:
    return {"expunged": _number(key[:ID]), "mailbox_id": _number(key[ID:2 * ID]), "modseq": _number(key[2 * ID:]),
            "octets": len(value)}


def _private_header(key: bytes, value: bytes) -> Row:
    if len(key) == ID:
        return {"number": _number(key), "header": value.decode("utf-8", "replace")}
    return {"value": text(value)}


def _uidl(key: bytes, value: bytes) -> Row:
    mailbox, uid = chunk_of_key(key)
    return {"mailbox_id": mailbox, **({"uid": uid, "uidl": value.decode()} if uid else {"count": _number(value)})}


def _arrival(key: bytes, value: bytes) -> Row:
    return {"until": int.from_bytes(value, "little")} if len(value) == ID else {"value": text(value)}


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")


LAYOUTS = {
    "mailboxes": Layout("the list: name, id, partition, UIDVALIDITY, rights", _mailbox),
    "names": Layout("mailbox id, and its name", _name, by_mailbox=True),
    "rights": Layout("who may look up which mailboxes of others", _words("identifier", "mailbox")),
    "deleted": Layout("deleted mailboxes that can be brought back", _deleted, by_mailbox=True),
    "pending": Layout("ids on which something has begun, and trees that are being renamed", _pending),
    "former": Layout("UIDVALIDITYs that names had", _former),
    "forgotten": Layout("removed users who can be brought back", _forgotten),
    "annotations": Layout("annotations of mailboxes (RFC 5464)", _annotation, by_mailbox=True),
    "subscriptions": Layout("who is subscribed to what", _words("user", "mailbox")),
    "users": Layout("users, and rules of domains; hashes of passwords are not shown", _user),
    "aliases": Layout("further addresses, and whose they are", _words("alias")),
    "moves": Layout("users on their way between back ends", _json),
    "outbox": Layout("what waits for receivers of events", _parcel),
    "index": Layout("records of messages, 64 UIDs a row", _chunk, by_mailbox=True),
    "state": Layout("UIDNEXT, HIGHESTMODSEQ, counts, octets, quota root, keywords", _state, by_mailbox=True),
    "quota": Layout("use and limits of quota roots", _quota),
    "messages": Layout("message files: serial, references, size", _message),
    "purge": Layout("message files that wait for the purge", _purge),
    "seen": Layout("readers' own flags", _reader, by_mailbox=True),
    "vanished": Layout("expunged UIDs, for QRESYNC", _vanished, by_mailbox=True),
    "removed": Layout("expunged records, for undelete", _expunged),
    "heads": Layout("private header fields", _private_header),
    "uidls": Layout("POP3 unique-ids of an earlier server", _uidl, by_mailbox=True),
    "arrivals": Layout("duplicate suppression", _arrival),
    "cache": Layout("ENVELOPE, structure, listed fields", _cached),
}
