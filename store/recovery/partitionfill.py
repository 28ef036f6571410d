"""A rebuilt partition is filled with what it is still missing: part of `startrebuild`.

It takes as long as reading the user area once and writing each record once: message files are not opened before the
partition serves (`knownfiles`).
"""

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import StoreError
from store.mailboxes.expunge import drop_lost
from store.partition.partition import Partition
from store.partition.records import every_record, every_reference, sound
from store.partition.transactions import WriteTxn
from store.rebuild.desired import MODSEQS, DesiredMailbox, figures_of, limits_of, own_of, state_of
from store.rebuild.loader import EmptyLoader, batches, set_limits
from store.rebuild.outcome import Event
from store.rebuild.recount import recount_purge
from store.rebuild.referencepass import Claims, Gathered, Known, places_among
from store.rebuild.salvage import Possible, solve
from store.rebuild.userareascan import Source
from store.recovery.knownfiles import SHOWN, UNCACHED, KnownFiles
from store.store import Store
from store.tables.index import ROW, Rows, chunk_key, encode, join, split
from store.tables.privateheaders import LOST, renumbered
from store.tables.quotatable import ALONE
from store.tables.references import MessageRecord
from store.tables.state import MailboxState, counted, state_key
from store.tables.uidls import of_rows
from store.userarea import idxreading
from store.userarea.idxreading import Salvaged

log = logging.getLogger(__name__)

UNSEEN = 64                     # UIDs behind the last one of a mailbox that are looked for in reference counts


Mailbox = tuple[MailboxEntry, int, Source | None]       # when it was deleted, or 0; what its store.idx says


