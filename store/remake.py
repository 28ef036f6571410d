"""What an environment that was made anew is still missing, taken from the user area, the message files, and the tables
that are whole: after `recovery`, before anybody uses the store.

The sources, in this order: tables that are whole; `store.idx`, at most a minute old, where it is newer than what is
there; the counts of references in `messages.db`, which tell mailbox and UID of records that neither has (`evidence`).
"""

import contextlib
import logging
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import Txn, transact
from mboxlist.names import MailboxName
from store import idxfile, portable
from store.accounts.builtin import User
from store.errors import StoreError
from store.evidence import Counts, solve
from store.findings import Finding
from store.idxfile import Remains
from store.index import ROW, Rows, chunk_key, encode, take
from store.loading import split
from store.mailbox import MODSEQ_SKIP, UID_SKIP, MailboxState
from store.ready import drop_names
from store.records import every_record, sound
from store.recount import lost_cached, rebuild_rights, recount_purge, recount_quota, recount_references
from store.refs import MessageRecord, mark
from store.remains import Source, choose, sources, trace_of
from store.repair import counted
from store.snapshots import folder as snapshots_folder
from store.snapshots import listed as snapshots_listed
from store.txn import WriteTxn, state_key
from store.uidls import of_rows
from store.userarea import mark_behind

if TYPE_CHECKING:
    from store.partition import Partition
    from store.recovery import Event, Recovery
    from store.store import Store

log = logging.getLogger(__name__)

LIST = "mboxlist"
PIECE = 64                      # mailboxes, and
RECORDS = 50_000                # records at the most, of one transaction
MESSAGES = 1000                 # message files of one transaction
UNSEEN = 64                     # UIDs behind the last one known of a mailbox of which evidence is looked for
SHOWN = 50                      # things that are named one by one in the report
_UIDS = (1 << 32) - 1
UNCACHED = "uncached"           # the file that is there while cache records may be missing


def remake(store: "Store", recovery: "Recovery") -> bool:
    """Do it for every environment that has not come back exactly; whether there was one. Raises StoreError."""
    events = {name: event for name, event in recovery.events.items() if not event.exact}
    if not events:
        return bool(recovery.events)
    done = _Remaking(store, recovery, events)
    done.run()
    return True


