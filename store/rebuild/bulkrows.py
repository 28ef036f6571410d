"""What goes into tables that are made in bulk (`mboxlist.bulk`): records of mailboxes, and records of message files."""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from numpy import frombuffer
from numpy.typing import NDArray

from mboxlist.engine.bulk import Load
from mboxlist.entry import MailboxId
from store.partition.messagefiles import MID_OCTETS
from store.rebuild.loader import split
from store.tables.index import ROW, Rows, chunk_key, octets_of, with_trailer
from store.tables.references import STORED

FILES = 100_000                         # records of message files that are given at a time
_PART = struct.Struct("<II")            # mailbox, records
_COUNT = struct.Struct("<I")


def give_rows(load: Load, mailbox: MailboxId, rows: Rows) -> None:
    """Records of a mailbox, all of them; mailboxes in order of id. Raises OSError."""
    if len(rows):
        load.write(_PART.pack(mailbox, len(rows)), octets_of(rows))


def chunks_of(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The rows of the index that these are."""
    while head := stream.read(_PART.size):
        mailbox, count = _PART.unpack(head)
        rows = frombuffer(stream.read(count * ROW.itemsize), ROW)
        for number, part in split(rows):
            yield chunk_key(MailboxId(mailbox), number), with_trailer(octets_of(part))


def give_files(load: Load, digests: NDArray[Any], stored: NDArray[Any]) -> None:
    """Digests of message files, in order, and their records, which are STORED. Raises OSError."""
    for at in range(0, len(digests), FILES):
        some = digests[at:at + FILES]
        load.write(_COUNT.pack(len(some)), some.tobytes(), stored[at:at + FILES].tobytes())


def files_of(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The rows of messages.db that these are."""
    while head := stream.read(_COUNT.size):
        count, = _COUNT.unpack(head)
        yield from zip(*(frombuffer(stream.read(count * octets), f"V{octets}").tolist()
                         for octets in (MID_OCTETS, STORED.itemsize)), strict=True)
