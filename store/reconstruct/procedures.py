"""Which procedure a reconstruct is: the front door of this room."""

from collections.abc import Callable
from functools import partial

from store.errors import Problem, StoreError
from store.partition.marks import is_down
from store.quota.sums import are_right
from store.rebuild.outcome import Outcome
from store.reconstruct.request import Refused, Request


def reconstruct(request: Request) -> Outcome:
    """Do it; what was done, and what is left. Raises Refused, StoreError, OSError."""
    down = is_down(request.root)
    _require_sense(request, down)
    return _procedure(request, down)(request)


def _require_sense(request: Request, down: bool) -> None:
    """Raises Refused for what does not go together, StoreError NO_STORE."""
    parts = request.cache or request.quota or request.rights
    planned = request.plan or request.apply or request.engine
    if not (request.what or request.all or request.partition or request.plan or request.apply or request.mboxlist
            or request.quota or request.rights):
        raise Refused("what is to be reconstructed? A user, a mailbox, --partition NAME, --mboxlist or --all")
    if request.uids and not (request.cache and request.what):
        raise Refused("--uid is for --cache and a mailbox")
    if request.deep and (parts or request.check or planned or not (request.what or request.all)):
        raise Refused("--deep is for USER|MAILBOX or --all; onecopy scrub reads all and changes nothing")
    if parts and (planned or request.mboxlist):
        raise Refused("--cache, --quota and --rights need no plan, and are not for the list")
    if request.apply and (request.plan or request.engine or request.partition):
        raise Refused("a plan that is applied is as it is: --plan, --engine and --partition are for making one")
    if down and not (request.root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {request.root}; `onecopy init` makes one")
    if down and (request.what or parts or request.partition and not request.plan):
        raise Refused("the databases are lost: only all of them can be rebuilt (--all), or the list (--mboxlist)")


def _procedure(request: Request, down: bool) -> Callable[[Request], Outcome]:
    """What does it. Modules are loaded here as they are needed, and nowhere else in this room: what takes messages
    apart, or puts back snapshots, takes longer to load than a mailbox that is sound takes to look at."""
    if request.plan or request.apply:
        from store.reconstruct import planned
        return planned.make if request.plan else planned.apply
    if request.mboxlist or down and request.all:
        from store.reconstruct import mailboxlist
        if request.mboxlist or mailboxlist.only_list_is_lost(request.root):
            return mailboxlist.reconstruct_list
    if request.engine == "spark" or down and request.check:
        from store.reconstruct import planned
        return planned.make_and_apply
    if down:
        from store.reconstruct import wholestore
        return wholestore.reconstruct_store
    if request.cache or request.quota or request.rights:
        if request.quota and not (request.cache or request.rights or request.what):
            if are_right(request.root, request.program, request.partition):     # two tables tell, and no store is open
                return lambda _: Outcome()
        from store.reconstruct import parts
        return parts.rebuild_parts
    from store.reconstruct import lostpartitions
    if names := lostpartitions.wanted(request):
        from store.reconstruct import livepartition
        return partial(livepartition.reconstruct_partitions, names=names)
    if request.check:
        from store.reconstruct import faults
        return faults.tell
    if request.what:
        from store.reconstruct import mailboxcorrections
        return mailboxcorrections.correct
    from store.reconstruct import partitioncorrections
    return partitioncorrections.correct
