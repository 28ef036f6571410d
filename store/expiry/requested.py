"""Expiry that somebody has asked for: of some mailboxes, at once and to their end. (By the clock: `rounds`.)"""

import time
from collections.abc import Callable, Iterable

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.expiry.rounds import Record
from store.expiry.rulebook import Rulebook
from store.expiry.work import Done, Plan, Reported, expire
from store.store import Store
from store.tables.slices import PartlyDone

FLUSH_SECONDS = 5.0


def expire_all(store: Store, entries: Iterable[MailboxEntry], book: Rulebook, plan: Plan,
               progress: Callable[[int], None]) -> tuple[Record, list[Reported]]:
    """Do in these mailboxes what the rules say; nothing if the rules have faults. `progress` takes how many are done.
    """
    record, reported = Record(began=time.time()), list[Reported]()
    for complaint in book.complaints:
        record.problems[f"nothing is expired: {complaint}"] = 1
    flushed = time.monotonic()
    for entry in [] if book.complaints else entries:
        _expire_mailbox(store, entry, book, plan, record, reported)
        progress(record.mailboxes)
        if time.monotonic() - flushed > FLUSH_SECONDS:
            _flush(store)
            flushed = time.monotonic()
    _flush(store)
    return record, reported


def _expire_mailbox(store: Store, entry: MailboxEntry, book: Rulebook, plan: Plan, record: Record,
                    reported: list[Reported]) -> None:
    more, first = True, True
    while more:
        try:
            done = expire(store, entry, book, plan)
        except StoreError as error:
            done = error.done[0] if isinstance(error, PartlyDone) else Done()
            if error.problem is not Problem.NO_MAILBOX:         # else it was deleted just now
                done.problems.append(f"{entry.name}: {error.public}")
        if not first:                       # what is only reported was reported the first time
            done.counters = {key: counter for key, counter in done.counters.items()
                             if all(item.rule != key for item in done.reported)}
            done.reported = []
        reported += done.reported
        record.add(done)
        more, first = done.more, False
    record.mailboxes += 1


def _flush(store: Store) -> None:
    for partition in store.partitions.values():
        partition.flush()
