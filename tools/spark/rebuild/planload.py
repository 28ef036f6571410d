"""Loading the plan of a rebuild (`plan`) into a store that is down: all of its databases are gone.

The databases are made beside their places, in `<root>/reconstruct`: a store that is not complete cannot be opened. What
was cut off goes on where it was: a message or mailbox that is there is not loaded again. At the end the list of
mailboxes gets its place, with one rename, and then each `store.idx` is written. As after every rebuild, UIDs and
MODSEQs skip ahead of what may have been shown since the `store.idx` were written.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import transact
from store.accounts.builtin import User
from store.opening import open_store
from store.partition.marks import IN_PLACE, SCRATCH, mark_behind, read_epoch
from store.partition.messagefiles import sync_file_system
from store.partition.partition import Partition
from store.partition.serials import SERIALS
from store.partitions import volumes
from store.rebuild.desired import DesiredMailbox, annotations_of, entry_of, limits_of, numbered, own_of, state_of
from store.rebuild.emptying import (
    adopt,
    discard,
    finished,
    make_folders,
    nobody_else,
    read_adopted,
    refuse_databases,
    write_adopted,
)
from store.rebuild.loader import EmptyLoader, KnownFile, load_messages
from store.rebuild.outcome import Outcome
from store.rebuild.userareascan import Source
from store.reconstruct.request import Progress, silent
from store.reconstruct.wholestore import begin_list, write_user_area
from store.settings import Settings
from store.store import Store
from store.tables.uidls import of_rows
from store.userarea.idxfile import OWN, UIDLS, uidls_of
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import BadPlan, Manifest, Plan
from tools.spark.rebuild.planpieces import Messages, own_fields, whole_mailboxes

ADOPTED = "adopted.json"            # in it: names that files of `staging/` got
HELD = 512 << 20                    # octets of cache records that are held in memory at a time


def apply_down(root: Path, plan: Plan, settings: Settings, *, users: Iterable[User] = (),
               progress: Progress = silent) -> Outcome:
    """Make the databases of the store in `root` from a plan of it; what could not be rebuilt is in the findings.

    Raises BadPlan when it is no plan of this store as it is, StoreError STORE_IN_USE, DISK_FULL, UNAVAILABLE, OSError.
    """
    manifest = plan.read_manifest()
    loading = _Loading(root.absolute(), plan, manifest, progress, Outcome(findings=plan.findings()))
    with nobody_else(root):
        if (loading.scratch / IN_PLACE).exists():       # a rebuild without a plan was cut off
            discard(root, manifest.partitions)
            finished(root)
        loading.look()
        loading.prepare()
        store = open_store(loading.scratch, evolve(settings, sync="none"), empty=True)
        try:
            loading.run(store, list(users))
        finally:
            for partition in store.partitions.values():
                partition.unwritten.changed.clear()         # they are written when the store is whole
                mark_behind(partition.folder)
            store.close()
        loading.put_in_place()
    store = open_store(root, settings)
    try:
        progress("store.idx", 0, manifest.total.mailboxes)
        write_user_area(store, loading.sources)
    finally:
        store.close()
    return loading.done


@define(eq=False)
class _Loading:
    """See `apply_down`."""

    root: Path
    plan: Plan
    manifest: Manifest
    progress: Progress
    done: Outcome
    rows: list[dict[str, Any]] = field(factory=list)        # of the mailboxes
    sources: list[Source] = field(factory=list)
    adopted: dict[str, list[list[Path]]] = field(factory=dict)

    @property
    def scratch(self) -> Path:
        """Where the databases are made."""
        return self.root / SCRATCH

    def look(self) -> None:
        """See that the plan is one of this store as it is. Raises BadPlan, StoreError STORE_IN_USE."""
        places = {path.name for path in volumes.with_messages(self.root)}
        if places != set(self.manifest.partitions):
            raise BadPlan(f"the plan is of the partitions {', '.join(sorted(self.manifest.partitions))}, and there are "
                          f"{', '.join(sorted(places))}")
        environments = [self.root / "mboxlist"]
        if not self.scratch.is_dir():
            environments += [self.root / "partitions" / name / "index" for name in places]
        refuse_databases(environments)
        for row in self.plan.rows("mailboxes"):
            folder = self.root / "partitions" / row["partition"]
            try:
                status = os.stat(folder / row["path"])
            except OSError as error:
                raise BadPlan(f"{folder / row['path']} is in the plan, and cannot be found: {error.strerror}") from None
            if (status.st_size, status.st_mtime_ns) != (row["size"], row["modified"]):
                raise BadPlan(f"{folder / row['path']} has been written since the plan was made")
            self.sources.append(plantasks.source_of(row, folder))
            self.rows.append(row)

    def prepare(self) -> None:
        """All folders; every message file has its name in `messages/`. Raises OSError."""
        for folder in (self.scratch / "mboxlist", self.scratch / "run"):
            privatefiles.make_folder(folder, parents=True, exist_ok=True)
        link, note = self.scratch / "partitions", self.scratch / ADOPTED
        if not link.is_symlink():
            link.symlink_to(Path("..") / "partitions", target_is_directory=True)
        before = read_adopted(note)
        for name in self.manifest.partitions:
            folder = self.root / "partitions" / name
            make_folders(folder)
            self.adopted[name] = before.get(name, []) + adopt(folder / "staging", folder / "messages")
            sync_file_system(folder)
        write_adopted(note, self.adopted)

    def run(self, store: Store, users: Sequence[User]) -> None:
        """Fill the store. Raises StoreError DISK_FULL, UNAVAILABLE, BadPlan."""
        begin_list(store, self.sources, users, self.done.findings)
        for partition in store.partitions.values():
            here = [(row, source) for row, source in zip(self.rows, self.sources, strict=True)
                    if source.partition == partition.name]
            epoch = max([self.manifest.partitions[partition.name].epoch, read_epoch(partition.folder),
                         *(source.head.epoch for _, source in here)])
            messages = Messages.of(self.plan, partition.name)
            loader = EmptyLoader(partition, store.mailboxes)
            loader.prepare(epoch + 1, messages.last_serial + SERIALS, limits_of(self.sources, partition.name))
            self._load_messages(partition, messages)
            by_path = {row["path"]: source for row, source in here}
            loader.load(self._desired(store, partition, by_path, messages))
            loader.finish(self.adopted.get(partition.name, []))
        store.mailboxes.env.flush()
        self.done.mailboxes = self.manifest.total.mailboxes
        self.done.records = self.manifest.total.records

    def _load_messages(self, partition: Partition, messages: Messages) -> None:
        held: list[KnownFile] = []
        octets = done = 0
        for row in self.plan.rows("messages", ["digest", "trace", "octets", "staged", "cached"],
                                  partition=partition.name):
            if row["cached"] is None:
                continue
            record = messages.record(row["digest"], row["trace"])
            if record is None or partition.refs.find(row["digest"]) == record:
                continue
            held.append((row["digest"], record, row["cached"]))
            octets += len(row["cached"])
            if octets >= HELD:
                done += load_messages(partition, held)
                self.progress("messages", done, self.manifest.partitions[partition.name].messages)
                held, octets = [], 0
        load_messages(partition, held)
        self.done.messages += int(np.count_nonzero(messages.references))

    def _desired(self, store: Store, partition: Partition, by_path: dict[str, Source], messages: Messages
                 ) -> Iterator[DesiredMailbox]:
        done = 0
        for pieces in whole_mailboxes(self.plan, partition.name):
            source = by_path.get(pieces[0]["path"])
            if source is not None:
                yield self._mailbox(store, partition, source, pieces, messages)
                done += 1
                self.progress("mailboxes", done, len(by_path))

    @staticmethod
    def _mailbox(store: Store, partition: Partition, source: Source, pieces: Sequence[dict[str, Any]],
                 messages: Messages) -> DesiredMailbox:
        head = source.head
        rows = numbered(partition, messages.with_serials(pieces), own_fields(pieces))
        entry = entry_of(source, head.uidvalidity or transact(store.mailboxes.env, store.mailboxes.next_identity)[1])
        uidls = of_rows(uidls_of(np.frombuffer(pieces[0]["uidls"] or b"", UIDLS)), rows)
        return DesiredMailbox(entry, state_of(partition, entry, rows, source, removed=head.removed), rows, head.removed,
                              own_of(head, np.frombuffer(pieces[0]["own"], OWN)), list(annotations_of(head)),
                              head.subscriptions, uidls)

    def put_in_place(self) -> None:
        """From here on there is a store. Raises OSError."""
        privatefiles.make_folder(self.root / "run", exist_ok=True)
        for name in self.manifest.partitions:
            sync_folder(self.root / "partitions" / name)
        for region in (self.root / "mboxlist").glob("__db.*"):       # of the environment that was lost
            region.unlink()
        (self.scratch / "mboxlist").rename(self.root / "mboxlist")      # there may be an empty folder
        sync_folder(self.root)
        (self.scratch / "partitions").unlink()
        shutil.rmtree(self.scratch)
