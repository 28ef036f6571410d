r"""FETCH: RFC 3501 §6.4.5, §7.4.2; `binary` has the items of RFC 3516.

Messages go out in batches. What index and cache know is formatted for a whole batch at once. Sections of messages come
from `quick`, most of them, and from `messagesections`, which reads message files in pieces, and sends each before it
reads more. So neither a large mailbox nor a large message takes much memory.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from imap.commandreader import READ_OCTETS
from imap.lines import DATE_FORM, Mask, Positions, dates, flag_lists, format_lines
from imap.refusals import CODES
from imap.session import Session
from imap.states import Refused, Reply
from imap.verbs.messagesections import CacheRecords, MessageSections, separator
from imap.verbs.quick import Pieces, Quick
from imap.verbs.resync import changed_since, vanished
from imap.view import Belief, View
from imap.wire.fetch import Binary, Fetch, Item, Items, Section, counts_as_read
from imap.wire.responses import BAD, NO, UNKNOWN_CTE
from imap.wire.structures import GLOBAL, without_global
from imap.wire.writer import without_nul
from store import offload
from store.delivery import durable
from store.mailboxes.flagchanges import update_flags
from store.message.cachedbatch import NO_RECORDS, CachedBatch
from store.message.cacherecord import CachedMessage
from store.message.fields import Lister
from store.tables.index import Rows, message_of, take
from store.tables.state import SEEN
from store.values import Flag, FlagAction, Flags

FIGURES = 2000              # messages in a batch when the index knows all that is asked for
CACHED = 250                # when the cache does
READ = 50                   # when files are read
FEW = 8                     # so many sections of a message are made without a look at the clock

_UID = (Item.UID,)
_CACHED_ITEMS = (Item.ENVELOPE, Item.BODY, Item.BODYSTRUCTURE)
_Records = list[CachedMessage | None]
_NOTHING: Positions = np.empty(0, np.intp)


async def fetch(session: Session, command: Fetch) -> Reply:
    """Answer with the items that are asked for, of each message that is there."""
    view = session.selected()
    if command.vanished and b"QRESYNC" not in session.enabled:
        raise Refused("ENABLE QRESYNC must come first", status=BAD)
    work = _Fetching(session, view, command.items)
    if work.plan.tells_modseqs:
        session.enable_condstore()
    positions = view.positions(command.messages, by_uid=command.by_uid)
    if command.changed_since is not None:
        positions = changed_since(view, positions, command.changed_since)
        if command.vanished:
            await vanished(session, view, command.messages, command.changed_since)
    if len(positions) != 1 or work.sets_seen or not await work.send_one(int(positions[0])):
        batch = work.plan.batch
        for at in range(0, len(positions), batch):
            await session.stream.drain(session.settings.command_time)       # the last one goes out with the reply
            await work.send(positions[at:at + batch])
    if work.seen:
        session.stream.flush()
        await durable.flushed(session.store, view.mailbox.entry)
        await session.tell(expunges=command.by_uid, by_uid=command.by_uid, belief=work.belief())
    name = "UID FETCH" if command.by_uid else "FETCH"
    if work.records.unreadable:
        return Reply(f"{name}: some messages could not be read", CODES[work.records.unreadable], NO)
    if work.undecodable():
        return Reply(f"{name}: some parts have an unknown transfer encoding", UNKNOWN_CTE, NO)
    return Reply(f"{name} completed")


@frozen(eq=False)
class _Plan:
    """A list of items, prepared for any mailbox."""

    items: tuple[Item, ...]
    sections: tuple[Section | Binary, ...]
    sets_seen: bool
    tells_modseqs: bool
    reads: bool                 # it needs more than headers, from the beginning of the message
    needs_cache: bool
    only: Lister | None         # takes all that is asked for of cache records: one list of header fields
    quick: Quick | None

    @property
    def batch(self) -> int:
        """How many messages are answered for at a time."""
        if self.sections and not (self.quick is not None and self.quick.of_record):
            return READ
        return CACHED if self.needs_cache else FIGURES

    @classmethod
    def of(cls, wanted: Items) -> "_Plan":
        """The plan for these items."""
        items = tuple([one for one in wanted if isinstance(one, Item)])
        sections = tuple([one for one in wanted if not isinstance(one, Item)])
        quick = Quick.of(sections) if sections else None
        listed = quick is not None and bool(quick.of_record)
        cached = any(one in _CACHED_ITEMS for one in items)
        needs_cache = listed or cached or any(one.path for one in sections)
        only = quick.takes[0] if quick is not None and len(quick.takes) == 1 and not cached else None
        return cls(items, sections, any(one.sets_seen for one in sections), Item.MODSEQ in items,
                   any(map(counts_as_read, sections)), needs_cache, only, quick)


class _Fetching:
    """One FETCH under way."""

    def __init__(self, session: Session, view: View, wanted: Items) -> None:
        self.session = session
        self.view = view
        plan = wanted.plan
        if not isinstance(plan, _Plan):
            plan = wanted.plan = _Plan.of(wanted)
        self.plan = plan
        self.sets_seen = plan.sets_seen and not view.read_only and bool(int(view.changeable) & SEEN)
        self.seen: list[Positions] = []                     # messages that this FETCH has made \\Seen
        self.modseqs: list[NDArray[np.uint64]] = []         # and their MODSEQs
        self.records = CacheRecords(session, view)
        self._slowly: MessageSections | None = None         # for messages that `quick` does not answer for
        self._held = 0                                      # octets of files since others last had a turn

    def undecodable(self) -> bool:
        """Whether a part that was asked for has a transfer encoding that nobody knows."""
        return self._slowly is not None and self._slowly.undecodable

    async def send_one(self, at: int) -> bool:
        """Answer for the message at that place, of which nothing is to be changed; False when that is to be done as for
        many, since its cache record is lost."""
        session, plan, rows = self.session, self.plan, self.view.rows[at:at + 1]
        cached: _Records | None = None
        if session.stream.behind:               # with answers to commands before
            await session.stream.drain(session.settings.command_time)
        if plan.needs_cache:
            cached = self.records.all_of(rows) if session.snapshots.snapshot is None else await self._records(rows)
            if cached is None or not all(cached):
                return False
        head = b"* %d FETCH (" % (at + 1) + (b"UID %d" % rows["uid"][0] if plan.items == _UID else b" ".join(
            [self._item(one, rows, cached) for one in plan.items]))
        if plan.sections:
            await self._send_answers([head], rows, cached)
        else:
            session.stream.write(head + b")\r\n")
        return True

    def _item(self, item: Item, rows: Rows, cached: _Records | None) -> bytes:
        """As `_columns`, for one item of one message."""
        if item is Item.UID:
            return b"UID %d" % rows["uid"][0]
        if item is Item.FLAGS:
            return b"FLAGS " + self.view.flag_list(rows[0])
        if item is Item.ENVELOPE and cached is not None and cached[0] is not None:
            return b"ENVELOPE " + cached[0].envelope
        (form,), columns = self._columns(rows, _batch(cached), (item,))
        return form % tuple([one for one, in columns])

    async def send(self, positions: Positions) -> None:
        """Answer for one batch."""
        session, rows = self.session, take(self.view.rows, positions)
        newly = await session.change(0, lambda: self._mark_seen(positions, rows)) if self.sets_seen else _NOTHING
        lines = self._lines(positions, rows) if not len(newly) else None
        if lines is not None:
            session.stream.write(lines)
        else:
            cached = await self._records(rows) if self.plan.needs_cache else None
            if self.plan.sections:
                await self._send_sections(positions, rows, cached, newly)
            else:
                heads = self._heads(positions, rows, cached)
                session.stream.write(b"".join([head + b")\r\n" for head in heads if not head.endswith(b"(")]))

    # What index and cache know

    def _columns(self, rows: Rows, cached: CachedBatch, items: Sequence[Item]) -> tuple[list[bytes], list[list[Any]]]:
        """The forms of the items, and the values that fill them."""
        forms: list[bytes] = []
        columns: list[list[Any]] = []
        for item in items:
            form = b" %b"
            match item:
                case Item.FLAGS:
                    columns.append(flag_lists(rows, self.view.recent_of(rows), self.view.mailbox.state.keywords))
                case Item.UID:
                    form = b" %d"
                    columns.append(rows["uid"].tolist())
                case Item.INTERNALDATE:
                    form = b" " + DATE_FORM
                    columns += dates(rows)
                case Item.MODSEQ:
                    form = b" (%d)"
                    columns.append(self.view.mailbox.modseqs(rows).tolist())
                case Item.RFC822_SIZE:
                    form = b" %d"
                    columns.append(rows["size"].tolist())
                case Item.ENVELOPE:
                    columns.append(cached.envelopes())
                case Item.BODY:
                    columns.append(self._structures(cached.bodies()))
                case Item.BODYSTRUCTURE:
                    columns.append(self._structures(cached.bodystructures()))
            forms.append(item + form)
        return forms, columns

    def _structures(self, structures: list[bytes]) -> list[bytes]:
        if self.session.utf8 or GLOBAL not in b"".join(structures):
            return structures
        return [without_global(one) if GLOBAL in one else one for one in structures]

    def _lines(self, positions: Positions, rows: Rows) -> bytes | None:
        """The responses of a batch, if index and cache know all that is asked for, and nothing is lost."""
        plan, batch = self.plan, NO_RECORDS
        store, entry, listed = self.session.store, self.view.mailbox.entry, None
        if plan.sections and (plan.quick is None or not plan.quick.takes) or (
                plan.needs_cache and self.session.snapshots.snapshot is not None):
            return None
        if plan.only is not None and (fields := store.listed_fields(entry, rows, plan.only)) is not None:
            listed = [fields]
        elif plan.needs_cache:
            if (known := store.cached_batch(entry, rows, fields=bool(plan.sections))) is None:
                return None
            batch = known
            if plan.quick is not None and (listed := batch.listed(plan.quick.takes)) is None:
                return None
        forms, columns = self._columns(rows, batch, plan.items)
        for one, sections in zip(plan.sections, listed or (), strict=True):
            forms.append(one.label.replace(b"%", b"%%") + b" {%d}\r\n%b")
            columns += list(map(len, sections)), sections
        lines = format_lines(b"* %d FETCH (" + b" ".join(forms) + b")\r\n", ((positions + 1).tolist(), *columns))
        return without_nul(lines) if plan.sections else lines

    def _heads(self, positions: Positions, rows: Rows, cached: _Records | None) -> list[bytes]:
        """The beginnings of the responses; for a message whose cache record is lost, what the index knows."""
        if cached is None or all(cached):
            forms, columns = self._columns(rows, _batch(cached), self.plan.items)
            form = b"* %d FETCH (" + b" ".join(forms)
            return [form % values for values in zip((positions + 1).tolist(), *columns, strict=True)]
        whole = np.array([record is not None for record in cached], np.bool_)
        poor = [item for item in self.plan.items if item not in _CACHED_ITEMS]
        heads = [b""] * len(rows)
        for places, items in ((np.flatnonzero(whole), self.plan.items), (np.flatnonzero(~whole), poor)):
            forms, columns = self._columns(rows[places], _batch([cached[at] for at in places.tolist()]), items)
            form = b"* %d FETCH (" + b" ".join(forms)
            lines = zip((positions[places] + 1).tolist(), *columns, strict=True)
            for at, values in zip(places.tolist(), lines, strict=True):
                heads[at] = form % values
        return heads

    async def _records(self, rows: Rows) -> _Records:
        """The cache records of a batch; in a snapshot a thread gets them, since none that was lost stays mended."""
        session = self.session
        if session.snapshots.snapshot is None:
            return self.records.each_of(rows)
        return await session.patiently(offload.run(session.store, "snapshots", self.records.each_of, rows,
                                                        user=session.user))

    # \Seen

    def _mark_seen(self, positions: Positions, rows: Rows) -> Positions:
        r"""Set \Seen on those that lack it, in the store and in `rows`; the places in the batch of those that lacked it
        here. Another session may have taken it from others, which the client has not been told yet."""
        store, entry = self.session.store, self.view.mailbox.entry
        lacking: Mask = (rows["flags"] & int(Flag.SEEN)) == 0
        asked = lacking
        if store.status(entry).highestmodseq != self.view.mailbox.state.highestmodseq:
            asked = np.ones(len(rows), np.bool_)
        unseen = np.flatnonzero(lacking)
        if self.session.login is not None:
            self.session.login.has_read = True
        if asked.any():
            # Those that have vanished meanwhile are passed over there; here they are shown as the client expects.
            uids = rows["uid"][asked]
            update = update_flags(store, entry, uids, FlagAction.ADD, Flags(Flag.SEEN), self.session.user,
                                  event_of=self.session.event_of(entry))
            now = rows["modseq"].copy()
            now[np.flatnonzero(asked)[np.isin(uids, update.uids)]] = update.modseqs
            changed = lacking | (now != rows["modseq"])
            rows["flags"][unseen] |= int(Flag.SEEN)
            rows["modseq"][unseen] = now[unseen]
            if changed.any():
                self.seen.append(positions[changed])
                self.modseqs.append(rows["modseq"][changed])
        return unseen

    def belief(self) -> Belief:
        """The flags of those messages that the client has been told last."""
        positions = np.concatenate(self.seen)
        rows = take(self.view.rows, positions)
        modseqs = np.concatenate(self.modseqs) if b"CONDSTORE" in self.session.enabled else None
        return Belief(positions, rows["flags"] | np.uint16(Flag.SEEN), rows["keywords"], modseqs)

    # What is in message files

    async def _send_sections(self, positions: Positions, rows: Rows, cached: _Records | None, newly: Positions) -> None:
        heads = self._heads(positions, rows, cached)
        if len(newly):      # what the client must hear of a message that this has made \Seen (RFC 7162 §3.2.4)
            wanted = (Item.UID, Item.FLAGS, Item.MODSEQ) if b"CONDSTORE" in self.session.enabled else (Item.FLAGS,)
            untold = [item for item in wanted if item not in self.plan.items]
            forms, columns = self._columns(rows[newly], NO_RECORDS, untold)
            form = b" ".join(forms)
            for at, values in zip(newly.tolist() if forms else (), zip(*columns, strict=True), strict=True):
                heads[at] += separator(heads[at]) + form % values
        await self._send_answers(heads, rows, cached)

    async def _send_answers(self, heads: list[bytes], rows: Rows, cached: _Records | None) -> None:
        """Send the sections of these messages, behind the heads of the responses."""
        if self.plan.reads:
            self.session.stream.acts["read"] += len(rows)
        write, quick, many = self.session.stream.write, self.plan.quick, len(self.plan.sections) > FEW
        if quick is None:
            answers: Iterable[Pieces | None] = repeat(None, len(heads))
        elif quick.of_record and cached is not None:
            answers = quick.from_records(cached)
        else:
            partition = self.session.place(self.view.mailbox.entry.partition)
            reader = self.session.user if self.session.store.settings.verify_reads else None
            if len(rows) > 1:
                answers = quick.answers(partition.files, rows, partition.private_headers, reader=reader)
            else:
                figures = message_of(rows[0])
                own = partition.private_headers.get(figures[-1]) if figures[-1] else b""
                answers = quick.answer(partition.files, figures, own, reader=reader),
        for at, (head, answer) in enumerate(zip(heads, answers, strict=True)):
            if answer is None:
                if self._slowly is None:
                    headers_only = quick is not None and quick.headers_only
                    self._slowly = MessageSections(self.records, self.plan.sections, headers_only=headers_only)
                await self._slowly.send(head, rows[at], cached[at] if cached is not None else None)
                continue
            write(head, b"" if head.endswith(b"(") else b" ", *answer, b")\r\n")
            self._held += sum(map(len, answer))
            if self._held >= READ_OCTETS:
                await self._breathe()
            elif many:
                await self.session.stream.breathe()

    async def _breathe(self) -> None:
        self._held = 0
        await self.session.stream.drain(self.session.settings.command_time)


def _batch(cached: _Records | None) -> CachedBatch:
    """Those of these records that are not lost."""
    return CachedBatch.of_records([one for one in cached if one is not None]) if cached else NO_RECORDS
