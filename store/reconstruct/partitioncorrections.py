"""Whole partitions put right by what the databases and `store.idx` say of each other."""

from store.rebuild.emptying import make_folders
from store.rebuild.outcome import Outcome
from store.rebuild.recount import recount
from store.reconstruct.mailboxcorrections import look_at, rebuild_cached
from store.reconstruct.orphans import take_in_lost
from store.reconstruct.request import Request
from store.reconstruct.scope import entries_meant, mailboxes_meant, require_partition
from store.userarea import writing


def correct(request: Request) -> Outcome:
    """All of them, or one. Raises Refused, StoreError."""
    with request.open_store() as store, request.correcting():
        require_partition(store, request)
        scope = mailboxes_meant(store, request)
        entries = entries_meant(store, request) if request.deep else []
        outcome = Outcome(mailboxes=len(scope))
        if request.force and request.all:
            with request.watched() as progress:
                rebuild_cached(store, entries or list(store.mailboxes.all()), outcome, request, progress)
        for name, partition in sorted(store.partitions.items()):
            if request.partition in (None, name):
                make_folders(partition.folder)
                outcome.corrections += recount(store, partition)
                take_in_lost(store, partition, outcome)
            partition.unwritten.changed.update(mailbox for place, mailbox in scope if place == name)
            writing.write_round(store, partition, hurry=True)
        with request.watched() as progress:
            look_at(store, entries, outcome, progress, deep=request.deep, uses={})
    return outcome