@define(eq=False)
class _Remaking:
    """See the module's text."""

    store: "Store"
    recovery: "Recovery"
    events: "dict[str, Event]"
    found: list[Source] = field(factory=list)
    by_id: dict[int, Source] = field(factory=dict)

    def run(self) -> None:
        """Do all of it."""
        store, event = self.store, self.events.get(LIST)
        findings: list[Finding] = []
        every = [source for partition in store.partitions.values() for source in sources(partition.folder, findings)]
        self.found = choose(every, findings)
        self.by_id = {source.head.id: source for source in self.found}
        if event is not None:
            self._list(event)
        for name, partition in store.partitions.items():
            there = self.events.get(f"partitions/{name}/index")
            if there is not None:
                _Partition(self, partition, there).run()
            elif event is not None:
                mark_behind(partition.folder)
        if event is not None:
            rebuild_rights(store)
        store.mailboxes.env.flush()

    # The list

    def _list(self, event: "Event") -> None:
        store, lost = self.store, set(event.lost)
        mailboxes = store.mailboxes
        if not any(True for _ in mailboxes.users.scan()) or event.logs_lost or "users.db" in lost:
            self._users(event)
        rows = {entry.id for entry in mailboxes.all()}
        old = event.logs_lost or bool(lost & {"mailboxes.db", "deleted.db", "names.db"}) or not rows
        states = {mailbox: (state, name) for name, partition in store.partitions.items()
                  for mailbox, state in partition.all_states()}
        last = max([*states, *self.by_id], default=0)
        validity = max([*(state.uidvalidity for state, _ in states.values()),
                        *(source.head.uidvalidity for source in self.found)], default=0)
        transact(mailboxes.env, lambda txn: mailboxes.skip_identities(MailboxId(last), validity, txn))
        for piece in _pieces(self.found):
            def rows_of(txn: Txn, piece: list[Source] = piece) -> None:
                for source in piece:
                    self._row(source, states, lost, old, txn)

            transact(mailboxes.env, rows_of)
        if "names.db" in lost:
            def names_of(txn: Txn) -> None:
                for entry in list(mailboxes.all(txn)):
                    mailboxes.write(entry, txn, guarded=False)

            transact(mailboxes.env, names_of)
        if old:
            self._nameless(states, event)

    def _row(self, source: Source, states: dict[MailboxId, tuple[MailboxState, str]], lost: set[str], old: bool,
             txn: Txn) -> None:
        mailboxes, head = self.store.mailboxes, source.head
        mailbox = MailboxId(head.id)
        entry, deleted = mailboxes.find_id(mailbox, txn), mailboxes.deleted.find(mailbox, txn)
        state = states.get(mailbox)
        place = f"partitions/{source.partition}/index"
        if old and (state is not None and state[1] == source.partition or place in self.events):
            removed = state[0].removed if state is not None and place not in self.events else head.removed
            wanted = _entry(source, state[0].uidvalidity if state is not None else head.uidvalidity)
            if removed:
                if entry is not None:
                    mailboxes.remove(entry.name, txn, guarded=False)
                if deleted is None:
                    mailboxes.deleted.add(wanted, removed, txn)
                return
            if entry != wanted:
                if entry is not None:
                    mailboxes.remove(entry.name, txn, guarded=False)
                mailboxes.deleted.remove(mailbox, txn)
                other = mailboxes.find(wanted.name, txn)
                if other is not None and other.id != mailbox:
                    mailboxes.remove(other.name, txn, guarded=False)    # an older row: its own file names it anew
                mailboxes.write(wanted, txn, guarded=False)
        if old or "annotations.db" in lost:
            for name, values in head.annotations.items():
                for user, value in values.items():
                    with contextlib.suppress(ValueError):
                        mailboxes.annotations.set(mailbox, name, b64decode(value), txn, user)
        if (old or "subscriptions.db" in lost) and source.name.is_inbox() and not head.removed:
            for subscribed in head.subscriptions:
                mailboxes.subscriptions.add(source.name.owner, subscribed, txn)

    def _users(self, event: "Event") -> None:
        from store.rebuild import add_users, salvage_users  # here: it imports the store
        aside = Path(event.aside)
        places = [aside, *(snapshot.path / LIST for snapshot in snapshots_listed(
            snapshots_folder(self.store.root, self.store.settings)))]
        users: dict[str, User] = {}
        for place in places:
            for user in salvage_users(place / "users.db") if (place / "users.db").is_file() else ():
                users.setdefault(user.account.user, user)
        findings: list[Finding] = []
        add_users(self.store.directory, self.found, users.values(), findings)
        event.missing += [f"{finding.where}: {finding.what}" for finding in findings[:SHOWN]]

    def _nameless(self, states: dict[MailboxId, tuple[MailboxState, str]], event: "Event") -> None:
        """Mailboxes with messages that are in no list and have no file get a name; rows without a mailbox go."""
        store = self.store
        for mailbox, (state, place) in states.items():
            if portable.whereabouts(store, mailbox) is not None or state.removed or not state.messages:
                continue
            owner = state.quota_root.partition("/")[0]
            name = MailboxName("" if owner == "public" else owner, f"Recovered {mailbox}")
            entry = MailboxEntry(mailbox, name, place, state.uidvalidity, int(self.recovery.began))
            transact(store.mailboxes.env, lambda txn, entry=entry: store.mailboxes.write(   # type: ignore[misc]
                entry, txn, guarded=False))
            event.missing.append(f"the name of a mailbox with {state.messages} messages: it is {name} now")
        for entry in list(store.mailboxes.all()):
            if entry.id not in states and entry.id not in self.by_id and entry.partition in store.partitions and (
                    f"partitions/{entry.partition}/index" not in self.events):
                transact(store.mailboxes.env, lambda txn, entry=entry: store.mailboxes.remove(    # type: ignore[misc]
                    entry.name, txn, guarded=False))


