"""Mail that leaves by the outbox: notices of quota, and what else the store sends by itself. A relay takes it.

A row for each recipient, so that each has its own attempts and may be a dead letter. Its body: `from` ("": nobody is to
answer), `to`, and `octets`, the message (base64), or `file`, the name of a file with it (`outgoingfiles`). The message
has its Message-ID when it is written, so one that comes twice is known by it (RFC 5322 §3.6.4).
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mboxlist.engine.btree import Txn
from store.errors import Problem, StoreError
from store.events import outgoingfiles
from store.events.eventvalues import MAIL
from store.events.outboxtable import OutboxTable, Parcel
from store.events.recording import Recorder

LARGEST = 256 << 10         # octets of a message that a row has


def may_leave(recorder: Recorder) -> bool:
    """Whether there is a relay, and not too much waits for it."""
    return (relay := recorder.receivers.relay) is not None and not relay.full


def add(recorder: Recorder, outbox: OutboxTable, sender: str, recipients: Sequence[str], octets: bytes, txn: Txn
        ) -> list[bytes]:
    """Have the message sent, once the transaction is committed and on disk; the keys of its rows. Addresses are as they
    stand between angle brackets.

    Raises StoreError UNAVAILABLE where it cannot leave, TOO_BIG when it is too large.
    """
    relay = recorder.receivers.relay
    if relay is None or relay.full:
        raise StoreError(Problem.UNAVAILABLE, "No mail can leave: no relay is configured, or too much waits for it")
    if len(octets) > LARGEST:
        raise StoreError(Problem.TOO_BIG, f"The message has more than {LARGEST} octets")
    return [key for recipient in recipients for key in outbox.add([relay.name], MAIL, {
        "from": sender, "to": recipient, "octets": b64encode(octets).decode()}, 0, txn)]


def add_file(recorder: Recorder, outbox: OutboxTable, sender: str, recipient: str, name: str, txn: Txn) -> list[bytes]:
    """`add`, of a message in a file (`outgoingfiles.keep`)."""
    relay = recorder.receivers.relay
    if relay is None or relay.full:
        raise StoreError(Problem.UNAVAILABLE, "No mail can leave: no relay is configured, or too much waits for it")
    return outbox.add([relay.name], MAIL, {"from": sender, "to": recipient, "file": name}, 0, txn)


def named_files(recorder: Recorder, outboxes: Iterable[OutboxTable]) -> Iterator[str]:
    """The files that rows name, of mail that waits or is dead."""
    names = [each.name for each in recorder.receivers.all if each.kind == MAIL]
    for outbox in outboxes:
        for name in names:
            for parcel in outbox.every(name):
                if parcel.kind == MAIL and "file" in parcel.body:
                    yield str(parcel.body["file"])


def message_of(parcel: Parcel, root: Path) -> tuple[str, str, bytes]:
    """Sender, recipient and message of a row of the store in that folder. Raises ValueError, KeyError."""
    if parcel.kind != MAIL:
        raise ValueError(f"it is no mail: {parcel.kind}")
    if "file" in parcel.body:
        return str(parcel.body["from"]), str(parcel.body["to"]), outgoingfiles.read(root, str(parcel.body["file"]))
    return str(parcel.body["from"]), str(parcel.body["to"]), b64decode(parcel.body["octets"], validate=True)
