"""Which procedure is wanted. Those that rebuild databases are loaded when one is: what takes messages apart, or puts
back snapshots, takes longer to load than a mailbox that is sound takes to look at."""

from collections.abc import Callable

from store.rebuild.outcome import Outcome
from store.reconstruct import faults, lostpartitions, mailboxcorrections, parts
from store.reconstruct.request import Request


def procedure(request: Request, down: bool) -> Callable[[Request], Outcome]:
    """What does it; `down`: the databases of the store are gone."""
    if not (down or request.plan or request.apply or request.mboxlist or request.engine == "spark"):
        if request.cache or request.quota or request.rights:
            return parts.rebuild_parts
        if (request.check or request.what) and not lostpartitions.wanted(request):
            return faults.tell if request.check else mailboxcorrections.correct
    from store.reconstruct import databases
    return databases.procedure(request, down)
