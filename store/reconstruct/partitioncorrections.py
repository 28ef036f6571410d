"""Whole partitions put right by what the databases and `store.idx` say of each other."""

from store.mend.correctionrounds import mend
from store.rebuild.outcome import Outcome
from store.reconstruct.faults import found
from store.reconstruct.mailboxcorrections import look_at, rebuild_cached
from store.reconstruct.request import Request
from store.reconstruct.scope import entries_meant, mailboxes_meant, require_partition


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
        mend(store, lambda store: found(store, request, None), outcome,
             None if request.partition is None else [request.partition])
        with request.watched() as progress:
            look_at(store, entries, outcome, progress, deep=request.deep, uses={})
    return outcome
