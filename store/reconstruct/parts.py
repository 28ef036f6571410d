"""Parts of a store that is whole otherwise: cache records, quota use, the tables of rights and aliases."""

from collections.abc import Callable

from mboxlist.names import PUBLIC, SEPARATOR
from store.rebuild import recount
from store.rebuild.outcome import Outcome
from store.rebuild.recount import recount_quota
from store.reconstruct.mailboxcorrections import rebuild_cached
from store.reconstruct.request import Request
from store.reconstruct.scope import entries_meant, owner_meant
from store.store import Store
from store.values import RECONSTRUCT, Finding


def rebuild_parts(request: Request) -> Outcome:
    """Those that are wanted. Raises Refused, StoreError."""
    outcome = Outcome()
    with request.open_store() as store, request.correcting(), request.watched() as progress:
        if request.cache:
            entries = entries_meant(store, request)
            outcome.mailboxes = len(entries)
            rebuild_cached(store, entries, outcome, request, progress)
        if request.quota:
            _recount_quotas(store, request, outcome)
        if request.rights and request.check:
            outcome.left += [Finding(each.what, each.where, RECONSTRUCT) for each in recount.wrong_rights(store)]
        elif request.rights:
            outcome.corrections += recount.rebuild_rights(store) + recount.reconcile_aliases(store)
    return outcome


def _recount_quotas(store: Store, request: Request, outcome: Outcome) -> None:
    """Quota use, as the figures of mailboxes sum up; of all, or of one owner's roots."""
    wanted = _roots_of(owner_meant(store, request))
    for name, partition in sorted(store.partitions.items()):
        if request.partition in (None, name):
            wrong = recount_quota(partition, wanted, change=not request.check)
            if request.check:
                outcome.left += [Finding(each.what, each.where, RECONSTRUCT) for each in wrong]
            else:
                outcome.corrections += wrong
                partition.flush()


def _roots_of(owner: str | None) -> Callable[[str], bool]:
    if owner is None:
        return lambda root: True
    if not owner:
        return lambda root: root.startswith(PUBLIC)
    return lambda root: root.partition(SEPARATOR)[0] == owner