def _entry(source: Source, validity: int) -> MailboxEntry:
    from store.rebuild import acl_of  # here: it imports the store
    head = source.head
    return MailboxEntry(MailboxId(head.id), source.name, source.partition, validity or head.uidvalidity, head.created,
                        head.special_use, acl_of(head))


# A partition

@define(eq=False)
class _Partition:
    """Makes one partition whole."""

    all: _Remaking
    partition: "Partition"
    event: "Event"
    lost: set[str] = field(init=False)
    bare: bool = field(init=False)              # index or figures have been lost
    damaged: set[bytes] = field(factory=set)    # message files that cannot be used

    def __attrs_post_init__(self) -> None:
        self.lost = set(self.event.lost) if self.event.lost or self.event.source != "nothing" else set()
        if self.event.source == "nothing":
            self.lost = {table.name for table in self.partition.env.every_table()}
        self.bare = bool(self.lost & {"index.db", "state.db"})

    def run(self) -> None:
        """Do all of it. Raises StoreError."""
        from store.rebuild import limits_of, set_limits  # here: it imports the store
        partition, event = self.partition, self.event
        here = [source for source in self.all.found if source.partition == partition.name]
        first = partition.first_free_serial()
        if self.bare or event.logs_lost or self.lost & {"heads.db", "seen.db", "uidls.db", "vanished.db"}:
            self._heads(here)
            last = max([first, *(_last_serial(source) for source in here), *self._last_known()])
            partition.skip_to(partition.epoch + (1 if event.logs_lost or self.bare else 0), last)
            self._mailboxes(here)
        if "quota.db" in self.lost or event.logs_lost:
            set_limits(partition, limits_of(self.all.found, partition.name))
        self._know()
        if self.bare or event.logs_lost:
            self._evidence()
        recount_quota(partition)
        recount_references(partition)
        recount_purge(partition)
        drop_names(partition, self.all.recovery.adopted.get(partition.name, []))
        if self.lost & {"messages.db", "index.db", "state.db", "cache.db"} or event.logs_lost:
            (partition.folder / "index" / UNCACHED).touch(mode=0o600)
        self._report()
        partition.flush()

    def _last_known(self) -> Iterator[int]:
        """Serials that are in use."""
        for _, rows in every_record(self.partition, usable=sound):
            yield int(rows["serial"].max())
        yield max((record.serial for _, record in self.partition.refs.all()), default=0)

    def _heads(self, here: Iterable[Source]) -> None:
        """Header fields that messages have in one mailbox alone keep their numbers, where these are lost."""
        if "heads.db" not in self.lost:
            return
        for source in here:
            with contextlib.suppress(StoreError):
                heads = idxfile.read_what_is_left(source.path).heads
                if heads:
                    self.partition.transact(lambda txn, heads=heads: self.partition.heads.put_back(     # type: ignore[misc]
                        heads, txn.handle))

    # Mailboxes

    def _mailboxes(self, here: list[Source]) -> None:
        store, partition = self.all.store, self.partition
        files = {source.head.id: source for source in here}
        listed = {entry.id: (entry, 0) for entry in store.mailboxes.all() if entry.partition == partition.name}
        listed |= {entry.id: (entry, when) for when, entry in store.mailboxes.deleted.all()
                   if entry.partition == partition.name}
        pending: list[tuple[MailboxEntry, int, Source | None]] = []
        for mailbox, (entry, removed) in sorted(listed.items()):
            pending.append((entry, removed, files.get(mailbox)))
            if len(pending) >= PIECE or sum(source.head.records for *_, source in pending if source) >= RECORDS:
                self._piece(pending)
                pending = []
        self._piece(pending)

    def _piece(self, pending: list[tuple[MailboxEntry, int, Source | None]]) -> None:
        read = [(entry, removed, source, _read(source)) for entry, removed, source in pending]

        def work(txn: WriteTxn) -> None:
            for entry, removed, source, left in read:
                self._mailbox(entry, removed, source, left, txn)

        self.partition.transact(work)

    def _mailbox(self, entry: MailboxEntry, removed: int, source: Source | None, left: Remains | None, txn: WriteTxn
                 ) -> None:
        partition = self.partition
        data = partition.states.get_to_change(state_key(entry.id), txn.handle)
        state = None if data is None else MailboxState.from_bytes(data, partition.epoch)
        there = self._rows(entry.id, txn)
        newer = source is not None and (state is None or _figures(source, partition)[1] > state.highestmodseq)
        if not newer and not self.bare and not self.lost & {"vanished.db", "seen.db", "uidls.db"}:
            return
        rows = there
        if left is not None and ("index.db" in self.lost or newer and self.event.logs_lost or not len(there)):
            rows = left.rows if "heads.db" in self.lost or not left.heads else self._numbered(left, txn)
        if rows is not there:
            for key in [key for key, _ in partition.index.scan(chunk_key(entry.id, 0), chunk_key(
                    MailboxId(entry.id + 1), 0), txn.handle)]:
                partition.index.delete(key, txn.handle)
            for number, part in split(rows):
                partition.index.put(chunk_key(entry.id, number), encode(part), txn.handle)
        self._state(entry, removed, source, state, rows, txn)
        if left is None or source is None:
            return
        if "seen.db" in self.lost or newer:
            for item in left.own:
                if int(item["reader"]) < len(source.head.readers):
                    txn.put_own(entry.id, int(item["chunk"]), source.head.readers[int(item["reader"])], item["own"])
        if "uidls.db" in self.lost or newer:
            partition.uidls.forget(entry.id, txn.handle)
            partition.uidls.put(entry.id, of_rows(left.uidls, rows), txn.handle)

    def _rows(self, mailbox: MailboxId, txn: WriteTxn) -> Rows:
        values = [value for key, value in self.partition.index.scan(
            chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0), txn.handle)]
        return np.frombuffer(b"".join(value[:-4] for value in values), ROW) if values else np.empty(0, ROW)

    def _numbered(self, left: Remains, txn: WriteTxn) -> Rows:
        from store.heads import renumbered
        numbers = {number: self.partition.heads.number(octets, txn.handle) for number, octets in left.heads.items()}
        return renumbered(left.rows, {old: new for old, new in numbers.items() if new is not None})

    def _state(self, entry: MailboxEntry, removed: int, source: Source | None, state: MailboxState | None, rows: Rows,
               txn: WriteTxn) -> None:
        from store.quotaroots import root_for
        partition, epoch = self.partition, self.partition.epoch
        base = state or evolve(MailboxState.new(entry.uidvalidity, epoch, root_for(partition, entry.name)),
                               uidnext=min(1 + (epoch - 1) * UID_SKIP, _UIDS), highestmodseq=1 + epoch * MODSEQ_SKIP)
        uidnext, highest = base.uidnext, base.highestmodseq
        keywords = base.keywords
        if source is not None:
            figures = _figures(source, partition)
            uidnext, highest = max(uidnext, figures[0]), max(highest, figures[1])
            if state is None or len(source.head.keywords) >= len(keywords):
                keywords = tuple(source.head.keywords)
        uidnext = min(max(uidnext, int(rows["uid"].max(initial=0)) + 1), _UIDS)
        highest = max(highest, int(rows["modseq"].max(initial=1)))
        made = evolve(base, uidvalidity=entry.uidvalidity, uidnext=uidnext, highestmodseq=highest, changed=highest,
                      log_since=highest, logged=0, epoch=epoch, removed=removed, moving=False, keywords=keywords,
                      recent=min(max(base.recent, source.head.recent if source else 1), uidnext))
        partition.vanished.forget(entry.id, txn.handle)
        txn.set_state(entry.id, None, counted(made, rows))

    # Message files

    def _know(self) -> None:
        """Have the partition know every message file that records refer to; records without one go."""
        partition = self.partition
        wanted: dict[bytes, list[int]] = {}
        for _, rows in every_record(partition, usable=sound):
            _, first, which = np.unique(np.ascontiguousarray(rows["mid"]).view("S32"), return_index=True,
                                        return_inverse=True)
            skips = np.zeros(len(first), np.int64)
            np.maximum.at(skips, which, rows["skip"])
            for mid, serial, skip in zip(rows["mid"][first].tolist(), rows["serial"][first].tolist(), skips.tolist(),
                                         strict=True):
                known = wanted.get(mid)
                if known is not None:
                    known[1] = max(known[1], skip)
                elif partition.refs.find(mid) is None:
                    wanted[mid] = [serial, skip]
        taken: set[int] = {record.serial for _, record in partition.refs.all()} if wanted else set()
        for mids in _pieces(sorted(wanted, key=lambda mid: wanted[mid][0]), MESSAGES):
            records = []
            for mid in mids:
                record = self._record(mid, wanted[mid], taken)
                if record is not None:
                    records.append((mid, record))
            partition.transact(lambda txn, records=records: [       # type: ignore[misc]
                txn.refs.write(mid, record, txn.handle) for mid, record in records])
        if wanted:
            self._fit()

    def _record(self, mid: bytes, known: list[int], taken: set[int]) -> MessageRecord | None:
        serial, skip = known
        path = self.partition.files.locate(mid, serial)
        try:
            found = None if path is None else trace_of(path, mid, [skip] if skip else [])
        except (OSError, StoreError):
            found = None
        if found is None:
            self.damaged.add(mid)
            return None
        if serial in taken or not 0 < serial < 1 << 62:
            serial = self.partition.next_serial()
        taken.add(serial)
        return MessageRecord(serial, 0, found[1], found[0])

    def _fit(self) -> None:
        """Records say the serials that the files have, and those whose files cannot be used go."""
        partition = self.partition
        serials = {mid: record.serial for mid, record in partition.refs.all()}
        gone = 0
        for mailbox, state in list(partition.all_states()):
            def work(txn: WriteTxn, mailbox: MailboxId = mailbox, state: MailboxState = state) -> int:
                rows = txn.load(mailbox)
                there = np.fromiter((serials.get(mid, 0) for mid in rows["mid"].tolist()), np.uint64, len(rows))
                if (there == rows["serial"]).all():
                    return 0
                changed, kept = rows["serial"] != there, there != 0
                rows["serial"] = there
                txn.rewrite(mailbox, rows, changed, kept)
                txn.set_state(mailbox, None, counted(state, take(rows, np.flatnonzero(kept))))
                return int(np.count_nonzero(~kept))

            gone += partition.transact(work)
        if gone:
            self.event.missing.append(f"{gone} messages whose files are missing or damaged")
            self.event.missing += [f"message file {mid.hex()}" for mid in sorted(self.damaged)[:SHOWN]]

    def _evidence(self) -> None:
        """Records that neither the index nor `store.idx` has: `messages.db` knows where they were."""
        partition = self.partition
        if "messages.db" in self.lost:
            return
        counts = Counts.of(every_record(partition, usable=sound))
        possible: dict[int, tuple[MailboxId, int]] = {}
        states = dict(partition.all_states())
        for mailbox, state in states.items():
            source = self.all.by_id.get(mailbox)
            first = source.head.uidnext if source is not None else 1
            last = min(state.uidnext, first + UNSEEN)
            possible |= {mark(mailbox, uid): (mailbox, uid) for uid in range(first, last)}
        found: dict[MailboxId, list[tuple[int, bytes, MessageRecord]]] = {}
        for mid, record, references, check in counts.differing(partition):
            places = solve(record.references - references, record.check - check & (1 << 64) - 1, set(), possible)
            for place, uid in places or ():
                found.setdefault(MailboxId(place), []).append((uid, mid, record))
        for mailbox, rows in found.items():
            partition.transact(lambda txn, mailbox=mailbox, rows=rows: self._add(     # type: ignore[misc]
                mailbox, rows, states[mailbox], txn))

    def _add(self, mailbox: MailboxId, found: list[tuple[int, bytes, MessageRecord]], state: MailboxState, txn: WriteTxn
             ) -> None:
        old = txn.load(mailbox)
        made = np.zeros(len(found), ROW)
        for row, (uid, mid, record) in zip(made, sorted(found), strict=True):
            path = self.partition.files.locate(mid, record.serial)
            row["uid"], row["mid"], row["serial"] = uid, mid, record.serial
            row["modseq"], row["size"] = state.highestmodseq + 1, record.size
            row["received"] = row["saved"] = int(path.stat().st_mtime) if path is not None else 0
        rows = np.concatenate([old, made])
        rows = rows[np.argsort(rows["uid"], kind="stable")]
        for number, part in split(rows):
            self.partition.index.put(chunk_key(mailbox, number), encode(part), txn.handle)
        highest = state.highestmodseq + 1
        txn.set_state(mailbox, None, counted(evolve(state, highestmodseq=highest, changed=highest, log_since=highest,
                                                    uidnext=max(state.uidnext, int(rows["uid"][-1]) + 1)), rows))
        self.event.missing.append(f"flags and dates of {len(made)} messages in mailbox {mailbox}")

    # The report

    def _report(self) -> None:
        """What is not there any more."""
        told = {"removed.db": "expunged messages that could have been brought back",
                "vanished.db": "the log of expunged UIDs", "arrivals.db": "what is known of duplicates",
                "purge.db": "what waits for the purge"}
        self.event.missing += [told[name] for name in sorted(self.lost & told.keys())]
        if self.lost & {"messages.db", "index.db"} or self.event.logs_lost:
            self.unclaimed()

    def unclaimed(self) -> None:
        """Message files that nothing is known of."""
        files = self.partition.files
        known = {mid.hex() for mid, _ in self.partition.refs.all()}
        unknown = [path for path in files.folder.glob("?/??/*") if path.name not in known]
        if unknown:
            self.event.missing.append(f"{len(unknown)} message files belong to no mailbox; they stay where they are")
            self.event.missing += [str(path) for path in unknown[:SHOWN]]


