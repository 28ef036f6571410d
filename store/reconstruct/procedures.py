"""Which procedure a reconstruct is: the front door of this room."""

from collections.abc import Callable

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
    """What does it. Whose quota use is right is told by two tables, and no store is open."""
    others = down or request.plan or request.mboxlist or request.cache or request.rights or request.what
    if request.quota and not others and are_right(request.root, request.program, request.partition):
        return lambda _: Outcome()
    from store.reconstruct import corrections
    return corrections.procedure(request, down)