@define(eq=False)
class PartitionFill:
    """Makes one partition whole. `found`: every mailbox that has a `store.idx`."""

    store: Store
    adopted: list[list[Path]]
    partition: Partition
    event: Event
    found: list[Source]
    lost: set[str] = field(init=False)
    bare: bool = field(init=False)              # index or figures have been lost
    empty: bool = field(init=False)              # nothing was left
    fresh: bool = field(init=False)             # there are no records: all are written here
    gathered: Gathered = field(init=False)
    broken: int = 0                             # chunks that cannot be used

    def __attrs_post_init__(self) -> None:
        self.empty = self.event.source == "nothing"
        self.lost = {table.name for table in self.partition.env.tables} if self.empty else set(self.event.lost)
        self.bare = bool(self.lost & {"index.db", "state.db"})
        self.fresh = "index.db" in self.lost
        self.gathered = Gathered(self.partition)

    def run(self) -> None:
        """Do all of it. Raises StoreError."""
        partition, event = self.partition, self.event
        loader = EmptyLoader(partition, bulk=self.fresh, gathered=self.gathered)
        here = [source for source in self.found if source.partition == partition.name]
        if self.bare or event.logs_lost or self.lost & {"heads.db", "seen.db", "uidls.db", "vanished.db"}:
            first = partition.serials.first_free()
            limits = limits_of(self.found, partition.name) if "quota.db" in self.lost or event.logs_lost else {}
            loader.prepare(partition.epoch + (1 if event.logs_lost or self.bare else 0), first, limits)
            loader.load(self._desired(here))
            if "heads.db" in self.lost and not self.empty:
                self._skip_numbers()
        elif "quota.db" in self.lost:
            set_limits(partition, limits_of(self.found, partition.name), ALONE)
        if self.bare or event.logs_lost or self.lost & {"messages.db", "removed.db"}:
            self._messages()
        if not self.empty and ("purge.db" in self.lost or event.logs_lost):
            recount_purge(partition)
        if self.lost & {"messages.db", "index.db", "state.db", "cache.db"} or event.logs_lost:
            privatefiles.touch(partition.folder / "index" / UNCACHED)
        self._report()
        loader.finish(self.adopted)

    # Mailboxes

    def _desired(self, here: list[Source]) -> Iterator[DesiredMailbox]:
        """What each mailbox of the list that is here is to be, where its tables do not say all of it."""
        store, partition = self.store, self.partition
        files = {source.head.id: source for source in here}
        listed = {entry.id: (entry, 0) for entry in store.mailboxes.all() if entry.partition == partition.name}
        listed |= {entry.id: (entry, when) for when, entry in store.mailboxes.deleted.all()
                   if entry.partition == partition.name}
        every = ((entry, removed, files.get(mailbox)) for mailbox, (entry, removed) in sorted(listed.items()))
        with ThreadPoolExecutor(1) as reader:       # reads the next ones meanwhile
            reading = reader.submit(self._read_all, [])
            for batch in [*batches(every, lambda each: each[2].head.records if each[2] else 0), []]:
                read = reading.result()
                reading = reader.submit(self._read_all, batch)
                for entry, removed, source, left in read:
                    desired = self._merged(entry, removed, source, left)
                    if desired is not None:
                        yield desired

    def _read_all(self, batch: list[Mailbox]) -> list[tuple[MailboxEntry, int, Source | None, Salvaged | None]]:
        return [(entry, removed, source, self._read(source)) for entry, removed, source in batch]

    def _read(self, source: Source | None) -> Salvaged | None:
        try:
            left = None if source is None else idxreading.read_what_is_left(source.path)
        except StoreError as error:
            self._missing(f"{source.path if source else ''}: {error}")
            return None
        if left is not None and source is not None:
            for text in left.findings:
                self._missing(f"{source.path}: {text}")
        return left

    def _missing(self, text: str) -> None:
        if len(self.event.missing) < 4 * SHOWN:
            self.event.missing.append(text)

    def _merged(self, entry: MailboxEntry, removed: int, source: Source | None, left: Salvaged | None
                ) -> DesiredMailbox | None:
        """One mailbox, of what is newer; None if it is as it should be."""
        partition = self.partition
        data = None if self.empty else partition.states.get(state_key(entry.id))
        state = None if data is None else MailboxState.from_bytes(data, partition.epoch)
        there = np.empty(0, ROW) if self.fresh else self._rows(entry.id)
        if left is not None and left.private_headers and "heads.db" in self.lost:
            private_headers = left.private_headers
            partition.transact(lambda txn: partition.private_headers.put_back(private_headers, txn.handle))
        newer = source is not None and (state is None or figures_of(source, partition)[1] > state.highestmodseq)
        if not newer and not self.bare and not self.lost & {"vanished.db", "seen.db", "uidls.db"}:
            return None
        rows = there
        if left is not None and ("index.db" in self.lost or newer and self.event.logs_lost or not len(there)):
            rows = left.rows if "heads.db" in self.lost or not left.private_headers else self._numbered(left)
        own = uidls = None
        if left is not None and source is not None and ("seen.db" in self.lost or newer):
            own = own_of(source.head, left.own)
        if left is not None and ("uidls.db" in self.lost or newer):
            uidls = of_rows(left.uidls, rows)
        return DesiredMailbox(entry, state_of(partition, entry, rows, source, left=state, removed=removed),
                              rows if self.fresh or rows is not there else None, removed, own, uidls=uidls)

    def _rows(self, mailbox: MailboxId) -> Rows:
        return join(value for _, value in self.partition.index.scan(
            chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)))

    def _skip_numbers(self) -> None:
        """Header fields that come from now on get no number that a record has whose fields are lost, as those of
        expunged messages are, or it would show them."""
        heads = (rows["head"] for _, rows in every_reference(self.partition))
        last = max((int(some[some != LOST].max(initial=0)) for some in heads), default=0)
        self.partition.transact(lambda txn: self.partition.private_headers.skip(last, txn.handle))

    def _numbered(self, left: Salvaged) -> Rows:
        numbers = {number: self.partition.private_headers.number(octets) for number,
                   octets in left.private_headers.items()}
        return renumbered(left.rows, {old: new for old, new in numbers.items() if new is not None})

    # Message files

    def _messages(self) -> None:
        """Have the partition know every message file that records refer to, with their references."""
        partition = self.partition
        claims = self._references()
        known = Known.of(partition)
        serials = claims["serial"][claims["serial"] < MODSEQS]
        last = max(int(each.max(initial=0)) for each in (known.stored["serial"], serials))
        partition.skip_to(partition.epoch, max(last, partition.serials.first_free() - 1))
        if self._fit(claims, known):
            claims = self._references(again=True)
        if (self.bare or self.event.logs_lost) and "messages.db" not in self.lost and self._add_found(claims, known):
            claims = self.gathered.all()
        if self.broken:
            log.error("partition %s: %d chunks of index records are damaged", partition.name, self.broken)
        KnownFiles(partition, self.event, self.lost, claims, known, broken=bool(self.broken), whole=not (
            self.bare or self.event.logs_lost or self.broken)).write()

    def _references(self, *, again: bool = False) -> Claims:
        drop_lost(self.partition)
        if again or not self.fresh:
            self.broken, self.gathered = 0, Gathered(self.partition)
            for owners, rows in every_record(self.partition, usable=self._is_usable):
                self.gathered.add(owners, rows)
        for item in self.partition.removed.held():
            self.gathered.add(item.mailbox, item.rows)
        return self.gathered.all()

    def _is_usable(self, mailbox: MailboxId, number: int, value: bytes) -> bool:
        usable = sound(mailbox, number, value)
        self.broken += not usable
        return usable

    def _fit(self, claims: Claims, known: Known) -> bool:
        """Records say the serials that their files have. Whether there was one that did not."""
        places = places_among(claims["digest"], known.digests)
        here, new = places >= 0, claims["serial"][places < 0]
        if not self.gathered.clash and (claims["serial"][here] == known.stored["serial"][places[here]]).all() and (
                (new > 0) & (new < MODSEQS) & ~np.isin(new, known.stored["serial"])).all():
            return False
        serials = dict(zip(known.digests.tolist(), known.stored["serial"].tolist(), strict=True))
        taken = set(serials.values())
        for digest, serial in _said(self.partition, claims, every=self.gathered.clash):
            there = serials.get(digest)
            if there is None and (serial in taken or not 0 < serial < MODSEQS):
                serials[digest] = self.partition.serials.next_serial()
            elif there is None:
                serials[digest] = serial
                taken.add(serial)
        for mailbox, state in list(self.partition.all_states()):
            def work(txn: WriteTxn, mailbox: MailboxId = mailbox, state: MailboxState = state) -> None:
                rows = txn.load(mailbox)
                there = np.fromiter((serials.get(digest, 0) for digest in rows["digest"].tolist()), np.uint64,
                                    len(rows))
                missing = there == 0
                there[missing] = rows["serial"][missing]
                changed = rows["serial"] != there
                if changed.any():
                    rows["serial"] = there
                    txn.rewrite(mailbox, rows, changed)
                    txn.set_state(mailbox, None, counted(state, rows))

            with contextlib.suppress(StoreError):       # a damaged chunk: housekeeping repairs the mailbox
                self.partition.transact(work)
        keys = [item.key for item in self.partition.removed.held()]
        self.partition.transact(lambda txn: self.partition.removed.renumber(keys, serials, txn.handle))
        return True

    # Records that the index does not have

    def _add_found(self, claims: Claims, known: Known) -> bool:
        """Records that neither the index nor `store.idx` has: `messages.db` knows where they were. Whether any was
        found."""
        differing = list(known.differing(claims))
        if not differing:
            return False
        by_id = {source.head.id: source for source in self.found}
        states = dict(self.partition.all_states())
        firsts = {mailbox: by_id[mailbox].head.uidnext if mailbox in by_id else 1 for mailbox in states}
        possible = Possible.of((mailbox, firsts[mailbox], min(state.uidnext, firsts[mailbox] + UNSEEN))
                               for mailbox, state in states.items())
        found: dict[MailboxId, list[tuple[int, bytes, MessageRecord]]] = {}
        for at, references, check in differing:
            digest, record = known.digests[at].tobytes(), known.record(at)
            places = solve(record.references - references, record.check - check & (1 << 64) - 1, set(), possible)
            for place, uid in places or ():
                found.setdefault(MailboxId(place), []).append((uid, digest, record))
        for mailbox, rows in found.items():
            with contextlib.suppress(StoreError):       # a damaged chunk: as above
                self.gathered.add(mailbox, self.partition.transact(
                    lambda txn, mailbox=mailbox, rows=rows: self._add(     # type: ignore[misc]
                        mailbox, rows, states[mailbox], txn)))
        return bool(found)

    def _add(self, mailbox: MailboxId, found: list[tuple[int, bytes, MessageRecord]], state: MailboxState, txn: WriteTxn
             ) -> Rows:
        """The records that these are."""
        old = txn.load(mailbox)
        made = np.zeros(len(found), ROW)
        for row, (uid, digest, record) in zip(made, sorted(found), strict=True):
            came = self._came(digest, record.serial)
            row["uid"], row["digest"], row["serial"] = uid, digest, record.serial
            row["modseq"], row["size"] = state.highestmodseq + 1, record.size
            row["received"] = row["saved"] = came
        rows = np.concatenate([old, made])
        rows = rows[np.argsort(rows["uid"], kind="stable")]
        for number, part in split(rows):
            self.partition.index.put(chunk_key(mailbox, number), encode(part), txn.handle)
        highest = state.highestmodseq + 1
        txn.set_state(mailbox, None, counted(evolve(state, highestmodseq=highest, changed=highest, log_since=highest,
                                                    uidnext=max(state.uidnext, int(rows["uid"][-1]) + 1)), rows))
        self.event.missing.append(f"flags and dates of {len(made)} messages in mailbox {mailbox}")
        return made

    def _came(self, digest: bytes, serial: int) -> int:
        """The Unix time of a message file; 0 for one that cannot be looked at."""
        with contextlib.suppress(OSError, StoreError):
            path = self.partition.files.locate(digest, serial)
            return int(path.stat().st_mtime) if path is not None else 0
        return 0

    # The report

    def _report(self) -> None:
        """What is not there any more."""
        missing = {"removed.db": "expunged messages that could have been undeleted",
                "vanished.db": "the log of expunged UIDs", "arrivals.db": "the record of duplicates",
                "purge.db": "what waits for the purge", "outbox.db": "events that had not been sent"}
        self.event.missing += [missing[name] for name in sorted(self.lost & missing.keys())]


def _said(partition: Partition, claims: Claims, *, every: bool) -> Iterator[tuple[bytes, int]]:
    """Message files and the serials that records say; of `every` record, where claims have been joined wrongly."""
    if not every:
        yield from zip(claims["digest"].tolist(), claims["serial"].tolist(), strict=True)
    for _, rows in every_record(partition, usable=sound) if every else ():
        yield from set(zip(rows["digest"].tolist(), rows["serial"].tolist(), strict=True))