def _figures(source: Source, partition: "Partition") -> tuple[int, int]:
    """UIDNEXT and HIGHESTMODSEQ that the file says, for the partition's epoch."""
    behind = max(0, partition.epoch - source.head.epoch)
    return min(source.head.uidnext + behind * UID_SKIP, _UIDS), source.head.highestmodseq + behind * MODSEQ_SKIP


def _read(source: Source | None) -> Remains | None:
    try:
        return None if source is None else idxfile.read_what_is_left(source.path)
    except StoreError:
        return None


def _last_serial(source: Source) -> int:
    left = _read(source)
    return 0 if left is None else int(left.rows["serial"][left.rows["serial"] < 1 << 62].max(initial=0))


def _pieces(items: list[Any], size: int = 256) -> Iterator[list[Any]]:
    return (items[at:at + size] for at in range(0, len(items), size))


# In the background

def uncached(store: "Store") -> Iterator[tuple[str, bytes]]:
    """The messages without cache records, on partitions that may have some; the digest is empty at the end of each."""
    for name, partition in store.partitions.items():
        if (partition.folder / "index" / UNCACHED).exists():
            for mid in lost_cached(partition):
                yield name, mid
            yield name, b""


def cache_one(store: "Store", item: tuple[str, bytes]) -> int:
    """Make the cache record of one message, from its file."""
    partition, mid = store.partitions[item[0]], item[1]
    if not mid:
        (partition.folder / "index" / UNCACHED).unlink(missing_ok=True)
        log.info("every message on partition %s has a cache record again", item[0])
        return 0
    row = np.zeros(1, ROW)
    record = partition.refs.find(mid)
    if record is None:
        return 0
    row["mid"], row["serial"] = mid, record.serial
    partition.rebuild_cached(row[0])
    return 1
