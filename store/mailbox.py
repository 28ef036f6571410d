"""A mailbox as its readers see it: its state and its records."""

import struct
from typing import Any

import numpy as np
from attrs import frozen

from mboxlist.entry import MailboxEntry
from store.index import Rows

_STATE = struct.Struct("<IIQQIIIIQI")

UID_SKIP = 1 << 16          # what a mailbox skips after an unclean end: more than can have been seen and lost
MODSEQ_SKIP = 1 << 24


@frozen(eq=False)
class MailboxState:
    """The figures of a mailbox. `changed` is the MODSEQ of the last change other than an arrival, `recent` the first
    UID that no session has been told is \\Recent; `epoch` counts the unclean ends that the figures allow for."""

    uidvalidity: int
    uidnext: int
    highestmodseq: int
    changed: int
    recent: int
    messages: int
    unseen: int
    deleted: int
    octets: int
    epoch: int
    keywords: tuple[str, ...] = ()

    @classmethod
    def new(cls, uidvalidity: int, epoch: int) -> "MailboxState":
        """That of an empty mailbox."""
        return cls(uidvalidity, 1, 1, 1, 1, 0, 0, 0, 0, epoch)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _STATE.pack(self.uidvalidity, self.uidnext, self.highestmodseq, self.changed, self.recent, self.messages,
                           self.unseen, self.deleted, self.octets, self.epoch) + " ".join(self.keywords).encode()

    @classmethod
    def from_bytes(cls, data: bytes, epoch: int) -> "MailboxState":
        """From the stored form, for a partition in that epoch.

        UIDs and MODSEQs that were shown, but not yet on disk when the machine stopped, must not come to mean something
        else: a mailbox last written in an earlier epoch skips ahead before it gives out the next.
        """
        keywords = tuple(data[_STATE.size:].decode().split(" ")) if len(data) > _STATE.size else ()
        validity, uidnext, highest, changed, recent, messages, unseen, deleted, octets, then = _STATE.unpack_from(data)
        behind = epoch - then
        if behind:
            uidnext += behind * UID_SKIP
            highest += behind * MODSEQ_SKIP
            changed = highest
        return cls(validity, uidnext, highest, changed, recent, messages, unseen, deleted, octets, epoch, keywords)


@frozen(eq=False)
class Mailbox:
    """An immutable picture of a mailbox; `rows` is in ascending order of UID."""

    entry: MailboxEntry
    state: MailboxState
    rows: Rows

    def keyword_names(self, bits: int) -> tuple[str, ...]:
        """The keywords whose bits are set."""
        return tuple(name for at, name in enumerate(self.state.keywords) if bits >> at & 1)

    def row(self, uid: int) -> Any | None:
        """The record of that UID."""
        at = int(np.searchsorted(self.rows["uid"], uid))
        return self.rows[at] if at < len(self.rows) and self.rows["uid"][at] == uid else None
