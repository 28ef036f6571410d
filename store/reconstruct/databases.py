"""Which procedure rebuilds databases, or puts right a whole partition or store."""

from collections.abc import Callable
from functools import partial

from store.rebuild.outcome import Outcome
from store.reconstruct import livepartition, lostpartitions, mailboxlist, partitioncorrections, planned, wholestore
from store.reconstruct.request import Request


def procedure(request: Request, down: bool) -> Callable[[Request], Outcome]:
    """What does it; `down`: the databases of the store are gone."""
    if request.plan or request.apply:
        return planned.make if request.plan else planned.apply
    if request.mboxlist or down and request.all and mailboxlist.only_list_is_lost(request.root):
        return mailboxlist.reconstruct_list
    if request.engine == "spark" or down and request.check:
        return planned.make_and_apply
    if down:
        return wholestore.reconstruct_store
    if names := lostpartitions.wanted(request):
        return partial(livepartition.reconstruct_partitions, names=names)
    return partitioncorrections.correct
