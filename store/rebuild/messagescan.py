"""An empty partition filled from its user area and its message files alone, each of which is read.

What a record says counts if its message file is there, whole; everything else is a finding. Message files that no
record refers to stay, and are reported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from attrs import define, evolve, field

from mboxlist.entry import MailboxEntry
from mboxlist.table import MailboxList
from store.errors import StoreError
from store.message.cacherecord import CachedMessage
from store.partition.filecontent import content
from store.partition.marks import read_epoch
from store.partition.partition import Partition
from store.partition.serials import SERIALS
from store.partition.transactions import WriteTxn
from store.rebuild.desired import MODSEQS, DesiredMailbox, annotations_of, numbered, own_of, state_of
from store.rebuild.loader import EmptyLoader, load_references
from store.rebuild.outcome import Outcome
from store.rebuild.referencepass import Gathered
from store.rebuild.userareascan import Source
from store.tables.index import Rows, take
from store.tables.privateheaders import UNKNOWN
from store.tables.references import MessageRecord
from store.tables.uidls import of_rows
from store.userarea import idxreading
from store.values import RECONSTRUCT, RESTORE, Finding

UNKNOWN_FILE = "nothing is known of this file"
FILES = 500                 # message files that one transaction makes known


def fill(partition: Partition, wanted: Sequence[tuple[Source, MailboxEntry]], limits: dict[str, list[int]],
         outcome: Outcome, *, listed: MailboxList | None, adopted: Iterable[Sequence[Path]],
         progress: Callable[[str, int, int], None]) -> None:
    """Have an empty partition these mailboxes, in order of id, with their messages; and with `listed` that list. What
    could not be had is in the outcome's findings. Flushed. Raises StoreError DISK_FULL, UNAVAILABLE, OSError."""
    epoch = max([read_epoch(partition.folder), *(source.head.epoch for source, _ in wanted)])
    gathered = Gathered(partition)
    loader = EmptyLoader(partition, listed, bulk=True, gathered=gathered)
    loader.prepare(epoch + 1, max((_last_serial(source) for source, _ in wanted), default=0) + SERIALS, limits)
    scan = MessageScan(partition, outcome)
    outcome.mailboxes += loader.load((scan.desired(source, entry) for source, entry in wanted),
                                     lambda done: progress("mailboxes", done, len(wanted)))
    load_references(partition, gathered)
    loader.finish(adopted)
    outcome.findings += [Finding(UNKNOWN_FILE, str(path), RECONSTRUCT) for path in _unclaimed(partition)]


def _last_serial(source: Source) -> int:
    serials = idxreading.read_what_is_left(source.path).rows["serial"]
    return int(serials[serials < MODSEQS].max(initial=0))


def _unclaimed(partition: Partition) -> Iterator[Path]:
    for path in sorted(partition.files.folder.glob("?/??/*")):
        try:
            known = partition.refs.find(bytes.fromhex(path.name)) is not None
        except ValueError:
            known = False
        if not known and path.is_file() and not path.is_symlink():
            yield path


@define(eq=False)
class MessageScan:
    """Mailboxes as their `store.idx` has them, with the records whose message files are whole."""

    partition: Partition
    outcome: Outcome
    _damaged: set[bytes] = field(factory=set)       # message files that were looked at, and are not to be used

    def desired(self, source: Source, entry: MailboxEntry) -> DesiredMailbox:
        """What one mailbox is to be; the partition knows its message files then."""
        left, head = idxreading.read_what_is_left(source.path), source.head
        rows = self._usable(source, numbered(self.partition, left.rows, left.private_headers))
        self.outcome.records += len(rows)
        return DesiredMailbox(entry, state_of(self.partition, entry, rows, source, removed=head.removed), rows,
                              head.removed, own_of(head, left.own), list(annotations_of(head)), head.subscriptions,
                              of_rows(left.uidls, rows))

    def _usable(self, source: Source, rows: Rows) -> Rows:
        """The records whose message files are there, whole; the partition has records of the files then."""
        partition, kept = self.partition, np.ones(len(rows), np.bool_)
        digests = [bytes(digest) for digest in rows["digest"]]
        private_headers = partition.private_headers.sizes(rows).tolist()
        for at in range(0, len(rows), FILES):
            places = range(at, min(at + FILES, len(rows)))
            self._read({digests[place]: (rows[place], private_headers[place]) for place in places
                        if partition.refs.find(digests[place]) is None and digests[place] not in self._damaged})
            for place in places:
                row, record = rows[place], partition.refs.find(digests[place])
                if record is not None and _fits(row, private_headers[place], record):
                    row["serial"] = record.serial
                    if private_headers[place] == UNKNOWN:
                        row["head"], row["size"] = 0, record.size - int(row["header_length"])
                        self._tell("header fields that it has in this mailbox alone are lost",
                                   f"{source.name}, UID {row['uid']}")
                else:
                    kept[place] = False
                    self._tell(f"its message file {digests[place].hex()} is missing, damaged, or not as long as it was",
                               f"{source.name}, UID {row['uid']}")
        rows["modseq"] = np.minimum(rows["modseq"], MODSEQS)
        rows["keywords"] &= np.uint64((1 << (len(source.head.keywords) if source.found else 0)) - 1)
        return take(rows, np.flatnonzero(kept))

    def _read(self, new: dict[bytes, tuple["np.void", int]]) -> None:
        """Have the partition know these message files, with nothing that refers to them yet: by digest a record that
        does, and the octets of header fields of its own that it has."""
        records: list[tuple[bytes, MessageRecord, CachedMessage]] = []
        for digest, (row, head) in new.items():
            found = self._content(digest, int(row["header_length"]))
            if found is None:
                self._damaged.add(digest)
                continue
            serial = int(row["serial"])
            record = MessageRecord(serial, 0, found[1], found[0].trace)
            if not _fits(row, head, record):
                continue                        # another mailbox may know it better
            if not 0 < serial < MODSEQS or self.partition.serials.cached([serial])[0] is not None:
                record = evolve(record, serial=self.partition.serials.next_serial())
            records.append((digest, record, found[0]))

        def work(txn: WriteTxn) -> None:
            for digest, record, cached in records:
                txn.refs.write(digest, record, txn.handle)
                self.partition.serials.write_cached(record.serial, cached, txn.handle)

        if records:
            self.partition.transact(work)
        self.outcome.messages += len(records)

    def _content(self, digest: bytes, header_length: int) -> tuple[CachedMessage, int] | None:
        """What a message file holds; None, and a finding, if that is not the message."""
        path = Path(self.partition.files.path(digest))
        try:
            found = content(path, digest, [header_length] if header_length else [])
            if found is None:
                self._tell("it does not agree with its digest", str(path))
        except FileNotFoundError:
            return None
        except (OSError, StoreError) as error:
            self._tell(f"cannot be read: {error}", str(path))
            return None
        return found

    def _tell(self, what: str, where: str) -> None:
        self.outcome.findings.append(Finding(what, where, RESTORE))


def _fits(row: "np.void", head: int, record: MessageRecord) -> bool:
    """Whether the record of the index, with so many octets of header fields of its own, is of this message file."""
    more = int(row["size"]) + int(row["header_length"]) - record.size
    return int(row["header_length"]) in (0, record.trace) and (more == head or head == UNKNOWN and more > 0)
