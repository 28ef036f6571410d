"""A mailbox of the list whose figures are lost gets new ones from its records and its `store.idx`."""

import logging

from attrs import evolve

from mboxlist.entry import MailboxEntry, MailboxId
from store.partition.partition import Partition
from store.rebuild.desired import DesiredMailbox, numbered, own_of, state_of
from store.rebuild.loader import EmptyLoader
from store.rebuild.recount import recount_quota, recount_references
from store.rebuild.userareascan import Source
from store.tables.index import MAX_UID, chunk_key, is_whole, join
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.tables.uidls import of_rows
from store.userarea import idxfile
from store.userarea.idxfile import Head
from store.userarea.paths import place

log = logging.getLogger(__name__)


def make_again(partition: Partition, entry: MailboxEntry, head: Head) -> None:
    """Do it for the mailbox whose `store.idx` has that head; nobody else is in the store. Raises StoreError."""
    path = place(partition, entry.name)
    left = idxfile.read_what_is_left(path)
    chunks = [value for _, value in partition.index.scan(chunk_key(entry.id, 0), chunk_key(MailboxId(entry.id + 1), 0))]
    whole = bool(chunks) and all(map(is_whole, chunks))
    rows = join(chunks) if whole else numbered(partition, left.rows, left.private_headers)
    state = state_of(partition, entry, rows, Source(partition.name, path, head, entry.name))
    highest = state.highestmodseq + MODSEQ_SKIP         # it may have had more than its file knows
    state = evolve(state, uidnext=min(state.uidnext + UID_SKIP, MAX_UID), highestmodseq=highest, changed=highest,
                   log_since=highest)
    EmptyLoader(partition).load([DesiredMailbox(entry, state, rows, 0, own_of(head, left.own),
                                                uidls=of_rows(left.uidls, rows))])
    partition.unwritten.changed.add(entry.id)
    for correction in recount_references(partition) + recount_quota(partition):
        log.warning("repaired %s: %s", correction.where, correction.what)
    log.warning("%s had no figures: it is there again with %d messages, from its records and %s", entry.name, len(rows),
                path)
