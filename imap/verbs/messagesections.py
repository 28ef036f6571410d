"""The sections of a message that `quick` does not answer for: a large one, one of which parts are asked for, or one
that cannot be read. Its octets are read in pieces, and each is sent before more is read: RFC 3501 §7.4.2.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define

from imap.commandreader import READ_OCTETS
from imap.session import Session
from imap.verbs import binary
from imap.verbs.quick import Span, portion, string_head
from imap.view import View
from imap.wire.fetch import Binary, Part, Section
from imap.wire.writer import without_nul
from store import offload
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage, PartSpan, Path
from store.message.fields import Fields
from store.message.headers import header_end
from store.message.sections import section
from store.net.linestates import ConnectionLost
from store.partition.messagereading import MessageFile, verified
from store.problems import tell_refusal
from store.tables.index import Rows

log = logging.getLogger(__name__)

HEADER = 1 << 20            # octets of a header that HEADER.FIELDS looks through; fields beyond are not found
BEGINNING = 16 << 10        # octets in which nearly every header ends
LONG_HEADER = 64 << 10      # octets of a header that is looked through in a thread

_PARTS = {Part.ALL: None, Part.TEXT: "TEXT", Part.MIME: "MIME"}      # the others are HEADER, or taken from it
_FIELDS = (Part.HEADER_FIELDS, Part.HEADER_FIELDS_NOT)


@define(eq=False)
class CacheRecords:
    """The cache records of messages for one FETCH; `unreadable` is why something of its messages could not be read."""

    session: Session
    view: View
    unreadable: Problem | None = None

    def all_of(self, rows: Rows) -> list[CachedMessage | None] | None:
        """Those of these messages, when none is lost."""
        try:
            return [*self.session.source.cached(self.view.mailbox.entry, rows)]
        except StoreError:
            return None

    def each_of(self, rows: Rows) -> list[CachedMessage | None]:
        """Those of these messages; None for those that are lost."""
        entry, store = self.view.mailbox.entry, self.session.source
        if (known := self.all_of(rows)) is not None:
            return known
        records: list[CachedMessage | None] = []
        for at in range(len(rows)):
            try:
                records += store.cached(entry, rows[at:at + 1])
            except StoreError as error:
                records.append(None)
                self.lost(error)
        return records

    def lost(self, error: StoreError) -> None:
        """Note what could not be read."""
        tell_refusal(log, logging.ERROR, f"{self.session.stream.id}: {self.session.user}", error)
        self.unreadable = Problem.GONE if self.view.has_vanished else error.problem


class MessageSections:
    """What one FETCH asks for of messages, one message after the other. It holds nothing that holds it: the records of
    a large mailbox would stay in memory until Python looks for such garbage."""

    def __init__(self, records: CacheRecords, sections: Sequence[Section | Binary], *, headers_only: bool) -> None:
        """`headers_only`: the sections are all of headers, which are not compared with a digest."""
        self._session = records.session
        self._view = records.view
        self._records = records
        self._sections = sections
        self._headers_only = headers_only
        self.undecodable = False                            # a part has a transfer encoding that nobody knows
        self._decoded: tuple[CachedMessage, dict[Path, PartSpan]] | None = None
        self._held = 0                                      # octets of files since others last had a turn

    async def send(self, head: bytes, row: Any, cached: CachedMessage | None) -> None:
        """Send the response for one message. What cannot be read is NIL: the session goes on."""
        stream = self._session.stream
        try:
            file = self._open(row)
        except StoreError as error:
            self._records.lost(error)
            stream.write(head + separator(head) + b" ".join(map(_nothing, self._sections)) + b")\r\n")
            return
        walked: dict[Span, Fields] = {}         # headers, by where they are
        with file:
            for one in self._sections:
                await stream.breathe()
                start, head = head + separator(head), b""
                try:
                    if isinstance(one, Binary):
                        await self._send_binary(start, one, file, row, cached)
                    else:
                        await self._send_section(start + one.label, one, file, row, cached, walked)
                except binary.HalfSent as error:    # what came next would be taken for the rest
                    self._records.lost(error.reason)
                    stream.abort()
                    raise ConnectionLost from error
                except StoreError as error:
                    self._records.lost(error)
                    stream.write(start + _nothing(one))
        stream.write(b")\r\n")

    async def _send_binary(self, start: bytes, one: Binary, file: MessageFile, row: Any, cached: CachedMessage | None
                           ) -> None:
        try:
            parts, trace = (self._parts_of(cached), cached.trace) if cached is not None else ({}, 0)
            pieces = binary.pieces_of(one, file, parts, trace, int(row["header_length"]))
        except binary.UnknownEncoding:
            self.undecodable = True
            pieces = None
        await binary.send(self._session, start + one.label, one, pieces, file, bytes(row["digest"]))

    def _open(self, row: Any) -> MessageFile:
        file = self._session.source.open_message(self._view.mailbox.entry, row)
        if os.fstat(file.fileno).st_size < file.end:        # found out before a literal is announced
            file.close()
            raise StoreError(Problem.CORRUPT, detail=f"message file {bytes(row['digest']).hex()} is too short")
        if self._headers_only or not self._session.store.settings.verify_reads:
            return file
        return verified(file, bytes(row["digest"]), self._session.user)

    def _span(self, one: Section, file: MessageFile, row: Any, cached: CachedMessage | None) -> Span | None:
        """Where the section is in the message; None if it has no such section, or nobody knows."""
        if not one.path:
            if one.part is Part.ALL:
                return 0, file.size
            end = header_end(file.read(0, BEGINNING))
            if end is not None:
                return (end, file.size) if one.part is Part.TEXT else (0, end)
            cached, = self._records.each_of(np.array([row]))
        if cached is None:
            return None
        return section(cached, one.path, _PARTS.get(one.part, "HEADER"), int(row["header_length"]), len(file.head),
                       self._parts_of(cached))

    def _parts_of(self, cached: CachedMessage) -> dict[Path, PartSpan]:
        """The table of parts, decoded once, however many parts are asked for."""
        if self._decoded is None or self._decoded[0] is not cached:
            self._decoded = cached, cached.parts
        return self._decoded[1]

    async def _send_section(self, head: bytes, one: Section, file: MessageFile, row: Any,
                            cached: CachedMessage | None, walked: dict[Span, Fields]) -> None:
        """Send one section: its octets as they are stored, but for NUL."""
        stream = self._session.stream
        span = self._span(one, file, row, cached)
        if span is None:
            stream.write(head + b" NIL")
            return
        if one.part in _FIELDS:
            if span not in walked:
                walked[span] = await self._walk(file.read(span[0], min(span[1] - span[0], HEADER)))
            fields = walked[span].pick(one.fields, one.part is Part.HEADER_FIELDS_NOT)
            first, end = portion((0, len(fields)), one.partial)
            stream.write(head + string_head(end - first) + without_nul(fields[first:end]))
            self._held += LONG_HEADER if span[1] - span[0] > LONG_HEADER else end - first
            if self._held >= READ_OCTETS:
                await self._breathe()
            return
        at, end = portion(span, one.partial)
        data = file.read(at, min(READ_OCTETS, end - at))      # before its length is told
        stream.write(head + string_head(end - at))
        while at < end:
            stream.write(without_nul(data))
            at += len(data)
            self._held += len(data)
            if self._held >= READ_OCTETS:
                await self._breathe()
            try:
                data = file.read(at, min(READ_OCTETS, end - at))
            except StoreError as error:
                raise binary.HalfSent(error) from error

    async def _walk(self, header: bytes) -> Fields:
        """The fields of a header; those of a long one are found in a thread."""
        names = [name for one in self._sections if isinstance(one, Section) for name in one.fields or ()]
        if len(header) <= LONG_HEADER:
            return Fields(header, names)
        return await self._session.patiently(offload.run(self._session.store, "search", Fields, header, names,
                                                             user=self._session.user))

    async def _breathe(self) -> None:
        self._held = 0
        await self._session.stream.drain(self._session.settings.command_time)


def _nothing(one: Section | Binary) -> bytes:
    """The item of a part that is not there."""
    return one.label + (b" 0" if isinstance(one, Binary) and one.size else b" NIL")


def separator(head: bytes) -> bytes:
    """What stands between the items of a response so far and the next one."""
    return b"" if head.endswith(b"(") else b" "
